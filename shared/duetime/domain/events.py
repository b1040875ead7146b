"""Defines what Duetime publishes of timers and schedules besides callbacks. docs/events.md describes each event."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from uuid import UUID, uuid5

from duetime.domain import ids
from duetime.domain.errors import DuetimeError
from duetime.domain.occurrences import OccurrenceRecord, OccurrenceState
from duetime.domain.outcomes import Outcome
from duetime.domain.schedules import Schedule
from duetime.domain.timers import FailureReason, Timer
from duetime.domain.times import format_instant

TIMER_FAILED = "timer.failed"
TIMER_MOVED = "timer.moved"

_EVENTS = UUID("818ca3fe-3413-548b-9c5c-bd54dfbf663c")
"""The namespace of event ids (RFC 9562, version 5). Never to be changed: it is what makes a repeat recognisable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event(ABC):
    """What is announced, and when it occurred. ``event_id`` is the same however often it is announced."""

    event_id: UUID
    type: str
    at: datetime

    @abstractmethod
    def document(self) -> dict[str, object]:
        """Return the event as it is published: JSON values, camelCase names."""

    def to_json(self) -> str:
        """Return ``document`` as text. ASCII: a lone surrogate in a tag has no other form that every consumer
        reads."""
        return json.dumps(self.document(), separators=(",", ":"))


