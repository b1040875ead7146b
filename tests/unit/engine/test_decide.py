from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.attempts import MAX_ATTEMPTS_LOGGED, AttemptOutcome, AttemptRecord, read_attempts
from duetime.domain.outcomes import Outcome
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.engine.response.classify import Classification, Disposition
from duetime.engine.response.decide import RESCHEDULE_FLOOR_SECONDS, expired, outcome_of, parked
from duetime.engine.settings import EngineSettings
from tests.support.clock import NOW as START
from tests.support.engine import make_timer

SETTINGS = EngineSettings(fired_retention_seconds=100.0, failed_retention_seconds=200.0)
NOW = START + timedelta(seconds=1)


def result_of(status: int | None) -> CallbackResult:
    error = TransportError.CONNECT if status is None else None
    return CallbackResult(1, status, b"", None, error, "", 0.012, head=(b"HTTP/1.1 200 OK\r\n",))


def outcome(
    timer: Timer,
    answer: Classification,
    status: int | None = None,
    *,
    result: CallbackResult | None = None,
    fired_at: datetime = START,
    now: datetime = NOW,
    settings: EngineSettings = SETTINGS,
    policy: RetryPolicy = DEFAULT_RETRY_POLICY,
) -> Outcome:
    return outcome_of(
        timer,
        answer,
        result=result or result_of(status),
        fired_at=fired_at,
        now=now,
        settings=settings,
        default_policy=policy,
        random=0.5,
        new_firing_id="next-firing",
    )


def test_fired() -> None:
    timer = make_timer("t")
    result = outcome(timer, Classification(Disposition.FIRED), 200)
    assert (result.state, result.attempts, result.next_attempt_at) == (TimerState.FIRED, 1, None)
    assert (result.fired_at, result.expires_at) == (START, NOW + timedelta(seconds=100))
    assert result.failure is None


def test_a_rescheduled_timer_is_another_firing_with_its_attempts_ahead() -> None:
    later = START + timedelta(hours=1)
    result = outcome(make_timer("t"), Classification(Disposition.RESCHEDULE, next_execute_at=later), 200)
    assert (result.state, result.attempts) == (TimerState.SCHEDULED, 0)
    assert result.execute_at == result.next_attempt_at == later
    assert (result.firing_id, result.fired_at, result.expires_at) == ("next-firing", START, None)


