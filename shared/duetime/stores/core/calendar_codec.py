"""Calendars in the settings of their namespace, and back."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from functools import lru_cache
from typing import Any

from duetime.domain.calendars import Calendar, Weekday

_CACHED = 1024


def calendar_row(calendar: Calendar) -> dict[str, Any]:
    """Return what is stored of a calendar. Its days are one text, which takes least room and time."""
    return {
        "weekdays": " ".join(sorted(calendar.weekdays)),
        "daysOff": _text(calendar.days_off),
        "businessDays": _text(calendar.business_days),
        "revision": calendar.revision,
    }


def read_calendar(name: str, row: dict[str, Any]) -> Calendar:
    """Read a calendar. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for what no ``calendar_row`` made."""
    return _calendar(name, row["weekdays"], row["daysOff"], row["businessDays"], row["revision"])


@lru_cache(maxsize=_CACHED)
def _calendar(name: str, weekdays: Any, days_off: Any, business_days: Any, revision: Any) -> Calendar:
    """Make a calendar. What is read again is the same object, so that what is computed of it is found without
    comparing its days.
    """
    if isinstance(revision, bool) or not isinstance(revision, int) or revision < 1:
        raise TypeError
    if not all(isinstance(each, str) for each in (weekdays, days_off, business_days)):
        raise TypeError
    return Calendar(
        name=name,
        weekdays=frozenset(map(Weekday, weekdays.split())),
        days_off=frozenset(map(date.fromisoformat, days_off.split())),
        business_days=frozenset(map(date.fromisoformat, business_days.split())),
        revision=revision,
    )


def _text(days: Iterable[date]) -> str:
    return " ".join(each.isoformat() for each in sorted(days))
