"""A shard that takes no writes, or few, while the others do: it is slow, and nobody else is. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import ids_of_shard, make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.parts import Overlay
from tests.support.scripted_sender import Script, ScriptedSender

NAMESPACE = make_namespace("default")
HOT = 0


class Throttled(Overlay):
    """Passes everything on to a store, but lets a shard have ``per_second`` outcomes, and renewals or not."""

    def __init__(self, store: Store, clock: VirtualClock, *, per_second: float, takes_renewals: bool = True) -> None:
        super().__init__(
            store,
            timers=Overlay(store.timers, record=self._record),
            leases=Overlay(store.leases, renew=self._renew),
        )
        self._store = store
        self._clock = clock
        self.per_second = per_second
        self.takes_renewals = takes_renewals
        self.puts_off = 0
        self._left = 0.0
        self._seen_at = 0.0

    def _record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        elapsed = self._clock.elapsed_seconds - self._seen_at
        self._seen_at += elapsed
        self._left = min(self.per_second, self._left + elapsed * self.per_second)
        taken = [outcome for outcome in outcomes if self._takes(outcome)]
        statuses = iter(self._store.timers.record(taken, now=now))
        return [next(statuses) if outcome in taken else RecordStatus.UNAVAILABLE for outcome in outcomes]

    def _takes(self, outcome: LeasedOutcome) -> bool:
        if outcome.outcome.timer.shard_id != HOT:
            return True
        is_taken = self._left >= 1
        self._left -= is_taken
        self.puts_off += not is_taken
        return is_taken

    def _renew(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        written = [lease for lease in leases if lease.shard_id != HOT or self.takes_renewals]
        renewed = iter(self._store.leases.renew(written, lease_seconds=lease_seconds, now=now))
        return [next(renewed) if lease in written else lease for lease in leases]


class Arrivals(ScriptedSender):
    """Notes when each timer arrived first."""

    def __init__(self, clock: VirtualClock) -> None:
        self.at: dict[str, float] = {}

        def answer(body: dict[str, object]) -> Script:
            self.at.setdefault(str(body["timerId"]), clock.elapsed_seconds)
            return Script()

        super().__init__(answer)


def test_a_burst_on_a_throttled_shard_takes_its_time_and_the_others_none(store: Store, clock: VirtualClock) -> None:
    burst = ids_of_shard(NAMESPACE, HOT, 2000)
    put(store, [make_timer(timer_id) for timer_id in burst], START)
    others = {timer_id: at / 10 for at, timer_id in enumerate(ids_of_shard(NAMESPACE, 1, 100))}
    put(store, [make_timer(each, execute_at=START + timedelta(seconds=at)) for each, at in others.items()], START)
    throttled = Throttled(store, clock, per_second=250)
    sender = Arrivals(clock)
    poller = make_poller(throttled, sender, clock)

    recorded_after = 0.0

    async def script() -> None:
        nonlocal recorded_after
        while poller.stats()["fired"] < len(burst) + len(others):
            await asyncio.sleep(0.1)
        recorded_after = clock.elapsed_seconds

    run(clock, poller, script)

    assert sender.counts() == Counter([*burst, *others])
    assert max(sender.at[timer_id] - at for timer_id, at in others.items()) < 1
    assert throttled.puts_off > 0
    assert 7 < recorded_after < 16, "8 s is the pace of the shard"
    counted = {name: poller.stats()[name] for name in ("fired", "leases_lost", "record_refused", "record_errors")}
    assert counted == {"fired": 2100, "leases_lost": 0, "record_refused": 0, "record_errors": 0}


def test_what_a_shard_does_not_take_for_minutes_is_recorded_in_the_end_and_fired_once(
    store: Store, clock: VirtualClock
) -> None:
    hot, others = ids_of_shard(NAMESPACE, HOT, 3000), ids_of_shard(NAMESPACE, 1, 1000)
    put(store, [make_timer(timer_id) for timer_id in hot], START)
    due = {timer_id: at / 10 for at, timer_id in enumerate(others)}
    put(store, [make_timer(each, execute_at=START + timedelta(seconds=at)) for each, at in due.items()], START)
    throttled = Throttled(store, clock, per_second=0)
    sender = Arrivals(clock)
    poller = make_poller(throttled, sender, clock)

    async def script() -> None:
        await asyncio.sleep(180)
        assert poller.stats()["fired"] == len(others)
        throttled.per_second = 10_000
        await asyncio.sleep(30)

    run(clock, poller, script)

    assert max(sender.at[timer_id] - at for timer_id, at in due.items()) < 1
    assert sender.counts() == Counter([*hot, *others])
    assert poller.stats()["fired"] == len(hot) + len(others)


def test_a_renewal_that_is_put_off_is_tried_again_soon_and_costs_no_other_shard_its_lease(
    store: Store, clock: VirtualClock
) -> None:
    throttled = Throttled(store, clock, per_second=1000, takes_renewals=False)
    late = {timer_id: 60.0 for shard_id in range(4) for timer_id in ids_of_shard(NAMESPACE, shard_id, 5)}
    put(store, [make_timer(each, execute_at=START + timedelta(seconds=at)) for each, at in late.items()], START)
    sender = Arrivals(clock)
    poller = make_poller(throttled, sender, clock)

    async def script() -> None:
        await asyncio.sleep(8)
        throttled.takes_renewals = True
        await asyncio.sleep(1)
        statuses = store.leases.statuses(range(4), now=clock.now())
        assert all(
            status.lease_expires_at and status.lease_expires_at > clock.now() + timedelta(seconds=5)
            for status in statuses
        ), "within a second"
        throttled.takes_renewals = False
        await asyncio.sleep(61)

    run(clock, poller, script)

    # The hot shard's lease ended, and nothing is fired without one; the others knew nothing of it.
    on_time = [timer_id for timer_id in late if NAMESPACE.shard_of(timer_id) != HOT]
    assert {timer_id for timer_id in sender.at if sender.at[timer_id] < 61} >= set(on_time)
    assert max(sender.counts().values()) == 1
