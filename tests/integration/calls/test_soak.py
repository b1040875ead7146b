"""A soak in virtual time: two pollers, one of which vanishes every now and then, a store and receivers that fail."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from random import Random

import pytest

from duetime.delivery.port import Callback, TransportError
from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallStatus
from tests.support.engine import at
from tests.support.executing import Executing
from tests.support.faulty_calls import FaultyCalls
from tests.support.scripted_sender import RequestSender, Script, header

CALLS = 300
MINUTES = 5


def answer_by_chance(chance: Random) -> Script:
    kind = chance.random()
    if kind < 0.6:
        return Script(200, delay_seconds=chance.uniform(0.001, 6.0))
    if kind < 0.8:
        return Script(chance.choice([500, 503, 404, 429]), retry_after=chance.choice([None, "3"]))
    return Script(None, error=chance.choice([TransportError.TIMEOUT, TransportError.CONNECT]))


def failing(executing: Executing, chance: Random) -> FaultyCalls:
    """One write in ten is not done, one in ten is done and not answered."""

    def fail(transitions: Sequence[Transition]) -> None:
        if chance.random() < 0.1:
            raise StoreUnavailable("by chance")

    return FaultyCalls(executing.calls, before=fail, after=fail)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_call_ends_once_and_every_execution_is_sent_at_most_once(executing: Executing, seed: int) -> None:
    chance = Random(seed)
    sent: list[Callback] = []

    def new_sender() -> RequestSender:
        return RequestSender(answer=lambda request: answer_by_chance(chance), requests=sent)

    for number in range(CALLS):
        executing.submit(
            f"call-{number:03}",
            due_at=at(chance.uniform(0, 60 * MINUTES - 60)).replace(microsecond=0),
            url=f"http://host-{number % 5}.test/",
            timeout_seconds=chance.choice([1, 5, 20]),
            retry_policy_json=chance.choice([None, '{"maxAttempts":4,"initialInterval":"2s"}']),
        )

    async def keep_vanishing() -> None:
        """A poller that is killed: no drain, no release, and its callbacks are answered to nobody."""
        number = 0
        while True:
            number += 1
            poller = executing.poller(
                worker_id=f"mortal-{number}",
                sender=new_sender(),
                calls=failing(executing, chance),
            )
            task = asyncio.create_task(poller.run(asyncio.Event()))
            await asyncio.sleep(chance.uniform(3, 25))
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def script() -> None:
        mortal = asyncio.create_task(keep_vanishing())
        await asyncio.sleep(60 * MINUTES)
        mortal.cancel()
        await asyncio.gather(mortal, return_exceptions=True)
        await asyncio.sleep(180)

    executing.run(script, executing.poller(sender=new_sender(), calls=failing(executing, chance)))
    calls = executing.all()
    assert len(calls) == CALLS
    assert {call.status for call in calls} <= {CallStatus.SUCCEEDED, CallStatus.FAILED}
    times = Counter(header(request, "x-duetime-execution-id") for request in sent)
    assert set(times.values()) == {1}
    for call in calls:
        executions, types = executing.executions(call.call_id), executing.types(call.call_id)
        assert [each.number for each in executions] == list(range(1, call.attempts + 1))
        assert all(each.status is not ExecutionStatus.RUNNING for each in executions)
        successes = [each for each in executions if each.status is ExecutionStatus.SUCCEEDED]
        assert len(successes) == (call.status is CallStatus.SUCCEEDED)
        assert types.count("ExecutionStarted") == call.attempts
        assert types.count("ServiceCallSucceeded") + types.count("ServiceCallFailed") == 1
        assert types[-1] == f"ServiceCall{call.status}"
    lost = [each for call in calls for each in executing.executions(call.call_id) if each.duration_ms is None]
    assert len(lost) > CALLS // 60, "too little was lost for the test to mean anything"
