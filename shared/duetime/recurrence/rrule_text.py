"""Reads a recurrence rule of RFC 5545: ``FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR``. dateutil does the calendar."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from math import prod
from typing import Final
from zoneinfo import ZoneInfo

from duetime.domain.errors import InvalidInput
from duetime.recurrence.spec import MAX_CHARACTERS

MAX_COUNT: Final = 10_000
MAX_INTERVAL: Final = 10_000

FREQUENCIES: Final = ("YEARLY", "MONTHLY", "WEEKLY", "DAILY", "HOURLY")
"""As dateutil numbers them. It finds the times of shorter ones second by second, which may take minutes."""
WEEKDAYS: Final = ("MO", "TU", "WE", "TH", "FR", "SA", "SU")
_MOST_TIMES: Final = {
    "YEARLY": (1, "one time a day", "FREQ=DAILY"),
    "HOURLY": (24, "24 times an hour or less", "cron"),
}
"""Each search lists what comes before in the same period."""
_LISTS: Final = {
    "BYSECOND": (0, 59, False),
    "BYMINUTE": (0, 59, False),
    "BYHOUR": (0, 23, False),
    "BYMONTHDAY": (1, 31, True),
    "BYYEARDAY": (1, 366, True),
    "BYWEEKNO": (1, 53, True),
    "BYMONTH": (1, 12, False),
    "BYSETPOS": (1, 366, True),
}
"""The least, the greatest, and whether it may be counted from the end."""
_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,5}", re.ASCII)
_BYDAY: Final = re.compile(r"([+-]?[0-9]{1,2})?(MO|TU|WE|TH|FR|SA|SU)", re.ASCII)
_UNTIL: Final = re.compile(r"([0-9]{8})(?:T([0-9]{6})(Z?))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class RruleText:
    """``lists``: the BY parts of whole numbers. ``weekdays``: number (None: each) and place in ``WEEKDAYS``.
    ``until``: a local time, inclusive."""

    frequency: str
    interval: int = 1
    count: int | None = None
    until: datetime | None = None
    week_start: str = "MO"
    lists: dict[str, tuple[int, ...]] = field(default_factory=dict)
    weekdays: tuple[tuple[int | None, int], ...] = ()

    @property
    def level(self) -> int:
        """Return the place in ``FREQUENCIES``."""
        return FREQUENCIES.index(self.frequency)


def read_rrule(text: str, path: str, zone: ZoneInfo) -> RruleText:
    """Read the value of an RRULE. Raises ``InvalidInput`` for ``path`` with the part at fault and the reason."""
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(path, f"must have {MAX_CHARACTERS} characters or less")
    parts = _parts(text.strip().upper().removeprefix("RRULE:"), path)
    frequency = parts.pop("FREQ", None)
    if frequency not in FREQUENCIES:
        raise InvalidInput(
            path, f"FREQ must be one of {', '.join(FREQUENCIES)}; every and cron have shorter intervals"
        )
    week_start = parts.pop("WKST", "MO")
    if week_start not in WEEKDAYS:
        raise InvalidInput(path, f"WKST must be one of {', '.join(WEEKDAYS)}")
    rule = RruleText(
        frequency,
        interval=_whole("INTERVAL", parts.pop("INTERVAL", "1"), MAX_INTERVAL, path),
        count=_whole("COUNT", parts.pop("COUNT"), MAX_COUNT, path) if "COUNT" in parts else None,
        until=_until(parts.pop("UNTIL"), path, zone) if "UNTIL" in parts else None,
        week_start=week_start,
        weekdays=_weekdays(parts.pop("BYDAY"), path) if "BYDAY" in parts else (),
        lists={name: _numbers(name, value, path) for name, value in parts.items()},
    )
    _check_together(rule, path)
    return rule


def _parts(text: str, path: str) -> dict[str, str]:
    if "\n" in text or "DTSTART" in text:
        raise InvalidInput(path, "must be one RRULE; startAt and timeZone say where it begins, exclude what it omits")
    parts: dict[str, str] = {}
    for part in text.removesuffix(";").split(";"):
        name, equals, value = part.strip().partition("=")
        if not equals or not value:
            raise InvalidInput(path, f"{part!r} must be like NAME=VALUE")
        if name in parts:
            raise InvalidInput(path, f"{name} must stand once")
        if name not in _LISTS and name not in ("FREQ", "INTERVAL", "COUNT", "UNTIL", "WKST", "BYDAY"):
            raise InvalidInput(path, f"{name!r} is no part of a rule")
        parts[name] = value
    return parts


def _check_together(rule: RruleText, path: str) -> None:
    if rule.count is not None and rule.until is not None:
        raise InvalidInput(path, "COUNT and UNTIL must not be given together")
    forbidden = {
        "BYWEEKNO": FREQUENCIES[1:],
        "BYYEARDAY": ("MONTHLY", "WEEKLY", "DAILY"),
        "BYMONTHDAY": ("WEEKLY",),
    }
    for name, frequencies in forbidden.items():
        if name in rule.lists and rule.frequency in frequencies:
            raise InvalidInput(path, f"{name} must not be given with FREQ={rule.frequency}")
    if any(number is not None for number, _ in rule.weekdays):
        if rule.frequency not in ("YEARLY", "MONTHLY"):
            raise InvalidInput(path, f"BYDAY must have no numbers with FREQ={rule.frequency}")
        if "BYWEEKNO" in rule.lists:
            raise InvalidInput(path, "BYDAY must have no numbers with BYWEEKNO")
    if "BYWEEKNO" in rule.lists and not rule.weekdays:
        raise InvalidInput(path, "BYWEEKNO must be given with BYDAY")
    if "BYSETPOS" in rule.lists and not (rule.weekdays or len(rule.lists) > 1):
        raise InvalidInput(path, "BYSETPOS must be given with another BY part")
    if "BYSETPOS" in rule.lists and rule.frequency == "HOURLY":
        raise InvalidInput(path, "BYSETPOS must not be given with FREQ=HOURLY")
    most, unit, other = _MOST_TIMES.get(rule.frequency, (24, "24 times a day or less", "cron"))
    names = ("BYHOUR", "BYMINUTE", "BYSECOND") if rule.frequency != "HOURLY" else ("BYMINUTE", "BYSECOND")
    if prod(len(rule.lists.get(name, (0,))) for name in names) > most:
        raise InvalidInput(path, f"must have {unit} with FREQ={rule.frequency}; {other} may have more")


def _whole(name: str, text: str, most: int, path: str) -> int:
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= most:
        raise InvalidInput(path, f"{name} must be a whole number from 1 to {most}")
    return int(text)


def _numbers(name: str, text: str, path: str) -> tuple[int, ...]:
    low, high, is_signed = _LISTS[name]
    values = set()
    for item in text.split(","):
        value = int(item) if _NUMBER.fullmatch(item) else None
        if value is None or not low <= (abs(value) if is_signed else value) <= high:
            signed = f" or -{high} to -{low}" if is_signed else ""
            raise InvalidInput(path, f"{name}: {item!r} is not {low} to {high}{signed}")
        values.add(value)
    return tuple(sorted(values))


def _weekdays(text: str, path: str) -> tuple[tuple[int | None, int], ...]:
    result = []
    for item in text.split(","):
        match = _BYDAY.fullmatch(item)
        number = int(match[1]) if match is not None and match[1] else None
        if match is None or (number is not None and not 1 <= abs(number) <= 53):
            raise InvalidInput(path, f"BYDAY: {item!r} is no weekday, like MO or -1FR")
        result.append((number, WEEKDAYS.index(match[2])))
    return tuple(result)


def _until(text: str, path: str, zone: ZoneInfo) -> datetime:
    match = _UNTIL.fullmatch(text)
    try:
        if match is not None and match[2] is None:  # a date: the whole day
            return datetime.strptime(text, "%Y%m%d") + timedelta(days=1, seconds=-1)  # noqa: DTZ007
        if match is not None:
            local = datetime.strptime(text.removesuffix("Z"), "%Y%m%dT%H%M%S")  # noqa: DTZ007
            return local.replace(tzinfo=UTC).astimezone(zone).replace(tzinfo=None) if match[3] else local
    except (ValueError, OverflowError):
        pass
    raise InvalidInput(path, "UNTIL must be like 20271231T235959Z, or without Z for a local time")
