"""Requests about the schedules of an API's namespace ``default``."""

from __future__ import annotations

from typing import Any

from duetime.domain.ids import schedule_timer_id
from duetime.domain.timers import Timer
from duetime.testing.contract.builders import make_namespace
from tests.support.api import World
from tests.support.clock import NOW
from tests.support.http import Answer

PATH = "/v1/namespaces/default/schedules"
NAMESPACE = make_namespace("default")
URL = "http://receiver.test/callback"


def create(world: World, **body: Any) -> Answer:
    given = {"id": "s1", "cron": "0 9 * * *", "callbackUrl": URL} | body
    return world.api.call("POST", PATH, {name: value for name, value in given.items() if value is not ...})


def created(world: World, **body: Any) -> Any:
    answer = create(world, **body)
    assert answer.status == 201, answer.text
    return answer.json()


def act(world: World, action: str, body: dict[str, Any] | None = None, **more: Any) -> Answer:
    return world.api.call("POST", f"{PATH}/s1/{action}", {} if body is None else body, **more)


def stored(world: World, timer_id: str | None = None) -> Timer:
    timer = world.store.timers.get(NAMESPACE, timer_id or schedule_timer_id("s1"), now=NOW)
    assert timer is not None
    return timer
