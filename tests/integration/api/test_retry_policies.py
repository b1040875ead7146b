"""Retry policies: answers show the one in force, and what may be given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.stores.port.timers import PutMode
from tests.support.api import World
from tests.support.call_api import CallWorld

TIMER: dict[str, Any] = {"id": "t", "delay": "1h", "callbackUrl": "http://receiver.test/hook"}
DEFAULT = {
    "maxAttempts": 10,
    "maxAttemptsDuration": "1d",
    "initialInterval": "2s",
    "backoffMultiplier": 2,
    "maxInterval": "1h",
}
ONE_ATTEMPT = DEFAULT | {"maxAttempts": 1}
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
    assert created["retryPolicy"] == DEFAULT | shown
    assert world.api.read("t").json() == created
    assert world.api.list(f"{NAMESPACE}/timers").json()["items"] == [created]


def test_a_timer_without_a_policy_shows_its_namespaces_as_it_is_now(world: World) -> None:
    world.api.create(TIMER)
    world.api.create(TIMER | {"id": "own", "retryPolicy": {"maxInterval": "1m"}})
    world.api.call("PUT", NAMESPACE, {"retryPolicy": {"maxAttempts": 4, "initialInterval": "5s"}})
    assert world.api.read("t").json()["retryPolicy"] == DEFAULT | {"maxAttempts": 4, "initialInterval": "5s"}
    assert world.api.read("own").json()["retryPolicy"] == DEFAULT | {"maxInterval": "1m"}
    world.api.call("PUT", NAMESPACE, {"retryPolicy": None})
    assert world.api.read("t").json()["retryPolicy"] == DEFAULT


@pytest.mark.parametrize(("given", "shown"), POLICIES)
def test_a_call_is_tried_once_unless_its_policy_says_how_often(
    calls: CallWorld, given: dict[str, Any] | None, shown: dict[str, Any]
) -> None:
    call = calls.submit(**({} if given is None else {"retryPolicy": given})).json()
    assert call["retryPolicy"] == ONE_ATTEMPT | shown
    assert calls.api.get(calls.path(call["id"])).json()["retryPolicy"] == ONE_ATTEMPT | shown
    assert calls.call(call["id"]).retry_policy.max_attempts == (given or {}).get("maxAttempts", 1)


@pytest.mark.parametrize("field", ["initialInterval", "maxInterval"])
@pytest.mark.parametrize("value", [0, 0.0999, "99ms", "0s"])
def test_intervals_below_the_floor_are_refused_by_name(
    world: World, calls: CallWorld, field: str, value: object
) -> None:
    policy = {"retryPolicy": {field: value}}
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
    assert world.api.read("t").json()["retryPolicy"] == DEFAULT | {"initialInterval": "100ms", "maxInterval": "100ms"}
