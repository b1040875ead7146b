"""What a schedule has sent, and what it is going to send."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from duetime.app.calendars import finder
from duetime.domain.errors import CalendarMissing, InvalidInput, ScheduleUnreadable
from duetime.domain.ids import backfill_timer_id, trigger_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import OccurrenceRecord
from duetime.domain.schedule_timers import line_of_beside
from duetime.domain.schedules import Occurrence
from duetime.domain.timers import Timer
from duetime.domain.times import MILLISECOND
from duetime.recurrence.stored import occurrences_of
from duetime.stores.core.store import Store

_READS_BESIDE: Final = 5
"""Of the timers beside a schedule, for its history: those with large payloads, and those of reshards, take more."""
_MAX_PASSED_OVER: Final = 10_000


def past(
    store: Store, namespace: Namespace, schedule: Timer, *, from_at: datetime | None, limit: int, now: datetime
) -> list[OccurrenceRecord]:
    """Return the last lines of the history, the latest first, with triggers and backfills that are still kept.

    With ``from_at`` only of what is scheduled then or later.
    """
    lines = store.schedules.history(schedule, limit=limit)
    for prefix in prefixes_beside(schedule.schedule_id or ""):
        for timer in _last_beside(store, namespace, prefix, limit, now):
            line = line_of_beside(timer)
            if line is not None and timer.created_at >= schedule.created_at:  # not of an earlier one with the id
                lines.append(line)
    wanted = [line for line in lines if from_at is None or (line.last_scheduled_at or line.scheduled_at) >= from_at]
    return sorted(wanted, key=lambda line: line.scheduled_at, reverse=True)[:limit]


def coming(
    store: Store, schedule: Timer, tenant_id: str, *, from_at: datetime | None, limit: int
) -> list[Occurrence]:
    """Return the occurrences to come, from the pending one on or from ``from_at`` on, if that is later.

    None of a schedule that cannot be read, or whose calendar is not there. Raises ``InvalidInput`` for a
    ``from_at`` that is too far away to count the firings until then.
    """
    state = schedule.schedule
    if state is None or state.pending is None:
        return []
    try:
        occurrences = occurrences_of(schedule, finder(store, tenant_id))
    except (ScheduleUnreadable, CalendarMissing):
        return []
    most, counted = state.policy.max_firings, state.firings
    found: list[Occurrence] = []
    following = occurrences.after(state.passed_at) if state.is_unknown else state.pending
    if from_at is not None and most is None and following is not None and following.scheduled_at < from_at:
        following = occurrences.after(from_at - MILLISECOND)
    while following is not None and len(found) < limit and (most is None or counted < most):
        counted += 1
        if from_at is None or following.scheduled_at >= from_at:
            found.append(following)
        elif counted - state.firings > _MAX_PASSED_OVER:
            raise InvalidInput("from", f"must be within {_MAX_PASSED_OVER:,} occurrences, which maxFirings counts")
        following = occurrences.after(following.scheduled_at)
    return found


def prefixes_beside(schedule_id: str) -> tuple[str, str]:
    """Return what the ids of a schedule's backfills begin with, and those of its triggers."""
    return backfill_timer_id(schedule_id), trigger_timer_id(schedule_id)


def _last_beside(store: Store, namespace: Namespace, prefix: str, limit: int, now: datetime) -> list[Timer]:
    found: list[Timer] = []
    cursor: str | None = None
    for _ in range(_READS_BESIDE):
        page = store.schedules.beside(namespace, prefix, cursor=cursor, limit=limit, now=now)
        found, cursor = [*found, *page.items], page.next_cursor
        if cursor is None or len(found) >= limit:
            break
    return found
