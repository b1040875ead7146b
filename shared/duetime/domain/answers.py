"""Answers to a firing that waits: its receiver took the work (a 202), and says later what came of it. Pure.

An answer is stored where the attempt is logged, and makes the timer due: the poller records what it means by the
rules for every response (docs/decisions/0041-acknowledgements.md).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from duetime.domain.attempts import AttemptOutcome, AttemptRecord, newest_attempt, read_attempts, with_newest_as
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.domain.times import MILLISECOND, round_up, to_milliseconds

LONGEST_WAIT: Final = timedelta(hours=24)
"""From the start of an attempt, however often it is prolonged."""
MAX_MESSAGE_CHARACTERS: Final = 200
_NACKED: Final = "the receiver took the work and answered nack"


class AnswerKind(StrEnum):
    ACK = "ack"
    """It is done."""
    NACK = "nack"
    """It failed."""
    HEARTBEAT = "heartbeat"
    """It goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``attempt`` None: the present one, whichever it is.

    ``message`` and ``is_final`` (no further attempt) are of NACK; ``within_seconds``, until the next sign of life, is
    of HEARTBEAT. ``life``: see ``life_of``; None: the present one.
    """

    kind: AnswerKind
    firing_id: str
    attempt: int | None = None
    life: str | None = None
    message: str | None = None
    is_final: bool = False
    within_seconds: float = 0.0


class Refusal(StrEnum):
    """Why an answer is not taken."""

    OVER = "over"
    """The timer is at another firing or attempt, or has another answer."""
    EARLY = "early"
    """The attempt has not been answered with a 202, as far as it is stored."""


def life_of(timer: Timer) -> str:
    """Tell apart attempts of a firing that have the same number: before and after a redrive, of an occurrence and of
    each of its backfills."""
    is_beside = timer.schedule is not None and not timer.schedule.number
    at = timer.content.execute_at if is_beside else timer.rearmed_at
    return "" if at is None else str(to_milliseconds(at))


def waits_until(started_at: datetime, now: datetime, within_seconds: float) -> datetime:
    """Return until when an answer is awaited of an attempt that began at ``started_at``."""
    return round_up(min(now + timedelta(seconds=within_seconds), started_at + LONGEST_WAIT))


def waiting_attempt(timer: Timer) -> AttemptRecord:
    """Return the log's entry of the attempt for which ``timer`` waits; a damaged one reads as without an answer."""
    number = timer.attempts + 1
    return newest_attempt(timer.attempt_log, firing_id=timer.firing_id, number=number) or AttemptRecord(
        number=number,
        firing_id=timer.firing_id,
        started_at=timer.updated_at,
        duration_ms=0,
        outcome=AttemptOutcome.WAITING,
        headers={},
    )


def answered(timer: Timer, answer: Answer, *, now: datetime) -> Timer | Refusal:
    """Return ``timer`` with ``answer``; itself when it has this answer already, in any state."""
    if timer.firing_id != answer.firing_id or answer.life not in (None, life_of(timer)):
        return Refusal.OVER
    number = timer.attempts + 1
    if timer.state is not TimerState.WAITING or answer.attempt not in (None, number):
        if _repeats(answer, logged_attempt(timer, answer.attempt)):
            return timer
        is_early = not timer.state.is_finished and answer.attempt in (None, number)
        return Refusal.EARLY if is_early else Refusal.OVER
    attempt = waiting_attempt(timer)
    if attempt.outcome is not AttemptOutcome.WAITING:
        return timer if _repeats(answer, attempt) else Refusal.OVER
    if answer.kind is AnswerKind.HEARTBEAT:
        until = waits_until(attempt.started_at, now, answer.within_seconds)
        return replace(timer, next_attempt_at=until, revision=timer.revision + 1, updated_at=now)
    return replace(
        timer,
        attempt_log=with_newest_as(timer.attempt_log, _ended(attempt, answer, now)),
        next_attempt_at=round_up(now),
        revision=timer.revision + 1,
        updated_at=now,
    )


def _ended(attempt: AttemptRecord, answer: Answer, now: datetime) -> AttemptRecord:
    ended = replace(attempt, duration_ms=max(0, (now - attempt.started_at) // MILLISECOND))
    if answer.kind is AnswerKind.ACK:
        return replace(ended, outcome=AttemptOutcome.FIRED)
    message = answer.message
    return replace(
        ended,
        outcome=AttemptOutcome.FAILED if answer.is_final else AttemptOutcome.RETRY,
        reason=FailureReason.NACK,
        message=_NACKED,
        body=message or attempt.body,
        body_bytes=len(message.encode(errors="replace")) if message else attempt.body_bytes,
        body_truncated=attempt.body_truncated and not message,
    )


def logged_attempt(timer: Timer, number: int | None) -> AttemptRecord | None:
    """Return the last entry in the log of an attempt of the present firing, or of its newest attempt."""
    for each in reversed(read_attempts(timer.attempt_log)):
        if each.firing_id == timer.firing_id and number in (None, each.number):
            return each
    return None


def _repeats(answer: Answer, attempt: AttemptRecord | None) -> bool:
    if attempt is None:
        return False
    if answer.kind is AnswerKind.ACK:
        return attempt.outcome is AttemptOutcome.FIRED
    return answer.kind is AnswerKind.NACK and attempt.reason is FailureReason.NACK
