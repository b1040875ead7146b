"""update_timer and delete_timers."""

from __future__ import annotations

from datetime import datetime

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import TimerChange, TimerState, changed
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import NOW, RETENTION, UNSTORABLE, failed, make_timer, parked, retried, seconds
from duetime.testing.contract.steps import claim, create, due, record, record_fired, stored

LATER = NOW + seconds(30)


def update(
    store: Store,
    namespace: Namespace,
    change: TimerChange,
    *,
    timer_id: str = "t1",
    if_revision: int | None = None,
    now: datetime = LATER,
) -> ChangeResult:
    return store.timers.update(
        namespace, timer_id, change, firing_id="other-firing", now=now, if_revision=if_revision
    )


@pytest.mark.parametrize(
    "change",
    [
        TimerChange(execute_at=NOW + seconds(999)),
        TimerChange(callback_url="https://other.test/"),
        TimerChange(payload_json="[1]"),
        TimerChange(payload_json=None),
        TimerChange(headers_json='{"A": "b"}'),
        TimerChange(headers_json=None),
        TimerChange(retry_policy_json='{"maxAttempts": 1}'),
        TimerChange(retry_policy_json=None),
        TimerChange(callback_timeout_seconds=900),
        TimerChange(correlation_id="c2"),
        TimerChange(correlation_id=None),
        TimerChange(tags=("x", "y")),
        TimerChange(tags=()),
        TimerChange(expire_after_ms=90_000),
        TimerChange(expire_after_ms=None),
        TimerChange(timing_json='{"local_time":"2027-03-28T09:00:00","time_zone":"Europe/Berlin"}'),
        TimerChange(timing_json=None),
        TimerChange(),
        TimerChange(execute_at=NOW, payload_json="2", tags=("z",), correlation_id="c3"),
    ],
)
def test_a_change_is_applied_as_the_domain_says(store: Store, orders: Namespace, change: TimerChange) -> None:
    (timer,) = create(
        store,
        make_timer(
            orders,
            payload_json="{}",
            headers_json="{}",
            retry_policy_json="{}",
            correlation_id="c1",
            tags=("x",),
            expire_after_ms=1500,
            timing_json="{}",
        ),
    )
    expected = changed(timer, change, firing_id="other-firing", now=LATER)

    assert update(store, orders, change) == ChangeResult(ChangeStatus.APPLIED, expected)
    assert store.timers.get(orders, "t1", now=LATER) == expected


def test_a_change_of_the_due_time_moves_the_timer(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))

    update(store, single, TimerChange(execute_at=LATER))

    assert due(store, single, until=LATER - seconds(0.001)) == []
    assert due(store, single, until=LATER) == [stored(store, single)]


def test_a_waiting_retry_keeps_its_time_when_something_else_changes(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [retried(timer, next_attempt_at=LATER)], claim(store))
    waiting = stored(store, single)
    change = TimerChange(tags=("x",))

    result = update(store, single, change)

    assert result.timer == changed(waiting, change, firing_id="other-firing", now=LATER)
    assert result.timer is not None
    assert (result.timer.next_attempt_at, result.timer.attempts) == (LATER, 1)
    assert due(store, single, until=NOW) == []
    assert due(store, single, until=LATER) == [result.timer]


@pytest.mark.parametrize(
    ("change", "is_due"), [(TimerChange(tags=("x",)), False), (TimerChange(callback_url="https://other.test/"), True)]
)
def test_a_parked_timer_is_due_again_when_it_is_another_message(
    store: Store, single: Namespace, change: TimerChange, is_due: bool
) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [parked(timer, until=LATER)], claim(store))

    result = update(store, single, change)

    assert result.timer is not None
    assert result.timer.state is (TimerState.SCHEDULED if is_due else TimerState.FIRING)
    assert due(store, single, until=NOW) == ([result.timer] if is_due else [])
    assert due(store, single, until=LATER) == [result.timer]


def test_an_unknown_timer_cannot_be_changed(store: Store, orders: Namespace) -> None:
    assert update(store, orders, TimerChange(tags=("x",))) == ChangeResult(ChangeStatus.NOT_FOUND)
    assert update(store, orders, TimerChange(tags=("x",)), if_revision=1) == ChangeResult(ChangeStatus.NOT_FOUND)


def test_a_change_of_the_stored_revision(store: Store, orders: Namespace) -> None:
    create(store, make_timer(orders))

    assert update(store, orders, TimerChange(tags=("x",)), if_revision=1).status is ChangeStatus.APPLIED
    assert update(store, orders, TimerChange(tags=("y",)), if_revision=2).status is ChangeStatus.APPLIED


def test_a_change_of_another_revision_does_nothing(store: Store, orders: Namespace) -> None:
    (timer,) = create(store, make_timer(orders))

    result = update(store, orders, TimerChange(tags=("x",)), if_revision=2)

    assert result == ChangeResult(ChangeStatus.REVISION_MISMATCH, timer)
    assert stored(store, orders) == timer


def test_a_fired_timer_cannot_be_changed(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))
    record_fired(store, single)
    finished = stored(store, single)

    assert update(store, single, TimerChange(tags=("x",))) == ChangeResult(ChangeStatus.FINISHED, finished)
    assert stored(store, single) == finished


def test_the_revision_is_judged_before_the_state(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))
    record_fired(store, single)
    finished = stored(store, single)
    change = TimerChange(tags=("x",))

    mismatch = update(store, single, change, if_revision=1)

    assert mismatch == ChangeResult(ChangeStatus.REVISION_MISMATCH, finished)
    assert update(store, single, change, if_revision=2) == ChangeResult(ChangeStatus.FINISHED, finished)


