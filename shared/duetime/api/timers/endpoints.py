"""Single timers: create, replace, read, change, cancel."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from duetime.api.context import Services
from duetime.api.encoding import encode, timer_json
from duetime.api.http.parsing import read_body
from duetime.api.http.preconditions import IF_MATCH, IF_NONE_MATCH, EntityTags, etag, if_match, if_none_match
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Route
from duetime.api.http.timer_paths import read_id, timer_path
from duetime.api.schemas import TIMER_SHAPE, TimerBody, TimerPatch
from duetime.api.timers.parsing import check_id, read_change, read_timer
from duetime.api.views import views_for
from duetime.app.redrives import refused
from duetime.domain.errors import (
    InvalidInput,
    RevisionMismatch,
    StoreUnavailable,
    TimerConflict,
    TimerFinished,
    TimerNotFound,
)
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef

MAX_BODY_BYTES = 1024 * 1024
_IF_MATCH_TRIES = 5

ResultT = TypeVar("ResultT", PutResult, ChangeResult)


def create_timer(services: Services, request: Request, *, namespace: str) -> Reply:
    """POST: 201, or 200 when the same timer exists already; ``TimerConflict`` when another one has its id."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    now = context.clock.now()
    found = read_body(request, TIMER_SHAPE, limit_bytes=MAX_BODY_BYTES)
    timer = read_timer(found, space, egress=context.egress, new_id=context.new_id, now=now)
    (result,) = context.store.timers.put([timer], mode=PutMode.CREATE, now=now)
    if result.status is PutStatus.CONFLICT:
        raise TimerConflict(f"timer {timer.timer_id!r} exists and has other content")
    return _stored_reply(services, space, timer.timer_id, result)


