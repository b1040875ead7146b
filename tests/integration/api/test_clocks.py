"""A machine whose clock is wrong serves the API, as on Lambda: requests keep the store's time themselves."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.times import parse_instant
from duetime.runtime.api_wiring import api_context
from duetime.runtime.tuning import ApiTuning
from duetime.stores.store_clock import StoreClock
from tests.support.api import World
from tests.support.http import Api
from tests.support.timed_store import SkewedClock, TimedStore

DELAYED: dict[str, Any] = {"delay": "60s", "callbackUrl": "http://receiver.test/callback"}


class WrongMachine:
    def __init__(self, world: World, ahead_seconds: float) -> None:
        self.own = SkewedClock(world.clock, ahead_seconds)
        self.store = TimedStore(world.store, world.clock)
        context = api_context(
            self.store,
            ApiTuning(),
            StoreClock(self.store, self.own),
            secret_box=None,
            authenticate=None,
            keeps_time=True,
        )
        self.api = Api(build_handler(context))


def due_in_seconds(world: World, api: Api) -> float:
    """How long after now, truly, a timer is due that is wanted in 60 s."""
    due = parse_instant(str(api.create(DELAYED).json()["executeAt"]))
    return (due - world.clock.now()) / timedelta(seconds=1)


@pytest.mark.parametrize("ahead_seconds", [0.0, 5.0, -5.0, 300.0, -300.0])
def test_a_delay_is_counted_by_the_stores_clock(world: World, ahead_seconds: float) -> None:
    machine = WrongMachine(world, ahead_seconds)

    assert due_in_seconds(world, machine.api) == pytest.approx(60.0, abs=0.002)
    world.clock.advance(30)
    assert due_in_seconds(world, machine.api) == pytest.approx(60.0, abs=0.002)


def test_a_clock_that_is_set_while_it_serves_changes_nothing(world: World) -> None:
    machine = WrongMachine(world, 0.0)
    due_in_seconds(world, machine.api)
    machine.own.ahead_seconds = -900.0

    assert due_in_seconds(world, machine.api) == pytest.approx(60.0, abs=0.002)


@pytest.mark.parametrize(
    ("ahead_seconds", "clock"), [(0.0, "ok"), (0.9, "ok"), (-5.0, "differs"), (300.0, "differs")]
)
def test_health_tells_of_it(world: World, ahead_seconds: float, clock: str) -> None:
    answer = WrongMachine(world, ahead_seconds).api.get("/health")

    assert answer.status == 200
    health = answer.json()
    assert (health["status"], health["clock"]) == ("ok", clock)
    assert health["clockOffsetSeconds"] == pytest.approx(ahead_seconds, abs=0.002)


def test_a_store_that_does_not_tell_its_time_is_answered_for_as_ever(world: World) -> None:
    machine = WrongMachine(world, 5.0)
    machine.store.is_down = True

    assert machine.api.get("/health").status == 503
