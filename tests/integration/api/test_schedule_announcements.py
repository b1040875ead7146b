"""Events of what clients do to schedules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from duetime.api.handler import build_handler
from duetime.domain.events import Event, EventsUndelivered, ScheduleEvent
from tests.support.api import World, api_world, context_for
from tests.support.http import Api
from tests.support.schedule_api import PATH, URL, act, created


@dataclass
class Bus:
    calls: list[list[ScheduleEvent]] = field(default_factory=list)
    is_broken: bool = False

    def publish(self, events: Sequence[Event]) -> None:
        self.calls.append([event for event in events if isinstance(event, ScheduleEvent)])
        if self.is_broken:
            raise EventsUndelivered("no answer", events)

    @property
    def told(self) -> list[tuple[str, str, str | None]]:
        return [(event.type, event.schedule_id, event.reason) for events in self.calls for event in events]


@pytest.fixture
def bus() -> Bus:
    return Bus()


@pytest.fixture
def world(bus: Bus) -> Iterator[World]:
    with api_world() as world:
        context = replace(context_for(world.store, world.clock, world.stored), publish=bus.publish)
        yield replace(world, api=Api(build_handler(context)))


def test_a_pause_and_a_resume_are_announced_once(world: World, bus: Bus) -> None:
    created(world, tags=["x"])
    for _ in range(2):
        act(world, "pause", {"reason": "moving"})
    for _ in range(2):
        act(world, "resume")

    assert bus.told == [("schedule.paused", "s1", "moving"), ("schedule.resumed", "s1", None)]
    (paused,), (resumed,) = (events for events in bus.calls if events)
    assert (paused.tags, paused.at) == (("x",), world.clock.now())
    act(world, "pause")
    assert len({event.event_id for events in bus.calls for event in events}) == 3
    assert resumed.document()["type"] == "schedule.resumed"


def test_what_is_put_or_changed_is_announced_too(world: World, bus: Bus) -> None:
    body: dict[str, Any] = {"cron": "0 9 * * *", "callbackUrl": URL}
    world.api.call("PUT", f"{PATH}/s1", {**body, "paused": True})
    assert bus.told == []
    world.api.call("PUT", f"{PATH}/s1", {**body, "paused": False})
    world.api.call("PUT", f"{PATH}/s1", {**body, "paused": True})
    world.api.call("PUT", f"{PATH}/s1", {**body, "paused": False}, query={"dryRun": "true"})
    world.api.call("PUT", f"{PATH}/s1", {**body, "cron": "0 8 * * *"})

    assert bus.told == [("schedule.resumed", "s1", None), ("schedule.paused", "s1", None)]


def test_what_is_refused_is_not_announced(world: World, bus: Bus) -> None:
    created(world)

    assert act(world, "pause", headers={"if-match": '"7"'}).status == 412
    assert bus.told == []


def test_all_of_a_page_are_announced_together(world: World, bus: Bus) -> None:
    for each in ("a", "b"):
        created(world, id=each)
    bus.is_broken = True

    answer = world.api.call("POST", f"{PATH}/pause", {"reason": "r"})

    assert answer.json()["affected"] == 2
    assert [len(events) for events in bus.calls] == [2]
    assert sorted(bus.told) == [("schedule.paused", "a", "r"), ("schedule.paused", "b", "r")]


def test_what_the_bus_does_not_take_is_logged_and_stays_done(
    world: World, bus: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    created(world)
    bus.is_broken = True

    assert act(world, "pause", {"reason": "r"}).json()["state"] == "Paused"
    (line,) = (each for each in caplog.records if getattr(each, "action", None) == "event.undelivered")
    assert line.event["reason"] == "r"  # type: ignore[attr-defined]
