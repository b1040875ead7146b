"""What the store refuses for good harms itself alone: it is found among the others and set aside. In virtual time."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from duetime.delivery.port import CallbackResult
from duetime.domain.errors import StoreError
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.timers import FailureReason, TimerState
from duetime.engine.flow.queues import signal_of
from duetime.engine.response.classify import classify
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.integration.engine.test_failure_events import Bus
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, make_timer, put, run, stored
from tests.support.logs import actions
from tests.support.parts import Overlay
from tests.support.scripted_sender import Script, ScriptedSender
from tests.support.sql_store import SqlStore

Refusal = Callable[[Outcome], bool]


class Refusing(Overlay):
    """Passes everything on to a store, but refuses outcomes as a database does that takes all of a batch or nothing
    or, with ``tells``, as one that says which of a batch it refuses."""

    def __init__(self, store: Store, refuses: Refusal, *, tells: bool = False) -> None:
        super().__init__(store, timers=Overlay(store.timers, record=self._record))
        self._store = store
        self.refuses = refuses
        self._tells = tells
        self.records = 0

    def _record(self, outcomes: Any, **named: Any) -> list[RecordStatus]:
        self.records += 1
        refused = [self.refuses(each.outcome) for each in outcomes]
        if not any(refused):
            return self._store.timers.record(outcomes, **named)
        if not self._tells:
            raise StoreError("the database refused a statement: error 1406")
        taken = [outcome for outcome, is_refused in zip(outcomes, refused, strict=True) if not is_refused]
        statuses = iter(self._store.timers.record(taken, **named))
        return [RecordStatus.REFUSED if is_refused else next(statuses) for is_refused in refused]


@pytest.mark.parametrize("tells", [False, True])
def test_one_refused_outcome_among_1500_is_set_aside_and_nothing_is_sent_twice(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture, tells: bool
) -> None:
    ids = [f"t{number}" for number in range(1500)] + ["poison"]
    put(store, [make_timer(timer_id) for timer_id in ids], START)
    refusing = Refusing(
        store, lambda each: each.timer.timer_id == "poison" and each.state is TimerState.FIRED, tells=tells
    )
    sender, bus = ScriptedSender(), Bus()
    poller = make_poller(refusing, sender, clock, events=bus)
    run(clock, poller, 120)
    assert sender.counts() == Counter(ids)
    stats = poller.snapshot()
    counted = {name: stats.counters[name] for name in ("fired", "failed", "record_refused", "record_errors")}
    assert counted == {"fired": 1500, "failed": 1, "record_refused": 1, "record_errors": 0}
    assert stats.failed_by["Unrecorded"] == 1
    poison = stored(store, "poison", clock)
    assert (poison.state, poison.attempts) == (TimerState.FAILED, 1)
    assert poison.failure is not None
    assert poison.failure.reason is FailureReason.UNRECORDED
    assert poison.failure.message == "what attempt 1 led to (Fired) cannot be stored"
    assert [(event.timer_id, event.reason) for event in bus.taken] == [("poison", FailureReason.UNRECORDED)]
    assert actions(caplog, logging.WARNING) == {"record.refused": 1, "timer.failed": 1}

    successor = make_poller(store, sender.for_another_poller(), clock, worker_id="worker-b")
    run(clock, successor, 60)
    assert sender.counts() == Counter(ids)


def test_a_database_that_refuses_an_outcome_takes_the_end_of_its_timer(store: Store, clock: VirtualClock) -> None:
    """A real refusal: nobody says which of the rows of a transaction it was."""
    assert isinstance(store, SqlStore)
    with store.database.engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER refusal BEFORE UPDATE ON timers "
            "WHEN NEW.timer_id = 'poison' AND NEW.timer_failure IS NULL "
            "BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        connection.commit()
    ids = [f"t{number}" for number in range(600)] + ["poison"]
    put(store, [make_timer(timer_id) for timer_id in ids], START)
    sender = ScriptedSender()
    poller = make_poller(store, sender, clock)
    run(clock, poller, 60)
    assert sender.counts() == Counter(ids)
    assert [poller.stats()[name] for name in ("fired", "failed", "record_refused", "lease_lost")] == [600, 1, 1, 0]


def test_a_timer_of_which_nothing_can_be_stored_is_tried_ever_later_and_never_sent_again(
    store: Store, clock: VirtualClock
) -> None:
    """And when the store takes it after all, it is what came of the attempt that is stored."""
    ids = [f"t{number}" for number in range(500)] + ["poison"]
    put(store, [make_timer(timer_id) for timer_id in ids], START)
    sender, poison_tries = ScriptedSender(), 0

    def refuses(outcome: Outcome) -> bool:
        nonlocal poison_tries
        is_poison = outcome.timer.timer_id == "poison" and clock.elapsed_seconds < 900
        poison_tries += is_poison
        return is_poison

    poller = make_poller(Refusing(store, refuses), sender, clock)
    run(clock, poller, 1300)
    assert sender.counts() == Counter(ids)
    assert poison_tries < 30
    assert poller.stats()["fired"] == 501
    poison = stored(store, "poison", clock)
    assert poison.state is TimerState.FIRED


def test_many_of_which_nothing_can_be_stored_do_not_stop_the_others(store: Store, clock: VirtualClock) -> None:
    bad, good = [f"bad{number}" for number in range(200)], [f"good{number}" for number in range(2000)]
    put(store, [make_timer(timer_id) for timer_id in [*bad, *good]], START)
    sender = ScriptedSender()
    refusing = Refusing(store, lambda outcome: outcome.timer.timer_id.startswith("bad"))
    poller = make_poller(refusing, sender, clock, settings=EngineSettings(max_buffered=500))
    run(clock, poller, 60)
    assert sender.counts() == Counter([*bad, *good])
    assert poller.stats()["fired"] == 2000


def test_a_refused_parking_leaves_the_attempt_alone(store: Store, clock: VirtualClock) -> None:
    put(store, [make_timer("slow"), make_timer("slow too")], START)
    sender = ScriptedSender(lambda body: Script(delay_seconds=10))
    refusing = Refusing(store, lambda each: each.timer.timer_id == "slow" and each.state is TimerState.FIRING)
    poller = make_poller(refusing, sender, clock)
    run(clock, poller, 60)
    assert sender.counts() == Counter(["slow", "slow too"])
    assert {name: poller.stats()[name] for name in ("fired", "parked", "record_refused")} == {
        "fired": 2,
        "parked": 1,
        "record_refused": 1,
    }


def test_an_answer_that_cannot_be_read_costs_that_answer_only(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, [make_timer(f"t{number}") for number in range(100)], START)

    def read(result: CallbackResult, **named: Any) -> Any:
        if result.body == b"strange":
            raise KeyError("nobody foresaw it")
        return classify(result, **named)

    monkeypatch.setattr("duetime.engine.firing.at_least_once.classify", read)
    strange = iter([b"strange", b"strange"])
    sender = ScriptedSender(lambda body: Script(body=next(strange, b"") if body["timerId"] == "t50" else b""))
    poller = make_poller(store, sender, clock)
    run(clock, poller, 60)
    assert sender.counts() == Counter([f"t{number}" for number in range(100)] + ["t50"] * 2)
    assert [poller.stats()[name] for name in ("fired", "retried")] == [100, 2]
    assert actions(caplog, logging.WARNING) == {"timer.response_unread": 2}


def test_an_answer_that_cannot_be_taken_leaves_its_timer_due_and_the_others_alone(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    put(store, [make_timer(f"t{number}") for number in range(100)], START)

    def take(result: CallbackResult) -> Any:
        if result.body == b"strange":
            raise KeyError("nobody foresaw it")
        return signal_of(result)

    monkeypatch.setattr("duetime.engine.firing.firing.signal_of", take)
    sender = ScriptedSender(
        lambda body: Script(body=b"strange" if body["timerId"] == "t50" and clock.elapsed_seconds < 1 else b"")
    )
    poller = make_poller(store, sender, clock)
    run(clock, poller, 3)
    assert sender.counts() == Counter([f"t{number}" for number in range(100)]), "not again at once"
    run(clock, poller, 30)
    assert sender.counts() == Counter([f"t{number}" for number in range(100)] + ["t50"])
    assert poller.stats()["fired"] == 100
    assert actions(caplog, logging.WARNING) == {"firing.response_lost": 1}
