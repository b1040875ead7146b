"""What became of a schedule's occurrences: the lines of its history, and of its timer after each."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.timers import Failure

KEPT_OCCURRENCES: Final = 100
"""Of each schedule, the last ones: each takes the place of the one that was so many before it."""


class OccurrenceState(StrEnum):
    FIRED = "Fired"
    FAILED = "Failed"
    ONGOING = "Ongoing"
    """It is retried, still in flight, or still to be sent, as a timer of its own."""
    SKIPPED = "Skipped"
    """An earlier one was ongoing (``overlap``)."""
    MISSED = "Missed"
    """It was too late for it (``misfire``, or ``expire_after_ms``)."""


class OccurrenceKind(StrEnum):
    SCHEDULED = "Scheduled"
    TRIGGERED = "Triggered"
    """By hand."""
    BACKFILLED = "Backfilled"


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class OccurrenceRecord:
    """A line of the history. Of missed ones it may be a span: ``count`` of them, to ``last_scheduled_at``.

    ``started_at``: of the last attempt; None: there was none. ``attempt_log`` as in ``Timer``.
    ``call_id``: the service call that was submitted. ``kind``: no line is stored of what is beside the schedule, and
    ``number`` is 0 there (``domain.schedule_timers.line_of_beside``).
    """

    number: int
    state: OccurrenceState
    scheduled_at: datetime
    recorded_at: datetime
    last_scheduled_at: datetime | None = None
    count: int = 1
    started_at: datetime | None = None
    attempts: int = 0
    failure: Failure | None = None
    attempt_log: str | None = None
    call_id: str | None = None
    kind: OccurrenceKind = OccurrenceKind.SCHEDULED


@dataclass(frozen=True, slots=True, kw_only=True)
class PastOccurrence:
    """A line of the history, with the schedule that it is of."""

    namespace: str
    schedule_id: str
    shard_id: int
    line: OccurrenceRecord
