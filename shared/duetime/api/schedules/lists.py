"""Schedules by filter: list them, pause or resume all that fit, compute all again."""

from __future__ import annotations

from duetime.api.context import Services
from duetime.api.http.cursors import ListCursors
from duetime.api.http.page_size import page_reply
from duetime.api.http.parsing import read_body, read_query, validate
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE, PagedBody
from duetime.api.http.responses import instant, json_reply
from duetime.api.http.route import Route
from duetime.api.schedules.requests import (
    PauseSchedulesBody,
    ResumeSchedulesBody,
    ScheduleFilters,
    ScheduleQuery,
)
from duetime.api.schedules.responses import (
    ChangedSchedulesResponse,
    SchedulePage,
    changed_response,
    schedule_response,
)
from duetime.app.readers import shown_timer
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.schedules import ScheduleState

_SCHEDULES = "/v1/namespaces/<namespace>/schedules"


@Route("GET", _SCHEDULES, Role.READER, summary="List schedules", query=ScheduleQuery, responses={200: SchedulePage})
def list_schedules(services: Services, request: Request, *, namespace: str) -> Reply:
    """Return a page of the schedules that match all filters. A page may be short or empty and not be the last."""
    space = services.namespaces.get(namespace, request.principal)
    query = read_query(ScheduleQuery, request)
    cursors = _cursors(services, request, space, "schedules", query, query.state, query.calendar)
    cursor, context = cursors.decode(query.cursor), services.context
    return page_reply(
        SchedulePage,
        lambda limit: services.schedule_lists.list(
            space, query.wanted_ones(), cursor=cursor, limit=limit, now=context.clock.now()
        ),
        lambda timer: schedule_response(
            shown_timer(timer, request.principal, context.redaction), space.settings.retry_policy
        ),
        limit=query.limit,
        to_cursor=cursors.encode,
    )


@Route(
    "POST",
    f"{_SCHEDULES}/pause",
    Role.WRITER,
    summary="Pause schedules by filter, a page at a time",
    body=PauseSchedulesBody,
    body_is_required=False,
    responses={200: ChangedSchedulesResponse},
)
def pause_schedules(services: Services, request: Request, *, namespace: str) -> Reply:
    """Pause a page of the active schedules that match all filters."""
    space = services.namespaces.get(namespace, request.principal)
    body = validate(PauseSchedulesBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    cursors = _cursors(services, request, space, "pauseSchedules", body, body.dry_run)
    page = services.schedule_lists.pause_page(
        space, body.wanted(ScheduleState.ACTIVE), services.work(body, cursors), reason=body.reason
    )
    return json_reply(200, changed_response(page, cursors.encode))


@Route(
    "POST",
    f"{_SCHEDULES}/resume",
    Role.WRITER,
    summary="Resume schedules by filter, a page at a time",
    body=ResumeSchedulesBody,
    body_is_required=False,
    responses={200: ChangedSchedulesResponse},
)
def resume_schedules(services: Services, request: Request, *, namespace: str) -> Reply:
    """Resume a page of the paused schedules that match all filters."""
    space = services.namespaces.get(namespace, request.principal)
    body = validate(ResumeSchedulesBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    cursors = _cursors(services, request, space, "resumeSchedules", body, body.dry_run)
    wanted = body.wanted(ScheduleState.PAUSED)
    page = services.schedule_lists.resume_page(space, wanted, services.work(body, cursors))
    return json_reply(200, changed_response(page, cursors.encode))


@Route(
    "POST",
    f"{_SCHEDULES}/recompute",
    Role.WRITER,
    summary="Compute again when schedules occur next, a page at a time",
    body=PagedBody,
    body_is_required=False,
    responses={200: ChangedSchedulesResponse},
)
def recompute_schedules(services: Services, request: Request, *, namespace: str) -> Reply:
    """Compute again when a page of schedules occur next: for a new release of tzdata. The same is not written."""
    space = services.namespaces.get(namespace, request.principal)
    body = validate(PagedBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    cursors = services.cursors.of(request.principal, "recomputeSchedules", space.name, body.dry_run)
    page = services.schedule_lists.recompute_page(space, services.work(body, cursors))
    return json_reply(200, changed_response(page, cursors.encode))


def _cursors(
    services: Services, request: Request, space: Namespace, purpose: str, filters: ScheduleFilters, *more: object
) -> ListCursors:
    times = map(instant, (filters.due_from, filters.due_to))
    return services.cursors.of(request.principal, purpose, space.name, filters.tag, *times, *more)
