"""Lists of a namespace's timers, and the search by correlation id."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

import sqlalchemy as sa

from duetime.domain.errors import InvalidCursor
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.port import Page, TimerFilter
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.rows import COLUMNS, decode_or_salvage, optional_milliseconds, readable_reason, readable_tags
from duetime.stores.sql.tables import given, given_count, timers
from duetime.stores.sql.timer_rows import TimerRows

T = TypeVar("T")

SCANNED_PER_PAGE = 1000
"""How many rows one page of a filtered list looks at."""

_BEFORE_ALL = (-1, "")
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
        self._whole = self._prepare_walk(*COLUMNS)
        self._scan = self._prepare_walk(*_SCANNED)
        self._correlated = database.prepare(
            sa.select(*COLUMNS)
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
        of_namespace = sa.select(*columns).where(_ROW.timer_namespace == given("namespace"))
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

    @staticmethod
    def _walk(
        statements: tuple[Prepared, Prepared],
        connection: sa.Connection,
        namespace: str,
        after: tuple[int, str],
        limit: int,
    ) -> list[Any]:
        """Up to ``limit`` rows after a position of (shard id, timer id)."""
        rest, following = statements
        shard_id, timer_id = after
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
        after = _BEFORE_ALL if cursor is None else _read_cursor(cursor)
        matches = None if timer_filter == TimerFilter() else _matcher(timer_filter)
        with self._database.read() as connection:
            if matches is None:
                rows = self._walk(self._whole, connection, namespace.name, after, limit + 1)
                decoded = [decode_or_salvage(row) for row in rows[:limit]]
                items = [timer for timer in decoded if not timer.is_expired(now)]
                last = (decoded[-1].shard_id, decoded[-1].timer_id) if len(rows) > limit else None
                return Page(items, _write_cursor(last))
            rows = self._walk(self._scan, connection, namespace.name, after, SCANNED_PER_PAGE)
            found, last = _selected(rows, matches, limit)
            read = [
                self._rows.find(connection, shard, namespace.name, timer_id, now=now) for shard, timer_id in found
            ]
        return Page([timer for timer in read if timer is not None], _write_cursor(last))

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
            rows = self._correlated.one(
                connection, namespace.name, correlation_id, cursor or "", to_milliseconds(now), limit + 1
            ).fetchall()
        items = [decode_or_salvage(row) for row in rows[:limit]]
        return Page(items, items[-1].timer_id if len(rows) > limit else None)


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


def _selected(
    rows: list[Any], matches: Callable[[Any], bool], limit: int
) -> tuple[list[tuple[int, str]], tuple[int, str] | None]:
    """The positions of up to ``limit`` matching rows, and the position after which to look on (None: at the end)."""
    found: list[tuple[int, str]] = []
    for row in rows:
        if matches(row):
            found.append((row[0], row[1]))
            if len(found) == limit:
                return found, found[-1]
    return found, (rows[-1][0], rows[-1][1]) if len(rows) == SCANNED_PER_PAGE else None


def _write_cursor(position: tuple[int, str] | None) -> str | None:
    return None if position is None else f"{position[0]}:{position[1]}"


def _read_cursor(cursor: str) -> tuple[int, str]:
    shard_id, separator, timer_id = cursor.partition(":")
    if not separator or not shard_id.isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return int(shard_id), timer_id
