"""What cron expressions mean, and what is refused."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product

import pytest

from duetime.domain.errors import InvalidInput
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import TimingSpec

START = datetime(2026, 1, 1, tzinfo=UTC)


def times(cron: str, count: int = 3, *, start: datetime = START) -> list[str]:
    found = recurrence(TimingSpec(cron=(cron,))).occurrences(start, limit=count)
    return [f"{each.scheduled_at:%Y-%m-%d %H:%M:%S}".removesuffix(":00") for each in found]


@pytest.mark.parametrize(
    ("cron", "expected"),
    [
        ("0 9 * * 1-5", ["2026-01-01 09:00", "2026-01-02 09:00", "2026-01-05 09:00"]),
        ("  0\t9  *  * mon-Fri ", ["2026-01-01 09:00", "2026-01-02 09:00", "2026-01-05 09:00"]),
        ("0 0 * * 7", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("0 0 * * 0", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("0 0 * * SAT-SUN", ["2026-01-03 00:00", "2026-01-04 00:00", "2026-01-10 00:00"]),
        ("*/20 */12 1 1 *", ["2026-01-01 00:20", "2026-01-01 00:40", "2026-01-01 12:00"]),
        ("5/25 0 * * *", ["2026-01-01 00:05", "2026-01-01 00:30", "2026-01-01 00:55"]),
        ("30 0 0 * * *", ["2026-01-01 00:00:30", "2026-01-02 00:00:30", "2026-01-03 00:00:30"]),
        ("0 0 31 * *", ["2026-01-31 00:00", "2026-03-31 00:00", "2026-05-31 00:00"]),
        ("0 0 29 2 *", ["2028-02-29 00:00", "2032-02-29 00:00", "2036-02-29 00:00"]),
        ("0 0 L * *", ["2026-01-31 00:00", "2026-02-28 00:00", "2026-03-31 00:00"]),
        ("0 0 LW * *", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-31 00:00"]),
        # 15 February is a Sunday; 1 August, a Saturday, stays in its month; 31 May, a Sunday, too.
        ("0 0 15W * *", ["2026-01-15 00:00", "2026-02-16 00:00", "2026-03-16 00:00"]),
        ("0 0 1W 8 *", ["2026-08-03 00:00", "2027-08-02 00:00", "2028-08-01 00:00"]),
        ("0 0 31W * *", ["2026-01-30 00:00", "2026-03-31 00:00", "2026-05-29 00:00"]),
        ("0 0 1W,10 1 *", ["2026-01-10 00:00", "2027-01-01 00:00", "2027-01-10 00:00"]),
        ("0 0 * * 5L", ["2026-01-30 00:00", "2026-02-27 00:00", "2026-03-27 00:00"]),
        ("0 0 * * MON#2", ["2026-01-12 00:00", "2026-02-09 00:00", "2026-03-09 00:00"]),
        ("0 0 * 2 MON#5", ["2044-02-29 00:00", "2072-02-29 00:00", "2112-02-29 00:00"]),
        # Both days restricted: either; a field that begins with a star: both, as in Debian's cron.
        ("0 0 13 * 5", ["2026-01-02 00:00", "2026-01-09 00:00", "2026-01-13 00:00"]),
        ("0 0 */2 * 5", ["2026-01-09 00:00", "2026-01-23 00:00", "2026-02-13 00:00"]),
        ("@DAILY", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("@weekly", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("@hourly", ["2026-01-01 01:00", "2026-01-01 02:00", "2026-01-01 03:00"]),
        ("cron(0 10 ? * MON#2 2025-2026)", ["2026-01-12 10:00", "2026-02-09 10:00", "2026-03-09 10:00"]),
        ("cron(0 10 ? * 2-6 *)", ["2026-01-01 10:00", "2026-01-02 10:00", "2026-01-05 10:00"]),
        ("cron(0 10 ? * FRI-MON *)", ["2026-01-02 10:00", "2026-01-03 10:00", "2026-01-04 10:00"]),
        ("cron(0 10 ? * L *)", ["2026-01-03 10:00", "2026-01-10 10:00", "2026-01-17 10:00"]),
        ("cron(0 10 ? * 6L *)", ["2026-01-30 10:00", "2026-02-27 10:00", "2026-03-27 10:00"]),
        ("cron(0/20 0 1 JAN ? 2027/2)", ["2027-01-01 00:00", "2027-01-01 00:20", "2027-01-01 00:40"]),
        ("CRON( 0 10 3W * ? 2026 )", ["2026-01-02 10:00", "2026-02-03 10:00", "2026-03-03 10:00"]),
        ("rate(1 day)", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("rate(1 days)", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("rate(2 day)", ["2026-01-03 00:00", "2026-01-05 00:00", "2026-01-07 00:00"]),
        ("rate(90 minutes)", ["2026-01-01 01:30", "2026-01-01 03:00", "2026-01-01 04:30"]),
    ],
)
def test_an_expression_has_these_times(cron: str, expected: list[str]) -> None:
    assert times(cron) == expected


@pytest.mark.parametrize(
    ("start", "cron", "expected"),
    [
        # Steps begin anew with each month: the 31st and the 1st are a day apart.
        ("2026-01-28", "0 0 */2 * *", ["2026-01-29 00:00", "2026-01-31 00:00", "2026-02-01 00:00"]),
        ("2028-02-28", "0 0 */4 * *", ["2028-02-29 00:00", "2028-03-01 00:00", "2028-03-05 00:00"]),
        ("2026-01-01", "0 0 */31 2,3 *", ["2026-02-01 00:00", "2026-03-01 00:00", "2027-02-01 00:00"]),
        ("2026-01-31", "0 0 29-31 * *", ["2026-03-29 00:00", "2026-03-30 00:00", "2026-03-31 00:00"]),
        # 2000 was a leap year; 2100 and 2200 are none.
        ("2096-02-01", "0 0 29 2 *", ["2096-02-29 00:00", "2104-02-29 00:00", "2108-02-29 00:00"]),
        ("1999-01-01", "0 0 29 2 *", ["2000-02-29 00:00", "2004-02-29 00:00", "2008-02-29 00:00"]),
        ("2099-01-01", "0 0 L 2 *", ["2099-02-28 00:00", "2100-02-28 00:00", "2101-02-28 00:00"]),
        ("2096-01-01", "cron(0 0 29 FEB ? 2096-2110)", ["2096-02-29 00:00", "2104-02-29 00:00", "2108-02-29 00:00"]),
        # Sunday as 7, in every place that a weekday can have.
        ("2026-01-01", "0 0 * * 5-7", ["2026-01-02 00:00", "2026-01-03 00:00", "2026-01-04 00:00"]),
        ("2026-01-02", "0 0 * * 7,1", ["2026-01-04 00:00", "2026-01-05 00:00", "2026-01-11 00:00"]),
        ("2026-01-02", "0 0 * * 0-7/7", ["2026-01-04 00:00", "2026-01-11 00:00", "2026-01-18 00:00"]),
        ("2026-01-02", "0 0 * * 7L", ["2026-01-25 00:00", "2026-02-22 00:00", "2026-03-29 00:00"]),
        ("2026-01-02", "0 0 * * 7#1", ["2026-01-04 00:00", "2026-02-01 00:00", "2026-03-01 00:00"]),
        ("2026-01-02", "0 0 * * fri-sun/2", ["2026-01-04 00:00", "2026-01-09 00:00", "2026-01-11 00:00"]),
        ("2026-01-02", "cron(0 0 ? * 7-1 *)", ["2026-01-03 00:00", "2026-01-04 00:00", "2026-01-10 00:00"]),
        # The last year that there is.
        ("9998-12-30", "0 0 29,31 12 *", ["9998-12-31 00:00", "9999-12-29 00:00"]),
        ("9999-12-28", "* * * * *", ["9999-12-28 00:01", "9999-12-28 00:02", "9999-12-28 00:03"]),
    ],
)
def test_what_months_leap_years_and_weekdays_have_of_their_own(start: str, cron: str, expected: list[str]) -> None:
    assert times(cron, start=datetime.fromisoformat(start).replace(tzinfo=UTC)) == expected


def test_old_names_of_zones_lead_to_the_new_ones_and_removed_ones_are_refused() -> None:
    def first(zone: str) -> datetime | None:
        return recurrence(TimingSpec(cron=("0 9 * * *",), time_zone=zone)).next_after(START)

    for old, new in (("US/Eastern", "America/New_York"), ("Asia/Calcutta", "Asia/Kolkata"), ("Zulu", "UTC")):
        assert first(old) == first(new)
    for removed in ("US/Pacific-New", "Factory", "localtime", "America/new_york", "Europe/Berlin "):
        with pytest.raises(InvalidInput) as refused:
            first(removed)
        assert refused.value.field == "timeZone"


@pytest.mark.parametrize("days", [1, pytest.param(14, marks=pytest.mark.slow)])
def test_tens_of_thousands_of_expressions_are_told_from_each_other(days: int) -> None:
    """More than are kept read (4,096): the whole is slow."""
    for minute, hour, day in product(range(60), range(24 if days > 1 else 5), range(1, 1 + days)):
        found = recurrence(TimingSpec(cron=(f"{minute} {hour} {day} * *",), start_at=START)).next_after(START)

        assert found == datetime(2026, 1 if (day, hour, minute) > (1, 0, 0) else 2, day, hour, minute, tzinfo=UTC)


@pytest.mark.parametrize(
    ("cron", "reason"),
    [
        ("", "5 fields"),
        ("31 2", "5 fields"),
        ("* * * * * * *", "it has 7"),
        ("60 * * * *", "minute: '60' is not 0 to 59"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day-of-month: '0'"),
        ("* * * 13 *", "month: '13' is not 1 to 12 or JAN to DEC"),
        ("* * * * 8", "day-of-week: '8'"),
        ("* * * * MONDAY", "day-of-week: 'MONDAY'"),
        ("60 * * * * *", "second: '60'"),
        ("*/0 * * * *", "minute: a step must be 1 or more"),
        ("*/90 * * * *", "minute: a step of 90"),
        ("-5 * * * *", "minute: '-5' is negative"),
        ("1.5 * * * *", "minute: '1.5' cannot be read"),
        ("1, * * * *", "minute: there is nothing before or after a comma"),
        ("1-2-3 * * * *", "minute: '1-2-3' cannot be read"),
        ("٣ * * * *", "minute: '٣' cannot be read"),
        ("0 22-2 * * *", "write 22-23,0-2"),
        ("* * ? * *", "day-of-month: ? belongs in EventBridge's"),
        ("0 0 * * 5#6", "day-of-week: '6' after #"),
        ("0 0 32W * *", "day-of-month: '32'"),
        ("0 0 31 2 *", "day-of-month: no month of the expression has such a day"),
        ("0 0 30 2 *", "day-of-month: no month"),
        ("0 0 31 2,4,6,9,11 *", "day-of-month: no month"),
        ("0 0 30W 2 *", "day-of-month: no month"),
        ("0 0 */20 * 1L", "day-of-month: no day matches it"),
        ("@dayly", "must be one of @yearly"),
        ("@reboot", "is no time"),
        ("@every 5m", "use every"),
        ("CRON_TZ=UTC 0 9 * * *", "that is timeZone"),
        ("at(2026-01-01T00:00:00)", "is a timer"),
        ("cron(0 10 * * *)", "6 fields in cron"),
        ("cron(0 10 * * * *)", "must have ? in one"),
        ("cron(0 10 ? * ? *)", "must have ? in one"),
        ("cron(0 10 ? * 0 *)", "day-of-week: '0' is not 1 to 7"),
        ("cron(0 10 1 * ? 1969)", "year: '1969' is not 1970 to 2199"),
        ("cron(0 0 29 2 ? 2027)", "year: the expression matches no day"),
        ("rate(5)", "must be like rate(5 minutes)"),
        ("rate(0 minutes)", "1 or more"),
        ("rate(5 weeks)", "must be like rate(5 minutes)"),
        ("1" * 1001, "1000 characters"),
        ("0 9 * * 1" + "1" * 900, "day-of-week"),
    ],
)
def test_what_can_never_happen_or_is_nonsense_is_refused_with_the_reason(cron: str, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        recurrence(TimingSpec(cron=(cron,)))

    assert refused.value.field == "cron"
    assert reason in refused.value.message


def test_one_of_several_is_named_by_its_place() -> None:
    with pytest.raises(InvalidInput) as refused:
        recurrence(TimingSpec(cron=("@daily", "61 * * * *")))

    assert refused.value.field == "cron[1]"


def test_there_is_nothing_after_the_last_year() -> None:
    end = datetime(9999, 12, 31, 23, 59, tzinfo=UTC)

    assert recurrence(TimingSpec(cron=("* * * * *",))).next_after(end) is None
    assert recurrence(TimingSpec(cron=("* * * * *",), time_zone="Asia/Tokyo")).next_after(end) is None
    assert recurrence(TimingSpec(every_ms=1000)).next_after(datetime(9999, 12, 31, 23, 59, 59, 999000, UTC)) is None
