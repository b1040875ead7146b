"""Service calls when something goes wrong: stores that fail, leases that are lost, rows that cannot be read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime

import pytest
import sqlalchemy as sa

from duetime.delivery.port import CallbackResult
from duetime.domain.call_steps import Transition
from duetime.domain.errors import CallUnreadable, StoreError, StoreUnavailable
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus
from duetime.engine.firing.execution_handler import ExecutionResponse, StartStatus
from duetime.stores.backends.sql.call_tables import service_calls
from duetime.stores.port.calls import ApplyStatus
from duetime.testing.contract.steps import claim_shard
from tests.support.engine import at
from tests.support.executing import Executing, own_all, turn
from tests.support.faulty_calls import FaultyCalls, is_begin, is_end
from tests.support.logs import actions
from tests.support.scripted_sender import Script, header

BEGUN = [
    "ServiceCallSubmitted",
    "ServiceCallScheduled",
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
]


# -- the store -----------------------------------------------------------------------------------------------------


def test_a_store_that_fails_for_a_while_delays_calls_and_loses_none(executing: Executing) -> None:
    moments = iter(range(1000))

    def now_and_then(transitions: Sequence[Transition]) -> None:
        if next(moments) % 3:
            raise StoreUnavailable("throttled")

    for number in range(100):
        executing.submit(f"call-{number:02}", due_at=at(number / 20))
    poller = executing.poller(calls=FaultyCalls(executing.calls, before=now_and_then))
    executing.run_for(60, poller)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert len(executing.sender.requests) == 100
    assert poller.snapshot().counters["record_errors"] > 0


@pytest.mark.parametrize("step", [is_begin, is_end])
def test_a_tenant_of_whom_nothing_can_be_written_for_now_holds_up_nobody(
    executing: Executing, step: Callable[[Sequence[Transition]], bool]
) -> None:
    executing.add_tenant("hot")

    def is_put_off(transition: Transition) -> bool:
        is_hot = transition.after.tenant_id == "hot"
        return is_hot and step([transition]) and executing.clock.elapsed_seconds < 20

    for number in range(40):
        executing.submit(f"call-{number:02}", due_at=at(number / 4))
        executing.submit(f"hot-{number:02}", due_at=at(number / 4), tenant_id="hot")
    poller = executing.poller(calls=FaultyCalls(executing.calls, puts_off=is_put_off))
    lags: list[float] = []

    async def script() -> None:
        await asyncio.sleep(15)
        assert executing.statuses() == {CallStatus.SUCCEEDED}
        assert {call.status for call in executing.all(tenant_id="hot")}.isdisjoint({CallStatus.SUCCEEDED})
        for call in executing.all():
            assert call.started_at is not None
            assert call.finished_at is not None
            lags.append((call.finished_at - call.due_at).total_seconds())
        await asyncio.sleep(45)

    executing.run(script, poller)
    assert max(lags) < 2
    assert {call.status for call in executing.all(tenant_id="hot")} == {CallStatus.SUCCEEDED}
    assert len(executing.sender.requests) == 80
    assert poller.snapshot().counters["executions_timed_out"] == 0


@pytest.mark.parametrize("step", [is_begin, is_end])
def test_a_step_that_was_stored_although_the_store_said_otherwise(
    executing: Executing, step: Callable[[Sequence[Transition]], bool]
) -> None:
    """The answer of the store was lost after it had committed: the step is repeated, and found done."""
    lost: list[str] = []

    def lose_first(transitions: Sequence[Transition]) -> None:
        if step(transitions) and not lost:
            lost.append("once")
            raise StoreUnavailable("connection reset")

    executing.submit()
    executing.run_for(5, executing.poller(calls=FaultyCalls(executing.calls, after=lose_first)))
    assert lost == ["once"]
    assert executing.get().status is CallStatus.SUCCEEDED
    assert len(executing.sender.requests) == len(executing.executions()) == 1
    assert executing.types() == [*BEGUN, "ExecutionSucceeded", "ServiceCallSucceeded"]


def test_a_driver_that_repeats_its_own_write_does_not_supersede_itself(executing: Executing) -> None:
    executing.submit()
    leases = own_all(executing)

    class Repeating(FaultyCalls):
        def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
            super().apply(transitions, now=now)
            return super().apply(transitions, now=now)

    executor = executing.executor(Repeating(executing.calls))
    (result,) = executor.begin([turn(executing, leases)], now=at(0))
    assert result.status is StartStatus.BEGUN
    assert result.message is not None
    answer = ExecutionResponse(result.message.token, CallbackResult(1, 200, b"", None, None, "", 0.1))
    (conclusion,) = executor.conclude([answer], now=at(1))
    assert conclusion.ended_as is CallStatus.SUCCEEDED


@pytest.mark.parametrize(
    ("stood_seconds", "sent_timeouts"), [(3.9, [10]), (4.5, [9.5]), (12.9, [1.1]), (13.1, []), (1000.0, [])]
)
def test_what_begins_late_gets_the_rest_of_its_time_or_is_left_to_the_watchdog(
    executing: Executing, stood_seconds: float, sent_timeouts: list[float]
) -> None:
    """The process stood still between the begin and the sending. The deadline is after 15 s, 1 s is for the store."""

    def stand_still(transitions: Sequence[Transition]) -> None:
        if is_begin(transitions):
            executing.clock.advance(stood_seconds)

    executing.submit(timeout_seconds=10)
    executing.sender.answer = lambda request: Script(None)
    calls = FaultyCalls(executing.calls, after=stand_still)
    executing.run_for(30 + stood_seconds, executing.poller(calls=calls))
    timeouts = [request.timeout_seconds for request in executing.sender.requests]
    assert timeouts == pytest.approx(sent_timeouts, abs=0.01)
    call = executing.get()
    assert (call.status, call.outcome and call.outcome.reason) == (CallStatus.FAILED, CallFailure.TIMEOUT)
    (execution,) = executing.executions()
    assert (execution.duration_ms is None) == (not sent_timeouts), "the watchdog knows of no duration"


def test_who_has_lost_the_shard_begins_nothing(executing: Executing) -> None:
    executing.submit()
    stale = own_all(executing)
    for lease in stale.values():
        executing.store.leases.release([lease], now=at(0))
        claim_shard(executing.store, lease.shard_id, "other", lease_seconds=60, now=at(0))
    (result,) = executing.executor().begin([turn(executing, stale)], now=at(0))
    assert result.status is StartStatus.LEASE_LOST
    assert executing.get().status is CallStatus.SCHEDULED


def test_who_has_lost_the_shard_meanwhile_still_tells_the_answer(executing: Executing) -> None:
    executing.submit()
    stale, executor = own_all(executing), executing.executor()
    (result,) = executor.begin([turn(executing, stale)], now=at(0))
    assert result.message is not None
    for lease in stale.values():
        executing.store.leases.release([lease], now=at(1))
        claim_shard(executing.store, lease.shard_id, "other", lease_seconds=60, now=at(1))
    answer = ExecutionResponse(result.message.token, CallbackResult(1, 204, b"", None, None, "", 0.1))
    executor.conclude([answer], now=at(2))
    assert executing.get().status is CallStatus.SUCCEEDED


def test_of_two_executors_one_begins(executing: Executing) -> None:
    executing.submit()
    leases = own_all(executing)
    first, second = executing.executor(), executing.executor()
    turns = [turn(executing, leases)], [turn(executing, leases)]
    (one,) = first.begin(turns[0], now=at(0))
    (two,) = second.begin(turns[1], now=at(0))
    assert (one.status, two.status) == (StartStatus.BEGUN, StartStatus.SUPERSEDED)
    assert len(executing.executions()) == 1


def test_two_answers_of_one_call_in_a_batch(executing: Executing) -> None:
    """The first attempt's answer is late: the watchdog has ended it, and the second has been answered, too."""
    executing.submit(timeout_seconds=1, retry_policy_json='{"maxAttempts":2,"initialInterval":"1s"}')
    leases, executor = own_all(executing), executing.executor()
    (one,) = executor.begin([turn(executing, leases)], now=at(0))
    executor.begin([turn(executing, leases)], now=at(6))
    (two,) = executor.begin([turn(executing, leases)], now=at(20))
    assert one.message is not None
    assert two.message is not None
    result = CallbackResult(1, 200, b"", None, None, "", 0.1)
    late, good = executor.conclude(
        [
            ExecutionResponse(one.message.token, replace(result, body=b"1")),
            ExecutionResponse(two.message.token, result),
        ],
        now=at(21),
    )
    assert (late.ended_as, good.ended_as) == (None, CallStatus.SUCCEEDED)
    assert [each.status for each in executing.executions()] == [ExecutionStatus.FAILED, ExecutionStatus.SUCCEEDED]


