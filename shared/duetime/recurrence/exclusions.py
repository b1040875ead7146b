"""Leaves out occurrences: on dates, or at times that a cron expression matches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from duetime.domain.errors import InvalidInput
from duetime.recurrence.cron_calendar import CronCalendar
from duetime.recurrence.spec import MAX_EXCLUSIONS

MAX_EXPRESSIONS: Final = 20
"""Of the exclusions: each is asked about each occurrence."""
MAX_STEPS: Final = 5_000
"""A search that finds this many excluded minutes or days in a row gives up: the occurrences have ended."""

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_MILLISECOND = timedelta(milliseconds=1)
_MINUTE = timedelta(minutes=1)
_DAY = timedelta(days=1)


class Source(Protocol):
    """Makes occurrences. None: there is none for long, which ends them."""

    def next_after(self, instant: datetime) -> datetime | None: ...

    def previous_before(self, instant: datetime) -> datetime | None: ...


class Exclusions:
    """``items`` are dates like ``2026-12-25``, and cron expressions. All are of local time."""

    def __init__(self, items: Sequence[str], zone: ZoneInfo) -> None:
        """Raise ``InvalidInput`` for ``exclude`` when an item is neither."""
        if len(items) > MAX_EXCLUSIONS:
            raise InvalidInput("exclude", f"must have {MAX_EXCLUSIONS} items or less")
        if sum(not is_date(item) for item in items) > MAX_EXPRESSIONS:
            raise InvalidInput("exclude", f"must have {MAX_EXPRESSIONS} cron expressions or less")
        self._zone = zone
        self.dates: frozenset[date] = frozenset(
            _date(item, f"exclude[{place}]") for place, item in enumerate(items) if is_date(item)
        )
        self.calendars = [
            CronCalendar(item, f"exclude[{place}]") for place, item in enumerate(items) if not is_date(item)
        ]

    def excluded(self, instant: datetime, times: CronCalendar | None) -> tuple[datetime, datetime] | None:
        """Return None when ``instant`` is not excluded; else the first instant of a span around it without any
        occurrence that counts, and the first after it. ``times``: the expression that made it, if one did."""
        zoned = instant.astimezone(self._zone)
        local = zoned.replace(tzinfo=None)
        day = local.date()
        if day in self.dates:
            return self._whole_day(day)
        for calendar in self.calendars:
            if calendar.matches(local):
                if calendar.has_times_of(times):
                    return self._whole_day(day)
                if calendar.text.has_seconds:
                    return instant, instant + _MILLISECOND
                start = instant - timedelta(seconds=local.second, microseconds=local.microsecond)
                return start, start + _MINUTE
        return None

    def _whole_day(self, day: date) -> tuple[datetime, datetime]:
        return self._midnight(day), self._midnight(day + _DAY)

    def _midnight(self, day: date) -> datetime:
        return datetime(day.year, day.month, day.day, tzinfo=self._zone).astimezone(UTC)


class ExcludingSource:
    """A source without what is excluded. ``times`` is as in ``Exclusions.excluded``."""

    def __init__(self, source: Source, exclusions: Exclusions, times: CronCalendar | None) -> None:
        self._source = source
        self._exclusions = exclusions
        self._times = times

    def next_after(self, instant: datetime) -> datetime | None:
        for _ in range(MAX_STEPS):
            found = self._source.next_after(instant)
            span = None if found is None else self._exclusions.excluded(found, self._times)
            if found is None or span is None:
                return found
            instant = max(found, span[1] - _MILLISECOND)
        return None

    def previous_before(self, instant: datetime) -> datetime | None:
        for _ in range(MAX_STEPS):
            found = self._source.previous_before(instant)
            span = None if found is None else self._exclusions.excluded(found, self._times)
            if found is None or span is None:
                return found
            instant = min(found, span[0])
        return None


def is_date(item: str) -> bool:
    return _DATE.fullmatch(item) is not None


def _date(text: str, field: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InvalidInput(field, f"there is no day {text}") from None
