"""What is due of timers and of service calls as one: they stand in tables of their own, the poller reads both."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Timer
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.port.timers import DuePage, IsWanted, UnreadableRow


class DueSource(Protocol):
    """As ``Store.due_timers``."""

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
    ) -> DuePage: ...


@dataclass(frozen=True, slots=True)
class Position:
    """How far a source has been read. ``is_at_end``: there is nothing due behind it, and next something is due at
    ``next_at``."""

    cursor: str | None = None
    is_at_end: bool = False
    next_at: datetime | None = None


class MergedDue:
    """Pages in the order of ``next_attempt_at`` over all sources. Where a page has to end within what a source gave,
    that source is asked again for just as much, so that its own cursor says where to go on."""

    def __init__(self, sources: Sequence[DueSource]) -> None:
        self._sources = sources

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
        del is_wanted  # a row tells its namespace alone, and is read by its key: the rest of it costs little more
        positions = [Position() for _ in self._sources] if cursor is None else self._read_cursor(cursor)

        def page_of(at: int, count: int) -> DuePage:
            position = positions[at]
            if position.is_at_end:
                return DuePage([], next_attempt_at=position.next_at)
            return self._sources[at].due_timers(
                shard_id, until=until, limit=count, cursor=position.cursor, since=since, known_next=known_next
            )

        pages = [page_of(at, limit) for at in range(len(self._sources))]
        taken: list[list[Timer]] = []
        unreadable: list[UnreadableRow] = []
        for at, count in enumerate(_shares(pages, limit)):
            page = pages[at]
            if count < len(page.timers):
                if count == 0:
                    continue
                page = page_of(at, count)
            taken.append(page.timers)
            unreadable += page.unreadable
            is_at_end = page.cursor is None
            positions[at] = Position(page.cursor, is_at_end, page.next_attempt_at if is_at_end else None)
        timers = list(heapq.merge(*taken, key=_due_at))
        if all(position.is_at_end for position in positions):
            nexts = [position.next_at for position in positions if position.next_at is not None]
            return DuePage(timers, next_attempt_at=min(nexts, default=None), unreadable=tuple(unreadable))
        return DuePage(timers, cursor=_write_cursor(positions), unreadable=tuple(unreadable))

    def _read_cursor(self, cursor: str) -> list[Position]:
        try:
            found = [
                Position(at, is_at_end, None if next_ms is None else from_milliseconds(next_ms))
                for at, is_at_end, next_ms in json.loads(cursor)
            ]
        except (ValueError, TypeError):
            found = []
        if len(found) != len(self._sources):
            raise InvalidCursor("cursor", "the cursor does not belong to this list")
        return found


def _shares(pages: Sequence[DuePage], limit: int) -> list[int]:
    """How many timers of each page come first of all, as far as that is known: what is behind a page that is not its
    source's last is not known."""
    counts = [0] * len(pages)
    if any(page.cursor is not None and not page.timers for page in pages):
        return counts
    numbered = [[(_due_at(timer), at) for timer in page.timers] for at, page in enumerate(pages)]
    for _, at in heapq.merge(*numbered):
        if sum(counts) == limit:
            break
        counts[at] += 1
        if counts[at] == len(pages[at].timers) and pages[at].cursor is not None:
            break
    return counts


def _due_at(timer: Timer) -> datetime:
    assert timer.next_attempt_at is not None
    return timer.next_attempt_at


def _write_cursor(positions: Sequence[Position]) -> str:
    return json.dumps(
        [
            [each.cursor, each.is_at_end, None if each.next_at is None else to_milliseconds(each.next_at)]
            for each in positions
        ]
    )
