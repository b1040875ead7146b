"""``POST /v1/schedules/preview``: when a schedule would occur."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.recurrence import zones
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer

PATH = "/v1/schedules/preview"
BERLIN = {"timeZone": "Europe/Berlin"}


def preview(world: World, **body: Any) -> Answer:
    return world.api.call("POST", PATH, body)


def local_times(world: World, **body: Any) -> list[str]:
    answer = preview(world, **body)
    assert answer.status == 200, answer.text
    return [item["localTime"] for item in answer.json()["items"]]


def test_a_preview_has_the_next_times_from_now_on_and_a_sentence(world: World) -> None:
    assert NOW.isoformat() == "2026-12-20T15:30:00+00:00"
    answer = preview(world, cron="30 9 * * 1-5", count=2, **BERLIN)

    assert (answer.status, answer.json()) == (
        200,
        {
            "description": "At 09:30, Monday to Friday, Europe/Berlin",
            "timeZone": "Europe/Berlin",
            "tzdataVersion": zones.VERSION,
            "items": [
                {
                    "scheduledAt": "2026-12-21T08:30:00.000Z",
                    "localTime": "2026-12-21T09:30:00.000+01:00",
                    "dueAt": "2026-12-21T08:30:00.000Z",
                },
                {
                    "scheduledAt": "2026-12-22T08:30:00.000Z",
                    "localTime": "2026-12-22T09:30:00.000+01:00",
                    "dueAt": "2026-12-22T08:30:00.000Z",
                },
            ],
            "clockChanges": [],
        },
    )


def test_from_is_the_first_time_that_may_be_shown(world: World) -> None:
    hours = local_times(world, every="1h", count=2, **{"from": "2027-01-01T00:00:00Z"})

    assert hours == ["2027-01-01T00:00:00.000+00:00", "2027-01-01T01:00:00.000+00:00"]


def test_ten_times_are_shown_unless_another_number_is_asked_for(world: World) -> None:
    assert len(local_times(world, cron="* * * * *")) == 10
    assert len(local_times(world, cron="* * * * *", count=100)) == 100


def test_fewer_are_shown_when_the_schedule_ends(world: World) -> None:
    assert len(local_times(world, cron="@daily", endAt="2026-12-23T00:00:00Z")) == 3
    assert local_times(world, cron="@daily", **{"from": "9999-12-31T23:59:59Z"}) == []


def test_the_changes_of_clocks_that_affect_an_occurrence_are_told(world: World) -> None:
    answer = preview(world, cron="30 2 * * *", dst="skip", **BERLIN)

    assert answer.json()["clockChanges"] == [
        {"effect": "leftOut", "setFrom": "2027-03-28T02:00:00.000+01:00", "setTo": "2027-03-28T03:00:00.000+02:00"}
    ]


@pytest.mark.parametrize(
    ("dst", "expected"),
    [
        ("once", ["2026-03-28T02:30:00.000+01:00", "2026-03-29T03:00:00.000+02:00"]),
        ("SKIP", ["2026-03-28T02:30:00.000+01:00", "2026-03-30T02:30:00.000+02:00"]),
    ],
)
def test_local_times_have_the_offset_of_their_day(world: World, dst: str, expected: list[str]) -> None:
    given = {"from": "2026-03-28T00:00:00Z", "dst": dst, **BERLIN}

    assert local_times(world, cron="30 2 * * *", count=2, **given) == expected


def test_several_sources_join_and_exclusions_leave_out(world: World) -> None:
    days = local_times(
        world,
        cron=["0 0 * * 1", "0 0 * * 2"],
        rrule="FREQ=WEEKLY;BYDAY=FR",
        exclude=["2026-12-25"],
        count=5,
    )

    assert [day[:10] for day in days] == ["2026-12-21", "2026-12-22", "2026-12-28", "2026-12-29", "2027-01-01"]


def test_a_delay_depends_on_the_id_and_leaves_the_scheduled_time(world: World) -> None:
    def shown(schedule_id: str) -> tuple[str, str]:
        (item,) = preview(world, cron="@hourly", window="30m", count=1, id=schedule_id).json()["items"]
        return item["scheduledAt"], item["dueAt"]

    assert shown("a") == shown("a")
    assert shown("a")[0] == shown("b")[0] == "2026-12-20T16:00:00.000Z"
    assert shown("a")[1] != shown("b")[1]


@pytest.mark.parametrize(
    ("body", "field", "reason"),
    [
        ({}, "cron", "must be given, or every, or rrule"),
        ({"cron": []}, "cron", "must be given, or every, or rrule"),
        ({"cron": "0 0 31 2 *"}, "cron", "day-of-month: no month of the expression has such a day"),
        ({"cron": ["@daily", "nonsense"]}, "cron[1]", "must have 5 fields"),
        ({"cron": 5}, "cron", "must be a string or an array of strings"),
        ({"cron": ["@daily", 5]}, "cron", "must be a string or an array of strings"),
        ({"rrule": "FREQ=NEVER"}, "rrule", "FREQ must be one of"),
        ({"every": "10ms"}, "every", "must lie between 1s and 100 years"),
        ({"every": "1.0005s"}, "every", "whole number of milliseconds"),
        ({"every": "1s", "window": "25h"}, "window", "must lie between 0 and 24h"),
        ({"every": "1s", "timeZone": "Berlin/Europe"}, "timeZone", "IANA time zone database"),
        ({"every": "1s", "dst": "sometimes"}, "dst", "must be"),
        ({"every": "1s", "exclude": "2026-12-25"}, "exclude", "must be an array of strings"),
        ({"every": "1s", "exclude": ["2026-02-30"]}, "exclude[0]", "there is no day 2026-02-30"),
        ({"every": "1s", "count": 101}, "count", "100"),
        ({"every": "1s", "count": 0}, "count", "1"),
        ({"every": "1s", "from": "2026-12-20T15:30:00"}, "from", "with an offset"),
        ({"every": "1s", "id": ""}, "id", "1 to 230 characters"),
        ({"every": "1s", "interval": "1s"}, "interval", "is not a known field"),
        ({"rrule": "FREQ=DAILY", "anchor": "9999-12-31T23:59:59Z"}, "anchor", "must not be after"),
    ],
)
def test_what_is_no_schedule_is_refused_by_field(world: World, body: dict[str, Any], field: str, reason: str) -> None:
    answer = preview(world, **body)

    assert answer.status == 400
    ((named, message),) = ((error["field"], error["message"]) for error in answer.json()["errors"])
    assert named == field
    assert reason in message
