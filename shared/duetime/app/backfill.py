"""Backfill of a schedule: occurrences of a range of the past are sent once more, or late, at a bounded rate.

Each becomes a timer of its own, due when the rate lets it. So they live as long as any timer, are fired as fairly,
and nothing else has to remember how far a backfill is.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from duetime.app.calendars import finder
from duetime.app.in_parts import BUDGET_SECONDS
from duetime.app.occurrences import prefixes_beside
from duetime.app.pages import ChangedPage, PageOfWork
from duetime.app.revisions import Revisions
from duetime.app.schedules import Schedules, refused
from duetime.domain.clock import Clock
from duetime.domain.errors import InvalidCursor, StoreUnavailable
from duetime.domain.ids import backfill_timer_id, schedule_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.schedule_timers import backfilled
from duetime.domain.schedules import Occurrence, Occurrences
from duetime.domain.timers import Timer, TimerState
from duetime.domain.times import MILLISECOND, from_milliseconds, round_up, to_milliseconds
from duetime.recurrence.stored import occurrences_of
from duetime.stores.port.timers import ChangeStatus, PutMode, PutResult, PutStatus, TimerRef

_AT_ONCE: Final = 25
"""How many are written together: the payload is in each."""
_REMOVED_AT_ONCE: Final = 100
_STORED: Final = (PutStatus.CREATED, PutStatus.REPLACED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackfillRange:
    """``from_at`` is inclusive, ``to_at`` exclusive. Of occurrences that are pending or to come when the
    backfill begins none is sent."""

    from_at: datetime
    to_at: datetime
    per_second: float


@dataclass(frozen=True, slots=True)
class BackfillPage:
    """``created``: how many will be sent, or would be. ``skipped``: those that an earlier backfill is still to send.
    ``last_due_at``: when the last one is due."""

    created: int
    skipped: int
    last_due_at: datetime | None
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a backfill goes on: after ``passed_at``, of ``index`` occurrences before."""

    passed_at: datetime
    index: int
    began_at: datetime

    def __str__(self) -> str:
        return f"{to_milliseconds(self.passed_at)} {self.index} {to_milliseconds(self.began_at)}"

    @classmethod
    def read(cls, cursor: str) -> _Place:
        try:
            passed_ms, index, began_ms = map(int, cursor.split())
        except ValueError:
            raise InvalidCursor("cursor", "the cursor does not belong to this backfill") from None
        return cls(from_milliseconds(passed_ms), index, from_milliseconds(began_ms))


