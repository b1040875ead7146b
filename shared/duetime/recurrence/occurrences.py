"""The occurrences of a schedule: of all its sources, without what is excluded, each with its spread."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from duetime.domain.errors import InvalidInput
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT
from duetime.recurrence import zones
from duetime.recurrence.cron_calendar import CronCalendar
from duetime.recurrence.every import Every, check_interval, is_rate, rate_ms
from duetime.recurrence.exclusions import ExcludingSource, Exclusions, Source
from duetime.recurrence.local_time import ZonedCalendar
from duetime.recurrence.rrule_text import read_rrule
from duetime.recurrence.spec import MAX_SOURCES, MAX_WINDOW_MS, Occurrence, TimingSpec
from duetime.recurrence.spreading import Spread

_MILLISECOND = timedelta(milliseconds=1)
_CACHED: Final = 4096
_END: Final = MAX_INSTANT - timedelta(days=2)
"""Some zones are in another year by then, which has no dates."""
_FIRST_DAY: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time


class Recurrence:
    """The occurrences of a spec. Times are UTC; scheduled times rise strictly, and so do due times of one id."""

    def __init__(self, spec: TimingSpec, sources: tuple[Source, ...]) -> None:
        self.spec = spec
        self._sources = sources
        self._start = spec.start_at or MIN_INSTANT
        self._end = min(spec.end_at or _END, _END)
        self._spread = Spread(spec.jitter_ms, spec.window_ms)

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first scheduled time after ``instant``; None when there is none any more."""
        instant = max(instant, self._start - _MILLISECOND)
        if instant >= self._end:
            return None
        found = [each for source in self._sources if (each := _next(source, instant)) is not None]
        first = min(found, default=None)
        return first if first is not None and first <= self._end else None

    def previous_before(self, instant: datetime) -> datetime | None:
        """Return the last scheduled time before ``instant``; None when there is none."""
        instant = min(instant, self._end + _MILLISECOND)
        if instant <= self._start:
            return None
        found = [each for source in self._sources if (each := source.previous_before(instant)) is not None]
        last = max(found, default=None)
        return last if last is not None and last >= self._start else None

    def due_at(self, scheduled_at: datetime, schedule_id: str) -> datetime:
        """Return when an occurrence is to fire: the same for each call, and always before the next one's."""
        following = self.next_after(scheduled_at) if self.spec.jitter_ms else None
        return self._spread.due_at(scheduled_at, following, schedule_id)

    def occurrences(
        self, after: datetime, *, schedule_id: str = "", until: datetime = MAX_INSTANT, limit: int
    ) -> list[Occurrence]:
        """List up to ``limit`` occurrences scheduled after ``after`` and not after ``until``."""
        result: list[Occurrence] = []
        at = self.next_after(after)
        while at is not None and at <= until and len(result) < limit:
            following = self.next_after(at)
            result.append(Occurrence(at, self._spread.due_at(at, following, schedule_id)))
            at = following
        return result


@lru_cache(maxsize=_CACHED)
def recurrence(spec: TimingSpec) -> Recurrence:
    """Return the occurrences of ``spec``, checked: at least one is left.

    ``every`` is counted from ``anchor``, or else from 1970 in UTC; ``rate(...)`` and ``rrule`` from ``anchor``, or
    else ``start_at``, or else 1970. Raises ``InvalidInput`` with the field at fault and the reason.
    """
    zone = zones.zone(spec.time_zone)
    _check_bounds(spec)
    anchor = spec.anchor or MIN_INSTANT
    start = spec.anchor or spec.start_at
    plain: list[tuple[Source, CronCalendar | None]] = []
    for place, text in enumerate(spec.cron):
        field = _path("cron", place, len(spec.cron))
        if is_rate(text):
            plain.append((Every(rate_ms(text, field), start or MIN_INSTANT), None))
        else:
            calendar = CronCalendar(text, field)
            plain.append((ZonedCalendar(calendar, zone, spec.dst), calendar))
    if spec.every_ms is not None:
        plain.append((Every(check_interval(spec.every_ms), anchor), None))
    if spec.rrule:
        plain += [(each, None) for each in _rules(spec, start, zone)]
    exclusions = Exclusions(spec.exclude, zone)
    unlimited = tuple(source for source, _ in plain)
    if not spec.exclude:
        result = Recurrence(spec, unlimited)
    else:
        result = Recurrence(spec, tuple(ExcludingSource(source, exclusions, times) for source, times in plain))
    if result.next_after(MIN_INSTANT - _MILLISECOND) is None:
        is_excluded = spec.exclude and Recurrence(spec, unlimited).next_after(MIN_INSTANT - _MILLISECOND) is not None
        field = "exclude" if is_excluded else "endAt"
        raise InvalidInput(field, "must leave at least one occurrence")
    return result


def _next(source: Source, instant: datetime) -> datetime | None:
    try:
        return source.next_after(instant)
    except OverflowError:  # it lies behind ``_END``
        return None


def _rules(spec: TimingSpec, start: datetime | None, zone: ZoneInfo) -> list[Source]:
    from duetime.recurrence.rrule_calendar import RruleCalendar  # dateutil takes long to import, and few need it

    local = _FIRST_DAY if start is None else start.astimezone(zone).replace(tzinfo=None, fold=0, microsecond=0)
    rules: list[Source] = []
    for place, text in enumerate(spec.rrule):
        field = _path("rrule", place, len(spec.rrule))
        rule = read_rrule(text, field, zone)
        if rule.count is not None and start is None:
            raise InvalidInput(field, "COUNT must be given with startAt or anchor, which it is counted from")
        rules.append(ZonedCalendar(RruleCalendar(rule, local, field), zone, spec.dst))
    return rules


def _check_bounds(spec: TimingSpec) -> None:
    if not (spec.cron or spec.rrule or spec.every_ms is not None):
        raise InvalidInput("cron", "must be given, or every, or rrule")
    for field, texts in (("cron", spec.cron), ("rrule", spec.rrule)):
        if len(texts) > MAX_SOURCES:
            raise InvalidInput(field, f"must have at most {MAX_SOURCES} items")
    for field, at in (("anchor", spec.anchor), ("startAt", spec.start_at)):
        if at is not None and at > _END:
            raise InvalidInput(field, f"must not be after {_END:%Y-%m-%d}")
    if spec.start_at is not None and spec.end_at is not None and spec.end_at < spec.start_at:
        raise InvalidInput("endAt", "must not be before startAt")
    for field, value in (("jitter", spec.jitter_ms), ("window", spec.window_ms)):
        if not 0 <= value <= MAX_WINDOW_MS:
            raise InvalidInput(field, "must lie between 0 and 24h")


def _path(name: str, place: int, number: int) -> str:
    return name if number == 1 else f"{name}[{place}]"
