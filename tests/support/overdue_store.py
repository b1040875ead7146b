"""A store with very many overdue timers of one namespace, kept in memory, and with pages that take their time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import Timer
from duetime.stores.core.store import Store
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, DuePage, IsKnown, IsWanted
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_timer
from tests.support.parts import Overlay

NOISY = "noisy"
SHARDS = 4
OVERDUE_AT = START - timedelta(seconds=60)


class OverdueStore(Overlay):
    """Passes everything on to ``base``, but for the ``overdue`` timers of ``noisy``: all are due at ``OVERDUE_AT``.

    They go to ``hosts`` hosts. What else is in the store must be due later. Each page takes ``page_seconds`` of
    virtual time, and as much again for every 4,000 timers that are not wanted.
    """

    def __init__(
        self, base: Store, clock: VirtualClock, *, overdue: int, hosts: int = 1, page_seconds: float = 0.005
    ) -> None:
        super().__init__(base, timers=Overlay(base.timers, due=self._due, record=self._record))
        self._base = base
        self._clock = clock
        self._page_seconds = page_seconds
        self._waiting = [dict.fromkeys(range(shard, overdue, SHARDS)) for shard in range(SHARDS)]
        self._numbers = [list(waiting) for waiting in self._waiting]
        self._timers = [
            make_timer("any", namespace=NOISY, execute_at=OVERDUE_AT, callback_url=f"http://receiver{host}.test/hook")
            for host in range(hosts)
        ]
        self.pages = 0

    def _due(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
        is_wanted: IsWanted | None = None,
        is_known: IsKnown | None = None,
    ) -> DuePage:
        self.pages += 1
        self._clock.advance(self._page_seconds)
        timers: list[Timer] = []
        passed = 0
        if cursor is None and (since is None or since <= OVERDUE_AT):
            cursor = f"{0:09}"
        if cursor is not None and cursor.isdigit():
            numbers, waiting = self._numbers[shard_id], self._waiting[shard_id]
            for at in range(int(cursor), len(numbers)):
                if numbers[at] not in waiting:
                    continue
                if is_wanted is None or is_wanted(NOISY, self._like(numbers[at]).content.callback_url):
                    timers.append(self._overdue(numbers[at], shard_id))
                else:
                    passed += 1
                if len(timers) == limit or len(timers) + passed == limit * LOOKED_AT_PER_TIMER:
                    self._pass(passed)
                    return DuePage(timers, cursor=f"{at + 1:09}", cursor_at=OVERDUE_AT)
            cursor = None
        self._pass(passed)
        page = self._base.timers.due(
            shard_id,
            until=until,
            limit=limit - len(timers),
            cursor=cursor,
            since=since,
            known_next=known_next,
            is_wanted=is_wanted,
            is_known=is_known,
        )
        return replace(page, timers=timers + page.timers)

    def _pass(self, timers: int) -> None:
        if timers:
            self._clock.advance(self._page_seconds * timers / 4000)

    def _like(self, number: int) -> Timer:
        return self._timers[number // SHARDS % len(self._timers)]

    def _overdue(self, number: int, shard_id: int) -> Timer:
        timer_id = f"n{number}"
        return replace(
            self._timers[number // SHARDS % len(self._timers)],
            timer_id=timer_id,
            firing_id=timer_id,
            shard_id=shard_id,
        )

    def _record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        others = [each for each in outcomes if each.outcome.timer.namespace != NOISY]
        results = iter(self._base.timers.record(others, now=now))
        return [self._taken(each.outcome.timer) or next(results) for each in outcomes]

    def _taken(self, timer: Timer) -> RecordStatus | None:
        if timer.namespace != NOISY:
            return None
        del self._waiting[timer.shard_id][int(timer.timer_id[1:])]
        return RecordStatus.APPLIED
