"""What is recorded when leases change hands, answers of the store are lost, and timers are changed in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import datetime

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import Rearm, TimerChange, TimerState
from duetime.domain.times import format_instant
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, make_timer, put, run, running, stored
from tests.support.parts import Overlay
from tests.support.scripted_sender import Script, ScriptedSender

NAMESPACE = make_namespace("default")


def test_a_parked_attempt_of_an_earlier_ownership_costs_others_nothing(store: Store, clock: VirtualClock) -> None:
    """A second worker joins and leaves, as in every deploy: the first has its shards back under new versions."""
    slow = [make_timer(f"slow{number}", execute_at=at(1)) for number in range(16)]
    quick = [make_timer(f"quick{number}", execute_at=at(26 + number / 100)) for number in range(600)]
    put(store, [*slow, *quick], START)
    delays = {timer.timer_id: 26.0 + number / 3 for number, timer in enumerate(slow)}
    sender = ScriptedSender(lambda body: Script(delay_seconds=delays.get(str(body["timerId"]), 0.001)))
    first = make_poller(store, sender, clock)
    second = make_poller(store, sender.for_another_poller(), clock, worker_id="worker-b")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running(first, 40))
            await asyncio.sleep(10)
            await running(second, 6)

    run_virtually(clock, both())

    assert sender.counts() == Counter(timer.timer_id for timer in [*slow, *quick])
    assert {stored(store, timer.timer_id, clock).state for timer in [*slow, *quick]} == {TimerState.FIRED}
    assert second.stats()["claims"] > 0
    assert first.stats()["lease_lost"] == 0


class ForgetfulStore(Overlay):
    """``store``, but of the first batch that parks something the answer is lost on its way."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, timers=Overlay(store.timers, record=self._record))
        self._store = store
        self.lost = 0

    def _record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        statuses = self._store.timers.record(outcomes, now=now)
        if not self.lost and any(each.outcome.state is TimerState.FIRING for each in outcomes):
            self.lost += 1
            raise StoreUnavailable("the connection was lost at COMMIT")
        return statuses


@pytest.mark.parametrize("wants_more", [False, True])
def test_a_park_whose_answer_was_lost_keeps_the_receiver_s_answer(
    store: Store, clock: VirtualClock, wants_more: bool
) -> None:
    again = b'{"nextExecuteAt": "%s"}' % format_instant(at(600)).encode()
    put(store, [make_timer("t", execute_at=at(1))], START)
    sender = ScriptedSender(lambda body: Script(delay_seconds=5.0, body=again if wants_more else b""))
    forgetful = ForgetfulStore(store)
    poller = make_poller(forgetful, sender, clock)

    run(clock, poller, 60)

    assert forgetful.lost == 1
    assert sender.counts() == {"t": 1}
    timer = stored(store, "t", clock)
    assert (timer.state, timer.next_attempt_at) == (
        (TimerState.SCHEDULED, at(600)) if wants_more else (TimerState.FIRED, None)
    )
    assert (poller.stats()["parked"], poller.stats()["superseded"]) == (1, 0)


LABELS = TimerChange(
    tags=("new",), correlation_id="c2", retry_policy_json="{}", callback_timeout_seconds=20, expire_after_ms=90_000
)


@pytest.mark.parametrize(
    ("callback_seconds", "changed_after_seconds"),
    [(0.3, 0.1), (1.5, 0.1), (1.5, 1.2), (12.0, 0.1), (12.0, 1.2), (12.0, 5.0)],
)
def test_what_does_not_change_the_firing_does_not_repeat_it(
    store: Store, clock: VirtualClock, callback_seconds: float, changed_after_seconds: float
) -> None:
    put(store, [make_timer("t", execute_at=at(1), tags=("old",))], START)
    sender = ScriptedSender(lambda body: Script(delay_seconds=callback_seconds))
    poller = make_poller(store, sender, clock)

    async def change() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running(poller, 60))
            await asyncio.sleep(1 + changed_after_seconds)
            result = store.timers.update(NAMESPACE, "t", LABELS, firing_id="another", now=clock.now())
            assert result.status is ChangeStatus.APPLIED

    run_virtually(clock, change())

    assert sender.counts() == {"t": 1}
    timer = stored(store, "t", clock)
    assert (timer.state, timer.attempts, timer.content.tags) == (TimerState.FIRED, 1, ("new",))
    assert timer.content.callback_timeout_seconds == 20
    assert poller.stats()["superseded"] == 0


def test_a_retry_after_such_a_change_counts_on(store: Store, clock: VirtualClock) -> None:
    """The policy that the change brought is in force from the next attempt on."""
    put(store, [make_timer("t", execute_at=at(1))], START)
    sender = ScriptedSender(lambda body: Script(status=500, delay_seconds=1.0))

    async def change() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running(make_poller(store, sender, clock), 60))
            await asyncio.sleep(1.5)
            policy = TimerChange(retry_policy_json='{"maxAttempts": 2, "initialInterval": "1s"}')
            store.timers.update(NAMESPACE, "t", policy, firing_id="another", now=clock.now())

    run_virtually(clock, change())

    assert [body["attempt"] for body in sender.received] == [1, 2]
    assert len(set(sender.webhook_ids)) == 1
    assert stored(store, "t", clock).state is TimerState.FAILED


@pytest.mark.parametrize("callback_seconds", [0.05, 1.5, 5.0])
def test_fire_by_hand_that_overlaps_the_natural_firing_fires_once(
    store: Store, clock: VirtualClock, callback_seconds: float
) -> None:
    """It was asked for before the due time, and is stored when the attempt is in flight."""
    put(store, [make_timer("t", execute_at=at(1))], START)
    sender = ScriptedSender(lambda body: Script(delay_seconds=callback_seconds))

    async def fire() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running(make_poller(store, sender, clock), 60))
            await asyncio.sleep(1.01)
            assert sender.counts() == {"t": 1}
            (result,) = store.timers.rearm(NAMESPACE, [TimerRef("t")], rearm=Rearm.FIRE, now=at(0.998))
            assert result.status is ChangeStatus.APPLIED

    run_virtually(clock, fire())

    assert sender.counts() == {"t": 1}
    timer = stored(store, "t", clock)
    assert (timer.state, timer.attempts) == (TimerState.FIRED, 1)


def test_another_message_in_flight_is_sent_as_another_firing(store: Store, clock: VirtualClock) -> None:
    put(store, [make_timer("t", execute_at=at(1), payload_json='"old"')], START)
    sender = ScriptedSender(lambda body: Script(delay_seconds=5.0))

    async def change() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(running(make_poller(store, sender, clock), 60))
            await asyncio.sleep(4.5)
            change = TimerChange(payload_json='"new"')
            store.timers.update(NAMESPACE, "t", change, firing_id="another", now=clock.now())

    run_virtually(clock, change())

    assert [body["payload"] for body in sender.received] == ["old", "new"]
    assert sender.webhook_ids[1] == "another"
    assert stored(store, "t", clock).state is TimerState.FIRED
