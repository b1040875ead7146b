"""After an outage of the store, however long, work goes on within a second of its return. In virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run
from tests.support.parts import Intercepted
from tests.support.scripted_sender import Script, ScriptedSender


class Interrupted(Intercepted):
    """Passes everything on to a store but while it is down. ``asked`` and ``answered``: when, by operation."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        super().__init__(store, self._operate)
        self._clock = clock
        self.is_down = False
        self.asked: dict[str, list[float]] = {}
        self.answered: dict[str, list[float]] = {}

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self.asked.setdefault(name, []).append(self._clock.elapsed_seconds)
        if self.is_down:
            raise StoreUnavailable("down")
        self.answered.setdefault(name, []).append(self._clock.elapsed_seconds)
        return operation(*arguments, **named)

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
        interrupted.is_down = True
        put(store, [make_timer(f"late{number}") for number in range(10)], START)
        await asyncio.sleep(outage_seconds)
        interrupted.is_down = False
        back = clock.elapsed_seconds
        await asyncio.sleep(10)

    poller = make_poller(interrupted, sender, clock)  # type: ignore[arg-type]
    run(clock, poller, script)
    assert interrupted.first_after("timers.due", back) < 1
    assert interrupted.first_after("timers.record", back) < 1
    assert sorted(str(body["timerId"]) for body in sender.received) == sorted(
        [f"t{number}" for number in range(10)] + [f"late{number}" for number in range(10)]
    )
    assert poller.stats()["fired"] == 20
    asked = sum(1 <= at < back for times in interrupted.asked.values() for at in times)
    assert asked < 30 + 5 * outage_seconds, "and the store was not stormed meanwhile"
