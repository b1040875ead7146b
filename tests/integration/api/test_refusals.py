"""A timer that the database refuses for good has an answer of its own: 507, and the others are stored."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.app.pages import PageOfWork
from duetime.app.timers import Timers
from duetime.domain.timers import TimerState
from duetime.stores.port.timers import PutResult, PutStatus, TimerFilter
from duetime.testing.contract.builders import failed, make_timer
from duetime.testing.contract.steps import claim, create, record
from tests.support.api import World, api_world, context_for
from tests.support.clock import NOW
from tests.support.http import Api
from tests.support.parts import Overlay
from tests.support.sql_store import SqlStore

GOOD: dict[str, Any] = {"executeAt": "2026-12-21T00:00:00Z", "callbackUrl": "http://receiver.test/callback"}


@pytest.fixture
def world() -> Iterator[World]:
    with api_world() as world:
        yield world


def refuse(world: World, event: str) -> None:
    """Have the database refuse to ``event`` (INSERT, UPDATE, DELETE) the row of one timer."""
    assert isinstance(world.store, SqlStore)
    row = "OLD" if event == "DELETE" else "NEW"
    with world.store.database.engine.connect() as connection:
        connection.exec_driver_sql(
            f"CREATE TRIGGER refusal BEFORE {event} ON timers WHEN {row}.timer_id = 'poison' "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        connection.commit()


def ids() -> list[str]:
    return [f"t{number}" for number in range(499)]


def with_poison() -> list[str]:
    return [*ids()[:250], "poison", *ids()[250:]]


def statuses(answer: Any) -> dict[str, tuple[int, str | None]]:
    assert answer.status == 200, answer
    return {each["id"]: (each["status"], each.get("problem", {}).get("code")) for each in answer.json()["items"]}


def test_of_500_new_timers_one_is_refused_and_499_are_created(world: World) -> None:
    refuse(world, "INSERT")
    timers = [GOOD | {"id": timer_id} for timer_id in with_poison()]
    answer = statuses(world.api.call("POST", f"{world.api.timers}/batch", {"timers": timers}))
    assert list(answer) == with_poison(), "in order"
    assert answer.pop("poison") == (507, "store_refused")
    assert set(answer.values()) == {(201, None)}
    assert len(world.stored) == 499


@pytest.mark.parametrize(("what", "event"), [("batch-cancel", "UPDATE"), ("batch-delete", "DELETE")])
def test_of_500_timers_one_is_refused_and_499_are_cancelled_or_gone(world: World, what: str, event: str) -> None:
    create(world.store, *(make_timer(world.namespace, timer_id) for timer_id in with_poison()))
    refuse(world, event)
    body = {"timers": [{"id": timer_id} for timer_id in with_poison()]}
    answer = statuses(world.api.call("POST", f"{world.api.timers}/{what}", body))
    assert answer.pop("poison") == (507, "store_refused")
    assert set(answer.values()) == {(200, None)}


def fail(world: World, *timer_ids: str) -> None:
    create(world.store, *(make_timer(world.namespace, timer_id) for timer_id in timer_ids))
    for shard_id in world.namespace.shard_ids():
        timers = world.store.timers.due(shard_id, until=NOW, limit=100).timers
        record(world.store, [failed(timer) for timer in timers], claim(world.store, shard_id))


def test_of_a_page_of_redriven_timers_one_is_refused(world: World) -> None:
    fail(world, "a", "b", "poison", "z")
    refuse(world, "UPDATE")
    use_cases = Timers(world.store, world.clock, lambda _: None, retention=timedelta(days=1))
    page = use_cases.redrive_page(world.namespace, TimerFilter(), PageOfWork(None, 10, NOW), correlation_id=None)
    assert (sorted(timer.timer_id for timer in page.redriven), page.skipped) == (["a", "b", "z"], 1)
    assert world.timer("poison").state is TimerState.FAILED


def test_of_named_timers_to_redrive_one_is_refused(world: World) -> None:
    fail(world, "a", "b", "poison", "z")
    refuse(world, "UPDATE")
    answer = world.api.call(
        "POST", f"{world.api.timers.rpartition('/')[0]}/redrive", {"ids": ["a", "poison", "b", "z"]}
    )
    assert statuses(answer) == {
        "a": (200, None),
        "poison": (507, "store_refused"),
        "b": (200, None),
        "z": (200, None),
    }


def refused(timers: Any, **named: Any) -> list[PutResult]:
    return [PutResult(PutStatus.REFUSED, None) for _ in timers]


@pytest.mark.parametrize("method", ["POST", "PUT"])
def test_a_single_timer_that_is_refused_is_a_507(world: World, method: str) -> None:
    telling = Overlay(world.store, timers=Overlay(world.store.timers, put=refused))
    api = Api(build_handler(context_for(telling, world.clock)))
    path = api.timers if method == "POST" else f"{api.timers}/poison"
    answer = api.call(method, path, GOOD)
    assert answer.status == 507
    assert answer.json()["code"] == "store_refused"
