"""Requests that are answered together share a write of the store, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from duetime.api.handler import ApiHandler, build_handler
from duetime.api.routes import all_routes
from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.timers import Timer
from duetime.stores.port.timers import PutMode, PutResult
from tests.support.api import World, context_for
from tests.support.http import Answer, Api, answer_of
from tests.support.parts import Overlay

GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}
CREATE, REPLACE = PutMode.CREATE, PutMode.REPLACE


class Shared:
    """A handler whose store tells what it was given to put at once."""

    def __init__(self, world: World) -> None:
        self.puts: list[tuple[PutMode, list[str]]] = []
        self.stored: list[Timer] = []
        self.error: Exception | None = None
        self._put = world.store.timers.put
        store = Overlay(world.store, timers=Overlay(world.store.timers, put=self.put))
        self.handler = build_handler(context_for(store, world.clock, self.stored))
        self.api = Api(self.handler)

    def put(self, timers: Sequence[Timer], *, mode: PutMode, **named: Any) -> list[PutResult]:
        self.puts.append((mode, [timer.timer_id for timer in timers]))
        if self.error is not None:
            raise self.error
        return self._put(timers, mode=mode, **named)

    def create(self, timer_id: str, **fields: Any) -> dict[str, Any]:
        return self.api.event("POST", self.api.timers, {"id": timer_id, **GOOD, **fields})

    def replace(self, timer_id: str, **fields: Any) -> dict[str, Any]:
        return self.api.event("PUT", self.api.timer(timer_id), {**GOOD, **fields})

    def answers(self, *events: dict[str, Any]) -> list[Answer]:
        return [*map(answer_of, events, self.handler.answer_together(events))]


@pytest.fixture
def shared(world: World) -> Shared:
    return Shared(world)


def test_two_creates_are_one_write(world: World, shared: Shared) -> None:
    answers = shared.answers(shared.create("a"), shared.create("b", payload={"n": 1}))
    assert shared.puts == [(CREATE, ["a", "b"])]
    assert [(each.status, each.json()["id"], each.headers["etag"]) for each in answers] == [
        (201, "a", '"1"'),
        (201, "b", '"1"'),
    ]
    assert answers[1].headers["location"].endswith("/timers/b")
    assert [timer.timer_id for timer in shared.stored] == ["a", "b"]
    assert world.timer("b").content.payload_json == '{"n": 1}'


def test_creates_and_replacements_are_one_write_each(shared: Shared) -> None:
    events = [shared.create("a"), shared.replace("b"), shared.create("c"), shared.replace("d")]
    assert [each.status for each in shared.answers(*events)] == [201] * 4
    assert shared.puts == [(CREATE, ["a", "c"]), (REPLACE, ["b", "d"])]


def test_what_is_wrong_with_one_is_its_own_answer(world: World, shared: Shared) -> None:
    shared.answers(shared.create("taken"), shared.create("same"))
    answers = shared.answers(
        shared.create("a"),
        shared.create("bad", callbackUrl="nowhere"),
        shared.create("taken", payload=1),
        shared.api.event("POST", "/v1/namespaces/unknown/timers", {"id": "x", **GOOD}),
        shared.create("same"),
        shared.api.event("POST", shared.api.timers, b"{"),
        shared.create("z"),
    )
    assert [each.status for each in answers] == [201, 400, 409, 404, 200, 400, 201]
    assert list(answers[1].faults) == ["callbackUrl"]
    assert shared.puts[1:] == [(CREATE, ["a", "taken", "same", "z"])]
    assert [timer.timer_id for timer in shared.stored] == ["taken", "same", "a", "z"]
    assert world.timer("taken").content.payload_json is None


def test_writes_to_one_timer_keep_their_order(world: World, shared: Shared) -> None:
    answers = shared.answers(
        shared.create("a", payload=1),
        shared.create("b"),
        shared.replace("a", payload=2),
        shared.replace("c"),
        shared.replace("a", payload=3),
        shared.create("a", payload=1),
    )
    assert [each.status for each in answers] == [201, 201, 200, 201, 200, 409]
    assert [each.json().get("revision") for each in answers] == [1, 1, 2, 1, 3, None]
    assert world.timer("a").content.payload_json == "3"


def test_a_store_that_fails_is_the_answer_to_each(shared: Shared) -> None:
    shared.error = StoreUnavailable("away")
    answers = shared.answers(shared.create("a"), shared.create("bad", callbackUrl=""), shared.replace("b"))
    assert [each.status for each in answers] == [503, 400, 503]
    assert {answers[0].code, answers[2].code} == {"store_unavailable"}
    assert shared.stored == []
    shared.error = None
    assert [each.status for each in shared.answers(shared.create("a"), shared.replace("b"))] == [201, 201]


def test_a_timer_that_the_database_refuses_is_refused_alone(world: World, shared: Shared) -> None:
    put = shared._put

    def refuse(timers: Sequence[Timer], **named: Any) -> list[PutResult]:
        if any(timer.timer_id == "poison" for timer in timers):
            raise StoreError("no")
        return put(timers, **named)

    shared._put = refuse
    answers = shared.answers(*map(shared.create, ["a", "poison", "b"]))
    assert [each.status for each in answers] == [201, 507, 201]
    assert world.timer("a").revision == world.timer("b").revision == 1


@pytest.mark.parametrize(
    ("method", "path", "headers", "is_shared"),
    [
        ("POST", "/v1/namespaces/default/timers", {}, True),
        ("PUT", "/v1/namespaces/default/timers/a", {}, True),
        ("POST", "/v1/namespaces/default/timers", {"Idempotency-Key": "k"}, False),
        ("PUT", "/v1/namespaces/default/timers/a", {"If-Match": '"1"'}, False),
        ("PUT", "/v1/namespaces/default/timers/a", {"If-None-Match": "*"}, False),
        ("POST", "/v1/namespaces/default/timers/batch", {}, False),
        ("POST", "/v1/namespaces/default/timers/a/fire", {}, False),
        ("PATCH", "/v1/namespaces/default/timers/a", {}, False),
        ("GET", "/v1/namespaces/default/timers/a", {}, False),
        ("PUT", "/v1/namespaces/default", {}, False),
        ("POST", "/v1/tenants/t/service-calls", {}, False),
    ],
)
def test_requests_that_take_more_than_one_write_share_none(
    world: World, method: str, path: str, headers: dict[str, str], is_shared: bool
) -> None:
    handler = ApiHandler(context_for(world.store, world.clock), all_routes())
    assert handler.shares_write(world.api.event(method, path, headers=headers)) is is_shared


def test_a_request_with_an_idempotency_key_is_carried_out_once(shared: Shared) -> None:
    events = [shared.api.event("POST", shared.api.timers, GOOD, headers={"Idempotency-Key": "k"})] * 2
    first, again = shared.answers(*events)
    assert (first.status, again.status) == (201, 201)
    assert first.text == again.text
    assert len(shared.puts) == 1


def test_a_store_that_does_not_answer_is_waited_for_once(world: World) -> None:
    """Each look takes seconds where nothing comes back, and those behind would wait for all of them."""
    looks: list[str] = []

    def wait_in_vain(name: str) -> None:
        looks.append(name)
        raise StoreUnavailable("no answer")

    store: Any = Overlay(world.store, catalogue=Overlay(world.store.catalogue, get_namespace=wait_in_vain))
    handler = build_handler(context_for(store, world.clock))
    events = [world.api.event("PUT", world.api.timer(f"t{n}"), GOOD) for n in range(5)]

    answers = [*map(answer_of, events, handler.answer_together(events))]

    assert [(each.status, each.code, each.headers["retry-after"]) for each in answers] == [
        (503, "store_unavailable", "1")
    ] * 5
    assert len(looks) == 1
    assert world.api.put("t0", GOOD).status == 201
