"""Every zone and every change of its clocks from 2020 to 2035: nothing is lost, nothing happens twice.

By default a sample of zones with unusual changes; the whole is `slow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from duetime.recurrence import zones
from duetime.recurrence.local_time import change_at
from duetime.recurrence.occurrences import Recurrence, recurrence
from duetime.recurrence.spec import Dst, TimingSpec

FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
HOUR, DAY, SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
SAMPLE = [
    "Africa/Casablanca",  # winter time in Ramadan
    "America/Havana",  # at midnight
    "Antarctica/Casey",  # three hours
    "Antarctica/Troll",  # two hours
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Pacific/Chatham",  # at 02:45
]
A_FEW = 2


@dataclass(frozen=True)
class Group:
    """Zones whose clocks are changed alike, by one of them."""

    name: str
    changes: list[datetime]

    @property
    def zone(self) -> ZoneInfo:
        return zones.zone(self.name)


@cache
def changes(name: str) -> list[datetime]:
    """The instants at which a zone's offset changes: found hour by hour, then second by second."""
    zone, found = zones.zone(name), []
    at, offset = FROM, FROM.astimezone(zone).utcoffset()
    while at < TO:
        after = at + DAY
        if after.astimezone(zone).utcoffset() != offset or (at + DAY / 2).astimezone(zone).utcoffset() != offset:
            low, high = (
                at,
                next(at + n * HOUR for n in range(1, 25) if (at + n * HOUR).astimezone(zone).utcoffset() != offset),
            )
            while high - low > SECOND:
                middle = low + (high - low) // SECOND // 2 * SECOND
                low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
            found.append(high)
            at, offset = high, high.astimezone(zone).utcoffset()
        else:
            at = after
    return found


@cache
def all_groups() -> list[Group]:
    by_rules: dict[object, Group] = {}
    for name in sorted(zones.names()):
        zone, found = zones.zone(name), changes(name)
        offsets = tuple(at.astimezone(zone).utcoffset() for at in [FROM, *found])
        by_rules.setdefault((offsets, tuple(found)), Group(name, found))
    return list(by_rules.values())


def groups(which: str) -> list[Group]:
    return all_groups() if which == "all" else [Group(name, changes(name)[:A_FEW]) for name in SAMPLE]


EVERYWHERE = pytest.mark.parametrize("which", ["sample", pytest.param("all", marks=pytest.mark.slow)])


def around(group: Group, span: timedelta) -> Iterator[tuple[datetime, datetime]]:
    """A span to both sides of each change; without one, of the start of 2026."""
    for at in group.changes or [datetime(2026, 1, 1, tzinfo=UTC)]:
        yield at - span, at + span


def listed(times: Recurrence, start: datetime, end: datetime) -> list[datetime]:
    return [each.scheduled_at for each in times.occurrences(start - SECOND, until=end, limit=100_000)]


def listed_backwards(times: Recurrence, start: datetime, end: datetime) -> list[datetime]:
    found, at = [], times.previous_before(end + SECOND)
    while at is not None and at >= start:
        found.append(at)
        at = times.previous_before(at)
    return found[::-1]


@EVERYWHERE
@pytest.mark.parametrize(
    ("cron", "dsts", "span"),
    [
        ("30 2 * * *", list(Dst), 36 * HOUR),
        ("0 0 * * *", list(Dst), 36 * HOUR),
        ("15 3,23 * * *", list(Dst), 36 * HOUR),
        ("*/20 * * * *", [Dst.ONCE], 9 * HOUR),  # it follows elapsed time, whatever ``dst`` is
        ("0 */6 * * *", [Dst.ONCE], 36 * HOUR),
    ],
)
def test_next_and_previous_agree_and_rise_strictly(which: str, cron: str, dsts: list[Dst], span: timedelta) -> None:
    for group in groups(which):
        for dst in dsts:
            times = recurrence(TimingSpec(cron=(cron,), time_zone=group.name, dst=dst))
            for start, end in around(group, span):
                forwards = listed(times, start, end)

                assert all(a < b for a, b in pairwise(forwards)), (group.name, dst, start)
                assert forwards == listed_backwards(times, start, end), (group.name, dst, start)