def put_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """PUT: create (201) or replace (200), whatever state the timer is in."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    timer_id = check_id(space, read_id(timer_id))
    wanted, unwanted = if_match(request), if_none_match(request)
    if unwanted is not None and (wanted is not None or not unwanted.is_any):
        raise InvalidInput("If-None-Match", "must be * here, and without If-Match")
    now = context.clock.now()
    found = read_body(request, TIMER_SHAPE, limit_bytes=MAX_BODY_BYTES)
    timer = read_timer(found, space, timer_id=timer_id, egress=context.egress, new_id=context.new_id, now=now)
    if unwanted is not None:
        (result,) = context.store.timers.put([timer], mode=PutMode.CREATE, now=now)
        if result.status not in (PutStatus.CREATED, PutStatus.REFUSED):
            raise RevisionMismatch(f"timer {timer_id!r} exists")
        return _stored_reply(services, space, timer_id, result)

    def replace(revision: int | None) -> PutResult:
        return context.store.timers.put([timer], mode=PutMode.REPLACE, now=now, if_revision=revision)[0]

    mismatch = RevisionMismatch(f"timer {timer_id!r} does not exist in a revision that If-Match names")
    result = under_if_match(
        wanted, replace, lambda: context.store.timers.get(space, timer_id, now=now), absent=mismatch
    )
    return _stored_reply(services, space, timer_id, result)


def get_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """GET: 304 when ``If-None-Match`` names the revision."""
    space, timer_id = read_address(services, request, namespace, timer_id)
    timer = services.context.store.timers.get(space, timer_id, now=services.context.clock.now())
    if timer is None:
        raise TimerNotFound(space.name, timer_id)
    known = if_none_match(request)
    if known is not None and known.match_weakly(timer.revision):
        return Reply(status=304, headers={"etag": etag(timer.revision)})
    policy = space.settings.retry_policy
    body = views_for(services, request).timer(timer, policy)
    return Reply(status=200, body=body, headers={"etag": etag(timer.revision)})


def patch_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """PATCH: a merge patch. An empty one changes nothing, not even the revision."""
    context = services.context
    space, timer_id = read_address(services, request, namespace, timer_id)
    wanted = if_match(request)
    now = context.clock.now()
    change = read_change(read_body(request, TIMER_SHAPE, limit_bytes=MAX_BODY_BYTES), egress=context.egress, now=now)
    firing_id = context.new_id()

    def read() -> Timer | None:
        return context.store.timers.get(space, timer_id, now=now)

    def apply(revision: int | None) -> ChangeResult:
        if not change.given():
            return _look(read(), revision)
        return context.store.timers.update(
            space, timer_id, change, firing_id=firing_id, now=now, if_revision=revision
        )

    absent = TimerNotFound(space.name, timer_id)
    result = under_if_match(wanted, apply, read, absent=absent)
    if result.timer is None or result.status is ChangeStatus.NOT_FOUND:
        raise absent
    if result.status is ChangeStatus.FINISHED:
        raise TimerFinished(f"timer {timer_id!r} is {result.timer.state}: it can be replaced, not changed")
    if change.given():
        context.on_stored([result.timer])
    return timer_reply(200, result.timer, space)


def delete_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """DELETE: cancel. The answer says whether an attempt may have been under way at that moment."""
    context = services.context
    space, timer_id = read_address(services, request, namespace, timer_id)
    now = context.clock.now()

    def delete(revision: int | None) -> ChangeResult:
        return context.store.timers.delete(space, [TimerRef(timer_id, revision)], now=now)[0]

    absent = TimerNotFound(space.name, timer_id)
    result = under_if_match(
        if_match(request), delete, lambda: context.store.timers.get(space, timer_id, now=now), absent=absent
    )
    if result.status is ChangeStatus.REFUSED:
        raise refused(timer_id)
    if result.status is ChangeStatus.NOT_FOUND:
        raise absent
    under_way = result.attempt_may_be_under_way(now)
    return Reply(status=200, body=encode({"id": timer_id, "namespace": space.name, "attemptUnderWay": under_way}))


def read_address(services: Services, request: Request, namespace: str, segment: str) -> tuple[Namespace, str]:
    """The namespace and the timer id that a path names. Raises ``NamespaceNotFound`` and ``InvalidInput``."""
    space = services.namespaces.get(namespace, request.principal)
    return space, check_id(space, read_id(segment))


def under_if_match(
    wanted: EntityTags | None,
    act: Callable[[int | None], ResultT],
    read: Callable[[], Timer | None],
    *,
    absent: RevisionMismatch | TimerNotFound,
) -> ResultT:
    """``act`` on the revision that ``If-Match`` asks for; ``act(None)`` when it asks for none.

    A single revision goes straight to the store. A list or ``*`` is about the revision that is current now, so
    that one is read and held on to; whoever changes it in between makes another try necessary.
    """
    if wanted is None:
        return act(None)
    mismatch = RevisionMismatch("the timer has another revision than If-Match names")
    single = wanted.single_revision()
    if single is not None:
        result = act(single)
        if _is_mismatch(result):
            raise mismatch
        return result
    for _ in range(_IF_MATCH_TRIES):
        current = read()
        if current is None:
            raise absent
        if not wanted.match_strongly(current.revision):
            raise mismatch
        result = act(current.revision)
        if not _is_mismatch(result):
            return result
    raise StoreUnavailable("the timer is being changed all the time")


def _is_mismatch(result: PutResult | ChangeResult) -> bool:
    return result.status in (PutStatus.REVISION_MISMATCH, ChangeStatus.REVISION_MISMATCH)


def _look(timer: Timer | None, revision: int | None) -> ChangeResult:
    """What an update without a change comes to."""
    if timer is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    if revision is not None and revision != timer.revision:
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, timer)
    return ChangeResult(ChangeStatus.FINISHED if timer.state.is_finished else ChangeStatus.APPLIED, timer)


def _stored_reply(services: Services, space: Namespace, timer_id: str, result: PutResult) -> Reply:
    timer = result.timer
    if timer is None:  # only a mismatch, which has been told, and a refusal have none
        raise refused(timer_id)
    if result.status is PutStatus.UNCHANGED:
        return timer_reply(200, timer, space)
    services.context.on_stored([timer])
    return timer_reply(201 if result.status is PutStatus.CREATED else 200, timer, space)


def timer_reply(status: int, timer: Timer, space: Namespace) -> Reply:
    headers = {"etag": etag(timer.revision)}
    if status == 201:
        headers["location"] = timer_path(timer.namespace, timer.timer_id)
    return Reply(status=status, body=timer_json(timer, space.settings.retry_policy), headers=headers)


_TIMERS = "/v1/namespaces/<namespace>/timers"
_TIMER = "/v1/namespaces/<namespace>/timers/<timer_id>"

ROUTES = (
    Route(
        "POST",
        _TIMERS,
        create_timer,
        Role.WRITER,
        summary="Create a timer",
        tag="timers",
        body=TimerBody,
        responses={200: "TimerAnswer", 201: "TimerAnswer"},
        problems=(400, 404, 409, 413, 415, 507),
    ),
    Route(
        "PUT",
        _TIMER,
        put_timer,
        Role.WRITER,
        summary="Create or replace a timer, even after it fired",
        tag="timers",
        body=TimerBody,
        responses={200: "TimerAnswer", 201: "TimerAnswer"},
        problems=(400, 404, 412, 413, 415, 507),
        conditions=(
            IF_MATCH,
            IF_NONE_MATCH,
        ),
    ),
    Route(
        "GET",
        _TIMER,
        get_timer,
        Role.READER,
        summary="Read a timer",
        tag="timers",
        responses={200: "TimerAnswer", 304: None},
        problems=(400, 404),
        conditions=(IF_NONE_MATCH,),
    ),
    Route(
        "PATCH",
        _TIMER,
        patch_timer,
        Role.WRITER,
        summary="Change what is given of a timer that has not finished",
        tag="timers",
        body=TimerPatch,
        body_type="application/merge-patch+json",
        responses={200: "TimerAnswer"},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "DELETE",
        _TIMER,
        delete_timer,
        Role.WRITER,
        summary="Cancel a timer",
        tag="timers",
        responses={200: "CancelAnswer"},
        problems=(400, 404, 412),
        conditions=(IF_MATCH,),
    ),
)
