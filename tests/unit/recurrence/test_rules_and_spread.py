"""Intervals, recurrence rules, bounds, exclusions, and the spread of many schedules."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duetime.domain.errors import InvalidInput
from duetime.domain.schedules import ScheduleMisfire, SchedulePolicy, fired, new_schedule, turn
from duetime.domain.times import MAX_INSTANT
from duetime.recurrence import zones
from duetime.recurrence.occurrences import ScheduleOccurrences, recurrence
from duetime.recurrence.spec import Dst, TimingSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
BERLIN = "Europe/Berlin"


def times(count: int = 3, *, after: datetime = START, **spec: Any) -> list[str]:
    """Local times."""
    given = TimingSpec(**spec)
    zone = zones.zone(given.time_zone)
    found = recurrence(given).occurrences(after, limit=count)
    return [f"{each.scheduled_at.astimezone(zone):%Y-%m-%d %H:%M:%S}".removesuffix(":00") for each in found]


def refusal(**spec: Any) -> tuple[str, str]:
    with pytest.raises(InvalidInput) as refused:
        recurrence(TimingSpec(**spec))
    return refused.value.field, refused.value.message


# -- intervals -------------------------------------------------------------------------------------------------


def test_an_interval_is_counted_from_its_anchor_and_never_drifts() -> None:
    every = recurrence(TimingSpec(every_ms=7001, anchor=START))
    at = START + timedelta(days=400)

    found = every.next_after(at)

    assert found is not None
    assert (found - START) % timedelta(milliseconds=7001) == timedelta()
    assert timedelta() < found - at <= timedelta(milliseconds=7001)
    assert every.previous_before(found) == found - timedelta(milliseconds=7001)
    assert every.next_after(found) == found + timedelta(milliseconds=7001)


def test_an_interval_of_years_costs_what_one_of_seconds_does() -> None:
    years = timedelta(days=5 * 365)
    every = recurrence(TimingSpec(every_ms=years // timedelta(milliseconds=1), anchor=START))

    found = every.occurrences(START, limit=100)

    assert [each.scheduled_at for each in found] == [START + number * years for number in range(1, 101)]


def test_a_rate_begins_where_the_schedule_does_as_on_eventbridge() -> None:
    start = datetime(2026, 1, 1, 0, 7, 30, tzinfo=UTC)

    assert times(2, cron=("rate(1 hour)",), start_at=start) == ["2026-01-01 00:07:30", "2026-01-01 01:07:30"]
    assert times(2, cron=("rate(1 hour)",)) == ["2026-01-01 01:00", "2026-01-01 02:00"]


def test_several_make_one_schedule_and_meet_without_doubles() -> None:
    assert times(4, cron=("0 0 * * *", "0 12 * * *"), every_ms=43_200_000) == [
        "2026-01-01 12:00",
        "2026-01-02 00:00",
        "2026-01-02 12:00",
        "2026-01-03 00:00",
    ]


# -- rules -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (
            "FREQ=WEEKLY;INTERVAL=2;BYDAY=MO,FR;BYHOUR=9;BYMINUTE=30;BYSECOND=0",
            ["2026-01-02 09:30", "2026-01-12 09:30", "2026-01-16 09:30"],
        ),
        ("RRULE:FREQ=MONTHLY;BYDAY=-1FR", ["2026-01-30 08:15", "2026-02-27 08:15", "2026-03-27 08:15"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", ["2026-01-31 08:15", "2026-03-31 08:15", "2026-05-31 08:15"]),
        (
            "FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1",
            ["2026-01-30 08:15", "2026-02-27 08:15", "2026-03-31 08:15"],
        ),
        ("FREQ=YEARLY", ["2026-12-31 08:15", "2027-12-31 08:15", "2028-12-31 08:15"]),
        ("FREQ=DAILY;INTERVAL=10", ["2026-01-10 08:15", "2026-01-20 08:15", "2026-01-30 08:15"]),
        ("FREQ=HOURLY;INTERVAL=7", ["2026-01-01 05:15", "2026-01-01 12:15", "2026-01-01 19:15"]),
        ("FREQ=DAILY;COUNT=2", ["2026-01-01 08:15"]),
        ("FREQ=DAILY;UNTIL=20260102", ["2026-01-01 08:15", "2026-01-02 08:15"]),
        ("FREQ=DAILY;UNTIL=20260102T071500Z", ["2026-01-01 08:15", "2026-01-02 08:15"]),
        ("FREQ=DAILY;UNTIL=20260102T071459Z", ["2026-01-01 08:15"]),
    ],
)
def test_a_rule_has_these_times(rule: str, expected: list[str]) -> None:
    start = datetime(2025, 12, 31, 7, 15, tzinfo=UTC)

    assert times(rrule=(rule,), start_at=start, time_zone=BERLIN) == expected


@pytest.mark.parametrize(
    "rule", ["FREQ=HOURLY;INTERVAL=13", "FREQ=WEEKLY;INTERVAL=3;BYDAY=TU", "FREQ=MONTHLY;INTERVAL=5", "FREQ=YEARLY"]
)
def test_a_search_from_far_on_finds_what_counting_from_the_start_does(rule: str) -> None:
    times_of_rule = recurrence(TimingSpec(rrule=(rule,), start_at=START))
    expected = times_of_rule.occurrences(START - timedelta(days=1), limit=300)

    for place in (0, 1, 150, 298):
        assert times_of_rule.next_after(expected[place].scheduled_at) == expected[place + 1].scheduled_at
        assert times_of_rule.previous_before(expected[place + 1].scheduled_at) == expected[place].scheduled_at
    assert times_of_rule.previous_before(START) is None


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("FREQ=FORTNIGHTLY", "FREQ must be one of YEARLY"),
        ("FREQ=MINUTELY", "every and cron have shorter intervals"),
        ("FREQ=HOURLY;BYDAY=MO;BYSETPOS=2", "BYSETPOS must not be given with FREQ=HOURLY"),
        ("FREQ=HOURLY;BYSECOND=0,30;BYMINUTE=" + ",".join(map(str, range(13))), "24 times an hour or less"),
        ("FREQ=YEARLY;BYHOUR=9,17", "one time a day with FREQ=YEARLY; FREQ=DAILY may have more"),
        ("DAILY", "'DAILY' must be like NAME=VALUE"),
        ("FREQ=DAILY;FREQ=DAILY", "FREQ must stand once"),
        ("FREQ=DAILY;BYEASTER=0", "'BYEASTER' is no part"),
        ("FREQ=DAILY;INTERVAL=0", "INTERVAL must be a whole number from 1"),
        ("FREQ=DAILY;BYHOUR=24", "BYHOUR: '24' is not 0 to 23"),
        ("FREQ=DAILY;BYMONTHDAY=0", "BYMONTHDAY: '0' is not 1 to 31 or -31 to -1"),
        ("FREQ=DAILY;BYDAY=1MO", "BYDAY must have no numbers with FREQ=DAILY"),
        ("FREQ=YEARLY;BYDAY=XX", "BYDAY: 'XX' is no weekday"),
        ("FREQ=WEEKLY;BYMONTHDAY=1", "BYMONTHDAY must not be given with FREQ=WEEKLY"),
        ("FREQ=YEARLY;BYWEEKNO=3", "BYWEEKNO must be given with BYDAY"),
        ("FREQ=DAILY;BYSETPOS=1", "BYSETPOS must be given with another"),
        ("FREQ=DAILY;COUNT=3", "COUNT must be given with startAt or anchor"),
        ("FREQ=DAILY;COUNT=3;UNTIL=20270101", "must not be given together"),
        ("FREQ=DAILY;UNTIL=20271301", "UNTIL must be like"),
        ("FREQ=DAILY;WKST=XX", "WKST must be one of"),
        ("DTSTART:20260101T000000\nRRULE:FREQ=DAILY", "must be one RRULE"),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", "within 50 years"),
        ("FREQ=HOURLY;INTERVAL=24;BYHOUR=5", "within 50 years"),
        (f"FREQ=DAILY;BYHOUR={','.join(map(str, range(24)))};BYMINUTE=0,30", "24 times a day or less"),
    ],
)
def test_a_rule_that_is_nonsense_is_refused_with_the_reason(rule: str, reason: str) -> None:
    field, message = refusal(rrule=(rule,))

    assert field == "rrule"
    assert reason in message


# -- bounds and exclusions -------------------------------------------------------------------------------------


def test_start_and_end_are_inclusive() -> None:
    spec: dict[str, Any] = {"every_ms": 3_600_000, "start_at": START, "end_at": START + timedelta(hours=2)}
    bounded = recurrence(TimingSpec(**spec))

    assert times(9, after=START - timedelta(days=9), **spec) == [f"2026-01-01 0{n}:00" for n in range(3)]
    assert bounded.previous_before(START + timedelta(days=9)) == START + timedelta(hours=2)
    assert bounded.previous_before(START) is None


def test_dates_and_cron_expressions_are_left_out_in_local_time() -> None:
    assert times(cron=("0 9 * * *",), exclude=("2026-01-02", "* * * * 0,6"), time_zone=BERLIN) == [
        "2026-01-01 09:00",
        "2026-01-05 09:00",
        "2026-01-06 09:00",
    ]
    assert times(every_ms=60_000, exclude=("* 0-22 * * *", "0-57 23 * * *")) == [
        "2026-01-01 23:58",
        "2026-01-01 23:59",
        "2026-01-02 23:58",
    ]


def test_what_is_excluded_for_months_is_passed_over_in_days() -> None:
    seconds = recurrence(TimingSpec(every_ms=1000, exclude=("* * * 1-11 *",)))

    assert seconds.next_after(START) == datetime(2026, 12, 1, tzinfo=UTC)
    assert seconds.previous_before(START + timedelta(days=200)) == START - timedelta(seconds=1)


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({}, "cron", "must be given"),
        ({"cron": ("@daily",), "time_zone": "europe/berlin"}, "timeZone", "did you mean Europe/Berlin?"),
        ({"cron": ("@daily",), "time_zone": "../../etc/passwd"}, "timeZone", "IANA time zone database 20"),
        ({"cron": ("@daily",), "exclude": ("2026-02-30",)}, "exclude[0]", "no day 2026-02-30"),
        ({"cron": ("@daily",), "exclude": ("2026-02-03", "nonsense")}, "exclude[1]", "5 fields"),
        ({"cron": ("0 9 * * *",), "exclude": ("* 9 * * *",)}, "exclude", "at least one occurrence"),
        ({"cron": ("@daily",), "start_at": START, "end_at": START - timedelta(1)}, "endAt", "before startAt"),
        (
            {"cron": ("@yearly",), "start_at": START + timedelta(1), "end_at": START + timedelta(2)},
            "endAt",
            "at least one occurrence",
        ),
        ({"cron": ("@daily",), "window_ms": 86_400_001}, "window", "24h"),
        ({"cron": ("@daily",), "jitter_ms": -1}, "jitter", "24h"),
        ({"every_ms": 999}, "every", "1s"),
        ({"cron": ("@daily",) * 11}, "cron", "at most 10"),
        ({"rrule": ("FREQ=DAILY",) * 4}, "rrule", "at most 3"),
        (
            {"cron": ("30 2 * 3 0L",), "time_zone": BERLIN, "dst": Dst.SKIP, "start_at": START},
            "dst",
            "at least one occurrence",
        ),
        ({"rrule": ("FREQ=DAILY",), "anchor": MAX_INSTANT}, "anchor", "not be after 9999-12-29"),
        ({"rrule": ("FREQ=DAILY",), "start_at": MAX_INSTANT}, "startAt", "not be after 9999-12-29"),
        ({"cron": ("@daily",), "exclude": ("2026-01-01",) * 1001}, "exclude", "1000 items"),
        ({"cron": ("@daily",), "exclude": ("* 1 * * *",) * 21}, "exclude", "20 cron expressions"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_by_field(spec: dict[str, Any], field: str, reason: str) -> None:
    named, message = refusal(**spec)

    assert named == field
    assert reason in message


# -- spread ----------------------------------------------------------------------------------------------------


def test_a_window_spreads_schedules_evenly_and_each_the_same_every_time() -> None:
    daily = recurrence(TimingSpec(cron=("@daily",), window_ms=600_000))
    first, second = daily.occurrences(START, limit=2)
    delays = {str(n): daily.due_at(first.scheduled_at, str(n)) - first.scheduled_at for n in range(4000)}
    by_minute = Counter(delay // timedelta(minutes=1) for delay in delays.values())

    assert sorted(by_minute) == list(range(10))
    assert all(300 < number < 500 for number in by_minute.values())
    assert all(daily.due_at(second.scheduled_at, key) - second.scheduled_at == delay for key, delay in delays.items())


def test_jitter_differs_each_time_and_never_reaches_the_next_occurrence() -> None:
    minutes = recurrence(TimingSpec(cron=("* * * * *",), jitter_ms=3_600_000, window_ms=5000))
    found = minutes.occurrences(START, schedule_id="a", limit=200)
    due = [each.due_at for each in found]

    assert due == sorted(set(due))
    assert len({each.due_at - each.scheduled_at for each in found}) > 150
    assert [minutes.due_at(each.scheduled_at, "a") for each in found] == due


@pytest.mark.parametrize("spread", [{}, {"window_ms": 5_400_000}, {"jitter_ms": 600_000}])
@pytest.mark.parametrize("schedule_id", ["a", "b"])
def test_what_is_due_by_a_time_is_the_last_whose_delay_has_passed(spread: dict[str, Any], schedule_id: str) -> None:
    given = recurrence(TimingSpec(cron=("*/10 9-17 * * MON-FRI",), time_zone=BERLIN, **spread))
    found = given.occurrences(START, schedule_id=schedule_id, limit=300)

    for minutes in range(1440, 6000, 7):
        at = START + timedelta(minutes=minutes)
        expected = max((each.scheduled_at for each in found if each.due_at <= at), default=None)
        assert given.due_by(at, schedule_id) == expected


def test_a_schedule_moves_through_an_outage_over_a_clock_change() -> None:
    daily = ScheduleOccurrences(recurrence(TimingSpec(cron=("30 2 * * *",), time_zone=BERLIN)), "a")
    schedule = new_schedule(
        SchedulePolicy(misfire=ScheduleMisfire.LATEST), daily, after=datetime(2026, 3, 26, tzinfo=UTC)
    )

    found = turn(schedule, daily, now=datetime(2026, 3, 29, 12, tzinfo=UTC), is_open=False)

    assert found.schedule.pending is not None
    assert found.schedule.pending.scheduled_at == datetime(2026, 3, 29, 1, tzinfo=UTC)
    assert found.missed is not None
    assert found.missed.count == 3
    following = fired(found.schedule, daily).pending
    assert following is not None
    assert following.scheduled_at == datetime(2026, 3, 30, 0, 30, tzinfo=UTC)
