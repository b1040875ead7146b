"""How a schedule moves from one occurrence to the next: what is fired, skipped or missed. Pure.

Each function takes the schedule as it is stored and returns it as it is to be stored. The next occurrence is computed
from the one before, never from the present time, which only decides what it is too late for. So a step that is
repeated after a crash leads to the same.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from duetime.domain.errors import InvalidInput
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.namespaces import Pause
from duetime.domain.times import MAX_INSTANT, MILLISECOND, format_duration, format_instant

GRACE: Final = timedelta(seconds=60)
"""An occurrence is missed when it is later than this: less is what a busy poller or a deploy takes."""
DEFAULT_CATCH_UP_MS: Final = 3_600_000
MAX_CAUGHT_UP: Final = 100
MAX_COUNTED: Final = 100
"""Counting takes 20 to 80 microseconds for each, in the event loop, for each schedule after an outage."""


_LOOKED_AT: Final = 500
"""Of the occurrences to come, when one is to be no sooner than an interval after another: 20 ms for most."""


class ScheduleMisfire(StrEnum):
    """What is done with occurrences that were missed, by an outage or a pause."""

    ALL = "all"
    """Those of the last ``catch_up_ms`` fire, the last ``MAX_CAUGHT_UP`` of them."""
    LATEST = "latest"
    """The last one that is due fires."""
    SKIP = "skip"
    """None fires."""


class Overlap(StrEnum):
    """What is done with an occurrence that is due while an earlier one is retried or in flight."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "bufferOne"
    """One waits for the end of the earlier one: the last that came due, and those before it are missed."""


class ScheduleEnd(StrEnum):
    """Why a schedule has no occurrence any more."""

    MAX_FIRINGS = "maxFirings"
    NO_OCCURRENCE = "noOccurrence"
    """None is left: ``endAt`` has passed, say."""
    RECEIVER = "receiver"
    """Its receiver asked for it in a response."""


class ScheduleState(StrEnum):
    ACTIVE = "Active"
    PAUSED = "Paused"
    ENDED = "Ended"
    """It has no occurrence any more."""
    UNREADABLE = "Unreadable"
    """What is stored of it cannot be read, so it does not fire."""


@hot_dataclass(frozen=True, slots=True)
class Occurrence:
    """``scheduled_at`` is by the schedule; ``due_at`` is that, delayed by its spread."""

    scheduled_at: datetime
    due_at: datetime


class Occurrences(Protocol):
    """The occurrences of one schedule. Both their times rise strictly."""

    def after(self, scheduled_at: datetime) -> Occurrence | None:
        """Return the first that is scheduled after this time."""
        ...

    def before(self, scheduled_at: datetime) -> Occurrence | None: ...

    def due_by(self, instant: datetime) -> Occurrence | None:
        """Return the last that is due at this time or earlier."""
        ...


