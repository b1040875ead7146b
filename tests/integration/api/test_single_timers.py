"""Creating, replacing, reading, changing and cancelling one timer."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.domain.shards import Lease
from duetime.domain.timers import MAX_PAYLOAD_BYTES, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, format_instant, parse_instant
from duetime.stores.port import PutMode
from tests.support.api import World, api_world
from tests.support.builders import failed, fired, make_timer, parked
from tests.support.clock import NOW
from tests.support.http import Api
from tests.support.json_text import json_texts

GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}
DUE_NOW = GOOD | {"executeAt": format_instant(NOW)}


def lease_of(world: World, timer: Timer) -> dict[int, Lease]:
    lease = world.store.claim_shard(timer.shard_id, "worker", lease_seconds=10, now=world.clock.now())
    assert lease is not None
    return {timer.shard_id: lease}


def stored_as(world: World, timer_id: str, state: TimerState) -> None:
    """Put the timer that is stored under ``timer_id`` into a state that only an engine brings about."""
    timer = world.timer(timer_id)
    outcomes = {
        TimerState.FIRED: lambda: fired(timer),
        TimerState.FAILED: lambda: failed(timer),
        TimerState.FIRING: lambda: parked(timer, until=NOW + timedelta(minutes=5)),
    }
    world.store.record([outcomes[state]()], leases=lease_of(world, timer), now=world.clock.now())


class TestCreate:
    def test_a_timer_is_created(self, world: World) -> None:
        answer = world.api.create(GOOD | {"id": "t1"})
        assert answer.status == 201
        assert answer.headers["location"] == "/v1/namespaces/default/timers/t1"
        assert answer.headers["etag"] == '"1"'
        assert answer.json() == {
            "id": "t1",
            "namespace": "default",
            "state": "scheduled",
            "revision": 1,
            "attempts": 0,
            "executeAt": "2026-12-21T00:00:00.000Z",
            "nextAttemptAt": "2026-12-21T00:00:00.000Z",
            "firedAt": None,
            "createdAt": "2026-12-20T15:30:00.000Z",
            "updatedAt": "2026-12-20T15:30:00.000Z",
            "failure": None,
            "callbackUrl": "http://receiver.test/callback",
            "callbackTimeoutSeconds": 30,
            "expireAfter": None,
            "correlationId": None,
            "tags": [],
            "headers": None,
            "retryPolicy": None,
            "payload": None,
        }
        assert world.api.read("t1").text == answer.text
        assert [timer.timer_id for timer in world.stored] == ["t1"]

    def test_what_was_given_comes_back(self, api: Api) -> None:
        given = {
            "callbackTimeoutSeconds": 5,
            "expireAfter": "1h30m",
            "correlationId": "order 7 ☃",
            "tags": ["b", "a"],
            "headers": {"X-Key": "välue"},
            "retryPolicy": {"maxAttempts": 3, "initialInterval": "1m"},
            "payload": {"a": [1, 2.5, None]},
        }
        created = api.create(GOOD | given).json()
        assert given.items() <= created.items()

    def test_an_id_is_made_when_none_is_given(self, api: Api) -> None:
        first, second = api.create(GOOD), api.create(GOOD)
        assert [first.status, second.status] == [201, 201]
        assert first.json()["id"] != second.json()["id"]

    def test_the_same_content_again_is_the_same_timer(self, world: World) -> None:
        first = world.api.create(GOOD | {"id": "t1", "payload": {"a": 1}})
        world.clock.advance(60)
        again = world.api.create(GOOD | {"id": "t1", "payload": {"a": 1}})
        assert (again.status, again.text) == (200, first.text)
        assert len(world.stored) == 1

    def test_the_same_delay_again_is_the_same_timer(self, world: World) -> None:
        body = {"id": "t1", "delay": "5m", "callbackUrl": GOOD["callbackUrl"]}
        first = world.api.create(body)
        world.clock.advance(60)
        assert world.api.create(body).text == first.text
        assert first.json()["executeAt"] == "2026-12-20T15:35:00.000Z"

    @pytest.mark.parametrize("change", [{"payload": 1}, {"tags": ["x"]}, {"executeAt": "2026-12-22T00:00:00Z"}])
    def test_other_content_is_a_conflict(self, world: World, change: dict[str, Any]) -> None:
        first = world.api.create(GOOD | {"id": "t1"})
        answer = world.api.create(GOOD | {"id": "t1"} | change)
        assert (answer.status, answer.code) == (409, "timer_conflict")
        assert world.api.read("t1").text == first.text
        assert len(world.stored) == 1

    def test_a_past_time_is_due_at_once(self, world: World) -> None:
        answer = world.api.create(GOOD | {"id": "t1", "executeAt": "1970-01-01T00:00:00Z"})
        assert answer.json()["executeAt"] == "1970-01-01T00:00:00.000Z"
        page = world.store.due_timers(world.timer("t1").shard_id, until=world.clock.now(), limit=10)
        assert [timer.timer_id for timer in page.timers] == ["t1"]

    @pytest.mark.parametrize(
        ("given", "kept"),
        [
            ("2026-12-20T16:30:00.1+01:00", "2026-12-20T15:30:00.100Z"),
            ("2026-12-20t10:00:00.000000001-05:30", "2026-12-20T15:30:00.001Z"),
            ("9999-12-31T23:59:59.999Z", "9999-12-31T23:59:59.999Z"),
        ],
    )
    def test_times_are_kept_in_utc_and_milliseconds(self, api: Api, given: str, kept: str) -> None:
        assert api.create(GOOD | {"executeAt": given}).json()["executeAt"] == kept

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "callbackUrl"),
            ({"callbackUrl": "http://x"}, "executeAt"),
            (GOOD | {"delay": "5s"}, "executeAt"),
            (GOOD | {"executeAt": "2026-12-20T15:30:00"}, "executeAt"),
            (GOOD | {"executeAt": "9999-12-31T23:59:59.9999Z"}, "executeAt"),
            ({"delay": "100d", "callbackUrl": "http://x", "colour": 1}, "colour"),
            (GOOD | {"id": ""}, "id"),
            (GOOD | {"id": "a/b"}, "id"),
            (GOOD | {"id": "a\nb"}, "id"),
            (GOOD | {"id": "x" * 256}, "id"),
            (GOOD | {"id": "🙂" * 255}, "id"),
            (GOOD | {"headers": {"Host": "x"}}, "headers.Host"),
        ],
    )
    def test_bad_input_is_named_and_nothing_is_stored(self, world: World, body: dict[str, Any], field: str) -> None:
        answer = world.api.create(body)
        assert (answer.status, answer.code) == (400, "invalid_input")
        assert field in answer.faults
        assert world.api.all_pages() == []

    def test_a_delay_beyond_the_calendar_is_refused(self, world: World) -> None:
        world.clock.advance(7900 * 365.2425 * 86_400)
        assert world.api.create({"delay": "36500d", "callbackUrl": "http://x"}).faults.keys() == {"delay"}

    @pytest.mark.parametrize(
        "body",
        ["", "{", "[]", "null", '{"a":NaN}', '{"a":1}}', b'{"a":"\xff"}', "\ufeff{}", '{"a":"\\ud800"}'],
    )
    def test_what_is_not_json_is_refused(self, api: Api, body: str | bytes) -> None:
        answer = api.create(body)
        assert (answer.status, answer.code) == (400, "invalid_input")

    def test_another_content_type_is_refused(self, api: Api) -> None:
        answer = api.create(GOOD, headers={"content-type": "application/x-www-form-urlencoded"})
        assert (answer.status, answer.code) == (415, "unsupported_media_type")

    def test_a_body_has_a_limit(self, api: Api) -> None:
        answer = api.create(GOOD | {"tags": ["x" * 1024 * 1024]})
        assert (answer.status, answer.code) == (413, "payload_too_large")

    def test_the_namespace_must_exist(self, api: Api) -> None:
        for name in ("other", "Not%20A%20Name", "x" * 64):
            answer = api.call("POST", f"/v1/namespaces/{name}/timers", GOOD)
            assert (answer.status, answer.code) == (404, "namespace_not_found")


class TestPayload:
    @settings(max_examples=40, deadline=None)
    @given(st.lists(json_texts(), min_size=1, max_size=5))
    def test_the_text_survives_every_way_in(self, texts: list[str]) -> None:
        with api_world() as world:
            for number, text in enumerate(texts):
                body = f'{{"callbackUrl":"http://x","payload" : {text} ,"executeAt":"2026-12-21T00:00:00Z"}}'
                expected = f'"payload":{text}}}'
                assert world.api.put(f"t{number}", body).text.endswith(expected)
                assert world.api.read(f"t{number}").text.endswith(expected)
                world.api.put(f"p{number}", GOOD)
                assert world.api.patch(f"p{number}", f'{{"payload":{text}}}').text.endswith(expected)
                batch = f'{{"timers":[{{"id":"b{number}",{body[1:]}]}}'
                assert world.api.call("POST", f"{world.api.timers}/batch", batch).status == 200
                assert world.api.read(f"b{number}").text.endswith(expected)

    @pytest.mark.parametrize(
        "text",
        ["1.0", "1", "-0", "-0.0", "1e400", "9" * 5000, '""', '{"a":1,"a":2}', '"\\u0000"', "[ 1 , 2 ]", '"☃🙂"'],
    )
    def test_values_that_do_not_survive_a_float(self, world: World, text: str) -> None:
        world.api.put("t1", f'{{"callbackUrl":"http://x","executeAt":"2026-12-21T00:00:00Z","payload":{text}}}')
        assert world.timer("t1").content.payload_json == text

    def test_null_and_none_are_the_same(self, api: Api) -> None:
        api.put("t1", GOOD | {"id": "t1", "payload": None})
        assert api.create(GOOD | {"id": "t1"}).status == 200

    @pytest.mark.parametrize("character", ["x", "é"])
    def test_the_limit_counts_bytes_of_utf8(self, api: Api, character: str) -> None:
        number = (MAX_PAYLOAD_BYTES - 2) // len(character.encode())
        fits = f'{{"callbackUrl":"http://x","delay":1,"payload":"{character * number}"}}'
        assert api.create(fits).status == 201
        answer = api.create(fits.replace(character + '"', character * 2 + '"'))
        assert (answer.status, answer.code) == (413, "payload_too_large")
        assert answer.faults.keys() == {"payload"}


class TestPut:
    def test_it_creates_and_replaces(self, world: World) -> None:
        assert world.api.put("t1", GOOD | {"payload": 1, "tags": ["x"]}).status == 201
        world.clock.advance(60)
        answer = world.api.put("t1", GOOD | {"payload": 2})
        assert (answer.status, answer.headers["etag"]) == (200, '"2"')
        assert answer.json()["tags"] == []
        assert answer.json()["createdAt"] == format_instant(NOW)
        assert [timer.revision for timer in world.stored] == [1, 2]

    def test_the_same_content_again_is_a_replacement_too(self, api: Api) -> None:
        assert [api.put("t1", GOOD).json()["revision"] for _ in range(2)] == [1, 2]

    @pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.FAILED, TimerState.FIRING])
    def test_it_replaces_in_any_state(self, world: World, state: TimerState) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        answer = world.api.put("t1", GOOD)
        assert answer.json()["state"] == "scheduled"
        assert answer.json()["nextAttemptAt"] == "2026-12-21T00:00:00.000Z"
        assert answer.json()["attempts"] == 0

    def test_the_body_may_repeat_the_id(self, api: Api) -> None:
        assert api.put("t1", GOOD | {"id": "t1"}).status == 201
        assert api.put("t1", GOOD | {"id": "t2"}).faults.keys() == {"id"}

    def test_if_match(self, api: Api) -> None:
        api.put("t1", GOOD)
        assert api.put("t1", GOOD, headers={"if-match": '"1"'}).headers["etag"] == '"2"'
        for value in ('"1"', '"x"', 'W/"2"', '"1", "3"'):
            answer = api.put("t1", GOOD, headers={"if-match": value})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), value
        assert api.put("t1", GOOD, headers={"if-match": '"1", "2"'}).headers["etag"] == '"3"'
        assert api.put("t1", GOOD, headers={"if-match": "*"}).headers["etag"] == '"4"'

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
        assert (read["state"], read["nextAttemptAt"], read["firedAt"]) == ("fired", None, format_instant(NOW))

    def test_a_failed_timer_says_why(self, world: World) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", TimerState.FAILED)
        assert world.api.read("t1").json()["failure"] == {
            "reason": "http_status",
            "message": "the receiver answered 503",
            "status": 503,
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
            "callbackTimeoutSeconds": 9,
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


class TestDelete:
    def test_it_cancels(self, api: Api) -> None:
        api.put("t1", GOOD)
        answer = api.delete("t1")
        assert answer.status == 200
        assert answer.json() == {"id": "t1", "namespace": "default", "attemptUnderWay": False}
        assert api.read("t1").status == 404
        assert api.delete("t1").code == "timer_not_found"

    @pytest.mark.parametrize("state", [TimerState.FIRED, TimerState.FAILED])
    def test_a_finished_timer_is_removed(self, world: World, state: TimerState) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", state)
        assert world.api.delete("t1").json()["attemptUnderWay"] is False

    def test_a_due_timer_may_be_under_way(self, api: Api) -> None:
        api.put("t1", DUE_NOW)
        assert api.delete("t1").json()["attemptUnderWay"] is True

    def test_a_parked_timer_is_under_way(self, world: World) -> None:
        world.api.put("t1", DUE_NOW)
        stored_as(world, "t1", TimerState.FIRING)
        assert world.api.delete("t1").json()["attemptUnderWay"] is True

    def test_if_match(self, api: Api) -> None:
        api.put("t1", GOOD)
        for value in ('"2"', '"x"', '"2","3"'):
            answer = api.delete("t1", headers={"if-match": value})
            assert (answer.status, answer.code) == (412, "revision_mismatch"), value
        assert api.delete("t1", headers={"if-match": '"1"'}).status == 200
        assert api.delete("t1", headers={"if-match": "*"}).status == 404


class TestIds:
    @pytest.mark.parametrize(
        "timer_id",
        [
            "plain",
            "ümläut",
            "🙂🙂",
            "a#b",
            "a b",
            "a+b",
            "a?b=c",
            "100%",
            "%41",
            "a%2Fb",
            "batch",
            "..",
            ".",
            "x" * 255,
            "~'\"<>",
        ],
    )
    def test_every_id_can_be_addressed(self, world: World, timer_id: str) -> None:
        api = world.api
        created = api.create(GOOD | {"id": timer_id})
        assert created.status == 201
        assert world.timer(timer_id).timer_id == timer_id
        assert api.read(timer_id).json()["id"] == timer_id
        assert api.get(created.headers["location"]).text == created.text
        assert api.patch(timer_id, {"tags": ["a"]}).json()["revision"] == 2
        assert api.put(timer_id, GOOD).json()["revision"] == 3
        assert api.delete(timer_id).status == 200

    @pytest.mark.parametrize("segment", ["a%2Fb", "a%00b", "a%0Ab", "x" * 256, "%F0%9F%99%82" * 255, "base64url:!"])
    @pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
    def test_what_cannot_be_an_id_is_refused(self, api: Api, method: str, segment: str) -> None:
        answer = api.call(method, f"{api.timers}/{segment}", GOOD if method == "PUT" else {})
        assert (answer.status, answer.code) == (400, "invalid_input")
        assert answer.faults.keys() == {"id"}

    @settings(max_examples=50, deadline=None)
    @given(
        st.text(
            alphabet=st.characters(exclude_categories=["Cs", "Cc"], exclude_characters="/"), min_size=1, max_size=30
        ),
        st.datetimes(MIN_INSTANT.replace(tzinfo=None), MAX_INSTANT.replace(tzinfo=None)),
        st.integers(-23 * 60, 23 * 60),
    )
    def test_ids_and_times_survive(self, timer_id: str, local: Any, offset_minutes: int) -> None:
        sign = "-" if offset_minutes < 0 else "+"
        hours, minutes = divmod(abs(offset_minutes), 60)
        text = f"{local.isoformat(timespec='microseconds')}{sign}{hours:02}:{minutes:02}"
        with api_world() as world:
            answer = world.api.put(timer_id, GOOD | {"executeAt": text})
            try:
                expected = parse_instant(text)
            except ValueError:
                assert answer.faults.keys() == {"executeAt"}
                return
            assert answer.json()["id"] == timer_id
            assert answer.json()["executeAt"] == format_instant(expected)
            assert world.timer(timer_id).content.execute_at == expected


def test_a_busy_timer_is_not_waited_for_for_ever(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """``If-Match: *`` is about the revision of the moment; somebody who always comes first must not block."""
    world.api.put("t1", GOOD)
    read = world.store.get_timer

    def read_and_be_overtaken(*args: Any, **more: Any) -> Timer | None:
        timer = read(*args, **more)
        other = make_timer(world.namespace, "t1")
        world.store.put_timers([other], mode=PutMode.REPLACE, now=world.clock.now())
        return timer

    monkeypatch.setattr(world.store, "get_timer", read_and_be_overtaken)
    answer = world.api.delete("t1", headers={"if-match": "*"})
    assert (answer.status, answer.code) == (503, "store_unavailable")
