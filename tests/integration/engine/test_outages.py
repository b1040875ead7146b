"""While the store fails nothing is lost, doubled or stormed; work goes on within a second of its return. In virtual
time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.times import parse_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, make_timer, put, run
from tests.support.parts import Intercepted
from tests.support.scripted_sender import Script, ScriptedSender


class Interrupted(Intercepted):
    """Passes everything on to a store but what ``fails``. ``asked`` and ``answered``: when, by operation."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        super().__init__(store, self._operate)
        self._clock = clock
        self.fails: Callable[[str], bool] = lambda operation: False
        self.asked: dict[str, list[float]] = {}
        self.answered: dict[str, list[float]] = {}

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.asked.setdefault(name, []).append(self._clock.elapsed_seconds)
        if self.fails(name):
            raise StoreUnavailable("down")
        self.answered.setdefault(name, []).append(self._clock.elapsed_seconds)
        return operation(*arguments, **named)

    @property
    def failures(self) -> int:
        return sum(map(len, self.asked.values())) - sum(map(len, self.answered.values()))

    def first_after(self, name: str, seconds: float) -> float:
        return min(at for at in self.answered[name] if at >= seconds) - seconds


@pytest.mark.parametrize("outage_seconds", [3.0, 17.3, 300.1])
def test_reading_firing_and_recording_go_on_within_a_second(
    store: Store, clock: VirtualClock, outage_seconds: float
) -> None:
    interrupted = Interrupted(store, clock)
    # Some are answered while the store is down: what came of them waits to be recorded.
    sender = ScriptedSender(lambda body: Script(delay_seconds=1.5))
    put(store, [make_timer(f"t{number}") for number in range(10)], START)
    back = 0.0

    async def script() -> None:
        nonlocal back
        await asyncio.sleep(1)
        interrupted.fails = lambda operation: True
        put(store, [make_timer(f"late{number}") for number in range(10)], START)
        await asyncio.sleep(outage_seconds)
        interrupted.fails = lambda operation: False
        back = clock.elapsed_seconds
        await asyncio.sleep(10)

    poller = make_poller(interrupted, sender, clock)
    run(clock, poller, script)
    assert interrupted.first_after("timers.due", back) < 1
    assert interrupted.first_after("timers.record", back) < 1
    assert sorted(str(body["timerId"]) for body in sender.received) == sorted(
        [f"t{number}" for number in range(10)] + [f"late{number}" for number in range(10)]
    )
    assert poller.stats()["fired"] == 20
    asked = sum(1 <= at < back for times in interrupted.asked.values() for at in times)
    assert asked < 30 + 5 * outage_seconds, "and the store was not stormed meanwhile"


@pytest.mark.parametrize(
    "failing", [{"timers.due"}, {"timers.record"}, {"leases.renew"}, {"timers.due", "timers.record"}]
)
def test_a_store_that_fails_for_a_while_loses_and_doubles_nothing(
    store: Store, clock: VirtualClock, failing: set[str]
) -> None:
    sender, interrupted = ScriptedSender(), Interrupted(store, clock)
    put(store, [make_timer(f"t{n}", execute_at=at(n / 50)) for n in range(300)], START)

    async def script() -> None:
        await asyncio.sleep(2)
        interrupted.fails = failing.__contains__
        await asyncio.sleep(2.5)
        interrupted.fails = lambda operation: False
        await asyncio.sleep(15)

    poller = make_poller(interrupted, sender, clock)
    run(clock, poller, script)
    assert sender.counts() == Counter(f"t{n}" for n in range(300))
    assert poller.stats()["fired"] == 300
    assert 0 < interrupted.failures < 100, "it backs off and never spins"


def test_an_unwell_lease_stops_the_firing_before_anybody_else_may_claim(store: Store, clock: VirtualClock) -> None:
    sender, interrupted = ScriptedSender(), Interrupted(store, clock)
    put(store, [make_timer(f"t{n}", execute_at=at(n / 10)) for n in range(300)], START)

    async def script() -> None:
        await asyncio.sleep(5)
        interrupted.fails = {"leases.renew"}.__contains__
        await asyncio.sleep(20)
        expires.extend(status.lease_expires_at for status in store.leases.statuses(range(4), now=clock.now()))

    expires: list[datetime | None] = []
    run(clock, make_poller(interrupted, sender, clock), script)
    last = max(parse_instant(str(body["firedAt"])) for body in sender.received)
    assert at(5) < last
    assert all(expiry is not None and last < expiry for expiry in expires)
