"""Many timers in one request: a result per item, in order, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from duetime.api.context import Services
from duetime.api.http.errors import DuplicateId
from duetime.api.http.parsing import read_items, validate
from duetime.api.http.problems import Problem, problem
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import Reply, Request
from duetime.api.http.responses import encode_ascii
from duetime.api.http.route import Route
from duetime.api.timers.parsing import check_id, read_timer
from duetime.api.timers.requests import (
    MAX_BATCH_ITEMS,
    PLAIN_ITEMS_SHAPE,
    TIMERS_SHAPE,
    TimerBatch,
    TimerItem,
    TimerItemBatch,
)
from duetime.api.timers.responses import (
    CancelledBatch,
    CancelledItem,
    CreatedBatch,
    CreatedItem,
    DeletedBatch,
    DeletedItem,
)
from duetime.app.timers import Deleted, Stored
from duetime.domain.errors import DuetimeError
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.timers import TimerRef

MAX_BODY_BYTES = 6 * 1024 * 1024

WantedT = TypeVar("WantedT")
ResultT = TypeVar("ResultT")


def create_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Create up to 500 timers. Each succeeds or fails alone."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    now = context.clock.now()
    found = read_items(request, TIMERS_SHAPE, max_items=MAX_BATCH_ITEMS, limit_bytes=MAX_BODY_BYTES)

    def read(item: RawObject) -> tuple[str, Timer]:
        timer = read_timer(item, space, egress=context.egress, new_id=context.new_id, now=now)
        return timer.timer_id, timer

    def created(timer_id: str | None, result: Stored | DuetimeError) -> CreatedItem:
        if isinstance(result, DuetimeError):
            return CreatedItem(timer_id, *_failed(result))
        return CreatedItem(timer_id, 201 if result.is_new else 200)

    items = _each(found, read, lambda timers: services.timers.create_many(timers, now=now), created)
    return Reply(status=200, body=encode_ascii(CreatedBatch(items)))


def cancel_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Cancel up to 500 waiting timers, which stay readable. Each succeeds or fails alone."""

    def cancelled(timer_id: str | None, result: Timer | DuetimeError) -> CancelledItem:
        return CancelledItem(timer_id, *(_failed(result) if isinstance(result, DuetimeError) else (200,)))

    items = _each_ref(services, request, namespace, services.timers.cancel_many, cancelled)
    return Reply(status=200, body=encode_ascii(CancelledBatch(items)))


def delete_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Remove up to 500 timers in any state. Each succeeds or fails alone."""

    def deleted(timer_id: str | None, result: Deleted | DuetimeError) -> DeletedItem:
        if isinstance(result, DuetimeError):
            return DeletedItem(timer_id, *_failed(result))
        return DeletedItem(timer_id, 200, attempt_in_flight=result.attempt_in_flight)

    items = _each_ref(services, request, namespace, services.timers.delete_many, deleted)
    return Reply(status=200, body=encode_ascii(DeletedBatch(items)))


def _each_ref(
    services: Services,
    request: Request,
    namespace: str,
    act: Callable[..., list[ResultT | DuetimeError]],
    respond: Callable[[str | None, ResultT | DuetimeError], Any],
) -> list[Any]:
    """Respond for each timer that the body names: ``act(namespace, refs, now=...)`` is done to those."""
    space = services.namespaces.get(namespace, request.principal)
    now = services.context.clock.now()
    found = read_items(request, PLAIN_ITEMS_SHAPE, max_items=MAX_BATCH_ITEMS, limit_bytes=MAX_BODY_BYTES)

    def read(item: RawObject) -> tuple[str, TimerRef]:
        wanted = validate(TimerItem, item)
        return wanted.id, TimerRef(check_id(space, wanted.id), wanted.revision)

    return _each(found, read, lambda refs: act(space, refs, now=now), respond)


def _each(
    found: list[Any],
    read: Callable[[RawObject], tuple[str, WantedT]],
    act: Callable[[list[WantedT]], list[ResultT | DuetimeError]],
    respond: Callable[[str | None, ResultT | DuetimeError], Any],
) -> list[Any]:
    """A response per item: of what ``act`` came to for those that can be read, and of the fault of each other."""
    wanted: dict[str, WantedT] = {}
    faults: dict[int, DuetimeError] = {}
    for at, raw in enumerate(found):
        try:
            timer_id, one = read(raw if isinstance(raw, RawObject) else RawObject({}, [("", "must be an object")]))
            refuse_duplicate(timer_id, wanted)
            wanted[timer_id] = one
        except DuetimeError as error:
            faults[at] = error
    done = iter(zip(wanted, act(list(wanted.values())), strict=True))
    return [
        respond(_given_id(raw), faults[at]) if at in faults else respond(*next(done)) for at, raw in enumerate(found)
    ]


def _given_id(raw: object) -> str | None:
    timer_id = raw.members.get("id") if isinstance(raw, RawObject) else None
    return timer_id if isinstance(timer_id, str) else None


def refuse_duplicate(timer_id: str, known: dict[str, Any]) -> None:
    if timer_id in known:
        raise DuplicateId(f"timer {timer_id!r} is in this batch already; the first one counts")


def _failed(error: DuetimeError) -> tuple[int, Problem]:
    described = problem(error)
    return described.status, described


_TIMERS = "/v1/namespaces/<namespace>/timers"

ROUTES = (
    Route(
        "POST",
        f"{_TIMERS}/batch",
        create_timers,
        Role.WRITER,
        summary="Create up to 500 timers, with a result for each",
        tag="timers",
        body=TimerBatch,
        responses={200: CreatedBatch},
        problems=(400, 404, 413, 415),
    ),
    Route(
        "POST",
        f"{_TIMERS}/batch-cancel",
        cancel_timers,
        Role.WRITER,
        summary="Cancel up to 500 waiting timers, with a result for each",
        tag="timers",
        body=TimerItemBatch,
        responses={200: CancelledBatch},
        problems=(400, 404, 413, 415),
    ),
    Route(
        "POST",
        f"{_TIMERS}/batch-delete",
        delete_timers,
        Role.WRITER,
        summary="Remove up to 500 timers, with a result for each",
        tag="timers",
        body=TimerItemBatch,
        responses={200: DeletedBatch},
        problems=(400, 404, 413, 415),
    ),
)
