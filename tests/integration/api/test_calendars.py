"""``/v1/calendars``: calendars are put, read, listed and removed, and schedules occur by them."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain.calendars import MAX_DATES
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer

SCHEDULES = "/v1/namespaces/default/schedules"
CALLBACK = {"callbackUrl": "http://receiver.test/callback"}
CHRISTMAS = ["2026-12-24", "2026-12-25", "2026-12-28", "2026-12-31"]


def put(world: World, name: str = "de", **body: Any) -> Answer:
    return world.api.call("PUT", f"/v1/calendars/{name}", body)


def schedule(world: World, **body: Any) -> Answer:
    given = {"id": "s1", "cron": "0 17 L * *", "calendar": "de", "dayOff": "previous"} | CALLBACK | body
    return world.api.call("POST", SCHEDULES, given)


def coming(world: World) -> list[str]:
    return [
        each["scheduledAt"][:10] for each in world.api.call("GET", f"{SCHEDULES}/s1/occurrences").json()["coming"]
    ]


def test_a_calendar_is_put_read_listed_and_removed(world: World) -> None:
    made = put(world, daysOff=["2026-12-25", "2026-12-24"], businessDays=["2026-12-26"])
    assert (made.status, made.headers["etag"], made.headers["location"]) == (201, '"1"', "/v1/calendars/de")
    assert made.json() == {
        "name": "de",
        "revision": 1,
        "weekdays": ["MON", "TUE", "WED", "THU", "FRI"],
        "daysOff": ["2026-12-24", "2026-12-25"],
        "businessDays": ["2026-12-26"],
    }
    assert put(world, daysOff=["2026-12-24", "2026-12-25"], businessDays=["2026-12-26"]).json() == made.json()
    assert put(world, "at", weekdays=["sat"]).json()["weekdays"] == ["SAT"]
    assert put(world).json()["revision"] == 2
    assert world.api.call("GET", "/v1/calendars/de").json()["daysOff"] == []
    assert [each["name"] for each in world.api.call("GET", "/v1/calendars").json()["items"]] == ["at", "de"]
    assert world.api.call("DELETE", "/v1/calendars/de").status == 204
    assert world.api.call("GET", "/v1/calendars/de").json()["code"] == "calendar_not_found"
    assert world.api.call("DELETE", "/v1/calendars/de").status == 404
    assert [each["name"] for each in world.api.call("GET", "/v1/namespaces").json()["items"]] == ["default"]


def test_the_days_of_an_icalendar_file_are_off_too(world: World) -> None:
    event = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nSUMMARY:A\r\nDTSTART;VALUE=DATE:20261226\r\n{}END:VEVENT\r\n"
    assert put(world, daysOff=["2026-12-25"], ics=event.format("")).json()["daysOff"] == ["2026-12-25", "2026-12-26"]
    for ics in ("", "name,day\n", 7, event.format("RRULE:FREQ=YEARLY\r\n")):
        assert list(put(world, ics=ics).faults) == ["ics"]
    assert world.api.call("GET", "/v1/calendars/de").json()["revision"] == 1


def test_preconditions(world: World) -> None:
    conditional = {"if-match": '"1"'}
    assert world.api.call("PUT", "/v1/calendars/de", {}, headers=conditional).status == 412
    put(world)
    assert world.api.call("PUT", "/v1/calendars/de", {"weekdays": ["MON"]}, headers=conditional).status == 200
    assert world.api.call("PUT", "/v1/calendars/de", {}, headers=conditional).status == 412
    assert world.api.call("DELETE", "/v1/calendars/de", headers=conditional).status == 412
    assert world.api.call("DELETE", "/v1/calendars/DE", headers=conditional).status == 404
    assert world.api.call("GET", "/v1/calendars/de", headers={"if-none-match": '"2"'}).status == 304


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"daysOff": ["2026-02-30"]}, "daysOff"),
        ({"daysOff": "2026-12-25"}, "daysOff"),
        ({"daysOff": ["25.12.2026"]}, "daysOff"),
        ({"weekdays": []}, "weekdays"),
        ({"weekdays": ["Montag"]}, "weekdays[0]"),
        ({"daysOff": ["2026-12-25"], "businessDays": ["2026-12-25"]}, "businessDays"),
        ({"daysOff": [f"{year:04}-01-01" for year in range(2000, 2001 + MAX_DATES)]}, "daysOff"),
        ({"days": []}, "days"),
    ],
)
def test_nonsense_is_refused(world: World, body: dict[str, Any], field: str) -> None:
    answer = put(world, **body)
    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, field)
    assert world.api.call("GET", "/v1/calendars").json()["items"] == []


def test_a_name_is_checked(world: World) -> None:
    assert put(world, "De").json()["errors"][0]["field"] == "calendar"


def test_the_last_business_day_of_the_month(world: World) -> None:
    put(world, daysOff=CHRISTMAS)
    made = schedule(world)
    assert made.status == 201, made.text
    body = made.json()
    assert (body["calendar"], body["dayOff"]) == ("de", "previous")
    assert body["nextScheduledAt"] == "2026-12-30T17:00:00.000Z"
    assert body["description"].endswith("moved to the previous business day of de")
    assert coming(world)[:3] == ["2026-12-30", "2027-01-29", "2027-02-26"]


def test_a_preview_knows_the_calendars(world: World) -> None:
    put(world, daysOff=CHRISTMAS)
    body = {"cron": "0 9 * * *", "calendar": "de", "count": 5}
    items = world.api.call("POST", "/v1/schedules/preview", body).json()["items"]
    assert [each["scheduledAt"][8:10] for each in items] == ["21", "22", "23", "29", "30"]


@pytest.mark.parametrize("path", [SCHEDULES, "/v1/schedules/preview"])
def test_a_calendar_that_does_not_exist_is_refused(world: World, path: str) -> None:
    body = {"cron": "0 9 * * *", "calendar": "de"} | (CALLBACK if path == SCHEDULES else {})
    answer = world.api.call("POST", path, body)
    assert (answer.status, answer.json()["errors"]) == (
        400,
        [{"field": "calendar", "message": "there is no calendar 'de'"}],
    )


def test_what_is_pending_follows_a_changed_calendar_when_it_is_computed_again(world: World) -> None:
    put(world)
    assert schedule(world).json()["nextScheduledAt"] == "2026-12-31T17:00:00.000Z"
    put(world, daysOff=["2026-12-31"])
    answer = world.api.call("POST", f"{SCHEDULES}/recompute", {})
    assert answer.json()["affected"] == 1
    found = world.api.call("GET", f"{SCHEDULES}/s1").json()
    assert found["nextScheduledAt"] == "2026-12-30T17:00:00.000Z"


def test_without_its_calendar_a_schedule_has_nothing_to_come_and_can_be_changed(world: World) -> None:
    put(world)
    schedule(world)
    world.api.call("DELETE", "/v1/calendars/de")
    assert coming(world) == []
    assert world.api.call("POST", f"{SCHEDULES}/recompute", {}).json()["affected"] == 0
    backfill = world.api.call("POST", f"{SCHEDULES}/s1/backfill", {"from": "2026-01-01T00:00:00Z"})
    assert (backfill.status, backfill.json()["code"]) == (409, "calendar_missing")
    found = world.api.call("GET", SCHEDULES, query={"calendar": "de"}).json()["items"]
    assert [each["id"] for each in found] == ["s1"]
    assert world.api.call("GET", SCHEDULES, query={"calendar": "A/B"}).status == 400
    assert world.api.call("GET", SCHEDULES, query={"calendar": "at"}).json()["items"] == []
    changed = world.api.call("PATCH", f"{SCHEDULES}/s1", {"calendar": None, "dayOff": None})
    assert (changed.status, changed.json()["calendar"]) == (200, None)
    assert len(coming(world)) == 10


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"every": "59s"}, "every"),
        ({"cron": "*/30 * * * * *"}, "cron"),
        ({"cron": ["0 9 * * *", "0 0 9 31 12 *"], "every": "59s"}, "every"),
        ({"cron": ["0 9 * * *", "30 0 9 24 12 *"]}, "cron"),
        ({"rrule": "FREQ=DAILY;BYHOUR=9;BYMINUTE=0;BYSECOND=0,30"}, "rrule"),
    ],
)
def test_a_schedule_that_occurs_too_often_is_refused(world: World, times: dict[str, Any], field: str) -> None:
    world.api.call("PUT", "/v1/namespaces/default", {"minScheduleInterval": "60s"})
    answer = world.api.call("POST", SCHEDULES, {"id": "s1"} | CALLBACK | times)
    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, field)
    assert "minScheduleInterval of the namespace, 1m" in answer.json()["errors"][0]["message"]


def test_a_schedule_that_occurs_rarely_enough_is_taken_and_its_change_is_checked(world: World) -> None:
    answer = world.api.call("PUT", "/v1/namespaces/default", {"minScheduleInterval": "60s"})
    assert answer.json()["minScheduleInterval"] == "1m"
    assert world.api.call("POST", SCHEDULES, {"id": "s1", "cron": "* * * * *"} | CALLBACK).status == 201
    assert world.api.call("PATCH", f"{SCHEDULES}/s1", {"cron": None, "every": "30s"}).status == 400
    world.api.call("PUT", "/v1/namespaces/default", {"minScheduleInterval": None})
    world.clock.advance(11)
    assert world.api.call("PATCH", f"{SCHEDULES}/s1", {"cron": None, "every": "30s"}).status == 200
    assert world.clock.now() > NOW
