"""CallStore.delete: what goes with a call, and what stays."""

from __future__ import annotations

from datetime import datetime

import pytest

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.call_steps import DeletionReason, deleted
from duetime.domain.service_calls import ServiceCall
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallFilter, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds


def delete(calls: CallStore, call: ServiceCall, **fields: object) -> DeleteStatus:
    return calls.delete(call.tenant_id, call.call_id, **({"now": NOW} | fields))  # type: ignore[arg-type]


def listed(calls: CallStore, **conditions: object) -> list[str]:
    wanted = CallFilter(**conditions)  # type: ignore[arg-type]
    page = calls.list(make.TENANT, wanted, cursor=None, limit=10, now=NOW)
    return [call.call_id for call in page.items]


def test_a_scheduled_call_is_cancelled(store: Store, calls: CallStore) -> None:
    call = steps.submit(calls, tags=("a",), name="n", idempotency_key="k", due_at=NOW + seconds(60))
    other = steps.submit(calls, tags=("a",), name="n", due_at=NOW + seconds(60))

    assert delete(calls, call) is DeleteStatus.DELETED

    assert steps.got(calls, call) is None
    assert steps.due_timers(store, call, until=NOW + seconds(3600)) == []
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) is None
    for conditions in ({}, {"tags": ("a",)}, {"name_prefix": "n"}, {"correlation_id": call.correlation_id}):
        assert listed(calls, **conditions) == [other.call_id]
    assert delete(calls, call) is DeleteStatus.NOT_FOUND
    steps.assert_waits(store, other)


def test_a_finished_call_goes_with_its_executions_and_its_timer(store: Store, calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls, tags=("a", "b")))
    other = steps.run(calls, steps.submit(calls))
    (execution,) = calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5).items

    assert delete(calls, call) is DeleteStatus.DELETED

    assert steps.got(calls, call) is None
    assert store.timers.get(make.namespace_of(), call.call_id, now=NOW) is None
    assert calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5).items == []
    assert calls.get_execution(make.TENANT, call.call_id, execution.execution_id) is None
    assert len(calls.list_executions(make.TENANT, other.call_id, cursor=None, limit=5).items) == 1


@pytest.mark.parametrize("is_waiting", [False, True])
def test_a_running_call_is_not_removed(store: Store, calls: CallStore, is_waiting: bool) -> None:
    call = steps.begin(calls, steps.submit(calls, retry_policy_json=make.RETRIED, idempotency_key="k"))
    if is_waiting:
        call = steps.conclude(calls, call, is_ok=False)

    assert delete(calls, call) is DeleteStatus.RUNNING

    assert steps.got(calls, call) == call
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) == call
    steps.assert_waits(store, call)


def test_only_the_revision_that_was_seen(calls: CallStore) -> None:
    call = steps.submit(calls)
    changed = steps.applied(calls, make.amended(call, starred=True))

    assert delete(calls, call, if_revision=call.revision) is DeleteStatus.REVISION_MISMATCH
    assert steps.got(calls, call) == changed
    assert delete(calls, call, if_revision=changed.revision) is DeleteStatus.DELETED


def test_what_is_not_there(calls: CallStore) -> None:
    nobody = make.submitted().after

    assert delete(calls, nobody) is DeleteStatus.NOT_FOUND
    assert delete(calls, nobody, if_revision=1) is DeleteStatus.NOT_FOUND


def test_an_expired_call_reads_as_gone(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls))

    assert delete(calls, call, now=NOW + make.RETENTION) is DeleteStatus.NOT_FOUND
    assert steps.got(calls, call, now=NOW + make.RETENTION) is None
    assert steps.got(calls, call, now=NOW + make.RETENTION - seconds(0.001)) == call


def removal(call: ServiceCall, reason: DeletionReason, *, now: datetime = NOW) -> CallEvent:
    return deleted(call, reason, new_id=make.ids_at(now), now=now)


def test_the_event_of_a_removal_is_stored_with_it_and_comes_after_all_others(
    calls: CallStore, outbox: Outbox
) -> None:
    call = steps.run(calls, steps.submit(calls))
    before = [stored.event for stored in outbox.unpublished(limit=100)]
    event = removal(call, DeletionReason.REQUEST)
    late = removal(call, DeletionReason.REQUEST)
    told: list[str] = []
    calls.on_events.append(lambda: told.append("events"))

    assert delete(calls, call, if_revision=call.revision - 1, event=late) is DeleteStatus.REVISION_MISMATCH
    assert [stored.event for stored in outbox.unpublished(limit=100)] == before
    assert delete(calls, call, if_revision=call.revision, event=event) is DeleteStatus.DELETED
    assert delete(calls, call, if_revision=call.revision, event=late) is DeleteStatus.NOT_FOUND
    assert told == ["events"]

    assert event.sequence == call.event_count + 1
    found = outbox.unpublished(limit=100)
    assert [stored.event for stored in found] == [*before, event]
    assert [stored.event for stored in outbox.unpublished_of(steps.ref(call), limit=100)] == [*before, event]
    outbox.mark_published(found, now=NOW)
    assert outbox.unpublished(limit=100) == []


def test_an_expired_call_goes_with_an_event(calls: CallStore, outbox: Outbox) -> None:
    gone = steps.run(calls, steps.submit(calls, idempotency_key="k", tags=("a",)))
    starred = steps.applied(calls, make.amended(steps.run(calls, steps.submit(calls)), starred=True))
    outbox.mark_published(outbox.unpublished(limit=100), now=NOW)
    end = NOW + make.RETENTION
    taken_over = steps.submit(calls, idempotency_key="k", now=end)  # before anybody removed the first one
    outbox.mark_published(outbox.unpublished(limit=100), now=end)

    def prune() -> int:
        return calls.prune(
            now=end,
            events_published_before=NOW,
            limit=100,
            event_of=lambda call: removal(call, DeletionReason.EXPIRY, now=end),
        )

    assert prune() == 1
    (stored,) = outbox.unpublished(limit=100)
    event = stored.event
    assert (event.type, event.aggregate_id, event.sequence) == (
        CallEventType.DELETED,
        gone.call_id,
        gone.event_count + 1,
    )
    assert event.payload_json == '{"reason":"expiry"}'
    assert prune() == 0
    assert steps.got(calls, starred, now=end) == starred
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=end) == taken_over
    assert calls.list_executions(make.TENANT, gone.call_id, cursor=None, limit=5).items == []


def test_events_outlive_their_call_until_they_are_published(calls: CallStore, outbox: Outbox) -> None:
    call = steps.run(calls, steps.submit(calls))
    before = outbox.unpublished(limit=100)
    assert len(before) == call.event_count

    delete(calls, call)

    assert outbox.unpublished(limit=100) == before
    assert calls.list_events(make.TENANT, call.call_id, after=0, limit=100) == []
    outbox.mark_published(before, now=NOW)
    assert outbox.unpublished(limit=100) == []
    assert calls.list_events(make.TENANT, call.call_id, after=0, limit=100) == []
