"""Timers made due by hand: failed ones are redriven, one by one or many, and waiting ones fired now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from duetime.api.context import Services
from duetime.api.encoding import encode_ascii, instant_json
from duetime.api.http.errors import FieldError, InvalidFields
from duetime.api.http.parsing import read_body, validate
from duetime.api.http.preconditions import IF_MATCH, if_match
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Route
from duetime.api.schemas import DEFAULT_REDRIVE_ITEMS, PLAIN_SHAPE, NothingBody, RedriveBody
from duetime.api.timers.batches import failed_item, refuse_duplicate
from duetime.api.timers.endpoints import read_address, timer_reply, under_if_match
from duetime.api.timers.parsing import check_id
from duetime.app.redrives import in_order, redrive_page, redrive_refs, refusal_to_fire, refusal_to_redrive
from duetime.domain.errors import DuetimeError, StoreUnavailable, TimerNotFound
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Principal, Role
from duetime.domain.timers import Rearm
from duetime.stores.port.timers import ChangeResult, TimerFilter, TimerRef

MAX_BODY_BYTES = 1024 * 1024
IDS_AT_ONCE = 50
IDS_BUDGET_SECONDS = 10.0
"""Large payloads make a redrive slow: ids that are not reached in this time are left to another request."""

_Refusal = Callable[[Namespace, str, ChangeResult], DuetimeError | None]


def redrive_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """POST: a failed timer is scheduled again, due now, as the same firing with all attempts ahead."""
    return _rearm(services, request, namespace, timer_id, Rearm.REDRIVE, refusal_to_redrive)


def fire_timer(services: Services, request: Request, *, namespace: str, timer_id: str) -> Reply:
    """POST: a waiting timer is due now. One that is due already is left as it is."""
    return _rearm(services, request, namespace, timer_id, Rearm.FIRE, refusal_to_fire)


def _rearm(
    services: Services, request: Request, namespace: str, segment: str, rearm: Rearm, refusal: _Refusal
) -> Reply:
    context = services.context
    space, timer_id = read_address(services, request, namespace, segment)
    wanted = if_match(request)
    validate(NothingBody, read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True))
    now = context.clock.now()

    def act(revision: int | None) -> ChangeResult:
        return context.store.timers.rearm(space, [TimerRef(timer_id, revision)], rearm=rearm, now=now)[0]

    absent = TimerNotFound(space.name, timer_id)
    result = under_if_match(wanted, act, lambda: context.store.timers.get(space, timer_id, now=now), absent=absent)
    error = refusal(space, timer_id, result)
    if error is not None:
        raise error
    assert result.timer is not None  # only NOT_FOUND has none
    context.on_stored([result.timer])
    return timer_reply(200, result.timer, space)


def redrive_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """POST: redrive a page of the failed timers that fit the filters, or those that are named."""
    return redrive_within(services, request, services.namespaces.get(namespace, request.principal))


def redrive_within(services: Services, request: Request, space: Namespace) -> Reply:
    """The same for a namespace that the caller has found."""
    found = read_body(request, PLAIN_SHAPE, limit_bytes=MAX_BODY_BYTES, is_optional=True)
    body = validate(RedriveBody, found)
    if body.ids is None:
        return _redrive_by_filter(services, request.principal, space, body)
    others = [name for name, value in found.members.items() if name != "ids" and value is not None]
    if others:
        raise InvalidFields([FieldError(name, "cannot be given together with ids") for name in others])
    return _redrive_by_ids(services, space, body.ids)


def _redrive_by_filter(services: Services, principal: Principal | None, space: Namespace, body: RedriveBody) -> Reply:
    context = services.context
    times = (body.due_from, body.due_to, body.failed_from, body.failed_to)
    bound_to = ("redrive", space.name, body.reason, body.tag, body.correlation_id, *map(instant_json, times))
    page = redrive_page(
        context.store,
        space,
        TimerFilter(
            tag=body.tag,
            due_from=body.due_from,
            due_to=body.due_to,
            failure_reason=body.reason,
            updated_from=body.failed_from,
            updated_to=body.failed_to,
        ),
        correlation_id=body.correlation_id,
        cursor=services.cursors.decode(body.cursor, bound_to, principal),
        limit=body.limit or DEFAULT_REDRIVE_ITEMS,
        now=context.clock.now(),
    )
    if page.redriven:
        context.on_stored(page.redriven)
    counts = {"redriven": len(page.redriven), "skipped": page.skipped, "examined": page.examined}
    return Reply(
        status=200,
        body=encode_ascii(counts | {"nextCursor": services.cursors.encode(page.next_cursor, bound_to, principal)}),
    )


def _redrive_by_ids(services: Services, space: Namespace, ids: Sequence[str]) -> Reply:
    items: dict[int, dict[str, Any]] = {}
    places: dict[str, int] = {}
    for at, timer_id in enumerate(ids):
        try:
            check_id(space, timer_id)
            refuse_duplicate(timer_id, places)
        except DuetimeError as error:
            items[at] = failed_item(timer_id, error)
        else:
            places[timer_id] = at
    redriven = 0
    for timer_id, refused in _redrive_each(services, space, in_order(list(places))):
        redriven += refused is None
        items[places[timer_id]] = (
            {"id": timer_id, "status": 200} if refused is None else failed_item(timer_id, refused)
        )
    counts = {"redriven": redriven, "skipped": len(ids) - redriven, "examined": len(ids), "nextCursor": None}
    return Reply(status=200, body=encode_ascii(counts | {"items": [items[at] for at in range(len(ids))]}))


def _redrive_each(services: Services, space: Namespace, ids: Sequence[str]) -> list[tuple[str, DuetimeError | None]]:
    """Each id with what kept it from being redriven."""
    context = services.context
    results: list[tuple[str, DuetimeError | None]] = []
    deadline = context.clock.monotonic() + IDS_BUDGET_SECONDS
    for start in range(0, len(ids), IDS_AT_ONCE):
        chunk = ids[start : start + IDS_AT_ONCE]
        if context.clock.monotonic() > deadline:
            unreached = StoreUnavailable("this request took too long to reach the timer: send it again")
            results += [(timer_id, unreached) for timer_id in chunk]
            continue
        refs = [TimerRef(timer_id) for timer_id in chunk]
        done = redrive_refs(context.store, space, refs, now=context.clock.now())
        pairs = zip(chunk, done.results, strict=True)
        results += [(timer_id, refusal_to_redrive(space, timer_id, change)) for timer_id, change in pairs]
        if done.redriven:
            context.on_stored(done.redriven)
    return results


_TIMER = "/v1/namespaces/<namespace>/timers/<timer_id>"
_NAMESPACE = "/v1/namespaces/<namespace>"

ROUTES = (
    Route(
        "POST",
        f"{_TIMER}/redrive",
        redrive_timer,
        Role.WRITER,
        summary="Put a failed timer back to scheduled, due now",
        tag="timers",
        responses={200: "TimerAnswer"},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "POST",
        f"{_TIMER}/fire",
        fire_timer,
        Role.WRITER,
        summary="Fire a waiting timer now",
        tag="timers",
        responses={200: "TimerAnswer"},
        problems=(400, 404, 409, 412, 413, 415),
        conditions=(IF_MATCH,),
    ),
    Route(
        "POST",
        f"{_NAMESPACE}/redrive",
        redrive_timers,
        Role.WRITER,
        summary="Redrive failed timers by filter, a page at a time, or by ids",
        tag="timers",
        body=RedriveBody,
        body_is_required=False,
        responses={200: "RedriveAnswer"},
        problems=(400, 404, 413, 415),
    ),
)
