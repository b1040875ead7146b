"""Leaves out occurrences: on dates, at times that a cron expression matches, or on all but business days."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from duetime.domain.errors import InvalidInput
from duetime.domain.times import MAX_INSTANT, MILLISECOND, MIN_INSTANT
from duetime.recurrence.business_days import BusinessDays
from duetime.recurrence.cron_calendar import CronCalendar
from duetime.recurrence.spec import MAX_EXCLUSIONS

MAX_EXPRESSIONS: Final = 20
"""Of the exclusions: each is asked about each occurrence."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MIDNIGHT = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time
_SECOND, _MINUTE, _HOUR, _DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


class Exclusions:
    """``items`` are dates like ``2026-12-25``, and cron expressions. All are of local time. With ``days`` what is on
    no business day is left out, too.

    ``times``: the expressions that make the occurrences; None is in it for what is no expression. They tell which
    expressions leave out whole days.
    """

    def __init__(
        self,
        items: Sequence[str],
        zone: ZoneInfo,
        times: Sequence[CronCalendar | None],
        days: BusinessDays | None = None,
    ) -> None:
        """Raise ``InvalidInput`` for ``exclude`` when an item is neither."""
        if len(items) > MAX_EXCLUSIONS:
            raise InvalidInput("exclude", f"must have {MAX_EXCLUSIONS} items or less")
        if sum(not is_date(item) for item in items) > MAX_EXPRESSIONS:
            raise InvalidInput("exclude", f"must have {MAX_EXPRESSIONS} cron expressions or less")
        self._zone = zone
        self._days = days
        self._dates: set[date] = set()
        self._calendars: list[tuple[CronCalendar, timedelta]] = []
        for place, item in enumerate(items):
            if is_date(item):
                self._dates.add(_date(item, f"exclude[{place}]"))
            else:
                calendar = CronCalendar(item, f"exclude[{place}]")
                self._calendars.append((calendar, _span(calendar, times)))

    def around(self, instant: datetime) -> tuple[datetime, datetime] | None:
        """Return None when ``instant`` is not excluded; else the first instant of a span around it without any
        occurrence that counts, and the first after it."""
        zoned = instant.astimezone(self._zone)
        local = zoned.replace(tzinfo=None)
        if local.date() in self._dates:
            return self._whole_day(local.date())
        if self._days is not None and not self._days.has(local.date()):
            return self._days_off(self._days, local.date())
        for calendar, span in self._calendars:
            if calendar.matches(local):
                if span == _DAY:
                    return self._whole_day(local.date())
                start = instant - (local - _MIDNIGHT) % span
                # Where clocks are changed within the hour, the rest of it may be of another.
                is_same = start.astimezone(self._zone).utcoffset() == zoned.utcoffset()
                is_same &= (start + span).astimezone(self._zone).utcoffset() == zoned.utcoffset()
                return (start, start + span) if is_same else (instant, instant + MILLISECOND)
        return None

    def _whole_day(self, day: date) -> tuple[datetime, datetime]:
        return self._midnight(day), self._midnight(day + _DAY)

    def _days_off(self, days: BusinessDays, day: date) -> tuple[datetime, datetime]:
        last, following = days.last_to(day), days.first_from(day)
        return (
            MIN_INSTANT if last is None else self._midnight(last + _DAY),
            MAX_INSTANT if following is None else self._midnight(following),
        )

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)


def _span(calendar: CronCalendar, times: Sequence[CronCalendar | None]) -> timedelta:
    """Return what is left out as a whole when ``calendar`` matches a time in it."""
    if all(calendar.has_times_of(each) for each in times):
        return _DAY
    if calendar.has_all_seconds:
        return _HOUR if calendar.has_all_minutes else _MINUTE
    return _SECOND


def is_date(item: str) -> bool:
    return _DATE.fullmatch(item) is not None


def _date(text: str, field: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(field, f"there is no day {text}") from None
