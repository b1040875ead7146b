"""rearm_timers: a failed timer is redriven, a waiting one is fired now, or cancelled."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.timers import MAX_PAYLOAD_BYTES, FailureReason, Rearm, Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerFilter, TimerRef
from duetime.testing.contract.builders import (
    NOW,
    RETENTION,
    failed,
    fired,
    make_timer,
    make_timers,
    parked,
    retried,
    seconds,
)
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.steps import claim, create, due, record, stored
from duetime.testing.contract.subject import Subject

LATER = NOW + seconds(60)
LARGE = '"' + "x" * (MAX_PAYLOAD_BYTES - 2) + '"'


def end(store: Store, namespace: Namespace, timer: Timer, outcome: Callable[[Timer], Outcome]) -> Timer:
    """Return ``timer``, whose shard nobody owns, with an outcome recorded on it."""
    lease = claim(store, timer.shard_id)
    assert record(store, [outcome(timer)], lease) == [RecordStatus.APPLIED]
    store.leases.release([lease], now=NOW)
    return stored(store, namespace, timer.timer_id)


def make_failed(store: Store, namespace: Namespace, timer_id: str = "t1", **fields: object) -> Timer:
    (timer,) = create(store, make_timer(namespace, timer_id, **fields))  # type: ignore[arg-type]
    return end(store, namespace, timer, failed)


def rearm(
    store: Store,
    namespace: Namespace,
    timer_id: str = "t1",
    *,
    how: Rearm = Rearm.REDRIVE,
    if_revision: int | None = None,
) -> ChangeResult:
    (result,) = store.timers.rearm(
        namespace, [TimerRef(timer_id, if_revision)], rearm=how, now=LATER, expires_at=LATER + RETENTION
    )
    return result


@pytest.mark.parametrize("payload_json", [None, '{"a": 1.0}', LARGE], ids=["none", "small", "large"])
def test_a_failed_timer_is_redriven(store: Store, single: Namespace, payload_json: str | None) -> None:
    timer = make_failed(store, single, payload_json=payload_json, tags=("a",), headers_json='{"h": "v"}')

    result = rearm(store, single)

    assert result.status is ChangeStatus.APPLIED
    assert result.timer == replace(
        timer,
        state=TimerState.SCHEDULED,
        revision=timer.revision + 1,
        attempts=0,
        next_attempt_at=LATER,
        rearmed_at=LATER,
        expires_at=None,
        updated_at=LATER,
    )
    assert result.timer.failure is not None
    assert stored(store, single, now=LATER + RETENTION + RETENTION) == result.timer


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_redriven_timer_is_due_and_fires_again(store: Store, single: Namespace, payload_json: str | None) -> None:
    timer = make_failed(store, single, payload_json=payload_json)
    assert due(store, single, until=LATER) == []

    redriven = rearm(store, single).timer

    assert due(store, single, until=LATER - seconds(0.001)) == []
    assert due(store, single, until=LATER) == [redriven]
    assert redriven is not None
    assert redriven.firing_id == timer.firing_id
    assert end(store, single, redriven, fired).state is TimerState.FIRED


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_timer_can_fail_and_be_redriven_again_and_again(
    store: Store, single: Namespace, payload_json: str | None
) -> None:
    timer = make_failed(store, single, payload_json=payload_json)
    for _ in range(3):
        redriven = rearm(store, single).timer
        assert redriven is not None
        timer = end(store, single, redriven, lambda it: failed(it, at=LATER))
    assert (timer.revision, timer.attempts, timer.content.payload_json) == (8, 1, payload_json)


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_waiting_timer_is_fired_now(store: Store, single: Namespace, payload_json: str | None) -> None:
    due_at = NOW + seconds(3600)
    (timer,) = create(store, make_timer(single, execute_at=due_at, payload_json=payload_json))

    result = rearm(store, single, how=Rearm.FIRE)

    assert result.status is ChangeStatus.APPLIED
    assert result.timer == replace(timer, revision=2, next_attempt_at=LATER, rearmed_at=LATER, updated_at=LATER)
    assert result.timer.content.execute_at == due_at
    assert due(store, single, until=LATER) == [result.timer] == [stored(store, single)]


def test_a_waiting_retry_is_fired_now_and_its_attempts_count_on(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    waiting = end(store, single, timer, lambda it: retried(it, next_attempt_at=NOW + seconds(3600)))

    result = rearm(store, single, how=Rearm.FIRE)

    assert result.timer is not None
    assert (result.timer.attempts, result.timer.failure) == (1, waiting.failure)
    assert due(store, single, until=LATER) == [result.timer]


def test_a_timer_that_is_due_already_is_left_to_the_attempt_in_flight(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))

    result = rearm(store, single, how=Rearm.FIRE)

    assert result == ChangeResult(ChangeStatus.APPLIED, timer)
    assert record(store, [fired(timer)], claim(store)) == [RecordStatus.APPLIED]


@pytest.mark.parametrize("payload_json", [None, '{"a": 1.0}', LARGE], ids=["none", "small", "large"])
def test_a_waiting_timer_is_cancelled(store: Store, single: Namespace, payload_json: str | None) -> None:
    (timer,) = create(store, make_timer(single, payload_json=payload_json, tags=("a",), correlation_id="c"))
    waiting = end(store, single, timer, lambda it: retried(it, next_attempt_at=NOW + seconds(3600)))

    result = rearm(store, single, how=Rearm.CANCEL)

    cancelled = replace(
        waiting,
        state=TimerState.CANCELLED,
        revision=waiting.revision + 1,
        next_attempt_at=None,
        expires_at=LATER + RETENTION,
        updated_at=LATER,
    )
    assert result == ChangeResult(ChangeStatus.APPLIED, cancelled)
    assert stored(store, single) == cancelled
    assert due(store, single, until=NOW + seconds(7200)) == []
    assert rearm(store, single, how=Rearm.CANCEL) == result
    wanted = TimerFilter(state=TimerState.CANCELLED)
    assert store.timers.list(single, wanted, cursor=None, limit=9, now=LATER).items == [cancelled]
    found = store.timers.find_by_correlation(single, "c", cursor=None, limit=9, now=LATER)
    assert found.items == [cancelled]
    assert store.timers.get(single, "t1", now=LATER + RETENTION) is None


def test_the_outcome_of_a_cancelled_timer_is_superseded(store: Store, single: Namespace) -> None:
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    cancelled = rearm(store, single, how=Rearm.CANCEL).timer

    assert record(store, [fired(timer)], lease) == [RecordStatus.SUPERSEDED]

    assert stored(store, single) == cancelled


def test_a_cancelled_timer_is_replaced_and_fires(store: Store, single: Namespace) -> None:
    create(store, make_timer(single, payload_json=LARGE))
    rearm(store, single, how=Rearm.CANCEL)

    (result,) = store.timers.put([make_timer(single, payload_json="2", now=LATER)], mode=PutMode.REPLACE, now=LATER)

    assert (result.status, stored(store, single).revision) == (PutStatus.REPLACED, 3)
    assert due(store, single, until=LATER) == [stored(store, single)]


@pytest.mark.parametrize("how", list(Rearm))
def test_what_is_in_another_state_stays_as_it_is(store: Store, single: Namespace, how: Rearm) -> None:
    scheduled, ended, parked_, failed_ = create(store, *make_timers(single, 4, execute_at=NOW + seconds(1)))
    timers = {
        TimerState.SCHEDULED: scheduled,
        TimerState.FIRED: end(store, single, ended, fired),
        TimerState.FIRING: end(store, single, parked_, lambda it: parked(it, until=NOW + seconds(3600))),
        TimerState.FAILED: end(store, single, failed_, failed),
    }
    del timers[TimerState.FAILED if how is Rearm.REDRIVE else TimerState.SCHEDULED]

    for state, timer in timers.items():
        result = rearm(store, single, timer.timer_id, how=how)
        assert result == ChangeResult(ChangeStatus.WRONG_STATE, timer), state
        assert stored(store, single, timer.timer_id) == timer


@pytest.mark.parametrize("how", list(Rearm))
def test_what_is_not_there_is_not_found(store: Store, single: Namespace, orders: Namespace, how: Rearm) -> None:
    make_failed(store, single, "elsewhere")

    assert rearm(store, single, "nothing", how=how) == ChangeResult(ChangeStatus.NOT_FOUND)
    assert rearm(store, orders, "elsewhere", how=how) == ChangeResult(ChangeStatus.NOT_FOUND)


def test_an_expired_timer_is_not_found(store: Store, single: Namespace) -> None:
    make_failed(store, single)

    (result,) = store.timers.rearm(single, [TimerRef("t1")], rearm=Rearm.REDRIVE, now=NOW + RETENTION)

    assert result == ChangeResult(ChangeStatus.NOT_FOUND)
    assert due(store, single, until=NOW + RETENTION) == []


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_redrive_judges_the_revision_before_the_state(
    store: Store, single: Namespace, payload_json: str | None
) -> None:
    timer = make_failed(store, single, payload_json=payload_json)

    for how in Rearm:
        mismatch = rearm(store, single, how=how, if_revision=1)
        assert mismatch == ChangeResult(ChangeStatus.REVISION_MISMATCH, timer)
    assert stored(store, single) == timer
    assert rearm(store, single, if_revision=timer.revision).status is ChangeStatus.APPLIED


@pytest.mark.parametrize("how", list(Rearm))
@pytest.mark.parametrize("is_quarantined", [False, True])
def test_an_unreadable_timer_stays_as_it_is(
    subject: Subject, single: Namespace, how: Rearm, is_quarantined: bool
) -> None:
    store = subject.store
    (bad,) = create(store, make_timer(single, "bad"))
    subject.corrupt(bad)
    if is_quarantined:
        rows = store.timers.due(0, until=NOW, limit=9).unreadable
        store.timers.quarantine(rows, now=NOW, expires_at=NOW + RETENTION)
    before = stored(store, single, "bad")

    result = rearm(store, single, "bad", how=how)

    assert result.status is ChangeStatus.UNREADABLE
    assert result.timer is not None
    assert result.timer.failure is not None
    assert result.timer.failure.reason is FailureReason.UNREADABLE
    assert stored(store, single, "bad") == before
    assert rearm(store, single, "bad", how=how, if_revision=99).status is ChangeStatus.REVISION_MISMATCH


def test_each_of_a_batch_has_its_own_result_in_order(store: Store, orders: Namespace) -> None:
    timers = create(store, *make_timers(orders, 60), make_timer(orders, "large", payload_json=LARGE))
    for timer in timers[::2]:
        end(store, orders, timer, failed)
    refs = [TimerRef(timer.timer_id, 2) for timer in timers] + [TimerRef("nothing")]

    results = store.timers.rearm(orders, refs, rearm=Rearm.REDRIVE, now=LATER)

    assert len(results) == len(refs)
    assert [result.status for result in results[:61:2]] == [ChangeStatus.APPLIED] * 31
    assert [result.status for result in results[1:61:2]] == [ChangeStatus.REVISION_MISMATCH] * 30
    assert results[61].status is ChangeStatus.NOT_FOUND
    for timer, result in zip(timers, results, strict=False):
        assert result.timer == stored(store, orders, timer.timer_id)
        assert result.timer.timer_id == timer.timer_id
    assert len(due(store, orders, until=LATER)) == 61


def test_more_than_a_hundred_in_one_call(store: Store, single: Namespace) -> None:
    timers = create(store, *make_timers(single, 130))
    lease = claim(store)
    record(store, [failed(timer) for timer in timers], lease)

    results = store.timers.rearm(
        single, [TimerRef(timer.timer_id) for timer in timers], rearm=Rearm.REDRIVE, now=LATER
    )

    assert [result.status for result in results] == [ChangeStatus.APPLIED] * 130


def test_rearming_nothing_has_no_results(store: Store, single: Namespace) -> None:
    assert store.timers.rearm(single, [], rearm=Rearm.REDRIVE, now=NOW) == []


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_what_comes_after_a_redrive_finds_nothing_left_of_the_failure(
    subject: Subject, single: Namespace, payload_json: str | None
) -> None:
    store = subject.store
    timer = make_failed(store, single, payload_json=payload_json)
    redriven = rearm(store, single).timer
    assert redriven is not None
    long_after = NOW + RETENTION + RETENTION

    assert store.timers.prune(now=long_after, limit=10) == 0
    late = record(store, [failed(replace(timer, next_attempt_at=NOW))], claim(store))
    (replaced,) = store.timers.put([make_timer(single, payload_json="1")], mode=PutMode.REPLACE, now=long_after)

    assert late == [RecordStatus.SUPERSEDED]
    assert replaced.status is PutStatus.REPLACED
    assert replaced.timer is not None
    assert (replaced.timer.revision, replaced.timer.rearmed_at) == (redriven.revision + 1, None)
    assert stored(store, single, now=long_after) == replaced.timer
    assert store.timers.delete(single, [TimerRef("t1")], now=long_after)[0].timer == replaced.timer


def test_the_outcome_of_an_attempt_that_fire_overlaps_is_kept(store: Store, single: Namespace) -> None:
    """By the clock of who fires it the timer was not due yet; by the poller's it was."""
    (timer,) = create(store, make_timer(single, execute_at=LATER + seconds(0.001)))
    result = rearm(store, single, how=Rearm.FIRE)
    assert result.timer is not None

    assert record(store, [fired(timer)], claim(store), now=LATER) == [RecordStatus.APPLIED]

    ended = stored(store, single, now=LATER)
    assert (ended.state, ended.revision) == (TimerState.FIRED, result.timer.revision + 1)
    assert ended.rearmed_at == LATER
    assert due(store, single, until=LATER + seconds(1)) == []


