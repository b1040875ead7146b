"""Service calls from their submission to their end: the real engine and store, virtual time, a scripted receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace

import pytest

from duetime.delivery.port import Callback, TransportError
from duetime.domain.call_steps import CallRules
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus, Method, timer_of
from duetime.domain.timers import TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW
from tests.support.dynamodb import moto_subject
from tests.support.engine import at
from tests.support.executing import Executing
from tests.support.scripted_sender import Script, header
from tests.support.stores import memory_store


@contextmanager
def dynamodb_store() -> Iterator[Store]:
    with moto_subject() as subject:
        yield subject.store


STORES: dict[str, Callable[[], AbstractContextManager[Store]]] = {
    "sqlite": memory_store,
    "dynamodb": dynamodb_store,
}


@pytest.fixture(params=["sqlite", "dynamodb"])
def executing(request: pytest.FixtureRequest) -> Iterator[Executing]:
    with STORES[request.param]() as store:
        yield Executing(store, VirtualClock(NOW))  # type: ignore[arg-type]


ON_ONE_STORE = pytest.mark.parametrize("executing", ["sqlite"], indirect=True)
"""For cases that differ in what the receiver answers: a store sees the same kinds of outcomes in all of them."""
NO_RETRY = [
    "ServiceCallSubmitted",
    "ServiceCallScheduled",
    "DueTimeReached",
    "ServiceCallRunning",
    "ExecutionStarted",
]


def timer_state(executing: Executing, call_id: str = "call-1") -> TimerState:
    namespace = executing.store.catalogue.get_namespace(f"calls@{make.TENANT}")
    assert namespace is not None
    timer = executing.store.timers.get(namespace, call_id, now=executing.clock.now())
    assert timer is not None
    return timer.state


@pytest.mark.parametrize("due", [None, -3600, 0])
def test_what_is_due_now_or_past_is_executed_at_once(executing: Executing, due: int | None) -> None:
    executing.submit(due_at=None if due is None else at(due), headers_json='{"Accept": "text/csv"}')
    executing.run_for(2)
    (request,) = executing.sender.requests
    assert (request.method, request.url, request.body) == (
        Method.POST,
        "http://receiver.test/run?token=s3cret",
        b'{"a":1}',
    )
    assert header(request, "accept") == "text/csv"
    assert header(request, "x-duetime-service-call-id") == "call-1"
    call = executing.get()
    assert (call.status, call.attempts, call.wake_at, call.execution_id) == (CallStatus.SUCCEEDED, 1, None, None)
    assert call.reached_at is not None
    assert (call.reached_at - at(0)).total_seconds() < 0.5
    assert executing.types() == [*NO_RETRY, "ExecutionSucceeded", "ServiceCallSucceeded"]
    assert timer_state(executing) is TimerState.FIRED
    (execution,) = executing.executions()
    assert header(request, "x-duetime-execution-id") == execution.execution_id


def test_what_is_due_later_is_executed_then_and_not_before(executing: Executing) -> None:
    executing.submit(due_at=at(60))
    executing.run_for(59.9)
    assert executing.sender.requests == []
    assert executing.get().status is CallStatus.SCHEDULED
    executing.run_for(1)
    call = executing.get()
    assert call.status is CallStatus.SUCCEEDED
    assert call.reached_at == at(60)


def test_a_hint_makes_a_call_start_at_once(executing: Executing) -> None:
    poller = executing.poller()

    async def script() -> None:
        await asyncio.sleep(30.3)
        poller.notify([timer_of(executing.submit())])
        await asyncio.sleep(1)

    executing.run(script, poller)
    started = executing.get().started_at
    assert started is not None
    assert (started - at(30.3)).total_seconds() < 0.005


@ON_ONE_STORE
@pytest.mark.parametrize("status", [301, 400, 404, 429, 500, 503])
def test_what_is_no_2xx_is_failed_with_its_response_kept(executing: Executing, status: int) -> None:
    head = (b"HTTP/1.1 %d X\r\n" % status, b"X-Why: because\r\n", b"Set-Cookie: a=b\r\n", b"\r\n")
    executing.sender.answer = lambda request: Script(status, b'{"error":"no","token":"t"}', head=head)
    executing.submit()
    executing.run_for(2)
    call = executing.get()
    assert call.status is CallStatus.FAILED
    assert call.outcome is not None
    assert (call.outcome.http_status, call.outcome.reason) == (status, CallFailure.HTTP_STATUS)
    (execution,) = executing.executions()
    assert (execution.status, execution.response_status) == (ExecutionStatus.FAILED, status)
    assert execution.response is not None
    assert execution.response.headers == (("X-Why", "because"), ("Set-Cookie", "[redacted]"))
    assert execution.response.body == '{"error":"no","token":"[redacted]"}'
    assert execution.duration_ms == 1
    assert executing.types() == [*NO_RETRY, "ExecutionFailed", "ServiceCallFailed"]


def test_the_request_is_kept_as_it_was_sent_but_for_secrets(executing: Executing) -> None:
    executing.submit(
        method=Method.PUT,
        url="https://receiver.test/a?token=1&b=2",
        headers_json='{"Authorization": "Bearer abc", "X-Own": "o"}',
        body_json='{"password": "p", "n": 1.10}',
    )
    executing.run_for(2)
    (request,) = executing.sender.requests
    assert (request.url, request.body) == ("https://receiver.test/a?token=1&b=2", b'{"password": "p", "n": 1.10}')
    assert header(request, "authorization") == "Bearer abc"
    (execution,) = executing.executions()
    assert (execution.method, execution.url) == (Method.PUT, "https://receiver.test/a?token=[redacted]&b=2")
    headers = dict(execution.request.headers)
    assert (headers["Authorization"], headers["X-Own"], headers["x-duetime-attempt"]) == ("[redacted]", "o", "1")
    assert execution.request.body == '{"password": "[redacted]", "n": 1.10}'
    events = json.dumps([event.document() for event in executing.events()])
    assert "token" not in events


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TransportError.TIMEOUT, CallFailure.TIMEOUT),
        (TransportError.CONNECT, CallFailure.NETWORK),
        (TransportError.TLS, CallFailure.NETWORK),
        (TransportError.REFUSED_URL, CallFailure.REFUSED_URL),
        (TransportError.REFUSED_ADDRESS, CallFailure.REFUSED_ADDRESS),
    ],
)
def test_without_a_response_the_reason_is_kept(
    executing: Executing, error: TransportError, reason: CallFailure
) -> None:
    executing.sender.answer = lambda request: Script(None, error=error)
    executing.submit(timeout_seconds=5)
    executing.run_for(7)
    call = executing.get()
    assert call.status is CallStatus.FAILED
    assert call.outcome is not None
    assert (call.outcome.http_status, call.outcome.reason) == (None, reason)
    (execution,) = executing.executions()
    assert (execution.response, execution.failure) == (None, reason)


# -- retries -------------------------------------------------------------------------------------------------------


def test_a_retry_policy_is_followed_and_every_attempt_is_logged(executing: Executing) -> None:
    answers = iter([Script(503, b"1"), Script(None, error=TransportError.CONNECT), Script(200, b"3")])
    executing.sender.answer = lambda request: next(answers)
    executing.submit(retry_policy_json='{"maxAttempts":5,"initialInterval":"10s"}')
    executing.run_for(60)
    assert executing.get().status is CallStatus.SUCCEEDED
    first, second, third = executing.executions()
    assert [each.number for each in (first, second, third)] == [1, 2, 3]
    assert 7.5 <= (second.started_at - first.started_at).total_seconds() <= 13
    assert 15 <= (third.started_at - second.started_at).total_seconds() <= 26
    assert [header(request, "x-duetime-attempt") for request in executing.sender.requests] == ["1", "2", "3"]
    assert executing.types() == [
        *NO_RETRY,
        "ExecutionFailed",
        "ExecutionStarted",
        "ExecutionFailed",
        "ExecutionStarted",
        "ExecutionSucceeded",
        "ServiceCallSucceeded",
    ]


def test_between_two_attempts_the_call_runs_and_its_due_time_stays_reached(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(503)
    executing.submit(retry_policy_json='{"maxAttempts":2,"initialInterval":"20s"}')
    executing.run_for(1)
    between = executing.get()
    assert (between.status, between.execution_id, between.attempts) == (CallStatus.RUNNING, None, 1)
    assert timer_state(executing) is TimerState.SCHEDULED
    executing.run_for(40)
    call = executing.get()
    assert (call.status, call.attempts) == (CallStatus.FAILED, 2)
    assert (call.reached_at, call.started_at) == (between.reached_at, between.started_at)


@ON_ONE_STORE
@pytest.mark.parametrize("status", [400, 401, 404, 422])
def test_what_will_be_the_same_next_time_is_not_tried_again(executing: Executing, status: int) -> None:
    executing.sender.answer = lambda request: Script(status)
    executing.submit(retry_policy_json='{"maxAttempts":5,"initialInterval":"1s"}')
    executing.run_for(20)
    assert (executing.get().status, executing.get().attempts) == (CallStatus.FAILED, 1)


@ON_ONE_STORE
@pytest.mark.parametrize("status", [301, 408, 425, 429, 500])
def test_what_may_be_better_next_time_is_tried_again(executing: Executing, status: int) -> None:
    executing.sender.answer = lambda request: Script(status)
    executing.submit(retry_policy_json='{"maxAttempts":3,"initialInterval":"1s"}')
    executing.run_for(20)
    assert (executing.get().status, executing.get().attempts) == (CallStatus.FAILED, 3)


def test_the_receiver_may_ask_for_a_later_attempt(executing: Executing) -> None:
    answers = iter([Script(429, retry_after="50"), Script(200)])
    executing.sender.answer = lambda request: next(answers)
    executing.submit(retry_policy_json='{"maxAttempts":2,"initialInterval":"1s"}')
    executing.run_for(49)
    assert len(executing.sender.requests) == 1
    executing.run_for(5)
    assert executing.get().status is CallStatus.SUCCEEDED


# -- changes meanwhile ---------------------------------------------------------------------------------------------


def test_a_change_that_returned_before_the_due_time_is_honoured(executing: Executing) -> None:
    executing.submit(due_at=at(5))

    async def script() -> None:
        await asyncio.sleep(4.9)
        request = replace(executing.get().request, url="http://receiver.test/new")
        executing.amend(due_at=at(8), request=request)
        await asyncio.sleep(10)

    executing.run(script)
    assert [request.url for request in executing.sender.requests] == ["http://receiver.test/new"]
    assert executing.get().reached_at == at(8)


def test_a_call_that_is_starred_and_tagged_while_it_runs_is_concluded_all_the_same(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(200, b"done", delay_seconds=2.0)
    executing.submit()

    async def script() -> None:
        await asyncio.sleep(1.5)
        assert executing.get().status is CallStatus.RUNNING
        executing.amend(starred=True)
        executing.amend(tags=("late",))
        await asyncio.sleep(3)

    executing.run(script)
    call = executing.get()
    assert (call.status, call.starred, call.tags) == (CallStatus.SUCCEEDED, True, ("late",))
    (execution,) = executing.executions()
    assert execution.response is not None
    assert execution.response.body == "done"
    assert len(executing.sender.requests) == 1


def cancel(executing: Executing, call_id: str) -> bool:
    """As the API does: False when the call is in flight, has ended, or was changed since it was read."""
    call, now = executing.get(call_id), executing.clock.now()
    return call.is_waiting and executing.calls.apply([make.cancelled(call, now=now)], now=now) == [
        ApplyStatus.APPLIED
    ]


def test_what_was_cancelled_is_never_sent_after_however_late_the_cancel(executing: Executing) -> None:
    ids = [executing.submit(f"call-{number:03}", due_at=at(5)).call_id for number in range(60)]
    cancelled: dict[str, float] = {}

    async def script() -> None:
        await asyncio.sleep(4.9)
        for call_id in ids:
            await asyncio.sleep(0.004)  # from 96 ms before the due time to 140 ms after it
            if cancel(executing, call_id):
                cancelled[call_id] = executing.clock.monotonic()
        await asyncio.sleep(10)

    executing.run(script)
    sent = [header(request, "x-duetime-service-call-id") or "" for request in executing.sender.requests]
    assert sorted([*sent, *cancelled]) == ids
    assert len(cancelled) >= 20
    for call_id in ids:
        finals = [event.type for event in executing.events(call_id) if event.type.is_terminal]
        assert finals == ["ServiceCallCancelled" if call_id in cancelled else "ServiceCallSucceeded"]


def test_a_call_that_is_cancelled_between_attempts_is_not_sent_again(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(503)
    executing.submit(retry_policy_json='{"maxAttempts":5,"initialInterval":"10s"}')

    async def script() -> None:
        await asyncio.sleep(5)
        assert cancel(executing, "call-1")
        await asyncio.sleep(100)

    executing.run(script)
    assert len(executing.sender.requests) == executing.get().attempts == 1


def test_a_call_between_attempts_is_tried_when_it_is_made_due(executing: Executing) -> None:
    executing.sender.answer = lambda request: Script(200 if len(executing.sender.requests) > 1 else 503)
    executing.submit(retry_policy_json='{"maxAttempts":5,"initialInterval":"1h"}')

    async def script() -> None:
        await asyncio.sleep(5)
        executing.amend(due_at=executing.clock.now(), request=replace(executing.get().request, url="http://b.test/"))
        await asyncio.sleep(5)

    executing.run(script)
    assert [request.url for request in executing.sender.requests][1:] == ["http://b.test/"]
    assert executing.get().status is CallStatus.SUCCEEDED


# -- many ----------------------------------------------------------------------------------------------------------


def test_many_calls_are_executed_once_each_by_two_pollers(executing: Executing) -> None:
    for number in range(60):
        executing.submit(f"call-{number:03}", due_at=at(number % 5))
    other = executing.poller(worker_id="worker-b", sender=executing.sender.for_another_poller())
    executing.run_for(20, executing.poller(), other)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    ids = [header(request, "x-duetime-service-call-id") or "" for request in executing.sender.requests]
    assert sorted(ids) == sorted(call.call_id for call in executing.all())


def test_calls_that_hang_do_not_starve_those_of_other_hosts_and_tenants(executing: Executing) -> None:
    executing.settings = EngineSettings(max_in_flight=40, max_slow_in_flight=30, max_in_flight_per_host=20)
    executing.add_tenant("other")

    def answer(request: Callback) -> Script:
        return Script(200, delay_seconds=25.0 if "slow" in request.url else 0.05)

    executing.sender.answer = answer
    for number in range(80):
        executing.submit(f"slow-{number:03}", url="http://slow.test/")

    async def script() -> None:
        await asyncio.sleep(5)
        for number in range(20):
            executing.submit(f"fast-{number:02}", url="http://fast.test/")
            executing.submit(f"other-{number:02}", tenant_id="other", url="http://fast.test/")
        await asyncio.sleep(3)
        fast = [executing.get(f"fast-{number:02}") for number in range(20)]
        others = [executing.get(f"other-{number:02}", tenant_id="other") for number in range(20)]
        assert {call.status for call in fast + others} == {CallStatus.SUCCEEDED}

    executing.run(script)


def test_the_limits_of_a_tenants_namespace_hold_for_its_calls(executing: Executing) -> None:
    namespace = executing.store.catalogue.get_namespace(f"calls@{make.TENANT}")
    assert namespace is not None
    settings = replace(namespace.settings, max_in_flight=4)
    executing.store.catalogue.update_namespace(
        replace(namespace, settings=settings), if_revision=1, now=executing.clock.now()
    )
    executing.sender.answer = lambda request: Script(200, delay_seconds=0.2)
    for number in range(40):
        executing.submit(f"call-{number:02}")
    executing.run_for(10)
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert executing.sender.most_in_flight == 4


def test_retention_is_set_when_a_call_ends(executing: Executing) -> None:
    executing.rules = CallRules(retention_seconds=100.0)
    executing.submit()
    executing.run_for(2)
    call = executing.get()
    assert call.finished_at is not None
    assert call.expires_at is not None
    assert (call.expires_at - call.finished_at).total_seconds() == 100
