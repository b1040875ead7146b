"""The part of the store port with the timers (the general rules: ``port.store``)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from duetime.domain.answers import Answer, Refusal
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import FailureReason, Rearm, Timer, TimerChange, TimerState
from duetime.stores.port.pages import Page


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

    None when NOT_FOUND, and for a delete of which the store can tell no more than that its driver sent it twice and
    that the timer is gone: then the first one did it, and its answer was lost.
    """

    status: ChangeStatus
    timer: Timer | None = None

    def attempt_may_be_in_flight(self, now: datetime) -> bool:
        """Of a deleted timer, be it known or not."""
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
        """Whether ``timer`` passes; stores say the same in their own words."""
        reason = None if timer.failure is None else timer.failure.reason
        return (
            (self.state is None or timer.state is self.state)
            and (self.tag is None or self.tag in timer.content.tags)
            and self.is_of_schedule in (None, timer.schedule is not None)
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


class TimerStore(Protocol):
    # -- clients ---------------------------------------------------------------------------------------------

    def put(
        self,
        timers: Sequence[Timer],
        *,
        mode: PutMode,
        now: datetime,
        if_revision: int | None = None,
    ) -> list[PutResult]:
        """Store first revisions (``domain.timers.new_timer``) as ``mode`` says.

        ``if_revision`` goes with REPLACE and a single timer; it is judged first. A replaced timer keeps
        ``created_at`` and counts its ``revision`` on; every other value is the new one's. An expired timer counts
        as absent.
        """
        ...

    def get(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer | None:
        """The timer as it is stored now, strongly consistent; None when there is none."""
        ...

    def update(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        if_revision: int | None = None,
    ) -> ChangeResult:
        """Apply ``domain.timers.changed`` atomically: no concurrent write is lost or half-seen. What that raises is
        raised, and nothing is written.

        ``if_revision`` is judged first: a finished timer of another revision is a REVISION_MISMATCH.
        """
        ...

    def rearm(
        self,
        namespace: Namespace,
        refs: Sequence[TimerRef],
        *,
        rearm: Rearm,
        now: datetime,
        expires_at: datetime | None = None,
    ) -> list[ChangeResult]:
        """Apply ``domain.timers.rearmed`` to each, atomically: the timer is due at ``now``, or Cancelled.

        A cancelled timer is readable until ``expires_at``. Judged in this order: REVISION_MISMATCH, UNREADABLE,
        WRONG_STATE. Where ``rearmed`` changes nothing, the result is APPLIED and nothing is written. Of several
        redrives at once, one is APPLIED.
        """
        ...

    def answer(self, namespace: Namespace, timer_id: str, answer: Answer, *, now: datetime) -> AnswerResult:
        """Apply ``domain.answers.answered`` atomically. Where it changes nothing, nothing is written."""
        ...

    def delete(self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
        """Remove timers in any state. APPLIED carries the timer as it was, where that is known (``ChangeResult``)."""
        ...

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """Timers with this correlation id, by an index. May lag a moment behind writes on some stores."""
        ...

    def due(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
        is_wanted: IsWanted | None = None,
        is_known: IsKnown | None = None,
    ) -> DuePage:
        """Timers with ``next_attempt_at <= until``, in order, at most ``limit``; strongly consistent.

        More timers at one instant than a page holds are all returned over the pages, once each. Where payloads are
        large, a page holds no more than ``pages.PAGE_BYTES`` of them, in memory too.
        ``since`` (not after ``until``) leaves out what has ``next_attempt_at < since``; a ``cursor`` goes
        before it.
        ``known_next``: the caller knows of none before it, so the store may skip looking beyond it; then
        ``DuePage.next_attempt_at`` is the earliest that it found before ``known_next``, else ``known_next``.
        ``is_wanted``: others need not be read whole, and may be left out, so a page may be short and not the last.
        Timers that are parked, or too late by ``until`` (``Timer.is_too_late``), are never left out. It is asked at
        most ``LOOKED_AT_PER_TIMER`` times ``limit``, and by some stores never: they leave nothing out.
        ``is_known``: these are left out, and counted in ``known`` and for the limit.
        Rows that cannot be decoded are reported in ``unreadable`` and never hide the others.
        """
        ...

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        """Write outcomes, each only onto the attempt that was made.

        That is fenced by the firing, the number of attempts, the state, and that the timer was not made due later
        (``domain.outcomes.reconciled``, for all stores alike): what a client changed about it otherwise stays, and
        the revision counts on. An outcome that is stored already, since the answer of an earlier try was lost, is
        APPLIED, whoever owns the shard now.

        Each is judged by its own ``fence``, whatever leases others of its shard bring: a store with transactions
        checks ``shard_version`` and owner and answers LEASE_LOST; one without (DynamoDB) goes by the attempt alone,
        as every store does for an outcome without a fence.
        ``updated_at`` becomes ``now``.
        """
        ...

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        """Take unreadable rows out of the due index: they read as FAILED timers with reason UNREADABLE.

        They expire at ``expires_at`` as other failed timers do. Values that cannot be read are shown empty. A row
        that was changed meanwhile stays as it is.
        """
        ...

    def prune(self, *, now: datetime, limit: int) -> int:
        """Delete up to ``limit`` expired timers, and as many expired idempotency records; how many of both.

        0 where the database does it by itself.
        """
        ...

    def list(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """In the order of shard, then id. A timer that is not changed meanwhile appears exactly once.

        The work of one call is bounded, whatever the filter leaves out, and so is what it holds of payloads
        (``pages.PAGE_BYTES``).
        """
        ...
