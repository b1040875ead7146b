"""What pollers read: the due timers of a shard. And the rows among them that cannot be read, taken aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.decoding import repaired
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port import DuePage, UnreadableRow
from duetime.stores.sql.bounded_rows import BoundedPage, BoundedRows
from duetime.stores.sql.database import Database
from duetime.stores.sql.rows import COLUMNS, UnreadableError, decode, encode_failure
from duetime.stores.sql.tables import RowType, constant, given, given_count, timers
from duetime.stores.sql.timer_rows import TimerRows

_ROW = timers.c
_TIMER = constant(RowType.TIMER)
_BEFORE_ALL = -1
_NAMES = [column.name for column in COLUMNS]
_SHARD, _AT, _UUID, _REVISION = map(_NAMES.index, ("shard_id", "timer_execute_at", "timer_uuid", "timer_revision"))
_NAMESPACE, _TIMER_ID = map(_NAMES.index, ("timer_namespace", "timer_id"))


class Due:
    """Due timers are a range of the primary key: (shard, TIMER, ``timer_execute_at``, uuid)."""

    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._bounded = BoundedRows(database, rows)
        prepare = database.prepare
        waiting = sa.and_(_ROW.shard_id == given("shard"), _ROW.row_type == _TIMER)
        by_time = (_ROW.timer_execute_at, _ROW.timer_uuid)
        self._next = prepare(
            sa.select(_ROW.timer_execute_at)
            .where(waiting, _ROW.timer_execute_at > given("at"))
            .order_by(_ROW.timer_execute_at)
            .limit(constant(1)),
            "shard",
            "at",
        )
        self._after_instant = prepare(
            sa.select(*self._bounded.columns)
            .where(waiting, _ROW.timer_execute_at > given("at"), _ROW.timer_execute_at <= given("until"))
            .order_by(*by_time)
            .limit(given_count("limit")),
            "shard",
            "at",
            "until",
            "limit",
        )
        self._at_instant = prepare(
            sa.select(*self._bounded.columns)
            .where(waiting, _ROW.timer_execute_at == given("at"), _ROW.timer_uuid > given("uuid"))
            .order_by(*by_time)
            .limit(given_count("limit")),
            "shard",
            "at",
            "uuid",
            "limit",
        )
        self._quarantine = prepare(
            sa.update(timers)
            .where(
                waiting,
                _ROW.timer_execute_at == given("at"),
                _ROW.timer_uuid == given("uuid"),
                _ROW.timer_revision == given("revision"),
            )
            .values(
                row_type=constant(RowType.FINISHED),
                timer_state=constant(TimerState.FAILED.value),
                timer_revision=_ROW.timer_revision + constant(1),
                timer_updated_at=database.db_now.epoch_ms(),
                timer_failure=given("failure"),
                timer_expires_at=given("expires_at"),
            ),
            "shard",
            "at",
            "uuid",
            "revision",
            "failure",
            "expires_at",
        )

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
    ) -> DuePage:
        until_ms = to_milliseconds(until)
        before_ms = _BEFORE_ALL if since is None else to_milliseconds(since) - 1
        with self._database.read() as connection:
            # The usual poll finds nothing due: it costs one step into the index.
            next_ms = self._next_after(connection, shard_id, before_ms) if cursor is None else None
            rows: list[Any] = []
            if cursor is not None or (next_ms is not None and next_ms <= until_ms):
                position = (before_ms, None) if cursor is None else _read_cursor(cursor)
                rows, last = self._due_rows(connection, shard_id, until_ms, limit, position)
                if last is not None:
                    return _page(rows, cursor=_write_cursor(last))
                next_ms = self._next_after(connection, shard_id, until_ms)
        next_attempt_at = None if next_ms is None else from_milliseconds(next_ms)
        if known_next is not None and (next_attempt_at is None or known_next < next_attempt_at):
            next_attempt_at = known_next
        return _page(rows, next_attempt_at=next_attempt_at)

    def _next_after(self, connection: sa.Connection, shard_id: int, at_ms: int) -> int | None:
        next_ms: int | None = self._next.one(connection, shard_id, at_ms).scalar()
        return next_ms

    def _due_rows(
        self,
        connection: sa.Connection,
        shard_id: int,
        until_ms: int,
        limit: int,
        position: tuple[int, bytes | None],
    ) -> tuple[list[Any], Any]:
        """What follows ``position``: the rest of its instant, if it is within one, then the later instants.

        Also the row behind which there may be more; None at the end.
        """
        at_ms, uuid = position
        page = BoundedPage()
        if uuid is not None:
            rest = self._at_instant.one(connection, shard_id, at_ms, uuid, limit)
            page = self._bounded.read(connection, rest, limit, leaves_out_moved=True)
        rows, last = page.rows, page.last
        if not page.is_cut and page.taken < limit:
            limit -= page.taken
            later = self._after_instant.one(connection, shard_id, at_ms, until_ms, limit)
            page = self._bounded.read(connection, later, limit, budget=PAGE_BYTES - page.size, leaves_out_moved=True)
            rows, last = rows + page.rows, page.last or last
        return rows, last if page.is_cut or page.taken == limit else None

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        if not rows:
            return
        with self._database.write(now) as mutation:
            values = []
            for row in rows:
                at_ms, uuid, revision = json.loads(row.key)
                failure = encode_failure(Failure(FailureReason.UNREADABLE, row.reason, mutation.now))
                end_ms = to_milliseconds(expires_at)
                values.append((row.shard_id, at_ms, bytes.fromhex(uuid), revision, failure, end_ms))
            self._quarantine.many(mutation.connection, values)


def _page(rows: list[Any], *, cursor: str | None = None, next_attempt_at: datetime | None = None) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        try:
            found.append(decode(row))
        except UnreadableError as error:
            key = json.dumps([row[_AT], row[_UUID].hex(), row[_REVISION]])
            namespace, timer_id = repaired((row[_NAMESPACE], row[_TIMER_ID]))
            unreadable.append(UnreadableRow(row[_SHARD], key, str(error), namespace, timer_id))
    return DuePage(found, cursor, next_attempt_at, tuple(unreadable))


def _write_cursor(row: Any) -> str:
    return f"{row[_AT]}:{row[_UUID].hex()}"


def _read_cursor(cursor: str) -> tuple[int, bytes]:
    at_ms, _, uuid = cursor.partition(":")
    try:
        return int(at_ms), bytes.fromhex(uuid)
    except ValueError:
        raise InvalidCursor("cursor", "the cursor does not belong to these timers") from None
