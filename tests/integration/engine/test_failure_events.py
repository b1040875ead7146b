"""Events of timers that fail: before the record, at least once, and never in the way. In virtual time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.events import Event, EventsUndelivered, TimerFailed
from duetime.domain.outcomes import LeasedOutcome
from duetime.domain.timers import FailureReason, TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import InlineOffload, T, VirtualClock
from tests.contract.sql_stores import corrupt
from tests.support.clock import NOW as START
from tests.support.engine import at, lag_seconds, make_poller, make_timer, put, run, stored
from tests.support.scripted_sender import Script, ScriptedSender

NO_RETRY = '{"maxAttempts": 1}'


@dataclass
class Bus:
    """Takes events; ``refuses`` says which of a call it does not take, or raises."""

    refuses: Callable[[Sequence[Any]], Sequence[Event]] = lambda events: ()
    taken: list[Any] = field(default_factory=list)
    calls: int = 0

    def publish(self, events: Sequence[Event]) -> None:
        self.calls += 1
        refused = self.refuses(events)
        self.taken += [event for event in events if event not in refused]
        if refused:
            raise EventsUndelivered("the bus is full", refused)


class SlowOffload(InlineOffload):
    """Each call takes ``seconds`` of virtual time."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        if not self._seconds:
            return super().run(function)
        return self._run_late(function)

    async def _run_late(self, function: Callable[[], T]) -> T:
        await asyncio.sleep(self._seconds)
        return function()


@pytest.fixture
def sender() -> ScriptedSender:
    """Refuses every timer whose id begins with ``bad``."""
    return ScriptedSender(lambda body: Script(status=404 if str(body["timerId"]).startswith("bad") else 200))


def state_of(store: Store, timer_id: str, clock: VirtualClock) -> TimerState:
    return stored(store, timer_id, clock).state


