"""Lists of a namespace's timers, and the search by correlation id: walks through the partitions of its shards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

from duetime.domain.errors import InvalidCursor
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.cassandra.requests import Requests, Row, Statement
from duetime.stores.cassandra.schema import CORRELATION
from duetime.stores.cassandra.timer_rows import decode_or_salvage, is_trace, key_of_row, reason_of, tags_of
from duetime.stores.cassandra.timers import OF_NAMESPACE, Timers
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter

SCANNED_PER_PAGE: Final = 1000
"""How many timers one page of a list looks at."""
SHARDS_PER_PAGE: Final = 256
"""How many partitions one page of a list looks into."""
_SIDE_BY_SIDE = 8
_READ_TOGETHER = 32
"""Of those that fit, how many are read at once: 8 MiB where each has the largest payload."""
_SCANNED_AT_ONCE = 250

Position = tuple[int, str]
"""Shard id and timer id."""

_SCAN = (
    "SELECT shard_id, timer_namespace, timer_id, timer_state, timer_due_at, timer_tags, timer_updated_at, "
    f"timer_failure, timer_revision, timer_created_at FROM timers WHERE {OF_NAMESPACE} AND timer_id > ? LIMIT ?"
)
_CORRELATED = (
    f"SELECT shard_id, timer_namespace, timer_id FROM timers WHERE shard_id = ? AND row_kind = {CORRELATION} "
    "AND sort_at = 0 AND timer_namespace = ? AND sort_text = ? AND timer_id > ? LIMIT ?"
)


class Lists:
    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers

    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """Looks at a bounded number of timers, without their payloads, and then reads those that fit."""

        def scan(shard_id: int, after: str, count: int) -> Statement:
            return Statement(_SCAN, (shard_id, namespace.name, after, count))

        wants_all = timer_filter == TimerFilter()
        at_once = min(limit, _SCANNED_AT_ONCE) if wants_all else _SCANNED_AT_ONCE
        found, last = self._walk(namespace, scan, cursor, limit=limit, at_once=at_once, fits=_test_of(timer_filter))
        rows, cut = self._whole(found)
        return Page(_present(rows, now), cut or last)

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        def scan(shard_id: int, after: str, count: int) -> Statement:
            return Statement(_CORRELATED, (shard_id, namespace.name, correlation_id, after, count))

        at_once = min(limit, _SCANNED_AT_ONCE)
        found, last = self._walk(namespace, scan, cursor, limit=limit, at_once=at_once, fits=_is_any)
        there, cut = self._whole(found)
        rows = [row for row in there if row["timer_correlation_id"] == correlation_id]
        return Page(_present(rows, now), cut or last)

    def _whole(self, found: Sequence[Row]) -> tuple[list[Row], str | None]:
        """The timers that these rows name, and the cursor to go on from where not all of them fit into a page."""
        rows: list[Row] = []
        size = 0
        for start in range(0, len(found), _READ_TOGETHER):
            keys = [key_of_row(row) for row in found[start : start + _READ_TOGETHER]]
            stored = self._timers.find_many(keys)
            for at, key in enumerate(keys, start):
                if (row := stored.get(key)) is None:
                    continue
                size += len(row["timer_payload"] or "")
                if size > PAGE_BYTES and rows:
                    shard_id, _, timer_id = key_of_row(found[at - 1])
                    return rows, _write_cursor((shard_id, timer_id))
                rows.append(row)
        return rows, None

    def _walk(
        self,
        namespace: Namespace,
        scan: Callable[[int, str, int], Statement],
        cursor: str | None,
        *,
        limit: int,
        at_once: int,
        fits: Callable[[Row], bool],
    ) -> tuple[list[Row], str | None]:
        """Up to ``limit`` rows that fit, in the order of shard, then id, and the cursor behind them (None: none)."""
        shards = namespace.shard_ids()
        shard_id, after = (shards.start, "") if cursor is None else _read_cursor(cursor)
        found: list[Row] = []
        scanned = 0
        last_shard = shard_id + SHARDS_PER_PAGE
        while shard_id < shards.stop:
            if scanned >= SCANNED_PER_PAGE or shard_id >= last_shard:
                return found, _write_cursor((shard_id, after))
            wave = range(shard_id, min(shard_id + _SIDE_BY_SIDE, shards.stop))
            places = [(each, after if each == shard_id else "") for each in wave]
            pages = self._requests.read_each([scan(each, behind, at_once) for each, behind in places])
            for each, rows in zip(wave, pages, strict=True):
                scanned += len(rows)
                shard_id, after = each, ""
                for row in rows:
                    after = row["timer_id"]
                    if fits(row):
                        found.append(row)
                        if len(found) == limit:
                            return found, _write_cursor((shard_id, after))
                if len(rows) == at_once:
                    break
                shard_id, after = each + 1, ""
        return found, None


def _present(rows: Sequence[Row], now: datetime) -> list[Timer]:
    decoded = [decode_or_salvage(row) for row in rows]
    return [timer for timer in decoded if not timer.is_expired(now)]


def _is_any(_: Row) -> bool:
    return True


def _test_of(timer_filter: TimerFilter) -> Callable[[Row], bool]:
    """Whether a row of ``_SCAN`` passes the filter."""
    state, tag, reason = timer_filter.state, timer_filter.tag, timer_filter.failure_reason

    def fits(row: Row) -> bool:
        return not is_trace(row) and (
            (state is None or row["timer_state"] == state.value)
            and (tag is None or tag in tags_of(row))
            and (reason is None or reason_of(row) is reason)
            and _is_within(row["timer_due_at"], timer_filter.due_from, timer_filter.due_to)
            and _is_within(row["timer_updated_at"], timer_filter.updated_from, timer_filter.updated_to)
        )

    return fits


def _is_within(at_ms: int | None, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    return (
        at_ms is not None
        and (start is None or at_ms >= to_milliseconds(start))
        and (end is None or at_ms < to_milliseconds(end))
    )


def _write_cursor(position: Position) -> str:
    return f"{position[0]}:{position[1]}"


def _read_cursor(cursor: str) -> Position:
    shard_id, separator, timer_id = cursor.partition(":")
    if not separator or not shard_id.isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return int(shard_id), timer_id
