"""What a schedule says of its times, as it was given, and the limits of what it may say.

Nothing is computed here, so a process that has no schedules loads none of the calendars.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_CHARACTERS: Final = 1000
"""Of an expression or a rule."""
MAX_CRON: Final = 10
MAX_RRULE: Final = 3
"""A search of one takes up to fifty times as long as that of an expression."""
MIN_INTERVAL_MS: Final = 1000
SEARCHED_YEARS: Final = 50
"""An occurrence that is further away is none: so no search takes long."""
MAX_EXCLUSIONS: Final = 1000
MAX_WINDOW_MS: Final = 86_400_000
"""Of ``jitter`` too."""


class Dst(StrEnum):
    """The firing of local times that do not exist, or exist twice, because clocks are changed.

    A schedule that follows elapsed time (``LocalCalendar``) is not affected.
    """

    ONCE = "once"
    """At the first instant after the gap; at the first of two."""
    SKIP = "skip"
    """Not in a gap; at the first of two."""
    BOTH = "both"
    """At the first instant after the gap; at both of two."""


class DayOff(StrEnum):
    """What is done with an occurrence on a day that is no business day of the schedule's calendar."""

    SKIP = "skip"
    NEXT = "next"
    """It is moved to the next business day, at its time of day."""
    PREVIOUS = "previous"


class ClockEffect(StrEnum):
    """What a change of clocks does to an occurrence."""

    MOVED = "moved"
    """Its time of day does not exist: it fires at the first instant after the gap."""
    LEFT_OUT = "leftOut"
    """Its time of day does not exist: it does not fire."""
    DOUBLED = "doubled"
    """Its time of day happens twice: it fires at both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingSpec:
    """``cron``, ``rrule`` and ``exclude`` (dates and cron expressions) are texts as people write them. The
    occurrences are those of all of ``cron``, ``every_ms`` and ``rrule``, less the excluded ones.

    ``calendar`` is the name of one of the tenant's, and ``day_off`` needs it.

    ``anchor`` is where ``every`` and ``rrule`` are counted from (None: see ``recurrence``). ``start_at`` and
    ``end_at`` are inclusive. ``jitter_ms`` and ``window_ms`` are as in ``spreading``.
    """

    cron: tuple[str, ...] = ()
    every_ms: int | None = None
    rrule: tuple[str, ...] = ()
    anchor: datetime | None = None
    time_zone: str = "UTC"
    dst: Dst = Dst.ONCE
    start_at: datetime | None = None
    end_at: datetime | None = None
    exclude: tuple[str, ...] = ()
    calendar: str | None = None
    day_off: DayOff = DayOff.SKIP
    jitter_ms: int = 0
    window_ms: int = 0
