"""Many timers in one request: a result per item, in order, whatever happens to the others."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from duetime.api.context import Services
from duetime.api.http.errors import DuplicateId
from duetime.api.http.parsing import read_items, validate
from duetime.api.http.problems import problem
from duetime.api.http.raw_json import RawObject
from duetime.api.http.request import Reply, Request
from duetime.api.http.route import Route
from duetime.api.schemas import MAX_BATCH_ITEMS, PLAIN_ITEMS_SHAPE, TIMERS_SHAPE, CancelBatch, CancelItem, TimerBatch
from duetime.api.timers.parsing import check_id, read_timer
from duetime.app.redrives import refused
from duetime.domain.errors import DuetimeError, RevisionMismatch, TimerConflict, TimerNotFound
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.timers import Timer
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutResult, PutStatus, TimerRef
from duetime.stores.refusals import apart

MAX_BODY_BYTES = 6 * 1024 * 1024
Item = dict[str, Any]


def create_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """POST: create up to 500 timers. Those that are good are stored, also when others are not."""
    context = services.context
    space = services.namespaces.open(namespace, request.principal)
    now = context.clock.now()
    found = read_items(request, TIMERS_SHAPE, max_items=MAX_BATCH_ITEMS, limit_bytes=MAX_BODY_BYTES)
    items: list[Item | None] = []
    timers: dict[str, Timer] = {}
    for raw in found:
        try:
            timer = read_timer(_object(raw), space, egress=context.egress, new_id=context.new_id, now=now)
            refuse_duplicate(timer.timer_id, timers)
        except DuetimeError as error:
            items.append(failed_item(_given_id(raw), error))
        else:
            timers[timer.timer_id] = timer
            items.append(None)
    results = apart(
        lambda some: context.store.timers.put(some, mode=PutMode.CREATE, now=now),
        list(timers.values()),
        lambda _: PutResult(PutStatus.REFUSED, None),
    )
    created = [result.timer for result in results if result.status is PutStatus.CREATED and result.timer is not None]
    if created:
        context.on_stored(created)
    return _reply(items, [_created(*pair) for pair in zip(timers, results, strict=True)])


def cancel_timers(services: Services, request: Request, *, namespace: str) -> Reply:
    """POST: cancel up to 500 timers."""
    space = services.namespaces.get(namespace, request.principal)
    now = services.context.clock.now()
    found = read_items(request, PLAIN_ITEMS_SHAPE, max_items=MAX_BATCH_ITEMS, limit_bytes=MAX_BODY_BYTES)
    items: list[Item | None] = []
    refs: dict[str, TimerRef] = {}
    for raw in found:
        try:
            wanted = validate(CancelItem, _object(raw))
            check_id(space, wanted.id)
            refuse_duplicate(wanted.id, refs)
        except DuetimeError as error:
            items.append(failed_item(_given_id(raw), error))
        else:
            refs[wanted.id] = TimerRef(wanted.id, wanted.revision)
            items.append(None)
    results = apart(
        lambda some: services.context.store.timers.delete(space, some, now=now),
        list(refs.values()),
        lambda _: ChangeResult(ChangeStatus.REFUSED),
    )
    return _reply(items, [_cancelled(space, *pair, now=now) for pair in zip(refs, results, strict=True)])


def _object(raw: object) -> RawObject:
    return raw if isinstance(raw, RawObject) else RawObject({}, [("", "must be an object")])


def _given_id(raw: object) -> str | None:
    timer_id = raw.members.get("id") if isinstance(raw, RawObject) else None
    return timer_id if isinstance(timer_id, str) else None


def refuse_duplicate(timer_id: str, known: dict[str, Any]) -> None:
    if timer_id in known:
        raise DuplicateId(f"timer {timer_id!r} is in this batch already; the first one counts")


def _created(timer_id: str, result: PutResult) -> Item:
    if result.status is PutStatus.REFUSED:
        return failed_item(timer_id, refused(timer_id))
    if result.status is PutStatus.CONFLICT:
        return failed_item(timer_id, TimerConflict(f"timer {timer_id!r} exists and has other content"))
    return {"id": timer_id, "status": 201 if result.status is PutStatus.CREATED else 200}


def _cancelled(space: Namespace, timer_id: str, result: ChangeResult, *, now: datetime) -> Item:
    if result.status is ChangeStatus.REFUSED:
        return failed_item(timer_id, refused(timer_id))
    if result.status is ChangeStatus.REVISION_MISMATCH:
        return failed_item(timer_id, RevisionMismatch(f"timer {timer_id!r} has another revision"))
    if result.status is ChangeStatus.NOT_FOUND:
        return failed_item(timer_id, TimerNotFound(space.name, timer_id))
    return {"id": timer_id, "status": 200, "attemptUnderWay": result.attempt_may_be_under_way(now)}


def failed_item(timer_id: str | None, error: DuetimeError) -> Item:
    described = problem(error)
    return {"id": timer_id, "status": described["status"], "problem": described}


def _reply(items: list[Item | None], stored: list[Item]) -> Reply:
    """``items`` with the results of those that went to the store, in order."""
    rest = iter(stored)
    # ASCII: a refused id may hold half a surrogate pair, which has no UTF-8 form.
    body = json.dumps({"items": [next(rest) if item is None else item for item in items]}, separators=(",", ":"))
    return Reply(status=200, body=body)


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
        responses={200: "CreatedBatch"},
        problems=(400, 404, 413, 415),
    ),
    Route(
        "POST",
        f"{_TIMERS}/batch-cancel",
        cancel_timers,
        Role.WRITER,
        summary="Cancel up to 500 timers, with a result for each",
        tag="timers",
        body=CancelBatch,
        responses={200: "CancelledBatch"},
        problems=(400, 404, 413, 415),
    ),
)
