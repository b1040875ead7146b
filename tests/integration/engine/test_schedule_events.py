"""Events of schedules: what a poller does to them is announced, in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from duetime.domain.events import Event, ScheduleEvent
from duetime.domain.namespaces import Pause
from duetime.domain.schedules import ScheduleMisfire, SchedulePolicy
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.integration.engine.test_schedules import WHERE, answering, make_schedule, state_of
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, put, run
from tests.support.scripted_sender import Script, ScriptedSender


@dataclass
class Bus:
    """Takes events, and notes whether the schedule was paused or had ended by then."""

    store: Store
    clock: VirtualClock
    taken: list[ScheduleEvent] = field(default_factory=list)
    was_recorded: list[bool] = field(default_factory=list)

    def publish(self, events: Sequence[Event]) -> None:
        schedule = state_of(self.store, self.clock)
        self.taken += [cast("ScheduleEvent", event) for event in events]
        self.was_recorded += [schedule.pause is not None or schedule.end is not None for _ in events]

    @property
    def told(self) -> list[tuple[str, str | None]]:
        return [(event.type, event.reason) for event in self.taken]


@pytest.fixture
def bus(store: Store, clock: VirtualClock) -> Bus:
    return Bus(store, clock)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b'{"pause": "full"}', ("schedule.paused", "the receiver paused the schedule: full")),
        (b'{"end": true}', ("schedule.ended", "receiver")),
    ],
)
def test_what_its_receiver_asks_is_announced_once(
    store: Store, clock: VirtualClock, bus: Bus, where: str, body: bytes, told: tuple[str, str]
) -> None:
    attempt, delay = WHERE[where]
    put(store, [make_schedule(tags=("t",), correlation_id="c")], START)
    asked = Script(body=body, delay_seconds=delay)
    sender = answering(
        lambda seconds, number: (asked if number == attempt else Script(status=503)) if seconds == 20 else None
    )

    run(clock, make_poller(store, sender, clock, events=bus), 45)

    assert bus.told == [told]
    assert bus.was_recorded == [where != "at once"]
    document = bus.taken[0].document()
    assert (document["namespace"], document["scheduleId"], document["tags"]) == ("default", "s1", ["t"])
    assert (document["correlationId"], document["count"]) == ("c", None)


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_its_last_firing_ends_it_while_that_is_still_in_flight(
    store: Store, clock: VirtualClock, bus: Bus, seconds: float
) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(max_firings=2))], START)

    run(clock, make_poller(store, answering(lambda *_: Script(delay_seconds=seconds)), clock, events=bus), 45)

    assert bus.told == [("schedule.ended", "maxFirings")]


def test_what_was_missed_is_announced_and_counted(store: Store, clock: VirtualClock, bus: Bus) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(misfire=ScheduleMisfire.LATEST))], START)
    clock.advance(600)
    poller = make_poller(store, ScriptedSender(), clock, events=bus)

    run(clock, poller, 5)

    assert bus.told == [("schedule.misfired", None)]
    document = bus.taken[0].document()
    assert (document["scheduledAt"], document["count"]) == (format_instant(at(10)), 59)
    assert document["lastScheduledAt"] == format_instant(at(590))
    assert poller.stats()["occurrences_missed"] == 59


def test_a_pause_that_is_there_already_is_no_event(store: Store, clock: VirtualClock, bus: Bus) -> None:
    put(store, [make_schedule(pause=Pause(START))], START)

    run(clock, make_poller(store, ScriptedSender(), clock, events=bus), 45)

    assert bus.told == []
