"""Workers whose machines have wrong clocks, in virtual time: timers fire by the store's clock."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from datetime import timedelta
from typing import TypeVar

import pytest

from duetime.domain.times import parse_instant, round_down
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import make_namespace, make_timer
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, put, run
from tests.support.logs import actions
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store
from tests.support.timed_store import SkewedClock, TimedStore

T = TypeVar("T")
NUM_SHARDS = 16
NAMESPACE = make_namespace("default", num_shards=NUM_SHARDS)
SETTINGS = EngineSettings()
SKEWS = [5.0, -15.0, 300.0, -300.0]
"""Within a lease, beyond it, and far beyond it to either side."""


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        store.catalogue.create_namespace("default", num_shards=NUM_SHARDS, dedicated=False, now=START)
        yield store


class World:
    """A right worker and one whose machine's clock is ``ahead_seconds`` ahead, on one store, and a receiver."""

    def __init__(self, store: Store, clock: VirtualClock, ahead_seconds: float) -> None:
        self.clock = clock
        self.store = TimedStore(store, clock)
        self.own = SkewedClock(clock, ahead_seconds)
        self.sender = ScriptedSender(self._receive)
        self.lags: dict[str, list[float]] = {}
        self.right = self._poller("right", clock)
        self.wrong = self._poller("wrong", self.own)

    def _poller(self, worker_id: str, own: SkewedClock | VirtualClock) -> Poller:
        sender = self.sender.for_another_poller()
        return make_poller(self.store, sender, self.clock, worker_id=worker_id, own_clock=own)

    def _receive(self, body: dict[str, object]) -> Script:
        due = parse_instant(str(body["executeAt"]))
        self.lags.setdefault(str(body["timerId"]), []).append((self.clock.now() - due).total_seconds())
        fired_at = parse_instant(str(body["firedAt"]))
        assert abs(fired_at - self.clock.now()) <= timedelta(milliseconds=2)
        return Script()

    def run(self, script: Callable[[], Awaitable[None]]) -> None:
        run(self.clock, (self.right, self.wrong), script)


def put_timers(store: Store, seconds: float) -> list[str]:
    """Timers on all shards, due over ``seconds``; their ids."""
    timers = [make_timer(NAMESPACE, f"t{n}", execute_at=at(0.1 * n)) for n in range(int(10 * seconds))]
    put(store, timers, START)
    return [timer.timer_id for timer in timers]


def check_all_on_time(world: World, ids: list[str]) -> None:
    """Once each, not early, and no later than the poll interval."""
    assert {timer_id: len(lags) for timer_id, lags in world.lags.items()} == dict.fromkeys(ids, 1)
    lags = [lag for each in world.lags.values() for lag in each]
    assert min(lags) >= 0
    assert max(lags) <= 1.0 + SETTINGS.poll_interval_seconds


