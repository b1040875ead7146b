"""Schedules as timers: what is stored of one at first, and what the outcome of an attempt makes of it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from duetime.domain import ids, schedules
from duetime.domain.attempts import read_attempts
from duetime.domain.ids import (
    occurrence_firing_id,
    occurrence_timer_id,
    schedule_timer_id,
    trigger_timer_id,
)
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import OccurrenceKind, OccurrenceRecord, OccurrenceState
from duetime.domain.outcomes import Outcome, ScheduleOutcome
from duetime.domain.schedules import Missed, Occurrence, Occurrences, Schedule, concluded
from duetime.domain.timers import Timer, TimerContent, TimerState, new_timer
from duetime.domain.times import to_milliseconds


def new_schedule_timer(
    namespace: Namespace, schedule_id: str, content: TimerContent, schedule: Schedule, *, digest: str, now: datetime
) -> Timer:
    """Return the first revision of a schedule. ``content.execute_at`` is ignored."""
    assert schedule.pending is not None
    timer = new_timer(
        namespace,
        schedule_timer_id(schedule_id),
        replace(content, execute_at=schedule.pending.due_at),
        digest=digest,
        firing_id=occurrence_firing_id(namespace.name, schedule_id, schedule.pending.scheduled_at),
        now=now,
    )
    return replace(timer, schedule=schedule, next_attempt_at=schedule.due_at)


def standing_at(timer: Timer, schedule: Schedule, *, now: datetime) -> Timer:
    """Return the next revision of the schedule ``timer``: a client has changed where it stands."""
    pending = schedule.pending
    content, firing_id = timer.content, timer.firing_id
    if pending is not None:
        content = replace(content, execute_at=pending.due_at)
        firing_id = occurrence_firing_id(timer.namespace, timer.schedule_id or "", pending.scheduled_at)
    return replace(
        timer,
        content=content,
        schedule=schedule,
        state=TimerState.FIRED if pending is None else TimerState.SCHEDULED,
        firing_id=firing_id,
        attempts=0,
        next_attempt_at=schedule.due_at,
        revision=timer.revision + 1,
        updated_at=now,
    )


def triggered(timer: Timer, scheduled_at: datetime, *, trigger_id: str, now: datetime) -> Timer:
    """Return the first revision of a timer that fires the schedule ``timer`` at ``now``, beside its occurrences.

    It has number 0. ``trigger_id`` tells the triggers of one time from each other.
    """
    timer_id = trigger_timer_id(timer.schedule_id or "", scheduled_at)
    made = _beside(timer, timer_id, Occurrence(scheduled_at, now), now=now)
    return replace(made, firing_id=str(ids.timer_uuid(timer.namespace, timer_id)), digest=trigger_id)


def backfilled(timer: Timer, occurrence: Occurrence, *, began_at: datetime, now: datetime) -> Timer:
    """Return the first revision of a timer that sends an occurrence of the schedule ``timer`` once more, or late.

    Its webhook-id is that of the occurrence. ``began_at`` tells the backfills of one occurrence from each other.
    """
    schedule_id, scheduled_at = timer.schedule_id or "", occurrence.scheduled_at
    made = _beside(timer, ids.backfill_timer_id(schedule_id, scheduled_at), occurrence, now=now)
    return replace(
        made,
        firing_id=occurrence_firing_id(timer.namespace, schedule_id, scheduled_at),
        digest=f"{timer.digest}-{to_milliseconds(began_at)}",
    )


def _beside(timer: Timer, timer_id: str, occurrence: Occurrence, *, now: datetime) -> Timer:
    """Return the first revision of a timer that sends ``occurrence`` beside what the schedule ``timer`` does."""
    schedule = timer.schedule
    assert schedule is not None
    return replace(
        timer,
        timer_id=timer_id,
        content=replace(timer.content, execute_at=occurrence.due_at, timing_json=None),
        schedule=replace(schedule, pending=occurrence, number=0),
        state=TimerState.SCHEDULED,
        revision=1,
        attempts=0,
        next_attempt_at=occurrence.due_at,
        created_at=now,
        updated_at=now,
        fired_at=None,
        failure=None,
        rearmed_at=None,
        expires_at=None,
        attempt_log=None,
    )


def moved(
    timer: Timer,
    schedule: Schedule,
    *occurrences: OccurrenceRecord,
    made_of: Outcome | None = None,
    detached: Timer | None = None,
    due_at: datetime | None = None,
    again: Callable[[Timer], Outcome] | None = None,
) -> Outcome:
    """Return the outcome that leaves the schedule ``timer`` standing at ``schedule``. ``again`` as of
    ``ScheduleOutcome``.

    ``due_at``: when something is to be done about it, where that is not when its occurrence is due.
    """
    pending, due_at = schedule.pending, due_at or schedule.due_at
    execute_at, firing_id = timer.content.execute_at, timer.firing_id
    if pending is not None:
        execute_at = pending.due_at
        firing_id = occurrence_firing_id(timer.namespace, timer.schedule_id or "", pending.scheduled_at)
    return Outcome(
        timer=timer,
        state=TimerState.FIRED if due_at is None else TimerState.SCHEDULED,
        attempts=0,
        execute_at=execute_at,
        next_attempt_at=due_at,
        firing_id=firing_id,
        fired_at=timer.fired_at if made_of is None else made_of.fired_at,
        failure=timer.failure if made_of is None else made_of.failure,
        schedule=ScheduleOutcome(
            schedule=schedule, occurrences=occurrences, detached=detached, made_of=made_of, again=again
        ),
    )


def after_attempt(
    outcome: Outcome,
    occurrences: Occurrences,
    *,
    now: datetime,
    started_at: datetime | None,
    again: Callable[[Timer], Outcome] | None = None,
) -> Outcome:
    """Return what is recorded of a schedule in the place of ``outcome``, which is as any timer's would be. ``again``
    as of ``ScheduleOutcome``.

    An occurrence that ends makes the schedule move on. One that is retried or parked goes on as a timer of its own,
    one that has submitted a service call as that call.
    """
    timer = outcome.timer
    schedule = timer.schedule
    assert schedule is not None
    is_detached = outcome.next_attempt_at is not None
    is_open = is_detached or outcome.call_id is not None
    line = line_of_attempt(outcome, now=now, started_at=started_at)
    if line.state is OccurrenceState.MISSED:
        return moved(timer, schedules.skipped(schedule, occurrences), line, made_of=outcome, again=again)
    step = schedules.detached if is_open else schedules.fired
    following = after_response(step(schedule, occurrences), outcome, now=now)
    detached = occurrence_timer(outcome) if is_detached else None
    return moved(timer, following, line, made_of=outcome, detached=detached, again=again)


def after_response(schedule: Schedule, outcome: Outcome, *, now: datetime) -> Schedule:
    """Return ``schedule`` after ``outcome`` of one of its occurrences, whichever, as its receiver has it."""
    own = outcome.timer.schedule
    assert own is not None
    assert own.pending is not None
    is_counted = own.number > 0 and outcome.next_attempt_at is None and outcome.is_of_attempt
    has_failed = outcome.state is TimerState.FAILED if is_counted else None
    return concluded(schedule, own.pending.scheduled_at, has_failed=has_failed, request=outcome.request, now=now)


def concerns_schedule(outcome: Outcome) -> bool:
    """Tell whether ``outcome`` of an occurrence that is a timer of its own may change where its schedule stands."""
    own = outcome.timer.schedule
    if own is None or outcome.timer.is_schedule:
        return False
    is_counted = own.policy.pause_after is not None and own.number > 0
    return outcome.request is not None or (is_counted and outcome.next_attempt_at is None and outcome.is_of_attempt)


def occurrence_timer(outcome: Outcome) -> Timer:
    """Return the timer that the pending occurrence of a schedule goes on as, when its attempt led to ``outcome``."""
    timer = outcome.timer
    schedule = timer.schedule
    assert schedule is not None
    assert schedule.pending is not None
    return replace(
        timer,
        timer_id=occurrence_timer_id(timer.schedule_id or "", schedule.pending.scheduled_at),
        content=replace(timer.content, timing_json=None),
        state=outcome.state,
        revision=1,
        attempts=outcome.attempts,
        next_attempt_at=outcome.next_attempt_at,
        fired_at=None,
        failure=outcome.failure,
        attempt_log=outcome.attempt_log,
    )


def after_last_attempt(outcome: Outcome, *, now: datetime, started_at: datetime | None) -> Outcome:
    """Return ``outcome`` of an occurrence that is a timer of its own with its line of the history, when it ends.

    What is beside the schedule has no line; it keeps the call that it has submitted."""
    schedule = outcome.timer.schedule
    assert schedule is not None
    if not schedule.number and outcome.call_id is not None:
        return replace(outcome, schedule=ScheduleOutcome(schedule=replace(schedule, call_id=outcome.call_id)))
    if outcome.next_attempt_at is not None or not schedule.number:
        return outcome
    line = line_of_attempt(outcome, now=now, started_at=started_at)
    return replace(outcome, schedule=ScheduleOutcome(schedule=schedule, occurrences=(line,)))


def line_of_attempt(outcome: Outcome, *, now: datetime, started_at: datetime | None) -> OccurrenceRecord:
    """Return the line of the pending occurrence. ``started_at``: of the attempt; None: nothing was sent."""
    schedule = outcome.timer.schedule
    assert schedule is not None
    assert schedule.pending is not None
    return OccurrenceRecord(
        number=schedule.number,
        state=_state_of(outcome),
        scheduled_at=schedule.pending.scheduled_at,
        recorded_at=now,
        started_at=started_at,
        attempts=outcome.attempts,
        failure=outcome.failure,
        attempt_log=outcome.attempt_log,
        call_id=outcome.call_id,
    )


def _state_of(occurrence: Outcome | Timer) -> OccurrenceState:
    if occurrence.next_attempt_at is not None:
        return OccurrenceState.ONGOING
    if occurrence.state is TimerState.FIRED:
        return OccurrenceState.FIRED
    return OccurrenceState.FAILED if occurrence.attempts else OccurrenceState.MISSED


def line_of_beside(timer: Timer) -> OccurrenceRecord | None:
    """Return what the timer of a trigger or a backfill has become; None of one that cannot be read."""
    if timer.schedule is None or timer.schedule.pending is None:
        return None
    attempts = read_attempts(timer.attempt_log)
    is_trigger = timer.timer_id.startswith(trigger_timer_id(timer.schedule_id or ""))
    return OccurrenceRecord(
        number=0,
        kind=OccurrenceKind.TRIGGERED if is_trigger else OccurrenceKind.BACKFILLED,
        state=_state_of(timer),
        scheduled_at=timer.schedule.pending.scheduled_at,
        recorded_at=timer.updated_at,
        started_at=attempts[-1].started_at if attempts else timer.fired_at,
        attempts=timer.attempts,
        failure=timer.failure,
        attempt_log=timer.attempt_log,
        call_id=timer.schedule.call_id,
    )


def line_of_missed(missed: Missed, *, now: datetime) -> OccurrenceRecord:
    return OccurrenceRecord(
        number=missed.number,
        state=OccurrenceState.MISSED,
        scheduled_at=missed.first,
        last_scheduled_at=missed.last,
        count=missed.count,
        recorded_at=now,
    )


def line_of_skipped(schedule: Schedule, *, now: datetime) -> OccurrenceRecord:
    """Return the line of the pending occurrence, which is not fired since an earlier one goes on."""
    assert schedule.pending is not None
    return OccurrenceRecord(
        number=schedule.number,
        state=OccurrenceState.SKIPPED,
        scheduled_at=schedule.pending.scheduled_at,
        recorded_at=now,
    )