class EventsUndelivered(DuetimeError):
    """Not all events were taken: ``events`` were not, or it is not known."""

    code = "events_undelivered"

    def __init__(self, message: str, events: Sequence[Event]) -> None:
        super().__init__(message)
        self.events = tuple(events)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFailed(Event):
    """A timer has become a dead letter: its attempts are exhausted, refused, or it cannot be read.

    ``event_id`` is the same however often this failure is announced: a firing fails once, and once more for each
    time that it was redriven or fired by hand. ``message`` holds no secrets and nothing of the receiver's answer.
    ``status`` is the HTTP status of the last answer. Of an unreadable timer only its name is known, if that.
    """

    type: str = TIMER_FAILED
    reason: FailureReason
    message: str
    namespace: str | None
    timer_id: str | None
    firing_id: str | None = None
    execute_at: datetime | None = None
    attempts: int = 0
    status: int | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    schedule_id: str | None = None
    """It is an occurrence of this schedule that has failed; ``timer_id`` is None."""

    @property
    def timer_uuid(self) -> UUID | None:
        if self.namespace is None or self.timer_id is None:
            return None
        return ids.timer_uuid(self.namespace, self.timer_id)

    def document(self) -> dict[str, object]:
        return {
            "id": str(self.event_id),
            "type": self.type,
            "namespace": self.namespace,
            "timerId": self.timer_id,
            **({} if self.schedule_id is None else {"scheduleId": self.schedule_id}),
            "timerUuid": None if self.timer_uuid is None else str(self.timer_uuid),
            "firingId": self.firing_id,
            "executeAt": None if self.execute_at is None else format_instant(self.execute_at),
            "failedAt": format_instant(self.at),
            "attempts": self.attempts,
            "reason": str(self.reason),
            "message": self.message,
            "status": self.status,
            "correlationId": self.correlation_id,
            "tags": list(self.tags),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerMoved(Event):
    """A timer that is due at a local time has been moved to ``execute_at``, since the rules of its time zone have
    changed. ``timer`` is as it was before."""

    type: str = TIMER_MOVED
    timer: Timer
    execute_at: datetime
    local_time: str
    time_zone: str
    tzdata_version: str

    def document(self) -> dict[str, object]:
        timer = self.timer
        return {
            "id": str(self.event_id),
            "type": self.type,
            "namespace": timer.namespace,
            "timerId": timer.timer_id,
            "timerUuid": str(timer.timer_uuid),
            "occurredAt": format_instant(self.at),
            "executeAt": format_instant(self.execute_at),
            "previousExecuteAt": format_instant(timer.content.execute_at),
            "localTime": self.local_time,
            "timeZone": self.time_zone,
            "tzdataVersion": self.tzdata_version,
            "correlationId": timer.content.correlation_id,
            "tags": list(timer.content.tags),
        }


class ScheduleEventType(StrEnum):
    PAUSED = "schedule.paused"
    RESUMED = "schedule.resumed"
    ENDED = "schedule.ended"
    MISFIRED = "schedule.misfired"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleEvent(Event):
    """A schedule was paused, resumed or ended, or occurrences that were missed have been passed.

    ``reason`` is that of the pause or the end. Of missed ones there is the span: first, last, and how many, as in the
    history.
    """

    type: ScheduleEventType
    namespace: str
    schedule_id: str
    reason: str | None = None
    missed: OccurrenceRecord | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()

    def document(self) -> dict[str, object]:
        missed = self.missed
        last_at = None if missed is None else missed.last_scheduled_at or missed.scheduled_at
        return {
            "id": str(self.event_id),
            "type": self.type,
            "namespace": self.namespace,
            "scheduleId": self.schedule_id,
            "occurredAt": format_instant(self.at),
            "reason": self.reason,
            "scheduledAt": None if missed is None else format_instant(missed.scheduled_at),
            "lastScheduledAt": None if last_at is None else format_instant(last_at),
            "count": None if missed is None else missed.count,
            "correlationId": self.correlation_id,
            "tags": list(self.tags),
        }


def schedule_events(
    timer: Timer, schedule: Schedule, lines: Sequence[OccurrenceRecord], *, at: datetime
) -> list[ScheduleEvent]:
    """Return the events of the step after which the schedule ``timer`` stands at ``schedule``.

    What is later than ``expireAfter`` is a failed occurrence, and no misfire.
    """
    before = timer.schedule
    assert before is not None
    found: list[tuple[ScheduleEventType, str | None, OccurrenceRecord | None]] = [
        (ScheduleEventType.MISFIRED, None, line)
        for line in lines
        if line.state is OccurrenceState.MISSED and line.failure is None
    ]
    if schedule.pause is not None and before.pause is None:
        found.append((ScheduleEventType.PAUSED, schedule.pause.reason, None))
    if before.pause is not None and schedule.pause is None and schedule.end is None:
        found.append((ScheduleEventType.RESUMED, None, None))
    if schedule.end is not None and before.end is None:
        found.append((ScheduleEventType.ENDED, str(schedule.end), None))
    if not found:
        return []
    step = f"{timer.timer_uuid}:{format_instant(timer.created_at)}:{timer.revision}"
    return [
        ScheduleEvent(
            event_id=uuid5(_EVENTS, f"{kind}:{step}"),
            type=kind,
            at=at,
            namespace=timer.namespace,
            schedule_id=timer.schedule_id or "",
            reason=reason,
            missed=missed,
            correlation_id=timer.content.correlation_id,
            tags=timer.content.tags,
        )
        for kind, reason, missed in found
    ]


def moved_event(
    timer: Timer, execute_at: datetime, *, local_time: str, time_zone: str, tzdata_version: str, at: datetime
) -> TimerMoved:
    """Return the event of a change of ``timer``, the same however often it is made."""
    change = f"{format_instant(timer.created_at)}:{timer.revision}:{format_instant(execute_at)}"
    return TimerMoved(
        event_id=uuid5(_EVENTS, f"{TIMER_MOVED}:{timer.timer_uuid}:{change}"),
        timer=timer,
        execute_at=execute_at,
        at=at,
        local_time=local_time,
        time_zone=time_zone,
        tzdata_version=tzdata_version,
    )


def failed_event(outcome: Outcome) -> TimerFailed:
    """Return the event of an outcome whose state is FAILED."""
    timer, failure = outcome.timer, outcome.failure
    assert failure is not None
    armed = "" if timer.rearmed_at is None else format_instant(timer.rearmed_at)
    return TimerFailed(
        event_id=uuid5(_EVENTS, f"{TIMER_FAILED}:{timer.timer_uuid}:{timer.firing_id}:{armed}"),
        at=failure.at,
        reason=failure.reason,
        message=failure.message,
        namespace=timer.namespace,
        timer_id=timer.timer_id if timer.schedule_id is None else None,
        schedule_id=timer.schedule_id,
        firing_id=timer.firing_id,
        execute_at=outcome.execute_at,
        attempts=outcome.attempts,
        status=failure.status,
        correlation_id=timer.content.correlation_id,
        tags=timer.content.tags,
    )


def unreadable_event(
    *, namespace: str | None, timer_id: str | None, key: str, reason: str, at: datetime
) -> TimerFailed:
    """Return the event of a stored timer that was found unreadable at ``at``. ``key`` tells its row from all
    others."""
    return TimerFailed(
        event_id=uuid5(_EVENTS, f"{TIMER_FAILED}:unreadable:{key}:{format_instant(at)}"),
        at=at,
        reason=FailureReason.UNREADABLE,
        message=reason,
        namespace=namespace,
        timer_id=timer_id,
    )