@pytest.mark.parametrize("ahead_seconds", SKEWS)
def test_a_wrong_clock_makes_nothing_early_or_late(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture, ahead_seconds: float
) -> None:
    ids = put_timers(store, 30)
    world = World(store, clock, ahead_seconds)

    async def script() -> None:
        await asyncio.sleep(15)
        assert [poller.stats()["shards_owned"] for poller in (world.right, world.wrong)] == [8, 8]
        gauges = world.wrong.snapshot().gauges
        assert gauges["clock_offset_milliseconds"] == pytest.approx(1000 * ahead_seconds, abs=2)
        assert gauges["orphaned_shards"] == 0
        assert world.right.snapshot().gauges["clock_offset_milliseconds"] == 0
        await asyncio.sleep(20)

    world.run(script)
    check_all_on_time(world, ids)
    told = [record for record in caplog.records if getattr(record, "action", "") == "clock.differs"]
    assert [record.offset_seconds for record in told] == [pytest.approx(ahead_seconds, abs=0.01)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("jump_seconds", SKEWS)
def test_a_clock_that_jumps_makes_nothing_early_or_late(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture, jump_seconds: float
) -> None:
    caplog.set_level(logging.INFO)
    ids = put_timers(store, 30)
    world = World(store, clock, 0.0)

    async def script() -> None:
        await asyncio.sleep(10.05)
        world.own.ahead_seconds = jump_seconds
        await asyncio.sleep(10)
        world.own.ahead_seconds = 0.0
        await asyncio.sleep(15)

    world.run(script)
    check_all_on_time(world, ids)
    logged = actions(caplog)
    assert (logged["clock.parted"], logged["clock.differs"], logged["clock.agrees"]) == (2, 1, 1)


class _SlowRenewals(InlineOffload):
    def __init__(self, threads: int, name: str) -> None:
        self._seconds = 0.3 if name == "duetime-leases" else 0.0

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(self._seconds)
        return function()


@pytest.mark.parametrize("after_seconds", [0.0, 0.2, 0.4, 0.6])
def test_what_is_due_while_shards_are_not_trusted_waits_for_no_look(
    store: Store, clock: VirtualClock, after_seconds: float
) -> None:
    own, sender = SkewedClock(clock, 0.0), ScriptedSender()
    settings = EngineSettings(poll_interval_seconds=600.0)
    poller = make_poller(store, sender, clock, settings=settings, own_clock=own, make_offload=_SlowRenewals)

    async def script() -> None:
        await asyncio.sleep(20)
        own.ahead_seconds = 5.0
        await asyncio.sleep(after_seconds)
        timer = make_timer(NAMESPACE, "t", execute_at=round_down(clock.now()))
        put(store, [timer], clock.now())
        poller.notify([timer])
        await asyncio.sleep(1)
        assert sender.counts() == {"t": 1}

    run(clock, poller, script)


@pytest.mark.parametrize("ahead_seconds", SKEWS)
def test_a_dead_workers_shards_are_taken_over_by_the_lease_and_not_by_the_clock(
    store: Store, clock: VirtualClock, ahead_seconds: float
) -> None:
    world = World(store, clock, ahead_seconds)

    async def main() -> None:
        stop = asyncio.Event()
        right, wrong = (asyncio.create_task(poller.run(stop)) for poller in (world.right, world.wrong))
        await asyncio.sleep(10)
        right.cancel()  # as good as dead: nothing is released
        await asyncio.gather(right, return_exceptions=True)
        died_at = clock.elapsed_seconds
        while world.wrong.stats()["shards_owned"] < NUM_SHARDS:
            await asyncio.sleep(0.1)
        taken_seconds = clock.elapsed_seconds - died_at
        assert SETTINGS.lease_seconds * 2 / 3 - 0.1 <= taken_seconds <= SETTINGS.lease_seconds + 1
        stop.set()
        await wrong

    run_virtually(clock, main())


def test_nothing_is_fired_while_the_stores_time_cannot_be_told(store: Store, clock: VirtualClock) -> None:
    """Each answer contradicts the one before: trust ends with the lease, and begins again with one that agrees."""
    ids = put_timers(store, 40)
    world = World(store, clock, 0.0)
    is_mad = False
    skew = 0.0

    def skewed() -> float:
        nonlocal skew
        skew = skew + 100.0 if is_mad else 0.0
        return skew

    world.store.skewed_by = skewed

    async def script() -> None:
        nonlocal is_mad
        await asyncio.sleep(10)
        is_mad = True
        await asyncio.sleep(SETTINGS.lease_seconds)
        quiet_from = len(world.lags)
        await asyncio.sleep(5)
        assert len(world.lags) == quiet_from
        is_mad = False
        await asyncio.sleep(20)

    world.run(script)
    assert set(world.lags) == set(ids)
    assert min(lag for lags in world.lags.values() for lag in lags) >= 0


def test_a_store_whose_clock_is_set_is_followed(store: Store, clock: VirtualClock) -> None:
    world = World(store, clock, 0.0)
    world.store.skewed_by = lambda: 60.0 if clock.elapsed_seconds > 10 else 0.0
    put(store, [make_timer(NAMESPACE, "t", execute_at=at(100))], START)

    async def script() -> None:
        await asyncio.sleep(60)

    fired: list[float] = []
    world.sender.script = lambda _: fired.append(clock.elapsed_seconds) or Script()  # type: ignore[func-returns-value]
    world.right, world.wrong = world._poller("a", clock), world._poller("b", clock)
    world.run(script)
    assert fired == [pytest.approx(40.0, abs=1.0)]
