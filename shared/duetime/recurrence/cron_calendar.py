"""The local times of a cron expression. CronSim finds them; here are nearest weekdays, years, and an end."""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from datetime import date, datetime, timedelta
from functools import lru_cache

from cronsim import CronSim, CronSimError

from duetime.domain.errors import InvalidInput
from duetime.recurrence.cron_text import CronText, read_cron
from duetime.recurrence.local_time import SECOND

_DAYS_OF_MONTH = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_START = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time
_NO_DAY = "1"


class _Calendar(CronSim):
    """CronSim with ``nW``: the weekday nearest to a day of the month, in the same month.

    And without its steps from hour to hour, which are half the time of most searches: hours can be counted where
    there is no zone, as here.
    """

    near_days: tuple[int, ...]

    def __init__(self, text: CronText) -> None:
        fields = list(text.fields)
        has_near_days_alone = fields[3] == "-"
        if has_near_days_alone:
            fields[3] = _NO_DAY
        super().__init__(" ".join(fields), _START)
        if has_near_days_alone:
            self.days = set()
        self.near_days = text.near_days

    def match_dom(self, d: date) -> bool:
        return super().match_dom(d) or (
            bool(self.near_days) and d.day in _nearest_weekdays(self.near_days, *monthrange(d.year, d.month))
        )

    def advance_hour(self) -> bool:
        hour = self.dt.hour
        if hour in self.hours:
            return False
        following = min((each for each in self.hours if each > hour), default=24)
        self.dt = self.dt.replace(hour=0, minute=0, second=0) + timedelta(hours=following)
        return True

    def reverse_hour(self) -> bool:
        hour = self.dt.hour
        if hour in self.hours:
            return False
        previous = max((each for each in self.hours if each < hour), default=-1)
        self.dt = self.dt.replace(hour=0, minute=0, second=0) + timedelta(hours=previous + 1) - SECOND
        return True


class CronCalendar:
    """See ``local_time.LocalCalendar``. A search ends after 50 years without one, as CronSim's."""

    def __init__(self, text: str, field: str) -> None:
        """Raise ``InvalidInput`` for ``field`` when ``text`` is no cron expression, or can never happen."""
        self.text = read_cron(text, field)
        try:
            self._template = _Calendar(self.text)
        except CronSimError:  # all else was checked
            raise InvalidInput(field, "day-of-month: no month of the expression has such a day") from None
        if self.first_from(_START) is None:
            raise InvalidInput(field, _never(self.text, self._template))

    @property
    def follows_elapsed_time(self) -> bool:
        return self.text.follows_elapsed_time

    @property
    def has_all_seconds(self) -> bool:
        """Whether it matches each second of a minute, or none of them is told apart."""
        return not self.text.has_seconds or len(self._template.seconds) == 60

    @property
    def has_all_minutes(self) -> bool:
        return len(self._template.minutes) == 60

    def first_from(self, local: datetime) -> datetime | None:
        years = self.text.years
        while True:
            found = self._search(local - SECOND, 1)
            if found is None or years is None or found.year in years:
                return found
            place = bisect_left(years, found.year)
            if place == len(years):
                return None
            local = datetime(years[place], 1, 1)  # noqa: DTZ001

    def last_before(self, local: datetime) -> datetime | None:
        years = self.text.years
        while True:
            found = self._search(local, -1)
            if found is None or years is None or found.year in years:
                return found
            place = bisect_left(years, found.year)
            if place == 0:
                return None
            local = datetime(years[place - 1] + 1, 1, 1)  # noqa: DTZ001

    def matches(self, local: datetime) -> bool:
        """Tell whether a local time is one of the calendar's, or within its minute if that has no seconds."""
        template = self._template
        return (
            (not self.text.has_seconds or local.second in template.seconds)
            and local.minute in template.minutes
            and local.hour in template.hours
            and self.matches_day(local.date())
        )

    def matches_day(self, day: date) -> bool:
        years = self.text.years
        is_of_year = (years is None or day.year in years) and day.month in self._template.months
        return is_of_year and self._template.match_day(day)

    def has_times_of(self, other: CronCalendar | None) -> bool:
        """Tell whether it has, on its days, every time of day of ``other``; None: every one there is."""
        mine = self._template
        if not self.has_all_seconds:
            return False
        hours = set(range(24)) if other is None else other._template.hours
        minutes = set(range(60)) if other is None else other._template.minutes
        return mine.hours >= hours and mine.minutes >= minutes

    def _search(self, local: datetime, direction: int) -> datetime | None:
        search = _Calendar.__new__(_Calendar)  # copy.copy takes four times as long
        search.__dict__ |= self._template.__dict__
        search.dt = local
        search.tick_direction = direction
        try:
            return next(search)
        except (StopIteration, OverflowError):  # the latter: there are no years beyond 9999, nor before 1
            return None


@lru_cache(maxsize=1024)
def _nearest_weekdays(days: tuple[int, ...], first_weekday: int, last_day: int) -> frozenset[int]:
    """Return the weekdays nearest to ``days`` in a month. Those that it does not have are left out."""
    return frozenset(_nearest_weekday(day, first_weekday, last_day) for day in days if day <= last_day)


def _nearest_weekday(day: int, first_weekday: int, last_day: int) -> int:
    weekday = (first_weekday + day - 1) % 7
    if weekday == 5:
        return day - 1 if day > 1 else day + 2
    if weekday == 6:
        return day + 1 if day < last_day else day - 2
    return day


def _never(text: CronText, calendar: CronSim) -> str:
    if text.years is not None:
        return "year: the expression matches no day of these years"
    has_day = any(day <= _DAYS_OF_MONTH[month - 1] for day in text.near_days for month in calendar.months)
    if text.near_days and not has_day:
        return "day-of-month: no month of the expression has such a day"
    return "day-of-month: no day matches it together with day-of-week and month"
