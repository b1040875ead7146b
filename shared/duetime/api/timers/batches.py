"""Many timers in one request: a result per item, in order, whatever happens to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from duetime.api.context import Services
from duetime.api.http.batches import (
    BatchResponse,
    ItemResult,
    each_item,
    failed,
    item_result,
)
from duetime.api.http.parsing import read_batch, read_items, validate
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import Reply, Request
from duetime.api.http.responses import ascii_reply
from duetime.api.http.route import Route
from duetime.api.timers.parsing import check_id, read_timer
from duetime.api.timers.requests import (
    PLAIN_ITEMS_SHAPE,
    TIMERS_SHAPE,
    SpreadFields,
    TimerBatch,
    TimerItem,
    TimerItemBatch,
)
from duetime.api.timers.responses import DeletedBatch, DeletedItem
from duetime.app.timers import Deleted, Stored
from duetime.domain.errors import DuetimeError
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.timers import PutMode, TimerRef

ResultT = TypeVar("ResultT")
ItemT = TypeVar("ItemT")


_TIMERS = "/v1/namespaces/<namespace>/timers"


@Route(
    "POST",
    f"{_TIMERS}/batch",
    Role.WRITER,
    summary="Create up to 500 timers, with a result for each",
    body=TimerBatch,
    responses={200: BatchResponse},
)
def create_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Create up to 500 timers. Each succeeds or fails alone."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    now = context.clock.now()
    found, beside = read_batch(request, TIMERS_SHAPE, "spread")
    spread_ms = validate(SpreadFields, beside).spread_ms or 0

    def read(item: RawObject) -> tuple[str, Timer]:
        timer = read_timer(item, space, context, now=now, spread_ms=spread_ms)
        return timer.timer_id, timer

    def created(timer_id: str | None, result: Stored | DuetimeError) -> ItemResult:
        return item_result(timer_id, result, status=201 if isinstance(result, Stored) and result.is_new else 200)

    def put(timers: list[Timer]) -> list[Stored | DuetimeError]:
        return services.timers.put_many(timers, mode=PutMode.CREATE, now=now)

    items = each_item(found, read, put, created)
    return ascii_reply(BatchResponse(items))


@Route(
    "POST",
    f"{_TIMERS}/batch-cancel",
    Role.WRITER,
    summary="Cancel up to 500 waiting timers, with a result for each",
    body=TimerItemBatch,
    responses={200: BatchResponse},
)
def cancel_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Cancel up to 500 waiting timers, which stay readable. Each succeeds or fails alone."""
    items = _each_ref(services, request, namespace, services.timers.cancel_many, item_result)
    return ascii_reply(BatchResponse(items))


@Route(
    "POST",
    f"{_TIMERS}/batch-delete",
    Role.WRITER,
    summary="Remove up to 500 timers, with a result for each",
    body=TimerItemBatch,
    responses={200: DeletedBatch},
)
def delete_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """Remove up to 500 timers in any state. Each succeeds or fails alone."""

    def deleted(timer_id: str | None, result: Deleted | DuetimeError) -> DeletedItem:
        if isinstance(result, DuetimeError):
            return DeletedItem(timer_id, *failed(result))
        return DeletedItem(timer_id, 200, attempt_in_flight=result.attempt_in_flight)

    items = _each_ref(services, request, namespace, services.timers.delete_many, deleted)
    return ascii_reply(DeletedBatch(items))


def _each_ref(
    services: Services,
    request: Request,
    namespace: str,
    act: Callable[..., list[ResultT | DuetimeError]],
    respond: Callable[[str | None, ResultT | DuetimeError], ItemT],
) -> list[ItemT]:
    """Respond for each timer that the body names: ``act(namespace, refs, now=...)`` is done to those."""
    space = services.namespaces.get(namespace, request.principal)
    now = services.context.clock.now()
    found = read_items(request, PLAIN_ITEMS_SHAPE)

    def read(item: RawObject) -> tuple[str, TimerRef]:
        wanted = validate(TimerItem, item)
        return wanted.id, TimerRef(check_id(space, wanted.id), wanted.revision)

    return each_item(found, read, lambda refs: act(space, refs, now=now), respond)
