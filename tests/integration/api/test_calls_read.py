"""Reading single service calls."""

from __future__ import annotations

import pytest

from duetime.domain.times import format_instant
from duetime.testing.contract.builders import seconds
from tests.support.call_api import URL, CallWorld
from tests.support.clock import NOW

HEADERS = {"Authorization": "Bearer s3cret", "X-Api-Key": "k3y", "Cookie": "c00kie", "Accept": "text/csv"}
REQUEST = {"method": "POST", "url": f"{URL}?token=t0ken", "headers": HEADERS, "body": [1.0, "x"]}
NOBODY = "01234567-89ab-7def-8123-456789abcdef"


def test_what_may_be_a_secret_is_shown_to_nobody(calls: CallWorld) -> None:
    answer = calls.submit(request=REQUEST)
    call = answer.json()
    hidden = "[redacted]"
    assert call["request"] == {
        "method": "POST",
        "url": REQUEST["url"],
        "target": None,
        "headers": {"Authorization": hidden, "X-Api-Key": hidden, "Cookie": hidden, "Accept": "text/csv"},
        "bodyBytes": 10,
        "body": [1.0, "x"],
    }
    assert calls.call(call["id"]).request.headers_json is not None
    everywhere = [answer, calls.api.get(calls.path(call["id"])), calls.patch(call["id"], {"starred": True})]
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
def test_what_is_not_there_is_a_404(calls: CallWorld, method: str, rest: str) -> None:
    calls.submitted()
    for call_id in (NOBODY, "x", "..", "x" * 2000, "%00", "a%2Fb", "default", NOBODY.upper(), "🎉"):
        answer = calls.api.call(method, calls.path(call_id) + rest, {} if method in ("PATCH", "POST") else None)
        assert (answer.status, answer.code) in {(404, "service_call_not_found"), (404, "route_not_found")}, call_id


def test_every_call_of_a_method_that_is_not_there_names_those_that_are(calls: CallWorld) -> None:
    answer = calls.api.call("PUT", calls.path(NOBODY), {})
    assert (answer.status, answer.headers["allow"]) == (405, "DELETE, GET, HEAD, OPTIONS, PATCH")
