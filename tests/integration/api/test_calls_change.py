"""Reading, changing, removing and rerunning single service calls."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from duetime.api.app import build_handler
from duetime.api.call_routes import CALL_ROUTES
from duetime.domain.call_steps import Transition
from duetime.domain.service_calls import CallStatus
from duetime.domain.times import format_instant
from duetime.stores.calls_port import ApplyStatus
from tests.support.builders import seconds
from tests.support.call_api import URL, CallWorld
from tests.support.clock import NOW
from tests.support.http import Answer, Api

HEADERS = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y", "Cookie": "c00kie", "Accept": "text/csv"}
REQUEST = {"method": "POST", "url": f"{URL}?token=t0ken", "headers": HEADERS, "body": [1.0, "x"]}
NOBODY = "01234567-89ab-7def-8123-456789abcdef"


def patch(calls: CallWorld, call_id: str, body: dict[str, Any] | str, **more: Any) -> Answer:
    return calls.api.call("PATCH", calls.path(call_id), body, **more)


def delete(calls: CallWorld, call_id: str, **more: Any) -> Answer:
    return calls.api.call("DELETE", calls.path(call_id), **more)


def post(calls: CallWorld, call_id: str, what: str, body: dict[str, Any] | None = None, **more: Any) -> Answer:
    return calls.api.call("POST", calls.path(call_id, what), body, **more)


def rerun(calls: CallWorld, call_id: str, body: dict[str, Any] | None = None, **more: Any) -> Answer:
    return calls.api.call("POST", calls.path(call_id, "rerun"), body, **more)


# -- read --------------------------------------------------------------------------------------------------------


def test_what_may_be_a_secret_is_shown_to_nobody(calls: CallWorld) -> None:
    answer = calls.submit(request=REQUEST)
    call = answer.json()
    hidden = "[redacted]"
    assert call["request"] == {
        "method": "POST",
        "url": REQUEST["url"],
        "headers": {"Authorization": hidden, "X-Api-Key": hidden, "Cookie": hidden, "Accept": "text/csv"},
        "bodyBytes": 10,
        "body": [1.0, "x"],
    }
    assert calls.call(call["id"]).request.headers_json is not None
    everywhere = [answer, calls.api.get(calls.path(call["id"])), patch(calls, call["id"], {"starred": True})]
    assert not any(secret in each.text for each in everywhere for secret in ("s3cret", "k3y", "c00kie"))


def test_the_life_of_a_call_can_be_read(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h", retryPolicy={"maxAttempts": 2, "initialInterval": "10s"})["id"]
    calls.clock.advance(3600)
    execution = calls.begin(call_id).execution_id
    running = calls.api.get(calls.path(call_id)).json()
    due = format_instant(NOW + seconds(3600))
    assert (running["status"], running["startedAt"], running["attempts"]) == ("Running", due, 1)
    assert (running["executionId"], running["nextAttemptAt"]) == (execution, None)
    assert running["timer"] == {
        "state": "Reached",
        "registeredAt": format_instant(NOW),
        "reachedAt": due,
        "correlationId": running["correlationId"],
    }

    calls.finish(call_id, is_ok=False)
    waiting = calls.api.get(calls.path(call_id)).json()
    assert (waiting["status"], waiting["executionId"], waiting["finishedAt"]) == ("Running", None, None)
    assert waiting["nextAttemptAt"] > due
    assert waiting["outcome"] == {
        "executionId": execution,
        "status": 503,
        "reason": "HttpStatus",
        "message": "the receiver answered 503",
    }

    calls.clock.advance(60)
    calls.finish(call_id)
    done = calls.api.get(calls.path(call_id)).json()
    assert (done["status"], done["attempts"], done["nextAttemptAt"]) == ("Succeeded", 2, None)
    assert (done["outcome"]["status"], done["outcome"]["reason"]) == (200, None)
    assert done["finishedAt"] == format_instant(NOW + seconds(3660))
    assert done["expiresAt"] == format_instant(NOW + seconds(3660 + 3600))
    calls.clock.advance(3600)
    assert calls.api.get(calls.path(call_id)).code == "service_call_not_found"


def test_a_read_can_be_conditional(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    answer = calls.api.get(calls.path(call_id), headers={"if-none-match": '"1"'})
    assert (answer.status, answer.text, answer.headers["etag"]) == (304, "", '"1"')
    calls.begin(call_id)
    assert calls.api.get(calls.path(call_id), headers={"if-none-match": '"1"'}).status == 200


@pytest.mark.parametrize("call_id", [NOBODY, "x", "..", "x" * 2000, "%00", "a%2Fb", "default", NOBODY.upper(), "🎉"])
@pytest.mark.parametrize(
    ("method", "rest"),
    [
        ("GET", ""),
        ("PATCH", ""),
        ("DELETE", ""),
        ("POST", "/rerun"),
        ("GET", "/executions"),
        ("GET", f"/executions/{NOBODY}"),
        ("GET", "/events"),
    ],
)
def test_what_is_not_there_is_a_404(calls: CallWorld, method: str, rest: str, call_id: str) -> None:
    calls.submitted()
    answer = calls.api.call(method, calls.path(call_id) + rest, {} if method in ("PATCH", "POST") else None)
    assert (answer.status, answer.code) in {(404, "service_call_not_found"), (404, "route_not_found")}


def test_every_call_of_a_method_that_is_not_there_names_those_that_are(calls: CallWorld) -> None:
    answer = calls.api.call("PUT", calls.path(NOBODY), {})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, OPTIONS, PATCH")


# -- change ------------------------------------------------------------------------------------------------------


def test_what_is_given_is_changed_and_the_rest_stays(calls: CallWorld) -> None:
    before = calls.submitted(request=REQUEST, delay="1h", tags=["a"])
    calls.clock.advance(1)
    answer = patch(calls, before["id"], {"name": "new", "tags": ["b", "c"], "starred": True})
    after = answer.json()
    assert (answer.status, answer.headers["etag"]) == (200, '"2"')
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"name", "tags", "starred", "revision", "updatedAt"}
    assert (after["name"], after["tags"], after["starred"], after["revision"]) == ("new", ["b", "c"], True, 2)
    assert patch(calls, before["id"], {"tags": None}).json()["tags"] == []


def test_a_new_due_time_sets_the_timer_anew(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    calls.clock.advance(10)
    after = patch(calls, call_id, {"dueAt": "2027-01-01T00:00:00Z"}).json()
    assert after["dueAt"] == after["nextAttemptAt"] == "2027-01-01T00:00:00.000Z"
    assert after["timer"]["registeredAt"] == format_instant(NOW + seconds(10))
    assert patch(calls, call_id, {"delay": "5s"}).json()["dueAt"] == format_instant(NOW + seconds(15))
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
    assert patch(calls, call_id, {"request": {"url": f"{URL}/2"}}).status == 200
    stored = calls.call(call_id).request
    assert (stored.url, stored.headers_json, stored.body_json) == (f"{URL}/2", headers_json, '[1.0, "x"]')
    assert patch(calls, call_id, '{"request":{"method":"PUT","body":1.50}}').status == 200
    stored = calls.call(call_id).request
    assert (stored.method, stored.body_json, stored.body_bytes) == ("PUT", "1.50", 4)
    assert stored.headers_json == headers_json
    shown = patch(calls, call_id, {"request": {"headers": None, "body": None}}).json()["request"]
    assert shown == {"method": "PUT", "url": f"{URL}/2", "headers": None, "bodyBytes": 0, "body": None}


@pytest.mark.parametrize("body", [{}, {"name": "report"}, {"starred": False, "tags": []}, {"request": {}}])
def test_a_change_that_changes_nothing_leaves_the_revision(calls: CallWorld, body: dict[str, Any]) -> None:
    call = calls.submitted()
    assert patch(calls, call["id"], body).json() == call
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
    answer = patch(calls, call["id"], body)
    assert (answer.status, list(answer.faults)) == (400, [field])
    assert calls.api.get(calls.path(call["id"])).json() == call


def test_a_body_that_grows_too_large_is_refused(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    answer = patch(calls, call_id, {"request": {"body": "x" * 256 * 1024}})
    assert (answer.status, list(answer.faults)) == (413, ["request.body"])


@pytest.mark.parametrize("status", [CallStatus.RUNNING, CallStatus.SUCCEEDED, CallStatus.FAILED])
def test_labels_can_be_changed_always_due_time_and_request_only_while_nothing_is_under_way(
    calls: CallWorld, status: CallStatus
) -> None:
    call_id = calls.submitted()["id"]
    calls.begin(call_id)
    if status.is_finished:
        calls.finish(call_id, is_ok=status is CallStatus.SUCCEEDED)
    for body in ({"dueAt": "2027-01-01T00:00:00Z"}, {"delay": 1}, {"request": {}}, {"request": {"body": 1}}):
        answer = patch(calls, call_id, body | {"starred": True})
        code = "service_call_finished" if status.is_finished else "service_call_running"
        assert (answer.status, answer.code) == (409, code)
    assert not calls.call(call_id).starred
    after = patch(calls, call_id, {"starred": True, "tags": ["t"], "name": "n"}).json()
    assert (after["status"], after["starred"], after["tags"], after["name"]) == (status, True, ["t"], "n")


def test_a_star_keeps_a_finished_call(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert patch(calls, call_id, {"starred": True}).json()["expiresAt"] is None
    calls.clock.advance(100_000)
    assert calls.api.get(calls.path(call_id)).status == 200
    assert patch(calls, call_id, {"starred": False}).json()["expiresAt"] == format_instant(NOW + seconds(3600))
    assert calls.api.get(calls.path(call_id)).status == 404


@pytest.mark.parametrize(
    ("condition", "status"), [('"1"', 200), ('"1","9"', 200), ("*", 200), ('"2"', 412), ('W/"1"', 412)]
)
def test_a_change_and_a_removal_can_be_conditional(calls: CallWorld, condition: str, status: int) -> None:
    headers = {"if-match": condition}
    one, two, three = (calls.submitted(delay="1h")["id"] for _ in range(3))
    assert patch(calls, one, {"name": "new"}, headers=headers).status == status
    assert patch(calls, one, {}, headers={"if-match": '"7"'}).status == 412
    assert post(calls, two, "fire", headers=headers).status == status
    assert post(calls, three, "cancel", headers=headers).status == status
    revision = calls.call(three).revision
    assert delete(calls, three, headers={"if-match": '"7"'}).status == 412
    if status == 200:
        assert delete(calls, three, headers={"if-match": f'"{revision}"'}).status == 204
    assert patch(calls, one, {}, headers={"if-match": "1"}).status == 400
    assert delete(calls, one, headers={"if-match": "1"}).status == 400


class ContendedCalls:
    """A call store in which ``interfere`` does something just before each of the first ``times`` changes."""

    def __init__(self, world: CallWorld, interfere: Callable[[], object], times: int) -> None:
        self._calls = world.calls
        self._interfere = interfere
        self._times = times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def _contend(self) -> None:
        if self._times:
            self._times -= 1
            self._interfere()

    def apply(self, transitions: list[Transition], **more: Any) -> list[ApplyStatus]:
        self._contend()
        return self._calls.apply(transitions, **more)

    def delete_call(self, *arguments: Any, **more: Any) -> Any:
        self._contend()
        return self._calls.delete_call(*arguments, **more)


def contended(calls: CallWorld, interfere: Callable[[], object], times: int) -> Api:
    from dataclasses import replace

    assert calls.context.calls is not None
    store: Any = ContendedCalls(calls, interfere, times)
    context = replace(calls.context, calls=replace(calls.context.calls, store=store))
    return Api(build_handler(context, CALL_ROUTES))


def test_a_change_that_loses_a_race_is_made_on_what_the_other_left(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("PATCH", calls.path(call_id), {"starred": True})
    assert (answer.status, answer.json()["status"], answer.json()["starred"]) == (200, "Running", True)
    assert calls.call(call_id).revision == 3


def test_a_due_time_that_loses_against_the_start_is_told_so(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("PATCH", calls.path(call_id), {"delay": "1h"})
    assert (answer.status, answer.code) == (409, "service_call_running")


def test_a_condition_that_held_and_holds_no_more_is_a_412(calls: CallWorld) -> None:
    one, two = calls.submitted()["id"], calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(one), 1)
    assert api.call("PATCH", calls.path(one), {"starred": True}, headers={"if-match": '"1"'}).status == 412
    calls.finish(two)
    api = contended(calls, lambda: patch(calls, two, {"starred": True}), 1)
    assert api.call("DELETE", calls.path(two), headers={"if-match": '"3"'}).status == 412


def test_a_rerun_is_of_the_revision_that_was_read(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    tag = f'"{calls.finish(call_id).revision}"'
    patch(calls, call_id, {"starred": True})
    assert rerun(calls, call_id, headers={"if-match": tag}).code == "revision_mismatch"
    assert len(calls.everything()) == 1
    assert rerun(calls, call_id, headers={"if-match": f'"{calls.call(call_id).revision}"'}).status == 202


def test_any_revision_is_one_even_when_it_changes_in_between(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    api = contended(calls, lambda: patch(calls, call_id, {"starred": True}), 1)
    assert api.call("DELETE", calls.path(call_id), headers={"if-match": "*"}).status == 204


def test_who_is_never_first_is_asked_to_come_again(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    names = iter(range(100))
    api = contended(calls, lambda: patch(calls, call_id, {"name": f"n{next(names)}"}), 100)
    answer = api.call("PATCH", calls.path(call_id), {"starred": True})
    assert (answer.status, answer.code) == (503, "store_unavailable")


def test_racing_changes_are_all_made(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    barrier = threading.Barrier(4)
    bodies: list[dict[str, Any]] = [{"starred": True}, {"name": "n"}, {"tags": ["t"]}, {"request": {"body": 1}}]
    answers = []

    def change(body: dict[str, Any]) -> None:
        barrier.wait(10)
        answers.append(patch(calls, call_id, body).status)

    threads = [threading.Thread(target=change, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    after = calls.call(call_id)
    assert answers == [200] * 4
    assert (after.revision, after.starred, after.name, after.tags) == (5, True, "n", ("t",))
    assert after.request.body_json == "1"


# -- remove ------------------------------------------------------------------------------------------------------


def test_a_finished_call_is_removed_with_all_that_it_has(calls: CallWorld) -> None:
    cancelled, finished = calls.submitted()["id"], calls.submitted(idempotencyKey="k", tags=["t"])["id"]
    calls.finish(finished)
    post(calls, cancelled, "cancel")
    for call_id in (cancelled, finished):
        answer = delete(calls, call_id)
        assert (answer.status, answer.text) == (204, "")
        assert "content-type" not in answer.headers
        for path in ([], ["executions"], ["events"]):
            assert calls.api.get(calls.path(call_id, *path)).code == "service_call_not_found"
        assert delete(calls, call_id).status == 404


def test_a_removal_has_its_event_after_all_others(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    assert delete(calls, call_id).status == 204
    types = [str(stored.event.type) for stored in calls.calls.unpublished_events(limit=100)]
    assert types[-2:] == ["ServiceCallSucceeded", "ServiceCallDeleted"]
    last = calls.calls.unpublished_events(limit=100)[-1].event
    assert (last.sequence, last.payload_json) == (len(types), '{"reason":"request"}')


def test_what_has_not_ended_is_not_removed(calls: CallWorld) -> None:
    scheduled, running = calls.submitted()["id"], calls.submitted()["id"]
    calls.begin(running)
    for call_id, revision in ((scheduled, 1), (running, 2)):
        answer = delete(calls, call_id)
        assert (answer.status, answer.code) == (409, "service_call_not_finished")
        assert delete(calls, call_id, headers={"if-match": f'"{revision}"'}).status == 409
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
    answer = post(calls, call_id, "cancel")
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
    first = post(calls, call_id, "cancel")
    calls.clock.advance(1)
    again = post(calls, call_id, "cancel")
    assert (again.status, again.json(), again.headers["etag"]) == (200, first.json(), first.headers["etag"])
    assert event_types(calls, call_id).count("ServiceCallCancelled") == 1


def test_what_has_ended_is_neither_cancelled_nor_fired(calls: CallWorld) -> None:
    for is_ok in (True, False):
        call_id = calls.submitted()["id"]
        calls.finish(call_id, is_ok=is_ok)
        before = calls.call(call_id)
        for what in ("cancel", "fire"):
            answer = post(calls, call_id, what)
            assert (answer.status, answer.code) == (409, "service_call_finished")
        assert calls.call(call_id) == before
    cancelled = calls.submitted()["id"]
    post(calls, cancelled, "cancel")
    assert post(calls, cancelled, "fire").code == "service_call_finished"


def test_what_is_under_way_is_neither_cancelled_nor_fired_and_it_is_told_that_it_may_have_been_sent(
    calls: CallWorld,
) -> None:
    call_id = calls.submitted()["id"]
    calls.begin(call_id)
    for what in ("cancel", "fire"):
        answer = post(calls, call_id, what)
        assert (answer.status, answer.code) == (409, "service_call_running")
        assert "may have been sent" in answer.json()["detail"]


def test_a_cancel_that_loses_against_the_start_is_told_so(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    api = contended(calls, lambda: calls.begin(call_id), 1)
    answer = api.call("POST", calls.path(call_id, "cancel"))
    assert (answer.status, answer.code) == (409, "service_call_running")
    assert calls.call(call_id).status is CallStatus.RUNNING


def test_a_call_between_attempts_can_be_changed_and_tried_now(calls: CallWorld) -> None:
    call_id = between_attempts(calls)
    changed = patch(calls, call_id, {"request": {"url": "https://example.com/other"}, "delay": "5h"})
    assert (changed.status, changed.json()["nextAttemptAt"]) == (200, format_instant(NOW + seconds(5 * 3600)))
    answer = post(calls, call_id, "fire").json()
    assert (answer["status"], answer["nextAttemptAt"]) == ("Running", format_instant(NOW))
    assert (answer["request"]["url"], answer["timer"]["state"]) == ("https://example.com/other", "Scheduled")
    assert post(calls, call_id, "fire").json() == answer
    assert calls.finish(call_id).status is CallStatus.SUCCEEDED
    (execution, _) = calls.api.get(calls.path(call_id, "executions")).json()["items"]
    assert execution["request"]["url"] == "https://example.com/other"


def test_a_scheduled_call_is_fired_now(calls: CallWorld) -> None:
    call_id = calls.submitted(delay="1h")["id"]
    answer = post(calls, call_id, "fire").json()
    assert (answer["status"], answer["dueAt"], answer["nextAttemptAt"]) == ("Scheduled", *[format_instant(NOW)] * 2)
    assert event_types(calls, call_id)[2:] == ["ServiceCallUpdated", "ServiceCallScheduled"]
    assert post(calls, "0190aaaa-0000-7000-8000-000000000000", "fire").status == 404
    assert post(calls, call_id, "fire", body={"x": 1}).status == 400


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
    answer = rerun(calls, old["id"])
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
    assert rerun(calls, call_id, {"dueAt": "2027-01-01T00:00:00Z"}).json()["dueAt"] == "2027-01-01T00:00:00.000Z"
    assert rerun(calls, call_id, {"delay": "1m"}).json()["dueAt"] == format_instant(NOW + seconds(60))
    assert rerun(calls, call_id, {"correlationId": "x"}).json()["correlationId"] == "x"
    assert rerun(calls, call_id, headers={"x-correlation-id": "y"}).json()["correlationId"] == "y"


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
    assert list(rerun(calls, call_id, body).faults) == [field]
    assert len(calls.stored) == 1


def test_only_a_finished_call_can_be_rerun(calls: CallWorld) -> None:
    call_id = calls.submitted()["id"]
    for _ in range(2):
        answer = rerun(calls, call_id)
        assert (answer.status, answer.code) == (409, "service_call_not_finished")
        if calls.call(call_id).status is CallStatus.SCHEDULED:
            calls.begin(call_id)


def test_a_rerun_has_a_key_of_its_own(calls: CallWorld) -> None:
    call_id = calls.submitted(idempotencyKey="first")["id"]
    calls.finish(call_id)
    one = rerun(calls, call_id, {"idempotencyKey": "second", "delay": "1h"})
    patch(calls, call_id, {"name": "renamed meanwhile"})
    calls.clock.advance(5)
    again = rerun(calls, call_id, {"delay": "1h"}, headers={"idempotency-key": "second"})
    assert (one.status, again.status) == (202, 200)
    assert one.json()["id"] == again.json()["id"]
    for body in ({"idempotencyKey": "second"}, {"idempotencyKey": "first"}):
        assert rerun(calls, call_id, body).code == "service_call_conflict"
    assert UUID(rerun(calls, call_id).json()["id"]) != UUID(call_id)


def test_a_url_that_is_allowed_no_more_is_not_rerun(calls: CallWorld) -> None:
    from dataclasses import replace

    from duetime.delivery.egress import EgressPolicy

    call_id = calls.submitted()["id"]
    calls.finish(call_id)
    strict = Api(build_handler(replace(calls.context, egress=EgressPolicy(https_only=True)), CALL_ROUTES))
    answer = strict.call("POST", calls.path(call_id, "rerun"))
    assert (answer.status, answer.json()["detail"]) == (400, "the URL of the request must be an https URL")
