"""Pollers that stop, die and join: shards change hands. In virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter

from duetime.domain.timers import TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, make_timer, put, run, running, stored
from tests.support.scripted_sender import Script, ScriptedSender


def test_a_stop_lets_callbacks_finish_and_hands_over_without_a_duplicate(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=3.0))
    put(store, [make_timer(f"t{n}", execute_at=at(1)) for n in range(50)], START)

    async def script() -> None:
        await running(make_poller(store, sender, clock, worker_id="a"), 1.5)
        assert clock.elapsed_seconds < 5
        await running(make_poller(store, sender.for_another_poller(), clock, worker_id="b"), 40)

    run_virtually(clock, script())
    assert sender.counts() == Counter(f"t{n}" for n in range(50))


def test_callbacks_beyond_the_drain_are_parked_before_the_shards_are_released(
    store: Store, clock: VirtualClock
) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=25.0))
    put(store, [make_timer("t", execute_at=at(1))], START)
    settings = EngineSettings(drain_seconds=1.0)
    poller = make_poller(store, sender, clock, settings=settings)
    run(clock, poller, 1.2)
    timer = stored(store, "t", clock)
    assert timer.state is TimerState.FIRING
    assert timer.next_attempt_at is not None
    assert at(36) <= timer.next_attempt_at < at(36.01)
    assert all(status.is_free for status in store.leases.statuses(range(4), now=clock.now()))


def test_a_deadline_ends_the_run_in_time_with_everything_released(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=0.2))
    put(store, [make_timer(f"t{n}", execute_at=at(n / 10)) for n in range(400)], START)
    poller = make_poller(store, sender, clock, settings=EngineSettings(drain_seconds=5.0))
    run_virtually(clock, poller.run(asyncio.Event(), shard_ids=[0, 1, 2, 3], deadline=30.0))
    assert 15 < clock.elapsed_seconds <= 30.0
    assert all(status.is_free for status in store.leases.statuses(range(4), now=clock.now()))
    before = len(sender.received)
    run_virtually(clock, poller.run(asyncio.Event(), shard_ids=[0, 1, 2, 3], deadline=clock.monotonic() + 40.0))
    assert before < len(sender.received) == 400


def test_workers_share_the_shards_and_take_over_from_the_dead(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    pollers = {name: make_poller(store, sender.for_another_poller(), clock, worker_id=name) for name in ("a", "b")}
    put(store, [make_timer(f"t{n}", execute_at=at(n / 10)) for n in range(600)], START)

    async def script() -> None:
        stops = {name: asyncio.Event() for name in pollers}
        tasks = {name: asyncio.create_task(poller.run(stops[name])) for name, poller in pollers.items()}
        await asyncio.sleep(10)
        assert {name: poller.stats()["shards_owned"] for name, poller in pollers.items()} == {"a": 2, "b": 2}
        tasks["a"].cancel()  # as good as dead: nothing is released
        await asyncio.gather(tasks["a"], return_exceptions=True)
        died_at = clock.elapsed_seconds
        while pollers["b"].stats()["shards_owned"] < 4 and clock.elapsed_seconds < died_at + 60:
            await asyncio.sleep(0.1)
        assert clock.elapsed_seconds - died_at <= EngineSettings().lease_seconds + 0.5
        await asyncio.sleep(60)
        stops["b"].set()
        await tasks["b"]

    run_virtually(clock, script())
    counts = sender.counts()
    assert set(counts) == {f"t{n}" for n in range(600)}
    assert sum(counts.values()) - 600 <= 1  # at most what was in flight when "a" died


def test_a_worker_that_stops_hands_over_at_once(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    pollers = {name: make_poller(store, sender.for_another_poller(), clock, worker_id=name) for name in ("a", "b")}

    async def script() -> None:
        stops = {name: asyncio.Event() for name in pollers}
        tasks = {name: asyncio.create_task(poller.run(stops[name])) for name, poller in pollers.items()}
        await asyncio.sleep(10)
        stops["a"].set()
        await tasks["a"]
        await asyncio.sleep(0.6)
        assert pollers["b"].stats()["shards_owned"] == 4
        stops["b"].set()
        await tasks["b"]

    run_virtually(clock, script())


def test_a_newcomer_gets_its_share_soon_however_long_the_leases(store: Store, clock: VirtualClock) -> None:
    sender, settings = ScriptedSender(), EngineSettings(lease_seconds=60.0)
    pollers = {
        name: make_poller(store, sender.for_another_poller(), clock, worker_id=name, settings=settings)
        for name in ("a", "b")
    }

    async def script() -> None:
        await asyncio.sleep(5)
        await running(pollers["b"], share)

    async def share() -> None:
        await asyncio.sleep(4.5)
        assert {name: poller.stats()["shards_owned"] for name, poller in pollers.items()} == {"a": 2, "b": 2}

    run(clock, pollers["a"], script)
