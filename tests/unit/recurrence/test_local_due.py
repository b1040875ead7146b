"""The instant of a local time: by what the clocks of its zone show."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duetime.domain.errors import InvalidInput
from duetime.recurrence import zones
from duetime.recurrence.local_due import LocalDue, due_at, local_due_json, read_local_due
from duetime.recurrence.local_time import ClockChange, clock_changes
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import Dst, TimingSpec

SECOND, HOUR, DAY = timedelta(seconds=1), timedelta(hours=1), timedelta(days=1)
FROM, TO = datetime(2020, 1, 1), datetime(2036, 1, 1)  # local times
ZONES = st.sampled_from(sorted(zones.names()))
LOCAL_TIMES = st.datetimes(FROM, TO).map(lambda at: at.replace(microsecond=0))
UNUSUAL = [
    ("America/Havana", 2024),  # at midnight
    ("Antarctica/Troll", 2024),  # two hours
    ("Australia/Lord_Howe", 2024),  # half an hour
    ("Europe/Berlin", 2024),
    ("Pacific/Apia", 2011),  # a day that was left out
]


def shown(at: datetime, zone: str) -> datetime:
    return at.astimezone(zones.zone(zone)).replace(tzinfo=None)


def check(zone: str, local: datetime) -> None:
    """It is the first instant at which the clock shows the time, or a later one that follows a gap."""
    due = LocalDue(local, zone)
    at = due_at(due)
    if shown(at, zone) == local:
        assert due_at(due, Dst.SKIP) == at
        assert shown(at - SECOND, zone) < local
        assert all(shown(at - n * HOUR / 2, zone) != local for n in range(1, 49))
    else:
        assert shown(at - SECOND, zone) < local < shown(at, zone)
        with pytest.raises(InvalidInput, match=f"does not exist in {zone}: clocks go from "):
            due_at(due, Dst.SKIP)


@given(ZONES, LOCAL_TIMES)
def test_any_local_time_of_any_zone(zone: str, local: datetime) -> None:
    check(zone, local)
    assert read_local_due(local_due_json(LocalDue(local, zone))) == LocalDue(local, zone)


@pytest.mark.parametrize(("zone", "year"), UNUSUAL)
def test_local_times_around_a_change(zone: str, year: int) -> None:
    start, end = (datetime(each, 1, 1, tzinfo=UTC) for each in (year, year + 1))
    found = list(clock_changes(zones.zone(zone), start, end))
    assert len(found) >= 2
    for change in found:
        middle = change.start + (change.end - change.start) / 2
        for local in (change.start - SECOND, change.start, middle, change.end - SECOND, change.end):
            check(zone, local)
            check_schedule(zone, local, change)


def check_schedule(zone: str, local: datetime, change: ClockChange) -> None:
    """A schedule for that time of that day says the same: it is one policy."""
    cron = f"{local.second} {local.minute} {local.hour} {local.day} {local.month} *"
    for dst in (Dst.ONCE, Dst.SKIP):
        occurs = recurrence(TimingSpec(cron=(cron,), time_zone=zone, dst=dst)).next_after(change.at - 3 * DAY)
        try:
            assert due_at(LocalDue(local, zone), dst) == occurs
        except InvalidInput:
            assert occurs is None or occurs > change.at + 300 * DAY


@pytest.mark.parametrize(
    ("local", "zone", "field"),
    [
        (datetime(1970, 1, 1), "Europe/Berlin", "localTime"),
        (datetime(9999, 12, 31, 23), "America/New_York", "localTime"),
        (datetime(2027, 1, 1), "Europe/Berlim", "timeZone"),
    ],
)
def test_what_has_no_instant_is_refused(local: datetime, zone: str, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        due_at(LocalDue(local, zone))
    assert refused.value.field == field


def test_the_first_and_the_last_instant_are_taken() -> None:
    assert due_at(LocalDue(datetime(1970, 1, 1, 1), "Europe/Berlin")) == datetime(1970, 1, 1, tzinfo=UTC)
    last = datetime(9999, 12, 31, 23, 59, 59)
    assert due_at(LocalDue(last, "UTC")) == last.replace(tzinfo=UTC)


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"local_time":"x","time_zone":"UTC"}', '{"local_time":1}'])
def test_what_is_damaged_is_none(text: str) -> None:
    assert read_local_due(text) is None
