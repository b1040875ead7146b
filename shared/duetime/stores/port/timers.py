"""What the operations of ``core.store.TimerStore`` take and return."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from duetime.domain.answers import Refusal
from duetime.domain.ids import schedule_id_of
from duetime.domain.timers import FailureReason, Timer, TimerState


class PutMode(StrEnum):
    CREATE = "create"
    """An existing timer stays as it is."""
    REPLACE = "replace"
    """An existing timer, finished or not, becomes the new one with the next revision, unless
    ``domain.timers.repeats``: then it stays as it is."""


class PutStatus(StrEnum):
    CREATED = "created"
    REPLACED = "replaced"
    UNCHANGED = "unchanged"
    """The timer that was found has the same digest."""
    CONFLICT = "conflict"
    """CREATE found a timer with another digest."""
    REVISION_MISMATCH = "revision_mismatch"
    """REPLACE with ``if_revision`` found another revision, or no timer."""
    REFUSED = "refused"
    """The database refuses this timer for good."""


@dataclass(frozen=True, slots=True)
class PutResult:
    """``timer`` as it is stored now; None only when it is REFUSED or ``if_revision`` found none."""

    status: PutStatus
    timer: Timer | None


class ChangeStatus(StrEnum):
    APPLIED = "applied"
    NOT_FOUND = "not_found"
    REVISION_MISMATCH = "revision_mismatch"
    FINISHED = "finished"
    """The timer has fired or failed and cannot be changed."""
    WRONG_STATE = "wrong_state"
    """The timer is in a state from which it cannot be rearmed."""
    UNREADABLE = "unreadable"
    """The stored timer, or its payload, cannot be read, so it cannot be fired either."""
    REFUSED = "refused"
    """The database refuses this change for good."""


@dataclass(frozen=True, slots=True)
class ChangeResult:
    """``timer`` as it is stored now (after an update) or was stored (before a delete).

    None when NOT_FOUND, and for a delete that the driver sent twice: the first one removed the timer, and its answer
    was lost.
    """

    status: ChangeStatus
    timer: Timer | None = None

    def attempt_may_be_in_flight(self, now: datetime) -> bool:
        """Of a deleted timer, known or not."""
        return self.timer is None or self.timer.attempt_may_be_in_flight(now)


AnswerResult = Timer | Refusal | None
"""The timer as it is stored now, with the answer; or why it was not taken. None: there is no timer, or none that can
be read."""


@dataclass(frozen=True, slots=True)
class TimerRef:
    """A timer of a namespace; with ``if_revision`` only as long as it has that revision."""

    timer_id: str
    if_revision: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFilter:
    """All given conditions must hold; a time ``from`` is inclusive, a time ``to`` exclusive.

    ``due_from`` and ``due_to`` are about ``content.execute_at``, ``updated_from`` and ``updated_to`` about
    ``updated_at``: for a finished timer, when it ended. ``failure_reason`` is that of the last failed attempt.
    ``is_of_schedule`` tells schedules, and their occurrences that are timers, from others.
    """

    state: TimerState | None = None
    tag: str | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None
    failure_reason: FailureReason | None = None
    updated_from: datetime | None = None
    updated_to: datetime | None = None
    is_of_schedule: bool | None = None

    def fits(self, timer: Timer) -> bool:
        """Tell whether ``timer`` passes; stores say the same in their own words."""
        reason = None if timer.failure is None else timer.failure.reason
        return (
            (self.state is None or timer.state is self.state)
            and (self.tag is None or self.tag in timer.content.tags)
            and self.is_of_schedule in (None, schedule_id_of(timer.timer_id) is not None)
            and (self.failure_reason is None or reason is self.failure_reason)
            and _is_within(timer.content.execute_at, self.due_from, self.due_to)
            and _is_within(timer.updated_at, self.updated_from, self.updated_to)
        )


def _is_within(instant: datetime, start: datetime | None, end: datetime | None) -> bool:
    return (start is None or instant >= start) and (end is None or instant < end)


@dataclass(frozen=True, slots=True)
class UnreadableRow:
    """A stored timer that cannot be decoded. ``key`` is opaque: only the store that made it reads it.

    ``reason`` quotes nothing that the row holds. The name of the timer is None where that cannot be read either.
    """

    shard_id: int
    key: str
    reason: str
    namespace: str | None = None
    timer_id: str | None = None


@dataclass(frozen=True, slots=True)
class DuePage:
    """Timers due by ``until``, by (``next_attempt_at``, then any stable order).

    ``cursor`` is set when there may be more due timers after this page. ``next_attempt_at`` is the earliest
    key of the shard after ``until`` (None when there is none), reported only by a last page (``cursor`` None).
    ``cursor_at``: the instant at which the cursor stands; None: that of the last timer.
    ``known``: how many timers were left out because the caller has them.
    """

    timers: list[Timer]
    cursor: str | None = None
    next_attempt_at: datetime | None = None
    unreadable: tuple[UnreadableRow, ...] = ()
    cursor_at: datetime | None = None
    known: int = 0


IsWanted = Callable[[str, str], bool]
"""Whether a page should have timers of this namespace to this callback URL."""
IsKnown = Callable[[str, int], bool]
"""Whether the caller has the timer of this firing with so many attempts already."""
LOOKED_AT_PER_TIMER: Final = 10
"""A page with timers that are not wanted looks at so many times its limit at most."""
