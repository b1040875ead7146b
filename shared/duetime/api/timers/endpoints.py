"""Single timers: create, put, get, patch, delete, fire, redrive."""

from __future__ import annotations

from collections.abc import Callable

from duetime.api.context import Services
from duetime.api.http.parsing import read_body, read_nothing
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, etag, if_match, if_none_match, not_modified
from duetime.api.http.request import Reply, Request
from duetime.api.http.responses import json_reply
from duetime.api.http.route import Deferred, Route
from duetime.api.http.router import read_id
from duetime.api.timers.parsing import check_id, read_change, read_timer
from duetime.api.timers.requests import TIMER_SHAPE, TimerBody, TimerPatch
from duetime.api.timers.responses import DeleteResponse, TimerResponse, timer_response
from duetime.app.readers import shown_timer
from duetime.app.timers import Stored
from duetime.domain.errors import InvalidInput
from duetime.domain.ids import item_path
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.timers import PutMode

_TIMERS = "/v1/namespaces/<namespace>/timers"
_TIMER = "/v1/namespaces/<namespace>/timers/<timer_id>"


def _action(action: str, summary: str) -> Route:
    return Route(
        "POST",
        f"{_TIMER}/{action}",
        Role.WRITER,
        summary=summary,
        responses={200: TimerResponse},
        conditions=(IF_MATCH,),
    )


@Route(
    "POST",
    _TIMERS,
    Role.WRITER,
    summary="Create a timer",
    body=TimerBody,
    responses={200: TimerResponse, 201: TimerResponse},
    problems=(507,),
    shares_write=True,
)
def create_timer(services: Services, request: Request, *, namespace: str) -> Deferred:
    """Create a timer: 201, or 200 when the same timer exists. Another timer with this id is a 409."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    now = context.clock.now()
    found = read_body(request, TIMER_SHAPE)
    timer = read_timer(found, space, context, now=now)
    return Deferred(timer, PutMode.CREATE, lambda stored: _stored_reply(stored, space))


@Route(
    "PUT",
    _TIMER,
    Role.WRITER,
    summary="Create or replace a timer, even after it fired",
    body=TimerBody,
    responses={200: TimerResponse, 201: TimerResponse},
    problems=(507,),
    conditions=(IF_MATCH, IF_NONE_MATCH),
    shares_write=True,
)
def put_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply | Deferred:
    """Create a timer (201) or replace it (200), whatever its state is."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    timer_id = check_id(space, read_id(timer_id))
    wanted, unwanted = if_match(request), if_none_match(request)
    if unwanted is not None and (wanted is not None or not unwanted.is_any):
        raise InvalidInput("If-None-Match", "must be * here, and without If-Match")
    now = context.clock.now()
    found = read_body(request, TIMER_SHAPE)
    timer = read_timer(found, space, context, timer_id=timer_id, now=now)
    if unwanted is not None:
        return _stored_reply(services.timers.put_new(timer, now=now), space)
    if wanted is not None:
        return _stored_reply(services.timers.put_known(timer, space, now=now, wanted=wanted), space)
    return Deferred(timer, PutMode.REPLACE, lambda stored: _stored_reply(stored, space))


@Route(
    "GET",
    _TIMER,
    Role.READER,
    summary="Read a timer",
    responses={200: TimerResponse, 304: None},
    conditions=(IF_NONE_MATCH,),
)
def get_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Return a timer; 304 when ``If-None-Match`` names its revision."""
    space, timer_id = timer_address(services, request, namespace, timer_id)
    timer = services.timers.get(space, timer_id, now=services.context.clock.now())
    return not_modified(request, timer.revision) or _timer_reply(
        shown_timer(timer, request.principal, services.context.redaction), space
    )


@Route(
    "PATCH",
    _TIMER,
    Role.WRITER,
    summary="Change what is given of a timer that has not finished",
    body=TimerPatch,
    body_type="application/merge-patch+json",
    responses={200: TimerResponse},
    conditions=(IF_MATCH,),
)
def patch_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Apply a merge patch to a timer that has not finished. An empty one does not even change the revision."""
    context = services.context
    space, timer_id = timer_address(services, request, namespace, timer_id)
    wanted = if_match(request)
    now = context.clock.now()
    change = read_change(read_body(request, TIMER_SHAPE), context, now=now)
    firing_id = context.new_id()
    timer = services.timers.update(space, timer_id, change, firing_id=firing_id, now=now, wanted=wanted)
    return _timer_reply(timer, space)


@Route(
    "DELETE",
    _TIMER,
    Role.WRITER,
    summary="Remove a timer in any state",
    responses={200: DeleteResponse},
    conditions=(IF_MATCH,),
)
def delete_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Remove a timer in any state. The response says whether an attempt may be in flight."""
    space, timer_id = timer_address(services, request, namespace, timer_id)
    now = services.context.clock.now()
    deleted = services.timers.delete(space, timer_id, now=now, wanted=if_match(request))
    return json_reply(200, DeleteResponse(timer_id, space.name, deleted.attempt_in_flight))


@_action("cancel", "Cancel a waiting timer; it stays readable")
def cancel_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """End a waiting timer as Cancelled and keep it. One that is Cancelled already stays as it is."""
    return _acted(services, request, namespace, timer_id, services.timers.cancel)


@_action("fire", "Fire a waiting timer now")
def fire_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Make a waiting timer due now. A timer that is due already stays as it is."""
    return _acted(services, request, namespace, timer_id, services.timers.fire)


@_action("redrive", "Put a failed timer back to scheduled, due now")
def redrive_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """Schedule a failed timer again, due now. It is the same firing, with all attempts ahead."""
    return _acted(services, request, namespace, timer_id, services.timers.redrive)


def _acted(services: Services, request: Request, namespace: str, segment: str, act: Callable[..., Timer]) -> Reply:
    """Do ``act`` to the timer that the path names, whose request has no body."""
    space, timer_id = timer_address(services, request, namespace, segment)
    wanted, now = if_match(request), services.context.clock.now()
    read_nothing(request)
    return _timer_reply(act(space, timer_id, now=now, wanted=wanted), space)


def timer_address(services: Services, request: Request, namespace: str, segment: str) -> tuple[Namespace, str]:
    """Return the namespace and the timer id that a path names. Raises ``NamespaceNotFound`` and ``InvalidInput``."""
    space = services.namespaces.get(namespace, request.principal)
    return space, check_id(space, read_id(segment))


def _stored_reply(stored: Stored, space: Namespace) -> Reply:
    timer = stored.timer
    if not stored.is_new:
        return _timer_reply(timer, space)
    headers = {"etag": etag(timer.revision), "location": item_path(timer.namespace, "timers", timer.timer_id)}
    return json_reply(201, timer_response(timer, space.settings.retry_policy), headers)


def _timer_reply(timer: Timer, space: Namespace) -> Reply:
    return json_reply(200, timer_response(timer, space.settings.retry_policy), {"etag": etag(timer.revision)})
