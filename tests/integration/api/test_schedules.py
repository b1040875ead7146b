"""``/v1/namespaces/{ns}/schedules``: schedules are created, read, listed, paused, triggered and removed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import ScheduleEnd
from duetime.domain.timers import Timer
from duetime.domain.times import MILLISECOND
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer
from tests.support.schedule_api import NAMESPACE, PATH, URL, act, create, created, stored


def test_a_schedule_is_created_and_read(world: World) -> None:
    assert NOW.isoformat() == "2026-12-20T15:30:00+00:00"
    answer = create(world, timeZone="Europe/Berlin", tags=["a"], payload={"n": 1})

    assert answer.status == 201, answer.text
    assert (answer.headers["etag"], answer.headers["location"]) == ('"1"', f"{PATH}/s1")
    body = answer.json()
    assert body == {
        "id": "s1",
        "namespace": "default",
        "state": "Active",
        "revision": 1,
        "nextScheduledAt": "2026-12-21T08:00:00.000Z",
        "nextDueAt": "2026-12-21T08:00:00.000Z",
        "number": 1,
        "firings": 0,
        "endReason": None,
        "pausedAt": None,
        "pauseReason": None,
        "firedAt": None,
        "failure": None,
        "createdAt": "2026-12-20T15:30:00.000Z",
        "updatedAt": "2026-12-20T15:30:00.000Z",
        "description": "At 09:00, every day, Europe/Berlin",
        "cron": ["0 9 * * *"],
        "every": None,
        "rrule": [],
        "anchor": None,
        "timeZone": "Europe/Berlin",
        "dst": "once",
        "startAt": None,
        "endAt": None,
        "exclude": [],
        "calendar": None,
        "dayOff": "skip",
        "jitter": None,
        "window": None,
        "misfire": "all",
        "catchUp": "1h",
        "overlap": "allow",
        "maxFirings": None,
        "pauseAfter": None,
        "serviceCall": None,
        "callbackUrl": URL,
        "target": None,
        "timeoutSeconds": 30,
        "expireAfter": None,
        "correlationId": None,
        "tags": ["a"],
        "headers": None,
        "retryPolicy": body["retryPolicy"],
        "payload": {"n": 1},
    }
    read = world.api.get(f"{PATH}/s1")
    assert (read.status, read.json(), read.headers["etag"]) == (200, body, '"1"')
    assert world.api.get(f"{PATH}/s1", headers={"if-none-match": '"1"'}).status == 304


@pytest.mark.parametrize("schedule_id", ["a?b", "100%", "..", "pause", "base64url:x", "ünïcødé #1"])
def test_its_location_leads_to_it_whatever_its_id(world: World, schedule_id: str) -> None:
    location = create(world, id=schedule_id).headers["location"]

    assert location.isascii()
    assert world.api.call("GET", location).json()["id"] == schedule_id
    assert world.api.call("POST", f"{location}/pause").json()["state"] == "Paused"


def test_ids_may_be_long(world: World) -> None:
    assert created(world, id="🎉" * 230)["id"] == "🎉" * 230
    assert len(world.api.all_pages(PATH)) == 1


def test_everything_that_is_given_is_kept(world: World) -> None:
    given = {
        "every": "90m",
        "rrule": ["FREQ=DAILY"],
        "anchor": "2026-01-01T00:00:00.000Z",
        "dst": "both",
        "startAt": "2027-01-01T00:00:00.000Z",
        "endAt": "2028-01-01T00:00:00.000Z",
        "exclude": ["2027-12-25"],
        "jitter": "30s",
        "window": "10m",
        "misfire": "latest",
        "catchUp": "2h",
        "overlap": "bufferOne",
        "maxFirings": 7,
        "pauseAfter": 3,
        "timeoutSeconds": 7,
        "expireAfter": "1h",
        "correlationId": "c",
        "headers": {"x-a": "b"},
    }

    body = created(world, **given)

    assert {name: body[name] for name in given} == given | {"every": "1h30m"}
    assert created(world, id=..., every="1h", cron=...)["id"] != "s1"


def test_the_same_request_again_changes_nothing(world: World) -> None:
    first = created(world)
    world.clock.advance(3600)

    again, other = create(world), create(world, cron="0 10 * * *")

    assert (again.status, again.json()) == (200, first)
    assert (other.status, other.code) == (409, "schedule_conflict")
    assert create(world, overlap="skip").code == "schedule_conflict"


def test_a_put_is_rehearsed(world: World) -> None:
    def rehearse(headers: dict[str, str] | None = None, **body: Any) -> Answer:
        body = {"every": "1h", "callbackUrl": URL} | body
        return world.api.call("PUT", f"{PATH}/s1", body, query={"dryRun": "true"}, headers=headers)

    new = rehearse()
    assert (new.status, new.json()["every"]) == (201, "1h")
    assert world.api.call("GET", f"{PATH}/s1").status == 404
    assert rehearse({"if-match": "*"}).status == 412
    made = created(world, cron=..., every="1h")
    same, other = rehearse(), rehearse(every="2h", tags=["a"])
    assert (same.status, same.json()) == (200, made)
    assert (other.status, other.json()["every"], other.json()["revision"]) == (200, "2h", 2)
    assert rehearse({"if-match": '"2"'}).status == 412
    assert rehearse(every="0s").faults.keys() == {"every"}
    assert world.api.call("GET", f"{PATH}/s1").json() == made


def test_the_same_is_rehearsed_of_one_that_has_ended(world: World) -> None:
    end = {"startAt": "2026-12-20T16:00:00Z", "endAt": "2026-12-20T16:00:00Z"}
    created(world, cron=..., every="1h", **end)
    world.clock.advance(86_400)
    body = {"every": "1h", "callbackUrl": URL, **end}
    assert world.api.call("PUT", f"{PATH}/s1", body, query={"dryRun": "true"}).status == 200


def test_a_schedule_is_put(world: World) -> None:
    body = {"every": "1h", "callbackUrl": URL}
    first = world.api.call("PUT", f"{PATH}/s1", body)
    same = world.api.call("PUT", f"{PATH}/s1", body)
    other = world.api.call("PUT", f"{PATH}/s1", body | {"every": "2h"}, headers={"if-match": '"1"'})

    assert [first.status, same.status, other.status] == [201, 200, 200]
    assert same.json() == first.json()
    assert (other.json()["every"], other.json()["revision"]) == ("2h", 2)
    for wanted in ('"1"', '"7", "8"'):
        answer = world.api.call("PUT", f"{PATH}/s1", body, headers={"if-match": wanted})
        assert (answer.status, answer.code) == (412, "revision_mismatch")
    assert world.api.call("PUT", f"{PATH}/s1", body, headers={"if-match": "*"}).status == 200
    assert world.api.call("PUT", f"{PATH}/none", body, headers={"if-match": "*"}).status == 412
    assert world.api.call("PUT", f"{PATH}/s1", body | {"id": "s2"}).faults == {"id": "is not the one in the path"}


def put(world: World, **body: Any) -> Any:
    answer = world.api.call("PUT", f"{PATH}/s1", {"every": "1h", "callbackUrl": URL} | body)
    assert answer.status == 200, answer.text
    return answer.json()


def at_number_three(world: World, **change: Any) -> None:
    """Two occurrences have been."""

    def moved(timer: Timer) -> Timer:
        schedule = timer.schedule
        assert schedule is not None
        assert schedule.pending is not None
        return standing_at(timer, replace(schedule, number=3, firings=2, **change), now=NOW)

    world.store.schedules.change(NAMESPACE, "s1", moved, now=NOW)


def test_what_is_put_in_the_place_of_another_one_goes_on_from_there(world: World) -> None:
    created(world, cron=..., every="1h")
    at_number_three(world)

    same = put(world)
    other = put(world, tags=["a"])
    timed = put(world, every="2h", maxFirings=9)

    assert (same["number"], same["revision"], same["nextScheduledAt"]) == (3, 2, "2026-12-20T16:00:00.000Z")
    assert (other["number"], other["firings"], other["nextScheduledAt"]) == (3, 2, "2026-12-20T16:00:00.000Z")
    assert (other["tags"], timed["tags"], timed["maxFirings"]) == (["a"], [], 9)
    assert (timed["number"], timed["firings"], timed["nextScheduledAt"]) == (3, 2, "2026-12-20T16:00:00.000Z")
    assert (timed["createdAt"], timed["revision"]) == (same["createdAt"], 4)


def test_what_is_put_stays_paused_unless_it_says_otherwise(world: World) -> None:
    created(world, cron=..., every="1h")
    act(world, "pause", {"reason": "move"})

    for body in ({}, {"tags": ["a"]}, {"paused": True, "tags": ["a"]}):
        assert put(world, **body)["pauseReason"] == "move"
    assert put(world, tags=["a"], paused=False)["state"] == "Active"
    assert put(world, tags=["a"], paused=True)["state"] == "Paused"


def test_one_whose_times_are_damaged_is_shown_and_can_be_replaced(world: World) -> None:
    created(world)

    def damaged(timer: Timer) -> Timer:
        assert timer.schedule is not None
        content = replace(timer.content, timing_json='{"other":1}')
        return standing_at(replace(timer, content=content), timer.schedule, now=NOW)

    world.store.schedules.change(NAMESPACE, "s1", damaged, now=NOW)

    assert world.api.call("GET", f"{PATH}/s1").json()["state"] == "Unreadable"
    assert world.api.call("GET", f"{PATH}/s1/occurrences").json() == {"past": [], "coming": []}
    for refused in (
        world.api.call("PATCH", f"{PATH}/s1", {"tags": ["a"]}),
        act(world, "backfill", {"from": "2026-12-01T00:00:00Z"}),
    ):
        assert (refused.status, refused.code) == (409, "schedule_unreadable")
    assert put(world)["state"] == "Active"


def test_a_limit_that_is_reached_already_ends_it(world: World) -> None:
    created(world, cron=..., every="1h")
    at_number_three(world)

    patched = world.api.call("PATCH", f"{PATH}/s1", {"maxFirings": 2}).json()
    again = put(world, maxFirings=3)
    limited = put(world, maxFirings=1)

    assert (patched["state"], patched["endReason"], patched["firings"]) == ("Ended", "maxFirings", 2)
    assert (again["state"], again["firings"]) == ("Active", 0)
    assert (limited["state"], limited["firings"]) == ("Active", 0)


@pytest.mark.parametrize("end", [ScheduleEnd.MAX_FIRINGS, ScheduleEnd.RECEIVER, ScheduleEnd.NO_OCCURRENCE])
def test_what_has_ended_begins_again_with_other_content_only(world: World, end: ScheduleEnd) -> None:
    created(world, cron=..., every="1h", maxFirings=2)
    at_number_three(world, pending=None, end=end)

    same = put(world, maxFirings=2)
    again = put(world, maxFirings=2, tags=["a"])

    assert (same["state"], same["endReason"]) == ("Ended", end)
    assert (again["state"], again["endReason"], again["firings"], again["number"]) == ("Active", None, 0, 3)
    assert again["nextScheduledAt"] == "2026-12-20T16:00:00.000Z"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": ...}, "cron"),
        ({"cron": "61 * * * *"}, "cron"),
        ({"cron": ..., "every": "1ms"}, "every"),
        ({"timeZone": "Mars/Base"}, "timeZone"),
        ({"endAt": "2026-12-20T16:00:00Z"}, "endAt"),
        ({"cron": "cron(0 0 1 1 ? 2020)"}, "cron"),
        ({"overlap": "never"}, "overlap"),
        ({"misfire": "fire"}, "misfire"),
        ({"maxFirings": 0}, "maxFirings"),
        ({"pauseAfter": 1001}, "pauseAfter"),
        ({"catchUp": "-1s"}, "catchUp"),
        ({"callbackUrl": "ftp://receiver.test"}, "callbackUrl"),
        ({"callbackUrl": ...}, "callbackUrl"),
        ({"executeAt": "2027-01-01T00:00:00Z"}, "executeAt"),
        ({"id": ""}, "id"),
        ({"id": "a/b"}, "id"),
        ({"id": "x" * 231}, "id"),
        ({"exclude": [f"2027-01-{day:02}" for day in range(1, 29)] * 20}, "exclude"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_is_stored(world: World, body: dict[str, Any], field: str) -> None:
    answer = create(world, **body)

    assert (answer.status, [*answer.faults]) == (400, [field])
    assert world.api.get(PATH).json()["items"] == []


def patch(world: World, body: dict[str, Any], headers: dict[str, str] | None = None) -> Answer:
    given = {"content-type": "application/merge-patch+json"} | (headers or {})
    return world.api.call("PATCH", f"{PATH}/s1", body, headers=given)


def test_what_is_given_is_changed_and_the_rest_stays(world: World) -> None:
    first = created(world, tags=["a"], maxFirings=3, payload={"n": 1})
    world.clock.advance(60)

    same = patch(world, {})
    labels = patch(world, {"tags": None, "maxFirings": None, "overlap": "skip", "payload": 1.5})
    times = patch(world, {"cron": None, "every": "1h", "callbackUrl": f"{URL}/2"})

    assert (same.status, same.json()) == (200, first)
    changed = labels.json()
    assert (changed["tags"], changed["maxFirings"], changed["overlap"], changed["payload"]) == ([], None, "skip", 1.5)
    assert (changed["nextScheduledAt"], changed["revision"]) == (first["nextScheduledAt"], 2)
    changed = times.json()
    assert (changed["cron"], changed["every"], changed["callbackUrl"]) == ([], "1h", f"{URL}/2")
    assert (changed["nextScheduledAt"], changed["overlap"]) == ("2026-12-20T16:00:00.000Z", "skip")
    assert create(world, tags=["a"], maxFirings=3, payload={"n": 1}).code == "schedule_conflict"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": "x"}, "cron"),
        ({"cron": None}, "cron"),
        ({"endAt": "2026-12-20T16:00:00Z"}, "endAt"),
        ({"callbackUrl": None}, "callbackUrl"),
        ({"id": "s2"}, "id"),
        ({"paused": True}, "paused"),
    ],
)
def test_a_wrong_change_changes_nothing(world: World, body: dict[str, Any], field: str) -> None:
    first = created(world)

    answer = patch(world, body)

    assert (answer.status, [*answer.faults]) == (400, [field])
    assert world.api.get(f"{PATH}/s1").json() == first
    assert patch(world, {"tags": ["b"]}, {"if-match": '"7"'}).code == "revision_mismatch"


def test_a_schedule_of_another_id_is_not_there(world: World) -> None:
    created(world)

    for method, path in (
        ("GET", ""),
        ("DELETE", ""),
        ("POST", "/pause"),
        ("POST", "/resume"),
        ("POST", "/trigger"),
        ("GET", "/occurrences"),
    ):
        answer = world.api.call(method, f"{PATH}/s2{path}", {} if method == "POST" else None)
        assert (answer.status, answer.code) == (404, "schedule_not_found"), path


def test_schedules_are_listed_and_are_no_timers(world: World) -> None:
    for number in range(7):
        created(world, id=f"s{number}")
    world.api.create({"id": "t1", "delay": "1h", "callbackUrl": URL})

    listed = world.api.all_pages(PATH)

    assert sorted(item["id"] for item in listed) == [f"s{number}" for number in range(7)]
    assert [item["id"] for item in world.api.all_pages(None)] == ["t1"]


def test_it_is_paused_and_resumed(world: World) -> None:
    created(world)

    paused = act(world, "pause", {"reason": "the receiver is moved"})
    again = act(world, "pause", {"reason": "another"})

    body = paused.json()
    assert (paused.status, body["state"], body["revision"]) == (200, "Paused", 2)
    assert (body["pausedAt"], body["pauseReason"]) == ("2026-12-20T15:30:00.000Z", "the receiver is moved")
    assert body["nextScheduledAt"] == "2026-12-21T09:00:00.000Z"
    assert again.json() == body
    assert act(world, "resume", headers={"if-match": '"1"'}).code == "revision_mismatch"
    resumed = act(world, "resume", headers={"if-match": '"2"'}).json()
    assert (resumed["state"], resumed["pausedAt"], resumed["revision"]) == ("Active", None, 3)
    assert act(world, "resume").json() == resumed
    assert stored(world).next_attempt_at is not None


def test_it_is_created_paused(world: World) -> None:
    assert created(world, paused=True)["state"] == "Paused"


def test_it_is_triggered(world: World) -> None:
    created(world, payload={"n": 1})
    before = stored(world)
    act(world, "pause")

    answer = act(world, "trigger")

    body = answer.json()
    assert (answer.status, body["id"], body["scheduledAt"]) == (200, "s1", "2026-12-20T15:30:00.000Z")
    due = [each for shard in range(4) for each in world.store.timers.due(shard, until=NOW, limit=9).timers]
    assert [each.firing_id for each in due] == [body["firingId"]]
    assert due[0].content.payload_json == before.content.payload_json
    again = act(world, "trigger").json()
    assert again["firingId"] != body["firingId"], "at the same millisecond, too"
    due = [
        each for shard in range(4) for each in world.store.timers.due(shard, until=NOW + MILLISECOND, limit=9).timers
    ]
    assert {each.firing_id for each in due} == {body["firingId"], again["firingId"]}


def test_it_is_removed(world: World) -> None:
    created(world)

    assert world.api.call("DELETE", f"{PATH}/s1", headers={"if-match": '"2"'}).status == 412
    answer = world.api.call("DELETE", f"{PATH}/s1", headers={"if-match": '"1"'})

    assert (answer.status, answer.json()) == (200, {"id": "s1", "namespace": "default"})
    assert world.api.get(f"{PATH}/s1").status == 404


def test_what_is_stored_reaches_a_poller_of_this_process(world: World) -> None:
    created(world)
    act(world, "pause")

    assert [each.schedule_id for each in world.stored] == ["s1", "s1"]