def test_a_failed_timer_cannot_be_changed(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [failed(timer)], claim(store))

    result = update(store, single, TimerChange(execute_at=LATER))

    assert result == ChangeResult(ChangeStatus.FINISHED, stored(store, single))
    assert due(store, single, until=LATER) == []


def test_an_expired_timer_cannot_be_found_to_change(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))
    record_fired(store, single)
    expiry = NOW + RETENTION

    assert update(store, single, TimerChange(), now=expiry - seconds(0.001)).status is ChangeStatus.FINISHED
    assert update(store, single, TimerChange(), now=expiry).status is ChangeStatus.NOT_FOUND


def test_a_change_touches_its_own_namespace_only(store: Store, orders: Namespace, single: Namespace) -> None:
    mine, theirs = create(store, make_timer(orders), make_timer(single))

    update(store, orders, TimerChange(tags=("x",)))

    assert stored(store, single) == theirs
    assert stored(store, orders) != mine


def test_delete_answers_the_timer_as_it_was(store: Store, orders: Namespace) -> None:
    (timer,) = create(store, make_timer(orders, correlation_id="c", tags=("x",)))

    assert store.timers.delete(orders, [TimerRef("t1")], now=LATER) == [ChangeResult(ChangeStatus.APPLIED, timer)]

    assert store.timers.get(orders, "t1", now=NOW) is None
    assert due(store, orders) == []
    assert store.timers.find_by_correlation(orders, "c", cursor=None, limit=10, now=NOW).items == []
    assert store.timers.delete(orders, [TimerRef("t1")], now=LATER) == [ChangeResult(ChangeStatus.NOT_FOUND)]


def test_each_delete_of_a_batch_has_its_own_result_in_order(store: Store, orders: Namespace) -> None:
    one, two, three = create(store, *(make_timer(orders, timer_id) for timer_id in ("one", "two", "three")))
    refs = [TimerRef("two", if_revision=1), TimerRef("nobody"), TimerRef("one", if_revision=9), TimerRef("three")]

    results = store.timers.delete(orders, refs, now=LATER)

    assert results == [
        ChangeResult(ChangeStatus.APPLIED, two),
        ChangeResult(ChangeStatus.NOT_FOUND),
        ChangeResult(ChangeStatus.REVISION_MISMATCH, one),
        ChangeResult(ChangeStatus.APPLIED, three),
    ]
    assert [store.timers.get(orders, timer_id, now=LATER) for timer_id in ("one", "two", "three")] == [
        one,
        None,
        None,
    ]


@pytest.mark.parametrize("what", ["nul", "long"])
def test_an_id_that_cannot_be_stored_is_not_found_and_hides_no_other(
    store: Store, orders: Namespace, what: str
) -> None:
    create(store, make_timer(orders))

    results = store.timers.delete(orders, [TimerRef(UNSTORABLE[what]), TimerRef("t1")], now=LATER)

    assert [each.status for each in results] == [ChangeStatus.NOT_FOUND, ChangeStatus.APPLIED]
    assert store.timers.get(orders, UNSTORABLE[what], now=NOW) is None


def test_many_deletes_in_one_call(store: Store, orders: Namespace) -> None:
    timers = create(store, *(make_timer(orders, f"t{index}") for index in range(150)))

    results = store.timers.delete(orders, [TimerRef(timer.timer_id) for timer in timers], now=LATER)

    assert results == [ChangeResult(ChangeStatus.APPLIED, timer) for timer in timers]
    assert due(store, orders) == []


def test_deleting_nothing_has_no_results(store: Store, orders: Namespace) -> None:
    assert store.timers.delete(orders, [], now=NOW) == []


def test_timers_in_any_state_can_be_deleted(store: Store, single: Namespace) -> None:
    scheduled, fired, dead, waiting = create(
        store,
        make_timer(single, "scheduled", execute_at=LATER),
        make_timer(single, "fired"),
        make_timer(single, "dead"),
        make_timer(single, "waiting"),
    )
    lease = claim(store)
    record(store, [failed(dead), parked(waiting, until=LATER)], lease)
    store.leases.release([lease], now=NOW)
    record_fired(store, single)
    before = [stored(store, single, timer.timer_id) for timer in (scheduled, fired, dead, waiting)]
    assert [timer.state for timer in before] == [
        TimerState.SCHEDULED,
        TimerState.FIRED,
        TimerState.FAILED,
        TimerState.FIRING,
    ]

    results = store.timers.delete(single, [TimerRef(timer.timer_id) for timer in before], now=NOW)

    assert results == [ChangeResult(ChangeStatus.APPLIED, timer) for timer in before]
    assert due(store, single, until=LATER) == []


def test_an_expired_timer_cannot_be_found_to_delete(store: Store, single: Namespace) -> None:
    create(store, make_timer(single))
    record_fired(store, single)

    assert store.timers.delete(single, [TimerRef("t1")], now=NOW + RETENTION) == [
        ChangeResult(ChangeStatus.NOT_FOUND)
    ]


def test_a_delete_touches_its_own_namespace_only(store: Store, orders: Namespace, single: Namespace) -> None:
    _, theirs = create(store, make_timer(orders), make_timer(single))

    store.timers.delete(orders, [TimerRef("t1")], now=NOW)

    assert stored(store, single) == theirs


def test_a_deleted_timer_can_be_created_again(store: Store, single: Namespace) -> None:
    (old,) = create(store, make_timer(single, execute_at=LATER))
    store.timers.delete(single, [TimerRef("t1")], now=NOW)
    new = make_timer(single, execute_at=LATER)

    (result,) = store.timers.put([new], mode=PutMode.CREATE, now=NOW)

    assert result.status is PutStatus.CREATED
    assert due(store, single, until=LATER) == [new]
    assert record(store, [parked(old, until=LATER)], claim(store)) == [RecordStatus.SUPERSEDED]
