"""Instants and durations as text.

Inside Duetime an instant is an aware ``datetime`` in UTC with whole milliseconds. At the edge it is RFC 3339
with an offset. A fraction finer than a millisecond is rounded *up*, so that a timer never fires before the
time that was asked for.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from math import inf

MIN_INSTANT = datetime(1970, 1, 1, tzinfo=UTC)
MAX_INSTANT = datetime(9999, 12, 31, 23, 59, 59, 999_000, tzinfo=UTC)
MAX_DURATION_SECONDS = 100 * 366 * 86_400.0
MAX_DURATION_CHARACTERS = 64

_RANGE = "must lie between 1970-01-01T00:00:00Z and 9999-12-31T23:59:59.999Z"
MILLISECOND = timedelta(milliseconds=1)
_ROUNDING_MS = 0.0001
"""Binary fractions of seconds come this close to whole milliseconds, over more than a hundred years."""
# RFC 3339, section 5.6; [0-9] since \d also matches non-ASCII digits.
_RFC3339 = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt]([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
    r"(?:([Zz])|([+-])([0-9]{2}):([0-9]{2}))"
)
# Of those, what almost all are and the standard library reads alike; it passes over digits after the sixth.
_PLAIN_UTC = re.compile(r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-5][0-9](?:\.[0-9]{1,6})?(?:Z|\+00:00)")
_GO_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]+)?(?:ms|s|m|h|d))+")
_GO_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
# ISO 8601 durations without years and months, whose length depends on a calendar.
_ISO_DURATION = re.compile(
    r"P(?:([0-9]+(?:\.[0-9]+)?)W|(?:([0-9]+(?:\.[0-9]+)?)D)?"
    r"(?:T(?:([0-9]+(?:\.[0-9]+)?)H)?(?:([0-9]+(?:\.[0-9]+)?)M)?(?:([0-9]+(?:\.[0-9]+)?)S)?)?)"
)
_UNITS_MS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def parse_instant(text: str) -> datetime:
    """Return an RFC 3339 time with offset and 0 to 9 fraction digits, as UTC rounded up to the millisecond.

    Raises ``ValueError`` with a readable reason for naive times, leap seconds, impossible dates and times
    outside 1970-01-01T00:00:00Z to 9999-12-31T23:59:59.999Z.
    """
    if _PLAIN_UTC.fullmatch(text) is not None:
        try:
            return check_range(round_up(datetime.fromisoformat(text)))
        except OverflowError:
            raise ValueError(_RANGE) from None
    match = _RFC3339.fullmatch(text)
    if match is None:
        raise ValueError("must be an RFC 3339 time with an offset, like 2026-12-20T15:30:00Z")
    year, month, day, hour, minute, second, fraction, is_utc, sign, offset_hours, offset_minutes = match.groups()
    if year == "0000":  # which datetime has no word for
        raise ValueError(_RANGE)
    if second == "60":
        raise ValueError("must not be a leap second: seconds go from 00 to 59")
    try:
        instant = datetime(int(year), int(month), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
        if is_utc is None:
            hours, minutes = int(offset_hours), int(offset_minutes)
            if hours > 23 or minutes > 59:
                raise ValueError("must have an offset from -23:59 to +23:59")
            offset = timedelta(hours=hours, minutes=minutes)
            instant = instant - offset if sign == "+" else instant + offset
        if fraction is not None:
            nanoseconds = int(fraction.ljust(9, "0"))
            instant += timedelta(milliseconds=-(-nanoseconds // 1_000_000))
    except OverflowError:
        raise ValueError(_RANGE) from None
    return check_range(instant)


def check_range(instant: datetime) -> datetime:
    """Return ``instant``; raise ``ValueError`` when it lies outside the supported range."""
    if not MIN_INSTANT <= instant <= MAX_INSTANT:
        raise ValueError(_RANGE)
    return instant


def format_instant(instant: datetime) -> str:
    """Format in UTC, at fixed width, in milliseconds: ``2026-12-20T15:30:00.000Z``. Sorts as text in time order."""
    return _text_of(instant)


@lru_cache(maxsize=4096)
def _text_of(instant: datetime) -> str:
    """Return what is asked for again and again: by a response for its times, by a burst for its instant."""
    return instant.isoformat(timespec="milliseconds")[:23] + "Z"


def read_instant(text: str) -> datetime:
    """Return the instant that ``format_instant`` wrote. ``ValueError`` for anything else."""
    instant = datetime.fromisoformat(text)
    if instant.tzinfo is not UTC:
        raise ValueError(f"not a stored UTC time: {text!r}")
    return instant


def to_milliseconds(instant: datetime) -> int:
    """Return the milliseconds since 1970-01-01T00:00:00Z, rounded down."""
    return (instant - MIN_INSTANT) // MILLISECOND


def from_milliseconds(milliseconds: int) -> datetime:
    """Return the UTC instant that many milliseconds after 1970-01-01T00:00:00Z."""
    return MIN_INSTANT + timedelta(milliseconds=milliseconds)


def round_up(instant: datetime) -> datetime:
    """Return the first whole millisecond that is not before ``instant``."""
    excess = instant.microsecond % 1000
    return instant if not excess else instant + timedelta(microseconds=1000 - excess)


def round_down(instant: datetime) -> datetime:
    """Return the last whole millisecond that is not after ``instant``: the rounding for "now"."""
    return instant.replace(microsecond=instant.microsecond // 1000 * 1000)


def parse_duration(value: str | float) -> float:
    """Read seconds from ``"30s"``, ``"5m"``, ``"1h30m"``, ``"250ms"``, ``"P1DT2H"`` or a number of seconds.

    Raises ``ValueError`` for anything else, for negative and for non-finite values, and above 100 years.
    """
    seconds = read_seconds(value)
    if not 0 <= seconds <= MAX_DURATION_SECONDS:
        raise ValueError("must lie between 0 and 100 years")
    return seconds


def read_seconds(value: str | float) -> float:
    """Read seconds as ``parse_duration`` does, however many: a number may be negative, or infinite.

    Raises ``ValueError`` for anything else. For those who have bounds of their own to name.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError('must be a duration like "30s", "1h30m", "PT5M" or a number of seconds')
    try:
        return float(value) if not isinstance(value, str) else _duration_text(value)
    except OverflowError:  # a whole number beyond all floats
        return inf


