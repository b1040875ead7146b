"""Lists of a tenant's service calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import Position, read_cursor, write_cursor
from duetime.stores.mongodb.call_documents import WITHOUT_BODY, decode_or_salvage_call
from duetime.stores.mongodb.call_walks import Walk, walk_for
from duetime.stores.mongodb.database import SERVICE_CALLS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import instant, lenient, text, texts
from duetime.stores.port.calls import CallFilter
from duetime.stores.port.pages import Page

SCANNED_PER_PAGE = 1000
"""How many calls one page looks at before it is handed out as it is."""
_CHUNK = 250
_FIELDS = tuple(field.name for field in fields(CallFilter))

Condition = Callable[[Document], bool]


class CallLists:
    def __init__(self, database: Database) -> None:
        self._collection = database[SERVICE_CALLS]

    @translated
    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        walk = walk_for(tenant_id, call_filter)
        query = (tenant_id, "calls", *(getattr(call_filter, name) for name in _FIELDS))
        position = walk.start if cursor is None else read_cursor(cursor, query, parts=len(walk.start))
        conditions = _conditions(call_filter, walk.covers)

        def is_listed(call: Document) -> bool:
            expires_at: datetime | None = lenient(instant, call, "expires_at", None)
            return (expires_at is None or expires_at > now) and all(holds(call) for holds in conditions)

        found, last = self._collect(walk, is_listed, position, limit, chunk=_CHUNK if conditions else limit + 1)
        return Page(
            [decode_or_salvage_call(call) for call in found], None if last is None else write_cursor(last, query)
        )

    def _collect(
        self, walk: Walk, is_listed: Condition, position: Position, limit: int, *, chunk: int
    ) -> tuple[list[Document], Position | None]:
        """Up to ``limit`` calls behind a position, read in chunks, and the position after which to look on (None: at
        the end)."""
        found: list[Document] = []
        looked_at = 0
        while looked_at < SCANNED_PER_PAGE:
            calls = self._read(walk, position, chunk)
            for call in calls:
                if walk.is_beyond(call):
                    return found, None
                if len(found) == limit:
                    return found, position
                position = walk.position_of(call)
                if is_listed(call):
                    found.append(call)
            if len(calls) < chunk:
                return found, None
            looked_at += chunk
        return found, position

    def _read(self, walk: Walk, position: Position, limit: int) -> list[Document]:
        calls: list[Document] = []
        for part in walk.ranges(position):
            wanted = limit - len(calls)
            if wanted > 0:
                calls += read(
                    self._collection,
                    part.condition,
                    WITHOUT_BODY,
                    order=part.order,
                    limit=wanted,
                    hint=walk.index,
                )
        return calls


def _conditions(call_filter: CallFilter, covered: frozenset[str]) -> list[Condition]:
    """What of the filter the walk does not see to."""
    wanted = {name: getattr(call_filter, name) for name in _FIELDS if name not in covered and name != "order"}
    return [_CONDITIONS[name](value) for name, value in wanted.items() if value not in (None, ())]


def _has_tags(tags: tuple[str, ...]) -> Condition:
    wanted = set(tags)
    return lambda call: wanted <= set(lenient(texts, call, "tags", ()))


def _has_name_with(prefix: str) -> Condition:
    return lambda call: str(lenient(text, call, "name", "")).startswith(prefix)


def _is_in_time(name: str, holds: Callable[[datetime, datetime], bool]) -> Callable[[datetime], Condition]:
    def condition(limit: datetime) -> Condition:
        def is_so(call: Document) -> bool:
            at: datetime | None = lenient(instant, call, name, None)
            return at is not None and holds(at, limit)

        return is_so

    return condition


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "status": lambda status: lambda call: call.get("status") == status.value,
    "tags": _has_tags,
    "submitted_from": _is_in_time("submitted_at", operator.ge),
    "submitted_to": _is_in_time("submitted_at", operator.lt),
    "due_to": _is_in_time("due_at", operator.le),
    "name_prefix": _has_name_with,
    "starred": lambda is_starred: lambda call: call.get("is_starred") is is_starred,
    "correlation_id": lambda correlation_id: lambda call: call.get("correlation_id") == correlation_id,
}
"""By field of the filter: from its value to what a call has to fulfil."""
