"""What a schedule is told of the changes of clocks in the year to come."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from duetime.recurrence.clock_effects import affected_changes
from duetime.recurrence.spec import Dst, TimingSpec

START = datetime(2026, 12, 20, 15, 30, 0, 123_000, tzinfo=UTC)


def told(*cron: str, zone: str = "Europe/Berlin", dst: Dst = Dst.ONCE, start: datetime = START) -> list[str]:
    spec = TimingSpec(cron=cron, time_zone=zone, dst=dst)
    return [
        f"{change.effect} {change.before:%Y-%m-%dT%H:%M%z} {change.after:%H:%M%z}"
        for change in affected_changes(spec, start)
    ]


@pytest.mark.parametrize(
    ("dst", "expected"),
    [
        (Dst.ONCE, ["moved 2027-03-28T02:00+0100 03:00+0200"]),
        (Dst.SKIP, ["leftOut 2027-03-28T02:00+0100 03:00+0200"]),
        (Dst.BOTH, ["moved 2027-03-28T02:00+0100 03:00+0200", "doubled 2027-10-31T03:00+0200 02:00+0100"]),
    ],
)
def test_a_time_of_day_that_does_not_exist_or_happens_twice(dst: Dst, expected: list[str]) -> None:
    assert told("30 2 * * *", dst=dst) == expected


@pytest.mark.parametrize(
    ("cron", "zone"),
    [
        ("30 9 * * *", "Europe/Berlin"),  # at another time of day
        ("0 3 * * *", "Europe/Berlin"),  # just after the gap
        ("30 2 * * MON", "Europe/Berlin"),  # on another day
        ("*/30 * * * *", "Europe/Berlin"),  # an interval
        ("30 2 * * *", "Asia/Kolkata"),  # clocks are not changed
        ("30 2 * * *", "UTC"),
    ],
)
def test_nothing_is_told_of_a_schedule_that_is_not_affected(cron: str, zone: str) -> None:
    assert [told(cron, zone=zone, dst=dst) for dst in Dst] == [[], [], []]


def test_one_source_of_several_suffices() -> None:
    assert told("*/30 * * * *", "45 2 * * *", dst=Dst.BOTH) == ["doubled 2027-10-31T03:00+0200 02:00+0100"]


def test_zones_whose_clocks_are_set_by_half_an_hour_or_in_the_other_half_of_the_year() -> None:
    assert told("15 2 * * *", zone="Australia/Lord_Howe", dst=Dst.BOTH) == [
        "moved 2027-10-03T02:00+1030 02:30+1100",
    ]
    assert told("45 1 * * *", zone="Australia/Lord_Howe", dst=Dst.BOTH) == [
        "doubled 2027-04-04T02:00+1100 01:30+1030"
    ]


def test_a_day_that_a_zone_leaves_out() -> None:
    start = datetime(2011, 12, 1, tzinfo=UTC)
    assert told("0 12 30 12 *", zone="Pacific/Apia", start=start) == ["moved 2011-12-30T00:00-1000 00:00+1400"]


def test_a_schedule_that_has_no_time_but_that_in_the_gap() -> None:
    assert told("cron(30 2 28 3 ? 2027)") == ["moved 2027-03-28T02:00+0100 03:00+0200"]


def test_the_end_of_time() -> None:
    assert told("30 2 * * *", start=datetime(9999, 12, 31, tzinfo=UTC)) == []
    assert told("30 2 * * *", start=datetime(9999, 3, 1, tzinfo=UTC))[:1] == [
        "moved 9999-03-28T02:00+0100 03:00+0200"
    ]