def parse_duration_ms(value: str | float, *, min_ms: int = 1, max_ms: int) -> int:
    """Parse a duration to milliseconds as ``parse_duration``, a whole number of them.

    Raises ``ValueError`` for anything else, below ``min_ms`` and above ``max_ms``.
    """
    seconds = read_seconds(value)
    milliseconds = seconds * 1000
    if not (0 <= seconds <= MAX_DURATION_SECONDS and min_ms <= round(milliseconds) <= max_ms):
        most = "100 years" if max_ms >= MAX_DURATION_SECONDS * 1000 else format_duration(max_ms)
        raise ValueError(f"must lie between {format_duration(min_ms)} and {most}")
    whole = round(milliseconds)
    if abs(milliseconds - whole) > _ROUNDING_MS:
        raise ValueError("must be a whole number of milliseconds")
    return whole


def format_duration(milliseconds: int) -> str:
    """Format in whole units, the largest first: ``1h30m``, ``1s500ms``. ``parse_duration`` reads it back."""
    parts = []
    for unit, size in _UNITS_MS:
        number, milliseconds = divmod(milliseconds, size)
        if number:
            parts.append(f"{number}{unit}")
    return "".join(parts) or "0s"


def _duration_text(text: str) -> float:
    if len(text) <= MAX_DURATION_CHARACTERS:
        if _GO_DURATION.fullmatch(text):
            return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in _GO_PART.findall(text))
        match = _ISO_DURATION.fullmatch(text)
        if match is not None and text[-1] not in "PT":
            weeks, days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
            return weeks * 604_800 + days * 86_400 + hours * 3600 + minutes * 60 + seconds
        if re.fullmatch(r"[0-9]+(?:\.[0-9]+)?", text):
            return float(text)
    raise ValueError('must be a duration like "30s", "1h30m", "PT5M" or a number of seconds')
