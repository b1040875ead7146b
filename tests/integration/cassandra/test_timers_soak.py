"""Two pollers over Cassandra, in virtual time: with every request answered, and with some lost."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from random import Random

import pytest

from duetime.domain.timers import TimerChange, TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.cassandra import new_network, store_over
from tests.support.cassandra_faults import Fault, Request
from tests.support.cassandra_rows import assert_whole
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put
from tests.support.scripted_sender import Script, ScriptedSender

TIMERS = 120
SECONDS = 150.0
FAULTS = (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.TIMED_OUT, Fault.UNAVAILABLE, Fault.NO_HOST)


class Losing:
    """Loses one in ``one_in`` of the requests (0: none), until it is told to stop."""

    def __init__(self, one_in: int, seed: int) -> None:
        self._one_in = one_in
        self._random = Random(seed)
        self.count = 0
        self.is_over = False

    def __call__(self, request: Request) -> Fault | None:
        if self.is_over or not self._one_in or request.kind == "prepare" or self._random.randrange(self._one_in):
            return None
        self.count += 1
        if request.is_cas and self._random.random() < 0.3:
            return Fault.UNFINISHED
        return self._random.choice(FAULTS)


@pytest.mark.parametrize("one_in", [0, 40])
def test_every_timer_is_fired_at_its_last_due_time_and_ends_once(one_in: int) -> None:
    network, clock, random = new_network(), VirtualClock(START), Random(3)
    with store_over(network) as store:
        namespace, _ = store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=START)
        timers = [
            make_timer(f"t{number}", execute_at=START + timedelta(seconds=random.uniform(0, 60)))
            for number in range(TIMERS)
        ]
        put(store, timers, START)
        moved = random.sample(timers, 30)
        for timer in moved:
            change = TimerChange(execute_at=START + timedelta(seconds=random.uniform(0, 60)))
            store.timers.update(namespace, timer.timer_id, change, firing_id=f"moved-{timer.timer_id}", now=START)
        sender = ScriptedSender(lambda _: Script(delay_seconds=0.01))
        senders = [sender, sender.for_another_poller()]
        losing = Losing(one_in, seed=one_in)
        network.faults = losing

        run_virtually(clock, _run(store, senders, clock))

        losing.is_over = True
        assert (losing.count > 20) == (one_in > 0)
        ends = [store.timers.get(namespace, timer.timer_id, now=clock.now()) for timer in timers]
        assert [None if end is None else end.state for end in ends] == [TimerState.FIRED] * TIMERS
        received = Counter(zip((body["timerId"] for body in sender.received), sender.webhook_ids, strict=True))
        assert set(received) == {(end.timer_id, end.firing_id) for end in ends if end is not None}
        # Fired again is what could not be recorded the first time.
        assert received.total() - TIMERS <= (0 if one_in == 0 else TIMERS // 4)
        for shard_id in namespace.shard_ids():
            assert_whole(network, shard_id)


async def _run(store: Store, senders: list[ScriptedSender], clock: VirtualClock) -> None:
    small = EngineSettings(page_size=10)
    pollers = [
        make_poller(store, sender, clock, worker_id=f"w{at}", settings=small) for at, sender in enumerate(senders)
    ]
    deadline = clock.monotonic() + SECONDS
    await asyncio.gather(*(poller.run(asyncio.Event(), deadline=deadline) for poller in pollers))
