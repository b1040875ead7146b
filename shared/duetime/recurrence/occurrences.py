"""The occurrences of a schedule: of all its sources, without what is excluded, each with its spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, time, timedelta
from functools import lru_cache
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from duetime.domain.calendars import Calendar
from duetime.domain.errors import InvalidInput
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.schedules import Occurrence
from duetime.domain.times import MAX_INSTANT, MILLISECOND, MIN_INSTANT
from duetime.recurrence import zones
from duetime.recurrence.business_days import BusinessDays, MovedCalendar
from duetime.recurrence.cron_calendar import CronCalendar
from duetime.recurrence.every import Every, check_interval, is_rate, rate_ms
from duetime.recurrence.exclusions import Exclusions
from duetime.recurrence.local_time import LocalCalendar, ZonedCalendar
from duetime.recurrence.rrule_text import read_rrule
from duetime.recurrence.spec import MAX_CRON, MAX_RRULE, MAX_WINDOW_MS, SEARCHED_YEARS, DayOff, Dst, TimingSpec
from duetime.recurrence.spreading import Spread

_CACHED: Final = 4096
LAST_INSTANT: Final = MAX_INSTANT - timedelta(days=2)
"""Some zones are in another year by then, which has no dates."""
_DAY: Final = timedelta(days=1)
_FIRST_DAY: Final = datetime(1970, 1, 1)  # noqa: DTZ001  # a local time
MAX_STEPS: Final = 3_000
"""Of the searches after the first, for one occurrence or for a list. A step finds the next time of a source, which is
excluded or not; each ``STEP_DAYS`` that it lies ahead are one more, where days are looked at: not for intervals."""
STEP_DAYS: Final = 60
_SEARCHED: Final = timedelta(days=SEARCHED_YEARS * 366)


class Source(Protocol):
    """Makes occurrences. None: there is none for long, which ends them."""

    def next_after(self, instant: datetime) -> datetime | None: ...

    def previous_before(self, instant: datetime) -> datetime | None: ...


_Search = Callable[[datetime], datetime | None]


class Recurrence:
    """The occurrences of a spec. Times are UTC; scheduled times rise strictly, and so do due times of one id."""

    def __init__(self, spec: TimingSpec, sources: Sequence[Source], exclusions: Exclusions | None) -> None:
        self.spec = spec
        self._sources = sources
        self._looks_at_days = [not isinstance(each, Every) for each in sources]
        self._exclusions = exclusions
        self._only = sources[0] if len(sources) == 1 and exclusions is None else None
        """Most have one, of which nothing is left out: then there is nothing to choose."""
        self._last: tuple[datetime | None, datetime | None] = None, None
        """What was asked last, and the answer: schedules of the same times are due together, and ask the same."""
        self._start = spec.start_at or MIN_INSTANT
        self._end = min(spec.end_at or LAST_INSTANT, LAST_INSTANT)
        self._spread = Spread(spec.jitter_ms, spec.window_ms)

    def next_after(self, instant: datetime) -> datetime | None:
        """Return the first scheduled time after ``instant``; None when there is none any more.

        None, too, when a search of ``MAX_STEPS`` finds excluded times alone.
        """
        asked, at = self._last
        if asked != instant:
            at = _first(self._after(instant)) if self._only is None else self._next_of(self._only, instant)
            self._last = instant, at
        return at

    def _next_of(self, source: Source, instant: datetime) -> datetime | None:
        at = _found(source.next_after, max(instant, self._start - MILLISECOND))
        return None if at is None or at > self._end else at

    def previous_before(self, instant: datetime) -> datetime | None:
        """Return the last scheduled time before ``instant``; None as in ``next_after``."""
        instant = min(instant, self._end + MILLISECOND)
        return _first(self._walk([each.previous_before for each in self._sources], instant, forwards=False))

    def due_by(self, instant: datetime, schedule_id: str) -> datetime | None:
        """Return the last scheduled time that is due at ``instant`` or earlier; None as in ``next_after``."""
        at = self.previous_before(instant - self._spread.least_delay(schedule_id) + MILLISECOND)
        # Jitter ends before the next occurrence, so it holds back but one.
        is_due = at is None or self.due_at(at, schedule_id) <= instant
        return at if is_due or at is None else self.previous_before(at)

    def due_at(self, scheduled_at: datetime, schedule_id: str) -> datetime:
        """Return when an occurrence is to fire: the same for each call, and always before the next one's."""
        following = self.next_after(scheduled_at) if self.spec.jitter_ms else None
        return self._spread.due_at(scheduled_at, following, schedule_id)

    def occurrences(
        self, after: datetime, *, schedule_id: str = "", until: datetime = MAX_INSTANT, limit: int
    ) -> list[Occurrence]:
        """List up to ``limit`` occurrences scheduled after ``after`` and not after ``until``.

        Raises ``InvalidInput`` when that takes more than ``MAX_STEPS``: for ``exclude`` if there are any, or else
        ``count``.
        """
        result: list[Occurrence] = []
        times = self._after(after)
        try:
            at = next(times, None)
            while at is not None and at <= until:
                is_last = len(result) + 1 == limit
                following = None if is_last and not self.spec.jitter_ms else next(times, None)
                result.append(Occurrence(at, self._spread.due_at(at, following, schedule_id)))
                if is_last:
                    break
                at = following
        except _TooManySteps:
            name = "exclude" if self.spec.exclude else "calendar" if self.spec.calendar else "count"
            change = "be smaller" if name == "count" else "leave out less, or fewer be asked for"
            raise InvalidInput(name, f"must {change}: too many times were passed in search of occurrences") from None
        return result

    def _after(self, instant: datetime) -> Iterator[datetime]:
        instant = max(instant, self._start - MILLISECOND)
        return self._walk([each.next_after for each in self._sources], instant, forwards=True)

    def _walk(self, searches: Sequence[_Search], instant: datetime, *, forwards: bool) -> Iterator[datetime]:
        """Give the scheduled times from ``instant``, which is none of them. Raises ``_TooManySteps``.

        Each source is searched when its last time is passed, and not for each time that another one has.
        """
        excluded = self._exclusions.around if self._exclusions is not None else _never
        nearest = [_found(search, instant) for search in searches]
        steps, since = 0, None
        while True:
            ahead = [each for each in nearest if each is not None]
            at = (min if forwards else max)(ahead, default=None)
            if at is None or not self._start <= at <= self._end:
                return
            span = excluded(at)
            if span is None:
                yield at
                instant, since = at, None
            else:
                instant = max(at, span[1] - MILLISECOND) if forwards else min(at, span[0])
                since = since or at
            for place, each in enumerate(nearest):
                if each is not None and (each <= instant if forwards else each >= instant):
                    nearest[place] = following = _found(searches[place], instant)
                    steps += 1
                    if following is not None and self._looks_at_days[place]:
                        steps += abs(following - instant).days // STEP_DAYS
            if steps > MAX_STEPS or (since is not None and abs(at - since) > _SEARCHED):
                raise _TooManySteps


