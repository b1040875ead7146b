"""Lists of a tenant's service calls: one condition chooses the access path, the others are checked row by row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import datetime
from functools import partial
from typing import Any

from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.domain.times import to_milliseconds
from duetime.stores.backend import Backend, Query
from duetime.stores.core.call_codec import LISTED, decode_or_salvage_call
from duetime.stores.core.cursors import bound_cursor_of, bound_place_of
from duetime.stores.core.instants import milliseconds
from duetime.stores.entities import (
    CALLS,
    CALLS_BY_NAME,
    CALLS_BY_STATUS,
    CORRELATED_CALLS,
    DUE_CALLS,
    SERVICE_CALL,
    STARRED_CALLS,
    TAGGED_CALLS,
)
from duetime.stores.entity import DAMAGED, AccessPath, Key, Place, Row, Value
from duetime.stores.port.calls import CallFilter, CallOrder
from duetime.stores.port.pages import Page

LOOKED_AT_PER_PAGE = 1000
"""How many calls one page looks at before it is handed out as it is."""
_CHUNK = 250
_FILTER = tuple(field.name for field in fields(CallFilter))
_PLACES = SERVICE_CALL.places  # those of LISTED, too: what it leaves out is the last
_LAST_NAME = "\U0010ffff" * 256
"""Longer than a name can be: sorts behind all that begin with a prefix, with it before them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How a list is read: the rows of ``by`` on ``path`` from ``since`` to ``until``, both inclusive.

    ``covers``: the fields of the filter that need no further check.
    """

    path: AccessPath
    by: Key
    since: Value = None
    until: Value = None
    covers: frozenset[str]


def plan_for(tenant_id: str, wanted: CallFilter) -> Plan:
    """Choose the plan: the condition that is likely to leave out most comes first."""
    if wanted.order is CallOrder.DUE:
        if wanted.status is not CallStatus.SCHEDULED:
            raise ValueError("calls are listed by due time only with the status Scheduled")
        until = None if wanted.due_to is None else milliseconds(wanted.due_to)
        return Plan(path=DUE_CALLS, by=(tenant_id,), until=until, covers=frozenset({"status", "due_to"}))
    if (prefix := wanted.name_prefix) is not None:
        covers = frozenset({"name_prefix"})
        return Plan(path=CALLS_BY_NAME, by=(tenant_id,), since=prefix, until=prefix + _LAST_NAME, covers=covers)
    by_id = partial(_by_id, tenant_id, wanted)
    if wanted.correlation_id is not None:
        return by_id(CORRELATED_CALLS, "correlation_id", wanted.correlation_id)
    if wanted.tags:
        return by_id(TAGGED_CALLS, "tags" if len(wanted.tags) == 1 else "", wanted.tags[0])
    if wanted.starred:
        return by_id(STARRED_CALLS, "starred")
    if wanted.status is not None:
        return by_id(CALLS_BY_STATUS, "status", wanted.status.value)
    return by_id(CALLS)


def _by_id(tenant_id: str, wanted: CallFilter, path: AccessPath, covered: str = "", *by: str) -> Plan:
    """Plan by id. Ids are UUIDv7s made when their call was submitted, so their order is one of times, and dates
    bound it."""
    since, until = wanted.submitted_from, wanted.submitted_to
    return Plan(
        path=path,
        by=(tenant_id, *by),
        since=None if since is None else _id_prefix(since),
        until=None if until is None else _id_prefix(until),
        covers=frozenset({covered, "submitted_from", "submitted_to"}),
    )


def _id_prefix(instant: datetime) -> str:
    """Return what the UUIDv7s of that millisecond begin with: all of them sort behind it, all earlier ones before
    it."""
    stamp = f"{to_milliseconds(instant):012x}"
    return f"{stamp[:8]}-{stamp[8:]}"


class CallLists:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def list(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        """List calls without the body of their request (``RequestSpec.without_body``), as ``CallFilter.order`` says.

        By an index; the work of one call is bounded, whatever the filter leaves out, so a page may be short and not
        the last. A call that is not changed meanwhile appears exactly once. May lag a moment behind writes on some
        stores, except without any condition but the dates. A cursor of another tenant or another filter is an
        ``InvalidCursor``. A call that cannot be decoded is shown as FAILED with the reason UNREADABLE and without
        what cannot be read.
        """
        plan = plan_for(tenant_id, call_filter)
        query = (tenant_id, "calls", *(getattr(call_filter, name) for name in _FILTER))
        after = None if cursor is None else bound_place_of(cursor, query, SERVICE_CALL, plan.path)
        conditions = _conditions(call_filter, plan.covers)
        chunk = _CHUNK if conditions else limit
        conditions.append(partial(_is_kept, now=to_milliseconds(now)))
        found: list[Row] = []
        num_placed = looked_at = 0
        while looked_at < LOOKED_AT_PER_PAGE:
            scan = self._backend.scan(
                Query(
                    SERVICE_CALL,
                    plan.path,
                    by=plan.by,
                    fields=LISTED,
                    after=after,
                    since=plan.since,
                    until=plan.until,
                    limit=chunk,
                )
            )
            for number, row in enumerate(scan.rows, start=1):
                if not all(holds(row) for holds in conditions):
                    continue
                found.append(row)
                place = SERVICE_CALL.place_of(plan.path, row)
                if DAMAGED in place:  # no page can begin behind it: it comes on top of the limit
                    continue
                num_placed += 1
                if num_placed == limit:
                    is_last = number == len(scan.rows) and scan.end is None
                    return _page(found, None if is_last else place, query)
            if scan.end is None:
                return _page(found, None, query)
            after = scan.end
            looked_at += chunk
        return _page(found, after, query)


def _page(rows: list[Row], end: Place | None, query: tuple[Any, ...]) -> Page[ServiceCall]:
    next_cursor = None if end is None else bound_cursor_of(end, query)
    return Page([decode_or_salvage_call(row) for row in rows], next_cursor)


Condition = Callable[[Row], bool]


def _conditions(wanted: CallFilter, covered: frozenset[str]) -> list[Condition]:
    """Return what of the filter the plan leaves to be checked."""
    left = {name: getattr(wanted, name) for name in _FILTER if name not in covered and name != "order"}
    return [_CONDITIONS[name](value) for name, value in left.items() if value not in (None, ())]


def _is_kept(row: Row, *, now: int) -> bool:
    expires_at = row[_PLACES["expires_at"]]
    return expires_at is None or expires_at is DAMAGED or expires_at > now


def _is(name: str) -> Callable[[Any], Condition]:
    place = _PLACES[name]
    return lambda wanted: lambda row: row[place] == wanted


def _has_tags(tags: tuple[str, ...]) -> Condition:
    place, wanted = _PLACES["tags"], set(tags)
    return lambda row: row[place] is not DAMAGED and wanted <= set(row[place] or ())


def _has_name_with(prefix: str) -> Condition:
    place = _PLACES["name"]
    return lambda row: isinstance(row[place], str) and row[place].startswith(prefix)


def _is_within(name: str, holds: Callable[[int, int], bool]) -> Callable[[datetime], Condition]:
    place = _PLACES[name]

    def condition(limit: datetime) -> Condition:
        limit_ms = milliseconds(limit)
        return lambda row: isinstance(row[place], int) and holds(row[place], limit_ms)

    return condition


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "status": lambda status: _is("status")(status.value),
    "tags": _has_tags,
    "submitted_from": _is_within("submitted_at", int.__ge__),
    "submitted_to": _is_within("submitted_at", int.__lt__),
    "due_to": _is_within("due_at", int.__le__),
    "name_prefix": _has_name_with,
    "starred": _is("starred"),
    "correlation_id": _is("correlation_id"),
}
"""By field of the filter: from its value to what a row has to fulfil."""
