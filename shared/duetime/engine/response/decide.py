"""Decides what the classified response makes of its timer: the outcome that is recorded. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final

from duetime.delivery.port import CallbackResult
from duetime.domain.answers import waiting_attempt, waits_until
from duetime.domain.attempts import AttemptOutcome, first_attempt_at, with_newest_as
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.outcomes import Outcome
from duetime.domain.retry import RetryPolicy, policy_in_force
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MILLISECOND, format_instant, round_up
from duetime.engine.response.attempt_log import log_attempt
from duetime.engine.response.classify import Classification, Disposition
from duetime.engine.settings import EngineSettings

RESCHEDULE_FLOOR_SECONDS: Final = 1.0
"""The soonest next firing that a receiver can ask for: one that names the past every time must not keep the poller
busy."""
_PARK_MARGIN_SECONDS: Final = 5.0
"""Until a parked timer is fired again after its callback's own deadline, within which the response is recorded."""


def outcome_of(
    timer: Timer,
    classification: Classification,
    *,
    result: CallbackResult,
    fired_at: datetime,
    now: datetime,
    settings: EngineSettings,
    default_policy: RetryPolicy,
    random: float,
    new_firing_id: str,
) -> Outcome:
    """Return what the attempt started at ``fired_at``, with its classified ``result``, makes of ``timer``.

    ``default_policy`` is the namespace's, for a timer without one of its own. ``random`` in [0, 1) is the jitter.
    ``new_firing_id`` is used when the receiver rescheduled the timer.
    """

    first_started_at = fired_at
    if timer.attempts:
        first_started_at = first_attempt_at(timer.attempt_log, firing_id=timer.firing_id) or fired_at
    attempt = _Attempt(timer, fired_at=fired_at, first_started_at=first_started_at, status=result.status)

    def log(became: AttemptOutcome) -> str:
        return log_attempt(
            timer,
            classification,
            result,
            became,
            fired_at=fired_at,
            first_attempt_at=first_started_at,
            excerpt_bytes=settings.attempt_excerpt_bytes,
        )

    if classification.disposition is Disposition.WAIT:
        until = waits_until(fired_at, now, classification.answer_within_seconds)
        return _waiting(timer, until=until, attempt_log=log(AttemptOutcome.WAITING))
    if classification.disposition is Disposition.RESCHEDULE:
        assert classification.next_execute_at is not None
        earliest = round_up(now + timedelta(seconds=RESCHEDULE_FLOOR_SECONDS))
        at = max(classification.next_execute_at, earliest)
        attempt_log = log(AttemptOutcome.RESCHEDULED)
        return _rescheduled(timer, at=at, fired_at=fired_at, firing_id=new_firing_id, attempt_log=attempt_log)
    return _ended(
        attempt, classification, log=log, now=now, settings=settings, default_policy=default_policy, random=random
    )


