"""From local times to instants: where clocks are changed, a local time has no instant, or two.

A local time here is a ``datetime`` without a zone, in whole seconds. An instant is one in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol
from zoneinfo import ZoneInfo

from duetime.recurrence.spec import Dst

SECOND = timedelta(seconds=1)
_DAY: Final = timedelta(days=1)
MAX_GAPS: Final = 100
"""A search that meets this many, and may not fire in them, gives up: most zones have one a year."""


class LocalCalendar(Protocol):
    """A set of local times, in their order."""

    @property
    def follows_elapsed_time(self) -> bool:
        """Whether it means intervals, not times of day: nothing is made up for a gap, and an hour that happens twice
        counts twice."""
        ...

    def first_from(self, local: datetime) -> datetime | None:
        """Return the first that is not before ``local``, a whole second; None when there is none for long."""
        ...

    def last_before(self, local: datetime) -> datetime | None: ...


@dataclass(frozen=True, slots=True)
class ClockChange:
    """At ``at`` the local times from ``start`` to just before ``end`` are left out, a gap, or repeated."""

    at: datetime
    start: datetime
    end: datetime
    is_gap: bool

    def first_instant(self, local: datetime) -> datetime:
        """Return when a repeated time happens first."""
        return self.at - (self.end - local)

    def second_instant(self, local: datetime) -> datetime:
        return self.at + (local - self.start)


class ZonedCalendar:
    """A calendar in a time zone: its occurrences as instants. None ends a search, as in ``LocalCalendar``."""

    def __init__(self, calendar: LocalCalendar, zone: ZoneInfo, dst: Dst) -> None:
        self._calendar = calendar
        self._zone = zone
        self._is_in_gap = dst is not Dst.SKIP and not calendar.follows_elapsed_time
        self._repeats = dst is Dst.BOTH or calendar.follows_elapsed_time

    def next_after(self, instant: datetime) -> datetime | None:
        zoned = instant.astimezone(self._zone)
        local = zoned.replace(tzinfo=None, fold=0, microsecond=0)
        start = local + SECOND
        change = change_at(self._zone, local)
        if change is not None:
            if not zoned.fold:
                found = self._first_in(start, change)
                if found is not None:
                    return change.first_instant(found)
                start = change.start
            found = self._first_in(start, change) if self._repeats else None
            if found is not None:
                return change.second_instant(found)
            start = change.end
        return self._next_from(start)

    def previous_before(self, instant: datetime) -> datetime | None:
        zoned = instant.astimezone(self._zone)
        local = zoned.replace(tzinfo=None, fold=0)
        end = local if not local.microsecond else local.replace(microsecond=0) + SECOND
        change = change_at(self._zone, local)
        if change is not None:
            if zoned.fold:
                found = self._last_in(end, change) if self._repeats else None
                if found is not None:
                    return change.second_instant(found)
                end = change.end
            found = self._last_in(end, change)
            if found is not None:
                return change.first_instant(found)
            end = change.start
        return self._previous_before(end, instant)

    def _first_in(self, start: datetime, change: ClockChange) -> datetime | None:
        found = self._calendar.first_from(start)
        return None if found is None or found >= change.end else found

    def _last_in(self, end: datetime, change: ClockChange) -> datetime | None:
        found = self._calendar.last_before(end)
        return None if found is None or found < change.start else found

    def _next_from(self, start: datetime) -> datetime | None:
        for _ in range(MAX_GAPS):
            found = self._calendar.first_from(start)
            if found is None:
                break
            at = first_instant_of(found, self._zone, is_in_gap=self._is_in_gap)
            if isinstance(at, datetime):
                return at
            start = at.end
        return None

    def _previous_before(self, end: datetime, instant: datetime) -> datetime | None:
        for _ in range(MAX_GAPS):
            found = self._calendar.last_before(end)
            if found is None:
                break
            change = change_at(self._zone, found)
            if change is None:
                return found.replace(tzinfo=self._zone).astimezone(UTC)
            if not change.is_gap:
                return change.second_instant(found) if self._repeats else change.first_instant(found)
            if self._is_in_gap and change.at < instant:
                return change.at
            end = change.start
        return None


def first_instant_of(local: datetime, zone: ZoneInfo, *, is_in_gap: bool) -> datetime | ClockChange:
    """Return when a local time is: first, when it happens twice; when it does not exist, right after the gap. Without
    ``is_in_gap`` it is not then: return the gap."""
    change = change_at(zone, local)
    if change is None:
        return local.replace(tzinfo=zone).astimezone(UTC)
    if not change.is_gap:
        return change.first_instant(local)
    return change.at if is_in_gap else change


def change_at(zone: ZoneInfo, local: datetime) -> ClockChange | None:
    """Return the change that leaves out or repeats ``local``; None for a time that happens once, as most do."""
    before = zone.utcoffset(local)
    after = zone.utcoffset(local.replace(fold=1))
    assert before is not None
    assert after is not None
    if before == after:
        return None
    # ``utcoffset`` tells what was in force before and after the change, and not when it was: it lies between these.
    return _change_between(zone, _utc(local - max(before, after)), _utc(local - min(before, after)))


def clock_changes(zone: ZoneInfo, start: datetime, end: datetime) -> Iterator[ClockChange]:
    """Give the changes from ``start``, a whole second, to ``end``. Two within a day may be told as one."""
    early, offset = start, None if start > end else start.astimezone(zone).utcoffset()
    while early < end:
        late = min(early + _DAY, end)
        following = late.astimezone(zone).utcoffset()
        if following != offset:
            yield _change_between(zone, early, late)
        early, offset = late, following


def _change_between(zone: ZoneInfo, early: datetime, late: datetime) -> ClockChange:
    """Return the change between two instants of different offsets, to the second."""
    before, after = early.astimezone(zone).utcoffset(), late.astimezone(zone).utcoffset()
    assert before is not None
    assert after is not None
    low, high = 0, (late - early) // SECOND
    while high - low > 1:
        middle = (low + high) // 2
        if (early + middle * SECOND).astimezone(zone).utcoffset() == before:
            low = middle
        else:
            high = middle
    at = early + high * SECOND
    ends = sorted(((at + before).replace(tzinfo=None), (at + after).replace(tzinfo=None)))
    return ClockChange(at, ends[0], ends[1], is_gap=after > before)


def _utc(local: datetime) -> datetime:
    return local.replace(tzinfo=UTC, microsecond=0)
