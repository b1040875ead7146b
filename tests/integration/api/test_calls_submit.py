"""Submitting service calls: what is accepted, what is refused, and that a repeat is one call."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

from duetime.delivery.egress import EgressPolicy
from duetime.domain.service_calls import MAX_BODY_BYTES, MAX_NAME_CHARACTERS, Method, timer_of
from duetime.domain.times import format_instant
from duetime.testing.contract.builders import seconds
from tests.support.call_api import BODY, OTHER, TENANT, URL, CallWorld, call_world
from tests.support.clock import NOW

ONE_ATTEMPT = {
    "maxAttempts": 1,
    "maxAttemptsDuration": "1d",
    "initialInterval": "2s",
    "backoffMultiplier": 2,
    "maxInterval": "1h",
}
"""The policy of a call that was given none."""


def test_the_least_that_can_be_submitted_is_due_now(calls: CallWorld) -> None:
    answer = calls.submit()
    call = answer.json()
    assert answer.status == 202
    assert answer.headers["location"] == calls.path(call["id"])
    assert answer.headers["etag"] == '"1"'
    assert call == {
        "id": call["id"],
        "tenantId": TENANT,
        "name": "report",
        "status": "Scheduled",
        "revision": 1,
        "createdAt": format_instant(NOW),
        "updatedAt": format_instant(NOW),
        "dueAt": format_instant(NOW),
        "startedAt": None,
        "finishedAt": None,
        "expiresAt": None,
        "attempts": 0,
        "nextAttemptAt": format_instant(NOW),
        "executionId": None,
        "outcome": None,
        "tags": [],
        "starred": False,
        "correlationId": call["correlationId"],
        "idempotencyKey": None,
        "rerunOf": None,
        "timer": {
            "state": "Scheduled",
            "registeredAt": format_instant(NOW),
            "reachedAt": None,
            "correlationId": call["correlationId"],
        },
        "timeoutSeconds": 30,
        "retryPolicy": ONE_ATTEMPT,
        "request": {"method": "GET", "url": URL, "target": None, "headers": None, "bodyBytes": 0, "body": None},
    }
    assert calls.api.get(answer.headers["location"]).json() == call
    assert calls.stored == [timer_of(calls.call(call["id"]))]


def test_all_that_can_be_given_is_kept(calls: CallWorld) -> None:
    body = {
        "name": "ünïcødé 🎉",
        "request": {
            "method": "PATCH",
            "url": "https://receiver.test:8443/a?b=c",
            "headers": {"X-A": "é", "Content-Type": "text/csv"},
            "body": {"n": 1},
        },
        "dueAt": "2026-12-21T01:00:00.0001+01:00",
        "tags": ["a", "ß"],
        "starred": True,
        "idempotencyKey": "key 1",
        "timeoutSeconds": 900,
        "retryPolicy": ONE_ATTEMPT | {"maxAttempts": 3},
        "correlationId": "c1",
    }
    call = calls.submit(body).json()
    given = {name: call[name] for name in ("name", "tags", "starred", "idempotencyKey", "timeoutSeconds")}
    assert given == {name: body[name] for name in given}
    assert call["request"] == {**body["request"], "target": None, "bodyBytes": 8}  # type: ignore[dict-item]
    assert call["dueAt"] == call["nextAttemptAt"] == "2026-12-21T00:00:00.001Z"
    assert (call["retryPolicy"], call["correlationId"]) == (body["retryPolicy"], "c1")
    stored = calls.call(call["id"])
    assert (stored.request.method, stored.tags, stored.starred) == (Method.PATCH, ("a", "ß"), True)


@pytest.mark.parametrize("text", ["1.0", "1e400", "-0", "12345678901234567890123", '{"a": 1, "a": 2}', '"x"', "[]"])
def test_the_text_of_a_body_is_not_touched(calls: CallWorld, text: str) -> None:
    answer = calls.submit(f'{{"name":"n","request":{{"url":"{URL}","body": {text} ,"method":"POST"}}}}')
    assert answer.status == 202, answer
    assert f'"body":{text}}}' in answer.text
    assert calls.call(json.loads(answer.text, parse_int=str)["id"]).request.body_json == text


@pytest.mark.parametrize("value", ["null", "{}"])
def test_null_is_the_same_as_leaving_out(calls: CallWorld, value: str) -> None:
    names = ("dueAt", "delay", "tags", "starred", "idempotencyKey", "timeoutSeconds", "retryPolicy", "correlationId")
    nulls = "".join(f',"{name}":null' for name in names) if value == "null" else ""
    inner = ',"headers":null,"body":null' if value == "null" else ""
    text = f'{{"name":"n","request":{{"method":"GET","url":"{URL}"{inner}}}{nulls}}}'
    assert calls.submit(text).status == 202


def test_a_delay_counts_from_now(calls: CallWorld) -> None:
    assert calls.submitted(delay="1h30m")["dueAt"] == format_instant(NOW + seconds(5400))
    assert calls.submitted(dueAt="1999-01-01T00:00:00Z")["dueAt"] == "1999-01-01T00:00:00.000Z"


def test_ids_are_those_of_the_time_of_submission(calls: CallWorld) -> None:
    ids = []
    for _ in range(5):
        ids.append(calls.submitted()["id"])
        calls.clock.advance(0.001)
    assert ids == sorted(ids)


# -- correlation ids ---------------------------------------------------------------------------------------------


def test_a_correlation_id_comes_from_the_body_the_header_or_is_made(calls: CallWorld) -> None:
    header = {"x-correlation-id": "from header"}
    assert calls.submitted(correlationId="c1", headers=header)["correlationId"] == "c1"
    assert calls.submitted(headers=header)["correlationId"] == "from header"
    made = [calls.submitted()["correlationId"] for _ in range(2)]
    assert len(set(made)) == 2
    assert calls.submitted(headers={"x-correlation-id": ""})["correlationId"]


@pytest.mark.parametrize("of_header", ["x" * 256, "Zoë"])
@pytest.mark.parametrize("of_body", [None, "c1"])
def test_a_correlation_id_that_cannot_be_one_names_its_header(
    calls: CallWorld, of_body: str | None, of_header: str
) -> None:
    wrong = {"x-correlation-id": of_header}
    call_id = calls.submitted()["id"]
    for answer in (
        calls.submit(correlationId=of_body, headers=wrong),
        calls.post(call_id, "rerun", {"correlationId": of_body}, headers=wrong),
    ):
        assert (answer.status, list(answer.faults)) == (400, ["X-Correlation-Id"])


# -- idempotency -------------------------------------------------------------------------------------------------


def test_the_same_key_and_content_is_the_same_call(calls: CallWorld) -> None:
    body = BODY | {"idempotencyKey": "k", "delay": "1h", "tags": ["a"], "retryPolicy": {"maxAttempts": 2}}
    first = calls.submit(body)
    calls.clock.advance(60)
    again = calls.submit(body, headers={"x-correlation-id": "another hop"})
    assert (first.status, again.status) == (202, 200)
    assert again.text == first.text
    assert again.headers["location"] == first.headers["location"]
    assert len(calls.stored) == 1


def test_the_call_is_answered_as_it_is_now(calls: CallWorld) -> None:
    call = calls.submitted(idempotencyKey="k")
    calls.finish(call["id"])
    again = calls.submit(idempotencyKey="k")
    assert (again.status, again.json()["id"], again.json()["status"]) == (200, call["id"], "Succeeded")
    calls.api.call("PATCH", calls.path(call["id"]), {"name": "renamed", "tags": ["x"]})
    assert calls.submit(idempotencyKey="k").json()["name"] == "renamed"


@pytest.mark.parametrize(
    "other",
    [
        {"name": "other"},
        {"request": {"method": "DELETE", "url": URL}},
        {"request": {"method": "GET", "url": URL + "/"}},
        {"request": {"method": "GET", "url": URL, "headers": {"A": "b"}}},
        {"request": {"method": "GET", "url": URL, "body": 1}},
        {"delay": "1s"},
        {"dueAt": "2027-01-01T00:00:00Z"},
        {"tags": ["a"]},
        {"starred": True},
        {"timeoutSeconds": 31},
        {"retryPolicy": {"maxAttempts": 2}},
        {"correlationId": "c"},
    ],
)
def test_other_content_under_a_key_is_a_conflict(calls: CallWorld, other: dict[str, Any]) -> None:
    call = calls.submitted(idempotencyKey="k")
    answer = calls.submit(idempotencyKey="k", **other)
    assert (answer.status, answer.code) == (409, "service_call_conflict")
    assert calls.api.get(calls.path(call["id"])).json() == call


def test_a_key_belongs_to_its_tenant(calls: CallWorld) -> None:
    one = calls.submitted(idempotencyKey="k")
    other = calls.submitted(idempotencyKey="k", tenant=OTHER, name="something else")
    assert one["id"] != other["id"]


def test_a_key_of_a_removed_call_can_be_used_again(calls: CallWorld) -> None:
    call = calls.submitted(idempotencyKey="k")
    calls.finish(call["id"])
    assert calls.api.call("DELETE", calls.path(call["id"])).status == 204
    assert calls.submitted(idempotencyKey="k", name="new")["id"] != call["id"]


def test_a_key_of_an_expired_call_can_be_used_again(calls: CallWorld) -> None:
    """Also before anybody has removed what has expired."""
    call = calls.submitted(idempotencyKey="k")
    calls.finish(call["id"])
    calls.clock.advance(3599.999)
    assert calls.submit(idempotencyKey="k").status == 200
    calls.clock.advance(0.001)
    assert calls.submitted(idempotencyKey="k", name="new")["id"] != call["id"]
    assert calls.submit(idempotencyKey="k", name="new").status == 200


@pytest.mark.parametrize("header", ["k", '"k"'])
def test_the_header_will_do_as_well(calls: CallWorld, header: str) -> None:
    call = calls.submitted(headers={"idempotency-key": header})
    assert call["idempotencyKey"] == "k"
    assert calls.submit(idempotencyKey="k").json()["id"] == call["id"]
    assert calls.submit(idempotencyKey="k", headers={"idempotency-key": header}).status == 200


def test_two_keys_are_one_too_many(calls: CallWorld) -> None:
    answer = calls.submit(idempotencyKey="a", headers={"idempotency-key": "b"})
    assert (answer.status, list(answer.faults)) == (400, ["idempotencyKey"])


@pytest.mark.parametrize("key", ["", " ", "x" * 256, "a ", "é", "a\tb"])
def test_a_key_that_cannot_be_one_is_refused(calls: CallWorld, key: str) -> None:
    assert list(calls.submit(idempotencyKey=key).faults) == ["idempotencyKey"]
    assert list(calls.submit(headers={"idempotency-key": key}).faults) == ["Idempotency-Key"]


def test_racing_submissions_with_one_key_are_one_call(calls: CallWorld) -> None:
    """The handler serves threads; SQLite decides who was first."""
    barrier = threading.Barrier(8)
    answers = []

    def submit(number: int) -> None:
        barrier.wait(10)
        name = "one" if number % 2 else "two"
        answers.append((name, calls.submit(name=name, idempotencyKey="k")))

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    (winner,) = [name for name, answer in answers if answer.status == 202]
    assert sorted(answer.status for name, answer in answers if name == winner) == [200, 200, 200, 202]
    assert [answer.status for name, answer in answers if name != winner] == [409] * 4
    ids = {answer.json()["id"] for name, answer in answers if name == winner}
    assert len(ids) == 1
    assert len(calls.stored) == 1


# -- what is refused ---------------------------------------------------------------------------------------------


def with_request(**members: Any) -> dict[str, Any]:
    request = {"method": "GET", "url": URL} | members
    return BODY | {"request": {name: value for name, value in request.items() if value is not ...}}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"request": BODY["request"]}, "name"),
        ({"name": "n"}, "request"),
        (BODY | {"name": ""}, "name"),
        (BODY | {"name": "x" * (MAX_NAME_CHARACTERS + 1)}, "name"),
        (BODY | {"name": "a\nb"}, "name"),
        (BODY | {"name": 1}, "name"),
        (BODY | {"request": "GET /"}, "request"),
        (BODY | {"request": None}, "request"),
        (BODY | {"request": []}, "request"),
        (with_request(method=...), "request.method"),
        (with_request(method="get"), "request.method"),
        (with_request(method="HEAD"), "request.method"),
        (with_request(method=1), "request.method"),
        (with_request(url=...), "request.url"),
        (with_request(url="ftp://receiver.test/"), "request.url"),
        (with_request(url="http://u:p@receiver.test/"), "request.url"),
        (with_request(url="http://receiver.test/#f"), "request.url"),
        (with_request(url="http://127.0.0.1/"), "request.url"),
        (with_request(url="http://[::ffff:10.0.0.1]/"), "request.url"),
        (with_request(url="http://2130706433/"), "request.url"),
        (with_request(url="http://receiver.test/" + "x" * 2048), "request.url"),
        (with_request(headers="a"), "request.headers"),
        (with_request(headers={"Host": "other"}), "request.headers.Host"),
        (with_request(headers={"content-length": "1"}), "request.headers.content-length"),
        (with_request(headers={"Transfer-Encoding": "chunked"}), "request.headers.Transfer-Encoding"),
        (with_request(headers={"X-Correlation-Id": "a"}), "request.headers.X-Correlation-Id"),
        (with_request(headers={"x_duetime_attempt": "a"}), "request.headers.x_duetime_attempt"),
        (with_request(headers={"Content_Length": "1"}), "request.headers.Content_Length"),
        (with_request(headers={"a b": "c"}), "request.headers.a b"),
        (with_request(headers={"a": "b\r\nc: d"}), "request.headers.a"),
        (with_request(headers={"a": 1}), "request.headers.a"),
        (with_request(headers={"a": "b", "A": "b"}), "request.headers.A"),
        (with_request(headers={"Authorization": "[redacted]"}), "request.headers.Authorization"),
        (with_request(headers={f"h{n}": "" for n in range(33)}), "request.headers"),
        (with_request(headers={"a": "x" * 8192}), "request.headers"),
        (with_request(query="x"), "request.query"),
        (BODY | {"dueAt": "2026-12-21T00:00:00"}, "dueAt"),
        (BODY | {"dueAt": 1}, "dueAt"),
        (BODY | {"delay": "soon"}, "delay"),
        (BODY | {"delay": "100000d"}, "delay"),
        (BODY | {"delay": 10**350}, "delay"),
        (BODY | {"delay": 1, "dueAt": "2026-12-21T00:00:00Z"}, "dueAt"),
        (BODY | {"tags": "a"}, "tags"),
        (BODY | {"tags": [str(n) for n in range(21)]}, "tags"),
        (BODY | {"tags": ["a", "b", "c", ""]}, "tags[3]"),
        (BODY | {"tags": ["a", "x" * 129]}, "tags[1]"),
        (BODY | {"tags": ["a", 1]}, "tags[1]"),
        (BODY | {"tags": ["a", "a"]}, "tags"),
        (BODY | {"starred": "yes"}, "starred"),
        (BODY | {"timeoutSeconds": 0}, "timeoutSeconds"),
        (BODY | {"timeoutSeconds": 901}, "timeoutSeconds"),
        (BODY | {"timeoutSeconds": 1.5}, "timeoutSeconds"),
        (BODY | {"retryPolicy": {"maxAttempts": 0}}, "retryPolicy.maxAttempts"),
        (BODY | {"retryPolicy": {"initialInterval": 10**350}}, "retryPolicy.initialInterval"),
        (BODY | {"retryPolicy": {"maxAttempts": 10**350}}, "retryPolicy.maxAttempts"),
        (BODY | {"retryPolicy": {"backoffMultiplier": 10**350}}, "retryPolicy.backoffMultiplier"),
        (BODY | {"timeoutSeconds": 10**350}, "timeoutSeconds"),
        (BODY | {"retryPolicy": {"attempts": 2}}, "retryPolicy.attempts"),
        (BODY | {"correlationId": ""}, "correlationId"),
        (BODY | {"id": "mine"}, "id"),
        (BODY | {"status": "Running"}, "status"),
    ],
)
def test_bad_input_names_its_field_and_stores_nothing(calls: CallWorld, body: dict[str, Any], field: str) -> None:
    answer = calls.submit(body)
    assert (answer.status, answer.code) == (400, "invalid_input"), answer
    assert list(answer.faults) == [field]
    assert not calls.has_calls()
    assert calls.stored == []


def test_all_faults_are_told_at_once(calls: CallWorld) -> None:
    answer = calls.submit({"request": {"method": "X", "url": "y", "more": 1}, "tags": [""], "x": 1})
    assert set(answer.faults) == {
        "name",
        "request.method",
        "request.url",
        "request.more",
        "tags[0]",
        "x",
    }


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", [""]),
        ("[]", [""]),
        ("{", [""]),
        ('{"name": NaN}', [""]),
        ('{"name":"a","name":"b"}', ["name"]),
        (f'{{"name":"a","request":{{"url":"{URL}","url":"{URL}"}}}}', ["request.url"]),
        ('{"request":{"body":"\\ud800","method":"\\udc00"}}', ["request.body", "request.method"]),
        ('{"name":"\\ud800"}', ["name"]),
        (f'{{"request":{{"body":{"[" * 100_000}{"]" * 100_000}}}}}', [""]),
    ],
)
def test_what_is_no_body_is_refused(calls: CallWorld, text: str, fields: list[str]) -> None:
    answer = calls.submit(text)
    assert answer.status == 400
    assert list(answer.faults) == fields


def test_a_body_of_the_request_has_a_limit_in_bytes(calls: CallWorld) -> None:
    fits = "é" * ((MAX_BODY_BYTES - 2) // 2)
    answer = calls.submit(json.dumps(with_request(method="POST", body=fits), ensure_ascii=False))
    assert (answer.status, answer.json()["request"]["bodyBytes"]) == (202, MAX_BODY_BYTES)
    answer = calls.submit(json.dumps(with_request(method="POST", body=fits + "a"), ensure_ascii=False))
    assert (answer.status, answer.code, list(answer.faults)) == (413, "payload_too_large", ["request.body"])
    assert calls.submit(b" " * (1024 * 1024 + 1)).status == 413  # type: ignore[arg-type]


def test_another_media_type_is_refused(calls: CallWorld) -> None:
    assert calls.submit(headers={"content-type": "text/plain"}).status == 415


def test_where_requests_may_go_is_what_the_policy_says() -> None:
    with call_world(egress=EgressPolicy(https_only=True, allow_hosts=("127.0.0.1",))) as world:
        assert list(world.submit().faults) == ["request.url"]
        assert world.submit(with_request(url="https://127.0.0.1/")).status == 202


@pytest.mark.parametrize("tenant", ["Acme", "a@b", "-", "x" * 56, "a%20b"])
def test_what_cannot_be_a_tenant_is_refused(calls: CallWorld, tenant: str) -> None:
    answer = calls.submit(tenant=tenant)
    assert (answer.status, list(answer.faults)) == (400, ["tenant"])


def test_the_timers_of_calls_are_in_a_namespace_that_no_client_sees(calls: CallWorld) -> None:
    calls.submitted()
    names = [item["name"] for item in calls.api.get("/v1/namespaces").json()["items"]]
    assert names == []
    assert calls.api.get(f"/v1/namespaces/calls@{TENANT}").status == 404
    assert calls.api.get(f"/v1/namespaces/calls%40{TENANT}/timers").status == 404
