"""Claims of many shards, in virtual time: a request takes 10 ms."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from duetime.engine.context import EngineContext
from duetime.engine.poller import Poller
from duetime.engine.settings import SKEW_MARGIN_SECONDS, EngineSettings
from duetime.engine.shards.claiming import CLAIM_SECONDS
from duetime.engine.shards.leases import LeaseKeeper
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Threads, WakeupEvent
from duetime.stores.core.leases import nobody_has
from duetime.stores.core.store import Store
from duetime.stores.store_clock import StoreClock
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run, running
from tests.support.scripted_sender import ScriptedSender
from tests.support.stores import memory_store
from tests.support.timed_store import LatentOffload, TimedStore

REQUEST_SECONDS = 0.01
SETTINGS = EngineSettings()


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        yield store


def make_shards(store: Store, number: int) -> None:
    store.catalogue.create_namespace("default", num_shards=number, dedicated=False, now=START)


def timed_poller(store: Store, clock: VirtualClock, worker_id: str, sender: ScriptedSender | None = None) -> Poller:
    """A poller whose looks, claims and renewals take their time, each in its own thread, while reads take none."""
    timed = TimedStore(store, clock, request_seconds=REQUEST_SECONDS)

    def make_offload(threads: int, name: str) -> LatentOffload | InlineOffload:
        return timed.offload() if name in ("duetime-leases", "duetime-claims") else InlineOffload(threads, name)

    return make_poller(
        timed,
        sender or ScriptedSender(),
        clock,
        worker_id=worker_id,
        settings=replace(SETTINGS, poll_interval_seconds=5.0, min_poll_interval_seconds=5.0),
        make_offload=make_offload,
    )


def owned(*pollers: Poller) -> list[int]:
    return [poller.stats()["shards_owned"] for poller in pollers]


def counted(name: str, *pollers: Poller) -> int:
    return sum(poller.stats()[name] for poller in pollers)


def test_two_workers_that_start_together_share_4096_shards_within_5_s(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4096)
    pollers = [timed_poller(store, clock, name) for name in ("a", "b")]

    async def script() -> None:
        await asyncio.sleep(5)
        assert owned(*pollers) == [2048, 2048]
        claims = counted("claims", *pollers)
        assert claims < 1.5 * 4096, "no thrash"
        await asyncio.sleep(SETTINGS.lease_seconds + 1)
        assert owned(*pollers) == [2048, 2048]
        assert counted("claims", *pollers) == claims
        assert counted("leases_lost", *pollers) == 0

    run(clock, pollers, script)
    assert all(status.is_free for status in store.leases.statuses(range(4096), now=clock.now()))


def test_what_a_batch_won_is_polled_before_the_next_one_is_claimed(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 2048)
    put(store, [make_timer(f"t{n}", namespace="default") for n in range(500)], START)
    poller = timed_poller(store, clock, "a")
    seen: list[tuple[int, int]] = []

    async def script() -> None:
        for _ in range(100):
            await asyncio.sleep(0.02)
            seen.append((owned(poller)[0], poller.stats()["polls"]))

    run(clock, poller, script)
    partly = [(shards, polls) for shards, polls in seen if 0 < shards < 2048]
    assert len({shards for shards, _ in partly}) >= 3, "claims come in batches"
    assert any(polls > 0 for _, polls in partly)


def test_a_stop_gives_back_what_a_claim_in_flight_still_wins(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4096)
    poller = timed_poller(store, clock, "a")

    async def script() -> None:
        while owned(poller)[0] < 300:
            await asyncio.sleep(0.013)
        assert owned(poller)[0] < 4096

    run(clock, poller, script)
    statuses = store.leases.statuses(range(4096), now=clock.now())
    assert sum(status.version > 0 for status in statuses) > 300
    assert all(status.is_free for status in statuses)
    assert counted("claims", poller) == sum(status.version > 0 for status in statuses)


class Changes(WakeupEvent):
    """Remembers when it was set."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock
        self.at: list[float] = []

    def set(self) -> None:
        self.at.append(self._clock.elapsed_seconds)
        super().set()


