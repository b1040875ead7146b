"""Namespaces that are paused, resumed and deleted, over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.api.context import NamespaceCache
from duetime.api.handler import build_handler
from duetime.domain.errors import NamespaceNotFound, StoreUnavailable
from duetime.domain.namespaces import NamespaceState
from duetime.domain.principals import Principal, Role
from duetime.domain.tenants import DEFAULT_TENANT
from tests.support.api import World, context_for
from tests.support.clock import NOW
from tests.support.http import Answer, Api
from tests.support.parts import Overlay, overlaid

PATH = "/v1/namespaces/default"
TIMER = {"delay": "1h", "callbackUrl": "https://receiver.test/hook"}


def create(api: Api, number: int = 1) -> None:
    for name in range(number):
        assert api.call("PUT", f"{PATH}/timers/t{name}", TIMER).status == 201


def delete(api: Api, *, force: bool = False) -> Answer:
    return api.call("DELETE", PATH, query={"force": "true"} if force else {})


def deleted(world: World, *, force: bool = False) -> list[dict[str, Any]]:
    """The steps of a deletion, each after the wait that the one before asked for."""
    steps = []
    while (answer := delete(world.api, force=force)).status == 202:
        steps.append(answer.json())
        world.clock.advance(float(answer.headers["retry-after"]))
        assert len(steps) < 50
    assert answer.status == 200, answer.text
    return [*steps, answer.json()]


def test_a_pause_is_shown_with_its_reason_and_ends_with_resume(world: World) -> None:
    paused = world.api.call("POST", f"{PATH}/pause", {"reason": "the warehouse is closed"})

    assert (paused.status, paused.headers["etag"]) == (200, '"2"')
    shown = {name: paused.json()[name] for name in ("state", "pausedAt", "pauseReason")}
    assert shown == {
        "state": "Paused",
        "pausedAt": "2026-12-20T15:30:00.000Z",
        "pauseReason": "the warehouse is closed",
    }
    assert world.api.get(PATH).json() == paused.json()
    create(world.api)
    resumed = world.api.call("POST", f"{PATH}/resume").json()
    assert (resumed["state"], resumed["pausedAt"], resumed["pauseReason"]) == ("Active", None, None)


def test_to_repeat_either_changes_nothing(world: World) -> None:
    first = world.api.call("POST", f"{PATH}/pause", {"reason": "x"}).json()
    world.clock.advance(60)
    for body in ({"reason": "x"}, {"reason": "y"}, {}):
        assert world.api.call("POST", f"{PATH}/pause", body).json() == first
    resumed = world.api.call("POST", f"{PATH}/resume").json()
    world.clock.advance(60)
    assert world.api.call("POST", f"{PATH}/resume").json() == resumed


@pytest.mark.parametrize("body", [{"reason": ""}, {"reason": 7}, {"reason": "x" * 256}, {"since": "now"}])
def test_a_wrong_reason_is_refused_by_its_name(world: World, body: dict[str, Any]) -> None:
    answer = world.api.call("POST", f"{PATH}/pause", body)

    assert (answer.status, answer.json()["errors"][0]["field"]) == (400, next(iter(body)))
    assert world.api.get(PATH).json()["state"] == "Active"


@pytest.mark.parametrize(("method", "path"), [("POST", "/pause"), ("POST", "/resume"), ("DELETE", "")])
def test_another_revision_is_left_alone(world: World, method: str, path: str) -> None:
    before = world.api.get(PATH).json()

    assert world.api.call(method, PATH + path, headers={"if-match": '"7"'}).status == 412

    assert world.api.get(PATH).json() == before


def test_misfire_is_a_setting(world: World) -> None:
    assert world.api.call("PUT", PATH, {"misfire": "expire"}).json()["misfire"] == "expire"
    assert world.api.call("PUT", PATH, {"misfire": None}).json()["misfire"] is None
    refused = world.api.call("PUT", PATH, {"misfire": "skip"})
    assert (refused.status, refused.json()["errors"][0]["field"]) == (400, "misfire")


def test_an_empty_namespace_is_deleted_once_nobody_can_be_creating_in_it(world: World) -> None:
    began = world.clock.monotonic()

    steps = deleted(world)

    assert steps[0] == {"removed": 0, "done": False}
    assert steps[-1] == {"removed": 0, "done": True}
    assert world.clock.monotonic() - began >= 20
    assert world.api.get(PATH).status == 404
    assert delete(world.api).status == 404
    assert world.api.call("POST", f"{PATH}/timers", TIMER).status == 404
    assert world.api.call("PUT", PATH, {"numShards": 7}).status == 201


def test_timers_are_spared_without_force(world: World) -> None:
    create(world.api)

    answer = delete(world.api)

    assert (answer.status, answer.json()["code"]) == (409, "namespace_not_empty")
    assert world.api.get(PATH).json()["state"] == "Active"
    assert world.api.get(f"{PATH}/timers/t0").status == 200


def test_with_force_timers_go_too_a_page_at_a_time(world: World) -> None:
    create(world.api, 3)

    steps = deleted(world, force=True)

    assert sum(step["removed"] for step in steps) == 3
    world.api.call("PUT", PATH, {"numShards": 4})
    assert world.api.list(f"{PATH}/timers").json()["items"] == []


def test_a_namespace_that_is_being_deleted_takes_nothing_new(world: World) -> None:
    create(world.api)
    assert delete(world.api, force=True).status == 202

    refused = [
        world.api.call("POST", f"{PATH}/timers", TIMER),
        world.api.call("PUT", f"{PATH}/timers/new", TIMER),
        world.api.call("POST", f"{PATH}/timers/batch", {"timers": [{"id": "new"} | TIMER]}),
        world.api.call("POST", f"{PATH}/pause"),
        world.api.call("POST", f"{PATH}/resume"),
    ]

    assert {(answer.status, answer.json()["code"]) for answer in refused} == {(409, "namespace_deleting")}
    assert world.api.get(PATH).json()["state"] == "Deleting"


def test_what_another_process_still_creates_is_removed_before_the_end(world: World) -> None:
    other = Api(build_handler(context_for(world.store, world.clock)))
    assert other.get(f"{PATH}/timers").status == 200  # it knows the namespace now
    assert delete(world.api, force=True).status == 202

    assert other.call("PUT", f"{PATH}/timers/late", TIMER).status == 201
    world.clock.advance(10)
    assert other.call("PUT", f"{PATH}/timers/later", TIMER).status == 409

    assert sum(step["removed"] for step in deleted(world, force=True)) == 1


def test_a_name_that_is_free_again_may_be_another_tenants(world: World) -> None:
    cache, owner = NamespaceCache(world.store, world.clock), Principal(DEFAULT_TENANT, Role.ADMIN, "k")
    while delete(world.api).status == 202:
        assert cache.get("default", owner).state is NamespaceState.DELETING
        world.clock.advance(4)
    world.store.catalogue.create_namespace("default", num_shards=9, dedicated=False, now=NOW, tenant_id="other")

    with pytest.raises(NamespaceNotFound):
        cache.get("default", owner)
    assert cache.get("default", None).num_shards == 9


def test_a_process_that_cannot_read_namespaces_knows_none_that_is_gone(world: World) -> None:
    def unreadable(_: str) -> None:
        raise StoreUnavailable("the catalogue does not answer")

    catalogue: Any = Overlay(world.store.catalogue)
    other = NamespaceCache(overlaid(world.store, catalogue=catalogue), world.clock)
    assert other.get("default", None).num_shards == 4
    catalogue.get_namespace = unreadable
    world.clock.advance(12)
    assert other.get("default", None).num_shards == 4

    delete(world.api)
    while delete(world.api).status == 202:
        world.clock.advance(1)

    with pytest.raises(StoreUnavailable):
        other.get("default", None)


def test_a_deletion_that_meets_timers_it_must_spare_is_given_up(world: World) -> None:
    other = Api(build_handler(context_for(world.store, world.clock)))
    assert other.get(f"{PATH}/timers").status == 200
    assert delete(world.api).status == 202
    assert other.call("PUT", f"{PATH}/timers/late", TIMER).status == 201

    assert delete(world.api).status == 409

    assert world.api.get(PATH).json()["state"] == "Active"
