"""Calendars: which days are business days. A tenant's schedules share them by name.

They are settings of the internal namespace ``days@<tenant>``, which has no timers: so they are stored, cached,
exported and counted in revisions as every namespace's settings are.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from enum import StrEnum
from typing import Final

from duetime.domain.errors import InvalidInput
from duetime.domain.tenants import internal_namespace

CALENDAR_PATTERN: Final = "[a-z0-9][a-z0-9._-]{0,62}"
MAX_CALENDARS: Final = 100
MAX_DATES: Final = 1000
"""Of a calendar."""
MAX_DATES_OF_TENANT: Final = 10_000
"""They are one row, which each poller reads again after ``NAMESPACE_SECONDS``."""
_NAME = re.compile(CALENDAR_PATTERN)


class Weekday(StrEnum):
    MON = "MON"
    TUE = "TUE"
    WED = "WED"
    THU = "THU"
    FRI = "FRI"
    SAT = "SAT"
    SUN = "SUN"


WEEKDAYS: Final = tuple(Weekday)
"""By ``date.weekday``."""
MONDAY_TO_FRIDAY: Final = frozenset(WEEKDAYS[:5])


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """A day is a business day if it is in ``business_days``, or of ``weekdays`` and not in ``days_off``.

    ``revision`` counts its changes from 1.
    """

    name: str
    weekdays: frozenset[Weekday] = MONDAY_TO_FRIDAY
    days_off: frozenset[date] = frozenset()
    business_days: frozenset[date] = frozenset()
    revision: int = 1

    def has(self, day: date) -> bool:
        """Tell whether ``day`` is a business day."""
        return day in self.business_days or (WEEKDAYS[day.weekday()] in self.weekdays and day not in self.days_off)

    @property
    def number_of_dates(self) -> int:
        return len(self.days_off) + len(self.business_days)


def days_namespace(tenant_id: str) -> str:
    """Return the name of the internal namespace whose settings have the calendars of a tenant."""
    return internal_namespace("days", tenant_id)


def is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


def check_name(name: str) -> str:
    """Return ``name``, or raise ``ValueError`` saying what the name of a calendar may be."""
    if not is_name(name):
        raise ValueError(f"must match {CALENDAR_PATTERN}")
    return name


def checked(calendar: Calendar, others: Iterable[Calendar]) -> Calendar:
    """Return ``calendar``, which is to be stored beside ``others``. Raises ``InvalidInput`` with the field."""
    try:
        check_name(calendar.name)
    except ValueError as error:
        raise InvalidInput("calendar", str(error)) from None
    if not calendar.weekdays and not calendar.business_days:
        raise InvalidInput("weekdays", "must have at least one, unless there are businessDays")
    if both := calendar.days_off & calendar.business_days:
        raise InvalidInput("businessDays", f"must not be in daysOff too: {min(both)}")
    if calendar.number_of_dates > MAX_DATES:
        raise InvalidInput("daysOff", f"must have, with businessDays, {MAX_DATES} dates or less")
    others = list(others)
    if len(others) >= MAX_CALENDARS:
        raise InvalidInput("calendar", f"there are {len(others)} calendars already, the most that a tenant may have")
    if calendar.number_of_dates + sum(each.number_of_dates for each in others) > MAX_DATES_OF_TENANT:
        raise InvalidInput("daysOff", f"the calendars of a tenant have {MAX_DATES_OF_TENANT} dates or less together")
    return calendar
