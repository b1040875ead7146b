"""The times of a schedule as its timer keeps them: a JSON object of what is not as it is by default."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from datetime import datetime
from functools import lru_cache, partial
from typing import Any, TypeAlias

from duetime.domain.calendars import Calendar
from duetime.domain.errors import CalendarMissing, InvalidInput, ScheduleUnreadable
from duetime.domain.schedules import Occurrences
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant, read_instant
from duetime.recurrence.spec import DayOff, Dst, TimingSpec

FindCalendar: TypeAlias = Callable[[str], Calendar | None]
"""Finds a tenant's calendar by its name."""
_CACHED = 4096
_INSTANTS = ("anchor", "start_at", "end_at")
_LISTS = ("cron", "rrule", "exclude")


def timing_json(spec: TimingSpec) -> str:
    given = {each.name: getattr(spec, each.name) for each in fields(spec)}
    values = {each.name: given[each.name] for each in fields(spec) if given[each.name] != each.default}
    return json.dumps(values, ensure_ascii=False, separators=(",", ":"), default=_as_json)


def _as_json(value: datetime) -> str:
    return format_instant(value)


@lru_cache(maxsize=_CACHED)
def read_timing(text: str) -> TimingSpec:
    """Return what ``timing_json`` has written. Raises ``ValueError``, ``TypeError`` or ``AttributeError`` for any
    other."""
    values: dict[str, Any] = dict(json.loads(text))
    values |= {name: read_instant(values[name]) for name in _INSTANTS if name in values}
    values |= {name: tuple(values[name]) for name in _LISTS if name in values}
    if "dst" in values:
        values["dst"] = Dst(values["dst"])
    if "day_off" in values:
        values["day_off"] = DayOff(values["day_off"])
    return TimingSpec(**values)


def occurrences_by(spec: TimingSpec, schedule_id: str, find: FindCalendar) -> Occurrences:
    """Return the occurrences of a schedule with these times. Raises ``InvalidInput``."""
    return _by_id(spec, None if spec.calendar is None else find(spec.calendar))(schedule_id)


def _by_id(spec: TimingSpec, calendar: Calendar | None) -> Callable[[str], Occurrences]:
    # Loading the calendars takes long, and whoever has no schedule does without.
    from duetime.recurrence.occurrences import ScheduleOccurrences, recurrence

    return partial(ScheduleOccurrences, recurrence(spec, calendar))


def timing_of(schedule: Timer) -> TimingSpec:
    """Return the times of a stored schedule. Raises ``ScheduleUnreadable``."""
    try:
        return read_timing(schedule.content.timing_json or "")
    except (ValueError, TypeError, AttributeError):
        raise ScheduleUnreadable(schedule.schedule_id or "") from None


def occurrences_of(schedule: Timer, find: FindCalendar) -> Occurrences:
    """Return the occurrences of a stored schedule. Raises ``ScheduleUnreadable`` and ``CalendarMissing``.

    What was valid when it was stored need not be so by now: a time zone may have gone.
    """
    schedule_id, text = schedule.schedule_id or "", schedule.content.timing_json or ""
    try:
        name = read_timing(text).calendar
        calendar = None if name is None else find(name)
        if name is not None and calendar is None:
            raise CalendarMissing(schedule_id, name)
        return _stored_by_id(text, calendar)(schedule_id)
    except (ValueError, TypeError, AttributeError, InvalidInput):
        raise ScheduleUnreadable(schedule_id) from None


@lru_cache(maxsize=_CACHED)
def _stored_by_id(text: str, calendar: Calendar | None) -> Callable[[str], Occurrences]:
    """Return ``_by_id`` of what a text says: the text is found faster."""
    return _by_id(read_timing(text), calendar)
