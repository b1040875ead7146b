"""What changes of clocks do to the occurrences of a schedule in the year to come."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Final

from duetime.domain.calendars import Calendar
from duetime.domain.errors import InvalidInput
from duetime.domain.times import MILLISECOND
from duetime.recurrence import zones
from duetime.recurrence.local_time import SECOND, ClockChange, clock_changes
from duetime.recurrence.occurrences import LAST_INSTANT, recurrence
from duetime.recurrence.spec import ClockEffect, Dst, TimingSpec

_TOLD: Final = timedelta(days=366)
_MOST: Final = 100
"""Occurrences that are looked at in an hour that happens twice."""


@dataclass(frozen=True, slots=True)
class AffectedChange:
    """``before`` and ``after`` are what clocks show at the instant of the change."""

    effect: ClockEffect
    before: datetime
    after: datetime


def affected_changes(spec: TimingSpec, start: datetime, calendar: Calendar | None = None) -> list[AffectedChange]:
    """Return the changes within a year of ``start`` at which an occurrence is moved, left out or doubled."""
    zone = zones.zone(spec.time_zone)
    start = start.replace(microsecond=0)
    found = []
    for change in clock_changes(zone, start, min(start, LAST_INSTANT - _TOLD) + _TOLD):
        effect = _effect(spec, change, calendar)
        if effect is not None:
            before = timezone((change.at - MILLISECOND).astimezone(zone).utcoffset() or timedelta())
            found.append(AffectedChange(effect, change.at.astimezone(before), change.at.astimezone(zone)))
    return found


def _effect(spec: TimingSpec, change: ClockChange, calendar: Calendar | None) -> ClockEffect | None:
    """Compare what different values of ``dst`` make of the change: nothing else depends on them."""

    def times(dst: Dst, length: timedelta) -> list[datetime]:
        until = change.at + length - MILLISECOND
        try:
            of_dst = recurrence(replace(spec, dst=dst), calendar)
            found = of_dst.occurrences(change.at - MILLISECOND, until=until, limit=_MOST)
        except InvalidInput:  # it has none at all, or they take too long to find
            return []
        return [each.scheduled_at for each in found]

    if change.is_gap:
        if times(Dst.ONCE, SECOND) == times(Dst.SKIP, SECOND):
            return None
        return ClockEffect.LEFT_OUT if spec.dst is Dst.SKIP else ClockEffect.MOVED
    length = change.end - change.start
    is_doubled = spec.dst is Dst.BOTH and times(Dst.BOTH, length) != times(Dst.ONCE, length)
    return ClockEffect.DOUBLED if is_doubled else None