def test_the_outcome_of_an_attempt_before_a_redrive_is_superseded(store: Store, single: Namespace) -> None:
    """It has the firing and the number of the attempt that the redriven timer waits for."""
    (timer,) = create(store, make_timer(single))
    lease = claim(store)
    record(store, [failed(timer)], lease)
    redriven = rearm(store, single).timer

    assert record(store, [fired(timer)], lease, now=LATER) == [RecordStatus.SUPERSEDED]
    assert due(store, single, until=LATER) == [redriven]


# -- races -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
@pytest.mark.parametrize("if_revision", [None, 2])
def test_one_redrive_of_many_wins(
    store: Store, single: Namespace, payload_json: str | None, if_revision: int | None, at_once: AtOnce
) -> None:
    make_failed(store, single, payload_json=payload_json)

    statuses = [result.status for result in at_once(lambda _: rearm(store, single, if_revision=if_revision))]

    assert statuses.count(ChangeStatus.APPLIED) == 1
    lost = ChangeStatus.WRONG_STATE if if_revision is None else ChangeStatus.REVISION_MISMATCH
    assert statuses.count(lost) == len(statuses) - 1
    timer = stored(store, single)
    assert (timer.revision, timer.content.payload_json) == (3, payload_json)


def test_overlapping_batches_redrive_each_timer_once(store: Store, single: Namespace, at_once: AtOnce) -> None:
    timers = create(store, *make_timers(single, 60))
    record(store, [failed(timer) for timer in timers], claim(store))
    refs = [TimerRef(timer.timer_id) for timer in timers]

    batches = at_once(
        lambda _: store.timers.rearm(single, refs, rearm=Rearm.REDRIVE, now=LATER),
        threads=4,
    )

    statuses = [result.status for batch in batches for result in batch]
    assert statuses.count(ChangeStatus.APPLIED) == 60
    assert {timer.revision for timer in due(store, single, until=LATER)} == {3}


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_redrive_and_a_deletion_never_resurrect(
    store: Store, single: Namespace, payload_json: str | None, at_once: AtOnce
) -> None:
    for number in range(5):
        make_failed(store, single, f"t{number}", payload_json=payload_json)

    def act(index: int) -> None:
        for number in range(5):
            if index == 0:
                rearm(store, single, f"t{number}")
            else:
                store.timers.delete(single, [TimerRef(f"t{number}")], now=LATER)

    at_once(act, threads=2)

    assert [store.timers.get(single, f"t{number}", now=LATER) for number in range(5)] == [None] * 5