def outcome_of_waiting(
    timer: Timer, *, now: datetime, settings: EngineSettings, default_policy: RetryPolicy, random: float
) -> Outcome:
    """Return what the answer to a firing that waits makes of ``timer``, or that none came until its deadline."""
    logged = waiting_attempt(timer)
    duration_ms = logged.duration_ms
    if logged.outcome is AttemptOutcome.FIRED:
        classification = Classification(Disposition.FIRED)
    elif logged.outcome is AttemptOutcome.WAITING:
        deadline = "" if timer.next_attempt_at is None else f" by {format_instant(timer.next_attempt_at)}"
        message = f"the receiver took the work, and has not said{deadline} what came of it"
        classification = Classification(Disposition.RETRY, reason=FailureReason.TIMEOUT, message=message)
        duration_ms = max(0, (now - logged.started_at) // MILLISECOND)
    else:
        is_final = logged.outcome is AttemptOutcome.FAILED
        disposition = Disposition.FAILED if is_final else Disposition.RETRY
        classification = Classification(disposition, reason=FailureReason.NACK, message=logged.message)
    first_started_at = logged.first_started_at or logged.started_at

    def log(became: AttemptOutcome) -> str:
        ended = replace(
            logged,
            duration_ms=duration_ms,
            outcome=became,
            reason=classification.reason,
            message=classification.message,
            first_started_at=logged.first_started_at if became is AttemptOutcome.RETRY else None,
        )
        return with_newest_as(timer.attempt_log, ended)

    attempt = _Attempt(timer, fired_at=logged.started_at, first_started_at=first_started_at, status=logged.status)
    return _ended(
        attempt, classification, log=log, now=now, settings=settings, default_policy=default_policy, random=random
    )


@hot_dataclass(frozen=True, slots=True)
class _Attempt:
    """An attempt of ``timer`` that has ended. ``status``: the receiver's, if it responded."""

    timer: Timer
    fired_at: datetime
    first_started_at: datetime
    status: int | None


def _ended(
    attempt: _Attempt,
    classification: Classification,
    *,
    log: Callable[[AttemptOutcome], str],
    now: datetime,
    settings: EngineSettings,
    default_policy: RetryPolicy,
    random: float,
) -> Outcome:
    """End the timer. ``log`` makes its log with the attempt and what became of the timer."""
    timer, fired_at, first_started_at = attempt.timer, attempt.fired_at, attempt.first_started_at
    attempts = timer.attempts + 1
    if classification.disposition is Disposition.FIRED:
        return _same_firing(
            timer,
            TimerState.FIRED,
            attempts=attempts,
            fired_at=fired_at,
            expires_at=_after(now, settings.fired_retention_seconds),
            attempt_log=log(AttemptOutcome.FIRED),
        )
    assert classification.reason is not None
    failure = Failure(classification.reason, classification.message, now, attempt.status)
    if classification.disposition is Disposition.RETRY:
        retry_at = policy_in_force(timer.content.retry_policy_json, default_policy).next_attempt_at(
            attempts=attempts,
            first_attempt_at=max(first_started_at, timer.rearmed_at or first_started_at),
            now=now,
            random=random,
            retry_after_seconds=classification.retry_after_seconds,
        )
        if retry_at is not None:
            return _same_firing(
                timer,
                TimerState.SCHEDULED,
                attempts=attempts,
                next_attempt_at=retry_at,
                failure=failure,
                attempt_log=log(AttemptOutcome.RETRY),
            )
    attempt_log = log(AttemptOutcome.FAILED)
    return _failed(timer, failure, attempts=attempts, now=now, settings=settings, attempt_log=attempt_log)


def submitted(timer: Timer, call_id: str, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of an occurrence that is the service call ``call_id`` from now on."""
    expires_at = _after(now, settings.fired_retention_seconds)
    fired = _same_firing(timer, TimerState.FIRED, attempts=timer.attempts + 1, fired_at=now, expires_at=expires_at)
    return replace(fired, call_id=call_id)


def unsubmitted(timer: Timer, problem: str, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of an occurrence whose service call is refused for good."""
    failure = Failure(FailureReason.UNRECORDED, f"its service call cannot be stored: {problem}", now)
    return _failed(timer, failure, attempts=timer.attempts + 1, now=now, settings=settings)


@lru_cache(maxsize=16)
def _after(now: datetime, seconds: float) -> datetime:
    """Add ``seconds`` to ``now``: once for a batch, all of which ends at one time."""
    return now + timedelta(seconds=seconds)


def _rescheduled(timer: Timer, *, at: datetime, fired_at: datetime, firing_id: str, attempt_log: str) -> Outcome:
    """Return another firing, with all its attempts ahead."""
    return Outcome(
        timer=timer,
        state=TimerState.SCHEDULED,
        attempts=0,
        execute_at=at,
        next_attempt_at=at,
        firing_id=firing_id,
        fired_at=fired_at,
        attempt_log=attempt_log,
    )


def _waiting(timer: Timer, *, until: datetime, attempt_log: str) -> Outcome:
    return replace(put_off(timer, until=until), state=TimerState.WAITING, attempt_log=attempt_log)


def expired(timer: Timer, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of a timer that it is too late to fire. No attempt is made."""
    failure = Failure(FailureReason.EXPIRED, f"not fired {timer.lateness_limit}", now)
    return failed_as(timer, failure, now=now, settings=settings)


def missed(timer: Timer, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of a timer that came due in a pause of its namespace, and is not to be fired late."""
    failure = Failure(FailureReason.EXPIRED, "it came due while its namespace was paused (misfire)", now)
    return failed_as(timer, failure, now=now, settings=settings)


def unreadable(timer: Timer, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of a timer that stands for something which cannot be read."""
    failure = Failure(FailureReason.UNREADABLE, "what this timer stands for cannot be read as it is stored", now)
    return failed_as(timer, failure, now=now, settings=settings)


def ended_silently(timer: Timer, *, now: datetime) -> Outcome:
    """Return the end of a timer that stands for nothing any more. It reads as absent from ``now`` on."""
    return _same_firing(timer, TimerState.FIRED, attempts=timer.attempts, expires_at=now)


def failed_as(timer: Timer, failure: Failure, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return the end of a timer that nothing is sent for. No attempt is made."""
    return _failed(timer, failure, attempts=timer.attempts, now=now, settings=settings)


def unrecorded(refused: Outcome, *, now: datetime, settings: EngineSettings) -> Outcome:
    """Return what is recorded instead of an outcome that the store refuses: as little as can be, so that the timer
    ends."""
    timer = refused.timer
    message = f"what attempt {refused.attempts} led to ({refused.state}) cannot be stored"
    failure = Failure(FailureReason.UNRECORDED, message, now)
    return _failed(timer, failure, attempts=refused.attempts, now=now, settings=settings)


def put_off(timer: Timer, *, until: datetime) -> Outcome:
    """Make ``timer`` due again at ``until``; no attempt was made."""
    return _same_firing(
        timer, TimerState.SCHEDULED, attempts=timer.attempts, next_attempt_at=until, failure=timer.failure
    )


def _failed(
    timer: Timer,
    failure: Failure,
    *,
    attempts: int,
    now: datetime,
    settings: EngineSettings,
    attempt_log: str | None = None,
) -> Outcome:
    return _same_firing(
        timer,
        TimerState.FAILED,
        attempts=attempts,
        failure=failure,
        expires_at=_after(now, settings.failed_retention_seconds),
        attempt_log=attempt_log,
    )


def _same_firing(
    timer: Timer,
    state: TimerState,
    *,
    attempts: int,
    next_attempt_at: datetime | None = None,
    fired_at: datetime | None = None,
    failure: Failure | None = None,
    expires_at: datetime | None = None,
    attempt_log: str | None = None,
) -> Outcome:
    """Return what becomes of the firing of ``timer``. ``fired_at`` None: as it is on ``timer``."""
    return Outcome(
        timer=timer,
        state=state,
        attempts=attempts,
        execute_at=timer.content.execute_at,
        next_attempt_at=next_attempt_at,
        firing_id=timer.firing_id,
        fired_at=timer.fired_at if fired_at is None else fired_at,
        failure=failure,
        expires_at=expires_at,
        attempt_log=attempt_log,
    )


def parked(timer: Timer, *, fired_at: datetime) -> Outcome:
    """Return the outcome that parks a timer whose callback, started at ``fired_at``, is still in flight."""
    deadline = timer.content.callback_timeout_seconds + _PARK_MARGIN_SECONDS
    until = round_up(fired_at + timedelta(seconds=deadline))
    return replace(put_off(timer, until=until), state=TimerState.FIRING)
