"""``/v1/namespaces/{ns}/schedules``: schedules are created, read, listed, paused, triggered and removed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duetime.app.schedules import Schedules
from duetime.domain.errors import ScheduleEnded
from duetime.domain.ids import occurrence_firing_id, schedule_timer_id
from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import Occurrence, ScheduleEnd
from duetime.domain.timers import Timer, TimerState
from duetime.testing.contract.builders import fired, make_namespace, parked
from duetime.testing.contract.steps import claim, record
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer

PATH = "/v1/namespaces/default/schedules"
NAMESPACE = make_namespace("default")
URL = "http://receiver.test/callback"


def create(world: World, **body: Any) -> Answer:
    given = {"id": "s1", "cron": "0 9 * * *", "callbackUrl": URL} | body
    return world.api.call("POST", PATH, {name: value for name, value in given.items() if value is not ...})


def created(world: World, **body: Any) -> Any:
    answer = create(world, **body)
    assert answer.status == 201, answer.text
    return answer.json()


def act(world: World, action: str, body: dict[str, Any] | None = None, **more: Any) -> Answer:
    return world.api.call("POST", f"{PATH}/s1/{action}", {} if body is None else body, **more)


def stored(world: World, timer_id: str | None = None) -> Timer:
    timer = world.store.timers.get(NAMESPACE, timer_id or schedule_timer_id("s1"), now=NOW)
    assert timer is not None
    return timer


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
        "jitter": None,
        "window": None,
        "misfire": "all",
        "catchUp": "1h",
        "overlap": "allow",
        "maxFirings": None,
        "pauseAfter": None,
        "serviceCall": None,
        "callbackUrl": URL,
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
    assert world.api.call("POST", f"{location}/pause", {}).json()["state"] == "Paused"


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
        ({"overlap": "never"}, "overlap"),
        ({"misfire": "fire"}, "misfire"),
        ({"maxFirings": 0}, "maxFirings"),
        ({"pauseAfter": 1001}, "pauseAfter"),
        ({"catchUp": "-1s"}, "catchUp"),
        ({"callbackUrl": "ftp://receiver.test"}, "callbackUrl"),
        ({"callbackUrl": ...}, "callbackUrl"),
        ({"executeAt": "2027-01-01T00:00:00Z"}, "executeAt"),
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
    assert act(world, "trigger").json() == body, "at the same millisecond"


def test_coming_occurrences_are_shown_in_local_time(world: World) -> None:
    created(world, timeZone="Europe/Berlin", maxFirings=2)

    answer = world.api.get(f"{PATH}/s1/occurrences")

    assert answer.status == 200, answer.text
    body = answer.json()
    assert body["past"] == []
    assert [each["localTime"] for each in body["coming"]] == [
        "2026-12-21T09:00:00.000+01:00",
        "2026-12-22T09:00:00.000+01:00",
    ]
    assert len(world.api.get(f"{PATH}/s1/occurrences", query={"coming": 1}).json()["coming"]) == 1
    assert world.api.get(f"{PATH}/s1/occurrences", query={"past": 101}).status == 400


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


def bulk(world: World, action: str, **body: Any) -> Any:
    answer = world.api.call("POST", f"{PATH}/{action}", body)
    assert answer.status == 200, answer.text
    return answer.json()


def listed(world: World, **query: Any) -> set[str]:
    """The ids of all pages."""
    found: list[str] = []
    cursor = None
    while True:
        more = {} if cursor is None else {"cursor": cursor}
        page = world.api.call("GET", PATH, query={**query, "limit": 2, **more}).json()
        found += [each["id"] for each in page["items"]]
        cursor = page["nextCursor"]
        if cursor is None:
            assert len(set(found)) == len(found)
            return set(found)


def test_lists_are_filtered(world: World) -> None:
    created(world, id="a", tags=["x"])
    created(world, id="b", tags=["x", "y"], paused=True)
    created(world, id="c", cron="0 20 * * *")
    created(world, id="d", startAt="2026-12-20T16:00:00Z", endAt="2026-12-20T16:00:00Z", cron=..., every="1h")
    (schedule,) = (each for each in world.stored if each.schedule_id == "d")
    assert schedule.schedule is not None
    ended = standing_at(schedule, replace(schedule.schedule, pending=None), now=NOW)
    world.store.schedules.change(NAMESPACE, "d", lambda _: ended, now=NOW)

    assert listed(world) == {"a", "b", "c", "d"}
    assert listed(world, state="active") == {"a", "c"}
    assert listed(world, state="Paused") == {"b"}
    assert listed(world, state="Ended") == {"d"}
    assert listed(world, tag="x") == {"a", "b"}
    assert listed(world, tag="x", state="Active") == {"a"}
    assert listed(world, dueTo="2026-12-21T09:00:00Z") == {"c"}
    assert listed(world, dueFrom="2026-12-21T09:00:00Z") == {"a", "b"}
    assert world.api.call("GET", PATH, query={"state": "Fired"}).faults.keys() == {"state"}


def test_schedules_are_paused_and_resumed_by_filter(world: World) -> None:
    for each in range(5):
        created(world, id=f"s{each}", tags=["x"] if each < 3 else [])

    assert bulk(world, "pause", tag="x", dryRun=True) == {"affected": 3, "skipped": 0, "nextCursor": None}
    assert listed(world, state="Paused") == set()
    first = bulk(world, "pause", tag="x", limit=1, reason="moving")
    assert first["nextCursor"] is not None
    changed, cursor = first["affected"], first["nextCursor"]
    while cursor is not None:
        page = bulk(world, "pause", tag="x", limit=1, reason="moving", cursor=cursor)
        changed, cursor = changed + page["affected"], page["nextCursor"]
    assert changed == 3
    assert listed(world, state="Paused") == {"s0", "s1", "s2"}
    assert world.api.call("GET", f"{PATH}/s0").json()["pauseReason"] == "moving"
    assert bulk(world, "pause", tag="x")["affected"] == 0
    assert bulk(world, "resume")["affected"] == 3
    assert listed(world, state="Paused") == set()
    other = {"tag": "y", "cursor": first["nextCursor"]}
    assert world.api.call("POST", f"{PATH}/pause", other).faults.keys() == {"cursor"}
    assert world.api.call("POST", f"{PATH}/resume", {"reason": "r"}).faults.keys() == {"reason"}


def test_what_ends_before_it_is_paused_is_skipped(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    created(world, id="a")

    def ends(*_: Any, **__: Any) -> Timer:
        raise ScheduleEnded("it has ended")

    monkeypatch.setattr(Schedules, "pause", ends)
    assert bulk(world, "pause") == {"affected": 0, "skipped": 1, "nextCursor": None}


def backfill(world: World, action: str = "backfill", **body: Any) -> Any:
    answer = world.api.call("POST", f"{PATH}/s1/{action}", body)
    assert answer.status == 200, answer.text
    return answer.json()


RANGE = {"from": "2026-12-20T09:00:00Z", "to": "2026-12-20T14:00:00Z"}


def waiting(world: World) -> list[Timer]:
    found = world.store.schedules.backfilled(NAMESPACE, "s1", cursor=None, limit=100, now=world.clock.now())
    return sorted(found.items, key=lambda each: each.content.execute_at)


def test_a_backfill_makes_a_timer_for_each_occurrence_at_a_bounded_rate(world: World) -> None:
    created(world, cron=..., every="1h", payload={"n": 1})
    told = {"created": 5, "skipped": 0, "lastDueAt": "2026-12-20T15:30:08.000Z", "nextCursor": None}

    assert backfill(world, **RANGE, rateLimit=0.5, dryRun=True) == told
    assert waiting(world) == []
    assert backfill(world, **RANGE, rateLimit=0.5) == told
    timers = waiting(world)
    assert [each.next_attempt_at for each in timers] == [NOW + timedelta(seconds=2 * at) for at in range(5)]
    schedules = [each.schedule for each in timers]
    hours = [None if each is None or each.pending is None else each.pending.scheduled_at.hour for each in schedules]
    assert hours == [9, 10, 11, 12, 13]
    assert timers[0].content.payload_json == '{"n": 1}'
    assert timers[0].firing_id == occurrence_firing_id("default", "s1", datetime(2026, 12, 20, 9, tzinfo=UTC))
    assert world.stored[-5:] == timers
    assert listed(world) == {"s1"}


def test_a_backfill_is_made_a_page_at_a_time_at_the_rate_of_the_whole(world: World) -> None:
    created(world, cron=..., every="1h")
    pages = [backfill(world, **RANGE, limit=2)]
    while pages[-1]["nextCursor"] is not None:
        world.clock.advance(0.5)
        pages.append(backfill(world, **RANGE, limit=2, cursor=pages[-1]["nextCursor"]))

    assert [page["created"] for page in pages] == [2, 2, 1]
    assert [each.next_attempt_at for each in waiting(world)] == [NOW + timedelta(seconds=at) for at in range(5)]
    other = {**RANGE, "rateLimit": 9, "cursor": pages[0]["nextCursor"]}
    assert world.api.call("POST", f"{PATH}/s1/backfill", other).faults.keys() == {"cursor"}


def test_what_is_pending_or_to_come_is_not_backfilled(world: World) -> None:
    created(world, cron=..., every="1h")
    world.clock.advance(7200)  # 16:00 and 17:00 are pending: nobody fires here
    assert backfill(world, **{"from": "2026-12-20T14:30:00Z"}, dryRun=True)["created"] == 1
    assert backfill(world, **{"from": "2026-12-20T14:30:00Z", "to": "2027-01-01T00:00:00Z"})["created"] == 1
    assert backfill(world, **{"from": "2026-12-20T15:30:00Z"})["created"] == 0


def test_what_is_to_be_sent_anyway_is_skipped_and_what_was_sent_is_sent_again(world: World) -> None:
    created(world, cron=..., every="1h")
    backfill(world, **RANGE)
    world.clock.advance(60)
    assert backfill(world, **RANGE)["skipped"] == 5
    first = waiting(world)[0]
    record(world.store, [fired(first)], claim(world.store, first.shard_id))
    again = backfill(world, **RANGE)
    assert (again["created"], again["skipped"]) == (1, 4)
    sent = next(each for each in waiting(world) if each.timer_id == first.timer_id)
    assert (sent.state, sent.firing_id) == (TimerState.SCHEDULED, first.firing_id)
    assert sent.next_attempt_at == world.clock.now()


def test_a_backfill_is_cancelled(world: World) -> None:
    created(world, cron=..., every="1h")
    backfill(world, **RANGE)
    first, second, *_ = waiting(world)
    lease = claim(world.store, first.shard_id)
    record(world.store, [fired(first), parked(second, until=NOW + timedelta(hours=1))], lease)

    assert backfill(world, "backfill/cancel", dryRun=True) == {"cancelled": 3, "skipped": 1, "nextCursor": None}
    page = backfill(world, "backfill/cancel", limit=2)
    cancelled, skipped = page["cancelled"], page["skipped"]
    while page["nextCursor"] is not None:
        page = backfill(world, "backfill/cancel", limit=2, cursor=page["nextCursor"])
        cancelled, skipped = cancelled + page["cancelled"], skipped + page["skipped"]
    assert (cancelled, skipped) == (3, 1)
    assert {each.timer_id for each in waiting(world)} == {first.timer_id, second.timer_id}


def test_a_backfill_of_what_is_not_there_or_in_no_range_is_refused(world: World) -> None:
    for action in ("backfill", "backfill/cancel"):
        assert world.api.call("POST", f"{PATH}/s1/{action}", RANGE if action == "backfill" else {}).status == 404
    created(world)
    for wrong, field in (
        ({}, "from"),
        (RANGE | {"rateLimit": 0}, "rateLimit"),
        (RANGE | {"limit": 101}, "limit"),
        (RANGE | {"cursor": "x"}, "cursor"),
    ):
        assert world.api.call("POST", f"{PATH}/s1/backfill", wrong).faults.keys() == {field}
    assert backfill(world, **{"from": RANGE["to"], "to": RANGE["from"]})["created"] == 0


def test_what_new_rules_of_time_zones_move_is_recomputed(world: World) -> None:
    for name in ("a", "b", "c"):
        created(world, id=name, timeZone="Europe/Berlin", paused=name == "c")
    created(world, id="d", startAt="2026-12-20T16:00:00Z", endAt="2026-12-20T16:00:00Z", cron=..., every="1h")
    early = datetime(2026, 12, 21, 7, tzinfo=UTC)  # as if Berlin were two hours ahead

    def by_old_rules(timer: Timer) -> Timer:
        assert timer.schedule is not None
        return standing_at(timer, replace(timer.schedule, pending=Occurrence(early, early)), now=NOW)

    for name in ("a", "c"):
        world.store.schedules.change(NAMESPACE, name, by_old_rules, now=NOW)
    assert world.api.call("GET", f"{PATH}/a").json()["nextScheduledAt"] == "2026-12-21T07:00:00.000Z"

    assert bulk(world, "recompute", dryRun=True) == {"affected": 2, "skipped": 0, "nextCursor": None}
    page = bulk(world, "recompute", limit=1)
    affected = page["affected"]
    while page["nextCursor"] is not None:
        page = bulk(world, "recompute", limit=1, cursor=page["nextCursor"])
        affected += page["affected"]
    assert affected == 2
    assert bulk(world, "recompute")["affected"] == 0
    found = {name: world.api.call("GET", f"{PATH}/{name}").json() for name in "abc"}
    assert {each["nextScheduledAt"] for each in found.values()} == {"2026-12-21T08:00:00.000Z"}
    assert [found[name]["revision"] for name in "abc"] == [3, 1, 3]
    assert found["c"]["state"] == "Paused"
