"""Everything at once, in virtual time: whatever happens to it, every timer comes to its right end."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import datetime, timedelta
from random import Random

import pytest

from duetime.domain.namespaces import Namespace, NamespaceSettings
from duetime.domain.timers import FailureReason, Timer, TimerChange, TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.stores import memory_store

NAMESPACES = {
    "plain": NamespaceSettings(),
    "limited": NamespaceSettings(rate_limit_per_second=15.0),
    "narrow": NamespaceSettings(max_in_flight=2),
}
HOSTS = ("good", "slow", "flaky", "down-for-a-while")
POLICY = '{"maxAttempts": 50, "initialInterval": "1s", "maxInterval": "5s"}'
TIMERS = 400
MINUTES = 12


def script(clock: VirtualClock, random: Random) -> ScriptedSender:
    """Receivers that all answer in the end: after five minutes every host is well."""

    def answer(body: dict[str, object]) -> Script:
        host = str(body["timerId"]).split("-", 1)[1]
        if clock.elapsed_seconds > 300 or host == "good":
            return Script(delay_seconds=0.01)
        if host == "slow":
            return Script(delay_seconds=random.choice([0.1, 1.0, 4.0]))
        if host == "flaky":
            return Script(status=random.choice([200, 200, 500, 503, None]), delay_seconds=0.05)
        return Script(status=503)

    return ScriptedSender(answer)


def make_timers(random: Random) -> list[Timer]:
    timers = []
    for number in range(TIMERS):
        host = random.choice(HOSTS)
        timers.append(
            make_timer(
                f"t{number}-{host}",
                namespace=random.choice(list(NAMESPACES)),
                execute_at=START + timedelta(seconds=random.uniform(-100, 240)),
                callback_url=f"http://{host}.test/hook",
                callback_timeout_seconds=10,
                retry_policy_json=POLICY,
                expire_after_ms=random.choice([None, None, 30_000]),
            )
        )
    return timers


class Clients:
    """Store, change and cancel timers as other processes would: no poller is told."""

    def __init__(self, store: Store, clock: VirtualClock, random: Random) -> None:
        self.store, self.clock, self.random = store, clock, random
        self.cancelled: set[tuple[str, str]] = set()

    async def act(self, timers: list[Timer]) -> None:
        waiting = list(timers)
        while waiting:
            batch, waiting = waiting[:40], waiting[40:]
            put(self.store, batch, self.clock.now())
            await asyncio.sleep(self.random.uniform(0.0, 8.0))
            for timer in self.random.sample(batch, 4):
                self.change(timer)

    def change(self, timer: Timer) -> None:
        namespace, now = make_namespace(timer.namespace), self.clock.now()
        if self.random.random() < 0.5:
            (result,) = self.store.timers.delete(namespace, [TimerRef(timer.timer_id)], now=now)
            if result.status is ChangeStatus.APPLIED:
                self.cancelled.add((timer.namespace, timer.timer_id))
        else:
            later: datetime = now + timedelta(seconds=self.random.uniform(-5, 20))
            change = TimerChange(execute_at=later, expire_after_ms=None)
            self.store.timers.update(
                namespace, timer.timer_id, change, firing_id=f"changed-{timer.timer_id}", now=now
            )


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_every_timer_comes_to_its_right_end(seed: int) -> None:
    random, clock = Random(seed), VirtualClock(START)
    with memory_store() as store:
        for name, settings in NAMESPACES.items():
            created, _ = store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=START)
            changed = Namespace(name, 4, created.first_shard, dedicated=False, created_at=START, settings=settings)
            assert store.catalogue.update_namespace(changed, if_revision=created.revision, now=START) is not None
        timers = make_timers(random)
        clients = Clients(store, clock, random)
        sender = script(clock, random)
        small = EngineSettings(max_buffered=40, page_size=10, max_in_flight=12, initial_window=4, drain_seconds=3.0)
        pollers = [
            make_poller(store, each, clock, worker_id=f"w{number}", settings=small)
            for number, each in enumerate([sender, sender.for_another_poller()])
        ]

        async def comes_and_goes(number: int) -> None:
            """As on Lambda: the same poller runs again and again, until a deadline."""
            await asyncio.sleep(number * 20.0)
            while clock.elapsed_seconds < 60 * MINUTES:
                await pollers[number].run(asyncio.Event(), deadline=clock.monotonic() + 60.0)

        async def main() -> None:
            await asyncio.gather(clients.act(timers), *(comes_and_goes(number) for number in range(2)))

        run_virtually(clock, main())

        received = {(body["namespace"], body["timerId"]) for body in sender.received}
        ends: Counter[str] = Counter()
        for timer in timers:
            stored = store.timers.get(make_namespace(timer.namespace), timer.timer_id, now=clock.now())
            if (timer.namespace, timer.timer_id) in clients.cancelled:
                assert stored is None
                ends["cancelled"] += 1
                continue
            assert stored is not None
            if stored.state is TimerState.FAILED:
                assert stored.failure is not None
                assert stored.failure.reason is FailureReason.EXPIRED, stored.failure
            else:
                assert stored.state is TimerState.FIRED, stored
                assert (timer.namespace, timer.timer_id) in received
            ends[stored.state] += 1
        # Each of the ends is seen, or this would prove little.
        assert min(ends[kind] for kind in ("cancelled", TimerState.FAILED, TimerState.FIRED)) > 5
        assert sum(poller.stats()["lease_lost"] for poller in pollers) == 0
        polls = sum(poller.stats()["polls"] for poller in pollers)
        assert polls < 30 * 60 * MINUTES, "the pollers spin"
