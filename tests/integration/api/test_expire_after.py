"""``expireAfter``: how late a timer may be and still be fired."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.api import World

GOOD: dict[str, Any] = {"id": "t1", "executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/"}
YEAR_MS = 366 * 86_400_000


@pytest.mark.parametrize(
    ("given", "kept_ms", "shown"),
    [
        ("30s", 30_000, "30s"),
        ("90m", 5_400_000, "1h30m"),
        ("PT5M", 300_000, "5m"),
        (1.5, 1500, "1s500ms"),
        ("0.001", 1, "1ms"),
        ("1ms", 1, "1ms"),
        ("31622399.999", YEAR_MS - 1, "365d23h59m59s999ms"),
        ("366d", YEAR_MS, "366d"),
        (None, None, None),
    ],
)
def test_it_is_kept_and_shown(world: World, given: object, kept_ms: int | None, shown: str | None) -> None:
    answer = world.api.create(GOOD | {"expireAfter": given})
    assert (answer.status, answer.json()["expireAfter"]) == (201, shown)
    assert world.timer("t1").content.expire_after_ms == kept_ms
    # What is shown can be sent.
    again = world.api.create(GOOD | {"expireAfter": shown})
    assert (again.status, again.text) == (200, answer.text)
    assert world.api.list().json()["items"][0]["expireAfter"] == shown


@pytest.mark.parametrize(
    "given", [0, "0s", -1, "0.4ms", "1.5ms", 0.0001, "366d1ms", "soon", "", True, [], {}, "1y", 1e300]
)
def test_what_cannot_be_kept_is_named(world: World, given: object) -> None:
    world.api.create(GOOD)
    body = GOOD | {"id": "t2", "expireAfter": given}
    for answer in (
        world.api.create(body),
        world.api.put("t2", body),
        world.api.patch("t1", {"expireAfter": given}),
    ):
        assert (answer.status, list(answer.faults)) == (400, ["expireAfter"])
    (item,) = world.api.call("POST", f"{world.api.timers}/batch", {"timers": [body]}).json()["items"]
    assert (item["status"], item["problem"]["errors"][0]["field"]) == (400, "expireAfter")
    assert [timer["id"] for timer in world.api.all_pages()] == ["t1"]


def test_it_is_part_of_the_content(world: World) -> None:
    world.api.create(GOOD | {"expireAfter": "1h"})
    assert world.api.create(GOOD | {"expireAfter": "60m"}).status == 200
    assert world.api.create(GOOD | {"expireAfter": "2h"}).status == 409
    assert world.api.create(GOOD).status == 409


def test_it_can_be_changed_kept_and_cleared(world: World) -> None:
    world.api.create(GOOD | {"expireAfter": "1h"})
    firing_id = world.timer("t1").firing_id
    assert world.api.patch("t1", {"tags": ["a"]}).json()["expireAfter"] == "1h"
    assert world.api.patch("t1", {"expireAfter": "2h"}).json()["expireAfter"] == "2h"
    assert world.api.patch("t1", {"expireAfter": None}).json()["expireAfter"] is None
    assert world.timer("t1").firing_id == firing_id


def test_a_replacement_has_its_own_or_none(world: World) -> None:
    world.api.create(GOOD | {"expireAfter": "1h"})
    assert world.api.put("t1", GOOD | {"expireAfter": "2h"}).json()["expireAfter"] == "2h"
    assert world.api.put("t1", GOOD).json()["expireAfter"] is None


def test_a_batch_takes_it(world: World) -> None:
    batch = {"timers": [GOOD | {"expireAfter": "10s"}, GOOD | {"id": "t2"}]}
    answer = world.api.call("POST", f"{world.api.timers}/batch", batch)
    assert [item["status"] for item in answer.json()["items"]] == [201, 201]
    assert [world.api.read(timer_id).json()["expireAfter"] for timer_id in ("t1", "t2")] == ["10s", None]
