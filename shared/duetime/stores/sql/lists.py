"""Lists of a namespace's timers, and the search by correlation id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.core.cursors import cursor_of, place_of
from duetime.stores.core.timer_codec import optional_milliseconds, readable_reason, readable_tags
from duetime.stores.decoding import as_cursor, of_cursor
from duetime.stores.entities import OF_NAMESPACE, TIMER
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter
from duetime.stores.sql.bounded_rows import PAYLOAD, BoundedPage, BoundedRows
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.rows import decode_or_salvage
from duetime.stores.sql.tables import given, given_count, timers
from duetime.stores.sql.timer_rows import SHARD_ID, TIMER_ID, TimerRows

Position = tuple[int, str]
"""Shard id and timer id."""

SCANNED_PER_PAGE = 1000
"""How many rows one page of a filtered list looks at."""

_BEFORE_ALL = (-1, "")
_IN_ORDER = "FORCE INDEX (idx_timer_lookup)"
"""MySQL would read a shard that holds one namespace by its key, and sort all of it for each page."""
_ROW = timers.c
_SCANNED = (
    _ROW.shard_id,
    _ROW.timer_id,
    _ROW.timer_state,
    _ROW.timer_due_at,
    _ROW.timer_tags,
    _ROW.timer_updated_at,
    _ROW.timer_failure,
)


class Lists:
    """A list walks ``idx_timer_lookup``: first the rest of the cursor's shard, then the shards after it.

    A filtered list looks at a bounded number of rows, without their payloads, and then reads those that match.
    """

    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._rows = rows
        self._bounded = BoundedRows(database, rows)
        self._whole = self._prepare_walk(*self._bounded.columns)
        self._scan = self._prepare_walk(*_SCANNED)
        self._correlated = database.prepare(
            sa.select(*self._bounded.columns)
            .where(
                _ROW.timer_namespace == given("namespace"),
                _ROW.timer_correlation_id == given("correlation"),
                _ROW.timer_id > given("after"),
                sa.or_(_ROW.timer_expires_at.is_(None), _ROW.timer_expires_at > given("now")),
            )
            .order_by(_ROW.timer_id)
            .limit(given_count("limit")),
            "namespace",
            "correlation",
            "after",
            "now",
            "limit",
        )

    def _prepare_walk(self, *columns: sa.ColumnElement[Any]) -> tuple[Prepared, Prepared]:
        of_namespace = (
            sa.select(*columns)
            .with_hint(timers, _IN_ORDER, "mysql")
            .where(_ROW.timer_namespace == given("namespace"))
        )
        shard, limit = given("shard"), given_count("limit")
        rest = (
            of_namespace.where(_ROW.shard_id == shard, _ROW.timer_id > given("after"))
            .order_by(_ROW.timer_id)
            .limit(limit)
        )
        following = of_namespace.where(_ROW.shard_id > shard).order_by(_ROW.shard_id, _ROW.timer_id).limit(limit)
        prepare = self._database.prepare
        return (
            prepare(rest, "namespace", "shard", "after", "limit"),
            prepare(following, "namespace", "shard", "limit"),
        )

    def _walk(
        self, connection: sa.Connection, namespace: str, after: Position, limit: int
    ) -> tuple[list[Any], Position | None]:
        """Up to ``limit`` whole rows after a position, and the position to go on from (None: at the end)."""
        rest, following = self._whole
        shard_id, timer_id = after
        page, rows, last = BoundedPage(), [], None
        if shard_id >= 0:
            found = rest.one(connection, namespace, shard_id, timer_id, limit + 1)
            page = self._bounded.read(connection, found, limit)
            rows, last = page.rows, page.last
        if not page.is_cut:
            limit -= page.taken
            found = following.one(connection, namespace, shard_id, limit + 1)
            page = self._bounded.read(connection, found, limit, budget=PAGE_BYTES - page.size)
            rows, last = rows + page.rows, page.last or last
        return rows, (last[SHARD_ID], last[TIMER_ID]) if page.is_cut and last is not None else None

    def _scanned(self, connection: sa.Connection, namespace: str, after: Position) -> list[Any]:
        """Rows of ``_SCANNED`` after a position, as many as one page looks at."""
        rest, following = self._scan
        shard_id, timer_id = after
        limit = SCANNED_PER_PAGE
        rows = list(rest.one(connection, namespace, shard_id, timer_id, limit).fetchall()) if shard_id >= 0 else []
        if len(rows) < limit:
            rows += following.one(connection, namespace, shard_id, limit - len(rows)).fetchall()
        return rows

    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        after = _BEFORE_ALL if cursor is None else place_of(cursor, TIMER, OF_NAMESPACE)
        matches = None if timer_filter == TimerFilter() else _matcher(timer_filter)
        with self._database.read() as connection:
            if matches is None:
                rows, last = self._walk(connection, namespace.name, after, limit)
            else:
                found, last = _selected(self._scanned(connection, namespace.name, after), matches, limit)
                rows, cut = self._found(connection, namespace.name, found)
                last = cut or last
        return Page(_present(rows, now), None if last is None else cursor_of(last))

    def _found(
        self, connection: sa.Connection, namespace: str, found: list[Position]
    ) -> tuple[list[Any], Position | None]:
        """The whole rows at these positions, and the one to go on from where not all of them fit."""
        rows: list[Any] = []
        size = 0
        for at, (shard_id, timer_id) in enumerate(found):
            row = self._rows.find_row(connection, shard_id, namespace, timer_id)
            if row is None:
                continue
            size += len(row[PAYLOAD] or "")
            if size > PAGE_BYTES and rows:
                return rows, found[at - 1]
            rows.append(row)
        return rows, None

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        with self._database.read() as connection:
            found = self._correlated.one(
                connection, namespace.name, correlation_id, of_cursor(cursor or ""), to_milliseconds(now), limit + 1
            )
            page = self._bounded.read(connection, found, limit)
        last = page.last
        return Page(_present(page.rows, now), as_cursor(last[TIMER_ID]) if page.is_cut and last is not None else None)


def _present(rows: list[Any], now: datetime) -> list[Timer]:
    decoded = [decode_or_salvage(row) for row in rows]
    return [timer for timer in decoded if not timer.is_expired(now)]


def _matcher(timer_filter: TimerFilter) -> Callable[[Any], bool]:
    """Whether a row of ``_SCANNED`` passes the filter."""
    state = None if timer_filter.state is None else timer_filter.state.value
    due_from, due_to = map(optional_milliseconds, (timer_filter.due_from, timer_filter.due_to))
    updated_from, updated_to = map(optional_milliseconds, (timer_filter.updated_from, timer_filter.updated_to))
    tag, reason = timer_filter.tag, timer_filter.failure_reason

    def matches(row: Any) -> bool:
        _, _, row_state, due_at, tags, updated_at, failure = row
        return (
            (state is None or row_state == state)
            and (due_from is None or due_at >= due_from)
            and (due_to is None or due_at < due_to)
            and (updated_from is None or updated_at >= updated_from)
            and (updated_to is None or updated_at < updated_to)
            and (tag is None or tag in readable_tags(tags))
            and (reason is None or readable_reason(failure) is reason)
        )

    return matches


def _selected(rows: list[Any], matches: Callable[[Any], bool], limit: int) -> tuple[list[Position], Position | None]:
    """The positions of up to ``limit`` matching rows, and the position after which to look on (None: at the end)."""
    found: list[Position] = []
    for row in rows:
        if matches(row):
            found.append((row[0], row[1]))
            if len(found) == limit:
                return found, found[-1]
    return found, (rows[-1][0], rows[-1][1]) if len(rows) == SCANNED_PER_PAGE else None
