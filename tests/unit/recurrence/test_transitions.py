"""Every zone and every change of its clocks from 2020 to 2035: nothing is lost, nothing happens twice.

By default a sample of zones with unusual changes; the rest is `slow`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from functools import cache
from zoneinfo import ZoneInfo

import pytest

from duetime.recurrence import zones
from duetime.recurrence.local_time import Dst, change_at
from duetime.recurrence.spec import Recurrence, TimingSpec, recurrence

FROM, TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2036, 1, 1, tzinfo=UTC)
HOUR, DAY, SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)
SAMPLE = [
    "Africa/Casablanca",  # winter time in Ramadan
    "Africa/Cairo",
    "America/Asuncion",  # gave it up
    "America/Havana",  # at midnight
    "America/New_York",
    "America/Nuuk",  # at 22:00 of the day before
    "Antarctica/Casey",  # three hours
    "Antarctica/Troll",  # two hours
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Kathmandu",
    "Asia/Kolkata",
    "Australia/Lord_Howe",  # half an hour
    "Europe/Berlin",
    "Pacific/Chatham",  # at 02:45
    "Pacific/Norfolk",
    "UTC",
]
ALL_ZONES = [
    *SAMPLE,
    *(pytest.param(name, marks=pytest.mark.slow) for name in sorted(zones.names() - set(SAMPLE))),
]


@cache
def changes(name: str) -> list[datetime]:
    """The instants at which a zone's offset changes: found hour by hour, then second by second."""
    zone, found = zones.zone(name), []
    at, offset = FROM, FROM.astimezone(zone).utcoffset()
    while at < TO:
        after = at + DAY
        if after.astimezone(zone).utcoffset() != offset or (at + DAY / 2).astimezone(zone).utcoffset() != offset:
            low, high = at, next(
                at + n * HOUR for n in range(1, 25) if (at + n * HOUR).astimezone(zone).utcoffset() != offset
            )
            while high - low > SECOND:
                middle = low + (high - low) // SECOND // 2 * SECOND
                low, high = (middle, high) if middle.astimezone(zone).utcoffset() == offset else (low, middle)
            found.append(high)
            at, offset = high, high.astimezone(zone).utcoffset()
        else:
            at = after
    return found


def around(name: str) -> Iterator[tuple[datetime, datetime]]:
    """Three days about each change; without one, about the start of 2026."""
    for at in changes(name) or [datetime(2026, 1, 1, tzinfo=UTC)]:
        yield at - 36 * HOUR, at + 36 * HOUR


def listed(times: Recurrence, start: datetime, end: datetime) -> list[datetime]:
    return [each.scheduled_at for each in times.occurrences(start - SECOND, until=end, limit=100_000)]


def listed_backwards(times: Recurrence, start: datetime, end: datetime) -> list[datetime]:
    found, at = [], times.previous_before(end + SECOND)
    while at is not None and at >= start:
        found.append(at)
        at = times.previous_before(at)
    return found[::-1]


def local_seconds(zone: ZoneInfo, start: datetime, end: datetime, step: timedelta) -> Iterator[datetime]:
    while start <= end:
        yield start
        start += step


@pytest.mark.parametrize("name", ALL_ZONES)
@pytest.mark.parametrize("cron", ["30 2 * * *", "0 0 * * *", "15 3,23 * * *", "*/20 * * * *", "0 */6 * * *"])
@pytest.mark.parametrize("dst", list(Dst))
def test_next_and_previous_agree_and_rise_strictly(name: str, cron: str, dst: Dst) -> None:
    times = recurrence(TimingSpec(cron=(cron,), time_zone=name, dst=dst))
    for start, end in around(name):
        forwards = listed(times, start, end)

        assert all(a < b for a, b in zip(forwards, forwards[1:], strict=False))
        assert forwards == listed_backwards(times, start, end)


