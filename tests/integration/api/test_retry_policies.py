"""Retry policies: answers show the one in force, and what may be given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.stores.port.timers import PutMode
from tests.support.api import World
from tests.support.call_api import BODY, CallWorld

TIMER: dict[str, Any] = {"id": "t", "delay": "1h", "callbackUrl": "http://receiver.test/hook"}
DEFAULT = {
    "maxAttempts": 10,
    "maxAttemptsDuration": "1d",
    "initialInterval": "2s",
    "backoffMultiplier": 2,
    "maxInterval": "1h",
}
ONE_ATTEMPT = DEFAULT | {"maxAttempts": 1}
OF_TIMER = DEFAULT | {"escalateUrl": None, "escalateTarget": None}
NAMESPACE = "/v1/namespaces/default"
POLICIES: list[tuple[dict[str, Any] | None, dict[str, Any]]] = [
    (None, {}),
    ({}, {}),
    ({"initialInterval": 0.1}, {"initialInterval": "100ms"}),
    (
        {"maxAttempts": 3, "maxInterval": "PT90S", "backoffMultiplier": 1.5},
        {"maxAttempts": 3, "maxInterval": "1m30s", "backoffMultiplier": 1.5},
    ),
]
"""What is given, and what an answer shows of it other than the default."""


@pytest.mark.parametrize(("given", "shown"), POLICIES)
def test_a_timer_shows_its_policy_whole(world: World, given: dict[str, Any] | None, shown: dict[str, Any]) -> None:
    created = world.api.create(TIMER | ({} if given is None else {"retryPolicy": given})).json()
    assert created["retryPolicy"] == OF_TIMER | shown
    assert world.api.read("t").json() == created
    assert world.api.list(f"{NAMESPACE}/timers").json()["items"] == [created]


def test_a_timer_without_a_policy_shows_its_namespaces_as_it_is_now(world: World) -> None:
    world.api.create(TIMER)
    world.api.create(TIMER | {"id": "own", "retryPolicy": {"maxInterval": "1m"}})
    world.api.call("PUT", NAMESPACE, {"retryPolicy": {"maxAttempts": 4, "initialInterval": "5s"}})
    assert world.api.read("t").json()["retryPolicy"] == OF_TIMER | {"maxAttempts": 4, "initialInterval": "5s"}
    assert world.api.read("own").json()["retryPolicy"] == OF_TIMER | {"maxInterval": "1m"}
    world.api.call("PUT", NAMESPACE, {"retryPolicy": None})
    assert world.api.read("t").json()["retryPolicy"] == OF_TIMER


@pytest.mark.parametrize(("given", "shown"), POLICIES)
def test_a_call_is_tried_once_unless_its_policy_says_how_often(
    calls: CallWorld, given: dict[str, Any] | None, shown: dict[str, Any]
) -> None:
    call = calls.submit(BODY | ({} if given is None else {"retryPolicy": given})).json()
    assert call["retryPolicy"] == ONE_ATTEMPT | shown
    assert calls.api.get(calls.path(call["id"])).json()["retryPolicy"] == ONE_ATTEMPT | shown
    assert calls.call(call["id"]).retry_policy.max_attempts == (given or {}).get("maxAttempts", 1)


@pytest.mark.parametrize("field", ["initialInterval", "maxInterval"])
@pytest.mark.parametrize("value", [0, 0.0999, "99ms", "0s"])
def test_intervals_below_the_floor_are_refused_by_name(
    world: World, calls: CallWorld, field: str, value: object
) -> None:
    policy: dict[str, Any] = {"retryPolicy": {field: value}}
    for answer in (
        world.api.create(TIMER | policy),
        world.api.call("PUT", NAMESPACE, policy),
        calls.submit(**policy),
    ):
        assert answer.status == 400
        assert answer.json()["errors"] == [{"field": f"retryPolicy.{field}", "message": "must be at least 100ms"}]
    assert world.api.read("t").status == 404


def test_a_stored_policy_from_before_there_was_a_floor_is_shown_as_it_is_kept(world: World) -> None:
    world.api.create(TIMER | {"retryPolicy": {"maxAttempts": 3}})
    old = world.store.timers.get(world.namespace, "t", now=world.clock.now())
    assert old is not None
    content = replace(old.content, retry_policy_json='{"initialInterval": 0, "maxInterval": "1ms"}')
    world.store.timers.put([replace(old, content=content, digest="d")], mode=PutMode.REPLACE, now=world.clock.now())
    assert world.api.read("t").json()["retryPolicy"] == OF_TIMER | {
        "initialInterval": "100ms",
        "maxInterval": "100ms",
    }


ALERTS = "https://alerts.example.com/timers"


def test_an_escalation_is_a_part_of_the_policy_of_a_timer(world: World) -> None:
    created = world.api.create(TIMER | {"retryPolicy": {"escalateUrl": ALERTS}}).json()
    assert created["retryPolicy"] == OF_TIMER | {"escalateUrl": ALERTS}
    assert world.api.put("t", TIMER | {"retryPolicy": created["retryPolicy"], "payload": 1}).status == 200
    patched = world.api.patch("t", {"retryPolicy": {"maxAttempts": 1, "escalateUrl": None}}).json()
    assert patched["retryPolicy"] == OF_TIMER | {"maxAttempts": 1}


@pytest.mark.parametrize(
    ("url", "message"),
    [
        (7, "must be a URL"),
        ("", "must be an absolute http or https URL"),
        ("ftp://alerts.test/", "must be an absolute http or https URL"),
        ("https://user@alerts.test/", "must not contain user information"),
        ("http://10.0.0.1/", "must not lead to an address that is not public"),
    ],
)
def test_a_url_that_would_not_be_called_is_refused_when_it_is_given(world: World, url: object, message: str) -> None:
    wrong = {"retryPolicy": {"maxAttempts": 1, "escalateUrl": url}}
    world.api.create(TIMER | {"id": "good"})
    schedule = {"id": "s", "every": "1h", "callbackUrl": TIMER["callbackUrl"]}
    (in_batch,) = world.api.call("POST", f"{NAMESPACE}/timers/batch", {"timers": [TIMER | wrong]}).json()["items"]
    for problem in (
        in_batch["problem"],
        world.api.create(TIMER | wrong).json(),
        world.api.put("t", TIMER | wrong).json(),
        world.api.patch("good", wrong).json(),
        world.api.call("POST", f"{NAMESPACE}/schedules", schedule | wrong).json(),
    ):
        assert problem["status"] == 400
        (error,) = problem["errors"]
        assert error["field"] == "retryPolicy.escalateUrl"
        assert message in error["message"]
    assert world.api.read("t").status == 404


def test_namespaces_and_service_calls_are_not_escalated(world: World, calls: CallWorld) -> None:
    policy: dict[str, Any] = {"retryPolicy": {"escalateUrl": ALERTS}}
    for answer in (world.api.call("PUT", NAMESPACE, policy), calls.submit(**policy)):
        assert answer.status == 400
        assert answer.faults == {
            "retryPolicy.escalateUrl": "is for the policies of timers and schedules: events tell of other failures"
        }
