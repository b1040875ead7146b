"""Times of day that are moved to business days, and the days on which there is none.

All is in local time, as ``local_time.LocalCalendar`` has it. A time keeps its time of day when it is moved, and those
that meet are one.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import date, datetime, time, timedelta
from typing import Final

from duetime.domain.calendars import Calendar
from duetime.recurrence.local_time import LocalCalendar

MAX_MOVED_DAYS: Final = 31
"""A time without a business day as near as this is left out: so a search is bounded, whatever the calendar is."""
_DAY: Final = timedelta(days=1)
_MIDNIGHT: Final = time()


class BusinessDays:
    """The business days of a calendar, in their order."""

    def __init__(self, calendar: Calendar) -> None:
        self._calendar = calendar
        self._dates = sorted(calendar.business_days)
        self._most_off = 7 * (len(calendar.days_off) + 1)
        """Days in a row that may be off while there are weekdays."""

    def has(self, day: date) -> bool:
        return self._calendar.has(day)

    def first_from(self, day: date) -> date | None:
        """Return the first one that is ``day`` or later; None when there is none."""
        if self._calendar.weekdays:
            return self._nearest(day, _DAY)
        place = bisect_left(self._dates, day)
        return self._dates[place] if place < len(self._dates) else None

    def last_to(self, day: date) -> date | None:
        """Return the last one that is ``day`` or earlier; None when there is none."""
        if self._calendar.weekdays:
            return self._nearest(day, -_DAY)
        place = bisect_right(self._dates, day)
        return self._dates[place - 1] if place else None

    def _nearest(self, day: date, step: timedelta) -> date | None:
        try:
            for _ in range(self._most_off):
                if self._calendar.has(day):
                    return day
                day += step
        except OverflowError:  # there are no years beyond 9999, nor before 1
            pass
        return None


class MovedCalendar:
    """The times of day of ``times``, each on the first business day from its day on, or back (``forwards``)."""

    follows_elapsed_time = False

    def __init__(self, times: LocalCalendar, days: BusinessDays, *, forwards: bool) -> None:
        self._times = times
        self._days = days
        self._forwards = forwards

    def first_from(self, local: datetime) -> datetime | None:
        day = self._days.first_from(local.date())
        earliest = local.time() if day == local.date() else _MIDNIGHT
        while day is not None:  # each is later than the one before
            at, last = self._moved_to(day)
            best: time | None = None
            found: datetime | None = None
            while at <= last:
                found = self._times.first_from(datetime.combine(at, earliest))
                if found is None or found.date() > last:
                    break
                at = found.date()
                if found.time() >= earliest:
                    best = found.time() if best is None else min(best, found.time())
                    at += _DAY
            if best is not None:
                return datetime.combine(day, best)
            if found is None:
                return None
            before, following = day, self._days.first_from(found.date())
            day = following if self._forwards else self._days.last_to(found.date())
            if day is None or day <= before:  # too far away for the time that was found
                day = following
            earliest = _MIDNIGHT
        return None

    def last_before(self, local: datetime) -> datetime | None:
        day = self._days.last_to(local.date())
        latest = local.time() if day == local.date() else None
        while day is not None:  # each is earlier than the one before
            first, at = self._moved_to(day)
            best: time | None = None
            found: datetime | None = None
            while at >= first:
                found = self._times.last_before(_end(at, latest))
                if found is None or found.date() < first:
                    break
                at = found.date()
                if latest is None or found.time() < latest:
                    best = found.time() if best is None else max(best, found.time())
                    at -= _DAY
            if best is not None:
                return datetime.combine(day, best)
            if found is None:
                return None
            after, previous = day, self._days.last_to(found.date())
            day = self._days.first_from(found.date()) if self._forwards else previous
            if day is None or day >= after:
                day = previous
            latest = None
        return None

    def _moved_to(self, day: date) -> tuple[date, date]:
        """Return the first and the last day whose times are moved to the business day ``day``; it is one of them."""
        if self._forwards:
            before = self._days.last_to(day - _DAY)
            first = day - MAX_MOVED_DAYS * _DAY
            return (first if before is None else max(first, before + _DAY)), day
        following = self._days.first_from(day + _DAY)
        last = day + MAX_MOVED_DAYS * _DAY
        return day, (last if following is None else min(last, following - _DAY))


def _end(day: date, latest: time | None) -> datetime:
    return datetime.combine(day + _DAY, _MIDNIGHT) if latest is None else datetime.combine(day, latest)