@pytest.mark.parametrize("name", ALL_ZONES)
def test_a_daily_schedule_fires_once_a_day_whatever_the_clocks_do(name: str) -> None:
    zone = zones.zone(name)
    for at in changes(name):
        before = at - SECOND
        local = [moment.astimezone(zone).replace(tzinfo=None) for moment in (before, at)]
        # At the change itself, in it, and at its ends.
        for minute in sorted({(each + shift * timedelta(minutes=15)).time() for each in local for shift in (-1, 0, 1)}):
            times = recurrence(
                TimingSpec(cron=(f"{minute.second} {minute.minute} {minute.hour} * * *",), time_zone=name)
            )
            # A time in a gap that ends at midnight fires on the day after: it is told by its own day.
            days = [intended_day(each, zone, minute.hour) for each in listed(times, at - 3 * DAY, at + 3 * DAY)]

            assert days == [days[0] + n * DAY for n in range(len(days))]


def intended_day(instant: datetime, zone: ZoneInfo, hour: int) -> date:
    local = instant.astimezone(zone)
    return local.date() - DAY if hour > 12 and local.hour < 6 else local.date()


@pytest.mark.parametrize("name", ALL_ZONES)
def test_occurrences_are_those_of_a_clock_that_is_watched(name: str) -> None:
    """The model: look at a clock on the wall each minute, and at what it skips and repeats."""
    zone = zones.zone(name)
    step = timedelta(minutes=1)
    for dst in Dst:
        fixed = recurrence(TimingSpec(cron=("0,30 0,1,2,3,23 * * *",), time_zone=name, dst=dst))
        interval = recurrence(TimingSpec(cron=("*/30 * * * *",), time_zone=name, dst=dst))
        for start, end in [(at - 3 * HOUR, at + 27 * HOUR) for at in changes(name)[:6]]:
            at, shown, last = start - DAY, set(), None
            expected, expected_interval = [], []
            while at <= end:
                local = at.astimezone(zone).replace(tzinfo=None)
                is_time = local.minute in (0, 30) and local.second == 0
                if is_time and at >= start:
                    expected_interval.append(at)
                is_wanted = is_time and local.hour in (0, 1, 2, 3, 23)
                skipped = [] if last is None or local - last <= step else [
                    last + n * step for n in range(1, (local - last) // step)
                ]
                is_made_up = dst is not Dst.SKIP and any(
                    each.minute in (0, 30) and each.hour in (0, 1, 2, 3, 23) for each in skipped
                )
                is_first = local not in shown or dst is Dst.BOTH
                if at >= start and (is_made_up or (is_wanted and is_first)):
                    expected.append(at)
                shown.add(local)
                last = local
                at += step

            assert listed(fixed, start, end) == expected
            assert listed(interval, start, end) == expected_interval


@pytest.mark.parametrize("name", ALL_ZONES)
def test_a_change_is_found_from_every_time_in_it(name: str) -> None:
    zone = zones.zone(name)
    for at in changes(name):
        before, after = ((at + shift).astimezone(zone).replace(tzinfo=None) for shift in (-SECOND, timedelta()))
        first, last = sorted((before + SECOND, after))
        for local in (first, first + (last - first) / 2, last - SECOND):
            change = change_at(zone, local.replace(microsecond=0))

            assert change is not None
            assert (change.at, change.start, change.end) == (at, first, last)
            assert change.is_gap == (before + SECOND < after)
        assert change_at(zone, last) is None
        assert change_at(zone, first - SECOND) is None


def test_samoa_lost_a_day_and_no_firing() -> None:
    times = recurrence(TimingSpec(cron=("0 9 * * *",), time_zone="Pacific/Apia"))
    start = datetime(2011, 12, 28, 12, tzinfo=UTC)
    zone = zones.zone("Pacific/Apia")

    local = [each.scheduled_at.astimezone(zone) for each in times.occurrences(start, limit=4)]

    assert [f"{each:%d %H:%M}" for each in local] == ["28 09:00", "29 09:00", "31 00:00", "31 09:00"]
