"""Defines the outcomes of attempts: the change that the engine records on a fired timer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field, replace
from datetime import datetime
from enum import StrEnum

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.occurrences import OccurrenceRecord
from duetime.domain.schedules import Schedule, ScheduleRequest
from duetime.domain.shards import Lease
from duetime.domain.timers import Failure, Timer, TimerState
from duetime.domain.times import to_milliseconds


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleOutcome:
    """What an outcome is beside for a timer that is a schedule, or an occurrence of one.

    ``schedule`` as it stands from now on. ``occurrences`` are the lines of the history that are new, or other than
    before. ``detached``: the pending occurrence goes on as this timer, which is stored in the same transaction.
    ``made_of``: what came of the attempt, as of any timer's; None: nothing was sent. ``again`` decides the same by
    another revision of the schedule, which has the same pending occurrence; None: by this one alone.
    """

    schedule: Schedule
    occurrences: tuple[OccurrenceRecord, ...] = ()
    detached: Timer | None = None
    made_of: Outcome | None = None
    again: Callable[[Timer], Outcome] | None = field(default=None, compare=False)


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The new values of a timer after an attempt. Applies only to the attempt that was made (``reconciled``).

    ``timer`` is the timer as it was read and fired. The recorded revision is the stored one's next.

    - fired: ``state`` FIRED, ``next_attempt_at`` None, ``fired_at`` and ``expires_at`` set
    - retry: ``state`` SCHEDULED, ``next_attempt_at`` later, same ``execute_at`` and ``firing_id``
    - rescheduled by the receiver: ``state`` SCHEDULED, new ``execute_at`` = ``next_attempt_at``, new
      ``firing_id``, ``attempts`` 0
    - parked: ``state`` FIRING, ``next_attempt_at`` = when it may be fired again
    - taken by the receiver: ``state`` WAITING, ``next_attempt_at`` = until when an answer is awaited
    - failed: ``state`` FAILED, ``next_attempt_at`` None, ``failure`` and ``expires_at`` set
    - of a schedule that moves on: ``state`` SCHEDULED, ``execute_at`` and ``firing_id`` of the next occurrence,
      ``attempts`` 0; of one that ends: ``state`` FIRED, ``next_attempt_at`` and ``expires_at`` None
    """

    timer: Timer
    state: TimerState
    attempts: int
    execute_at: datetime
    next_attempt_at: datetime | None
    firing_id: str
    fired_at: datetime | None = None
    failure: Failure | None = None
    expires_at: datetime | None = None
    attempt_log: str | None = None
    """None: as it is on ``timer``."""
    request: ScheduleRequest | None = None
    """What the response asks of the schedule."""
    call_id: str | None = None
    """The service call that was submitted."""
    escalation: Timer | None = None
    """The timer that escalates the failure, which is stored in the same transaction."""
    schedule: ScheduleOutcome | None = None

    @property
    def of_attempt(self) -> Outcome:
        """Return what came of the attempt: of a schedule not where it stands now, but how its occurrence ended."""
        return self if self.schedule is None or self.schedule.made_of is None else self.schedule.made_of

    @property
    def beside(self) -> Timer | None:
        """Return the timer that is stored in the same transaction."""
        if self.schedule is not None and self.schedule.detached is not None:
            return self.schedule.detached
        return self.of_attempt.escalation

    @property
    def is_of_attempt(self) -> bool:
        """Tell whether something was sent: not if it was too late, say, or the timer was put off."""
        timer = self.timer
        if self.schedule is not None and self.timer.is_schedule:
            return self.schedule.made_of is not None and self.schedule.made_of.is_of_attempt
        is_counted = self.attempts != timer.attempts or self.firing_id != timer.firing_id
        return is_counted or self.state.has_open_attempt

    @property
    def is_put_off(self) -> bool:
        """Tell whether the turn of the timer had not come: nothing was sent, and it is due again. Or nothing came of
        its turn but that its schedule has moved on."""
        if self.schedule is not None and self.timer.is_schedule and self.schedule.made_of is None:
            return True
        return self.state is TimerState.SCHEDULED and not self.is_of_attempt


@hot_dataclass(frozen=True, slots=True)
class LeasedOutcome:
    """An outcome and the lease under which its attempt was started.

    Each has its own: a parked attempt may outlive its lease, and its shard may have come back under another version.
    """

    outcome: Outcome
    lease: Lease

    @property
    def fence(self) -> Lease | None:
        """Return the lease that must be the stored one.

        None: a parked timer's row belongs to the attempt that parked it.
        """
        return None if self.outcome.timer.state is TimerState.FIRING else self.lease


