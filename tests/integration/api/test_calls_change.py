"""Changing service calls."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.domain.service_calls import CallStatus
from duetime.domain.times import format_instant
from duetime.testing.contract.builders import seconds
from tests.support.call_api import URL, CallWorld
from tests.support.clock import NOW

HEADERS = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y", "Cookie": "c00kie", "Accept": "text/csv"}
REQUEST = {"method": "POST", "url": f"{URL}?token=t0ken", "headers": HEADERS, "body": [1.0, "x"]}


def test_what_is_given_is_changed_and_the_rest_stays(calls: CallWorld) -> None:
    before = calls.submitted(request=REQUEST, delay="1h", tags=["a"])
    calls.clock.advance(1)
    answer = calls.patch(before["id"], {"name": "new", "tags": ["b", "c"], "starred": True})
    after = answer.json()
    assert (answer.status, answer.headers["etag"]) == (200, '"2"')
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"name", "tags", "starred", "revision", "updatedAt"}
    assert (after["name"], after["tags"], after["starred"], after["revision"]) == ("new", ["b", "c"], True, 2)
    assert calls.patch(before["id"], {"tags": None}).json()["tags"] == []


def test_a_new_due_time_sets_the_timer_anew(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    calls.clock.advance(10)
    after = calls.patch(call_id, {"dueAt": "2027-01-01T00:00:00Z"}).json()
    assert after["dueAt"] == after["nextAttemptAt"] == "2027-01-01T00:00:00.000Z"
    assert after["timer"]["registeredAt"] == format_instant(NOW + seconds(10))
    assert calls.patch(call_id, {"delay": "5s"}).json()["dueAt"] == format_instant(NOW + seconds(15))
    assert [timer.revision for timer in calls.stored] == [1, 2, 3]
    events = calls.api.get(calls.path(call_id, "events")).json()["items"]
    assert [event["type"] for event in events] == [
        "ServiceCallSubmitted",
        "ServiceCallScheduled",
        *["ServiceCallUpdated", "ServiceCallScheduled"] * 2,
    ]


def test_a_request_is_merged_member_by_member(calls: CallWorld) -> None:
    """So a secret that reads hide need not be given again, nor can it be lost by mistake."""
    call_id = calls.submitted(request=REQUEST, delay="1h")["id"]
    headers_json = calls.call(call_id).request.headers_json
    assert calls.patch(call_id, {"request": {"url": f"{URL}/2"}}).status == 200
    stored = calls.call(call_id).request
    assert (stored.url, stored.headers_json, stored.body_json) == (f"{URL}/2", headers_json, '[1.0, "x"]')
    assert calls.patch(call_id, '{"request":{"method":"PUT","body":1.50}}').status == 200
    stored = calls.call(call_id).request
    assert (stored.method, stored.body_json, stored.body_bytes) == ("PUT", "1.50", 4)
    assert stored.headers_json == headers_json
    shown = calls.patch(call_id, {"request": {"headers": None, "body": None}}).json()["request"]
    assert shown == {
        "method": "PUT",
        "url": f"{URL}/2",
        "target": None,
        "headers": None,
        "bodyBytes": 0,
        "body": None,
    }


@pytest.mark.parametrize("body", [{}, {"name": "report"}, {"starred": False, "tags": []}, {"request": {}}])
def test_a_change_that_changes_nothing_leaves_the_revision(calls: CallWorld, body: dict[str, Any]) -> None:
    call = calls.submitted()
    assert calls.patch(call["id"], body).json() == call
    assert len(calls.stored) == 1


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"name": None}, "name"),
        ({"starred": None}, "starred"),
        ({"dueAt": None}, "dueAt"),
        ({"delay": None}, "delay"),
        ({"request": None}, "request"),
        ({"request": {"method": None}}, "request.method"),
        ({"request": {"url": None}}, "request.url"),
        ({"request": {"url": "http://10.0.0.1/"}}, "request.url"),
        ({"request": {"headers": {"Host": "a"}}}, "request.headers.Host"),
        ({"request": {"headers": {"Authorization": "[redacted]"}}}, "request.headers.Authorization"),
        ({"request": {"more": 1}}, "request.more"),
        ({"tags": ["a", "a"]}, "tags"),
        ({"dueAt": "2027-01-01T00:00:00Z", "delay": 1}, "dueAt"),
        ({"timeoutSeconds": 5}, "timeoutSeconds"),
        ({"idempotencyKey": "k"}, "idempotencyKey"),
        ({"status": "Failed"}, "status"),
    ],
)
def test_a_bad_change_names_its_field_and_changes_nothing(calls: CallWorld, body: dict[str, Any], field: str) -> None:
    call = calls.submitted(delay="1h")
    answer = calls.patch(call["id"], body)
    assert (answer.status, list(answer.faults)) == (400, [field])
    assert calls.api.get(calls.path(call["id"])).json() == call


def test_a_body_that_grows_too_large_is_refused(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    answer = calls.patch(call_id, {"request": {"body": "x" * 256 * 1024}})
    assert (answer.status, list(answer.faults)) == (413, ["request.body"])


@pytest.mark.parametrize("status", [CallStatus.RUNNING, CallStatus.SUCCEEDED, CallStatus.FAILED])
def test_labels_can_be_changed_always_due_time_and_request_only_while_nothing_is_in_flight(
    calls: CallWorld, status: CallStatus
) -> None:
    call_id = calls.submitted()["id"]
    calls.begin(call_id)
    if status.is_finished:
        calls.finish(call_id, is_ok=status is CallStatus.SUCCEEDED)
    changes: list[dict[str, Any]] = [
        {"dueAt": "2027-01-01T00:00:00Z"},
        {"delay": 1},
        {"request": {}},
        {"request": {"body": 1}},
    ]
    for body in changes:
        answer = calls.patch(call_id, body | {"starred": True})
        code = "service_call_finished" if status.is_finished else "service_call_running"
        assert (answer.status, answer.code) == (409, code)
    assert not calls.call(call_id).starred
    after = calls.patch(call_id, {"starred": True, "tags": ["t"], "name": "n"}).json()
    assert (after["status"], after["starred"], after["tags"], after["name"]) == (status, True, ["t"], "n")


def test_a_star_keeps_a_finished_call(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert calls.patch(call_id, {"starred": True}).json()["expiresAt"] is None
    calls.clock.advance(100_000)
    assert calls.api.get(calls.path(call_id)).status == 200
    assert calls.patch(call_id, {"starred": False}).json()["expiresAt"] == format_instant(NOW + seconds(3600))
    assert calls.api.get(calls.path(call_id)).status == 404


@pytest.mark.parametrize(
    ("condition", "status"), [('"1"', 200), ('"1","9"', 200), ("*", 200), ('"2"', 412), ('W/"1"', 412)]
)
def test_a_change_and_a_removal_can_be_conditional(calls: CallWorld, condition: str, status: int) -> None:
    headers = {"if-match": condition}
    one, two, three = (calls.submitted(delay="1h")["id"] for _ in range(3))
    assert calls.patch(one, {"name": "new"}, headers=headers).status == status
    assert calls.patch(one, {}, headers={"if-match": '"7"'}).status == 412
    assert calls.post(two, "fire", headers=headers).status == status
    assert calls.post(three, "cancel", headers=headers).status == status
    revision = calls.call(three).revision
    assert calls.delete(three, headers={"if-match": '"7"'}).status == 412
    if status == 200:
        assert calls.delete(three, headers={"if-match": f'"{revision}"'}).status == 204
    assert calls.patch(one, {}, headers={"if-match": "1"}).status == 400
    assert calls.delete(one, headers={"if-match": "1"}).status == 400
