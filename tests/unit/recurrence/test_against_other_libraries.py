"""The same expressions by other libraries: where they differ, docs/decisions says what holds here and why.

croniter is told what we mean where it can be: both days must match where one begins with a star. dateutil knows
rules, so an expression is put into its words. Both compute local times here: clock changes are ours, and zones are
compared where clocks are not changed (the rest: test_transitions.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from random import Random
from typing import Any

import pytest
from croniter import croniter
from dateutil.rrule import DAILY, rrule

from duetime.recurrence import zones
from duetime.recurrence.cron_calendar import CronCalendar
from duetime.recurrence.local_time import change_at
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import TimingSpec

START = datetime(2026, 1, 1)
NAMES = sorted(zones.names())
COMPARED = pytest.mark.parametrize("number", [100, pytest.param(10_000, marks=pytest.mark.slow)])


def part(random: Random, low: int, high: int, *, stars: int) -> str:
    """One field: a star, a value, a list, a range, or one of these with a step."""
    kind = random.randrange(stars + 5)
    first, second = sorted(random.sample(range(low, high + 1), 2))
    step = random.randint(1, max(1, (high - low) // 2))
    plain = ["*"] * stars + [
        str(first),
        ",".join(map(str, sorted(random.sample(range(low, high + 1), 3)))),
        f"{first}-{second}",
        f"{first}-{second}/{step}",
        f"*/{step}",
    ]
    return plain[kind]


def expressions(number: int) -> Iterator[tuple[str, str]]:
    """Expressions and zones, the same in each run."""
    random = Random(20261129)
    for _ in range(number):
        days, weekdays = part(random, 1, 28, stars=6), part(random, 0, 6, stars=6)
        if random.randrange(12) == 0:
            days = "L"
        fields = [part(random, 0, 59, stars=1), part(random, 0, 23, stars=1), days, part(random, 1, 12, stars=6)]
        yield " ".join([*fields, weekdays]), random.choice(NAMES)


def ours(cron: str, count: int) -> list[datetime]:
    calendar, at, found = CronCalendar(cron, "cron"), START, []
    for _ in range(count):
        following = calendar.first_from(at)
        assert following is not None
        found.append(following)
        at = following + timedelta(seconds=1)
    return found


@COMPARED
def test_croniter_has_the_same_local_times(number: int) -> None:
    for cron, _ in expressions(number):
        other = croniter(cron, START - timedelta(seconds=1), ret_type=datetime, implement_cron_bug=True)

        assert ours(cron, 5) == [other.get_next() for _ in range(5)], cron


@COMPARED
def test_dateutil_has_the_same_local_times(number: int) -> None:
    for cron, _ in expressions(number):
        _, _, days, _, weekdays = cron.split()
        template = CronCalendar(cron, "cron")._template
        either = not (days.startswith("*") or weekdays.startswith("*"))
        parts: dict[str, Any] = {
            "byminute": sorted(template.minutes),
            "byhour": sorted(template.hours),
            "bysecond": 0,
            "bymonth": sorted(template.months),
        }
        by_days: dict[str, Any] = {"bymonthday": [-1] if days == "L" else sorted(template.days)}
        numbers = sorted({(day - 1) % 7 for day in template.weekdays if isinstance(day, int)})
        by_weekdays: dict[str, Any] = {"byweekday": numbers}
        rules = [by_days, by_weekdays] if either else [by_days | by_weekdays]
        found = sorted({each for rule in rules for each in islice(rrule(DAILY, dtstart=START, **parts, **rule), 5)})

        assert ours(cron, 5) == found[:5], cron


@COMPARED
def test_croniter_has_the_same_instants_where_clocks_are_not_changed(number: int) -> None:
    compared = 0
    for cron, name in expressions(number):
        zone = zones.zone(name)
        at = START.replace(tzinfo=zone).astimezone(UTC) - timedelta(seconds=1)
        times = recurrence(TimingSpec(cron=(cron,), time_zone=name))
        found = [each.scheduled_at for each in times.occurrences(at, limit=3)]
        local = [each.astimezone(zone) for each in found]
        if {each.utcoffset() for each in local} != {at.astimezone(zone).utcoffset()}:
            continue
        if any(change_at(zone, each.replace(tzinfo=None)) for each in local):
            continue
        other = croniter(cron, at.astimezone(zone), ret_type=datetime, implement_cron_bug=True)

        assert found == [other.get_next() for _ in range(3)], (cron, name)
        compared += 1
    assert compared > number / 2