@dataclass(frozen=True, slots=True)
class Unknown:
    """Stands for occurrences that cannot be computed now: the last one stays, and is looked at again then."""

    look_at: datetime

    def after(self, scheduled_at: datetime) -> Occurrence:
        return Occurrence(scheduled_at, self.look_at)

    def before(self, scheduled_at: datetime) -> None: ...

    def due_by(self, instant: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePolicy:
    misfire: ScheduleMisfire = ScheduleMisfire.ALL
    catch_up_ms: int = DEFAULT_CATCH_UP_MS
    overlap: Overlap = Overlap.ALLOW
    max_firings: int | None = None
    pause_after: int | None = None
    """Failures in a row, each of an occurrence whose attempts are exhausted or refused, after which it is paused."""


@dataclass(frozen=True, slots=True)
class ScheduleRequest:
    """What a response asks of its schedule: to end, or else to pause."""

    is_end: bool
    reason: str = ""
    """Of the pause, in the receiver's words."""

    @property
    def message(self) -> str:
        if self.is_end:
            return "the receiver ended the schedule"
        return (
            f"the receiver paused the schedule: {self.reason}" if self.reason else "the receiver paused the schedule"
        )


@dataclass(frozen=True, slots=True)
class FailuresInARow:
    """``last`` is the scheduled time of the last one: none is counted twice in a row."""

    count: int
    last: datetime


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """``pending`` is the next occurrence; None when the schedule has ended, for the reason in ``end``.

    ``passed_at``: what is scheduled at this time or earlier has fired, or will not. ``number`` counts occurrences and
    spans of missed ones from 1, and is that of ``pending``. ``open_at`` is the scheduled time of the last occurrence
    that goes on as a timer of its own, or a service call (``detached``). With ``is_buffered`` ``pending`` waits for
    the end of that one.
    ``kept_to``: what is scheduled up to then is late, and fires: so it was decided, once for all of it.
    While there is a ``pause`` nothing fires, and what comes due is missed. ``failures`` are counted as far as the
    policy's ``pause_after`` needs it.
    ``call_id``: of what is beside the schedule, the service call that it has submitted.
    """

    policy: SchedulePolicy
    passed_at: datetime
    pending: Occurrence | None
    number: int = 1
    firings: int = 0
    open_at: datetime | None = None
    is_buffered: bool = False
    kept_to: datetime | None = None
    end: ScheduleEnd | None = None
    pause: Pause | None = None
    failures: FailuresInARow | None = None
    call_id: str | None = None

    @property
    def is_over(self) -> bool:
        """Tell whether it has ended, and no other times make it begin again."""
        return self.end in (ScheduleEnd.MAX_FIRINGS, ScheduleEnd.RECEIVER)

    @property
    def is_unknown(self) -> bool:
        """Tell whether the next occurrence is yet to be computed, since its calendar was not there (``Unknown``)."""
        return self.pending is not None and self.pending.scheduled_at <= self.passed_at

    @property
    def due_at(self) -> datetime | None:
        """Return when something is to be done about it; None when it has ended.

        A paused schedule is due at the end of time: so it waits as every timer does.
        """
        if self.pending is None:
            return None
        return MAX_INSTANT if self.pause is not None else self.pending.due_at


@dataclass(frozen=True, slots=True)
class Missed:
    """Occurrences that will not fire, one line of the history: ``first`` to ``last`` by their scheduled times.

    ``count`` is not more than ``MAX_COUNTED``: that many, or more.
    """

    number: int
    first: datetime
    last: datetime
    count: int


class Action(StrEnum):
    FIRE = "fire"
    SKIP = "skip"
    """An earlier occurrence goes on: see ``skipped``."""
    WAIT = "wait"
    """Until ``pending`` is due, or with ``is_buffered`` until the earlier one ends."""
    END = "end"


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be done with ``schedule.pending``. ``missed`` has been passed on the way to it."""

    action: Action
    schedule: Schedule
    missed: Missed | None = None


def check_interval(occurrences: Occurrences, least_ms: int, *, field: str, after: datetime) -> None:
    """Raise ``InvalidInput`` for ``field`` when occurrences are scheduled less than ``least_ms`` apart.

    The next ``_LOOKED_AT`` are looked at, so it takes a bounded time, whatever the schedule is.
    """
    last = occurrences.after(after)
    for _ in range(_LOOKED_AT):
        following = None if last is None else occurrences.after(last.scheduled_at)
        if last is None or following is None:
            return
        if following.scheduled_at - last.scheduled_at < least_ms * MILLISECOND:
            at, soon = format_instant(last.scheduled_at), format_instant(following.scheduled_at)
            least = f"minScheduleInterval of the namespace, {format_duration(least_ms)}"
            raise InvalidInput(field, f"must not occur more often than {least}: it does at {at} and {soon}")
        last = following


def new_schedule(policy: SchedulePolicy, occurrences: Occurrences, *, after: datetime) -> Schedule:
    """Return a schedule whose first occurrence is the first after ``after``."""
    return retimed(Schedule(policy=policy, passed_at=after, pending=None), occurrences)


def retimed(schedule: Schedule, occurrences: Occurrences, *, after: datetime | None = None) -> Schedule:
    """Return the schedule with other occurrences: those of a change, ``after`` it, or of a new tzdata.

    One that ended for want of occurrences may begin again, and no other.
    """
    if schedule.is_over:
        return schedule
    passed_at = schedule.passed_at if after is None else max(schedule.passed_at, after)
    pending = occurrences.after(passed_at)
    end = ScheduleEnd.NO_OCCURRENCE if pending is None else None
    return replace(schedule, passed_at=passed_at, pending=pending, is_buffered=False, kept_to=None, end=end)


def turn(schedule: Schedule, occurrences: Occurrences, *, now: datetime, is_open: bool) -> Turn:
    """Decide what is done at ``now``. ``is_open``: the occurrence of ``open_at`` has not ended.

    With FIRE and another schedule than the one given, that is to be stored first.
    """
    if schedule.is_unknown:
        schedule = retimed(schedule, occurrences)
    if schedule.pending is None:
        return Turn(Action.END, schedule)
    if schedule.pause is not None or (schedule.is_buffered and is_open):
        return Turn(Action.WAIT, schedule)
    missed = None
    if schedule.is_buffered or is_late(schedule, now):
        is_buffered = schedule.is_buffered
        policy = replace(schedule.policy, misfire=ScheduleMisfire.LATEST) if is_buffered else schedule.policy
        latest = occurrences.due_by(now) or schedule.pending
        kept = _first_kept(schedule.pending, latest, policy, occurrences, now)
        schedule, missed = _without_missed(schedule, schedule.pending, kept, latest, occurrences)
        schedule = replace(schedule, is_buffered=is_buffered)  # a crash before it fires changes nothing
    pending = schedule.pending
    if pending is None:
        return Turn(Action.END, schedule, missed)
    if pending.due_at > now:
        return Turn(Action.WAIT, schedule, missed)
    if is_open and schedule.policy.overlap is Overlap.SKIP:
        return Turn(Action.SKIP, schedule, missed)
    if is_open and schedule.policy.overlap is Overlap.BUFFER_ONE:
        return Turn(Action.WAIT, replace(schedule, is_buffered=True), missed)
    return Turn(Action.FIRE, schedule, missed)


def is_late(schedule: Schedule, now: datetime) -> bool:
    """Tell whether it has to be decided if the pending occurrence is missed, or which one that is.

    What ``kept_to`` keeps is kept for twice its time at most: after another outage it is decided again.
    """
    if schedule.pending is None or schedule.is_unknown:
        return True
    lateness, policy = now - schedule.pending.due_at, schedule.policy
    is_kept = schedule.kept_to is not None and schedule.pending.scheduled_at <= schedule.kept_to
    return lateness > (2 * max(policy.catch_up_ms * MILLISECOND, GRACE) if is_kept else GRACE)


def fired(schedule: Schedule, occurrences: Occurrences) -> Schedule:
    """Return the schedule after its pending occurrence has ended, delivered or failed for good."""
    assert schedule.pending is not None
    following = occurrences.after(schedule.pending.scheduled_at)
    return limited(_moved(schedule, schedule.pending.scheduled_at, following, firings=1))


def limited(schedule: Schedule) -> Schedule:
    """Return the schedule, ended if it has fired as often as its policy allows."""
    most = schedule.policy.max_firings
    return schedule if most is None or schedule.firings < most else _ended(schedule, ScheduleEnd.MAX_FIRINGS)


def detached(schedule: Schedule, occurrences: Occurrences) -> Schedule:
    """Return the schedule after its pending occurrence has become a timer of its own, retried or in flight for long,
    or a service call.

    It counts as fired.
    """
    assert schedule.pending is not None
    return replace(fired(schedule, occurrences), open_at=schedule.pending.scheduled_at)


def skipped(schedule: Schedule, occurrences: Occurrences) -> Schedule:
    """Return the schedule with the occurrence after the pending one."""
    assert schedule.pending is not None
    return _moved(schedule, schedule.pending.scheduled_at, occurrences.after(schedule.pending.scheduled_at))


def paused(schedule: Schedule, pause: Pause) -> Schedule:
    """Return the schedule with a pause. One that has ended, or is paused, stays as it is."""
    if schedule.pending is None or schedule.pause is not None:
        return schedule
    return replace(schedule, pause=pause, kept_to=None)


def resumed(schedule: Schedule) -> Schedule:
    """Return the schedule without a pause; its failures are counted anew."""
    return schedule if schedule.pause is None else replace(schedule, pause=None, failures=None)


def concluded(
    schedule: Schedule,
    scheduled_at: datetime,
    *,
    has_failed: bool | None,
    request: ScheduleRequest | None,
    now: datetime,
) -> Schedule:
    """Return the schedule after what its receiver made of the occurrence that was scheduled at ``scheduled_at``.

    ``has_failed`` None: it goes on, or nothing was sent. The same again changes nothing.
    """
    if request is not None and request.is_end and schedule.pending is not None:
        return _ended(schedule, ScheduleEnd.RECEIVER)
    if request is not None and not request.is_end:
        schedule = paused(schedule, Pause(now, request.message))
    most, failures = schedule.policy.pause_after, schedule.failures
    if most is None or has_failed is None:
        return schedule
    if not has_failed:
        return replace(schedule, failures=None)
    if failures is None or failures.last != scheduled_at:
        failures = FailuresInARow(1 if failures is None else failures.count + 1, scheduled_at)
    schedule = replace(schedule, failures=failures)
    if failures.count < most:
        return schedule
    times = "the last occurrence has" if failures.count == 1 else f"the last {failures.count} occurrences have"
    return paused(schedule, Pause(now, f"{times} failed (pauseAfter)"))


def closed(schedule: Schedule, scheduled_at: datetime) -> Schedule:
    """Return the schedule after the timer of an earlier occurrence has ended. What is buffered may fire."""
    return replace(schedule, open_at=None) if schedule.open_at == scheduled_at else schedule


def _ended(schedule: Schedule, end: ScheduleEnd) -> Schedule:
    return replace(schedule, pending=None, pause=None, is_buffered=False, kept_to=None, end=end)


def _moved(schedule: Schedule, passed_at: datetime, pending: Occurrence | None, *, firings: int = 0) -> Schedule:
    is_kept = pending is not None and schedule.kept_to is not None and pending.scheduled_at <= schedule.kept_to
    return Schedule(  # ``replace`` takes three times as long, for each occurrence
        policy=schedule.policy,
        passed_at=passed_at,
        pending=pending,
        number=schedule.number + 1,
        firings=schedule.firings + firings,
        open_at=schedule.open_at,
        kept_to=schedule.kept_to if is_kept else None,
        end=ScheduleEnd.NO_OCCURRENCE if pending is None else None,
        pause=schedule.pause,
        failures=schedule.failures,
        call_id=schedule.call_id,
    )


def _without_missed(
    schedule: Schedule, pending: Occurrence, kept: Occurrence | None, latest: Occurrence, occurrences: Occurrences
) -> tuple[Schedule, Missed | None]:
    """Move to ``kept``: None, since none is left, or not before ``pending``."""
    kept_to = latest.scheduled_at if kept is not None and kept.scheduled_at < latest.scheduled_at else None
    if kept == pending:
        return replace(schedule, kept_to=kept_to), None
    last, count = pending, 1
    while count < MAX_COUNTED:
        following = occurrences.after(last.scheduled_at)
        if following is None or following == kept:
            break
        last, count = following, count + 1
    else:
        last = (latest if kept is None else occurrences.before(kept.scheduled_at)) or last
    moved = _moved(replace(schedule, kept_to=kept_to), last.scheduled_at, kept)
    return moved, Missed(schedule.number, pending.scheduled_at, last.scheduled_at, count)


def _first_kept(
    pending: Occurrence, latest: Occurrence, policy: SchedulePolicy, occurrences: Occurrences, now: datetime
) -> Occurrence | None:
    """Return the first occurrence from ``pending`` on that is not missed: it fires, or is not due yet."""
    if policy.misfire is ScheduleMisfire.LATEST:
        return latest
    oldest = now - (max(policy.catch_up_ms * MILLISECOND, GRACE) if policy.misfire is ScheduleMisfire.ALL else GRACE)
    if pending.due_at < oldest:
        too_old = occurrences.due_by(oldest - MILLISECOND) or pending
        kept = occurrences.after(too_old.scheduled_at)
        if kept is None:
            return None
    else:
        kept = pending
    bound = latest
    for _ in range(MAX_CAUGHT_UP - 1):
        if bound.scheduled_at <= kept.scheduled_at:
            return kept
        bound = occurrences.before(bound.scheduled_at) or kept
    return bound
