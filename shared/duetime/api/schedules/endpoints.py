"""Schedules: create, put, get, delete, pause, resume, trigger, occurrences."""

from __future__ import annotations

from datetime import UTC

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, read_nothing, read_query, validate
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, etag, if_match, not_modified
from duetime.api.http.request import Reply, Request
from duetime.api.http.request_models import PLAIN_SHAPE
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Route
from duetime.api.http.router import read_id
from duetime.api.namespaces.requests import PauseBody
from duetime.api.schedules.parsing import read_target
from duetime.api.schedules.requests import (
    SCHEDULE_SHAPE,
    OccurrenceQuery,
    PutScheduleQuery,
    ScheduleBody,
    SchedulePatch,
)
from duetime.api.schedules.responses import (
    OccurrencesResponse,
    ScheduleDeletionResponse,
    ScheduleResponse,
    TriggerResponse,
    occurrence_response,
    past_occurrence_response,
    schedule_response,
)
from duetime.api.timers.parsing import check_id, check_payload_size, given_content
from duetime.app import occurrences
from duetime.app.readers import shown_timer
from duetime.app.schedules import NewSchedule, ScheduleChange
from duetime.app.timers import Stored
from duetime.domain.errors import InvalidInput
from duetime.domain.ids import check_schedule_id, item_path
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.schedules import SchedulePolicy
from duetime.domain.timers import Timer, TimerContent
from duetime.domain.times import format_instant
from duetime.recurrence.spec import TimingSpec

_SCHEDULES = "/v1/namespaces/<namespace>/schedules"
_SCHEDULE = f"{_SCHEDULES}/<schedule_id>"


@Route(
    "POST",
    _SCHEDULES,
    Role.WRITER,
    summary="Create a schedule",
    body=ScheduleBody,
    responses={200: ScheduleResponse, 201: ScheduleResponse},
    problems=(507,),
)
def create_schedule(services: Services, request: Request, *, namespace: str) -> Reply:
    """Create a schedule: 201, or 200 when the same schedule exists. Another one with this id is a 409."""
    space = services.namespaces.open(namespace, request.principal)
    asked = _read_schedule(services, request, space, None)
    return _stored_reply(services.schedules.create(space, asked, now=services.context.clock.now()), space)


@Route(
    "PUT",
    _SCHEDULE,
    Role.WRITER,
    summary="Create or replace a schedule",
    query=PutScheduleQuery,
    body=ScheduleBody,
    responses={200: ScheduleResponse, 201: ScheduleResponse},
    problems=(507,),
    conditions=(IF_MATCH,),
)
def put_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Create a schedule (201) or make the stored one what is given (200): its history and its number stay.

    With ``dryRun`` the response is the same, and nothing is stored.
    """
    space = services.namespaces.open(namespace, request.principal)
    asked = _read_schedule(services, request, space, check_id(space, read_id(schedule_id), check_schedule_id))
    schedules, now = services.schedules, services.context.clock.now()
    put = schedules.rehearse_put if read_query(PutScheduleQuery, request).dry_run else schedules.put
    return _stored_reply(put(space, asked, now=now, wanted=if_match(request)), space)


@Route(
    "GET",
    _SCHEDULE,
    Role.READER,
    summary="Read a schedule",
    responses={200: ScheduleResponse, 304: None},
    conditions=(IF_NONE_MATCH,),
)
def get_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Return a schedule; 304 when ``If-None-Match`` names its revision."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    timer = services.schedules.get(space, schedule_id, now=services.context.clock.now())
    return not_modified(request, timer.revision) or _reply(
        shown_timer(timer, request.principal, services.context.redaction), space
    )


@Route(
    "PATCH",
    _SCHEDULE,
    Role.WRITER,
    summary="Change what is given of a schedule",
    body=SchedulePatch,
    body_type="application/merge-patch+json",
    responses={200: ScheduleResponse},
    conditions=(IF_MATCH,),
)
def patch_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Apply a merge patch to a schedule. With other times its next occurrence is the first after now."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    found = read_body(request, SCHEDULE_SHAPE)
    check_payload_size(found)
    patch = validate(SchedulePatch, found)
    target = read_target(patch, space, schedule_id, services.context)
    timing, policy, content = (patch.given_of(part) for part in (TimingSpec, SchedulePolicy, TimerContent))
    change = ScheduleChange(timing, policy, content | target)
    now, wanted = services.context.clock.now(), if_match(request)
    return _reply(services.schedules.update(space, schedule_id, change, now=now, wanted=wanted), space)


@Route(
    "DELETE",
    _SCHEDULE,
    Role.WRITER,
    summary="Remove a schedule and its history",
    responses={200: ScheduleDeletionResponse},
    conditions=(IF_MATCH,),
)
def delete_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Remove a schedule, its history and what its backfills are still to send.

    An occurrence that is being retried, or in flight, goes on.
    """
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    clock = services.context.clock
    services.backfills.delete_schedule(space, schedule_id, clock=clock, wanted=if_match(request))
    return json_reply(200, ScheduleDeletionResponse(schedule_id, space.name))


