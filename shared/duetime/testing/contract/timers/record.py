"""record: outcomes are written onto the revision and firing that was fired, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus, recorded
from duetime.domain.timers import Failure, FailureReason, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract.builders import (
    NOW,
    RETENTION,
    failed,
    fired,
    make_failure,
    make_timer,
    make_timers,
    parked,
    rescheduled,
    retried,
    seconds,
    waiting,
)
from duetime.testing.contract.steps import claim, create, due, record, stored
from duetime.testing.contract.subject import Subject

LATER = NOW + seconds(30)
AFTER = NOW + seconds(2)


OUTCOMES: dict[str, Callable[[Timer], Outcome]] = {
    "fired": fired,
    "fired after failures": lambda timer: replace(fired(timer), failure=make_failure(), attempts=4),
    "retried": lambda timer: retried(timer, next_attempt_at=LATER),
    "retried after a network error": lambda timer: replace(
        retried(timer, next_attempt_at=LATER), failure=Failure(FailureReason.NETWORK, 'refused: "ü"', NOW)
    ),
    "rescheduled": lambda timer: rescheduled(timer, execute_at=LATER),
    "parked": lambda timer: parked(timer, until=LATER),
    "taken by the receiver": lambda timer: waiting(timer, until=LATER, attempt_log="[1]"),
    "failed": failed,
    "failed with a log of its attempts": lambda timer: replace(failed(timer), attempt_log='[{"number":1,"ü":1.10}]'),
    "retried with a log of its attempts": lambda timer: replace(
        retried(timer, next_attempt_at=LATER), attempt_log="[1]"
    ),
}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_an_outcome_is_what_is_stored(store: Store, single: Namespace, kind: str) -> None:
    (timer,) = create(
        store,
        make_timer(single, payload_json="1.10", headers_json="{}", correlation_id="c", tags=("x",)),
    )
    outcome = OUTCOMES[kind](timer)

    assert record(store, [outcome], claim(store), now=AFTER) == [RecordStatus.APPLIED]

    assert stored(store, single) == recorded(outcome, now=AFTER)
    expected = [] if outcome.next_attempt_at is None else [recorded(outcome, now=AFTER)]
    assert due(store, single, until=LATER) == expected
    assert due(store, single, until=LATER - seconds(0.001)) == []


def test_a_parked_timer_is_recorded_again(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    record(store, [parked(timer, until=LATER)], lease)
    parked_timer = stored(store, single)

    outcome = replace(fired(parked_timer), attempts=1)

    assert record(store, [outcome], lease, now=AFTER) == [RecordStatus.APPLIED]
    assert stored(store, single) == recorded(outcome, now=AFTER)
    assert due(store, single, until=LATER) == []


def test_an_outcome_without_a_log_keeps_the_stored_one(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    record(store, [replace(retried(timer, next_attempt_at=NOW), attempt_log="[1]")], lease)
    (read,) = due(store, single)

    assert record(store, [parked(read, until=LATER)], lease) == [RecordStatus.APPLIED]

    assert read.attempt_log == "[1]"
    assert stored(store, single).attempt_log == "[1]"


def test_what_is_to_be_kept_for_decades_is_kept(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    outcome = replace(fired(timer), expires_at=NOW + timedelta(days=30 * 365))

    assert record(store, [outcome], claim(store), now=AFTER) == [RecordStatus.APPLIED]

    assert stored(store, single) == recorded(outcome, now=AFTER)


def test_a_timer_lives_through_retries_to_its_end(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))
    lease = claim(store)
    for attempt in range(1, 4):
        (timer,) = due(store, single, until=NOW + seconds(attempt))
        assert (timer.attempts, timer.content.execute_at) == (attempt - 1, NOW)
        record(store, [retried(timer, next_attempt_at=NOW + seconds(attempt + 1))], lease)
    (timer,) = due(store, single, until=NOW + seconds(10))

    record(store, [failed(timer)], lease)

    final = stored(store, single)
    assert (final.state, final.attempts, final.revision) == (TimerState.FAILED, 4, 5)
    assert final.content.execute_at == NOW


def test_each_outcome_of_a_batch_has_its_own_result_in_order(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 8))
    lease = claim(store)
    store.timers.delete(single, [TimerRef("t0002")], now=NOW)
    store.timers.update(single, "t0005", TimerChange(payload_json="1"), firing_id="f", now=NOW)
    store.timers.update(single, "t0006", TimerChange(tags=("x",)), firing_id="f", now=NOW)

    statuses = record(store, [fired(timer) for timer in timers], lease)

    expected = [RecordStatus.APPLIED] * 8
    expected[2] = expected[5] = RecordStatus.SUPERSEDED
    assert statuses == expected
    assert [timer.timer_id for timer in due(store, single)] == ["t0005"]
    assert stored(store, single, "t0007").state is TimerState.FIRED


def test_a_batch_over_several_shards_and_namespaces(store: Store, orders: Namespace) -> None:
    other, _ = store.catalogue.create_namespace("other", num_shards=4, dedicated=False, now=NOW)
    timers = create(store, *make_timers(orders, 20), *make_timers(other, 20))
    leases = [claim(store, shard_id) for shard_id in orders.shard_ids()]

    statuses = record(store, [fired(timer) for timer in timers], *leases)

    assert statuses == [RecordStatus.APPLIED] * 40
    assert due(store, orders) == []


def test_hundreds_of_outcomes_in_one_call(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 300))

    statuses = record(store, [fired(timer) for timer in timers], claim(store))

    assert statuses == [RecordStatus.APPLIED] * 300
    assert stored(store, single, "t0299").state is TimerState.FIRED


def test_no_outcomes_no_results(store: Store) -> None:
    assert store.timers.record([], now=NOW) == []


@pytest.mark.parametrize("kind", OUTCOMES)
def test_an_outcome_whose_answer_was_lost_is_recognised_and_written_once(
    store: Store, single: Namespace, kind: str
) -> None:
    """Instants as the engine has them: finer than any store keeps them."""
    (timer,) = create(store, make_timer(single, payload_json="1"))
    lease, outcome = claim(store), OUTCOMES[kind](timer)
    fired_at = None if outcome.fired_at is None else outcome.fired_at + timedelta(microseconds=999)
    outcome = replace(outcome, fired_at=fired_at)

    assert record(store, [outcome], lease, now=NOW) == [RecordStatus.APPLIED]
    first = stored(store, single)
    assert record(store, [outcome], lease, now=AFTER) == [RecordStatus.APPLIED]

    assert stored(store, single) == first


def test_one_that_was_recorded_is_recognised_under_a_lost_lease(store: Store, single: Namespace) -> None:
    timer, other = create(store, *make_timers(single, 2))
    lease = claim(store)
    record(store, [parked(timer, until=LATER)], lease)
    store.leases.release([lease], now=NOW)

    statuses = record(store, [parked(timer, until=LATER)], lease, now=AFTER)

    assert statuses == [RecordStatus.APPLIED]
    assert due(store, single, until=NOW) == [other]


def test_the_outcome_of_another_worker_is_no_own_one(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    record(store, [retried(timer, next_attempt_at=LATER)], lease)
    first = stored(store, single)

    for outcome in (fired(timer), retried(timer, next_attempt_at=LATER + seconds(1)), parked(timer, until=LATER)):
        assert record(store, [outcome], lease) == [RecordStatus.SUPERSEDED]

    assert stored(store, single) == first


def _update(store: Store, space: Namespace) -> None:
    store.timers.update(space, "t1", TimerChange(execute_at=LATER), firing_id="f2", now=NOW)


def _replace(store: Store, space: Namespace) -> None:
    store.timers.put([make_timer(space, payload_json="2")], mode=PutMode.REPLACE, now=NOW)


def _delete(store: Store, space: Namespace) -> None:
    store.timers.delete(space, [TimerRef("t1")], now=NOW)


def _create_again(store: Store, space: Namespace) -> None:
    _delete(store, space)
    create(store, make_timer(space))


@pytest.mark.parametrize("change", [_update, _replace, _delete, _create_again])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_timer_that_became_another_is_left_alone(
    store: Store, single: Namespace, kind: str, change: Callable[[Store, Namespace], None]
) -> None:
    (timer,) = create(store, make_timer(single))
    change(store, single)
    changed = store.timers.get(single, "t1", now=NOW)
    assert changed != timer

    assert record(store, [OUTCOMES[kind](timer)], claim(store)) == [RecordStatus.SUPERSEDED]

    assert store.timers.get(single, "t1", now=NOW) == changed
    assert due(store, single, until=LATER) == ([] if changed is None else [changed])


LARGE = f'"{"x" * 40_000}"'
LABELS = TimerChange(
    tags=("x",),
    correlation_id="c2",
    retry_policy_json='{"maxAttempts": 2}',
    callback_timeout_seconds=7,
    expire_after_ms=90_000,
)


@pytest.mark.parametrize("payload_json", ["1", LARGE], ids=["small", "large"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_the_outcome_is_recorded_beside_a_change_that_leaves_the_firing_alone(
    store: Store, single: Namespace, kind: str, payload_json: str
) -> None:
    (timer,) = create(store, make_timer(single, payload_json=payload_json, correlation_id="c", tags=("old",)))
    outcome = OUTCOMES[kind](timer)
    store.timers.update(single, "t1", TimerChange(tags=("between",)), firing_id="f2", now=NOW)
    result = store.timers.update(single, "t1", LABELS, firing_id="f3", now=NOW)
    assert result.timer is not None

    assert record(store, [outcome], claim(store), now=AFTER) == [RecordStatus.APPLIED]

    assert stored(store, single) == recorded(replace(outcome, timer=result.timer), now=AFTER)
    assert stored(store, single).revision == 4


def test_the_outcome_of_a_parked_timer_is_recorded_beside_such_a_change(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single, correlation_id="c", tags=("old",)))
    lease = claim(store)
    record(store, [parked(timer, until=LATER)], lease)
    parked_timer = stored(store, single)
    result = store.timers.update(single, "t1", LABELS, firing_id="f2", now=NOW)
    assert result.timer is not None
    assert (result.timer.state, result.timer.next_attempt_at) == (TimerState.FIRING, LATER)

    assert record(store, [fired(parked_timer)], lease, now=AFTER) == [RecordStatus.APPLIED]

    assert stored(store, single) == recorded(replace(fired(parked_timer), timer=result.timer), now=AFTER)
    assert due(store, single, until=LATER) == []


def test_a_timer_that_another_worker_parked_again_is_that_ones(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    record(store, [parked(timer, until=LATER)], lease)
    first = stored(store, single)
    record(store, [parked(first, until=LATER + seconds(30))], lease)

    assert record(store, [fired(first)], lease) == [RecordStatus.SUPERSEDED]
    assert stored(store, single).state is TimerState.FIRING


def test_what_was_decided_without_an_attempt_is_decided_anew_after_any_change(
    store: Store, single: Namespace
) -> None:
    """It was too late to fire it, say, and then it was given more time."""
    (timer,) = create(store, make_timer(single, expire_after_ms=1))
    result = store.timers.update(single, "t1", TimerChange(expire_after_ms=None), firing_id="f2", now=NOW)

    assert record(store, [replace(failed(timer), attempts=0)], claim(store)) == [RecordStatus.SUPERSEDED]
    assert due(store, single) == [result.timer]


def test_nothing_is_written_without_the_lease(fencing: Store, single: Namespace) -> None:
    (timer,) = create(fencing, make_timer(single))
    stale = claim(fencing, 0, "w1")
    current = claim(fencing, 0, "w2", now=stale.expires_at)

    assert record(fencing, [fired(timer)], stale) == [RecordStatus.LEASE_LOST]
    assert record(fencing, [fired(timer)], replace(current, owner_id="w1")) == [RecordStatus.LEASE_LOST]
    assert stored(fencing, single) == timer
    assert record(fencing, [fired(timer)], current) == [RecordStatus.APPLIED]


def test_outcomes_of_one_shard_are_judged_by_their_own_leases(fencing: Store, single: Namespace) -> None:
    """One was started before the shard was given away and came back, the other two since."""
    timers = create(fencing, *make_timers(single, 3))
    former = claim(fencing)
    fencing.leases.release([former], now=NOW)
    current = claim(fencing)
    outcomes = [fired(timer) for timer in timers]

    for leases in ([current, former, current], [former, former, former]):
        leased = [LeasedOutcome(outcome, lease) for outcome, lease in zip(outcomes, leases, strict=True)]
        statuses = fencing.timers.record(leased, now=NOW)
        assert statuses[1] is RecordStatus.LEASE_LOST
        assert stored(fencing, single, "t0001") == timers[1]

    assert [timer.timer_id for timer in due(fencing, single)] == ["t0001"]
    assert fencing.timers.record([LeasedOutcome(outcomes[1], current)], now=NOW) == [RecordStatus.APPLIED]


def test_the_old_lease_of_a_parked_timer_is_nobody_elses(store: Store, single: Namespace) -> None:
    slow, other = create(store, make_timer(single, "slow"), make_timer(single, "other"))
    former = claim(store)
    record(store, [parked(slow, until=LATER)], former)
    store.leases.release([former], now=NOW)
    current = claim(store)
    parked_timer = stored(store, single, "slow")

    outcomes = [LeasedOutcome(fired(other), current), LeasedOutcome(fired(parked_timer), former)]

    assert store.timers.record(outcomes, now=NOW) == [RecordStatus.APPLIED] * 2


def test_a_released_lease_records_nothing(fencing: Store, single: Namespace) -> None:
    (timer,) = create(fencing, make_timer(single))
    lease = claim(fencing)
    fencing.leases.release([lease], now=NOW)

    assert record(fencing, [fired(timer)], lease) == [RecordStatus.LEASE_LOST]


def test_a_lost_shard_does_not_hold_up_the_others(fencing: Store, orders: Namespace) -> None:
    timers = create(fencing, *make_timers(orders, 12))
    leases = [claim(fencing, shard_id) for shard_id in orders.shard_ids()]
    fencing.leases.release([leases[1]], now=NOW)

    statuses = record(fencing, [fired(timer) for timer in timers], *leases)

    assert {status for timer, status in zip(timers, statuses, strict=True) if timer.shard_id == 1} == {
        RecordStatus.LEASE_LOST
    }
    assert {status for timer, status in zip(timers, statuses, strict=True) if timer.shard_id != 1} == {
        RecordStatus.APPLIED
    }
    assert {timer.shard_id for timer in due(fencing, orders)} == {1}


def test_the_outcome_of_a_parked_timer_needs_no_lease(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store, 0, "w1")
    record(store, [parked(timer, until=LATER)], lease)
    parked_timer = stored(store, single)
    claim(store, 0, "w2", now=lease.expires_at)

    assert record(store, [fired(parked_timer)], lease) == [RecordStatus.APPLIED]
    assert record(store, [failed(parked_timer)]) == [RecordStatus.SUPERSEDED]
    assert stored(store, single).state is TimerState.FIRED


def test_a_parked_timer_does_not_lend_its_freedom_to_others(fencing: Store, single: Namespace) -> None:
    slow, other = create(fencing, make_timer(single, "slow"), make_timer(single, "other"))
    lease = claim(fencing)
    record(fencing, [parked(slow, until=LATER)], lease)
    outcomes = [fired(other), fired(stored(fencing, single, "slow"))]
    fencing.leases.release([lease], now=NOW)

    assert record(fencing, outcomes, lease) == [RecordStatus.LEASE_LOST, RecordStatus.APPLIED]
    assert due(fencing, single) == [other]


def test_a_lease_that_has_expired_but_was_not_taken_still_records(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    late = lease.expires_at + seconds(5)

    assert record(store, [fired(timer, at=late)], lease, now=late) == [RecordStatus.APPLIED]


def test_a_finished_timer_expires(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [fired(timer)], claim(store))
    expiry = NOW + RETENTION

    assert store.timers.get(single, "t1", now=expiry - seconds(0.001)) is not None
    assert store.timers.get(single, "t1", now=expiry) is None


def test_expired_timers_are_pruned_and_no_others(subject: Subject, single: Namespace) -> None:
    store = subject.store
    timers = create(store, *make_timers(single, 9), make_timer(single, "waits", execute_at=LATER))
    lease = claim(store)
    record(store, [fired(timer) for timer in timers[:7]], lease)
    record(store, [failed(timer, at=AFTER) for timer in timers[7:9]], lease)
    expiry = NOW + RETENTION

    assert store.timers.prune(now=expiry - seconds(0.001), limit=100) == 0
    counts = [store.timers.prune(now=expiry, limit=4) for _ in range(3)]

    assert counts == ([0, 0, 0] if subject.expires_by_itself else [4, 3, 0])
    assert store.timers.get(single, "t0007", now=expiry) is not None
    assert due(store, single, until=LATER) == [timers[9]]
    assert store.timers.get(single, "t0000", now=expiry) is None