class Keeping:
    """A keeper of leases on a store whose answers take as long as a test says."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        self.timed = TimedStore(store, clock)
        self.clock = clock
        self.changes = Changes(clock)
        context = EngineContext(
            clock=StoreClock(self.timed, clock),
            settings=SETTINGS,
            stats=EngineStats(),
            random=Random(7).random,
            new_id=str,
            wake=self.changes,
            threads=Threads(lambda threads, name: self.timed.offload()),
        )
        self.keeper = LeaseKeeper(
            context,
            self.timed,
            worker_id="me",
            metadata="{}",
            has_died=nobody_has,
            on_recovery=lambda: None,
            drop=lambda _: None,
        )

    def shards(self) -> list[ShardState]:
        return list(self.keeper.owned.values())

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            self.keeper.begin(None, None)
            task = asyncio.create_task(self.keeper.run())
            await script()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

        run_virtually(self.clock, main())


def test_trust_counts_from_when_a_renewal_was_sent_and_not_from_its_answer(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4)
    keeping = Keeping(store, clock)
    trusted_seconds = SETTINGS.lease_seconds - SKEW_MARGIN_SECONDS

    async def script() -> None:
        await asyncio.sleep(1)
        keeping.timed.delays["leases.renew"] = 4.0
        before = {shard.trusted_until for shard in keeping.shards()}
        while (after := {shard.trusted_until for shard in keeping.shards()}) == before:
            await asyncio.sleep(0.01)
        (trusted_until,) = after
        assert trusted_until - trusted_seconds == pytest.approx(clock.elapsed_seconds - 4.0, abs=0.02)

    keeping.run(script)


def test_trust_counts_from_when_a_claim_was_sent_and_not_from_its_answer(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4)
    keeping = Keeping(store, clock)
    keeping.timed.delays["leases.claim"] = 3.0

    async def script() -> None:
        while not keeping.shards():
            await asyncio.sleep(0.01)
        trusted_seconds = SETTINGS.lease_seconds - SKEW_MARGIN_SECONDS
        sent = clock.elapsed_seconds - 3.0
        assert {round(shard.trusted_until - trusted_seconds - sent, 1) for shard in keeping.shards()} == {0.0}

    keeping.run(script)


def test_renewals_do_not_wait_for_claims(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4)
    keeping = Keeping(store, clock)

    async def script() -> None:
        await asyncio.sleep(1)
        assert len(keeping.shards()) == 4
        store.catalogue.create_namespace("more", num_shards=8, dedicated=False, now=clock.now())
        keeping.timed.delays["leases.claim"] = 30.0
        for _ in range(25):
            await asyncio.sleep(1)
            assert all(shard.is_trusted(clock.monotonic()) for shard in keeping.shards())
        assert len(keeping.shards()) == 4

    keeping.run(script)


def test_batches_shrink_until_one_takes_half_a_second(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 600)
    keeping = Keeping(store, clock)
    keeping.timed.claim_seconds = 0.02  # for each shard

    async def script() -> None:
        while len(keeping.shards()) < 600:
            await asyncio.sleep(0.1)

    keeping.run(script)
    gaps = [after - before for before, after in pairwise(keeping.changes.at)]
    assert max(gaps[3:]) <= 2 * CLAIM_SECONDS
    assert clock.elapsed_seconds < 600 * 0.02 + 5


def test_a_worker_that_cannot_claim_does_not_keep_its_share_from_the_others(
    store: Store, clock: VirtualClock
) -> None:
    make_shards(store, 8)
    good = make_poller(store, ScriptedSender(), clock, worker_id="good")
    refused = TimedStore(store, clock)
    refused.refuses_claims = True
    bad = make_poller(refused, ScriptedSender(), clock, worker_id="bad")

    async def script() -> None:
        await asyncio.sleep(SETTINGS.lease_seconds + 5)
        assert owned(good, bad) == [8, 0]
        await asyncio.sleep(60)
        assert owned(good, bad) == [8, 0]
        assert counted("claims", good) <= 8 + 4
        third = make_poller(store, ScriptedSender(), clock, worker_id="third")
        await running(third, sharing(third))

    def sharing(third: Poller) -> Callable[[], Awaitable[None]]:
        async def script() -> None:
            await asyncio.sleep(SETTINGS.lease_seconds + 5)
            assert owned(good, bad, third) == [4, 0, 4], "the one that cannot claim does not count"

        return script

    run(clock, [good, bad], script)


def test_a_worker_that_could_not_claim_for_a_while_gets_its_share_when_it_can(
    store: Store, clock: VirtualClock
) -> None:
    make_shards(store, 8)
    first = make_poller(store, ScriptedSender(), clock, worker_id="first")
    timed = TimedStore(store, clock)
    timed.refuses_claims = True
    late = make_poller(timed, ScriptedSender(), clock, worker_id="late")

    async def script() -> None:
        await asyncio.sleep(SETTINGS.lease_seconds / 2)
        timed.refuses_claims = False
        await asyncio.sleep(5)
        assert owned(first, late) == [4, 4]

    run(clock, [first, late], script)


def test_claims_that_fail_keep_nobody_from_the_others(store: Store, clock: VirtualClock) -> None:
    """What could not be claimed comes last from then on, in smaller batches."""
    make_shards(store, 1000)
    keeping = Keeping(store, clock)
    keeping.timed.refused_shards = {17}

    async def script() -> None:
        await asyncio.sleep(60)
        assert {shard.shard_id for shard in keeping.shards()} == set(range(1000)) - {17}

    keeping.run(script)


def test_a_store_that_is_down_is_asked_with_pauses(store: Store, clock: VirtualClock) -> None:
    make_shards(store, 4)
    keeping = Keeping(store, clock)
    keeping.timed.is_down = True

    async def script() -> None:
        await asyncio.sleep(20)
        assert keeping.shards() == []
        keeping.timed.is_down = False
        await asyncio.sleep(6)
        assert len(keeping.shards()) == 4

    keeping.run(script)


def test_the_shards_of_a_worker_that_has_died_are_claimed_at_once_and_those_of_others_are_not(
    store: Store, clock: VirtualClock
) -> None:
    make_shards(store, 16)
    for name, shard_ids in (("dead", range(8)), ("frozen", range(8, 16))):
        store.leases.announce_worker(name, ttl_seconds=60, now=START)
        store.leases.claim(shard_ids, name, lease_seconds=60, metadata="{}", now=START)
    poller = make_poller(store, ScriptedSender(), clock, worker_id="a", has_died=lambda worker: worker == "dead")

    async def script() -> None:
        await asyncio.sleep(2)
        assert set(store.leases.announce_worker("a", ttl_seconds=10, now=clock.now())) == {"a", "frozen"}
        assert [status.owner_id for status in store.leases.statuses(range(16), now=clock.now())] == (
            ["a"] * 8 + ["frozen"] * 8
        )

    run(clock, poller, script)