@Route(
    "POST",
    f"{_SCHEDULE}/pause",
    Role.WRITER,
    summary="Pause a schedule",
    body=PauseBody,
    body_is_required=False,
    responses={200: ScheduleResponse},
    conditions=(IF_MATCH,),
)
def pause_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Let nothing fire until the schedule is resumed. One that is paused stays as it is."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    body = validate(PauseBody, read_body(request, PLAIN_SHAPE, is_optional=True))
    now, wanted = services.context.clock.now(), if_match(request)
    timer = services.schedules.pause(space, schedule_id, reason=body.reason, now=now, wanted=wanted)
    return _reply(timer, space)


@Route(
    "POST",
    f"{_SCHEDULE}/resume",
    Role.WRITER,
    summary="Resume a paused schedule",
    responses={200: ScheduleResponse},
    conditions=(IF_MATCH,),
)
def resume_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Let a schedule fire again. What came due meanwhile is missed, and fires as ``misfire`` says."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    read_nothing(request)
    now, wanted = services.context.clock.now(), if_match(request)
    return _reply(services.schedules.resume(space, schedule_id, now=now, wanted=wanted), space)


@Route(
    "POST",
    f"{_SCHEDULE}/trigger",
    Role.WRITER,
    summary="Fire a schedule now",
    responses={200: TriggerResponse},
    problems=(507,),
)
def trigger_schedule(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Fire a schedule now, beside its occurrences, which stay as they are. A paused one, too."""
    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    read_nothing(request)
    context, now = services.context, services.context.clock.now()
    timer, at = services.schedules.trigger(
        space, schedule_id, trigger_id=context.new_id(), at=services.first_at or now, now=now
    )
    return json_reply(200, TriggerResponse(schedule_id, space.name, format_instant(at), timer.firing_id))


@Route(
    "GET",
    f"{_SCHEDULE}/occurrences",
    Role.READER,
    summary="List past and coming occurrences",
    query=OccurrenceQuery,
    responses={200: OccurrencesResponse},
)
def list_occurrences(services: Services, request: Request, *, namespace: str, schedule_id: str) -> Reply:
    """Return the last occurrences of a schedule with what became of them, and the next ones."""
    from duetime.recurrence import zones
    from duetime.recurrence.stored import timing_of

    space, schedule_id = schedule_address(services, request, namespace, schedule_id)
    query = read_query(OccurrenceQuery, request)
    now = services.context.clock.now()
    timer = services.schedules.get(space, schedule_id, now=now)
    store, from_at, limit = services.schedules.store, query.from_at, query.count
    past = occurrences.past(store, space, timer, from_at=from_at, limit=limit, now=now)
    coming = occurrences.coming(store, timer, space.tenant_id, from_at=from_at, limit=limit)
    zone = zones.zone(timing_of(timer).time_zone) if coming else UTC
    response = OccurrencesResponse(
        past=[past_occurrence_response(each) for each in past],
        coming=[occurrence_response(each, zone) for each in coming],
    )
    return json_reply(200, response)


def _read_schedule(services: Services, request: Request, space: Namespace, schedule_id: str | None) -> NewSchedule:
    """Return what a body describes. ``schedule_id`` is the one in the path, which a body may only repeat."""
    context = services.context
    found = read_body(request, SCHEDULE_SHAPE)
    check_payload_size(found)
    body = validate(ScheduleBody, found)
    if schedule_id is not None and body.id not in (None, schedule_id):
        raise InvalidInput("id", "is not the one in the path")
    if body.callback_url is None and body.target is None and body.service_call is None:
        raise InvalidInput("callbackUrl", "is required, or target or serviceCall")
    if schedule_id is None:
        schedule_id = context.new_id() if body.id is None else body.id
    check_id(space, schedule_id, check_schedule_id)
    now = context.clock.now()
    return NewSchedule(
        schedule_id=schedule_id,
        timing=body.timing(),
        policy=body.policy(),
        content=given_content(body, execute_at=now, **read_target(body, space, schedule_id, context)),
        is_paused=body.paused,
    )


def schedule_address(services: Services, request: Request, namespace: str, schedule_id: str) -> tuple[Namespace, str]:
    """Return the namespace and the schedule id that a path names. Raises as ``timer_address`` does."""
    space = services.namespaces.get(namespace, request.principal)
    return space, check_id(space, read_id(schedule_id), check_schedule_id)


def _stored_reply(stored: Stored, space: Namespace) -> Reply:
    if not stored.is_new:
        return _reply(stored.timer, space)
    path = item_path(space.name, "schedules", stored.timer.schedule_id or "")
    headers = {"etag": etag(stored.timer.revision), "location": path}
    return json_reply(201, schedule_response(stored.timer, space.settings.retry_policy), headers)


def _reply(timer: Timer, space: Namespace) -> Reply:
    return json_reply(200, schedule_response(timer, space.settings.retry_policy), {"etag": etag(timer.revision)})
