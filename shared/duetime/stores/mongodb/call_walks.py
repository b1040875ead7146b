"""The ways through a tenant's service calls, each along one index in the order of its list.

A list takes the most telling of its conditions as its way and checks the others call by call (call_lists.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from duetime.domain.errors import InvalidCursor
from duetime.domain.service_calls import CallStatus
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.bound_cursors import Position
from duetime.stores.mongodb import schema
from duetime.stores.mongodb.url import Document
from duetime.stores.port.calls import CallFilter, CallOrder

_ID, _NAME, _DUE_AT = "service_call_id", "name", "due_at"
_NEWEST = [(_ID, -1)]
_AFTER_ALL = "~"
"""Sorts behind every id."""
_BEFORE_ALL = ""


@dataclass(frozen=True, slots=True)
class Range:
    """What one read along an index finds, in the index's order."""

    condition: Document
    order: list[tuple[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """``ranges(position)``: what is behind a position, one range after the other; ``start`` is the first position.

    ``covers``: the fields of the filter that need no further check. ``is_beyond(call)``: neither this call nor any
    behind it belongs to the list.
    """

    index: str
    start: Position
    ranges: Callable[[Position], list[Range]]
    position_of: Callable[[Document], Position]
    covers: frozenset[str]
    is_beyond: Callable[[Document], bool] = lambda _: False


def walk_for(tenant_id: str, call_filter: CallFilter) -> Walk:
    """The way of a list; the precedence is by how much each condition is likely to leave out."""
    if call_filter.order is CallOrder.DUE:
        if call_filter.status is not CallStatus.SCHEDULED:
            raise ValueError("by due time there are only Scheduled calls")
        return _due_walk(tenant_id, call_filter)
    if call_filter.name_prefix is not None:
        return _name_walk(tenant_id, call_filter.name_prefix)

    def by_id(index: str, covered: str = "", **condition: Any) -> Walk:
        return _id_walk(index, {"tenant_id": tenant_id, **condition}, call_filter, covered)

    if call_filter.correlation_id is not None:
        return by_id(schema.CALL_CORRELATION, "correlation_id", correlation_id=call_filter.correlation_id)
    if call_filter.tags:
        is_only = len(call_filter.tags) == 1
        return by_id(schema.CALL_TAG, "tags" if is_only else "", tags=call_filter.tags[0])
    if call_filter.starred:
        return by_id(schema.CALL_STARRED, "starred", is_starred=True)
    if call_filter.status is not None:
        return by_id(schema.CALL_STATUS, "status", status=call_filter.status.value)
    return by_id(schema.CALL_KEY)


def _id_walk(index: str, condition: Document, call_filter: CallFilter, covered: str) -> Walk:
    """Ids are UUIDv7s made when their call was submitted, so a walk by id is one by time, and dates bound it."""
    since, until = call_filter.submitted_from, call_filter.submitted_to
    first = {} if since is None else {"$gte": _id_prefix(since)}
    return Walk(
        index=index,
        start=[_AFTER_ALL if until is None else _id_prefix(until)],
        ranges=lambda position: [Range({**condition, _ID: {"$lt": position[0], **first}}, _NEWEST)],
        position_of=lambda call: [call[_ID]],
        covers=frozenset({covered, "submitted_from", "submitted_to"}),
    )


def _name_walk(tenant_id: str, prefix: str) -> Walk:
    tenant = {"tenant_id": tenant_id}
    order = [(_NAME, 1), (_ID, -1)]

    def ranges(position: Position) -> list[Range]:
        name, before = position
        rest = Range({**tenant, _NAME: name, _ID: {"$lt": before}}, order)
        return [rest, Range({**tenant, _NAME: {"$gt": name}}, order)]

    return Walk(
        index=schema.CALL_NAME,
        start=[prefix, _AFTER_ALL],
        ranges=ranges,
        position_of=lambda call: [call[_NAME], call[_ID]],
        covers=frozenset({"name_prefix"}),
        is_beyond=lambda call: not call[_NAME].startswith(prefix),
    )


def _due_walk(tenant_id: str, call_filter: CallFilter) -> Walk:
    scheduled = {"tenant_id": tenant_id, "status": CallStatus.SCHEDULED.value}
    order = [(_DUE_AT, 1), (_ID, 1)]
    until = {} if call_filter.due_to is None else {"$lte": call_filter.due_to}

    def ranges(position: Position) -> list[Range]:
        at_text, after = position
        if at_text == _BEFORE_ALL:
            return [Range({**scheduled, _DUE_AT: {"$exists": True, **until}}, order)]
        at = _read_instant(at_text)
        rest = Range({**scheduled, _DUE_AT: at, _ID: {"$gt": after}}, order)
        return [rest, Range({**scheduled, _DUE_AT: {"$gt": at, **until}}, order)]

    return Walk(
        index=schema.CALL_DUE,
        start=[_BEFORE_ALL, _BEFORE_ALL],
        ranges=ranges,
        position_of=lambda call: [str(to_milliseconds(call[_DUE_AT])), call[_ID]],
        covers=frozenset({"status", "due_to"}),
    )


def _read_instant(milliseconds: str) -> datetime:
    try:
        return from_milliseconds(int(milliseconds))
    except (ValueError, OverflowError):
        raise InvalidCursor("cursor", "the cursor does not belong to this list") from None


def _id_prefix(instant: datetime) -> str:
    """What the UUIDv7s of that millisecond begin with: all of them sort behind it, all earlier ones before it."""
    stamp = f"{to_milliseconds(instant):012x}"
    return f"{stamp[:8]}-{stamp[8:]}"
