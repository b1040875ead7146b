"""What is recorded when leases change hands, answers of the store are lost, and timers are changed under way."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import datetime, timedelta

import pytest

from duetime.domain.timers import Timer, TimerState
from duetime.engine.poller import Poller
from duetime.stores.port import Store
from tests.support.builders import make_namespace
from tests.support.engine import make_poller, make_timer, put
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store
from tests.support.virtual_time import START, VirtualClock, run_virtually

NAMESPACE = make_namespace("default")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store() -> Iterator[Store]:
    with memory_store() as store:
        store.create_namespace(NAMESPACE.name, num_shards=NAMESPACE.num_shards, dedicated=False, now=START)
        yield store


async def run_for(poller: Poller, seconds: float) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().call_later(seconds, stop.set)
    await poller.run(stop)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stored(store: Store, timer_id: str, clock: VirtualClock) -> Timer:
    timer = store.get_timer(NAMESPACE, timer_id, now=clock.now())
    assert timer is not None
    return timer


def received(sender: ScriptedSender) -> Counter[object]:
    return Counter(body["timerId"] for body in sender.received)


def test_a_parked_attempt_of_an_earlier_ownership_costs_others_nothing(store: Store, clock: VirtualClock) -> None:
    """A second worker joins and leaves, as in every deploy: the first has its shards back under new versions."""
    slow = [make_timer(f"slow{number}", execute_at=at(1)) for number in range(16)]
    quick = [make_timer(f"quick{number}", execute_at=at(26 + number / 100)) for number in range(600)]
    put(store, [*slow, *quick], START)
    delays = {timer.timer_id: 26.0 + number / 3 for number, timer in enumerate(slow)}
    sender = ScriptedSender(lambda body: Script(delay_seconds=delays.get(str(body["timerId"]), 0.001)))
    first = make_poller(store, sender, clock)
    second = make_poller(store, sender.for_another_poller(), clock, worker_id="worker-b")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_for(first, 40))
            await asyncio.sleep(10)
            await run_for(second, 6)

    run_virtually(clock, both())

    assert received(sender) == Counter(timer.timer_id for timer in [*slow, *quick])
    assert {stored(store, timer.timer_id, clock).state for timer in [*slow, *quick]} == {TimerState.FIRED}
    assert second.stats()["claims"] > 0
    assert first.stats()["lease_lost"] == 0
