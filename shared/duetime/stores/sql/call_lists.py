"""Lists of a tenant's service calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from datetime import datetime

import sqlalchemy as sa

from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import Position, read_cursor, write_cursor
from duetime.stores.calls_port import CallFilter
from duetime.stores.port import Page
from duetime.stores.sql.call_rows import CALL_NAMES, Row, decode_or_salvage_call, instant_text
from duetime.stores.sql.call_walks import CallWalks, Walk
from duetime.stores.sql.database import Database
from duetime.stores.sql.rows import readable_tags

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
    wanted = {name: getattr(call_filter, name) for name in _FIELDS if name not in covered}
    status, starred, tags = wanted.get("status"), wanted.get("starred"), set(wanted.get("tags", ()))
    correlation_id, name_prefix = wanted.get("correlation_id"), wanted.get("name_prefix")
    conditions: list[Condition] = []
    if status is not None:
        conditions.append(lambda row: row[_STATUS] == status.value)
    if starred is not None:
        conditions.append(lambda row: bool(row[_STARRED]) is starred)
    if correlation_id is not None:
        conditions.append(lambda row: row[_CORRELATION_ID] == correlation_id)
    if name_prefix is not None:
        conditions.append(lambda row: row[_NAME].startswith(name_prefix))
    if tags:
        conditions.append(lambda row: tags <= set(readable_tags(row[_TAGS])))
    conditions += _at_least(_SUBMITTED_AT, wanted.get("submitted_from"))
    conditions += _below(_SUBMITTED_AT, wanted.get("submitted_to"))
    conditions += _at_most(_DUE_AT, wanted.get("due_to"))
    return conditions


def _at_least(place: int, instant: datetime | None) -> list[Condition]:
    text = None if instant is None else instant_text(instant)
    return [] if text is None else [lambda row: row[place] >= text]


def _below(place: int, instant: datetime | None) -> list[Condition]:
    text = None if instant is None else instant_text(instant)
    return [] if text is None else [lambda row: row[place] < text]


def _at_most(place: int, instant: datetime | None) -> list[Condition]:
    text = None if instant is None else instant_text(instant)
    return [] if text is None else [lambda row: row[place] <= text]
