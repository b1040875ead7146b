"""Reads cron expressions: what people write, checked, in the words of CronSim.

CronSim, which does the calendar, knows crontab's language. Here is what it does not know: EventBridge's
``cron(...)``, ``W``, years, ``@daily`` and the like, and a reason for each refusal.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from duetime.domain.errors import InvalidInput
from duetime.recurrence.spec import MAX_CHARACTERS

FIRST_YEAR, LAST_YEAR = 1970, 2199
"""The years of EventBridge."""

_ALIASES: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_AWS: Final = re.compile(r"cron\s*\((.*)\)", re.IGNORECASE | re.DOTALL)
_TERM: Final = re.compile(r"(?:\*|([0-9A-Z]+)(?:-([0-9A-Z]+))?)(?:/([0-9]+))?", re.ASCII)
_NEAREST: Final = re.compile(r"([0-9]+)W", re.ASCII)
_LAST: Final = re.compile(r"([0-9A-Z]+)L", re.ASCII)
_NTH: Final = re.compile(r"([0-9A-Z]+)#([0-9]+)", re.ASCII)
_TO_SUNDAY: Final = re.compile(r"-SUN(?=/|\Z)")
"""The week ends with it."""


@dataclass(frozen=True, slots=True)
class CronText:
    """``fields``: second, minute, hour, day-of-month, month and day-of-week, where Sunday is 0 or 7, as CronSim reads
    them. ``near_days``: the days of ``nW``, which ``fields`` has not. ``years`` None: all.
    """

    fields: tuple[str, str, str, str, str, str]
    near_days: tuple[int, ...] = ()
    years: tuple[int, ...] | None = None
    has_seconds: bool = False

    @property
    def follows_elapsed_time(self) -> bool:
        """Whether there is a wildcard or a step in the minute or the hour: it means intervals, not times of day."""
        return any(sign in field for field in self.fields[1:3] for sign in "*/")

    @property
    def days(self) -> str:
        """Return the field of the day of the month with its ``nW``."""
        near = [f"{day}W" for day in self.near_days]
        return ",".join([*near, self.fields[3]] if self.fields[3] != "-" else near)


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()
    """Of the values from ``first_name`` on."""
    first_name: int = 0

    def value(self, text: str) -> int:
        if text in self.names:
            return self.names.index(text) + self.first_name
        if not text.isdecimal() or len(text) > 4 or not self.low <= int(text) <= self.high:
            names = f" or {self.names[0]} to {self.names[-1]}" if self.names else ""
            raise _Refusal(f"{text!r} is not {self.low} to {self.high}{names}")
        return int(text)


class _Refusal(Exception):
    """The reason, without the name of the field."""


_SECOND: Final = _Field("second", 0, 59)
_MINUTE: Final = _Field("minute", 0, 59)
_HOUR: Final = _Field("hour", 0, 23)
_DAY: Final = _Field("day-of-month", 1, 31)
_MONTH: Final = _Field("month", 1, 12, _MONTHS, 1)
_WEEKDAY: Final = _Field("day-of-week", 0, 7, _DAYS)
_AWS_WEEKDAY: Final = _Field("day-of-week", 1, 7, _DAYS, 1)
_YEAR: Final = _Field("year", FIRST_YEAR, LAST_YEAR)


def read_cron(text: str, field: str) -> CronText:
    """Read crontab's 5 fields, 6 with seconds first, ``@daily`` and the like, or EventBridge's ``cron(...)``.

    Raises ``InvalidInput`` for ``field``, with the name of the cron field and the reason.
    """
    if len(text) > MAX_CHARACTERS:
        raise InvalidInput(field, f"must have {MAX_CHARACTERS} characters or less")
    stripped = text.strip()
    if stripped.startswith("@"):
        stripped = _alias(stripped, field)
    aws = _AWS.fullmatch(stripped)
    if aws is not None:
        return _read_aws(aws[1].upper().split(), field)
    parts = stripped.upper().split()
    if stripped.upper().startswith(("TZ=", "CRON_TZ=")):
        raise InvalidInput(field, "must not name a time zone: that is timeZone")
    if len(parts) not in (5, 6):
        raise InvalidInput(field, _not_fields(stripped, len(parts)))
    has_seconds = len(parts) == 6
    second, minute, hour, day, month, weekday = parts if has_seconds else ["0", *parts]
    days, near = _read_days(day, field)
    fields = (
        _read(_SECOND, second, field),
        _read(_MINUTE, minute, field),
        _read(_HOUR, hour, field),
        days,
        _read(_MONTH, month, field),
        _read_weekdays(_WEEKDAY, weekday, field),
    )
    return CronText(fields, near, has_seconds=has_seconds)


def _alias(text: str, field: str) -> str:
    known = _ALIASES.get(text.lower())
    if known is not None:
        return known
    if text.lower().startswith("@every"):
        raise InvalidInput(field, 'must not be an interval: use every, like {"every": "5m"}')
    if text.lower() == "@reboot":
        raise InvalidInput(field, "must not be @reboot, which is no time")
    raise InvalidInput(field, f"must be one of {', '.join(_ALIASES)} when it begins with @")


def _not_fields(text: str, number: int) -> str:
    if text[:3].lower() == "at(":
        return "must recur: at(...) is a single time, which is a timer"
    return (
        "must have 5 fields (minute, hour, day-of-month, month, day-of-week), or 6 with the second first, or be of"
        f" EventBridge's form cron(...); it has {number}"
    )


def _read_aws(parts: list[str], field: str) -> CronText:
    if len(parts) != 6:
        raise InvalidInput(
            field,
            "must have 6 fields in cron(...) (minute, hour, day-of-month, month, day-of-week, year);"
            f" it has {len(parts)}",
        )
    minute, hour, day, month, weekday, year = parts
    if (day == "?") == (weekday == "?"):
        raise InvalidInput(field, "must have ? in one of day-of-month and day-of-week in cron(...), and not in both")
    days, near = ("*", ()) if day == "?" else _read_days(day, field, wraps=True)
    weekdays = "*" if weekday == "?" else _read_weekdays(_AWS_WEEKDAY, weekday, field, wraps=True)
    fields = (
        "0",
        _read(_MINUTE, minute, field, wraps=True),
        _read(_HOUR, hour, field, wraps=True),
        days,
        _read(_MONTH, month, field, wraps=True),
        weekdays,
    )
    years = None if year == "*" else tuple(sorted({each for term in _terms(_YEAR, year, field) for each in term[1]}))
    return CronText(fields, near, years)


def _read(field: _Field, text: str, path: str, *, wraps: bool = False) -> str:
    return ",".join(term for term, _ in _terms(field, text, path, wraps=wraps))


def _read_days(text: str, path: str, *, wraps: bool = False) -> tuple[str, tuple[int, ...]]:
    """Return the days of the month for CronSim (``-`` when there are none), and those of ``nW``."""
    others, near = [], []
    for term in text.split(","):
        nearest = _NEAREST.fullmatch(term)
        if nearest is not None:
            near.append(_checked(_DAY, nearest[1], path))
        elif term in ("L", "LW"):
            others.append(term)
        else:
            others.append(_read(_DAY, term, path, wraps=wraps))
    return ",".join(others) or "-", tuple(sorted(set(near)))


def _read_weekdays(field: _Field, text: str, path: str, *, wraps: bool = False) -> str:
    is_aws = field is _AWS_WEEKDAY
    shift = 1 if is_aws else 0
    result = []
    for term in text.split(","):
        last, nth = _LAST.fullmatch(term), _NTH.fullmatch(term)
        if term == "L" and is_aws:
            result.append("6")
        elif last is not None:
            result.append(f"{(_checked(field, last[1], path) - shift) % 7}L")
        elif nth is not None:
            if not 1 <= int(nth[2]) <= 5:
                raise InvalidInput(path, f"day-of-week: {nth[2]!r} after # is not 1 to 5")
            result.append(f"{(_checked(field, nth[1], path) - shift) % 7}#{nth[2]}")
        else:
            result += _plain_weekdays(field, term, path, shift, wraps=wraps)
    return ",".join(result)


def _plain_weekdays(field: _Field, text: str, path: str, shift: int, *, wraps: bool) -> Iterator[str]:
    if not shift:
        text = _TO_SUNDAY.sub("-7", text)
    for term, values in _terms(field, text, path, wraps=wraps):
        is_range = "-" in term and "/" not in term
        if term.startswith("*"):
            yield term
        elif is_range:
            yield f"{values[0] - shift}-{values[-1] - shift}"
        else:
            yield ",".join(str(each) for each in sorted({(value - shift) % 7 for value in values}))


def _checked(field: _Field, text: str, path: str) -> int:
    try:
        return field.value(text)
    except _Refusal as refusal:
        raise InvalidInput(path, f"{field.name}: {refusal}") from None


def _terms(field: _Field, text: str, path: str, *, wraps: bool = False) -> Iterator[tuple[str, list[int]]]:
    """Give each term of a list as CronSim reads it, with its values. A range that ``wraps`` is given as two."""
    for term in text.split(","):
        try:
            yield from _term(field, term, wraps=wraps)
        except _Refusal as refusal:
            raise InvalidInput(path, f"{field.name}: {refusal}") from None


def _term(field: _Field, text: str, *, wraps: bool) -> list[tuple[str, list[int]]]:
    match = _TERM.fullmatch(text)
    if match is None:
        raise _Refusal(_not_a_term(text))
    first, last, step = match.groups()
    step_number = 1 if step is None else _step(field, step)
    if first is None:
        return [(text, list(range(field.low, field.high + 1, step_number)))]
    low = field.value(first)
    high = field.value(last) if last is not None else (low if step is None else field.high)
    if low > high:
        return _wrapped(field, low, high, step_number, text, wraps=wraps)
    values = list(range(low, high + 1, step_number))
    if step is None:
        return [(str(low) if last is None else f"{low}-{high}", values)]
    return [(f"{low}{'' if last is None else f'-{high}'}/{step_number}", values)]


def _wrapped(field: _Field, low: int, high: int, step: int, text: str, *, wraps: bool) -> list[tuple[str, list[int]]]:
    if not wraps:
        start, end = text.split("/")[0].split("-")
        raise _Refusal(
            f"{text!r} ends before it begins; write {start}-{field.high},{field.low}-{end} if you mean both ends"
        )
    span = field.high - field.low + 1
    values = [field.low + (value - field.low) % span for value in range(low, high + span + 1, step)]
    return [(str(value), [value]) for value in values]


def _step(field: _Field, text: str) -> int:
    step = int(text[:5])
    if step == 0:
        raise _Refusal("a step must be 1 or more")
    if step > field.high:
        raise _Refusal(f"a step of {text} is more than the field has: it would be taken once, at its start")
    return step


def _not_a_term(text: str) -> str:
    if not text:
        return "there is nothing before or after a comma"
    if text == "?":
        return "? belongs in EventBridge's cron(...); write *"
    if text.startswith("-"):
        return f"{text!r} is negative"
    return f"{text!r} cannot be read"
