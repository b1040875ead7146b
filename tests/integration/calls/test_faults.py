"""Service calls when something goes wrong: processes that vanish, stores that fail, rows that cannot be read."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
import sqlalchemy as sa

from duetime.calls.executor import OpenExecution
from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.call_steps import Transition
from duetime.domain.errors import CallUnreadable, StoreError, StoreUnavailable
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus, timer_of
from duetime.domain.shards import Lease
from duetime.engine.handling import Answered, Turn, TurnStatus
from duetime.engine.settings import EngineSettings
from duetime.stores.sql.call_tables import service_calls
from tests.support import calls as make
from tests.support.executing import Executing, at
from tests.support.faulty_calls import FaultyCalls, is_begin, is_end
from tests.support.scripted_sender import RequestSender, Script, header

ENDED_BY_WATCHDOG = [
    "ServiceCallSubmitted",
    "ServiceCallScheduled",
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
    "ExecutionFailed",
    "ServiceCallFailed",
]


def turn(executing: Executing, call_id: str = "call-1", attempt_id: str | None = None) -> Turn:
    """The turn of a call's timer as it is stored now."""
    return Turn(timer_of(executing.get(call_id)), attempt_id or make.id_at(executing.clock.now()))


def own_all(executing: Executing) -> dict[int, Lease]:
    leases = {}
    for shard_id in range(4):
        lease = executing.store.claim_shard(shard_id, "me", lease_seconds=1e6, now=executing.clock.now())
        assert lease is not None
        leases[shard_id] = lease
    return leases


# -- the watchdog --------------------------------------------------------------------------------------------------


def begin_and_vanish(executing: Executing, **fields: object) -> None:
    """A process that was killed after it had stored the begin of the execution."""
    executing.submit(**fields)
    now = executing.clock.now()
    shard_id = executing.get().shard_id
    lease = executing.store.claim_shard(shard_id, "gone", lease_seconds=0.001, now=now)
    assert lease is not None
    (result,) = executing.executor().begin([turn(executing)], leases={shard_id: lease}, now=now)
    assert result.status is TurnStatus.BEGUN


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
    (result,) = executor.begin([turn(executing)], leases=leases, now=at(0))
    assert result.message is not None
    (ended,) = executor.begin([turn(executing)], leases=leases, now=at(6))
    assert (ended.status, ended.is_timed_out, ended.ended_as) == (TurnStatus.WAITS, True, CallStatus.FAILED)
    before = executing.get(), executing.events(), executing.executions()
    answer = Answered(result.message.token, CallbackResult(1, 200, b"late", None, None, "", 0.1))
    (conclusion,) = executor.conclude([answer], now=at(7))
    assert conclusion.ended_as is None
    assert (executing.get(), executing.events(), executing.executions()) == before
    assert [record.action for record in caplog.records if record.levelno >= logging.WARNING] == ["call.late_answer"]


@pytest.mark.parametrize(("seconds", "is_ended"), [(14.999, False), (15.0, True), (15.001, True)])
def test_the_deadline_is_inclusive(executing: Executing, seconds: float, is_ended: bool) -> None:
    executing.submit(timeout_seconds=10)
    leases, executor = own_all(executing), executing.executor()
    executor.begin([turn(executing)], leases=leases, now=at(0))
    (result,) = executor.begin([turn(executing)], leases=leases, now=at(seconds))
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
    assert executing.types() == [*ENDED_BY_WATCHDOG[:5], "ExecutionSucceeded", "ServiceCallSucceeded"]


def test_a_driver_that_repeats_its_own_write_does_not_supersede_itself(executing: Executing) -> None:
    executing.submit()
    leases = own_all(executing)

    class Repeating(FaultyCalls):
        def apply(self, transitions: Sequence[Transition], **more: object) -> list[object]:
            super().apply(transitions, **more)  # type: ignore[arg-type]
            return super().apply(transitions, **more)  # type: ignore[arg-type, return-value]

    executor = executing.executor(Repeating(executing.calls))  # type: ignore[arg-type]
    (result,) = executor.begin([turn(executing)], leases=leases, now=at(0))
    assert result.status is TurnStatus.BEGUN
    assert result.message is not None
    answer = Answered(result.message.token, CallbackResult(1, 200, b"", None, None, "", 0.1))
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
        executing.store.release_leases([lease], now=at(0))
        executing.store.claim_shard(lease.shard_id, "other", lease_seconds=60, now=at(0))
    (result,) = executing.executor().begin([turn(executing)], leases=stale, now=at(0))
    assert result.status is TurnStatus.LEASE_LOST
    assert executing.get().status is CallStatus.SCHEDULED


def test_who_has_lost_the_shard_meanwhile_still_tells_the_answer(executing: Executing) -> None:
    executing.submit()
    stale, executor = own_all(executing), executing.executor()
    (result,) = executor.begin([turn(executing)], leases=stale, now=at(0))
    assert result.message is not None
    for lease in stale.values():
        executing.store.release_leases([lease], now=at(1))
        executing.store.claim_shard(lease.shard_id, "other", lease_seconds=60, now=at(1))
    answer = Answered(result.message.token, CallbackResult(1, 204, b"", None, None, "", 0.1))
    executor.conclude([answer], now=at(2))
    assert executing.get().status is CallStatus.SUCCEEDED