@hot_dataclass(frozen=True, slots=True)
class ScheduleOccurrences:
    """The occurrences of one schedule (``domain.schedules.Occurrences``)."""

    recurrence: Recurrence
    schedule_id: str

    def after(self, scheduled_at: datetime) -> Occurrence | None:
        return self._occurrence(self.recurrence.next_after(scheduled_at))

    def before(self, scheduled_at: datetime) -> Occurrence | None:
        return self._occurrence(self.recurrence.previous_before(scheduled_at))

    def due_by(self, instant: datetime) -> Occurrence | None:
        return self._occurrence(self.recurrence.due_by(instant, self.schedule_id))

    def _occurrence(self, at: datetime | None) -> Occurrence | None:
        return None if at is None else Occurrence(at, self.recurrence.due_at(at, self.schedule_id))


class _TooManySteps(Exception):
    """What is excluded is too much to search."""


def _first(times: Iterator[datetime]) -> datetime | None:
    try:
        return next(times, None)
    except _TooManySteps:
        return None


def _found(search: _Search, instant: datetime) -> datetime | None:
    try:
        return search(instant)
    except OverflowError:  # it lies behind ``LAST_INSTANT``
        return None


def _never(_: datetime) -> None:
    return None


@lru_cache(maxsize=_CACHED)
def recurrence(spec: TimingSpec, calendar: Calendar | None = None) -> Recurrence:
    """Return the occurrences of ``spec``, checked: at least one is left. ``calendar`` is the one that it names.

    ``every`` is counted from ``anchor``, or else from 1970 in UTC; ``rate(...)`` and ``rrule`` from ``anchor``, or
    else ``start_at``, or else 1970. Raises ``InvalidInput`` with the field at fault and the reason.
    """
    zone = zones.zone(spec.time_zone)
    _check_bounds(spec, calendar)
    days = None if calendar is None or spec.calendar is None else BusinessDays(calendar)
    anchor = spec.anchor or MIN_INSTANT
    start = spec.anchor or spec.start_at
    plain: list[tuple[Source, CronCalendar | None]] = []
    for place, text in enumerate(spec.cron):
        field = _path("cron", place, len(spec.cron))
        if is_rate(text):
            if spec.day_off is not DayOff.SKIP:
                raise _intervals_are_not_moved(field)
            plain.append((Every(rate_ms(text, field), start or MIN_INSTANT), None))
        else:
            times = CronCalendar(text, field)
            plain.append((ZonedCalendar(_on_business_days(times, spec, days, field), zone, spec.dst), times))
    if spec.every_ms is not None:
        plain.append((Every(check_interval(spec.every_ms), anchor), None))
    if spec.rrule:
        plain += [(each, None) for each in _rules(spec, start, zone, days)]
    sources = [source for source, _ in plain]
    left_out = days if spec.day_off is DayOff.SKIP else None
    exclusions = None
    if spec.exclude or left_out is not None:
        exclusions = Exclusions(spec.exclude, zone, [times for _, times in plain], left_out)
    result = Recurrence(spec, sources, exclusions)
    starts = [MIN_INSTANT]
    if days is not None and calendar is not None and calendar.business_days:  # it may occur on these alone
        starts.append(datetime.combine(min(calendar.business_days), time(), UTC) - _DAY)
    if not any(result.next_after(each - MILLISECOND) for each in starts):
        raise InvalidInput(_at_fault(spec, sources), "must leave at least one occurrence")
    return result


