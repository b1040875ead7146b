"""Schedules by filter: listed, paused, resumed and recomputed, a page at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.app.announcing import announce
from duetime.app.calendars import finder
from duetime.app.pages import ChangedPage, PageOfWork
from duetime.app.schedules import Schedules
from duetime.domain.errors import CalendarMissing, ScheduleEnded, ScheduleNotFound, ScheduleUnreadable
from duetime.domain.events import Event
from duetime.domain.namespaces import Namespace
from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import ScheduleState, retimed
from duetime.domain.timers import Timer
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import FindCalendar, occurrences_of, timing_of
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import ChangeStatus

READS_PER_PAGE = 10
"""Of the store, when nothing fits: so that a page takes a bounded time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """``due_from`` (inclusive) and ``due_to`` (exclusive) are of the next occurrence; None: any."""

    state: ScheduleState | None = None
    tag: str | None = None
    calendar: str | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None

    def fits(self, timer: Timer) -> bool:
        pending = None if timer.schedule is None else timer.schedule.pending
        due_at = None if pending is None else pending.due_at
        return (
            (self.state is None or self.state is state_of(timer))
            and (self.tag is None or self.tag in timer.content.tags)
            and (self.calendar is None or self.calendar == _calendar_of(timer))
            and (self.due_from is None or (due_at is not None and due_at >= self.due_from))
            and (self.due_to is None or (due_at is not None and due_at < self.due_to))
        )


@dataclass(frozen=True, slots=True)
class ScheduleLists:
    schedules: Schedules

    def list(
        self, namespace: Namespace, wanted: ScheduleFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[Timer]:
        """Return a page of schedules that fit, by shard and id. It may be short, even empty, and not be the last."""
        found: list[Timer] = []
        for _ in range(READS_PER_PAGE):
            page = self.schedules.store.schedules.list(namespace, cursor=cursor, limit=limit, now=now)
            found, cursor = [timer for timer in page.items if wanted.fits(timer)], page.next_cursor
            if found or cursor is None:
                break
        return Page(found, cursor)

    def pause_page(
        self, namespace: Namespace, wanted: ScheduleFilter, work: PageOfWork, *, reason: str | None
    ) -> ChangedPage:
        """Pause a page of those that fit.

        Called again with ``next_cursor`` until that is None, it meets each once.
        """
        return self._each(
            namespace, wanted, work, lambda made, each: made.pause(namespace, each, reason=reason, now=work.now)
        )

    def resume_page(self, namespace: Namespace, wanted: ScheduleFilter, work: PageOfWork) -> ChangedPage:
        return self._each(namespace, wanted, work, lambda made, each: made.resume(namespace, each, now=work.now))

    def _each(
        self,
        namespace: Namespace,
        wanted: ScheduleFilter,
        work: PageOfWork,
        change: Callable[[Schedules, str], Timer],
    ) -> ChangedPage:
        """Change all of a page. Their events are published together, so a bus that is down is waited for once."""
        page = self.list(namespace, wanted, cursor=work.cursor, limit=work.limit, now=work.now)
        skipped, events = 0, list[Event]()
        gathering = replace(self.schedules, publish=events.extend)
        try:
            for timer in () if work.dry_run else page.items:
                try:
                    change(gathering, timer.schedule_id or "")
                except (ScheduleEnded, ScheduleNotFound, ScheduleUnreadable):
                    skipped += 1
        finally:
            announce(self.schedules.publish, events)
        return ChangedPage(len(page.items) - skipped, skipped, page.next_cursor)

    def recompute_page(self, namespace: Namespace, work: PageOfWork) -> ChangedPage:
        """Compute again when the schedules of a page occur next: zones have new rules, or a calendar has changed.

        What comes out the same is not written. Those that have ended stay so.
        """
        now = work.now
        page = self.list(namespace, ScheduleFilter(), cursor=work.cursor, limit=work.limit, now=now)
        find = finder(self.schedules.store, namespace.tenant_id)
        changed = [timer for timer in page.items if _recomputed(timer, find, now) is not timer]
        skipped = 0
        for timer in () if work.dry_run else changed:
            result = self.schedules.store.schedules.change(
                namespace, timer.schedule_id or "", lambda stored: _recomputed(stored, find, now), now=now
            )
            if result.status is ChangeStatus.APPLIED and result.timer is not None:
                self.schedules.on_stored([result.timer])
            else:
                skipped += 1
        return ChangedPage(len(changed) - skipped, skipped, page.next_cursor)


def _recomputed(timer: Timer, find: FindCalendar, now: datetime) -> Timer:
    """Return ``timer`` itself when nothing changes, what is stored of it cannot be read, or its calendar is not
    there."""
    schedule = timer.schedule
    if schedule is None or schedule.pending is None:
        return timer
    try:
        following = retimed(schedule, occurrences_of(timer, find))
    except (ScheduleUnreadable, CalendarMissing):
        return timer
    return timer if following.pending == schedule.pending else standing_at(timer, following, now=now)


def state_of(timer: Timer) -> ScheduleState:
    """Return the state of a schedule."""
    schedule = timer.schedule
    if schedule is None or readable_timing(timer) is None:
        return ScheduleState.UNREADABLE
    if schedule.pending is None:
        return ScheduleState.ENDED
    return ScheduleState.ACTIVE if schedule.pause is None else ScheduleState.PAUSED


def _calendar_of(timer: Timer) -> str | None:
    timing = readable_timing(timer)
    return None if timing is None else timing.calendar


def readable_timing(timer: Timer) -> TimingSpec | None:
    """Return what is stored of the times of a schedule; None when that cannot be read."""
    try:
        return timing_of(timer)
    except ScheduleUnreadable:
        return None