def test_of_two_executors_one_begins(executing: Executing) -> None:
    executing.submit()
    leases = own_all(executing)
    first, second = executing.executor(), executing.executor()
    turns = [turn(executing)], [turn(executing)]
    (one,) = first.begin(turns[0], leases=leases, now=at(0))
    (two,) = second.begin(turns[1], leases=leases, now=at(0))
    assert (one.status, two.status) == (TurnStatus.BEGUN, TurnStatus.SUPERSEDED)
    assert len(executing.executions()) == 1


def test_two_answers_of_one_call_in_a_batch(executing: Executing) -> None:
    """The first attempt's answer is late: the watchdog has ended it, and the second has been answered, too."""
    executing.submit(timeout_seconds=1, retry_policy_json='{"maxAttempts":2,"initialInterval":"1s"}')
    leases, executor = own_all(executing), executing.executor()
    (one,) = executor.begin([turn(executing)], leases=leases, now=at(0))
    executor.begin([turn(executing)], leases=leases, now=at(6))
    (two,) = executor.begin([turn(executing)], leases=leases, now=at(20))
    assert one.message is not None
    assert two.message is not None
    result = CallbackResult(1, 200, b"", None, None, "", 0.1)
    late, good = executor.conclude(
        [Answered(one.message.token, replace(result, body=b"1")), Answered(two.message.token, result)], now=at(21)
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
    actions = [record.action for record in caplog.records if record.levelno >= logging.WARNING]
    assert actions == ["call.unreadable", "timer.failed"]
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
    actions = [record.action for record in caplog.records if record.levelno >= logging.WARNING]
    assert 2 <= actions.count("call.step_failed") <= 4
    assert set(actions) == {"call.step_failed"}


def test_a_timer_without_its_call_ends(executing: Executing, caplog: pytest.LogCaptureFixture) -> None:
    call = executing.submit()
    with executing.store.database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
        connection.exec_driver_sql("DELETE FROM service_calls")
        connection.commit()
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")
    executing.run_for(3)
    assert executing.sender.requests == []
    page = executing.store.due_timers(call.shard_id, until=at(1e6), limit=10)
    assert (page.timers, page.next_attempt_at) == ([], None)
    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []


# -- bounds --------------------------------------------------------------------------------------------------------


def test_large_bodies_under_way_are_bounded_and_keep_no_other_tenant_waiting(executing: Executing) -> None:
    executing.settings = EngineSettings(max_payload_bytes=8_000_000)
    executing.add_tenant("other")
    body = b'"' + b"x" * 200_000 + b'"'
    most = 0

    def answer(request: Callback) -> Script:
        nonlocal most
        most = max(most, executing.sender.under_way)
        return Script(200, delay_seconds=2.0 if request.body and len(request.body) > 1000 else 0.01)

    executing.sender.answer = answer
    for number in range(200):
        executing.submit(f"large-{number:03}", body_json=body.decode(), url=f"http://host-{number % 9}.test/")

    async def script() -> None:
        await asyncio.sleep(3)
        for number in range(30):
            executing.submit(f"small-{number:02}", tenant_id="other")
        await asyncio.sleep(2)
        small = [executing.get(f"small-{number:02}", tenant_id="other") for number in range(30)]
        assert {call.status for call in small} == {CallStatus.SUCCEEDED}
        await asyncio.sleep(120)

    executing.run(script)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert most <= 10 + 25, "8 MB are ten bodies of 200 kB four times; they are begun in batches of 25"


# -- stops ---------------------------------------------------------------------------------------------------------


def test_a_stop_waits_for_calls_under_way_and_begins_no_more(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(200, delay_seconds=8.0)
    executing.submit("first")

    async def script() -> None:
        await asyncio.sleep(1)
        executing.submit("second")

    executing.run(script)
    assert executing.get("first").status is CallStatus.SUCCEEDED
    assert executing.get("second").status is CallStatus.SCHEDULED
    assert executing.clock.elapsed_seconds == pytest.approx(8.5, abs=1)


def test_what_is_under_way_at_the_end_of_a_stop_is_left_to_the_watchdog(
    executing: Executing, caplog: pytest.LogCaptureFixture
) -> None:
    executing.settings = EngineSettings(drain_seconds=3.0)
    executing.sender.answer = lambda request: Script(200, delay_seconds=20.0)
    executing.submit(timeout_seconds=30)
    executing.run_for(1)
    assert executing.get().status is CallStatus.RUNNING
    assert [record.action for record in caplog.records if record.levelno >= logging.WARNING] == ["firing.abandoned"]
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


def test_the_watchdog_needs_no_time(executing: Executing) -> None:
    """A poller that has too little left for the call itself ends its overdue execution."""
    begin_and_vanish(executing, timeout_seconds=300)
    executing.clock.advance(305)
    executing.run(lambda: asyncio.sleep(2), deadline=executing.clock.monotonic() + 60.0)
    assert executing.get().status is CallStatus.FAILED


def test_a_token_tells_the_whole_call(executing: Executing) -> None:
    """What concludes it may be stored by a store that writes the whole of it."""
    executing.submit()
    (result,) = executing.executor().begin([turn(executing)], leases=own_all(executing), now=at(0))
    assert result.message is not None
    token = result.message.token
    assert isinstance(token, OpenExecution)
    assert token.call == executing.get()
    assert [token.execution] == executing.executions()
