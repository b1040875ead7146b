"""Occurrences and business days: left out, or moved, against a search day by day."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.domain.calendars import WEEKDAYS, Calendar, Weekday
from duetime.domain.errors import InvalidInput
from duetime.recurrence.business_days import MAX_MOVED_DAYS
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import DayOff, TimingSpec
from duetime.recurrence.words import sentence

START = datetime(2026, 12, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MILLISECOND = timedelta(milliseconds=1)
CHRISTMAS = frozenset(date(2026, 12, day) for day in (24, 25, 28, 31))
GERMAN = Calendar(name="de", days_off=CHRISTMAS | {date(2027, 1, 1)}, business_days=frozenset({date(2026, 12, 26)}))


def times(cron: str, day_off: DayOff, count: int, calendar: Calendar = GERMAN, **given: Any) -> list[str]:
    spec = TimingSpec(cron=(cron,), calendar="de", day_off=day_off, **given)
    found = recurrence(spec, calendar).occurrences(START, limit=count)
    return [f"{each.scheduled_at:%m-%d %H:%M}" for each in found]


def test_what_is_on_no_business_day_is_left_out() -> None:
    assert times("0 9 22-31 * *", DayOff.SKIP, 6) == [
        *("12-22 09:00", "12-23 09:00", "12-26 09:00", "12-29 09:00", "12-30 09:00"),
        "01-22 09:00",
    ]


def test_intervals_are_left_out_too() -> None:
    spec = TimingSpec(every_ms=12 * 3_600_000, calendar="de")
    found = recurrence(spec, GERMAN).occurrences(datetime(2026, 12, 23, tzinfo=UTC), limit=4)
    assert [f"{each.scheduled_at:%d %H}" for each in found] == ["23 12", "26 00", "26 12", "29 00"]


def test_the_last_business_day_of_the_month() -> None:
    assert times("0 17 L * *", DayOff.PREVIOUS, 3) == ["12-30 17:00", "01-29 17:00", "02-26 17:00"]


def test_the_first_business_day_of_the_month() -> None:
    assert times("0 9 1 * *", DayOff.NEXT, 3) == ["12-01 09:00", "01-04 09:00", "02-01 09:00"]


def test_those_that_meet_are_one() -> None:
    assert times("0 9 * * *", DayOff.NEXT, 21)[-4:] == ["12-26 09:00", "12-29 09:00", "12-30 09:00", "01-04 09:00"]


def test_what_is_moved_onto_an_excluded_day_is_left_out() -> None:
    assert times("0 17 L * *", DayOff.PREVIOUS, 1, exclude=("2026-12-30",)) == ["01-29 17:00"]


def test_a_time_of_day_in_a_gap_of_the_clocks_is_moved_as_ever() -> None:
    off = Calendar(name="de", weekdays=frozenset({Weekday.SUN}))
    spec = TimingSpec(cron=("30 2 27 3 *",), time_zone="Europe/Berlin", calendar="de", day_off=DayOff.NEXT)
    (found,) = recurrence(spec, off).occurrences(datetime(2027, 1, 1, tzinfo=UTC), limit=1)
    assert found.scheduled_at == datetime(2027, 3, 28, 1, tzinfo=UTC)  # 02:30 does not exist


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"cron": ("0 9 * * *",), "day_off": DayOff.NEXT}, "dayOff"),
        ({"cron": ("*/5 9 * * *",), "calendar": "de", "day_off": DayOff.NEXT}, "dayOff"),
        ({"cron": ("rate(1 day)",), "calendar": "de", "day_off": DayOff.PREVIOUS}, "dayOff"),
        ({"every_ms": 86_400_000, "calendar": "de", "day_off": DayOff.NEXT}, "dayOff"),
        ({"rrule": ("FREQ=HOURLY",), "calendar": "de", "day_off": DayOff.NEXT}, "dayOff"),
        ({"cron": ("0 9 * * SAT",), "calendar": "de"}, "calendar"),
    ],
)
def test_what_cannot_be_is_refused(spec: dict[str, Any], field: str) -> None:
    plain = Calendar(name="de")
    with pytest.raises(InvalidInput) as caught:
        recurrence(TimingSpec(**spec), plain)
    assert caught.value.field == field


def test_a_calendar_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidInput, match="there is no calendar 'de'"):
        recurrence(TimingSpec(cron=("@daily",), calendar="de"))


@pytest.mark.parametrize("day_off", DayOff)
def test_without_business_days_there_is_no_occurrence_and_no_endless_search(day_off: DayOff) -> None:
    none = Calendar(name="de", weekdays=frozenset())
    with pytest.raises(InvalidInput, match="at least one occurrence"):
        recurrence(TimingSpec(cron=("0 9 * * *",), calendar="de", day_off=day_off), none)


@pytest.mark.parametrize("day_off", DayOff)
def test_business_days_that_are_far_apart(day_off: DayOff) -> None:
    """The last has none after it, and what is too far from all of them is left out."""
    days = frozenset(date(year, 6, 1) for year in range(2000, 3000))
    far = recurrence(
        TimingSpec(cron=("0 9 15 * *", "0 8 1 6 *"), calendar="de", day_off=day_off),
        Calendar(name="de", weekdays=frozenset(), business_days=days),
    )
    found = [each.scheduled_at for each in far.occurrences(datetime(2990, 7, 1, tzinfo=UTC), limit=100)]
    per_year = 1 if day_off is DayOff.SKIP else 2
    assert len(found) == 9 * per_year
    assert {(each.month, each.day) for each in found} == {(6, 1)}
    assert far.previous_before(datetime(9000, 1, 1, tzinfo=UTC)) == found[-1]


def test_the_sentence_names_the_calendar() -> None:
    spec = TimingSpec(cron=("0 17 L * *",), calendar="de", day_off=DayOff.PREVIOUS)
    assert sentence(spec) == "At 17:00, on the last day of the month, UTC, moved to the previous business day of de"


dates = st.dates(date(2026, 11, 1), date(2027, 3, 1))
calendars = st.builds(
    Calendar,
    name=st.just("de"),
    weekdays=st.frozensets(st.sampled_from(WEEKDAYS)),
    days_off=st.frozensets(dates, max_size=80),
    business_days=st.frozensets(dates, max_size=5),
)
crons = st.lists(
    st.sampled_from(["0 9 * * *", "30 8,17 L * *", "0 9 1,15 * *", "15 12 * * SAT", "0 7 31 * *", "1 1 24-26 12 *"]),
    min_size=1,
    max_size=2,
    unique=True,
)


def by_hand(plain: list[datetime], calendar: Calendar, day_off: DayOff) -> list[datetime]:
    found = set()
    for at in plain:
        if calendar.has(at.date()):
            found.add(at)
        elif day_off is not DayOff.SKIP:
            step = DAY if day_off is DayOff.NEXT else -DAY
            moved = (at + number * step for number in range(1, MAX_MOVED_DAYS + 1))
            found |= set([each for each in moved if calendar.has(each.date())][:1])
    return sorted(found)


@settings(max_examples=200, deadline=None)
@given(calendar=calendars, cron=crons, day_off=st.sampled_from(DayOff))
def test_occurrences_are_those_of_a_search_by_hand(calendar: Calendar, cron: list[str], day_off: DayOff) -> None:
    begin, end = datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC)
    margin = (MAX_MOVED_DAYS + 1) * DAY
    plain = recurrence(TimingSpec(cron=tuple(cron))).occurrences(begin - margin, until=end + margin, limit=1000)
    wanted = by_hand([each.scheduled_at for each in plain], calendar, day_off)
    wanted = [each for each in wanted if begin < each <= end]
    try:
        moved = recurrence(TimingSpec(cron=tuple(cron), calendar="de", day_off=day_off, jitter_ms=60_000), calendar)
    except InvalidInput:
        assert not wanted
        return
    found: list[datetime] = []
    following = moved.next_after(begin)
    while following is not None and following <= end:
        found.append(following)
        following = moved.next_after(following)
    assert found == wanted
    due = [moved.due_at(each, "a") for each in found]
    assert all(one < other for one, other in pairwise(due))
    backwards, at = [], end + MILLISECOND
    while (before := moved.previous_before(at)) is not None and before > begin:
        backwards.append(before)
        at = before
    assert backwards[::-1] == wanted
