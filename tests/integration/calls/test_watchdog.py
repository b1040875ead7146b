"""Executions that nobody concludes: the timer of their call ends them at the deadline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from duetime.delivery.port import CallbackResult
from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreUnavailable
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus
from duetime.engine.firing.execution_handler import ExecutionResponse, StartStatus
from duetime.testing.contract.steps import claim_shard
from tests.support.engine import at
from tests.support.executing import Executing, own_all, turn
from tests.support.faulty_calls import FaultyCalls, is_end
from tests.support.logs import actions
from tests.support.scripted_sender import Script

ENDED_BY_WATCHDOG = [
    "ServiceCallSubmitted",
    "ServiceCallScheduled",
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
    "ExecutionFailed",
    "ServiceCallFailed",
]


def begin_and_vanish(executing: Executing, **fields: Any) -> None:
    """A process that was killed after it had stored the begin of the execution."""
    executing.submit(**fields)
    now = executing.clock.now()
    shard_id = executing.get().shard_id
    lease = claim_shard(executing.store, shard_id, "gone", lease_seconds=0.001, now=now)
    assert lease is not None
    (result,) = executing.executor().begin([turn(executing, {shard_id: lease})], now=now)
    assert result.status is StartStatus.BEGUN


def test_an_execution_that_nobody_concludes_ends_at_its_deadline_and_not_before(executing: Executing) -> None:
    begin_and_vanish(executing, timeout_seconds=10)  # and 5 s of grace
    executing.run_for(14.9)
    assert executing.get().status is CallStatus.RUNNING
    executing.run_for(0.2)
    call = executing.get()
    assert call.status is CallStatus.FAILED
    assert call.finished_at is not None
    assert 0 <= (call.finished_at - at(15)).total_seconds() < 0.1
    assert call.outcome is not None
    assert (call.outcome.reason, call.outcome.http_status) == (CallFailure.TIMEOUT, None)
    (execution,) = executing.executions()
    assert (execution.status, execution.failure) == (ExecutionStatus.FAILED, CallFailure.TIMEOUT)
    assert executing.types() == ENDED_BY_WATCHDOG
    assert executing.sender.requests == []


def test_the_watchdog_counts_what_it_ends(executing: Executing) -> None:
    begin_and_vanish(executing, timeout_seconds=1)
    poller = executing.poller()
    executing.run_for(10, poller)
    snapshot = poller.snapshot()
    assert snapshot.counters["executions_timed_out"] == 1
    assert dict(snapshot.calls_by) == {"Succeeded": 0, "Failed": 1}
    assert snapshot.counters["attempts_started"] == 0


def test_after_the_watchdog_the_retry_policy_decides(executing: Executing) -> None:
    begin_and_vanish(executing, timeout_seconds=1, retry_policy_json='{"maxAttempts":2,"initialInterval":"10s"}')
    executing.run_for(40)
    call = executing.get()
    assert (call.status, call.attempts) == (CallStatus.SUCCEEDED, 2)
    first, second = executing.executions()
    assert (first.failure, second.failure) == (CallFailure.TIMEOUT, None)
    assert len(executing.sender.requests) == 1


def test_an_execution_is_ended_while_its_host_is_out(executing: Executing) -> None:
    """The breaker of the host stops requests, and not the watchdog, which sends none."""
    begin_and_vanish(executing, timeout_seconds=10)
    executing.sender.answer = lambda request: Script(503)
    for number in range(40):
        executing.submit(f"other-{number:02}", due_at=at(number / 8))

    async def script() -> None:
        await asyncio.sleep(15.1)
        assert poller.snapshot().gauges["breakers_open"] == 1
        assert executing.get().status is CallStatus.FAILED

    poller = executing.poller()
    executing.run(script, poller)


def test_a_call_whose_answer_is_being_stored_is_not_ended_by_the_watchdog(executing: Executing) -> None:
    """The store is down from the answer until long after the deadline."""

    def unavailable(transitions: Sequence[Transition]) -> None:
        if is_end(transitions) and executing.clock.now() < at(60):
            raise StoreUnavailable("down")

    executing.submit(timeout_seconds=5)
    calls = FaultyCalls(executing.calls, before=unavailable)
    executing.run_for(70, executing.poller(calls=calls))
    call = executing.get()
    assert call.status is CallStatus.SUCCEEDED
    assert call.finished_at is not None
    assert call.finished_at >= at(60)


def test_an_answer_that_comes_after_the_watchdog_changes_nothing(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    executing.submit(timeout_seconds=1)
    leases, executor = own_all(executing), executing.executor()
    (result,) = executor.begin([turn(executing, leases)], now=at(0))
    assert result.message is not None
    (ended,) = executor.begin([turn(executing, leases)], now=at(6))
    assert (ended.status, ended.is_timed_out, ended.ended_as) == (StartStatus.WAITS, True, CallStatus.FAILED)
    before = executing.get(), executing.events(), executing.executions()
    answer = ExecutionResponse(result.message.token, CallbackResult(1, 200, b"late", None, None, "", 0.1))
    (conclusion,) = executor.conclude([answer], now=at(7))
    assert conclusion.ended_as is None
    assert (executing.get(), executing.events(), executing.executions()) == before
    assert actions(caplog, logging.WARNING) == {"call.late_response": 1}


@pytest.mark.parametrize(("seconds", "is_ended"), [(14.999, False), (15.0, True), (15.001, True)])
def test_the_deadline_is_inclusive(executing: Executing, seconds: float, is_ended: bool) -> None:
    executing.submit(timeout_seconds=10)
    leases, executor = own_all(executing), executing.executor()
    executor.begin([turn(executing, leases)], now=at(0))
    (result,) = executor.begin([turn(executing, leases)], now=at(seconds))
    assert result.is_timed_out == is_ended
    assert result.wake_at == (None if is_ended else at(15))


def test_an_execution_missing_from_the_log_does_not_keep_its_call_running(executing: Executing) -> None:
    begin_and_vanish(executing, timeout_seconds=1)
    with executing.store.database.engine.connect() as connection:
        connection.exec_driver_sql("DELETE FROM http_execution_log")
        connection.commit()
    executing.run_for(10)
    assert executing.get().status is CallStatus.FAILED
    assert [each.failure for each in executing.executions()] == [CallFailure.TIMEOUT]


def test_the_watchdog_needs_no_time(executing: Executing) -> None:
    """A poller that has too little left for the call itself ends its overdue execution."""
    begin_and_vanish(executing, timeout_seconds=300)
    executing.clock.advance(305)
    executing.run(lambda: asyncio.sleep(2), deadline=executing.clock.monotonic() + 60.0)
    assert executing.get().status is CallStatus.FAILED