def test_a_retry_keeps_the_firing_and_the_due_time() -> None:
    timer = make_timer("t", retry_policy_json='{"initialInterval": "4s", "maxAttempts": 2}')
    answer = Classification(Disposition.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
    result = outcome(timer, answer, 503)
    assert (result.state, result.attempts, result.firing_id) == (TimerState.SCHEDULED, 1, timer.firing_id)
    assert result.next_attempt_at == NOW + timedelta(seconds=4)
    assert result.execute_at == timer.content.execute_at
    assert result.failure is not None
    assert (result.failure.status, result.failure.at) == (503, NOW)


@pytest.mark.parametrize("disposition", [Disposition.RETRY, Disposition.FAILED])
def test_a_timer_fails_when_its_attempts_are_exhausted_or_refused(disposition: Disposition) -> None:
    timer = make_timer("t", retry_policy_json='{"maxAttempts": 1}')
    result = outcome(timer, Classification(disposition, reason=FailureReason.NETWORK, message="reset"))
    assert (result.state, result.attempts, result.next_attempt_at) == (TimerState.FAILED, 1, None)
    assert result.expires_at == NOW + timedelta(seconds=200)


RETRY = Classification(Disposition.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
AN_HOUR = '{"initialInterval": "4s", "backoffMultiplier": 1, "maxAttempts": 1000, "maxAttemptsDuration": "1h"}'


def tried(timer: Timer, *, started: datetime) -> Outcome:
    return outcome(timer, RETRY, 503, fired_at=started, now=started)


def as_recorded(result: Outcome) -> Timer:
    return replace(result.timer, attempts=result.attempts, attempt_log=result.attempt_log)


def test_how_long_it_may_be_tried_counts_from_the_first_attempt_however_late_that_was() -> None:
    """More attempts than the log keeps, of a timer whose due time passed three days before."""
    timer = make_timer("t", execute_at=START - timedelta(days=3), retry_policy_json=AN_HOUR)
    for number in range(30):
        result = tried(timer, started=START + timedelta(minutes=number))
        assert result.state is TimerState.SCHEDULED
        timer = as_recorded(result)
    assert len(read_attempts(timer.attempt_log)) == MAX_ATTEMPTS_LOGGED
    assert tried(timer, started=START + timedelta(minutes=59)).state is TimerState.SCHEDULED
    assert tried(timer, started=START + timedelta(hours=1)).state is TimerState.FAILED


def test_how_long_it_may_be_tried_counts_from_a_redrive() -> None:
    timer = as_recorded(tried(make_timer("t", retry_policy_json=AN_HOUR), started=START))
    late = START + timedelta(hours=2)
    assert tried(timer, started=late).state is TimerState.FAILED
    assert tried(replace(timer, rearmed_at=late), started=late).state is TimerState.SCHEDULED
    assert tried(replace(timer, attempts=0), started=late).state is TimerState.SCHEDULED


@pytest.mark.parametrize("log", [None, "", "not json", "[]", "[[1]]", '[["x","f",0,0,"Retry"]]'])
def test_a_log_that_tells_no_first_attempt_costs_no_retries(log: str | None) -> None:
    timer = replace(make_timer("t", retry_policy_json=AN_HOUR), attempts=5, attempt_log=log)
    late = START + timedelta(days=5)
    result = tried(timer, started=late)
    assert result.state is TimerState.SCHEDULED
    assert tried(as_recorded(result), started=late + timedelta(hours=1)).state is TimerState.FAILED


def test_the_first_attempt_of_another_firing_does_not_count() -> None:
    timer = as_recorded(tried(make_timer("t", retry_policy_json=AN_HOUR), started=START))
    late = START + timedelta(hours=2)
    assert tried(replace(timer, firing_id="another"), started=late).state is TimerState.SCHEDULED


def test_a_damaged_retry_policy_falls_back_to_the_default() -> None:
    timer = make_timer("t", retry_policy_json="not json")
    result = outcome(timer, Classification(Disposition.RETRY, reason=FailureReason.NETWORK, message="reset"))
    assert result.next_attempt_at == NOW + timedelta(seconds=2)


def test_a_parked_timer_may_be_fired_again_only_after_its_own_deadline() -> None:
    timer = make_timer("t", callback_timeout_seconds=30)
    result = parked(timer, fired_at=START)
    assert (result.state, result.attempts) == (TimerState.FIRING, 0)
    assert result.next_attempt_at == START + timedelta(seconds=35)


def logged(result: Outcome) -> AttemptRecord:
    return read_attempts(result.attempt_log)[-1]


@pytest.mark.parametrize(
    ("answer", "policy", "outcome_in_log"),
    [
        (Classification(Disposition.FIRED), None, AttemptOutcome.FIRED),
        (Classification(Disposition.RESCHEDULE, next_execute_at=NOW), None, AttemptOutcome.RESCHEDULED),
        (Classification(Disposition.RETRY, reason=FailureReason.NOT_OK, message="no"), None, AttemptOutcome.RETRY),
        (
            Classification(Disposition.RETRY, reason=FailureReason.NOT_OK, message="no"),
            '{"maxAttempts": 1}',
            AttemptOutcome.FAILED,
        ),
        (Classification(Disposition.FAILED, reason=FailureReason.NOT_OK, message="no"), None, AttemptOutcome.FAILED),
    ],
)
def test_every_attempt_is_logged_as_what_it_led_to(
    answer: Classification, policy: str | None, outcome_in_log: AttemptOutcome
) -> None:
    timer = make_timer("t", retry_policy_json=policy)
    record = logged(outcome(timer, answer, 200))
    assert (record.number, record.firing_id, record.outcome) == (1, timer.firing_id, outcome_in_log)
    assert (record.started_at, record.duration_ms, record.status) == (START, 12, 200)
    assert (record.reason, record.message, record.error_class) == (answer.reason, answer.message, None)


def test_an_attempt_without_an_answer_is_logged_with_its_error() -> None:
    record = logged(
        outcome(make_timer("t"), Classification(Disposition.RETRY, reason=FailureReason.NETWORK, message="reset"))
    )
    assert (record.status, record.error_class, record.message) == (None, "connect", "reset")
    assert (record.headers, record.body, record.body_bytes, record.body_truncated) == ({}, None, 0, False)


def test_earlier_attempts_stay_in_the_log() -> None:
    retry = Classification(Disposition.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
    timer = make_timer("t")
    first = outcome(timer, retry, 503)
    second = outcome(
        replace(timer, attempts=1, attempt_log=first.attempt_log), Classification(Disposition.FIRED), 200
    )
    assert [record.number for record in read_attempts(second.attempt_log)] == [1, 2]


def test_parking_leaves_the_log_alone() -> None:
    assert parked(make_timer("t"), fired_at=START).attempt_log is None


@pytest.mark.parametrize(
    ("body", "excerpt_bytes", "kept", "is_cut"),
    [
        (b"", 256, None, False),
        (b"hello", 256, "hello", False),
        (b"hello", 5, "hello", False),
        (b"hello", 4, "hell", True),
        (b"hello", 0, None, True),
        ("aż".encode(), 2, "a", True),
        (b"a\xff\0", 256, "a\ufffd\0", False),
    ],
)
def test_the_log_keeps_the_beginning_of_the_answer(
    body: bytes, excerpt_bytes: int, kept: str | None, is_cut: bool
) -> None:
    result = outcome(
        make_timer("t"),
        Classification(Disposition.FAILED, reason=FailureReason.HTTP_STATUS, message="no"),
        result=CallbackResult(1, 400, body, None, None, "", 0.5, head=(b"X-A: b\r\n",)),
        settings=replace(SETTINGS, attempt_excerpt_bytes=excerpt_bytes),
    )
    record = logged(result)
    assert (record.body, record.body_bytes, record.body_truncated) == (kept, len(body), is_cut)
    assert record.headers == {"x-a": "b"}


def test_of_the_answer_to_a_success_little_is_kept() -> None:
    head = (b"Server: x\r\n", b"X-Request-Id: r1\r\n", b"Content-Type: text/plain\r\n", b"X-A: b\r\n")
    result = outcome(
        make_timer("t"),
        Classification(Disposition.FIRED),
        result=CallbackResult(1, 200, b"x" * 1000, None, None, "", 0.5, head=head),
    )
    record = logged(result)
    assert (record.body, record.body_bytes, record.body_truncated) == ("x" * 64, 1000, True)
    assert record.headers == {"content-type": "text/plain", "x-request-id": "r1"}


def test_a_receiver_that_names_the_past_is_called_again_after_the_floor() -> None:
    past = START - timedelta(days=1)
    result = outcome(make_timer("t"), Classification(Disposition.RESCHEDULE, next_execute_at=past), 200)
    floor = NOW + timedelta(seconds=RESCHEDULE_FLOOR_SECONDS)
    assert result.execute_at == result.next_attempt_at == floor


def test_the_namespace_says_how_timers_without_a_policy_are_retried() -> None:
    answer = Classification(Disposition.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
    policy = RetryPolicy(max_attempts=1)
    own = make_timer("t", retry_policy_json='{"maxAttempts": 2}')
    damaged = make_timer("t", retry_policy_json="{")

    assert outcome(make_timer("t"), answer, 503, policy=policy).state is TimerState.FAILED
    assert outcome(damaged, answer, 503, policy=policy).state is TimerState.FAILED
    assert outcome(own, answer, 503, policy=policy).state is TimerState.SCHEDULED


def test_a_timer_that_is_too_late_fails_without_an_attempt() -> None:
    timer = replace(make_timer("t", expire_after_ms=1500), attempts=2)
    result = expired(timer, now=NOW, settings=SETTINGS)
    assert (result.state, result.attempts, result.next_attempt_at) == (TimerState.FAILED, 2, None)
    assert result.failure is not None
    assert (result.failure.reason, result.failure.at) == (FailureReason.EXPIRED, NOW)
    assert "1.5 s" in result.failure.message
    assert result.expires_at == NOW + timedelta(seconds=200)
