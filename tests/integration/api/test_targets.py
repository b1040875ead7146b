"""Timers, schedules and service calls with a target in the place of a URL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from duetime.delivery.egress import EgressPolicy
from tests.support.api import World, api_world
from tests.support.call_api import CallWorld, call_world
from tests.support.http import Answer

QUEUE = "arn:aws:sqs:eu-central-1:123456789012:orders"
OTHER = "arn:aws:sqs:eu-central-1:123456789012:others"
TO_QUEUE = {"target": {"arn": QUEUE}}
TO_OTHER = {"target": {"arn": OTHER}}
URL = "http://receiver.test/"
POLICY = EgressPolicy(allow_targets=(QUEUE,))
TIMER: dict[str, Any] = {"id": "one", "delay": "1h", **TO_QUEUE}
TOO_LARGE = "x" * 248 * 1024
ESCALATED = {"retryPolicy": {"escalateTarget": {"arn": QUEUE}}}
SCHEDULES = "/v1/namespaces/default/schedules"


@pytest.fixture
def world() -> Iterator[World]:
    with api_world(egress=POLICY) as world:
        yield world


@pytest.fixture
def calls() -> Iterator[CallWorld]:
    with call_world(egress=POLICY) as calls:
        yield calls


def where(answer: Answer) -> tuple[int, Any, Any]:
    found = answer.json()
    return answer.status, found["callbackUrl"], found["target"]


def test_a_timer_has_a_target_in_the_place_of_its_url(world: World) -> None:
    assert where(world.api.create(TIMER)) == (201, None, {"arn": QUEUE})
    assert where(world.api.create(TIMER)) == (200, None, {"arn": QUEUE})
    assert where(world.api.put("one", {"delay": "2h", **TO_QUEUE})) == (200, None, {"arn": QUEUE})
    assert where(world.api.call("GET", f"{world.api.timers}/one")) == (200, None, {"arn": QUEUE})
    (item,) = world.api.call("POST", f"{world.api.timers}/batch", {"timers": [TIMER | {"id": "two"}]}).json()["items"]
    assert item["status"] == 201


def test_a_url_and_a_target_take_each_others_place(world: World) -> None:
    world.api.create({"id": "one", "delay": "1h", "callbackUrl": URL, "headers": {"x-own": "1"}})

    answer = world.api.patch("one", TO_QUEUE)
    assert (where(answer), answer.json()["headers"]) == ((200, None, {"arn": QUEUE}), None)
    assert where(world.api.patch("one", {"callbackUrl": URL})) == (200, URL, None)


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        (TO_OTHER, "target.arn", "is none of the targets that this deployment allows"),
        ({"target": {"arn": "orders"}}, "target.arn", "must be the ARN of"),
        ({"target": {}}, "target.arn", "is required"),
        ({"target": {"arn": QUEUE, "url": URL}}, "target.url", "is not a known field"),
        ({**TO_QUEUE, "callbackUrl": URL}, "callbackUrl", "cannot be given with target"),
        ({**TO_QUEUE, "headers": {"x-own": "1"}}, "headers", "cannot be given with target"),
        ({"callbackUrl": QUEUE}, "callbackUrl", "must be an absolute http or https URL"),
    ],
)
def test_what_cannot_be_is_refused_by_every_way_in(
    world: World, wrong: dict[str, Any], field: str, message: str
) -> None:
    world.api.create(TIMER)
    new = {"id": "bad", "delay": "1h", **wrong}
    schedule = {"every": "1h", **wrong}
    for answer in (
        world.api.create(new),
        world.api.put("bad", new),
        world.api.patch("one", wrong),
        world.api.call("POST", SCHEDULES, schedule),
    ):
        assert answer.status == 400
        assert message in answer.faults[field]
    (item,) = world.api.call("POST", f"{world.api.timers}/batch", {"timers": [new]}).json()["items"]
    assert (item["status"], item["problem"]["errors"][0]["field"]) == (400, field)
    assert [timer["id"] for timer in world.api.all_pages()] == ["one"]
    assert world.timer("one").revision == 1


def test_one_of_them_is_needed(world: World) -> None:
    assert world.api.create({"delay": "1h"}).faults == {"callbackUrl": "is required, or target"}
    assert world.api.call("POST", SCHEDULES, {"every": "1h"}).faults == {
        "callbackUrl": "is required, or target or serviceCall"
    }


def test_a_payload_that_no_target_can_take_is_refused_at_once(world: World) -> None:
    answer = world.api.create(TIMER | {"payload": TOO_LARGE})

    assert (answer.status, list(answer.faults)) == (413, ["payload"])
    assert world.api.create(TIMER | {"payload": TOO_LARGE[:-2]}).status == 201


@pytest.mark.parametrize(
    ("stored", "patch", "status", "field"),
    [
        ({"callbackUrl": URL, **ESCALATED}, {"payload": TOO_LARGE}, 413, "payload"),
        ({"callbackUrl": URL, "payload": TOO_LARGE}, ESCALATED, 413, "payload"),
        (TO_QUEUE, {"payload": TOO_LARGE}, 413, "payload"),
        ({"callbackUrl": URL, "payload": TOO_LARGE}, TO_QUEUE, 413, "payload"),
        (TO_QUEUE, {"headers": {"x-own": "1"}}, 400, "headers"),
    ],
)
def test_a_change_of_one_part_is_held_against_the_stored_others(
    world: World, stored: dict[str, Any], patch: dict[str, Any], status: int, field: str
) -> None:
    world.api.create({"id": "one", "delay": "1h", **stored})
    world.api.call("POST", SCHEDULES, {"id": "daily", "cron": "@daily", **stored})

    for answer in (world.api.patch("one", patch), world.api.call("PATCH", f"{SCHEDULES}/daily", patch)):
        assert (answer.status, list(answer.faults)) == (status, [field])
    assert world.timer("one").revision == 1
    assert world.api.call("GET", f"{SCHEDULES}/daily").json()["revision"] == 1
    both = {"callbackUrl": URL, "payload": TOO_LARGE, "retryPolicy": None}
    assert world.api.patch("one", both).status == world.api.call("PATCH", f"{SCHEDULES}/daily", both).status == 200


def test_a_failure_is_escalated_to_a_target(world: World) -> None:
    for path, body in ((world.api.timers, TIMER), (SCHEDULES, {"id": "daily", "cron": "@daily", **TO_QUEUE})):
        shown = world.api.call("POST", path, body | ESCALATED).json()["retryPolicy"]
        assert (shown["escalateUrl"], shown["escalateTarget"]) == (None, {"arn": QUEUE})
        again = world.api.call("PATCH", f"{path}/{body['id']}", {"retryPolicy": shown | {"maxAttempts": 2}})
        assert again.json()["retryPolicy"] == shown | {"maxAttempts": 2}
        to_url = world.api.call("PATCH", f"{path}/{body['id']}", {"retryPolicy": {"escalateUrl": URL}})
        assert to_url.json()["retryPolicy"]["escalateTarget"] is None


@pytest.mark.parametrize(
    ("policy", "field", "message"),
    [
        ({"escalateTarget": {"arn": OTHER}}, "escalateTarget.arn", "is none of the targets that this deployment"),
        ({"escalateTarget": {"arn": "orders"}}, "escalateTarget.arn", "must be the ARN of"),
        ({"escalateTarget": {}}, "escalateTarget", "must be an object with only arn"),
        ({"escalateTarget": {"arn": QUEUE, "url": URL}}, "escalateTarget", "must be an object with only arn"),
        ({"escalateTarget": QUEUE}, "escalateTarget", "must be an object with only arn"),
        (
            {"escalateTarget": {"arn": QUEUE}, "escalateUrl": URL},
            "escalateUrl",
            "cannot be given with escalateTarget",
        ),
        ({"escalateUrl": QUEUE}, "escalateUrl", "must be an absolute http or https URL"),
    ],
)
def test_an_escalation_that_cannot_be_is_refused(
    world: World, policy: dict[str, Any], field: str, message: str
) -> None:
    answer = world.api.create(TIMER | {"retryPolicy": policy})
    assert (answer.status, list(answer.faults)) == (400, [f"retryPolicy.{field}"])
    assert message in answer.faults[f"retryPolicy.{field}"]
    of_namespace = world.api.call(
        "PUT", "/v1/namespaces/default", {"retryPolicy": {"escalateTarget": {"arn": QUEUE}}}
    )
    assert "is for the policies of timers" in of_namespace.faults["retryPolicy.escalateTarget"]


def test_a_schedule_has_a_target(world: World) -> None:
    created = world.api.call("POST", SCHEDULES, {"id": "daily", "cron": "@daily", **TO_QUEUE})
    assert where(created) == (201, None, {"arn": QUEUE})

    path = f"{SCHEDULES}/daily"
    assert where(world.api.call("PATCH", path, {"callbackUrl": URL, "headers": {"x": "1"}})) == (200, URL, None)
    patched = world.api.call("PATCH", path, TO_QUEUE)
    assert (where(patched), patched.json()["headers"]) == ((200, None, {"arn": QUEUE}), None)
    both = world.api.call("PATCH", path, {**TO_QUEUE, "serviceCall": {"name": "n", "request": TO_QUEUE}})
    assert "target" in both.faults


# -- service calls -------------------------------------------------------------------------------------------------


MESSAGE: dict[str, Any] = {**TO_QUEUE, "body": {"n": 1}}


def test_a_service_call_has_a_target_in_its_request(calls: CallWorld) -> None:
    answer = calls.submit({"name": "n", "request": MESSAGE})

    assert answer.status == 202
    shown = answer.json()["request"]
    assert (shown["method"], shown["url"], shown["target"]) == ("POST", None, {"arn": QUEUE})
    assert (shown["headers"], shown["body"]) == (None, {"n": 1})


@pytest.mark.parametrize(
    ("wrong", "field", "message"),
    [
        (TO_OTHER, "request.target.arn", "is none of the targets that this deployment allows"),
        ({"url": URL}, "request.url", "cannot be given with target"),
        ({"method": "GET"}, "request.method", "must be POST with target, or omitted"),
        ({"headers": {"x-own": "1"}}, "request.headers", "cannot be given with target"),
        ({"body": "text"}, "request.body", "must be an object with target"),
        ({"body": None}, "request.body", "must be an object with target"),
    ],
)
def test_what_a_target_does_not_take_is_refused(
    calls: CallWorld, wrong: dict[str, Any], field: str, message: str
) -> None:
    answer = calls.submit({"name": "n", "request": MESSAGE | wrong})
    assert (answer.status, answer.faults[field]) == (400, message)

    if "url" not in wrong:
        call_id = calls.submit({"name": "n", "delay": "1h", "request": MESSAGE}).json()["id"]
        assert calls.patch(call_id, {"request": wrong}).faults[field] == message


def test_one_of_url_and_target_is_needed_and_a_method_with_a_url(calls: CallWorld) -> None:
    assert calls.submit({"name": "n", "request": {}}).faults == {"request.url": "is required, or target"}
    assert calls.submit({"name": "n", "request": {"url": URL}}).faults == {"request.method": "is required with url"}


def test_a_target_takes_the_place_of_method_url_and_headers(calls: CallWorld) -> None:
    asked = {"method": "PUT", "url": URL, "headers": {"x-own": "1"}, "body": {"n": 1}}
    call_id = calls.submit({"name": "n", "delay": "1h", "request": asked}).json()["id"]

    shown = calls.patch(call_id, {"request": TO_QUEUE}).json()["request"]
    assert (shown["method"], shown["url"], shown["target"]) == ("POST", None, {"arn": QUEUE})
    assert (shown["headers"], shown["body"]) == (None, {"n": 1})
    shown = calls.patch(call_id, {"request": {"url": URL}}).json()["request"]
    assert (shown["method"], shown["url"], shown["target"]) == ("POST", URL, None)