@dataclass(frozen=True, slots=True)
class Backfills:
    schedules: Schedules

    def backfill_page(
        self, namespace: Namespace, schedule_id: str, wanted: BackfillRange, work: PageOfWork
    ) -> BackfillPage:
        """Make the timers of a page of occurrences.

        One that was backfilled before and has ended is sent again, with the same webhook-id. Raises
        ``ScheduleNotFound``, ``ScheduleUnreadable``, ``CalendarMissing`` and ``StoreRefused``.
        """
        now = work.now
        schedule = self.schedules.readable(namespace, schedule_id, now=now)
        assert schedule.schedule is not None
        place = _Place(wanted.from_at - MILLISECOND, 0, now) if work.cursor is None else _Place.read(work.cursor)
        # What comes due between two pages is fired by the schedule.
        end = min(wanted.to_at, place.began_at + MILLISECOND)
        if schedule.schedule.pending is not None:
            end = min(end, schedule.schedule.pending.scheduled_at)
        occurrences = occurrences_of(schedule, finder(self.schedules.store, namespace.tenant_id))
        found, is_all = _within(occurrences, place.passed_at, end, work.limit)
        due = (place.began_at + timedelta(seconds=(place.index + n) / wanted.per_second) for n in range(len(found)))
        timers = [
            backfilled(schedule, Occurrence(each.scheduled_at, round_up(at)), began_at=place.began_at, now=now)
            for each, at in zip(found, due, strict=True)
        ]
        created = len(timers) if work.dry_run else self._store(schedule_id, timers, now)
        rest = None if is_all else _Place(found[-1].scheduled_at, place.index + len(found), place.began_at)
        return BackfillPage(
            created,
            len(timers) - created,
            timers[-1].content.execute_at if timers else None,
            None if rest is None else str(rest),
        )

    def _store(self, schedule_id: str, timers: list[Timer], now: datetime) -> int:
        """Return how many were stored: all but those whose timer of an earlier backfill has not ended."""
        created = 0
        for start in range(0, len(timers), _AT_ONCE):
            part = timers[start : start + _AT_ONCE]
            results = self.schedules.store.timers.put(part, mode=PutMode.CREATE, now=now)
            done = [self._again(each, result, now) for each, result in zip(part, results, strict=True)]
            if any(each.status is PutStatus.REFUSED for each in done):
                raise refused(schedule_id)
            stored = [each.timer for each in done if each.status in _STORED and each.timer is not None]
            created += len(stored)
            self.schedules.on_stored(stored)
        return created

    def _again(self, timer: Timer, result: PutResult, now: datetime) -> PutResult:
        """Put ``timer`` in the place of one of an earlier backfill that has ended."""
        stored = result.timer
        if result.status is not PutStatus.CONFLICT or stored is None or not stored.state.is_finished:
            return result
        (again,) = self.schedules.store.timers.put(
            [timer], mode=PutMode.REPLACE, now=now, if_revision=stored.revision
        )
        return again

    def cancel_page(self, namespace: Namespace, schedule_id: str, work: PageOfWork) -> ChangedPage:
        """Remove a page of what a schedule's backfills are still to send.

        Raises ``ScheduleNotFound``.
        """
        now = work.now
        self.schedules.get(namespace, schedule_id, now=now)
        store = self.schedules.store
        page = store.schedules.beside(
            namespace, backfill_timer_id(schedule_id), cursor=work.cursor, limit=work.limit, now=now
        )
        waiting = [timer for timer in page.items if timer.state is TimerState.SCHEDULED]
        skipped = sum(timer.state.has_open_attempt for timer in page.items)
        if waiting and not work.dry_run:
            refs = [TimerRef(timer.timer_id, timer.revision) for timer in waiting]
            results = store.timers.delete(namespace, refs, now=now)
            skipped += sum(each.status is not ChangeStatus.APPLIED for each in results)
            cancelled = sum(each.status is ChangeStatus.APPLIED for each in results)
        else:
            cancelled = len(waiting)
        return ChangedPage(cancelled, skipped, page.next_cursor)

    def delete_schedule(
        self, namespace: Namespace, schedule_id: str, *, clock: Clock, wanted: Revisions | None = None
    ) -> None:
        """Remove what its backfills are still to send, then the finished timers of its backfills and triggers, which
        are its history, and then the schedule itself, as ``Schedules.delete`` does.

        Raises as that does, and ``StoreUnavailable`` when it takes longer than a request may: another one goes on.
        """
        now, deadline = clock.now(), clock.monotonic() + BUDGET_SECONDS
        self.schedules.revision_that_matches(namespace, schedule_timer_id(schedule_id), wanted, now=now)
        self.schedules.get(namespace, schedule_id, now=now)
        timers, beside = self.schedules.store.timers, self.schedules.store.schedules.beside
        backfills, triggers = prefixes_beside(schedule_id)
        for prefix in (backfills, triggers):
            cursor = None
            while True:
                page = beside(namespace, prefix, cursor=cursor, limit=_REMOVED_AT_ONCE, now=now)
                gone = [each for each in page.items if each.state.is_finished or _is_to_be_sent(each, backfills)]
                refs = [TimerRef(each.timer_id, each.revision) for each in gone]
                timers.delete(namespace, refs, now=now)
                if page.next_cursor is None:
                    break
                if clock.monotonic() > deadline:
                    raise StoreUnavailable("the timers of its backfills are not all removed yet: delete it again")
                cursor = page.next_cursor
        self.schedules.delete(namespace, schedule_id, now=now, wanted=wanted)


def _is_to_be_sent(timer: Timer, backfills: str) -> bool:
    return timer.state is TimerState.SCHEDULED and timer.timer_id.startswith(backfills)


def _within(
    occurrences: Occurrences, passed_at: datetime, end: datetime, limit: int
) -> tuple[list[Occurrence], bool]:
    """Return up to ``limit`` occurrences after ``passed_at`` and before ``end``, and whether these are all."""
    found: list[Occurrence] = []
    following = occurrences.after(passed_at)
    while following is not None and following.scheduled_at < end:
        if len(found) == limit:
            return found, False
        found.append(following)
        following = occurrences.after(following.scheduled_at)
    return found, True
