"""What is told of schedules, and what makes one."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypedDict

from duetime_client.call_models import CallRequest, NewServiceCall
from duetime_client.decoding import OpenEnum
from duetime_client.models import Callback, CallbackArguments, Dst, Failure, NewCallback, Occurrence
from duetime_client.values import RetryPolicy

_SECONDS = timedelta(seconds=1)


class ScheduleState(OpenEnum):
    ACTIVE = "Active"
    PAUSED = "Paused"
    ENDED = "Ended"
    UNREADABLE = "Unreadable"


class ScheduleMisfire(OpenEnum):
    """What is done with occurrences that were missed, by an outage or a pause."""

    ALL = "all"
    LATEST = "latest"
    SKIP = "skip"


class Overlap(OpenEnum):
    """What is done with an occurrence while an earlier one is retried or in flight."""

    ALLOW = "allow"
    SKIP = "skip"
    BUFFER_ONE = "bufferOne"


class ScheduleEnd(OpenEnum):
    """Why a schedule has ended."""

    MAX_FIRINGS = "maxFirings"
    NO_OCCURRENCE = "noOccurrence"
    RECEIVER = "receiver"


class OccurrenceKind(OpenEnum):
    SCHEDULED = "Scheduled"
    TRIGGERED = "Triggered"
    BACKFILLED = "Backfilled"


class OccurrenceState(OpenEnum):
    FIRED = "Fired"
    FAILED = "Failed"
    ONGOING = "Ongoing"
    SKIPPED = "Skipped"
    MISSED = "Missed"


class DayOff(OpenEnum):
    """What is done with an occurrence on a day that is no business day of the calendar."""

    SKIP = "skip"
    NEXT = "next"
    PREVIOUS = "previous"


class Weekday(OpenEnum):
    MON = "MON"
    TUE = "TUE"
    WED = "WED"
    THU = "THU"
    FRI = "FRI"
    SAT = "SAT"
    SUN = "SUN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A day is a business day if it is in ``business_days``, or of ``weekdays`` and not in ``days_off``.

    Dates are like ``2026-12-25``.
    """

    name: str
    revision: int
    weekdays: tuple[Weekday, ...]
    days_off: tuple[str, ...]
    business_days: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewSchedule(NewCallback):
    """A schedule to create. One of ``cron``, ``every`` and ``rrule`` is needed, or several.

    It sends callbacks to ``callback_url`` or to a ``target``, or else submits a ``service_call`` each time, which has
    no due time and no idempotency key of its own.
    """

    service_call: NewServiceCall | None = None
    cron: tuple[str, ...] | list[str] | str = ()
    every: timedelta | None = None
    rrule: tuple[str, ...] | list[str] | str = ()
    time_zone: str | None = None
    anchor: datetime | None = None
    dst: Dst | str | None = None
    start_at: datetime | None = None
    end_at: datetime | None = None
    exclude: tuple[str, ...] | list[str] | str = ()
    calendar: str | None = None
    day_off: DayOff | str | None = None
    jitter: timedelta | None = None
    window: timedelta | None = None
    misfire: ScheduleMisfire | str | None = None
    catch_up: timedelta | None = None
    overlap: Overlap | str | None = None
    max_firings: int | None = None
    pause_after: int | None = None
    paused: bool | None = None


class TimingArguments(TypedDict, total=False):
    """When a schedule occurs, beside ``cron``, ``rrule`` and ``exclude``, as arguments."""

    every: timedelta | None
    time_zone: str | None
    anchor: datetime | None
    dst: Dst | str | None
    start_at: datetime | None
    end_at: datetime | None
    calendar: str | None
    day_off: DayOff | str | None
    jitter: timedelta | None
    window: timedelta | None


class ScheduleChange(CallbackArguments, TimingArguments, total=False):
    """What is to be changed of a schedule, as arguments: what is not given stays, None clears."""

    service_call: NewServiceCall
    cron: tuple[str, ...] | list[str] | str | None
    rrule: tuple[str, ...] | list[str] | str | None
    exclude: tuple[str, ...] | list[str] | str | None
    misfire: ScheduleMisfire | str | None
    catch_up: timedelta | None
    overlap: Overlap | str | None
    max_firings: int | None
    pause_after: int | None


class ScheduleFilter(TypedDict, total=False):
    """Arguments that select schedules: all must hold. ``due_from`` is inclusive, ``due_to`` exclusive: when the next
    occurrence is due."""

    tag: str | None
    due_from: datetime | None
    due_to: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduledCall:
    """What each occurrence submits. Each call has the tag ``schedule:<namespace>/<id>``, too."""

    name: str
    request: CallRequest
    tags: tuple[str, ...]
    starred: bool
    timeout: timedelta = field(metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    retry_policy: RetryPolicy
    correlation_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Callback):
    """``number`` is that of the next occurrence. ``revision`` counts changes, and occurrences too.

    With ``service_call`` there is no ``callback_url``, ``target``, ``timeout`` and ``retry_policy``.
    """

    state: ScheduleState
    revision: int
    next_scheduled_at: datetime | None
    next_due_at: datetime | None
    number: int
    firings: int
    end_reason: ScheduleEnd | None
    paused_at: datetime | None
    pause_reason: str | None
    fired_at: datetime | None
    failure: Failure | None
    created_at: datetime
    updated_at: datetime
    description: str | None
    cron: tuple[str, ...]
    every: timedelta | None
    rrule: tuple[str, ...]
    anchor: datetime | None
    time_zone: str
    dst: Dst
    start_at: datetime | None
    end_at: datetime | None
    exclude: tuple[str, ...]
    calendar: str | None
    day_off: DayOff
    jitter: timedelta | None
    window: timedelta | None
    misfire: ScheduleMisfire
    catch_up: timedelta
    overlap: Overlap
    max_firings: int | None
    pause_after: int | None
    service_call: ScheduledCall | None
    timeout: timedelta | None = field(metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    retry_policy: RetryPolicy | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOccurrence:
    """What became of an occurrence; of missed ones it may be a span of ``count``, to ``last_scheduled_at``.

    ``number`` 0: it was triggered or backfilled, as ``kind`` says.
    """

    number: int
    kind: OccurrenceKind
    state: OccurrenceState
    scheduled_at: datetime
    last_scheduled_at: datetime | None
    count: int
    started_at: datetime | None
    recorded_at: datetime
    attempts: int
    failure: Failure | None
    message: str | None
    service_call_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrences:
    """``past``: the latest first. ``coming``: the next first."""

    past: tuple[PastOccurrence, ...]
    coming: tuple[Occurrence, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """``firing_id`` is the webhook-id of the callback."""

    id: str
    namespace: str
    scheduled_at: datetime
    firing_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSchedules:
    """``skipped`` were changed by others meanwhile. ``next_cursor``: of a page that is not the last."""

    affected: int
    skipped: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfilled:
    """``created`` occurrences will be sent, the last one at ``last_due_at``; ``skipped`` are to be sent anyway."""

    created: int
    skipped: int
    last_due_at: datetime | None
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelledBackfill:
    """``skipped`` were in flight, or changed by others meanwhile."""

    cancelled: int
    skipped: int
    next_cursor: str | None