def _at_fault(spec: TimingSpec, sources: Sequence[Source]) -> str:
    """Return the field without which there would be an occurrence."""
    if (spec.exclude or spec.calendar) and Recurrence(spec, sources, None).next_after(
        MIN_INSTANT - MILLISECOND
    ) is not None:
        return "exclude" if spec.exclude else "calendar"
    return "dst" if spec.end_at is None and spec.dst is Dst.SKIP else "endAt"


def _on_business_days(times: LocalCalendar, spec: TimingSpec, days: BusinessDays | None, field: str) -> LocalCalendar:
    """Return ``times`` as the calendar has them. Raises ``InvalidInput`` for what has no times of day to be moved."""
    if days is None or spec.day_off is DayOff.SKIP:
        return times
    if times.follows_elapsed_time:
        raise _intervals_are_not_moved(field)
    return MovedCalendar(times, days, forwards=spec.day_off is DayOff.NEXT)


def _intervals_are_not_moved(field: str) -> InvalidInput:
    return InvalidInput("dayOff", f"must be skip, since {field} has intervals, not times of day")


def _rules(spec: TimingSpec, start: datetime | None, zone: ZoneInfo, days: BusinessDays | None) -> list[Source]:
    from duetime.recurrence.rrule_calendar import RruleCalendar  # dateutil takes long to import, and few need it

    local = _FIRST_DAY if start is None else start.astimezone(zone).replace(tzinfo=None, fold=0, microsecond=0)
    rules: list[Source] = []
    for place, text in enumerate(spec.rrule):
        field = _path("rrule", place, len(spec.rrule))
        rule = read_rrule(text, field, zone)
        if rule.count is not None and start is None:
            raise InvalidInput(field, "COUNT must be given with startAt or anchor, which it is counted from")
        times = _on_business_days(RruleCalendar(rule, local, field), spec, days, field)
        rules.append(ZonedCalendar(times, zone, spec.dst))
    return rules


def _check_bounds(spec: TimingSpec, calendar: Calendar | None) -> None:
    if spec.calendar is not None and calendar is None:
        raise InvalidInput("calendar", f"there is no calendar {spec.calendar!r}")
    if spec.calendar is None and spec.day_off is not DayOff.SKIP:
        raise InvalidInput("dayOff", "must be given with calendar")
    if spec.day_off is not DayOff.SKIP and spec.every_ms is not None:
        raise _intervals_are_not_moved("every")
    if not (spec.cron or spec.rrule or spec.every_ms is not None):
        raise InvalidInput("cron", "must be given, or every, or rrule")
    for field, texts, most in (("cron", spec.cron, MAX_CRON), ("rrule", spec.rrule, MAX_RRULE)):
        if len(texts) > most:
            raise InvalidInput(field, f"must have at most {most} items")
    for field, at in (("anchor", spec.anchor), ("startAt", spec.start_at)):
        if at is not None and at > LAST_INSTANT:
            raise InvalidInput(field, f"must not be after {LAST_INSTANT:%Y-%m-%d}")
    if spec.start_at is not None and spec.end_at is not None and spec.end_at < spec.start_at:
        raise InvalidInput("endAt", "must not be before startAt")
    for field, value in (("jitter", spec.jitter_ms), ("window", spec.window_ms)):
        if not 0 <= value <= MAX_WINDOW_MS:
            raise InvalidInput(field, "must lie between 0 and 24h")


def _path(name: str, place: int, number: int) -> str:
    return name if number == 1 else f"{name}[{place}]"
