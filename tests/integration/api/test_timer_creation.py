"""Creating one timer: what is accepted, what is refused, and that ids and payloads survive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duetime.api.http.parsing import MAX_BODY_BYTES
from duetime.domain.timers import MAX_PAYLOAD_BYTES
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, format_instant, parse_instant
from tests.support.api import World, api_world
from tests.support.http import Api
from tests.support.json_text import json_texts

DEFAULT_POLICY = {
    "maxAttempts": 10,
    "maxAttemptsDuration": "1d",
    "initialInterval": "2s",
    "backoffMultiplier": 2,
    "maxInterval": "1h",
    "escalateUrl": None,
    "escalateTarget": None,
}
GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}


class TestCreate:
    def test_a_timer_is_created(self, world: World) -> None:
        answer = world.api.create(GOOD | {"id": "t1"})
        assert answer.status == 201
        assert answer.headers["location"] == "/v1/namespaces/default/timers/t1"
        assert answer.headers["etag"] == '"1"'
        assert answer.json() == {
            "id": "t1",
            "namespace": "default",
            "state": "Scheduled",
            "revision": 1,
            "attempts": 0,
            "executeAt": "2026-12-21T00:00:00.000Z",
            "localTime": None,
            "timeZone": None,
            "nextAttemptAt": "2026-12-21T00:00:00.000Z",
            "firedAt": None,
            "createdAt": "2026-12-20T15:30:00.000Z",
            "updatedAt": "2026-12-20T15:30:00.000Z",
            "failure": None,
            "callbackUrl": "http://receiver.test/callback",
            "target": None,
            "timeoutSeconds": 30,
            "expireAfter": None,
            "correlationId": None,
            "tags": [],
            "headers": None,
            "retryPolicy": DEFAULT_POLICY,
            "payload": None,
        }
        assert world.api.read("t1").text == answer.text
        assert [timer.timer_id for timer in world.stored] == ["t1"]

    def test_what_was_given_comes_back(self, api: Api) -> None:
        given = {
            "timeoutSeconds": 5,
            "expireAfter": "1h30m",
            "correlationId": "order 7 ☃",
            "tags": ["b", "a"],
            "headers": {"X-Key": "välue"},
            "retryPolicy": DEFAULT_POLICY | {"maxAttempts": 3, "initialInterval": "1m"},
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
        page = world.store.timers.due(world.timer("t1").shard_id, until=world.clock.now(), limit=10)
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
            (GOOD | {"headers": {"Webhook_Signature": "x"}}, "headers.Webhook_Signature"),
        ],
    )
    def test_bad_input_is_named_and_nothing_is_stored(self, world: World, body: dict[str, Any], field: str) -> None:
        answer = world.api.create(body)
        assert (answer.status, answer.code) == (400, "invalid_input")
        assert field in answer.faults
        assert world.api.all_pages() == []

    @pytest.mark.parametrize(
        ("members", "field"),
        [
            ({"id": 5}, "id"),
            ({"executeAt": 5}, "executeAt"),
            ({"executeAt": "2026-12-20T15:30:60Z"}, "executeAt"),
            ({"executeAt": "10000-01-01T00:00:00Z"}, "executeAt"),
            *(({"delay": delay}, "delay") for delay in ("soon", -1, True)),
            *(({"timeoutSeconds": seconds}, "timeoutSeconds") for seconds in (0, 901, "30", True)),
            *(({"correlationId": text}, "correlationId") for text in ("", "x" * 256, "a\r\nb: c")),
            ({"tags": "a"}, "tags"),
            ({"tags": [""]}, "tags[0]"),
            ({"tags": ["a", "x" * 129]}, "tags[1]"),
            ({"tags": ["a", 1]}, "tags[1]"),
            ({"tags": ["a", "a"]}, "tags"),
            ({"tags": [str(n) for n in range(21)]}, "tags"),
            ({"retryPolicy": []}, "retryPolicy"),
            *(({"retryPolicy": {"maxAttempts": number}}, "retryPolicy.maxAttempts") for number in (0, 1.5)),
            ({"retryPolicy": {"initialInterval": "x"}}, "retryPolicy.initialInterval"),
            ({"retryPolicy": {"colour": 1}}, "retryPolicy.colour"),
            ({"retryPolicy": {"maxAttempts": 1, " " * 3000: 1}}, "retryPolicy"),
            ({"headers": ["a"]}, "headers"),
            ({"headers": {"a b": "x"}}, "headers.a b"),
            ({"headers": {"": "x"}}, "headers."),
            ({"headers": {"X-A\r\nEvil": "1"}}, "headers.X-A\r\nEvil"),
            *(({"headers": {"X-A": value}}, "headers.X-A") for value in (1, "a\r\nEvil: 1", "a\n", "a\r", "\0", "☃")),
            ({"headers": {"X-A": "1", "x-a": "2"}}, "headers.x-a"),
            ({"headers": {f"X-{n}": "" for n in range(33)}}, "headers"),
            ({"headers": {"X-A": "x" * 8192}}, "headers"),
            *(
                ({"headers": {name: "x"}}, f"headers.{name}")
                for name in (
                    *("Connection", "Keep-Alive", "Proxy-Authorization", "Proxy-Connection", "TE", "Trailer"),
                    *("Transfer-Encoding", "Upgrade", "hOsT", "content-length", "Content-Type"),
                    *("Webhook-Id", "webhook-signature", "webhook-anything"),
                )
            ),
        ],
    )
    def test_a_faulty_member_is_named(self, world: World, members: dict[str, Any], field: str) -> None:
        answer = world.api.create(GOOD | members)
        assert (answer.status, field in answer.faults) == (400, True)
        assert world.api.all_pages() == []

    def test_all_faults_are_named_at_once(self, api: Api) -> None:
        faulty = {"executeAt": "tomorrow", "callbackUrl": "ftp://x", "colour": "red", "tags": "a"}
        assert api.create(faulty).faults.keys() == faulty.keys()

    def test_a_name_twice_is_refused_at_any_depth(self, api: Api) -> None:
        for member in ('"headers":{"X-A":"1","X-A":"2"}', '"retryPolicy":{"maxAttempts":1,"maxAttempts":2}'):
            assert "twice" in api.create(f"{json.dumps(GOOD)[:-1]},{member}}}").text

    def test_null_is_the_same_as_leaving_out(self, api: Api) -> None:
        names = ("delay", "payload", "headers", "retryPolicy", "timeoutSeconds", "correlationId", "tags")
        api.create(GOOD | {"id": "t1"})
        assert api.create(GOOD | {"id": "t1"} | dict.fromkeys(names)).status == 200

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
        fits = json.dumps(GOOD | {"tags": ["é"]}, ensure_ascii=False)
        fits = fits.rjust(MAX_BODY_BYTES - 1)
        assert api.create(fits).status == 201
        answer = api.create(" " + fits)
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