@EVERYWHERE
def test_a_daily_schedule_fires_once_a_day_whatever_the_clocks_do(which: str) -> None:
    for group in groups(which):
        zone = group.zone
        for at in group.changes:
            local = [moment.astimezone(zone).replace(tzinfo=None) for moment in (at - SECOND, at)]
            quarter = timedelta(minutes=15)
            # At the ends of what is left out or repeated, and in it.
            for time in sorted({(each + shift * quarter).time() for each in local for shift in (-1, 0, 1)}):
                cron = f"{time.second} {time.minute} {time.hour} * * *"
                times = recurrence(TimingSpec(cron=(cron,), time_zone=group.name))
                # Noon to noon of local time, where no clock is changed.
                noon = datetime(local[0].year, local[0].month, local[0].day, 12)
                noons = [(noon + n * DAY).replace(tzinfo=zone).astimezone(UTC) for n in range(-3, 4)]
                numbers = [len(listed(times, start, end - SECOND)) for start, end in pairwise(noons)]

                assert numbers == [1] * 6, (group.name, at, cron)


@EVERYWHERE
def test_occurrences_are_those_of_a_clock_that_is_watched(which: str) -> None:
    """The model: look at a clock on the wall each five minutes, and at what it skips and repeats."""
    hours = (0, 1, 2, 3, 23)
    for group in groups(which):
        for change in group.changes:
            start, end = change - 3 * HOUR, change + 25 * HOUR
            # Antarctica/Casey changes its clocks at 00:01.
            step = timedelta(minutes=1 if change.minute % 5 else 5)
            watched = list(watch(group.zone, start - 6 * HOUR, end, step))
            for dst in Dst:
                fixed = recurrence(TimingSpec(cron=("0,30 0-3,23 * * *",), time_zone=group.name, dst=dst))
                expected, shown = [], set()
                for at, local, skipped in watched:
                    is_made_up = dst is not Dst.SKIP and any(
                        is_half_hour(each) and each.hour in hours for each in skipped
                    )
                    is_wanted = is_half_hour(local) and local.hour in hours
                    if at >= start and (is_made_up or (is_wanted and (dst is Dst.BOTH or local not in shown))):
                        expected.append(at)
                    shown.add(local)

                assert listed(fixed, start, end) == expected, (group.name, dst, change)
            interval = recurrence(TimingSpec(cron=("*/30 * * * *",), time_zone=group.name))

            elapsed = [at for at, local, _ in watched if at >= start and is_half_hour(local)]
            assert listed(interval, start, end) == elapsed, (group.name, change)


def watch(
    zone: ZoneInfo, start: datetime, end: datetime, step: timedelta
) -> Iterator[tuple[datetime, datetime, list[datetime]]]:
    """Each instant, what the clock shows, and the times that it has skipped since the last."""
    at, last = start, start.astimezone(zone).replace(tzinfo=None) - step
    while at <= end:
        local = at.astimezone(zone).replace(tzinfo=None)
        yield at, local, [last + n * step for n in range(1, (local - last) // step)]
        at, last = at + step, local


def is_half_hour(local: datetime) -> bool:
    return local.minute in (0, 30) and local.second == 0


@EVERYWHERE
def test_a_change_is_found_from_every_time_in_it(which: str) -> None:
    for group in groups(which):
        for at in group.changes:
            zone = group.zone
            before, after = ((at - by).astimezone(zone).replace(tzinfo=None) + by for by in (SECOND, timedelta()))
            first, last = sorted((before, after))
            for local in (first, first + (last - first) / 2, last - SECOND):
                change = change_at(zone, local.replace(microsecond=0))

                assert change is not None
                assert (change.at, change.start, change.end) == (at, first, last)
                assert change.is_gap == (before < after)
            assert change_at(zone, last) is None
            assert change_at(zone, first - SECOND) is None


def test_samoa_lost_a_day_and_no_firing() -> None:
    times = recurrence(TimingSpec(cron=("0 9 * * *",), time_zone="Pacific/Apia"))
    start = datetime(2011, 12, 28, 12, tzinfo=UTC)
    zone = zones.zone("Pacific/Apia")

    local = [each.scheduled_at.astimezone(zone) for each in times.occurrences(start, limit=4)]

    assert [f"{each:%d %H:%M}" for each in local] == ["28 09:00", "29 09:00", "31 00:00", "31 09:00"]
