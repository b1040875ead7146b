"""Removing, cancelling, firing and rerunning service calls."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from duetime.api.handler import build_handler
from duetime.api.routes import call_routes
from duetime.delivery.egress import EgressPolicy
from duetime.domain.service_calls import CallStatus
from duetime.domain.times import format_instant
from duetime.testing.contract.builders import seconds
from tests.support.call_api import URL, CallWorld
from tests.support.clock import NOW
from tests.support.http import Api

HEADERS = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y", "Cookie": "c00kie", "Accept": "text/csv"}
REQUEST = {"method": "POST", "url": f"{URL}?token=t0ken", "headers": HEADERS, "body": [1.0, "x"]}


# -- remove ------------------------------------------------------------------------------------------------------


def test_a_finished_call_is_removed_with_all_that_it_has(calls: CallWorld) -> None:
    cancelled, finished = calls.submitted()["id"], calls.submitted(idempotencyKey="k", tags=["t"])["id"]
    calls.finish(finished)
    calls.post(cancelled, "cancel")
    for call_id in (cancelled, finished):
        answer = calls.delete(call_id)
        assert (answer.status, answer.text) == (204, "")
        assert "content-type" not in answer.headers
        for path in ([], ["executions"], ["events"]):
            assert calls.api.get(calls.path(call_id, *path)).code == "service_call_not_found"
        assert calls.delete(call_id).status == 404


def test_a_removal_has_its_event_after_all_others(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert calls.delete(call_id).status == 204
    types = [str(stored.event.type) for stored in calls.store.outbox.unpublished(limit=100)]
    assert types[-2:] == ["ServiceCallSucceeded", "ServiceCallDeleted"]
    last = calls.store.outbox.unpublished(limit=100)[-1].event
    assert (last.sequence, last.payload_json) == (len(types), '{"reason":"request"}')


def test_what_has_not_ended_is_not_removed(calls: CallWorld) -> None:
    scheduled, running = calls.submitted()["id"], calls.submitted()["id"]
    calls.begin(running)
    for call_id, revision in ((scheduled, 1), (running, 2)):
        answer = calls.delete(call_id)
        assert (answer.status, answer.code) == (409, "service_call_not_finished")
        assert calls.delete(call_id, headers={"if-match": f'"{revision}"'}).status == 409
    assert (calls.call(scheduled).status, calls.call(running).status) == ("Scheduled", "Running")


# -- cancel and fire -----------------------------------------------------------------------------------------------


def between_attempts(calls: CallWorld) -> str:
    call_id: str = calls.submitted(retryPolicy={"maxAttempts": 5, "initialInterval": "1h"})["id"]
    calls.finish(call_id, is_ok=False)
    assert calls.call(call_id).is_waiting
    return call_id


def event_types(calls: CallWorld, call_id: str) -> list[str]:
    return [event["type"] for event in calls.api.get(calls.path(call_id, "events")).json()["items"]]


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_call_that_waits_is_cancelled_and_kept(calls: CallWorld, is_begun: bool) -> None:
    call_id = between_attempts(calls) if is_begun else calls.submitted(delay="1h", tags=["t"])["id"]
    answer = calls.post(call_id, "cancel")
    call = answer.json()
    assert (answer.status, call["status"], call["nextAttemptAt"]) == (200, "Cancelled", None)
    assert (call["finishedAt"], call["expiresAt"]) == (format_instant(NOW), format_instant(NOW + seconds(3600)))
    assert (call["attempts"], call["outcome"] is not None) == (int(is_begun), is_begun)
    assert calls.api.get(calls.path(call_id)).json() == call
    assert event_types(calls, call_id)[-1] == "ServiceCallCancelled"
    found = calls.api.get(calls.path(), query={"status": "Cancelled"}).json()["items"]
    assert [each["id"] for each in found] == [call_id]
    assert calls.api.get(calls.path(call_id, "events")).json()["complete"]


def test_a_cancel_that_is_repeated_changes_nothing(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    first = calls.post(call_id, "cancel")
    calls.clock.advance(1)
    again = calls.post(call_id, "cancel")
    assert (again.status, again.json(), again.headers["etag"]) == (200, first.json(), first.headers["etag"])
    assert event_types(calls, call_id).count("ServiceCallCancelled") == 1


def test_what_has_ended_is_neither_cancelled_nor_fired(calls: CallWorld) -> None:
    for is_ok in (True, False):
        call_id = calls.submitted()["id"]
        calls.finish(call_id, is_ok=is_ok)
        before = calls.call(call_id)
        for what in ("cancel", "fire"):
            answer = calls.post(call_id, what)
            assert (answer.status, answer.code) == (409, "service_call_finished")
        assert calls.call(call_id) == before
    cancelled = calls.submitted()["id"]
    calls.post(cancelled, "cancel")
    assert calls.post(cancelled, "fire").code == "service_call_finished"


def test_what_is_in_flight_is_neither_cancelled_nor_fired_and_it_is_told_that_it_may_have_been_sent(
    calls: CallWorld,
) -> None:
    call_id = calls.submitted()["id"]
    calls.begin(call_id)
    for what in ("cancel", "fire"):
        answer = calls.post(call_id, what)
        assert (answer.status, answer.code) == (409, "service_call_running")
        assert "may have been sent" in answer.json()["detail"]


def test_a_call_between_attempts_can_be_changed_and_tried_now(calls: CallWorld) -> None:
    call_id = between_attempts(calls)
    changed = calls.patch(call_id, {"request": {"url": "https://example.com/other"}, "delay": "5h"})
    assert (changed.status, changed.json()["nextAttemptAt"]) == (200, format_instant(NOW + seconds(5 * 3600)))
    answer = calls.post(call_id, "fire").json()
    assert (answer["status"], answer["nextAttemptAt"]) == ("Running", format_instant(NOW))
    assert (answer["request"]["url"], answer["timer"]["state"]) == ("https://example.com/other", "Scheduled")
    assert calls.post(call_id, "fire").json() == answer
    assert calls.finish(call_id).status is CallStatus.SUCCEEDED
    (execution, _) = calls.api.get(calls.path(call_id, "executions")).json()["items"]
    assert execution["request"]["url"] == "https://example.com/other"


def test_a_scheduled_call_is_fired_now(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    answer = calls.post(call_id, "fire").json()
    assert (answer["status"], answer["dueAt"], answer["nextAttemptAt"]) == ("Scheduled", *[format_instant(NOW)] * 2)
    assert event_types(calls, call_id)[2:] == ["ServiceCallUpdated", "ServiceCallScheduled"]
    assert calls.post("0190aaaa-0000-7000-8000-000000000000", "fire").status == 404
    assert calls.post(call_id, "fire", body={"x": 1}).status == 400


# -- rerun -------------------------------------------------------------------------------------------------------


def test_a_rerun_is_a_new_call_that_asks_for_the_same(calls: CallWorld) -> None:
    policy = {"maxAttempts": 2}
    old = calls.submitted(
        request=REQUEST, tags=["a"], timeoutSeconds=7, retryPolicy=policy, correlationId="c", starred=True
    )
    calls.finish(old["id"], is_ok=False)
    calls.clock.advance(60)
    calls.finish(old["id"], is_ok=False)
    calls.clock.advance(60)
    answer = calls.post(old["id"], "rerun")
    new = answer.json()
    assert (answer.status, answer.headers["location"]) == (202, calls.path(new["id"]))
    assert new["id"] > old["id"]
    assert (new["rerunOf"], new["status"], new["attempts"], new["starred"]) == (old["id"], "Scheduled", 0, False)
    kept = ("name", "request", "tags", "timeoutSeconds", "retryPolicy", "correlationId")
    assert {name: new[name] for name in kept} == {name: old[name] for name in kept}
    assert calls.call(new["id"]).request == calls.call(old["id"]).request
    assert new["dueAt"] == format_instant(NOW + seconds(120))
    (first, *_) = calls.api.get(calls.path(new["id"], "events")).json()["items"]
    assert (first["causationId"], first["payload"]["rerunOf"]) == (old["id"], old["id"])


def test_a_rerun_may_be_for_later(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert (
        calls.post(call_id, "rerun", {"dueAt": "2027-01-01T00:00:00Z"}).json()["dueAt"] == "2027-01-01T00:00:00.000Z"
    )
    assert calls.post(call_id, "rerun", {"delay": "1m"}).json()["dueAt"] == format_instant(NOW + seconds(60))
    assert calls.post(call_id, "rerun", {"correlationId": "x"}).json()["correlationId"] == "x"
    assert calls.post(call_id, "rerun", headers={"x-correlation-id": "y"}).json()["correlationId"] == "y"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"dueAt": "soon"}, "dueAt"),
        ({"delay": 1, "dueAt": "2027-01-01T00:00:00Z"}, "dueAt"),
        ({"name": "n"}, "name"),
        ({"idempotencyKey": ""}, "idempotencyKey"),
    ],
)
def test_a_rerun_that_cannot_be_is_refused(calls: CallWorld, body: dict[str, Any], field: str) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert list(calls.post(call_id, "rerun", body).faults) == [field]
    assert len(calls.stored) == 1


def test_only_a_finished_call_can_be_rerun(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    for _ in range(2):
        answer = calls.post(call_id, "rerun")
        assert (answer.status, answer.code) == (409, "service_call_not_finished")
        if calls.call(call_id).status is CallStatus.SCHEDULED:
            calls.begin(call_id)


def test_a_rerun_has_a_key_of_its_own(calls: CallWorld) -> None:
    call_id = calls.submitted(idempotencyKey="first")["id"]
    calls.finish(call_id)
    one = calls.post(call_id, "rerun", {"idempotencyKey": "second", "delay": "1h"})
    calls.patch(call_id, {"name": "renamed meanwhile"})
    calls.clock.advance(5)
    again = calls.post(call_id, "rerun", {"delay": "1h"}, headers={"idempotency-key": "second"})
    assert (one.status, again.status) == (202, 200)
    assert one.json()["id"] == again.json()["id"]
    for body in ({"idempotencyKey": "second"}, {"idempotencyKey": "first"}):
        assert calls.post(call_id, "rerun", body).code == "service_call_conflict"
    assert UUID(calls.post(call_id, "rerun").json()["id"]) != UUID(call_id)


def test_a_url_that_is_allowed_no_more_is_not_rerun(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    strict = Api(build_handler(replace(calls.context, egress=EgressPolicy(https_only=True)), call_routes()))
    answer = strict.call("POST", calls.path(call_id, "rerun"))
    assert (answer.status, answer.json()["detail"]) == (400, "the URL of the request must be an https URL")