@pytest.mark.parametrize("payload_json", [None, LARGE], ids=["none", "large"])
def test_a_redrive_and_a_replacement_leave_the_replacement(
    store: Store, single: Namespace, payload_json: str | None, at_once: AtOnce
) -> None:
    for number in range(5):
        make_failed(store, single, f"t{number}", payload_json=payload_json)

    def act(index: int) -> None:
        for number in range(5):
            if index == 0:
                rearm(store, single, f"t{number}")
            else:
                new = make_timer(single, f"t{number}", payload_json="1")
                store.timers.put([new], mode=PutMode.REPLACE, now=LATER)

    at_once(act, threads=2)

    timers = [stored(store, single, f"t{number}", now=LATER) for number in range(5)]
    assert [timer.content.payload_json for timer in timers] == ["1"] * 5
    assert sorted(due(store, single, until=LATER), key=lambda timer: timer.timer_id) == timers


def test_fire_never_takes_an_outcome_away(store: Store, single: Namespace, at_once: AtOnce) -> None:
    """The timers come due at the moment at which they are fired by hand."""
    timers = create(store, *make_timers(single, 20, execute_at=LATER + seconds(0.001)))
    lease = claim(store)

    def act(index: int) -> list[bool]:
        if index == 0:
            return [record(store, [fired(timer)], lease) == [RecordStatus.APPLIED] for timer in timers]
        return [
            rearm(store, single, timer.timer_id, how=Rearm.FIRE).status is ChangeStatus.APPLIED for timer in timers
        ]

    outcomes, _ = at_once(act, threads=2)

    assert outcomes == [True] * 20
    assert {stored(store, single, timer.timer_id).state for timer in timers} == {TimerState.FIRED}
