"""The calendars of a tenant: put, read, list, remove."""

from __future__ import annotations

from duetime.api.calendars.requests import CalendarBody
from duetime.api.calendars.responses import CalendarPage, CalendarResponse, calendar_response
from duetime.api.context import Services
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, etag, if_match, not_modified
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Route
from duetime.app.calendars import Calendars
from duetime.domain.calendars import Calendar
from duetime.domain.principals import Role, own_tenant

_CALENDAR = "/v1/calendars/<calendar>"


@Route(
    "PUT",
    _CALENDAR,
    Role.ADMIN,
    summary="Create or replace a calendar",
    body=CalendarBody,
    responses={200: CalendarResponse, 201: CalendarResponse},
    conditions=(IF_MATCH,),
)
def put_calendar(services: Services, request: Request, *, calendar: str) -> Reply:
    """Create a calendar (201) or replace it (200).

    Its schedules follow it from their next occurrence but one on; ``POST .../schedules/recompute`` computes the next
    one again.
    """
    body = validate(CalendarBody, read_body(request, PLAIN_SHAPE))
    now, wanted = services.context.clock.now(), if_match(request)
    stored, is_new = _calendars(services, request).put(body.calendar(calendar), now=now, wanted=wanted)
    if not is_new:
        return _reply(200, stored)
    reply = _reply(201, stored)
    return Reply(status=201, body=reply.body, headers={**reply.headers, "location": f"/v1/calendars/{stored.name}"})


@Route(
    "GET",
    _CALENDAR,
    Role.READER,
    summary="Read a calendar",
    responses={200: CalendarResponse, 304: None},
    problems=(409,),
    conditions=(IF_NONE_MATCH,),
)
def get_calendar(services: Services, request: Request, *, calendar: str) -> Reply:
    """Return a calendar; 304 when ``If-None-Match`` names its revision."""
    found = _calendars(services, request).get(calendar)
    return not_modified(request, found.revision) or _reply(200, found)


@Route("GET", "/v1/calendars", Role.READER, summary="List calendars", responses={200: CalendarPage}, problems=(409,))
def list_calendars(services: Services, request: Request) -> Reply:
    """Return all calendars of the tenant."""
    return json_reply(
        200, CalendarPage([calendar_response(each) for each in _calendars(services, request).list()], None)
    )


@Route(
    "DELETE",
    _CALENDAR,
    Role.ADMIN,
    summary="Remove a calendar",
    responses={204: None},
    problems=(409,),
    conditions=(IF_MATCH,),
)
def delete_calendar(services: Services, request: Request, *, calendar: str) -> Reply:
    """Remove a calendar (204). Schedules that name it do not fire until there is one with its name again."""
    now, wanted = services.context.clock.now(), if_match(request)
    _calendars(services, request).delete(calendar, now=now, wanted=wanted)
    return Reply(status=204)


def _calendars(services: Services, request: Request) -> Calendars:
    return Calendars(services.context.store, own_tenant(request.principal))


def _reply(status: int, calendar: Calendar) -> Reply:
    return json_reply(status, calendar_response(calendar), {"etag": etag(calendar.revision)})
