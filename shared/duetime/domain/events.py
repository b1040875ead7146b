"""Defines the events of timers that Duetime publishes besides callbacks. docs/events.md describes each."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid5

from duetime.domain import ids
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import FailureReason
from duetime.domain.times import format_instant

TIMER_FAILED = "timer.failed"

_EVENTS = UUID("818ca3fe-3413-548b-9c5c-bd54dfbf663c")
"""The namespace of event ids (RFC 9562, version 5). Never to be changed: it is what makes a repeat recognisable."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFailed:
    """A timer has become a dead letter: its attempts are exhausted, refused, or it cannot be read.

    ``event_id`` is the same however often this failure is announced: a firing fails once, and once more for each
    time that it was redriven or fired by hand. ``message`` holds no secrets and nothing of the receiver's answer.
    ``status`` is the HTTP status of the last answer. Of an unreadable timer only its name is known, if that.
    """

    event_id: UUID
    failed_at: datetime
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
        """The event as it is published: JSON values, camelCase names."""
        return {
            "id": str(self.event_id),
            "type": TIMER_FAILED,
            "namespace": self.namespace,
            "timerId": self.timer_id,
            **({} if self.schedule_id is None else {"scheduleId": self.schedule_id}),
            "timerUuid": None if self.timer_uuid is None else str(self.timer_uuid),
            "firingId": self.firing_id,
            "executeAt": None if self.execute_at is None else format_instant(self.execute_at),
            "failedAt": format_instant(self.failed_at),
            "attempts": self.attempts,
            "reason": str(self.reason),
            "message": self.message,
            "status": self.status,
            "correlationId": self.correlation_id,
            "tags": list(self.tags),
        }

    def to_json(self) -> str:
        """``document`` as text. ASCII: a lone surrogate in a tag has no other form that every consumer reads."""
        return json.dumps(self.document(), separators=(",", ":"))


def failed_event(outcome: Outcome) -> TimerFailed:
    """The event of an outcome whose state is FAILED."""
    timer, failure = outcome.timer, outcome.failure
    assert failure is not None
    armed = "" if timer.rearmed_at is None else format_instant(timer.rearmed_at)
    return TimerFailed(
        event_id=uuid5(_EVENTS, f"{TIMER_FAILED}:{timer.timer_uuid}:{timer.firing_id}:{armed}"),
        failed_at=failure.at,
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
    """The event of a stored timer that was found unreadable at ``at``. ``key`` tells its row from all others."""
    return TimerFailed(
        event_id=uuid5(_EVENTS, f"{TIMER_FAILED}:unreadable:{key}:{format_instant(at)}"),
        failed_at=at,
        reason=FailureReason.UNREADABLE,
        message=reason,
        namespace=namespace,
        timer_id=timer_id,
    )
