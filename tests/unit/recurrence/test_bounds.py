"""The work of a request is bounded: counted in calls of functions, which are the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from duetime.domain.errors import InvalidInput
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import Dst, TimingSpec

START = datetime(2026, 1, 1, tzinfo=UTC)
MOST_CALLS = 3_000_000
"""About a second: a function that is called takes 0.1 to 0.3 microseconds."""
MOST_LISTED = 100
BERLIN = "Europe/Berlin"
LEAP_SATURDAYS = tuple(f"{minute} {hour} 29 2 */6" for hour in range(2) for minute in range(5))
"""Both must match, as one begins with a star: each 6, 11, or 40 years."""
NEAR_DAYS = ",".join(f"{day}W" for day in range(1, 32))


class _TooMuch(BaseException):
    """Not an ``Exception``: the work must end."""


@pytest.fixture
def counted() -> Iterator[list[int]]:
    calls = [0]

    def count(frame: Any, event: str, argument: Any) -> None:
        calls[0] += 1
        if calls[0] > MOST_CALLS:
            raise _TooMuch

    before = sys.getprofile()
    recurrence.cache_clear()
    sys.setprofile(count)
    yield calls
    sys.setprofile(before)


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(
            {"cron": tuple(f"{n} * * * *" for n in range(10)), "exclude": ("0-8 * * * *", "9 0-22 * * *")},
            "exclude",
            id="each day has one minute",
        ),
        pytest.param(
            {"cron": ("* * * * *",) * 10, "exclude": tuple(f"{n}-59/7 * * * *" for n in range(7))},
            "exclude",
            id="each minute is excluded by an expression of its own",
        ),
        pytest.param(
            {"cron": ("* * * * *",) * 10, "exclude": ("*/2 * * * *", "1-59/2 0-22 * * *")},
            "exclude",
            id="a night has a few minutes",
        ),
        pytest.param(
            {"every_ms": 1000, "exclude": tuple(f"{n}-59/20 * * * * *" for n in range(19))},
            None,
            id="one second in twenty",
        ),
        pytest.param({"cron": LEAP_SATURDAYS, "time_zone": BERLIN}, "count", id="rare days"),
        pytest.param(
            {"cron": LEAP_SATURDAYS, "exclude": ("* * 29 2 *",)}, "exclude", id="rare days that are excluded"
        ),
        pytest.param(
            {"rrule": tuple(f"FREQ=DAILY;BYMONTH=2;BYMONTHDAY=29;BYDAY=SA;BYHOUR={n}" for n in range(3))},
            "count",
            id="rules of rare days",
        ),
        pytest.param(
            {"rrule": ("FREQ=HOURLY;BYMONTH=2;BYMONTHDAY=30;BYMINUTE=1",)},
            "rrule",
            id="a rule of no day, by the hour",
        ),
        pytest.param(
            {
                "rrule": tuple(f"FREQ=YEARLY;BYMONTHDAY=-1,{days};BYSECOND={n}" for n, days in enumerate("123")),
                "exclude": ("* * * * *",),
            },
            "exclude",
            id="rules of which all is excluded",
        ),
        pytest.param({"cron": (f"0 0 {NEAR_DAYS} * */6",) * 10}, "cron[0]", id="weekdays that are no weekdays"),
        pytest.param(
            {"cron": ("30 2 * 3 0L",) * 10, "time_zone": BERLIN, "dst": Dst.SKIP, "start_at": START},
            "dst",
            id="gaps alone",
        ),
    ],
)
def test_a_search_ends_soon_or_is_refused_by_field(
    counted: list[int], spec: dict[str, Any], field: str | None
) -> None:
    refused = None
    try:
        found = recurrence(TimingSpec(**spec)).occurrences(START, limit=MOST_LISTED)
    except InvalidInput as error:
        refused = error.field
    else:
        assert len(found) == MOST_LISTED

    assert refused == field
    assert counted[0] <= MOST_CALLS
