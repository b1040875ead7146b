"""Lists of a namespace's timers, and the search by correlation id."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.ids import schedule_id_of
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.stores.backend import Backend, Query, Scan
from duetime.stores.core.cursors import cursor_of, place_of
from duetime.stores.core.instants import optional_milliseconds
from duetime.stores.core.schedules import BEFORE_ALL
from duetime.stores.core.timer_codec import decode_or_salvage, readable_reason, readable_tags
from duetime.stores.entities import CORRELATED, OF_NAMESPACE, TIMER
from duetime.stores.entity import DAMAGED, Place, Row, Value
from duetime.stores.port.pages import PAGE_BYTES, Page
from duetime.stores.port.timers import TimerFilter

LOOKED_AT_PER_PAGE = 1000
"""How many timers one page of a filtered list looks at."""
_READ_TOGETHER = 32
"""Of those that fit, how many are read at once: 8 MiB where each has the largest payload."""
_LOOKED_AT = (
    "shard_id",
    "timer_id",
    "timer_state",
    "timer_due_at",
    "timer_tags",
    "timer_updated_at",
    "timer_failure",
)
NO_SCHEDULES = TimerFilter(is_of_schedule=False)
"""What clients list of timers when they ask for all: as cheap as all."""
_PAYLOAD = TIMER.places["timer_payload"]


class Lists:
    """A filtered list looks at a bounded number of timers, without their payloads, and reads those that fit."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def list(
        self, namespace: Namespace, timer_filter: TimerFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[Timer]:
        """In the order of shard, then id. A timer that is not changed meanwhile appears exactly once.

        The work of one call is bounded, whatever the filter leaves out, and so is what it holds of payloads
        (``pages.PAGE_BYTES``).
        """
        after = None if cursor is None else place_of(cursor, TIMER, OF_NAMESPACE)
        if timer_filter == TimerFilter():
            return _page(self._scan(namespace, after, limit), now)
        if timer_filter == NO_SCHEDULES:
            page = _page(self._scan(namespace, after, limit), now)
            return Page([timer for timer in page.items if schedule_id_of(timer.timer_id) is None], page.next_cursor)
        looked_at = self._scan(namespace, after, LOOKED_AT_PER_PAGE, _LOOKED_AT)
        found: list[Place] = []
        end = looked_at.end
        for row in looked_at.rows:
            if DAMAGED not in row[:2] and _fits(row, timer_filter):
                found.append(row[:2])
                if len(found) == limit:
                    end = found[-1]
                    break
        return _page(self._whole(namespace, found, end), now)

    def _scan(
        self, namespace: Namespace, after: Place | None, limit: int, fields: tuple[str, ...] | None = None
    ) -> Scan:
        ranges = [each for each in namespace.shard_ranges() if after is None or after[0] < each.stop]
        if not ranges:  # the cursor is of a namespace that had more, or of a process that knows of more
            return Scan([])
        shards = ranges[0]
        scan = self._backend.scan(
            Query(
                TIMER,
                OF_NAMESPACE,
                by=(namespace.name,),
                fields=fields,
                after=after,
                since=shards.start,
                until=shards.stop - 1,
                limit=limit,
                budget=PAGE_BYTES if fields is None else None,
            )
        )
        if scan.end is None and len(ranges) > 1:
            return Scan(scan.rows, (ranges[1].start, BEFORE_ALL))
        return scan

    def _whole(self, namespace: Namespace, places: Sequence[Place], end: Place | None) -> Scan:
        rows: list[Row] = []
        size = 0
        for start in range(0, len(places), _READ_TOGETHER):
            together = places[start : start + _READ_TOGETHER]
            found = self._backend.read(TIMER, [(shard_id, namespace.name, name) for shard_id, name in together])
            for at, row in enumerate(found, start):
                if row is None:
                    continue
                size += len(row[_PAYLOAD]) if isinstance(row[_PAYLOAD], str) else 0
                if size > PAGE_BYTES and rows:
                    return Scan(rows, places[at - 1])
                rows.append(row)
        return Scan(rows, end)

    def find_by_correlation(
        self, namespace: Namespace, correlation_id: str, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[Timer]:
        """Timers with this correlation id, by an index. May lag a moment behind writes on some stores."""
        after = None if cursor is None else place_of(cursor, TIMER, CORRELATED)
        by = (namespace.name, correlation_id)
        shards = namespace.shard_ids()
        scan = self._backend.scan(
            Query(TIMER, CORRELATED, by=by, after=after, shards=shards, limit=limit, budget=PAGE_BYTES)
        )
        return _page(scan, now)


def _page(scan: Scan, now: datetime) -> Page[Timer]:
    timers = [decode_or_salvage(row) for row in scan.rows]
    present = [timer for timer in timers if not timer.is_expired(now)]
    return Page(present, None if scan.end is None else cursor_of(scan.end))


def _fits(row: Row, wanted: TimerFilter) -> bool:
    """Tell whether a row of ``_LOOKED_AT`` passes the filter."""
    _, timer_id, state, due_at, tags, updated_at, failure = row
    return (
        (wanted.state is None or state == wanted.state.value)
        and wanted.is_of_schedule in (None, schedule_id_of(timer_id) is not None)
        and (wanted.tag is None or wanted.tag in readable_tags(tags))
        and (wanted.failure_reason is None or readable_reason(failure) is wanted.failure_reason)
        and _is_within(due_at, wanted.due_from, wanted.due_to)
        and _is_within(updated_at, wanted.updated_from, wanted.updated_to)
    )


def _is_within(at: Value, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    start_ms, end_ms = optional_milliseconds(start), optional_milliseconds(end)
    return (
        at is not None
        and at is not DAMAGED
        and (start_ms is None or at >= start_ms)
        and (end_ms is None or at < end_ms)
    )
