"""What is due from two sources is read in one order, page by page, each once."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Timer
from duetime.stores.cassandra.merged_due import MergedDue
from duetime.stores.port.timers import DuePage
from tests.support.builders import make_namespace, make_timer, seconds
from tests.support.clock import NOW

ORDERS = make_namespace("orders", num_shards=1)


class Source:
    """Timers in memory. ``most``: how many a page holds, whatever was asked for."""

    def __init__(self, name: str, offsets: list[int], *, most: int = 100) -> None:
        self._most = most
        self._timers = [
            make_timer(ORDERS, f"{name}{at}", execute_at=NOW + seconds(offset))
            for at, offset in enumerate(sorted(offsets))
        ]
        self.requests = 0

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
        self.requests += 1
        start = 0 if cursor is None else int(cursor)
        due = [timer for timer in self._timers if due_at(timer) <= until]
        page = due[start : start + min(limit, self._most)]
        end = start + len(page)
        if end < len(due):
            return DuePage(page, cursor=str(end))
        later = self._timers[len(due) :]
        return DuePage(page, next_attempt_at=due_at(later[0]) if later else None)


def due_at(timer: Timer) -> datetime:
    assert timer.next_attempt_at is not None
    return timer.next_attempt_at


def read(merged: MergedDue, *, limit: int, until: timedelta = timedelta(seconds=50)) -> tuple[list[Timer], DuePage]:
    found: list[Timer] = []
    cursor: str | None = None
    while True:
        page = merged.due_timers(0, until=NOW + until, limit=limit, cursor=cursor)
        assert len(page.timers) <= limit
        found += page.timers
        cursor = page.cursor
        if cursor is None:
            return found, page
        assert page.next_attempt_at is None


@given(
    st.lists(st.integers(0, 80), max_size=12),
    st.lists(st.integers(0, 80), max_size=12),
    st.integers(1, 9),
    st.integers(1, 5),
)
def test_all_that_is_due_is_read_once_in_order(first: list[int], second: list[int], limit: int, most: int) -> None:
    found, last = read(MergedDue([Source("a", first, most=most), Source("b", second)]), limit=limit)

    offsets = [int((due_at(timer) - NOW) / seconds(1)) for timer in found]
    assert offsets == sorted(offset for offset in [*first, *second] if offset <= 50)
    assert all(earlier <= later for earlier, later in pairwise(offsets))
    assert len({timer.timer_id for timer in found}) == len(found)
    later = [offset for offset in [*first, *second] if offset > 50]
    assert last.next_attempt_at == (NOW + seconds(min(later)) if later else None)


def test_where_one_source_has_nothing_each_is_read_once() -> None:
    first, second = Source("a", [1, 2, 3]), Source("b", [])

    assert len(read(MergedDue([first, second]), limit=10)[0]) == 3
    assert (first.requests, second.requests) == (1, 1)


@pytest.mark.parametrize("cursor", ["", "x", "[]", '[["1", false, null]]'])
def test_a_cursor_of_another_list_is_refused(cursor: str) -> None:
    merged = MergedDue([Source("a", [1]), Source("b", [1])])

    with pytest.raises(InvalidCursor):
        merged.due_timers(0, until=NOW, limit=5, cursor=cursor)