def test_a_call_that_is_changed_before_every_try_is_concluded_in_the_end(executing: Executing) -> None:
    executing.submit()
    changes: list[int] = []

    def change(transitions: Sequence[Transition]) -> None:
        if is_end(transitions) and len(changes) < 7:
            changes.append(1)
            executing.amend(starred=bool(len(changes) % 2))

    executing.run_for(5, executing.poller(calls=FaultyCalls(executing.calls, before=change)))
    assert executing.get().status is CallStatus.SUCCEEDED
    assert len(changes) == 7


# -- bad rows ------------------------------------------------------------------------------------------------------


def corrupt(executing: Executing, call_id: str) -> None:
    with executing.store.database.engine.connect() as connection:
        connection.execute(
            sa.update(service_calls)
            .where(service_calls.c.service_call_id == call_id)
            .values(request_spec='{"method":"NONE"}')
        )
        connection.commit()


def test_a_call_that_cannot_be_read_does_not_stop_the_others(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        executing.submit(f"call-{number:02}")
    corrupt(executing, "call-07")
    executing.run_for(5)
    received = {header(request, "x-duetime-service-call-id") for request in executing.sender.requests}
    assert received == {f"call-{number:02}" for number in range(20) if number != 7}
    assert actions(caplog, logging.WARNING) == {"call.unreadable": 1, "timer.failed": 1}
    with pytest.raises(CallUnreadable):
        executing.get("call-07")


def test_a_call_that_cannot_be_stepped_is_tried_again_later_and_does_not_stop_the_others(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        executing.submit(f"call-{number:02}")

    def refuse(transitions: Sequence[Transition]) -> None:
        if executing.clock.now() < at(12) and any(each.after.call_id == "call-07" for each in transitions):
            raise StoreError("the disk is strange")

    async def script() -> None:
        await asyncio.sleep(5)
        assert len(executing.sender.requests) == 19
        await asyncio.sleep(15)

    executing.run(script, executing.poller(calls=FaultyCalls(executing.calls, before=refuse)))
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert len(executing.sender.requests) == 20
    told = actions(caplog, logging.WARNING)
    assert 2 <= told.total() == told["call.step_failed"] <= 4


def test_an_answer_that_is_refused_is_left_to_the_watchdog_and_harms_no_other(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(20):
        executing.submit(f"call-{number:02}", timeout_seconds=1)

    def refuse(transitions: Sequence[Transition]) -> None:
        is_it = is_end(transitions) and any(each.after.call_id == "call-07" for each in transitions)
        if is_it and executing.clock.now() < at(3):
            raise StoreError("the answer does not fit")

    poller = executing.poller(calls=FaultyCalls(executing.calls, before=refuse))
    executing.run_for(60, poller)
    assert len(executing.sender.requests) == 20
    outcomes = {executing.get(f"call-{number:02}").status for number in range(20) if number != 7}
    assert outcomes == {CallStatus.SUCCEEDED}
    call = executing.get("call-07")
    assert (call.status, call.outcome and call.outcome.reason) == (CallStatus.FAILED, CallFailure.TIMEOUT)
    assert actions(caplog, logging.WARNING) == {"call.response_refused": 1}
    assert poller.stats()["record_refused"] == 1


def test_a_timer_without_its_call_ends(executing: Executing, caplog: pytest.LogCaptureFixture) -> None:
    call = executing.submit()
    with executing.store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.exec_driver_sql("DELETE FROM service_calls")
        connection.commit()
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    executing.run_for(3)
    assert executing.sender.requests == []
    page = executing.store.timers.due(call.shard_id, until=at(1e6), limit=10)
    assert (page.timers, page.next_attempt_at) == ([], None)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.parametrize("body", ['{"a":', '"cut', "NaN"])
def test_a_call_whose_body_is_no_json_is_not_sent_and_those_of_its_batch_are(
    executing: Executing, caplog: pytest.LogCaptureFixture, body: str
) -> None:
    executing.submit("bad", due_at=at(1), body_json=body)
    for number in range(5):
        executing.submit(f"good-{number}", due_at=at(1))

    executing.run_for(5)

    assert len(executing.sender.requests) == 5
    assert [executing.get(f"good-{number}").status for number in range(5)] == [CallStatus.SUCCEEDED] * 5
    actions = [getattr(record, "action", "") for record in caplog.records if record.levelno >= logging.WARNING]
    assert actions == ["call.unreadable", "timer.failed"]
