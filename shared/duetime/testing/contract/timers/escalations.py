"""record: a failure and the timer that escalates it are stored together, or neither is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from duetime.domain.escalations import escalated
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.timers import Rearm, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import TimerRef
from duetime.testing.contract.builders import NOW, failed, fired, make_timer, make_timers, parked, seconds
from duetime.testing.contract.steps import claim, create, due, record, stored

POLICY = '{"maxAttempts": 1, "escalateUrl": "https://alerts.example.com/"}'
LATER = NOW + seconds(60)


def escalation_of(outcome: Outcome) -> Timer:
    assert outcome.escalation is not None
    return outcome.escalation


def make_failing(namespace: Namespace, **fields: Any) -> Timer:
    return make_timer(namespace, retry_policy_json=POLICY, **fields)


def test_a_failure_is_stored_with_its_escalation(store: Store, orders: Namespace) -> None:
    (timer,) = create(store, make_failing(orders, payload_json='{"n": 1.0}', correlation_id="c", tags=("x",)))
    outcome = escalated(failed(timer))

    assert record(store, [outcome], claim(store, timer.shard_id)) == [RecordStatus.APPLIED]

    escalation = escalation_of(outcome)
    found = stored(store, orders, escalation.timer_id)
    assert found == replace(escalation, created_at=found.created_at, updated_at=found.updated_at)
    assert due(store, orders) == [found]
    assert (found.shard_id, found.content.callback_url) == (timer.shard_id, "https://alerts.example.com/")
    assert (found.content.correlation_id, found.content.tags) == ("c", ("x",))
    failure = stored(store, orders).failure
    assert failure is not None
    assert failure.escalation_id == escalation.timer_id
    page = store.timers.find_by_correlation(orders, "c", cursor=None, limit=10, now=NOW)
    assert {each.timer_id for each in page.items} == {"t1", escalation.timer_id}


def test_a_timer_that_was_called_off_is_not_escalated(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_failing(single))
    outcome = escalated(failed(timer))
    store.timers.rearm(single, [TimerRef("t1")], rearm=Rearm.CANCEL, now=NOW, expires_at=LATER)

    assert record(store, [outcome], claim(store)) == [RecordStatus.SUPERSEDED]

    assert stored(store, single).state is TimerState.CANCELLED
    assert store.timers.get(single, escalation_of(outcome).timer_id, now=NOW) is None


def test_a_lost_lease_escalates_nothing(fencing: Store, single: Namespace) -> None:
    (timer,) = create(fencing, make_failing(single))
    outcome = escalated(failed(timer))
    lease = claim(fencing)
    fencing.leases.release([lease], now=NOW)

    assert record(fencing, [outcome], lease) == [RecordStatus.LEASE_LOST]

    assert due(fencing, single) == [stored(fencing, single)]


def test_the_failure_of_a_parked_timer_needs_no_lease(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_failing(single))
    lease = claim(store)
    record(store, [parked(timer, until=LATER)], lease)
    outcome = escalated(failed(stored(store, single)))
    store.leases.release([lease], now=NOW)

    assert record(store, [outcome], lease) == [RecordStatus.APPLIED]

    assert stored(store, single).state is TimerState.FAILED
    assert due(store, single) == [stored(store, single, escalation_of(outcome).timer_id)]


def test_a_repeated_record_is_known_and_labels_may_change_meanwhile(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_failing(single))
    outcome, lease = escalated(failed(timer)), claim(store)
    assert store.timers.update(single, "t1", TimerChange(tags=("x",)), firing_id="new", now=NOW).timer is not None

    assert record(store, [outcome], lease) == [RecordStatus.APPLIED]
    end = stored(store, single)
    assert (end.state, end.content.tags) == (TimerState.FAILED, ("x",))
    assert record(store, [replace(outcome, timer=replace(timer, revision=2))], lease) == [RecordStatus.APPLIED]

    escalation = stored(store, single, escalation_of(outcome).timer_id)
    assert (escalation.revision, stored(store, single)) == (1, end)


def test_outcomes_of_one_batch_do_not_mix(store: Store, single: Namespace) -> None:
    number = 40
    timers = create(store, *make_timers(single, number, retry_policy_json=POLICY))
    outcomes = [escalated(failed(each)) if at % 2 else fired(each) for at, each in enumerate(timers)]

    assert record(store, outcomes, claim(store)) == [RecordStatus.APPLIED] * number

    assert len(due(store, single)) == number // 2
    states = [stored(store, single, each.timer_id).state for each in timers]
    assert states == [TimerState.FAILED if at % 2 else TimerState.FIRED for at in range(number)]
