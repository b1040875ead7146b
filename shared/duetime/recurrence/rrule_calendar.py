"""The local times of a recurrence rule. dateutil lists them; here its start is moved near to where a search begins.

dateutil lists a rule from its start, so a rule by the hour that began ten years ago would take 90,000 steps for its
next time. A rule without COUNT is the same from every start that is a whole number of intervals later.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

from dateutil.rrule import rrule, weekday

from duetime.domain.errors import InvalidInput
from duetime.recurrence.local_time import SECOND
from duetime.recurrence.rrule_text import FREQUENCIES, WEEKDAYS, RruleText
from duetime.recurrence.spec import SEARCHED_YEARS

_PERIOD: Final = {
    "WEEKLY": timedelta(weeks=1),
    "DAILY": timedelta(days=1),
    "HOURLY": timedelta(hours=1),
}
_DAYS_OF_YEAR: Final = 366
_CYCLE_YEARS: Final = 400
_LAST_YEAR: Final = 9999


class RruleCalendar:
    """See ``local_time.LocalCalendar``. A search ends after 50 years without one, as that of cron expressions."""

    def __init__(self, text: RruleText, start: datetime, field: str) -> None:
        """``start`` is where intervals and COUNT are counted from, and gives the parts that the rule leaves open.

        Raises ``InvalidInput`` for ``field`` when the rule has no time at all.
        """
        self.text = text
        self._start = start
        self._parts = _parts(text, start)
        self._until = text.until
        try:
            if text.count is not None:
                self._until = self._last_of(text.count)
            has_times = self.first_from(start) is not None
        except ValueError:  # dateutil's, for parts that exclude each other
            has_times = False
        if not has_times:
            raise InvalidInput(field, f"must have a time within {SEARCHED_YEARS} years of its start")

    @property
    def follows_elapsed_time(self) -> bool:
        return self.text.level >= FREQUENCIES.index("HOURLY")

    def first_from(self, local: datetime) -> datetime | None:
        local = max(local, self._start)
        end = _later(local, SEARCHED_YEARS)
        until = end if self._until is None else min(self._until, end)
        return next((each for each in self._from(self._period_of(local), until) if each >= local), None)

    def last_before(self, local: datetime) -> datetime | None:
        end = local - SECOND if self._until is None else min(local - SECOND, self._until)
        periods = 0
        while end >= self._start:
            start = self._period_of(end, back=periods)
            found = None
            for found in self._from(start, end):  # noqa: B007  # the last is wanted
                pass
            if found is not None:
                return found
            if start <= self._start or end - start > timedelta(days=SEARCHED_YEARS * _DAYS_OF_YEAR):
                return None
            periods = periods * 2 + 1
        return None

    def _from(self, start: datetime, until: datetime) -> Iterator[datetime]:
        """Give the times from ``start``, where a period begins, and not before the rule's own start."""
        if until < self._start:
            return
        # dateutil looks at ``until`` when it has a time: a rule that has none is searched to the year 9999. Calendars
        # repeat after 400 years: put at their end, that is less than 400 years on.
        shift = (_LAST_YEAR - until.year) // _CYCLE_YEARS * _CYCLE_YEARS
        for each in rrule(dtstart=_moved(start, shift), until=_moved(until, shift), **self._parts):
            found = _moved(each, -shift)
            if found >= self._start:
                yield found

    def _period_of(self, local: datetime, *, back: int = 0) -> datetime:
        """Return where the period of ``local`` begins, or that ``back`` intervals earlier; not before the first.

        The first begins at the rule's start, in frequencies below a week; else with its week, month or year.
        """
        interval, first = self.text.interval, _beginning(self._start, self.text)
        if self.text.level <= 1:
            size = interval * (12 if self.text.frequency == "YEARLY" else 1)
            number = (local.year * 12 + local.month - first.year * 12 - first.month) // size - back
            months = first.year * 12 + first.month - 1 + max(0, number) * size
            return first.replace(year=months // 12, month=months % 12 + 1)
        size_of = _PERIOD[self.text.frequency] * interval
        return first + max(0, (local - first) // size_of - back) * size_of

    def _last_of(self, count: int) -> datetime | None:
        last, end = None, _later(self._start, SEARCHED_YEARS)
        for number, each in enumerate(self._from(_beginning(self._start, self.text), end), start=1):
            last = each
            if number == count:
                break
        return last


def _parts(text: RruleText, start: datetime) -> dict[str, Any]:
    """Return dateutil's arguments, with what a rule takes from its start by RFC 5545 spelled out."""
    lists = dict(text.lists)
    level = text.level
    for at_level, (name, value) in enumerate(
        (("BYHOUR", start.hour), ("BYMINUTE", start.minute), ("BYSECOND", start.second)), start=3
    ):
        if level <= at_level:
            lists.setdefault(name, (value,))
    has_days = bool(text.weekdays) or any(name in lists for name in ("BYMONTHDAY", "BYYEARDAY", "BYWEEKNO"))
    weekdays = [weekday(day, number) for number, day in text.weekdays]
    if not has_days and level <= 1:
        lists["BYMONTHDAY"] = (start.day,)
        if level == 0:
            lists.setdefault("BYMONTH", (start.month,))
    elif not has_days and level == 2:
        weekdays = [weekday(start.weekday())]
    return {
        "freq": level,
        "interval": text.interval,
        "wkst": weekday(WEEKDAYS.index(text.week_start)),
        "byweekday": weekdays or None,
        **{name.lower(): values for name, values in lists.items()},
    }


def _beginning(start: datetime, text: RruleText) -> datetime:
    if text.level > 2:
        return start.replace(**_zeros(text))
    day = start.replace(hour=0, minute=0, second=0)
    if text.frequency == "WEEKLY":
        return day - timedelta(days=(day.weekday() - WEEKDAYS.index(text.week_start)) % 7)
    return day.replace(day=1) if text.frequency == "MONTHLY" else day.replace(month=1, day=1)


def _zeros(text: RruleText) -> dict[str, Any]:
    """Return what is below the period, set to nothing: BYHOUR and the like may stand before the start's own."""
    below = ("hour", "minute", "second")[text.level - 3 :]
    return dict.fromkeys(below, 0)


def _moved(local: datetime, years: int) -> datetime:
    return local.replace(year=local.year + years)


def _later(local: datetime, years: int) -> datetime:
    # 29 February has no like in most years, and no year is beyond 9999.
    return local.replace(year=min(local.year + years, _LAST_YEAR), day=min(local.day, 28))
