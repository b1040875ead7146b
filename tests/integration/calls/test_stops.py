"""Service calls when a poller has bounds and an end: large bodies, stops in good order, deadlines."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TypeVar

import pytest

from duetime.delivery.port import Callback
from duetime.domain.service_calls import CallFailure, CallStatus
from duetime.engine.settings import EngineSettings
from duetime.testing.virtual_time import InlineOffload
from tests.support.executing import Executing
from tests.support.logs import actions
from tests.support.scripted_sender import RequestSender, Script

T = TypeVar("T")

# -- bounds --------------------------------------------------------------------------------------------------------


class SlowOffload(InlineOffload):
    """Each piece of work takes 50 ms, however many are done at once."""

    async def run(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(0.05)
        return function()


@pytest.mark.parametrize("batches", [1, 4], ids=["one batch begins at a time", "four batches begin at once"])
def test_large_bodies_in_flight_are_bounded_and_keep_no_other_tenant_waiting(
    executing: Executing, batches: int
) -> None:
    """8 MB are ten bodies of 200 kB four times. No more than twice as much is held, as no more is begun at once."""
    executing.settings = EngineSettings(max_payload_bytes=8_000_000, record_concurrency=batches)
    executing.make_offload = SlowOffload
    executing.add_tenant("other")
    body = f'"{"x" * 200_000}"'
    most = 0

    def answer(request: Callback) -> Script:
        nonlocal most
        most = max(most, executing.sender.in_flight)
        return Script(200, delay_seconds=2.0 if request.body and len(request.body) > 1000 else 0.01)

    executing.sender.answer = answer
    for number in range(200):
        executing.submit(f"large-{number:03}", body_json=body, url=f"http://host-{number % 9}.test/")

    async def script() -> None:
        await asyncio.sleep(3)
        for number in range(30):
            executing.submit(f"small-{number:02}", tenant_id="other")
        await asyncio.sleep(1.5)
        small = [executing.get(f"small-{number:02}", tenant_id="other") for number in range(30)]
        assert {call.status for call in small} == {CallStatus.SUCCEEDED}
        await asyncio.sleep(120)

    executing.run(script)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert most <= 2 * 10


# -- stops ---------------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_calls_in_flight_and_begins_no_more(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(200, delay_seconds=8.0)
    executing.submit("first")

    async def script() -> None:
        await asyncio.sleep(1)
        executing.submit("second")

    executing.run(script)
    assert executing.get("first").status is CallStatus.SUCCEEDED
    assert executing.get("second").status is CallStatus.SCHEDULED
    assert executing.clock.elapsed_seconds == pytest.approx(8.5, abs=1)


def test_what_is_in_flight_at_the_end_of_a_stop_is_left_to_the_watchdog(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    executing.settings = EngineSettings(drain_seconds=3.0)
    executing.sender.answer = lambda request: Script(200, delay_seconds=20.0)
    executing.submit(timeout_seconds=30)
    executing.run_for(1)
    assert executing.get().status is CallStatus.RUNNING
    assert actions(caplog, logging.WARNING) == {"firing.abandoned": 1}
    executing.sender = RequestSender()
    executing.run_for(40)
    call = executing.get()
    assert (call.status, call.outcome and call.outcome.reason) == (CallStatus.FAILED, CallFailure.TIMEOUT)
    assert executing.sender.requests == []


def test_a_poller_near_its_deadline_leaves_what_takes_long_to_the_next(executing: Executing) -> None:
    """Of 100 s, 60 are left for a call that may take 80, and for one that may take 300."""
    executing.sender.answer = lambda request: Script(200, delay_seconds=1.0)

    async def script() -> None:
        await asyncio.sleep(40)
        executing.submit("short", timeout_seconds=50)
        executing.submit("long", timeout_seconds=65)
        executing.submit("longest", timeout_seconds=300)
        await asyncio.sleep(5)
        assert executing.get("short").status is CallStatus.SUCCEEDED
        assert executing.get("long").status is CallStatus.SCHEDULED
        assert executing.get("longest").status is CallStatus.SCHEDULED

    executing.run(script, deadline=105.0)
    now = executing.clock.monotonic()
    executing.run(lambda: asyncio.sleep(5), deadline=now + 105.0)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
