"""Functions that store timers and wake the pollers: when they look, when they invoke, and what is no error."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.timers import Timer
from duetime.runtime.waking import AHEAD_SECONDS, TRUST_SECONDS, WAKE_EVENT, FanOutFailed, Waker
from tests.support.clock import FakeClock
from tests.support.engine import make_timer


class FreezingClock(FakeClock):
    def freeze(self, seconds: float) -> None:
        """Time passes, and the monotonic clock counts nothing."""
        self._now += timedelta(seconds=seconds)


class Epochs:
    """``epochs``: what is read, in order; the last one again and again."""

    def __init__(self, *epochs: int | StoreUnavailable) -> None:
        self.epochs = list(epochs)
        self.reads = 0

    def sleep_epoch(self) -> int:
        self.reads += 1
        epoch = self.epochs.pop(0) if len(self.epochs) > 1 else self.epochs[0]
        if isinstance(epoch, StoreUnavailable):
            raise epoch
        return epoch

    def advance_sleep_epoch(self, epoch: int) -> bool:
        raise AssertionError("that is for the poller")


class Function:
    def __init__(self, clock: FakeClock, epochs: Epochs, *, failures: int = 0) -> None:
        self.clock, self.epochs, self.failures = clock, epochs, failures
        self.invoked: list[tuple[str, dict[str, Any]]] = []
        self._waker = Waker(epochs, clock=clock, invoke=self._invoke, function="poller")

    def _invoke(self, function: str, event: dict[str, Any]) -> None:
        self.invoked.append((function, event))
        if len(self.invoked) <= self.failures:
            raise FanOutFailed("throttled")

    def store(self, *delays: float) -> None:
        timers: Sequence[Timer] = [
            make_timer(f"t{delay}", execute_at=self.clock.now() + timedelta(seconds=delay)) for delay in delays
        ]
        self._waker(timers)


@pytest.fixture
def clock() -> FreezingClock:
    return FreezingClock()


def test_the_poller_is_invoked_once_for_a_burst_while_it_sleeps(clock: FakeClock) -> None:
    function = Function(clock, Epochs(4))
    for _ in range(10):
        function.store(0.0, 5.0)
        clock.advance(0.2)

    assert function.invoked == [("poller", WAKE_EVENT)]


def test_an_invocation_that_woke_nobody_is_made_again(clock: FakeClock) -> None:
    function = Function(clock, Epochs(4))
    for _ in range(3):
        function.store(0.0)
        clock.advance(4)

    assert len(function.invoked) == 3


def test_a_timer_of_later_wakes_nobody(clock: FakeClock) -> None:
    function = Function(clock, Epochs(4))
    function.store(AHEAD_SECONDS + 1)
    assert function.epochs.reads == 0

    function.store(3600.0, AHEAD_SECONDS - 1)
    assert len(function.invoked) == 1


def test_a_finished_timer_wakes_nobody(clock: FakeClock) -> None:
    epochs = Epochs(4)
    waker = Waker(epochs, clock=clock, invoke=lambda *_: None, function="poller")
    waker([replace(make_timer("ended"), next_attempt_at=None)])
    waker([])

    assert epochs.reads == 0


def test_pollers_that_were_seen_awake_are_trusted_for_a_while(clock: FakeClock) -> None:
    function = Function(clock, Epochs(5, 6))
    for _ in range(3):
        function.store(0.0)
    clock.advance(TRUST_SECONDS - 0.1)
    function.store(0.0)
    assert (function.epochs.reads, function.invoked) == (1, [])

    clock.advance(0.2)
    function.store(0.0)
    assert (function.epochs.reads, len(function.invoked)) == (2, 1)


def test_a_function_that_was_frozen_looks_again(clock: FreezingClock) -> None:
    function = Function(clock, Epochs(5))
    function.store(0.0)
    clock.freeze(3600)
    function.store(0.0)

    assert function.epochs.reads == 2


def test_where_it_cannot_be_read_whether_they_sleep_the_poller_is_invoked(clock: FakeClock) -> None:
    function = Function(clock, Epochs(StoreUnavailable("throttled")))
    function.store(0.0)

    assert len(function.invoked) == 1


def test_a_failure_to_wake_is_told_and_tried_again_and_is_none_of_the_request(
    clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    function = Function(clock, Epochs(4), failures=1)
    with caplog.at_level(logging.ERROR):
        function.store(0.0)
        function.store(0.0)

    assert len(function.invoked) == 2
    assert [record.__dict__["action"] for record in caplog.records] == ["wake.failed"]
