"""Waits of the event loop."""

from __future__ import annotations

import asyncio

import pytest

from duetime.engine.waiting import WakeupEvent, whole_milliseconds
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW


@pytest.mark.parametrize(
    ("seconds", "waited"),
    [(0.0014, 0.002), (0.0016, 0.002), (0.3 - 0.1, 0.2), (0.8, 0.8), (0.0002, 0.001), (-1, 0.001)],
)
def test_a_wait_does_not_end_before_it_is_time(seconds: float, waited: float) -> None:
    assert whole_milliseconds(seconds) == waited


def test_a_step_is_repeated_when_it_is_time_and_when_woken() -> None:
    clock = VirtualClock(NOW)
    at: list[float] = []

    async def script() -> None:
        wake = WakeupEvent()

        def step() -> float:
            at.append(round(clock.elapsed_seconds, 3))
            if len(at) == 3:
                wake.set()
            return 2.0

        repeating = asyncio.ensure_future(wake.repeat(step))
        await asyncio.sleep(3)
        wake.set()
        wake.set()
        await asyncio.sleep(2.5)
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        wake.set()
        await asyncio.sleep(5)

    run_virtually(clock, script())
    assert at == [0, 2, 3, 3, 5]


def test_a_step_that_raises_ends_the_repetition() -> None:
    def step() -> float:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_virtually(VirtualClock(NOW), WakeupEvent().repeat(step))
