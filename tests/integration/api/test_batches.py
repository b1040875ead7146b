"""Many timers in one request: each has a result of its own, in order."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.http.parsing import MAX_BATCH_BYTES
from duetime.domain.times import format_instant, parse_instant
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer, Api, outcomes

LAMBDA_EVENT_BYTES = 6 * 1024 * 1024
"""What Lambda takes in one synchronous invocation."""
CALLBACK_URL = "http://receiver.test/callback"
GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": CALLBACK_URL}


def create(api: Api, *timers: Any) -> Answer:
    return api.call("POST", f"{api.timers}/batch", {"timers": list(timers)})


def cancel(api: Api, *timers: Any) -> Answer:
    return api.call("POST", f"{api.timers}/batch-cancel", {"timers": list(timers)})


def delete(api: Api, *timers: Any) -> Answer:
    return api.call("POST", f"{api.timers}/batch-delete", {"timers": list(timers)})


def test_the_largest_batch_fits_into_an_event_of_lambda() -> None:
    """Its payloads are JSON in short members, so that it has as many quotes as such a body has."""
    members = {f"key{number}": f"value{number}" for number in range(300)}
    timers = [GOOD | {"id": f"t{number}", "payload": members} for number in range(500)]
    body = json.dumps({"timers": timers}, separators=(",", ":"))
    body = (body * (MAX_BATCH_BYTES // len(body) + 1))[:MAX_BATCH_BYTES]

    assert len(json.dumps({"body": body})) < LAMBDA_EVENT_BYTES - 64 * 1024  # of headers and context


class TestCreate:
    def test_good_ones_are_stored(self, world: World) -> None:
        answer = create(world.api, *(GOOD | {"id": f"t{number}", "payload": number} for number in range(500)))
        assert outcomes(answer) == [(f"t{number}", 201, None) for number in range(500)]
        assert world.timer("t499").content.payload_json == "499"
        assert [timer.timer_id for timer in world.stored] == [f"t{number}" for number in range(500)]

    def test_they_are_spread_evenly_and_always_in_the_same_way(self, world: World) -> None:
        timers = [GOOD | {"id": f"t{number}"} for number in range(300)]
        batch = {"timers": [*timers, {"id": "later", "delay": "1h", "callbackUrl": CALLBACK_URL}], "spread": "10m"}
        first, repeated = (world.api.call("POST", f"{world.api.timers}/batch", batch) for _ in range(2))
        assert {status for _, status, _ in outcomes(first)} == {201}
        assert {status for _, status, _ in outcomes(repeated)} == {200}
        start = parse_instant(GOOD["executeAt"])
        minutes = [(world.timer(each["id"]).content.execute_at - start) // timedelta(minutes=1) for each in timers]
        assert all(15 <= minutes.count(each) <= 50 for each in range(10))  # 30 on average
        assert timedelta(hours=1) < world.timer("later").content.execute_at - NOW < timedelta(hours=1, minutes=10)

    @pytest.mark.parametrize("spread", ["25h", "-1s", "soon", 1e9])
    def test_a_spread_is_checked(self, world: World, spread: Any) -> None:
        answer = world.api.call("POST", f"{world.api.timers}/batch", {"timers": [GOOD], "spread": spread})
        assert (answer.status, answer.json()["errors"][0]["field"]) == (400, "spread")
        assert not world.stored

    def test_each_succeeds_or_fails_alone(self, world: World) -> None:
        api = world.api
        api.create(GOOD | {"id": "same"})
        api.create(GOOD | {"id": "other", "payload": 1})
        world.stored.clear()
        answer = create(
            api,
            GOOD | {"id": "new"},
            GOOD | {"id": "same"},
            GOOD | {"id": "other"},
            GOOD | {"id": "bad", "colour": "red"},
            {"id": "late"},
            GOOD | {"id": "a/b"},
            GOOD | {"id": 7},
            "no object",
            GOOD,
            GOOD | {"id": "new", "payload": 2},
            GOOD | {"id": "big", "payload": "x" * 262_144},
            GOOD | {"id": "last"},
        )
        assert outcomes(answer) == [
            ("new", 201, None),
            ("same", 200, None),
            ("other", 409, "timer_conflict"),
            ("bad", 400, "invalid_input"),
            ("late", 400, "invalid_input"),
            ("a/b", 400, "invalid_input"),
            (None, 400, "invalid_input"),
            (None, 400, "invalid_input"),
            (world.stored[1].timer_id, 201, None),
            ("new", 409, "duplicate_id"),
            ("big", 413, "payload_too_large"),
            ("last", 201, None),
        ]
        assert answer.json()["items"][3]["problem"]["errors"] == [
            {"field": "colour", "message": "is not a known field"}
        ]
        assert world.timer("new").content.payload_json is None
        assert len(api.all_pages()) == 5
        assert [timer.timer_id for timer in world.stored][::2] == ["new", "last"]

    def test_an_item_with_half_a_surrogate_fails_alone(self, api: Api) -> None:
        good = json.dumps(GOOD)[1:]
        items = [f'{{"payload":"\\ud800",{good}', f'{{"id":"\\ud800",{good}', f'{{"id":"t1",{good}']
        answer = api.call("POST", f"{api.timers}/batch", f'{{"timers":[{",".join(items)}]}}')
        assert [item["status"] for item in answer.json()["items"]] == [400, 400, 201]

    def test_an_item_with_a_member_twice_fails_alone(self, api: Api) -> None:
        good = json.dumps(GOOD)[1:]
        items = [
            f'{{"payload":1,"payload":2,{good}',
            f'{{"headers":{{"a":"1","a":"2"}},{good}',
            f'{{"id":"t1",{good}',
        ]
        answer = api.call("POST", f"{api.timers}/batch", f'{{"timers":[{",".join(items)}]}}')
        assert [item["status"] for item in answer.json()["items"]] == [400, 400, 201]

    def test_none_at_all(self, world: World) -> None:
        assert create(world.api).json() == {"items": []}
        assert outcomes(create(world.api, {})) == [(None, 400, "invalid_input")]
        assert world.stored == []


class TestCancel:
    def test_each_has_a_result(self, world: World) -> None:
        api = world.api
        for timer_id in ("a", "b", "c"):
            api.put(timer_id, GOOD)
        for _ in range(2):  # what is cancelled already stays as it is
            answer = cancel(api, {"id": "a"}, {"id": "gone"}, {"id": "b", "revision": 2}, {"id": "c"})
            assert outcomes(answer) == [
                ("a", 200, None),
                ("gone", 404, "timer_not_found"),
                ("b", 412, "revision_mismatch"),
                ("c", 200, None),
            ]
            assert sorted((item["id"], item["state"], item["revision"]) for item in api.all_pages()) == [
                ("a", "Cancelled", 2),
                ("b", "Scheduled", 1),
                ("c", "Cancelled", 2),
            ]


class TestDelete:
    def test_each_has_a_result(self, world: World) -> None:
        api = world.api
        for timer_id in ("a", "b", "c"):
            api.put(timer_id, GOOD)
        api.put("due", GOOD | {"executeAt": format_instant(NOW)})
        answer = delete(
            api, {"id": "a"}, {"id": "gone"}, {"id": "b", "revision": 2}, {"id": "c", "revision": 1}, {"id": "due"}
        )
        assert outcomes(answer) == [
            ("a", 200, None),
            ("gone", 404, "timer_not_found"),
            ("b", 412, "revision_mismatch"),
            ("c", 200, None),
            ("due", 200, None),
        ]
        flags = [item.get("attemptInFlight") for item in answer.json()["items"]]
        assert flags == [False, None, None, False, True]
        assert [item["id"] for item in api.all_pages()] == ["b"]

    @pytest.mark.parametrize("act", [cancel, delete])
    def test_bad_items_fail_alone(self, api: Api, act: Callable[..., Answer]) -> None:
        api.put("a", GOOD)
        answer = act(
            api,
            {"id": "a"},
            {"id": "a"},
            {},
            {"id": 1},
            {"id": "x/y"},
            {"id": "b", "revision": 0},
            [],
            {"id": "c", "revision": 2**63},
        )
        assert [status for _, status, _ in outcomes(answer)] == [200, 409, 400, 400, 400, 400, 400, 400]

    @pytest.mark.parametrize("act", [cancel, delete])
    def test_none_at_all(self, api: Api, act: Callable[..., Answer]) -> None:
        assert act(api).json() == {"items": []}


@pytest.mark.parametrize("route", ["batch", "batch-cancel", "batch-delete"])
class TestBoth:
    @pytest.mark.parametrize(
        "body", ['{"timers":{}}', "{}", '{"timers":[],"x":1}', '{"timers":[1,]}', '{"timers":[NaN]}', "[]"]
    )
    def test_a_broken_batch_is_refused_as_a_whole(self, api: Api, route: str, body: str) -> None:
        answer = api.call("POST", f"{api.timers}/{route}", body)
        assert (answer.status, answer.code) == (400, "invalid_input")

    def test_the_number_of_items_is_bounded(self, world: World, route: str) -> None:
        body = {"timers": [GOOD | {"id": f"t{number}"} for number in range(501)]}
        assert world.api.call("POST", f"{world.api.timers}/{route}", body).faults.keys() == {"timers"}
        assert world.api.all_pages() == []

    def test_the_body_is_bounded(self, api: Api, route: str) -> None:
        largest = '{"timers":["' + "x" * (MAX_BATCH_BYTES - 15) + '"]}'
        assert api.call("POST", f"{api.timers}/{route}", largest).status == 200
        answer = api.call("POST", f"{api.timers}/{route}", largest + " ")
        assert (answer.status, answer.code) == (413, "payload_too_large")

    def test_the_namespace_must_exist(self, api: Api, route: str) -> None:
        answer = api.call("POST", f"/v1/namespaces/other/timers/{route}", {"timers": []})
        assert answer.code == "namespace_not_found"
