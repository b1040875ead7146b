"""Lists of a tenant's service calls."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import Position, read_cursor, write_cursor
from duetime.stores.core.timer_codec import readable_tags
from duetime.stores.port.calls import CallFilter
from duetime.stores.port.pages import Page
from duetime.stores.sql.call_rows import CALL_NAMES, Row, decode_or_salvage_call, instant_text
from duetime.stores.sql.call_walks import CallWalks, Walk
from duetime.stores.sql.database import Database

SCANNED_PER_PAGE = 1000
"""How many rows one page looks at before it is handed out as it is."""
_CHUNK = 250
_FIELDS = tuple(field.name for field in fields(CallFilter))
_NAME, _STATUS, _STARRED, _SUBMITTED_AT, _DUE_AT, _EXPIRES_AT, _CORRELATION_ID, _TAGS = map(
    CALL_NAMES.index,
    ("name", "status", "is_starred", "submitted_at", "due_at", "expires_at", "correlation_id", "tags"),
)

Condition = Callable[[Row], bool]


class CallLists:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._walks = CallWalks(database)

    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        walk = self._walks.walk_for(tenant_id, call_filter)
        query = (tenant_id, "calls", *(getattr(call_filter, name) for name in _FIELDS))
        position = walk.start if cursor is None else read_cursor(cursor, query, parts=len(walk.start))
        conditions = _conditions(call_filter, walk.covers)
        now_text = instant_text(now)

        def is_listed(row: Row) -> bool:
            expires_at = row[_EXPIRES_AT]
            return (expires_at is None or expires_at > now_text) and all(holds(row) for holds in conditions)

        chunk = max(limit + 1, _CHUNK) if conditions else limit + 1
        with self._database.read() as connection:
            rows, last = _collected(connection, walk, is_listed, position=position, limit=limit, chunk=chunk)
        items = [decode_or_salvage_call(row) for row in rows]
        return Page(items, None if last is None else write_cursor(last, query))


def _collected(
    connection: sa.Connection, walk: Walk, is_listed: Condition, *, position: Position, limit: int, chunk: int
) -> tuple[list[Row], Position | None]:
    """Up to ``limit`` rows behind a position, read in chunks, and the position after which to look on (None: at the
    end)."""
    found: list[Row] = []
    looked_at = 0
    while looked_at < SCANNED_PER_PAGE:
        rows = walk.read(connection, position, chunk)
        for row in rows:
            if walk.is_beyond(row):
                return found, None
            if len(found) == limit:
                return found, position
            position = walk.position_of(row)
            if is_listed(row):
                found.append(row)
        if len(rows) < chunk:
            return found, None
        looked_at += chunk
    return found, position


def _conditions(call_filter: CallFilter, covered: frozenset[str]) -> list[Condition]:
    """What of the filter the walk does not see to."""
    wanted = {name: getattr(call_filter, name) for name in _FIELDS if name not in covered and name != "order"}
    return [_CONDITIONS[name](value) for name, value in wanted.items() if value not in (None, ())]


def _is_tagged(tags: tuple[str, ...]) -> Condition:
    wanted = set(tags)
    return lambda row: wanted <= set(readable_tags(row[_TAGS]))


def _is_in_time(place: int, holds: Callable[[str, str], bool]) -> Callable[[datetime], Condition]:
    def condition(instant: datetime) -> Condition:
        text = instant_text(instant)
        return lambda row: holds(row[place], text)

    return condition


_CONDITIONS: dict[str, Callable[[Any], Condition]] = {
    "status": lambda status: lambda row: row[_STATUS] == status.value,
    "tags": _is_tagged,
    "submitted_from": _is_in_time(_SUBMITTED_AT, operator.ge),
    "submitted_to": _is_in_time(_SUBMITTED_AT, operator.lt),
    "due_to": _is_in_time(_DUE_AT, operator.le),
    "name_prefix": lambda prefix: lambda row: row[_NAME].startswith(prefix),
    "starred": lambda is_starred: lambda row: bool(row[_STARRED]) is is_starred,
    "correlation_id": lambda correlation_id: lambda row: row[_CORRELATION_ID] == correlation_id,
}
"""By field of the filter: from its value to what a row has to fulfil."""