class RecordStatus(StrEnum):
    APPLIED = "applied"
    """Written, now or by an earlier try whose answer was lost."""
    SUPERSEDED = "superseded"
    """The timer is another message by now, waits for another attempt, or is gone: nothing was written."""
    LEASE_LOST = "lease_lost"
    """The shard has another owner now: nothing was written."""
    REFUSED = "refused"
    """The database takes everything but this outcome, and will not take it later either: nothing was written."""
    UNAVAILABLE = "unavailable"
    """Where this outcome belongs nothing can be written for now (a partition that is throttled): nothing was written,
    as far as is known, and it is to be recorded again."""


def recorded(outcome: Outcome, *, now: datetime) -> Timer:
    """Return the timer that ``outcome`` leaves when it is recorded at ``now``."""
    timer = outcome.timer
    return replace(
        timer,
        content=replace(timer.content, execute_at=outcome.execute_at),
        state=outcome.state,
        revision=timer.revision + 1,
        firing_id=outcome.firing_id,
        attempts=outcome.attempts,
        next_attempt_at=outcome.next_attempt_at,
        updated_at=now,
        fired_at=outcome.fired_at,
        failure=outcome.failure,
        expires_at=outcome.expires_at,
        attempt_log=timer.attempt_log if outcome.attempt_log is None else outcome.attempt_log,
        schedule=timer.schedule if outcome.schedule is None else outcome.schedule.schedule,
    )


def reconciled(outcome: Outcome, stored: Timer | None) -> Outcome | RecordStatus:
    """Decide about ``outcome`` when ``stored`` is not the revision that was fired.

    APPLIED: an earlier try, whose response was lost, recorded it. An outcome: the attempt still belongs to
    ``stored``, so record this one on it instead. SUPERSEDED: neither.
    """
    if stored is None:
        return RecordStatus.SUPERSEDED
    if _written_by(recorded(outcome, now=stored.updated_at)) == _written_by(stored):
        return RecordStatus.APPLIED
    again = None if outcome.schedule is None else outcome.schedule.again
    if again is not None and _has_same_pending(outcome.timer, stored):
        return again(stored)
    is_unchanged = stored.revision == outcome.timer.revision
    # What came of no attempt, or of no answer, was decided by the old revision alone, and is to be decided anew.
    is_of_row = not outcome.is_of_attempt or outcome.timer.state is TimerState.WAITING
    if _is_same_attempt(outcome.timer, stored) and (is_unchanged or not is_of_row):
        return replace(outcome, timer=stored)
    return RecordStatus.SUPERSEDED


def _is_same_attempt(fired: Timer, stored: Timer) -> bool:
    """Tell whether the attempt of ``fired`` is the one that ``stored`` waits for.

    Changes of labels, retry policy, timeout and expiry keep firing, attempts and state; firing by hand makes it due
    earlier. Any other change renews the firing, counts an attempt, changes the state, or makes the timer due later: a
    redrive, or another worker's attempt that was parked. So does any change of a schedule: what follows
    was computed by the old one (but see ``ScheduleOutcome.again``).
    """
    if _moves_by(stored) != _moves_by(fired):
        return False
    is_same = (stored.firing_id, stored.attempts, stored.state) == (fired.firing_id, fired.attempts, fired.state)
    if not is_same or stored.next_attempt_at is None or fired.next_attempt_at is None:
        return False
    return stored.next_attempt_at <= fired.next_attempt_at


def _has_same_pending(fired: Timer, stored: Timer) -> bool:
    """Tell whether a schedule still has the occurrence that was sent, whatever else was changed of it."""
    if fired.schedule is None or stored.schedule is None or stored.firing_id != fired.firing_id:
        return False
    return stored.schedule.pending == fired.schedule.pending


def _moves_by(timer: Timer) -> tuple[object, ...]:
    """Return what decides where a schedule goes on, but for earlier occurrences, which may have ended meanwhile."""
    schedule = timer.schedule
    return () if schedule is None else (timer.content.timing_json, replace(schedule, open_at=None, failures=None))


def _written_by(timer: Timer) -> tuple[object, ...]:
    """Return what an outcome writes and what identifies it, with instants in milliseconds as stores keep them.

    Excludes the time of the write, which differs with each try.
    """
    failure = timer.failure
    at = None if failure is None else failure.at
    instants = (timer.content.execute_at, timer.next_attempt_at, timer.fired_at, timer.expires_at, at)
    return (
        timer.state,
        timer.attempts,
        timer.firing_id,
        None if failure is None else failure.reason,
        timer.schedule,
        *(None if instant is None else to_milliseconds(instant) for instant in instants),
    )
