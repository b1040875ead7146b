"""The steps of a service call, one by one. Their life as a whole: tests/integration/calls/test_machine.py."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from duetime.domain import call_steps
from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import CallRules, Transition
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus, ServiceCall, request_spec, timer_of
from duetime.domain.timers import TimerState
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW

LATER = NOW + seconds(10)


def types(transition: Transition) -> list[str]:
    return [str(event.type) for event in transition.events]


def payload(event: CallEvent) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(event.payload_json)
    return document


def begun(**fields: Any) -> Transition:
    return make.begun(make.submitted(**fields).after, now=LATER)


def retried() -> Transition:
    """The first of three attempts has failed."""
    first = begun(retry_policy_json=make.RETRIED)
    return make.concluded(first.after, first.executions[0], is_ok=False, now=LATER)


# -- submitted -----------------------------------------------------------------------------------------------------


def test_a_call_is_scheduled_for_its_due_time() -> None:
    transition = make.submitted(due_at=LATER, tags=("a", "b"), name="report")
    call = transition.after
    assert transition.before is None
    assert (call.status, call.revision, call.due_at, call.wake_at) == (CallStatus.SCHEDULED, 1, LATER, LATER)
    assert (call.reached_at, call.started_at, call.finished_at, call.execution_id) == (None, None, None, None)
    assert call.registered_at == call.submitted_at == call.updated_at == NOW
    assert types(transition) == ["ServiceCallSubmitted", "ServiceCallScheduled"]
    first, second = transition.events
    assert payload(first)["tags"] == ["a", "b"]
    assert payload(second) == {"dueAt": "2026-12-20T15:30:10.000Z"}


def test_without_a_due_time_a_call_is_due_at_once() -> None:
    assert make.submitted().after.due_at == NOW


def test_an_event_never_shows_the_query_of_the_url() -> None:
    transition = make.submitted(url="http://receiver.test/run?token=s3cret#x")
    assert payload(transition.events[0])["url"] == "http://receiver.test/run"


def test_what_is_repeated_is_the_cause_of_the_first_event() -> None:
    transition = make.submitted(rerun_of="call-0")
    assert transition.events[0].causation_id == "call-0"
    assert payload(transition.events[0])["rerunOf"] == "call-0"


# -- amended -------------------------------------------------------------------------------------------------------


def test_a_change_tells_the_names_of_what_is_new_and_the_values_that_are_no_secrets() -> None:
    call = make.submitted(due_at=LATER).after
    transition = make.amended(call, now=LATER, tags=("x",), starred=True, name="other")
    after = transition.after
    assert (after.tags, after.starred, after.name, after.revision, after.updated_at) == (
        ("x",),
        True,
        "other",
        2,
        LATER,
    )
    assert types(transition) == ["ServiceCallUpdated"]
    told = {"changed": ["name", "tags", "starred"], "name": "other", "tags": ["x"], "starred": True}
    assert payload(transition.events[0]) == told
    assert (after.due_at, after.registered_at, after.wake_at) == (call.due_at, call.registered_at, call.wake_at)


def test_a_new_due_time_sets_the_timer_anew() -> None:
    call = make.submitted(due_at=LATER).after
    transition = make.amended(call, now=LATER, due_at=LATER + seconds(60))
    after = transition.after
    assert (after.due_at, after.wake_at, after.registered_at, after.reached_at) == (
        LATER + seconds(60),
        LATER + seconds(60),
        LATER,
        None,
    )
    assert types(transition) == ["ServiceCallUpdated", "ServiceCallScheduled"]
    assert payload(transition.events[0]) == {"changed": ["dueAt"], "dueAt": "2026-12-20T15:31:10.000Z"}
    assert (after.submitted_at, after.revision) == (NOW, 2)


def test_of_another_request_only_what_changed_is_named_and_no_query_header_or_body_shown() -> None:
    call = make.submitted(due_at=LATER).after
    other = request_spec(
        method=call.request.method, url="https://x.example/y?key=secret", headers_json='{"A":"secret"}', body_json="1"
    )
    told = payload(make.amended(call, now=LATER, request=other).events[0])
    assert told == {
        "changed": ["request.url", "request.headers", "request.body"],
        "method": str(call.request.method),
        "url": "https://x.example/y",
    }


def test_between_two_attempts_a_new_due_time_is_that_of_the_next_one_and_is_reached_anew() -> None:
    call = retried().after
    moved = make.amended(call, now=LATER, due_at=LATER + seconds(500)).after
    assert (moved.status, moved.due_at, moved.wake_at) == (CallStatus.RUNNING, LATER + seconds(500), moved.due_at)
    assert (moved.reached_at, moved.started_at) == (None, call.started_at)
    again = make.begun(moved, now=LATER + seconds(501))
    assert types(again) == ["DueTimeReached", "ExecutionStarted"]
    assert (again.after.reached_at, again.after.started_at) == (LATER + seconds(501), call.started_at)


# -- cancelled -----------------------------------------------------------------------------------------------------


def test_a_cancelled_call_is_finished_and_kept_as_others_are() -> None:
    call = make.submitted(due_at=LATER).after
    transition = make.cancelled(call, now=LATER)
    after = transition.after
    assert (after.status, after.finished_at, after.wake_at) == (CallStatus.CANCELLED, LATER, None)
    assert (after.expires_at, after.outcome, after.revision) == (LATER + make.RETENTION, None, 2)
    assert types(transition) == ["ServiceCallCancelled"]
    assert payload(transition.events[0]) == {"attempts": 0, "executionId": None, "status": None}
    assert make.amended(after, now=LATER, starred=True).after.expires_at is None


def test_a_call_that_is_cancelled_between_attempts_keeps_what_came_of_the_last_one() -> None:
    call = retried().after
    transition = make.cancelled(call, now=LATER)
    assert transition.after.outcome == call.outcome is not None
    assert payload(transition.events[0]) == {
        "attempts": 1,
        "executionId": call.outcome.execution_id,
        "status": call.outcome.http_status,
    }


def test_a_star_keeps_a_finished_call_and_without_it_the_call_expires() -> None:
    begin = begun()
    call = make.concluded(begin.after, begin.executions[0], now=LATER).after
    assert call.expires_at == LATER + make.RETENTION
    starred = make.amended(call, now=LATER + seconds(5), starred=True).after
    assert starred.expires_at is None
    assert make.amended(starred, now=LATER + seconds(9), starred=False).after.expires_at == LATER + make.RETENTION


# -- begun ---------------------------------------------------------------------------------------------------------


def test_the_first_execution_is_the_moment_at_which_the_due_time_was_reached() -> None:
    transition = begun(timeout_seconds=7)
    call, (execution,) = transition.after, transition.executions
    deadline = LATER + seconds(7 + make.RULES.watchdog_grace_seconds)
    assert (call.status, call.attempts, call.revision) == (CallStatus.RUNNING, 1, 2)
    assert (call.reached_at, call.started_at, call.wake_at) == (LATER, LATER, deadline)
    assert call.execution_id == execution.execution_id
    assert (execution.number, execution.status) == (1, ExecutionStatus.RUNNING)
    assert (execution.started_at, execution.deadline_at, execution.finished_at) == (LATER, deadline, None)
    assert types(transition) == ["DueTimeReached", "ServiceCallRunning", "ExecutionStarted"]
    assert payload(transition.events[0]) == {
        "dueAt": "2026-12-20T15:30:00.000Z",
        "reachedAt": "2026-12-20T15:30:10.000Z",
    }


def test_the_due_time_is_reached_once() -> None:
    between = retried().after
    later = LATER + seconds(60)
    transition = make.begun(between, now=later)
    call, (execution,) = transition.after, transition.executions
    assert (call.reached_at, call.started_at) == (LATER, LATER)
    assert (call.attempts, execution.number, execution.started_at) == (2, 2, later)
    assert types(transition) == ["ExecutionStarted"]


def test_a_deadline_is_rounded_up_to_a_millisecond() -> None:
    call = make.submitted(timeout_seconds=1).after
    transition = call_steps.begun(
        call,
        url=call.request.url,
        sent=make.SENT,
        execution_id="e",
        new_id=make.ids_at(NOW),
        now=NOW,
        rules=CallRules(watchdog_grace_seconds=0.0001),
    )
    assert transition.after.wake_at == NOW + seconds(1.001)


# -- concluded -----------------------------------------------------------------------------------------------------


def test_a_success() -> None:
    begin = begun()
    transition = make.concluded(begin.after, begin.executions[0], now=LATER + seconds(2))
    call, (execution,) = transition.after, transition.executions
    assert (call.status, call.wake_at, call.execution_id) == (CallStatus.SUCCEEDED, None, None)
    assert (call.finished_at, call.expires_at) == (LATER + seconds(2), LATER + seconds(2) + make.RETENTION)
    assert call.outcome is not None
    assert (call.outcome.execution_id, call.outcome.http_status, call.outcome.reason) == (
        execution.execution_id,
        200,
        None,
    )
    assert (execution.status, execution.response_status, execution.response) == (
        ExecutionStatus.SUCCEEDED,
        200,
        make.ANSWER,
    )
    assert types(transition) == ["ExecutionSucceeded", "ServiceCallSucceeded"]


def test_a_failure_of_the_only_attempt() -> None:
    begin = begun()
    transition = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER)
    assert transition.after.status is CallStatus.FAILED
    assert transition.after.outcome is not None
    assert transition.after.outcome.reason is CallFailure.HTTP_STATUS
    assert types(transition) == ["ExecutionFailed", "ServiceCallFailed"]
    assert payload(transition.events[0])["nextAttemptAt"] is None
    assert payload(transition.events[1])["reason"] == "HttpStatus"


def test_a_failure_that_will_be_tried_again() -> None:
    transition = retried()
    call = transition.after
    assert (call.status, call.execution_id, call.finished_at, call.expires_at) == (
        CallStatus.RUNNING,
        None,
        None,
        None,
    )
    assert call.wake_at == LATER + seconds(10)  # without jitter
    assert call.outcome is not None
    assert types(transition) == ["ExecutionFailed"]
    assert payload(transition.events[0])["nextAttemptAt"] == "2026-12-20T15:30:20.000Z"


@pytest.mark.parametrize(
    ("fields", "wake_at"),
    [
        ({"is_final": True}, None),
        ({"retry_after_seconds": 60.0}, LATER + seconds(60)),
        ({"retry_after_seconds": 1.0}, LATER + seconds(10)),
    ],
)
def test_what_the_receiver_says_about_another_attempt(fields: dict[str, Any], wake_at: object) -> None:
    begin = begun(retry_policy_json=make.RETRIED)
    transition = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER, **fields)
    assert transition.after.wake_at == wake_at
    assert transition.after.status is (CallStatus.FAILED if wake_at is None else CallStatus.RUNNING)


def test_the_last_attempt_ends_the_call() -> None:
    call = retried().after
    for number in (2, 3):
        begin = make.begun(call, now=LATER)
        call = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER).after
        assert call.attempts == number
    assert call.status is CallStatus.FAILED


def test_how_long_a_call_may_be_tried_counts_from_its_first_execution() -> None:
    policy = '{"maxAttempts":100,"maxAttemptsDuration":"15s","initialInterval":"10s"}'
    begin = begun(retry_policy_json=policy, due_at=NOW - seconds(3600))
    call = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER).after
    assert call.wake_at == LATER + seconds(10)
    begin = make.begun(call, now=LATER + seconds(10))
    call = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER + seconds(10)).after
    assert call.status is CallStatus.FAILED


def test_a_starred_call_that_ends_does_not_expire() -> None:
    begin = begun()
    starred = make.amended(begin.after, now=LATER, starred=True).after
    assert make.concluded(starred, begin.executions[0], now=LATER).after.expires_at is None


def test_another_execution_cannot_conclude_a_call() -> None:
    begin = begun()
    other = replace(begin.executions[0], execution_id="other")
    with pytest.raises(AssertionError):
        make.concluded(begin.after, other, now=LATER)


# -- the watchdog --------------------------------------------------------------------------------------------------


def timed_out(begin: Transition) -> Transition:
    return call_steps.timed_out(
        begin.after,
        begin.executions[0],
        new_id=make.ids_at(LATER),
        now=LATER + seconds(60),
        rules=make.RULES,
        random=0.5,
    )


def test_the_watchdog_ends_an_execution_as_timed_out() -> None:
    transition = timed_out(begun())
    (execution,) = transition.executions
    assert transition.after.status is CallStatus.FAILED
    assert transition.after.outcome is not None
    assert transition.after.outcome.reason is CallFailure.TIMEOUT
    assert (execution.status, execution.failure, execution.duration_ms) == (
        ExecutionStatus.FAILED,
        CallFailure.TIMEOUT,
        None,
    )
    assert types(transition) == ["ExecutionFailed", "ServiceCallFailed"]


def test_after_a_time_out_the_policy_decides() -> None:
    call = timed_out(begun(retry_policy_json=make.RETRIED)).after
    assert (call.status, call.wake_at) == (CallStatus.RUNNING, LATER + seconds(70))


# -- events and timers ---------------------------------------------------------------------------------------------


def test_events_are_numbered_without_gaps_and_each_is_caused_by_the_one_before() -> None:
    submitted = make.submitted(due_at=LATER)
    moved = make.amended(submitted.after, now=LATER, due_at=LATER)
    labelled = make.amended(moved.after, now=LATER, starred=True)
    begin = make.begun(labelled.after, now=LATER)
    end = make.concluded(begin.after, begin.executions[0], now=LATER)
    transitions = [submitted, moved, labelled, begin, end]
    events = [event for transition in transitions for event in transition.events]
    assert [event.sequence for event in events] == list(range(1, 11))
    assert events[0].causation_id is None
    assert all(event.causation_id == before.event_id for before, event in pairwise(events))
    assert {(event.tenant_id, event.correlation_id) for event in events} == {(make.TENANT, "corr-1")}
    assert (end.after.event_count, end.after.last_event_id) == (10, events[-1].event_id)
    assert [transition.after.revision for transition in transitions] == [1, 2, 3, 4, 5]


def calls_of_a_life() -> list[tuple[ServiceCall, TimerState]]:
    begin = begun(retry_policy_json=make.RETRIED)
    between = make.concluded(begin.after, begin.executions[0], is_ok=False, now=LATER).after
    again = make.begun(between, now=LATER)
    end = make.concluded(again.after, again.executions[0], now=LATER).after
    return [
        (make.submitted().after, TimerState.SCHEDULED),
        (begin.after, TimerState.FIRING),
        (between, TimerState.SCHEDULED),
        (again.after, TimerState.FIRING),
        (end, TimerState.FIRED),
        (make.cancelled(between).after, TimerState.FIRED),
    ]


@pytest.mark.parametrize(("call", "state"), calls_of_a_life())
def test_the_timer_of_a_call_says_what_the_call_says(call: ServiceCall, state: TimerState) -> None:
    timer = timer_of(call)
    assert (timer.namespace, timer.timer_id, timer.shard_id) == ("calls@acme", call.call_id, call.shard_id)
    assert (timer.state, timer.revision, timer.next_attempt_at) == (state, call.revision, call.wake_at)
    assert (timer.attempts, timer.fired_at, timer.created_at) == (
        call.attempts,
        call.reached_at,
        call.registered_at,
    )
    assert timer.firing_id == call.call_id
    assert (timer.next_attempt_at is None) == timer.state.is_finished
