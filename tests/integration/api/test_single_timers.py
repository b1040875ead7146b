"""Replacing, reading, changing and cancelling one timer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duetime.domain.shards import Lease
from duetime.domain.timers import Timer, TimerState
from duetime.domain.times import format_instant
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import failed, fired, leased, make_timer, parked, waiting
from duetime.testing.contract.steps import claim_shard
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Api

GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}
DUE_NOW = GOOD | {"executeAt": format_instant(NOW)}


def lease_of(world: World, timer: Timer) -> Lease:
    lease = claim_shard(world.store, timer.shard_id, "worker", lease_seconds=10, now=world.clock.now())
    assert lease is not None
    return lease


def stored_as(world: World, timer_id: str, state: TimerState) -> None:
    """Bring the timer that is stored under ``timer_id`` into another state."""
    if state is TimerState.CANCELLED:
        assert world.api.call("POST", f"{world.api.timers}/{timer_id}/cancel").status == 200
        return
    timer = world.timer(timer_id)
    outcomes = {
        TimerState.FIRED: lambda: fired(timer),
        TimerState.FAILED: lambda: failed(timer),
        TimerState.FIRING: lambda: parked(timer, until=NOW + timedelta(minutes=5)),
        TimerState.WAITING: lambda: waiting(timer, until=NOW + timedelta(minutes=5)),
    }
    world.store.timers.record(leased([outcomes[state]()], lease_of(world, timer)), now=world.clock.now())


class TestPut:
    def test_it_creates_and_replaces(self, world: World) -> None:
        assert world.api.put("t1", GOOD | {"payload": 1, "tags": ["x"]}).status == 201
        world.clock.advance(60)
        answer = world.api.put("t1", GOOD | {"payload": 2})
        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        assert answer.json()["tags"] == []
        assert answer.json()["createdAt"] == format_instant(NOW)
        assert [timer.revision for timer in world.stored] == [1, 2]

    @pytest.mark.parametrize("state", TimerState)
    def test_a_repeat_changes_nothing_in_any_state(self, world: World, state: TimerState) -> None:
        world.api.put("t1", DUE_NOW)
        if state is not TimerState.SCHEDULED:
            stored_as(world, "t1", state)
        before = world.api.read("t1")
        world.clock.advance(60)
        again = world.api.put("t1", DUE_NOW)
        assert (again.status, again.json(), again.headers["etag"]) == (200, before.json(), before.headers["etag"])
        assert len(world.stored) == 1

    def test_a_repeat_with_a_delay_is_another_time(self, world: World) -> None:
        delayed = {"delay": 60, "callbackUrl": GOOD["callbackUrl"]}
        world.api.put("t1", delayed)
        world.clock.advance(1)
        again = world.api.put("t1", delayed).json()
        assert (again["revision"], again["executeAt"]) == (2, format_instant(NOW + timedelta(seconds=61)))

    @pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.FAILED, TimerState.FIRING])
    def test_it_replaces_in_any_state(self, world: World, state: TimerState) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        answer = world.api.put("t1", GOOD)
        assert answer.json()["state"] == "Scheduled"
        assert answer.json()["nextAttemptAt"] == "2026-12-21T00:00:00.000Z"
        assert answer.json()["attempts"] == 0

    def test_the_body_may_repeat_the_id(self, api: Api) -> None:
        assert api.put("t1", GOOD | {"id": "t1"}).status == 201
        assert api.put("t1", GOOD | {"id": "t2"}).faults.keys() == {"id"}

    def test_if_match(self, api: Api) -> None:
        api.put("t1", GOOD)
        assert api.put("t1", GOOD | {"payload": 1}, headers={"if-match": '"1"'}).headers["etag"] == '"2"'
        for value in ('"1"', '"x"', 'W/"2"', '"1", "3"'):
            answer = api.put("t1", GOOD, headers={"if-match": value})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), value
        assert api.put("t1", GOOD | {"payload": 2}, headers={"if-match": '"1", "2"'}).headers["etag"] == '"3"'
        assert api.put("t1", GOOD | {"payload": 3}, headers={"if-match": "*"}).headers["etag"] == '"4"'

    @pytest.mark.parametrize("value", ['"1"', "*", '"1", "2"', '"x"'])
    def test_if_match_needs_a_timer(self, api: Api, value: str) -> None:
        assert api.put("t1", GOOD, headers={"if-match": value}).status == 412
        assert api.read("t1").status == 404

    def test_if_none_match_creates_only(self, api: Api) -> None:
        only_new = {"if-none-match": "*"}
        assert api.put("t1", GOOD, headers=only_new).status == 201
        for body in (GOOD, GOOD | {"payload": 1}):
            answer = api.put("t1", body, headers=only_new)
            assert (answer.status, answer.code) == (412, "revision_mismatch")
        assert api.read("t1").json()["revision"] == 1

    @pytest.mark.parametrize("headers", [{"if-none-match": '"1"'}, {"if-none-match": "*", "if-match": '"1"'}])
    def test_other_conditions_are_not_passed_over(self, api: Api, headers: dict[str, str]) -> None:
        assert api.put("t1", GOOD, headers=headers).faults.keys() == {"If-None-Match"}


class TestGet:
    def test_an_absent_timer(self, api: Api) -> None:
        answer = api.read("t1")
        assert (answer.status, answer.code) == (404, "timer_not_found")

    @pytest.mark.parametrize(
        ("value", "status"), [('"1"', 304), ('W/"1"', 304), ("*", 304), ('"0","1"', 304), ('"2"', 200)]
    )
    def test_if_none_match(self, api: Api, value: str, status: int) -> None:
        api.put("t1", GOOD)
        answer = api.read("t1", headers={"if-none-match": value})
        assert (answer.status, answer.headers["etag"]) == (status, '"1"')
        assert (answer.text == "") == (status == 304)

    def test_a_malformed_condition_is_refused(self, api: Api) -> None:
        api.put("t1", GOOD)
        assert api.read("t1", headers={"if-none-match": "1"}).faults.keys() == {"If-None-Match"}

    def test_a_fired_timer(self, world: World) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", TimerState.FIRED)
        read = world.api.read("t1").json()
        assert (read["state"], read["nextAttemptAt"], read["firedAt"]) == ("Fired", None, format_instant(NOW))

    def test_a_failed_timer_says_why(self, world: World) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", TimerState.FAILED)
        assert world.api.read("t1").json()["failure"] == {
            "reason": "HttpStatus",
            "message": "the receiver answered 503",
            "status": 503,
            "escalationId": None,
            "at": format_instant(NOW),
        }


class TestPatch:
    def test_what_is_omitted_stays(self, world: World) -> None:
        before = world.api.put("t1", GOOD | {"payload": 1.0, "tags": ["a"], "correlationId": "c"}).json()
        world.clock.advance(5)
        answer = world.api.patch("t1", {"tags": ["b"]})
        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        changes = {"tags": ["b"], "revision": 2, "updatedAt": "2026-12-20T15:30:05.000Z"}
        assert answer.json() == before | changes
        assert world.api.read("t1").text == answer.text
        assert [timer.revision for timer in world.stored] == [1, 2]

    def test_null_clears(self, api: Api) -> None:
        optional = {
            "payload": 1,
            "headers": {"a": "b"},
            "retryPolicy": {"maxAttempts": 1},
            "timeoutSeconds": 9,
            "correlationId": "c",
            "tags": ["a"],
        }
        bare = api.put("t0", GOOD).json()
        api.put("t1", GOOD | optional)
        cleared = api.patch("t1", dict.fromkeys(optional)).json()
        assert {name: cleared[name] for name in optional} == {name: bare[name] for name in optional}

    def test_a_new_due_time(self, world: World) -> None:
        world.api.put("t1", GOOD)
        patched = world.api.patch("t1", {"executeAt": "2026-12-25T01:00:00+01:00"}).json()
        assert patched["executeAt"] == patched["nextAttemptAt"] == "2026-12-25T00:00:00.000Z"
        patched = world.api.patch("t1", {"delay": "PT1M"}).json()
        assert patched["executeAt"] == patched["nextAttemptAt"] == "2026-12-20T15:31:00.000Z"

    def test_an_empty_patch_changes_nothing(self, world: World) -> None:
        before = world.api.put("t1", GOOD)
        world.clock.advance(5)
        assert world.api.patch("t1", {}).text == before.text
        assert world.api.patch("t1", {}, headers={"if-match": '"2"'}).status == 412
        assert world.api.patch("t1", {}, headers={"if-match": '"1"'}).status == 200
        assert world.api.patch("t2", {}).status == 404
        assert len(world.stored) == 1

    def test_a_merge_patch_by_name(self, api: Api) -> None:
        api.put("t1", GOOD)
        answer = api.patch("t1", {"tags": ["a"]}, headers={"content-type": "application/merge-patch+json"})
        assert answer.status == 200

    @pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.FAILED])
    @pytest.mark.parametrize("body", [{}, {"tags": ["a"]}])
    def test_a_finished_timer_cannot_be_changed(self, world: World, state: TimerState, body: dict[str, Any]) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        answer = world.api.patch("t1", body)
        assert (answer.status, answer.code) == (409, "timer_finished")

    def test_if_match(self, api: Api) -> None:
        api.put("t1", GOOD)
        for value in ('"2"', '"x"', 'W/"1"', '"2","3"'):
            answer = api.patch("t1", {"tags": ["a"]}, headers={"if-match": value})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), value
        for number, value in enumerate(['"1"', '"2","1"', "*"], start=2):
            assert api.patch("t1", {"tags": [value]}, headers={"if-match": value}).headers["etag"] == f'"{number}"'

    @pytest.mark.parametrize("headers", [{}, {"if-match": '"1"'}, {"if-match": "*"}])
    def test_an_absent_timer(self, api: Api, headers: dict[str, str]) -> None:
        answer = api.patch("t1", {"tags": ["a"]}, headers=headers)
        assert (answer.status, answer.code) == (404, "timer_not_found")

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({"executeAt": None}, "executeAt"),
            ({"callbackUrl": None}, "callbackUrl"),
            ({"executeAt": "2026-12-21T00:00:00Z", "delay": 1}, "executeAt"),
            ({"id": "t2"}, "id"),
            ({"state": "fired"}, "state"),
            ({"tags": [1]}, "tags[0]"),
        ],
    )
    def test_bad_input_is_named(self, api: Api, body: dict[str, Any], field: str) -> None:
        before = api.put("t1", GOOD).text
        assert field in api.patch("t1", body).faults
        assert api.read("t1").text == before


class TestCancel:
    def test_a_waiting_timer_ends_and_stays_readable(self, world: World) -> None:
        created = world.api.put("t1", GOOD).json()
        cancelled = world.api.call("POST", f"{world.api.timers}/t1/cancel", headers={"if-match": '"1"'})
        assert cancelled.status == 200
        changes = {"state": "Cancelled", "revision": 2, "nextAttemptAt": None}
        assert cancelled.json() == created | changes
        assert world.api.read("t1").json() == cancelled.json()
        assert world.api.list(state="cancelled").json()["items"] == [cancelled.json()]
        assert world.timer("t1").expires_at == NOW + timedelta(days=7)
        again = world.api.call("POST", f"{world.api.timers}/t1/cancel")
        assert (again.status, again.json()) == (200, cancelled.json())

    @pytest.mark.parametrize(
        ("state", "code"),
        [
            (TimerState.FIRED, "timer_finished"),
            (TimerState.FAILED, "timer_finished"),
            (TimerState.FIRING, "attempt_in_flight"),
        ],
    )
    def test_what_does_not_wait_is_refused(self, world: World, state: TimerState, code: str) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        refused = world.api.call("POST", f"{world.api.timers}/t1/cancel")
        assert (refused.status, refused.code) == (409, code)
        assert world.timer("t1").state is state

    def test_a_cancelled_timer_is_replaced_but_neither_changed_redriven_nor_fired(self, world: World) -> None:
        api = world.api
        api.put("t1", GOOD)
        api.call("POST", f"{api.timers}/t1/cancel")
        refused = [
            api.patch("t1", {"tags": ["a"]}),
            *(api.call("POST", f"{api.timers}/t1/{action}") for action in ("redrive", "fire")),
        ]
        assert [answer.code for answer in refused] == ["timer_finished", "timer_not_failed", "timer_finished"]
        assert api.put("t1", GOOD).json()["state"] == "Cancelled"
        assert api.put("t1", GOOD | {"payload": 1}).json()["state"] == "Scheduled"
        assert world.timer("t1").expires_at is None

    def test_what_is_not_there_and_another_revision(self, api: Api) -> None:
        api.put("t1", GOOD)
        assert api.call("POST", f"{api.timers}/t2/cancel").code == "timer_not_found"
        mismatch = api.call("POST", f"{api.timers}/t1/cancel", headers={"if-match": '"2"'})
        assert (mismatch.status, mismatch.code) == (412, "revision_mismatch")


class TestDelete:
    def test_it_removes(self, api: Api) -> None:
        api.put("t1", GOOD)
        answer = api.delete("t1")
        assert answer.status == 200
        assert answer.json() == {"id": "t1", "namespace": "default", "attemptInFlight": False}
        assert api.read("t1").status == 404
        assert api.delete("t1").code == "timer_not_found"

    @pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.FAILED])
    def test_a_finished_timer_is_removed(self, world: World, state: TimerState) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        assert world.api.delete("t1").json()["attemptInFlight"] is False

    def test_a_due_timer_may_be_in_flight(self, api: Api) -> None:
        api.put("t1", DUE_NOW)
        assert api.delete("t1").json()["attemptInFlight"] is True

    def test_a_parked_timer_is_in_flight(self, world: World) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", TimerState.FIRING)
        assert world.api.delete("t1").json()["attemptInFlight"] is True

    def test_if_match(self, api: Api) -> None:
        api.put("t1", GOOD)
        for value in ('"2"', '"x"', '"2","3"'):
            answer = api.delete("t1", headers={"if-match": value})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), value
        assert api.delete("t1", headers={"if-match": '"1"'}).status == 200
        assert api.delete("t1", headers={"if-match": "*"}).status == 404


def test_a_busy_timer_is_not_waited_for_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """``If-Match: *`` is about the revision of the moment; somebody who always comes first must not block."""
    world.api.put("t1", GOOD)
    read = world.store.timers.get

    def read_and_be_overtaken(*args: Any, **more: Any) -> Timer | None:
        timer = read(*args, **more)
        other = make_timer(world.namespace, "t1", payload_json=None if timer is None else str(timer.revision))
        world.store.timers.put([other], mode=PutMode.REPLACE, now=world.clock.now())
        return timer

    monkeypatch.setattr(world.store.timers, "get", read_and_be_overtaken)
    answer = world.api.delete("t1", headers={"if-match": "*"})
    assert (answer.status, answer.code) == (503, "store_unavailable")
