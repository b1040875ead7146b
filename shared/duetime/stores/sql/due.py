"""What pollers read: the due timers of a shard. And the rows among them that cannot be read, taken aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.core.timer_codec import UnreadableError, encode_failure
from duetime.stores.decoding import repaired
from duetime.stores.glances import first_that_fit
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, DuePage, IsWanted, UnreadableRow
from duetime.stores.sql.bounded_rows import BoundedPage, BoundedRows
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.rows import COLUMNS, decode
from duetime.stores.sql.tables import RowType, constant, given, given_count, timers
from duetime.stores.sql.timer_rows import TimerRows

_ROW = timers.c
_TIMER = constant(RowType.TIMER)
_BEFORE_ALL = -1
_PLACE = (_ROW.timer_execute_at, _ROW.timer_uuid)
_NAMES = [column.name for column in COLUMNS]
_SHARD, _AT, _UUID, _REVISION = map(_NAMES.index, ("shard_id", "timer_execute_at", "timer_uuid", "timer_revision"))
_NAMESPACE, _TIMER_ID = map(_NAMES.index, ("timer_namespace", "timer_id"))
_PLACE_OF = itemgetter(_AT, _UUID)

Place = tuple[int, bytes]
"""Where a row stands among those of its shard: its instant and its uuid."""
_READ_TOGETHER = 64
"""Rows that are read by their places at once."""


def _may_be_left_out() -> sa.ColumnElement[bool]:
    """Of the rows that are not wanted: neither parked nor too late (``Timer.is_too_late``) at ``until``."""
    limit, until = _ROW.timer_expire_after_ms, given("until")
    is_in_time = sa.or_(limit.is_(None), *(at + limit >= until for at in (_ROW.timer_due_at, _ROW.timer_rearmed_at)))
    return sa.and_(_ROW.timer_state == constant(TimerState.SCHEDULED.value), is_in_time)


class Due:
    """Due timers are a range of the primary key: (shard, TIMER, ``timer_execute_at``, uuid).

    Where not all are wanted, a page looks at a bounded number of rows, without most of their columns, and then reads
    those that it is to have.
    """

    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._bounded = BoundedRows(database, rows)
        prepare = database.prepare
        waiting = sa.and_(_ROW.shard_id == given("shard"), _ROW.row_type == _TIMER)
        self._whole = self._prepare_range(waiting, *self._bounded.columns)
        # No URL: the row is to be read, whoever it belongs to.
        url = sa.case((_may_be_left_out(), _ROW.timer_callback_url)).label("timer_url")
        self._gathered = database.gathered_rows
        self._glance = self._prepare_range(waiting, *_PLACE, _ROW.timer_namespace, url, finish=self._gathered.select)
        whole = sa.select(*self._bounded.light_columns).where(waiting)
        at, uuid = _PLACE
        self._whole_at = database.prepare_list(whole.where(at == given("at")), uuid, "shard", "at")
        self._whole_between = database.prepare_list(
            whole.where(at > given("after"), at < given("before")), uuid, "shard", "after", "before"
        )
        self._next = prepare(
            sa.select(_ROW.timer_execute_at)
            .where(waiting, _ROW.timer_execute_at > given("at"))
            .order_by(_ROW.timer_execute_at)
            .limit(constant(1)),
            "shard",
            "at",
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

    def _prepare_range(
        self,
        waiting: sa.ColumnElement[bool],
        *columns: sa.ColumnElement[Any],
        finish: Callable[[sa.Select[Any]], sa.Select[Any]] = lambda select: select,
    ) -> tuple[Prepared, Prepared]:
        """The rest of a position's instant, and what follows that instant; both know ``until``."""
        at, uuid = _PLACE
        select, limit = sa.select(*columns).where(waiting).order_by(*_PLACE), given_count("limit")
        until = at <= given("until")
        rest = select.where(at == given("at"), uuid > given("uuid"), until).limit(limit)
        later = select.where(at > given("at"), until).limit(limit)
        prepare = self._database.prepare
        return (
            prepare(finish(rest), "shard", "at", "uuid", "until", "limit"),
            prepare(finish(later), "shard", "at", "until", "limit"),
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
        is_wanted: IsWanted | None = None,
    ) -> DuePage:
        until_ms = to_milliseconds(until)
        before_ms = _BEFORE_ALL if since is None else to_milliseconds(since) - 1
        with self._database.read() as connection:
            # The usual poll finds nothing due: it costs one step into the index.
            next_ms = self._next_after(connection, shard_id, before_ms) if cursor is None else None
            rows: list[Any] = []
            if cursor is not None or (next_ms is not None and next_ms <= until_ms):
                position = (before_ms, None) if cursor is None else _read_cursor(cursor)
                if is_wanted is None:
                    rows, end = self._due_rows(connection, shard_id, until_ms, limit, position)
                else:
                    looked_at = self._looked_at(connection, shard_id, until_ms, limit, position)
                    rows, end = self._wanted_rows(connection, shard_id, looked_at, limit, is_wanted)
                if end is not None:
                    return _page(rows, end=end)
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
    ) -> tuple[list[Any], Place | None]:
        """What follows ``position``: the rest of its instant, if it is within one, then the later instants.

        Also the place behind which there may be more; None at the end.
        """
        at_ms, uuid = position
        rest, following = self._whole
        page = BoundedPage()
        if uuid is not None:
            found = rest.one(connection, shard_id, at_ms, uuid, until_ms, limit)
            page = self._bounded.read(connection, found, limit, leaves_out_moved=True)
        rows, last = page.rows, page.last
        if not page.is_cut and page.taken < limit:
            limit -= page.taken
            later = following.one(connection, shard_id, at_ms, until_ms, limit)
            page = self._bounded.read(connection, later, limit, budget=PAGE_BYTES - page.size, leaves_out_moved=True)
            rows, last = rows + page.rows, page.last or last
        is_more = page.is_cut or page.taken == limit
        return rows, _PLACE_OF(last) if is_more and last is not None else None

    def _looked_at(
        self, connection: sa.Connection, shard_id: int, until_ms: int, limit: int, position: tuple[int, bytes | None]
    ) -> list[Any]:
        """Place, namespace and URL of what follows ``position``, as many as a page looks at."""
        at_ms, uuid = position
        rest, following = self._glance
        most = limit * LOOKED_AT_PER_TIMER
        rows: list[Any] = []
        if uuid is not None:
            rows += self._gathered.read(rest.one(connection, shard_id, at_ms, uuid, until_ms, most))
        if len(rows) < most:
            rows += self._gathered.read(following.one(connection, shard_id, at_ms, until_ms, most - len(rows)))
        return rows

    def _wanted_rows(
        self,
        connection: sa.Connection,
        shard_id: int,
        looked_at: list[Any],
        limit: int,
        is_wanted: IsWanted,
    ) -> tuple[list[Any], Place | None]:
        """Those of the rows that are wanted, and the place behind which there may be more; None at the end."""
        chosen, is_more = first_that_fit(looked_at, lambda row: row[3] is None or is_wanted(row[2], row[3]), limit)
        end = looked_at[-1] if len(looked_at) == limit * LOOKED_AT_PER_TIMER else None
        if is_more:
            end = chosen[-1]
        places = [_place_looked_at(row) for row in chosen]
        light: list[Any] = []
        for start in range(0, len(places), _READ_TOGETHER):
            light += self._at_places(connection, shard_id, places[start : start + _READ_TOGETHER])
        page = self._bounded.complete(connection, light, limit, leaves_out_moved=True)
        if page.is_cut and page.last is not None:
            return page.rows, _PLACE_OF(page.last)
        return page.rows, None if end is None else _place_looked_at(end)

    def _at_places(self, connection: sa.Connection, shard_id: int, places: list[Place]) -> list[Any]:
        """The rows there, in order. However many rows share the first or the last instant, only these are touched."""
        first, last = places[0][0], places[-1][0]
        between = [uuid for at_ms, uuid in places if first < at_ms < last]
        rows = []
        for instant in {first, last}:
            there = [uuid for at_ms, uuid in places if at_ms == instant]
            rows += self._whole_at.rows(connection, there, shard_id, instant)
        if between:
            rows += self._whole_between.rows(connection, between, shard_id, first, last)
        return sorted(rows, key=_PLACE_OF)

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


def _page(rows: list[Any], *, end: Place | None = None, next_attempt_at: datetime | None = None) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        try:
            found.append(decode(row))
        except UnreadableError as error:
            key = json.dumps([row[_AT], row[_UUID].hex(), row[_REVISION]])
            namespace, timer_id = repaired((row[_NAMESPACE], row[_TIMER_ID]))
            unreadable.append(UnreadableRow(row[_SHARD], key, str(error), namespace, timer_id))
    if end is None:
        return DuePage(found, None, next_attempt_at, tuple(unreadable))
    return DuePage(found, _write_cursor(end), None, tuple(unreadable), from_milliseconds(end[0]))


def _place_looked_at(row: Sequence[Any]) -> Place:
    at_ms, uuid = row[:2]
    return at_ms, uuid if isinstance(uuid, bytes) else bytes.fromhex(uuid)


def _write_cursor(place: Place) -> str:
    at_ms, uuid = place
    return f"{at_ms}:{uuid.hex()}"


def _read_cursor(cursor: str) -> tuple[int, bytes]:
    at_ms, _, uuid = cursor.partition(":")
    try:
        return int(at_ms), bytes.fromhex(uuid)
    except ValueError:
        raise InvalidCursor("cursor", "the cursor does not belong to these timers") from None
