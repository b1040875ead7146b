from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.delivery.answers import Answer, Verdict
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.engine.outcomes import outcome_of, parked
from duetime.engine.settings import EngineSettings
from tests.support.engine import make_timer
from tests.support.virtual_time import START

SETTINGS = EngineSettings(fired_retention_seconds=100.0, failed_retention_seconds=200.0)
NOW = START + timedelta(seconds=1)


def outcome(timer: Timer, answer: Answer, status: int | None = None) -> Outcome:
    return outcome_of(
        timer,
        answer,
        status=status,
        fired_at=START,
        now=NOW,
        settings=SETTINGS,
        random=0.5,
        new_firing_id="next-firing",
    )


def test_fired() -> None:
    timer = make_timer("t")
    result = outcome(timer, Answer(Verdict.FIRED), 200)
    assert (result.state, result.attempts, result.next_attempt_at) == (TimerState.FIRED, 1, None)
    assert (result.fired_at, result.expires_at) == (START, NOW + timedelta(seconds=100))
    assert result.failure is None


def test_a_rescheduled_timer_is_another_firing_with_its_attempts_ahead() -> None:
    later = START + timedelta(hours=1)
    result = outcome(make_timer("t"), Answer(Verdict.RESCHEDULE, next_execute_at=later), 200)
    assert (result.state, result.attempts) == (TimerState.SCHEDULED, 0)
    assert result.execute_at == result.next_attempt_at == later
    assert (result.firing_id, result.fired_at, result.expires_at) == ("next-firing", START, None)


def test_a_retry_keeps_the_firing_and_the_due_time() -> None:
    timer = make_timer("t", retry_policy_json='{"initialInterval": "4s", "maxAttempts": 2}')
    answer = Answer(Verdict.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
    result = outcome(timer, answer, 503)
    assert (result.state, result.attempts, result.firing_id) == (TimerState.SCHEDULED, 1, timer.firing_id)
    assert result.next_attempt_at == NOW + timedelta(seconds=4)
    assert result.execute_at == timer.content.execute_at
    assert result.failure is not None
    assert (result.failure.status, result.failure.at) == (503, NOW)


@pytest.mark.parametrize("verdict", [Verdict.RETRY, Verdict.FAILED])
def test_a_timer_fails_when_its_attempts_are_exhausted_or_refused(verdict: Verdict) -> None:
    timer = make_timer("t", retry_policy_json='{"maxAttempts": 1}')
    result = outcome(timer, Answer(verdict, reason=FailureReason.NETWORK, message="reset"))
    assert (result.state, result.attempts, result.next_attempt_at) == (TimerState.FAILED, 1, None)
    assert result.expires_at == NOW + timedelta(seconds=200)


def test_how_long_it_may_be_tried_counts_from_a_redrive() -> None:
    timer = make_timer(
        "t",
        execute_at=START - timedelta(days=3),
        retry_policy_json='{"initialInterval": "4s", "maxAttemptsDuration": "1h"}',
    )
    answer = Answer(Verdict.RETRY, reason=FailureReason.HTTP_STATUS, message="status 503")
    assert outcome(timer, answer, 503).state is TimerState.FAILED
    redriven = replace(timer, rearmed_at=START)
    assert outcome(redriven, answer, 503).state is TimerState.SCHEDULED


def test_a_damaged_retry_policy_falls_back_to_the_default() -> None:
    timer = make_timer("t", retry_policy_json="not json")
    result = outcome(timer, Answer(Verdict.RETRY, reason=FailureReason.NETWORK, message="reset"))
    assert result.next_attempt_at == NOW + timedelta(seconds=2)


def test_a_parked_timer_may_be_fired_again_only_after_its_own_deadline() -> None:
    timer = make_timer("t", callback_timeout_seconds=30)
    result = parked(timer, fired_at=START, settings=SETTINGS)
    assert (result.state, result.attempts) == (TimerState.FIRING, 0)
    assert result.next_attempt_at == START + timedelta(seconds=35)
