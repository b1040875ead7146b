"""The call store under threads: one step of many wins, and the outbox holds what the winners wrote, in order."""

from __future__ import annotations

import pytest

from duetime.domain.service_calls import CallStatus
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds
from duetime.testing.contract.fixtures import AtOnce
from duetime.testing.contract.subject import Subject

THREADS = 6


@pytest.fixture
def each(subject: Subject, calls: CallStore) -> list[CallStore]:
    """Return a call store per thread: of processes of their own where the store can be opened again."""
    reopen = subject.reopen
    return [calls] * THREADS if reopen is None else [reopen().calls for _ in range(THREADS)]


def test_one_step_of_many_wins(each: list[CallStore], at_once: AtOnce) -> None:
    for _ in range(5):
        call = steps.submit(each[0])
        candidates = [make.begun(call) for _ in each]

        statuses = at_once(
            lambda index, candidates=candidates: steps.apply(each[index], candidates[index])[0],  # type: ignore[misc]
            threads=THREADS,
        )

        assert sorted(statuses) == [ApplyStatus.APPLIED] + [ApplyStatus.SUPERSEDED] * (THREADS - 1)
        winner = candidates[statuses.index(ApplyStatus.APPLIED)]
        assert steps.got(each[0], call) == winner.after
        assert each[0].list_executions(make.TENANT, call.call_id, cursor=None, limit=9).items == list(
            winner.executions
        )
        events = each[0].list_events(make.TENANT, call.call_id, after=2, limit=9)
        assert events == list(winner.events)


def test_batches_that_meet_share_their_calls_out(store: Store, each: list[CallStore], at_once: AtOnce) -> None:
    """Each thread begins the same calls, in an order of its own."""
    stored = [steps.submit(each[0]) for _ in range(8)]

    def begin(index: int) -> dict[str, ApplyStatus]:
        turned = stored[index:] + stored[:index]
        batch = [make.begun(call) for call in (reversed(turned) if index % 2 else turned)]
        statuses = each[index].apply(batch, now=NOW)
        return {step.after.call_id: status for step, status in zip(batch, statuses, strict=True)}

    found = at_once(begin, threads=THREADS)

    for call in stored:
        assert sorted(statuses[call.call_id] for statuses in found) == [
            ApplyStatus.APPLIED,
            *[ApplyStatus.SUPERSEDED] * (THREADS - 1),
        ]
        running = steps.got(each[0], call)
        assert running is not None
        assert len(each[0].list_executions(make.TENANT, call.call_id, cursor=None, limit=9).items) == 1
        steps.assert_waits(store, running)


def test_one_of_many_with_a_key_is_stored(each: list[CallStore], at_once: AtOnce) -> None:
    for turn in range(5):
        candidates = [make.submitted(idempotency_key=f"k{turn}") for _ in each]

        statuses = at_once(
            lambda index, candidates=candidates: steps.apply(each[index], candidates[index])[0],  # type: ignore[misc]
            threads=THREADS,
        )

        assert sorted(statuses) == [ApplyStatus.APPLIED] + [ApplyStatus.EXISTS] * (THREADS - 1)
        winner = candidates[statuses.index(ApplyStatus.APPLIED)].after
        assert each[0].find_by_idempotency_key(make.TENANT, f"k{turn}", now=NOW) == winner
    stored = each[0].list(make.TENANT, CallFilter(), cursor=None, limit=100, now=NOW).items
    assert len(stored) == 5


@pytest.mark.parametrize("is_between", [False, True], ids=["for its due time", "for its next attempt"])
def test_a_call_that_waits_is_cancelled_or_begun_but_not_both(
    store: Store, each: list[CallStore], is_between: bool, at_once: AtOnce
) -> None:
    for _ in range(6):
        call = steps.submit(each[0], retry_policy_json=make.RETRIED)
        if is_between:
            call = steps.run(each[0], call, is_ok=False)
        candidates = [make.begun(call), make.cancelled(call)]

        statuses = at_once(
            lambda index, candidates=candidates: steps.apply(each[index], candidates[index])[0],  # type: ignore[misc]
            threads=2,
        )

        assert sorted(statuses) == [ApplyStatus.APPLIED, ApplyStatus.SUPERSEDED]
        winner = candidates[statuses.index(ApplyStatus.APPLIED)].after
        assert steps.got(each[0], call) == winner
        executions = each[0].list_executions(make.TENANT, call.call_id, cursor=None, limit=9).items
        assert len(executions) == winner.attempts
        if winner.status is CallStatus.CANCELLED:
            assert steps.due_timers(store, call, until=NOW + seconds(3600)) == []
            assert steps.apply(each[0], make.begun(call)) == [ApplyStatus.SUPERSEDED]
        else:
            steps.assert_waits(store, winner)


def test_events_stay_in_order_whoever_writes_and_publishes(
    each: list[CallStore], outbox: Outbox, at_once: AtOnce
) -> None:
    """Threads take turns at changing the same calls while another one publishes."""
    shared = [steps.submit(each[0]) for _ in range(3)]
    published: list[tuple[str, int]] = []

    def change(index: int) -> None:
        calls = each[index]
        if index == 0:
            for _ in range(25):
                publish(outbox)
            return
        for turn in range(12):
            call = steps.got(calls, shared[turn % 3])
            assert call is not None
            assert call.status is CallStatus.SCHEDULED
            steps.apply(calls, make.amended(call, due_at=NOW))

    def publish(outbox: Outbox) -> int:
        found = outbox.unpublished(limit=7)
        outbox.mark_published(found, now=NOW)
        published.extend((stored.event.aggregate_id, stored.event.sequence) for stored in found)
        return len(found)

    at_once(change, threads=THREADS)
    while publish(outbox):
        pass

    for call in shared:
        latest = steps.got(each[0], call)
        assert latest is not None
        numbers = [sequence for call_id, sequence in published if call_id == call.call_id]
        assert numbers == list(range(1, latest.event_count + 1))
        assert latest.event_count == 2 * latest.revision
