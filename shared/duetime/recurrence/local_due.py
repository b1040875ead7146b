"""A timer that is due at a local time: when that is, and how its timer keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.errors import InvalidInput
from duetime.domain.times import MILLISECOND, check_range
from duetime.recurrence.spec import Dst

_SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class LocalDue:
    """``local_time``: without a zone, in whole seconds. ``time_zone``: a name of the IANA database.

    ``delay_ms``: how much later it is due, in a batch that is spread.
    """

    local_time: datetime
    time_zone: str
    delay_ms: int = 0

    @property
    def text(self) -> str:
        return self.local_time.isoformat(timespec=_SECONDS)


def local_due_json(due: LocalDue) -> str:
    delay = {"delay_ms": due.delay_ms} if due.delay_ms else {}
    return json.dumps({"local_time": due.text, "time_zone": due.time_zone, **delay}, separators=(",", ":"))


def read_local_due(text: str) -> LocalDue | None:
    """Return what ``local_due_json`` wrote; None for anything else."""
    try:
        given = json.loads(text)
        local_time, time_zone = datetime.fromisoformat(given["local_time"]), given["time_zone"]
        delay_ms = given.get("delay_ms", 0)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    is_whole = isinstance(time_zone, str) and isinstance(delay_ms, int) and local_time.tzinfo is None
    return LocalDue(local_time, time_zone, delay_ms) if is_whole else None


def due_at(due: LocalDue, dst: Dst = Dst.ONCE) -> datetime:
    """Return the instant of a local time: the first of two, and of one that does not exist the first after the gap.

    Raises ``InvalidInput``: of a zone that is not known, of a time out of range and, with SKIP, of one in a gap.
    """
    # Loading the zones takes a while, and whoever has no local times does without.
    from duetime.recurrence import zones
    from duetime.recurrence.local_time import first_instant_of

    zone = zones.zone(due.time_zone)
    try:
        at = first_instant_of(due.local_time, zone, is_in_gap=dst is not Dst.SKIP)
        if isinstance(at, datetime):
            return check_range(at + due.delay_ms * MILLISECOND)
    except (OverflowError, ValueError):
        raise InvalidInput("localTime", "must lie in the years 1970 to 9999 of UTC") from None
    raise InvalidInput("localTime", f"does not exist in {due.time_zone}: clocks go from {at.start} to {at.end}")
