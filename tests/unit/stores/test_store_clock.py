"""The store's time, as a process learns it."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.times import round_down, round_up
from duetime.stores.store_clock import StoreClock
from duetime.stores.time_source import StoreTime
from tests.support.clock import NOW, FakeClock


class Machine(FakeClock):
    """``ahead_seconds``: of the true time, which ``true`` tells."""

    ahead_seconds = 0.0

    @property
    def true(self) -> datetime:
        return super().now()

    def now(self) -> datetime:
        return self.true + timedelta(seconds=self.ahead_seconds)


class Answering:
    """Tells ``machine``'s true time, in steps, half of ``request_seconds`` after it was asked."""

    def __init__(self, machine: Machine, *, resolution_seconds: float = 0.001) -> None:
        self.machine = machine
        self.resolution_seconds = resolution_seconds
        self.request_seconds = 0.0
        self.set_by: list[float] = []
        self.is_down = False
        self.requests = 0

    def time(self, *, now: datetime) -> StoreTime:
        del now
        self.requests += 1
        if self.is_down:
            raise StoreUnavailable("down")
        self.machine.advance(self.request_seconds / 2)
        at = self.machine.true + timedelta(seconds=self.set_by.pop(0) if self.set_by else 0.0)
        self.machine.advance(self.request_seconds / 2)
        step = timedelta(seconds=self.resolution_seconds)
        return StoreTime(NOW + (at - NOW) // step * step, self.resolution_seconds)


@pytest.fixture
def machine() -> Machine:
    return Machine(NOW)


def test_until_it_is_measured_the_time_is_the_machines(machine: Machine) -> None:
    clock = StoreClock(Answering(machine), machine)
    machine.ahead_seconds = 7.0

    assert clock.now() == NOW + timedelta(seconds=7)
    assert clock.offset_seconds is None
    assert not clock.has_jumped


@pytest.mark.parametrize("ahead_seconds", [-300.0, -5.0, -0.2, 0.2, 5.0, 300.0])
def test_a_clock_that_is_wrong_is_replaced_late_by_a_request_at_most(machine: Machine, ahead_seconds: float) -> None:
    store = Answering(machine)
    store.request_seconds = 0.1
    clock = StoreClock(store, machine)
    machine.ahead_seconds = ahead_seconds

    clock.measure()
    machine.advance(2.5)

    assert machine.true - timedelta(seconds=0.1) <= clock.now() <= machine.true
    assert clock.offset_seconds == pytest.approx(ahead_seconds, abs=0.11)


def test_a_clock_that_agrees_is_taken_as_it_is(machine: Machine) -> None:
    store = Answering(machine, resolution_seconds=1.0)
    clock = StoreClock(store, machine)
    machine.advance(0.25)

    clock.measure()
    machine.advance(0.125)

    assert clock.now() == machine.now()
    assert clock.offset_seconds == 0


@pytest.mark.parametrize("measures", [False, True])
@pytest.mark.parametrize("excess", [0, 1, 999])
def test_now_reaches_an_instant_when_the_monotonic_clock_does(
    machine: Machine, excess: int, *, measures: bool
) -> None:
    machine.ahead_seconds = 40.0
    clock = StoreClock(Answering(machine), machine)
    if measures:
        clock.measure()
    machine.advance(0.012)
    instant = clock.now() + timedelta(seconds=5, microseconds=excess)

    machine.advance(clock.monotonic_at(instant) - clock.monotonic())

    assert clock.now() == round_up(instant)


def test_whole_seconds_become_parts_of_one_with_each_measurement(machine: Machine) -> None:
    clock = StoreClock(Answering(machine, resolution_seconds=1.0), machine)
    machine.ahead_seconds = 40.0
    errors = []
    machine.advance(0.9)
    for _ in range(20):
        clock.measure()
        error = (machine.true - clock.now()).total_seconds()
        assert error >= 0, "never early"
        errors.append(error)
        machine.advance(3.31)

    assert errors[0] == pytest.approx(0.9, abs=0.001)
    assert max(errors[-5:]) < 0.15


def test_a_jump_of_the_machines_clock_moves_nothing_and_is_told(machine: Machine) -> None:
    clock = StoreClock(Answering(machine), machine)
    clock.measure()
    machine.advance(2)
    machine.ahead_seconds = -300.0

    assert (clock.has_jumped, clock.now(), clock.offset_seconds) == (True, machine.true, -300)

    clock.measure()

    assert not clock.has_jumped
    assert round_down(machine.true) - clock.now() <= timedelta(milliseconds=1)


def test_a_store_whose_clock_was_set_is_believed_when_it_says_so_twice(machine: Machine) -> None:
    store = Answering(machine)
    clock = StoreClock(store, machine)
    clock.measure()
    store.set_by = [60.0, 60.0]

    clock.measure()

    assert clock.now() == machine.true + timedelta(seconds=60)


def test_answers_far_apart_are_no_time(machine: Machine) -> None:
    store = Answering(machine)
    clock = StoreClock(store, machine)
    clock.measure()
    store.set_by = [60.0, -60.0]

    with pytest.raises(StoreUnavailable):
        clock.measure()

    assert clock.now() == machine.true


def test_a_small_step_of_the_stores_clock_is_followed_at_once(machine: Machine) -> None:
    store = Answering(machine)
    clock = StoreClock(store, machine)
    clock.measure()
    store.set_by = [-0.5]

    clock.measure()

    assert clock.now() == machine.true - timedelta(seconds=0.5)
    assert store.requests == 2


def test_it_is_told_once_that_a_clock_differs_and_when_it_agrees(
    machine: Machine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock = StoreClock(Answering(machine), machine)
    for ahead_seconds in (0.9, 3.0, 3.4, 5.0, -5.0, 0.0, 0.5):
        machine.ahead_seconds = ahead_seconds
        clock.measure()
        machine.advance(3.3)

    told = [(record.action, getattr(record, "offset_seconds", None)) for record in caplog.records]  # type: ignore[attr-defined]
    assert told == [
        ("clock.differs", 3.0),
        ("clock.differs", 5.0),
        ("clock.differs", -5.0),
        ("clock.agrees", None),
    ]


def test_keeping_it_measures_now_and_then_and_outlives_a_store_that_is_down(machine: Machine) -> None:
    store = Answering(machine)
    clock = StoreClock(store, machine)
    for _ in range(100):
        clock.keep(max_age_seconds=60)
        machine.advance(1)
    assert store.requests == 2

    store.is_down = True
    machine.advance(60)
    clock.keep(max_age_seconds=60)
    clock.keep(max_age_seconds=60)
    assert store.requests == 3
    assert clock.now() == machine.true

    store.is_down = False
    machine.ahead_seconds = 9.0
    clock.keep(max_age_seconds=60)
    assert store.requests == 4, "at once after a jump"
