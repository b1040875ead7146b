"""Says in English when a schedule occurs: ``At 09:30, Monday to Friday, Europe/Berlin``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Final

from cron_descriptor import Options, get_description

from duetime.domain.times import format_duration, format_instant
from duetime.recurrence import zones
from duetime.recurrence.cron_text import CronText, read_cron
from duetime.recurrence.every import is_rate, rate_ms
from duetime.recurrence.exclusions import is_date
from duetime.recurrence.rrule_text import RruleText, read_rrule
from duetime.recurrence.spec import DayOff, TimingSpec

_DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
_UNITS: Final = {
    "YEARLY": "year",
    "MONTHLY": "month",
    "WEEKLY": "week",
    "DAILY": "day",
    "HOURLY": "hour",
}
_PREFIXES: Final = {
    "BYYEARDAY": "on day {} of the year",
    "BYWEEKNO": "in week {}",
    "BYMONTHDAY": "on day {} of the month",
    "BYHOUR": "at hour {}",
    "BYMINUTE": "at minute {}",
    "BYSECOND": "at second {}",
    "BYSETPOS": "of these number {}",
}
_BUSINESS_DAYS: Final = {
    DayOff.SKIP: "on business days of {}",
    DayOff.NEXT: "moved to the next business day of {}",
    DayOff.PREVIOUS: "moved to the previous business day of {}",
}
_PLAIN: Final = re.compile("[0-9,/*-]*", re.ASCII)
_VALUES: Final = re.compile("[0-9]+(?:,[0-9]+)*", re.ASCII)
_LIST: Final = re.compile("[0-9]+(?:,[0-9]+)+", re.ASCII)
_TOLD_TIMES: Final = 12
_CACHED: Final = 4096
_SHOWN_EXCLUSIONS: Final = 3
_OPTIONS: Final = Options()
_OPTIONS.use_24hour_time_format = True
_OPTIONS.locale_code = "en_US"


@lru_cache(maxsize=_CACHED)
def sentence(spec: TimingSpec) -> str:
    """Describe the occurrences of a spec that ``occurrences.recurrence`` accepts."""
    zone = zones.zone(spec.time_zone)
    local = [describe_cron(read_cron(text, "cron")) for text in spec.cron if not is_rate(text)]
    local += [describe_rrule(read_rrule(text, "rrule", zone)) for text in spec.rrule]
    intervals = [rate_ms(text, "cron") for text in spec.cron if is_rate(text)]
    if spec.every_ms is not None:
        intervals.append(spec.every_ms)
    parts = ["; ".join([*local, *(f"Every {_interval(each).removeprefix('1 ')}" for each in intervals)])]
    if local or spec.exclude or spec.calendar:
        parts.append(spec.time_zone)
    if spec.exclude:
        parts.append(f"except {_exclusions(spec.exclude)}")
    if spec.calendar is not None:
        parts.append(_BUSINESS_DAYS[spec.day_off].format(spec.calendar))
    if spec.start_at is not None:
        parts.append(f"from {_instant(spec.start_at)}")
    if spec.end_at is not None:
        parts.append(f"until {_instant(spec.end_at)}")
    spread = spec.jitter_ms + spec.window_ms
    if spread:
        parts.append(f"each up to {_interval(spread)} later")
    return ", ".join(parts)


def describe_cron(text: CronText) -> str:
    second, minute, hour, _, month, weekday = text.fields
    if text.fields == ("0", "0", "*", "*", "*", "*") and text.years is None:
        return "Every hour"
    days = text.days
    # cron-descriptor tells but one of these when they stand in a list.
    told_days, told_weekdays = (
        "*" if "," in field and not _PLAIN.fullmatch(field) else field for field in (days, weekday)
    )
    years = [] if text.years is None else [_compact(text.years)]
    times = _times_of_day(second, minute, hour)
    told_minute, told_hour = (minute, hour) if times is None else ("0", "0")
    fields = [second, told_minute, told_hour, told_days, month, told_weekdays, *years]
    described = get_description(" ".join(fields if text.has_seconds or years else fields[1:]), _OPTIONS)
    if times is not None:
        described = f"At {times}{described.removeprefix('At 00:00').removeprefix(':00')}"
    parts = [described.replace(" through ", " to ")]
    if (days, month, weekday) == ("*", "*", "*") and not text.follows_elapsed_time:
        parts.append("every day")
    if told_days != days:
        parts.append(f"on days {days.replace(',', ', ')} of the month")
    if told_weekdays != weekday:
        parts.append(f"on weekdays {weekday.replace(',', ', ')}")
    # Of two that both restrict the day either suffices, unless one begins with a star (as in crontab).
    if days != "*" and weekday != "*":
        parts.append("when both match" if "*" in (days[0], weekday[0]) else "when either matches")
    return ", ".join(parts)


def _times_of_day(second: str, minute: str, hour: str) -> str | None:
    """Return ``09:00 and 09:30`` for a list of minutes, of which cron-descriptor tells each hour on its own."""
    if second != "0" or not _LIST.fullmatch(minute) or not _VALUES.fullmatch(hour):
        return None
    minutes, hours = ({int(value) for value in field.split(",")} for field in (minute, hour))
    times = [f"{each:02}:{past:02}" for each in sorted(hours) for past in sorted(minutes)]
    return _listed(times) if len(times) <= _TOLD_TIMES else None


def describe_rrule(text: RruleText) -> str:
    unit = _UNITS[text.frequency]
    parts = [f"Every {unit}" if text.interval == 1 else f"Every {text.interval} {unit}s"]
    if text.weekdays:
        parts.append(f"on {_listed([_weekday(number, day) for number, day in text.weekdays])}")
    if months := text.lists.get("BYMONTH"):
        parts.append(f"in {_listed([_MONTHS[month - 1] for month in months])}")
    hours, minutes = text.lists.get("BYHOUR"), text.lists.get("BYMINUTE")
    has_times = hours is not None and minutes is not None and not text.lists.get("BYSECOND", (0,))[-1]
    for name, pattern in _PREFIXES.items():
        if name in text.lists and not (has_times and name in ("BYHOUR", "BYMINUTE", "BYSECOND")):
            parts.append(pattern.format(_listed([_number(value) for value in text.lists[name]])))
    if has_times and hours is not None and minutes is not None:
        parts.append(f"at {_listed([f'{hour:02}:{minute:02}' for hour in hours for minute in minutes])}")
    if text.count is not None:
        parts.append("once" if text.count == 1 else f"{text.count} times")
    if text.until is not None:
        parts.append(f"until {text.until:%Y-%m-%d %H:%M:%S}")
    return " ".join(parts)


def _interval(milliseconds: int) -> str:
    for unit, size in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000), ("second", 1000)):
        if not milliseconds % size:
            number = milliseconds // size
            return f"{number} {unit}{'' if number == 1 else 's'}"
    return format_duration(milliseconds)


def _exclusions(items: Sequence[str]) -> str:
    shown = [_exclusion(item) for item in items[:_SHOWN_EXCLUSIONS]]
    more = len(items) - len(shown)
    return _listed(shown) if not more else f"{', '.join(shown)} and {more} more"


def _exclusion(item: str) -> str:
    if is_date(item):
        return item
    described = describe_cron(read_cron(item, "exclude")).removeprefix("Every minute, ").removeprefix("only ")
    return described[0].lower() + described[1:]


def _compact(years: tuple[int, ...]) -> str:
    is_range = years[-1] - years[0] + 1 == len(years) > 1
    return f"{years[0]}-{years[-1]}" if is_range else ",".join(map(str, years))


def _weekday(number: int | None, day: int) -> str:
    return _DAYS[day] if number is None else f"the {_number(number)} {_DAYS[day]}"


def _number(value: int) -> str:
    """Return 1 as ``1``, and what is counted from the end as ``last`` or ``2 from the end``."""
    if value >= 0:
        return str(value)
    return "last" if value == -1 else f"{-value} from the end"


def _listed(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _instant(instant: datetime) -> str:
    return format_instant(instant).replace(".000Z", "Z")