def test_a_failure_is_published_before_it_is_recorded(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    put(store, [make_timer("bad", correlation_id="c1", tags=("x",)), make_timer("good")], START)
    seen: list[TimerState] = []
    bus = Bus()
    bus.refuses = lambda events: seen.append(state_of(store, "bad", clock)) or ()  # type: ignore[func-returns-value]
    poller = make_poller(store, sender, clock, events=bus)
    run(clock, poller, 2)
    (event,) = bus.taken
    assert seen == [TimerState.SCHEDULED]
    assert state_of(store, "bad", clock) is TimerState.FAILED
    assert (event.timer_id, event.reason, event.status, event.attempts) == ("bad", FailureReason.HTTP_STATUS, 404, 1)
    assert (event.correlation_id, event.tags) == ("c1", ("x",))
    assert poller.snapshot().counters["events_published"] == 1


def test_only_a_retry_that_was_the_last_is_published(store: Store, clock: VirtualClock) -> None:
    policy = '{"maxAttempts": 3, "initialInterval": "1s"}'
    put(store, [make_timer("t", retry_policy_json=policy)], START)
    bus = Bus()
    run(clock, make_poller(store, ScriptedSender(lambda body: Script(status=500)), clock, events=bus), 20)
    assert [(event.attempts, event.status) for event in bus.taken] == [(3, 500)]


def test_a_store_error_after_publishing_does_not_publish_again(
    store: Store, clock: VirtualClock, sender: ScriptedSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [make_timer("bad")], START)
    record, failures = store.timers.record, iter(range(3))

    def flaky(outcomes: Sequence[LeasedOutcome], **options: Any) -> object:
        if next(failures, None) is not None:
            raise StoreUnavailable("down")
        return record(outcomes, **options)

    monkeypatch.setattr(store.timers, "record", flaky)
    bus = Bus()
    run(clock, make_poller(store, sender, clock, events=bus), 10)
    assert len(bus.taken) == 1
    assert state_of(store, "bad", clock) is TimerState.FAILED


def test_a_poller_that_died_before_the_record_announces_the_same_event_again(
    store: Store, clock: VirtualClock, sender: ScriptedSender, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, [make_timer("bad")], START)
    bus = Bus()
    with monkeypatch.context() as patch:
        patch.setattr(store.timers, "record", lambda *_, **__: (_ for _ in ()).throw(StoreUnavailable("down")))
        run(clock, make_poller(store, sender, clock, events=bus), 2)
    assert state_of(store, "bad", clock) is TimerState.SCHEDULED
    run(clock, make_poller(store, sender.for_another_poller(), clock, events=bus, worker_id="b"), 60)
    assert len(bus.taken) == 2
    assert len({event.event_id for event in bus.taken}) == 1


def test_events_that_were_refused_are_tried_again_alone(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    put(store, [make_timer(f"bad{number}") for number in range(5)], START)
    bus = Bus()
    bus.refuses = lambda events: [event for event in events if event.timer_id == "bad3"] if bus.calls == 1 else ()
    poller = make_poller(store, sender, clock, events=bus)
    run(clock, poller, 5)
    assert sorted(str(event.timer_id) for event in bus.taken) == [f"bad{number}" for number in range(5)]
    assert bus.calls == 2
    assert poller.snapshot().counters["events_undelivered"] == 0


@pytest.mark.parametrize("error", [EventsUndelivered, RuntimeError])
def test_a_broken_bus_neither_loses_an_outcome_nor_hides_the_event(
    store: Store,
    clock: VirtualClock,
    sender: ScriptedSender,
    caplog: pytest.LogCaptureFixture,
    error: type[Exception],
) -> None:
    def broken(events: Sequence[TimerFailed]) -> Sequence[TimerFailed]:
        if error is RuntimeError:
            raise RuntimeError("a bug")
        return events

    put(store, [make_timer("bad1", correlation_id="c1"), make_timer("bad2")], START)
    bus = Bus(broken)
    poller = make_poller(store, sender, clock, events=bus)
    with caplog.at_level(logging.ERROR):
        run(clock, poller, 10)
    assert {state_of(store, name, clock) for name in ("bad1", "bad2")} == {TimerState.FAILED}
    logged = [record.__dict__ for record in caplog.records if getattr(record, "action", "") == "event.undelivered"]
    assert sorted(record["event"]["timerId"] for record in logged) == ["bad1", "bad2"]
    assert {record["event"]["correlationId"] for record in logged} == {"c1", None}
    assert poller.snapshot().counters["events_undelivered"] == 2
    assert bus.calls == 3


@pytest.mark.parametrize("publish_seconds", [2.0, 1e9])
def test_a_slow_or_silent_bus_does_not_delay_other_outcomes(
    store: Store, clock: VirtualClock, sender: ScriptedSender, publish_seconds: float
) -> None:
    """Failures keep coming and each publish takes its time; what fired is recorded as fast as ever."""
    timers = [make_timer(f"bad{n}", execute_at=at(n / 10)) for n in range(100)]
    timers += [make_timer(f"good{n}", execute_at=at(n / 10)) for n in range(100)]
    put(store, timers, START)
    poller = make_poller(
        store,
        sender,
        clock,
        settings=EngineSettings(record_concurrency=1),
        events=Bus(lambda events: events),
        make_offload=lambda threads, name: SlowOffload(publish_seconds if name == "duetime-events" else 0.0),
    )
    behind: list[int] = []

    async def script() -> None:
        for _ in range(30):
            await asyncio.sleep(0.4)
            due = sum(1 for n in range(100) if at(n / 10) <= clock.now())
            behind.append(due - poller.snapshot().counters["fired"])

    run(clock, poller, script)
    assert max(behind) <= 6  # half a second of work
    assert poller.snapshot().counters["failed"] == 100


def test_a_flood_of_failures_with_a_silent_bus_does_not_delay_other_timers(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    """More failures than may be unrecorded; others wait once at most, until it is known that nobody listens."""
    put(store, [make_timer(f"bad{n}", execute_at=at(n / 200)) for n in range(1500)], START)
    put(store, [make_timer(f"good{n}", execute_at=at(6 + n / 10)) for n in range(60)], START)
    poller = make_poller(
        store,
        sender,
        clock,
        events=Bus(),
        make_offload=lambda threads, name: SlowOffload(1e9 if name == "duetime-events" else 0.0),
    )
    run(clock, poller, 15)
    late = [body for body in sender.received if lag_seconds(body) > 0.5 and str(body["timerId"]).startswith("good")]
    assert late == []
    counters = poller.snapshot().counters
    assert (counters["failed"], counters["fired"]) == (1500, 60)
    assert counters["events_undelivered"] == 1500


def test_after_the_bus_has_recovered_events_get_all_their_tries_again(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    put(store, [make_timer(f"bad{n}", execute_at=at(n * 10)) for n in range(4)], START)
    bus = Bus()
    # Broken for the first timer (three calls) and the second (one call), then well, then hiccups once.
    bus.refuses = lambda events: events if bus.calls in (1, 2, 3, 4, 6) else ()
    run(clock, make_poller(store, sender, clock, events=bus), 45)
    assert [event.timer_id for event in bus.taken] == ["bad2", "bad3"]
    assert bus.calls == 7


def test_a_drain_waits_for_events_and_their_records(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    put(store, [make_timer("bad")], START)
    bus = Bus()
    bus.refuses = lambda events: events if bus.calls < 3 else ()
    run(clock, make_poller(store, sender, clock, events=bus), 0.05)
    assert [event.timer_id for event in bus.taken] == ["bad"]
    assert state_of(store, "bad", clock) is TimerState.FAILED


def test_an_unreadable_timer_is_announced_once_with_its_name(
    store: Store, clock: VirtualClock, sender: ScriptedSender
) -> None:
    timer = make_timer("broken")
    put(store, [timer], START)
    corrupt(store, timer)  # type: ignore[arg-type]  # it is an SQL store
    bus = Bus()
    run(clock, make_poller(store, sender, clock, events=bus), 10)
    (event,) = bus.taken
    assert (event.namespace, event.timer_id, event.reason) == ("default", "broken", FailureReason.UNREADABLE)


def test_failures_end_as_ever_when_nobody_is_told(store: Store, clock: VirtualClock, sender: ScriptedSender) -> None:
    put(store, [make_timer("bad", retry_policy_json=NO_RETRY)], START)
    run(clock, make_poller(store, sender, clock), 2)
    assert state_of(store, "bad", clock) is TimerState.FAILED
