"""Schedules with ``serviceCall``: they are created, shown, changed and replaced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import World
from tests.support.http import Answer

PATH = "/v1/namespaces/default/schedules"
REQUEST = {
    "method": "POST",
    "url": "http://receiver.test/close?token=s3cret",
    "headers": {"Authorization": "Bearer s3cret", "X-Plain": "p"},
    "body": {"password": "s3cret", "n": 1.10},
}
CALL: dict[str, Any] = {"name": "close orders", "request": REQUEST, "tags": ["orders"]}


def create(world: World, **body: Any) -> Answer:
    return world.api.call("POST", PATH, {"id": "s1", "every": "1h", "serviceCall": CALL} | body)


def fault(answer: Answer) -> tuple[int, str, str]:
    error = answer.json()["errors"][0]
    return answer.status, error["field"], error["message"]


def test_it_is_created_and_shown_without_its_secrets(world: World) -> None:
    answer = create(world, tags=["own"], expireAfter="1m")

    assert answer.status == 201, answer.text
    body = answer.json()
    assert body["serviceCall"] == {
        "name": "close orders",
        "request": {
            "method": "POST",
            "url": "http://receiver.test/close?token=s3cret",
            "target": None,
            "headers": {"Authorization": "[redacted]", "X-Plain": "p"},
            "bodyBytes": len('{"password": "s3cret", "n": 1.1}'),
            "body": {"password": "s3cret", "n": 1.1},
        },
        "tags": ["orders"],
        "starred": False,
        "timeoutSeconds": 30,
        "retryPolicy": body["serviceCall"]["retryPolicy"],
        "correlationId": None,
    }
    assert body["serviceCall"]["retryPolicy"]["maxAttempts"] == 1
    assert {body[name] for name in ("callbackUrl", "payload", "headers", "timeoutSeconds", "retryPolicy")} == {None}
    assert (body["tags"], body["expireAfter"]) == (["own"], "1m")
    assert world.api.call("GET", f"{PATH}/s1").json() == body
    assert create(world, tags=["own"], expireAfter="1m").status == 200
    assert create(world, serviceCall=CALL | {"name": "other"}).status == 409


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ({"serviceCall": None}, "callbackUrl", "is required, or target or serviceCall"),
        ({"callbackUrl": "http://receiver.test/"}, "callbackUrl", "cannot be given with serviceCall"),
        ({"payload": 1}, "payload", "cannot be given with serviceCall"),
        ({"pauseAfter": 2}, "pauseAfter", "cannot be given with serviceCall"),
        ({"serviceCall": {"name": "n"}}, "serviceCall.request", "is required"),
        ({"serviceCall": CALL | {"dueAt": "2027-01-01T00:00:00Z"}}, "serviceCall.dueAt", "is not a known field"),
        ({"serviceCall": CALL | {"tags": ["x"] * 2}}, "serviceCall.tags", "must not have an item twice"),
        (
            {"serviceCall": CALL | {"tags": [str(each) for each in range(20)]}},
            "serviceCall.tags",
            "must have at most 19 items: each call has the tag 'schedule:default/s1'",
        ),
        (
            {"id": "x" * 112},
            "id",
            "must have, with the namespace, at most 118 characters with serviceCall",
        ),
        (
            {"serviceCall": CALL | {"request": REQUEST | {"headers": {"Host": "x"}}}},
            "serviceCall.request.headers.Host",
            "is reserved",
        ),
    ],
)
def test_what_it_cannot_have(world: World, given: dict[str, Any], field: str, message: str) -> None:
    status, found, problem = fault(create(world, **given))
    assert (status, found) == (400, field)
    assert message in problem or message == "is reserved"


def test_a_template_that_is_too_large_is_refused(world: World) -> None:
    answer = create(world, serviceCall=CALL | {"request": REQUEST | {"body": "x" * (256 * 1024)}})
    assert (answer.status, answer.json()["errors"][0]["field"]) == (413, "serviceCall")


def test_a_patch_keeps_what_it_does(world: World) -> None:
    create(world)

    changed = world.api.call("PATCH", f"{PATH}/s1", {"serviceCall": CALL | {"name": "other"}, "tags": ["t"]})
    assert (changed.status, changed.json()["serviceCall"]["name"], changed.json()["tags"]) == (200, "other", ["t"])
    for given in ({"callbackUrl": "http://receiver.test/"}, {"payload": 1}, {"retryPolicy": None}):
        assert fault(world.api.call("PATCH", f"{PATH}/s1", given))[:2] == (400, "serviceCall")
    assert fault(world.api.call("PATCH", f"{PATH}/s1", {"pauseAfter": 3}))[:2] == (400, "pauseAfter")
    assert world.api.call("PATCH", f"{PATH}/s1", {"every": "2h"}).json()["serviceCall"]["name"] == "other"


def test_put_replaces_one_by_the_other(world: World) -> None:
    create(world)

    callback = {"every": "1h", "callbackUrl": "http://receiver.test/"}
    put = world.api.call("PUT", f"{PATH}/s1", callback)
    assert (put.status, put.json()["serviceCall"], put.json()["callbackUrl"]) == (200, None, callback["callbackUrl"])
    assert fault(world.api.call("PATCH", f"{PATH}/s1", {"serviceCall": CALL}))[:2] == (400, "serviceCall")
    again = world.api.call("PUT", f"{PATH}/s1", {"every": "1h", "serviceCall": CALL})
    assert (again.status, again.json()["serviceCall"]["name"]) == (200, "close orders")
