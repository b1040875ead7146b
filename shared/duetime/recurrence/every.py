"""Occurrences at an even distance: ``every`` and EventBridge's ``rate(...)``. No clock change affects them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.errors import InvalidInput
from duetime.domain.times import MAX_DURATION_SECONDS, MAX_INSTANT, MILLISECOND, MIN_INSTANT
from duetime.recurrence.spec import MIN_INTERVAL_MS

_RATE = re.compile(r"rate\s*\(\s*([0-9]{1,9})\s+(minute|hour|day)s?\s*\)", re.IGNORECASE | re.ASCII)
_UNIT_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
_MAX_MS = int(MAX_DURATION_SECONDS * 1000)


@dataclass(frozen=True, slots=True)
class Every:
    """Each whole multiple of ``interval_ms`` before and after ``anchor``, so it never drifts."""

    interval_ms: int
    anchor: datetime

    def next_after(self, instant: datetime) -> datetime | None:
        number = (instant - self.anchor) // MILLISECOND // self.interval_ms + 1
        ms = number * self.interval_ms
        return self.anchor + ms * MILLISECOND if ms <= (MAX_INSTANT - self.anchor) // MILLISECOND else None

    def previous_before(self, instant: datetime) -> datetime | None:
        number = -((self.anchor - instant) // MILLISECOND // self.interval_ms + 1)
        ms = number * self.interval_ms
        return self.anchor + ms * MILLISECOND if ms >= (MIN_INSTANT - self.anchor) // MILLISECOND else None


def check_interval(interval_ms: int) -> int:
    if not MIN_INTERVAL_MS <= interval_ms <= _MAX_MS:
        raise InvalidInput("every", "must lie between 1s and 100 years")
    return interval_ms


def is_rate(text: str) -> bool:
    return text.lstrip()[:4].lower() == "rate"


def rate_ms(text: str, field: str) -> int:
    """Return the interval of ``rate(5 minutes)``. Raises ``InvalidInput`` for ``field``.

    EventBridge Scheduler takes ``rate(1 hours)`` too, which EventBridge's rules refuse.
    """
    match = _RATE.fullmatch(text.strip())
    if match is None:
        raise InvalidInput(field, "must be like rate(5 minutes): a whole number of minutes, hours or days")
    number, unit = int(match[1]), match[2].lower()
    if number == 0:
        raise InvalidInput(field, "must have a rate of 1 or more")
    interval_ms = number * _UNIT_MS[unit]
    if interval_ms > _MAX_MS:
        raise InvalidInput(field, "must have a rate of 100 years or less")
    return interval_ms
