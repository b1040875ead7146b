"""Moving between stores: service calls, executions and events of another store, stored as they were."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.call_steps import Transition
from duetime.domain.service_calls import ServiceCall
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.core.transfer import TransferStore
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import EventPage, LoadStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds

EARLIER = NOW - seconds(86_400)
LOADED, PRESENT, CONFLICT = LoadStatus.LOADED, LoadStatus.PRESENT, LoadStatus.CONFLICT


# -- service calls ------------------------------------------------------------------------------------------------


def first(call: ServiceCall) -> Transition:
    return Transition(before=None, after=call)


def calls_in_every_state(calls: CallStore) -> list[ServiceCall]:
    """Made by steps, in a store of their own tenant."""
    scheduled = steps.submit(calls, due_at=NOW + seconds(60), tags=("a", "b"), idempotency_key="k1", starred=True)
    running = steps.begin(calls, steps.submit(calls))
    succeeded = steps.run(calls, steps.submit(calls, body_json=f'"{"x" * 5000}"'))
    failed = steps.run(calls, steps.submit(calls), is_ok=False)
    retried = steps.run(calls, steps.submit(calls, retry_policy_json=make.RETRIED), is_ok=False)
    return [scheduled, running, succeeded, failed, retried]


def elsewhere(call: ServiceCall) -> ServiceCall:
    """Return the same call of another tenant, as if it came from another store."""
    return replace(call, tenant_id="moved")


def test_a_call_in_any_state_is_stored_as_the_first_of_its_id(store: Store, calls: CallStore) -> None:
    moved = [elsewhere(call) for call in calls_in_every_state(calls)]

    assert steps.apply(calls, *map(first, moved)) == [ApplyStatus.APPLIED] * len(moved)

    assert [steps.got(calls, call) for call in moved] == moved
    assert calls.find_by_idempotency_key("moved", "k1", now=NOW) == moved[0]
    for call in moved:
        if call.wake_at is not None:
            steps.assert_waits(store, call)
    assert steps.apply(calls, *map(first, moved)) == [ApplyStatus.EXISTS] * len(moved)


def executions_of(calls: CallStore, call: ServiceCall) -> list[Any]:
    return calls.list_executions(call.tenant_id, call.call_id, cursor=None, limit=100).items


def test_executions_are_loaded_as_they_were(calls: CallStore, transfer: TransferStore) -> None:
    for call in calls_in_every_state(calls)[1:]:
        moved = elsewhere(call)
        executions = [replace(each, tenant_id="moved") for each in executions_of(calls, call)]
        executions = [replace(each, request=replace(each.request, body="y" * 9000)) for each in executions]
        steps.apply(calls, first(moved))

        assert transfer.load_executions(executions) == [LOADED] * len(executions)
        assert executions_of(calls, moved) == executions
        assert transfer.load_executions(executions) == [PRESENT] * len(executions)
        others = [replace(each, message="another") for each in executions]
        assert transfer.load_executions(others) == [CONFLICT] * len(executions)
        assert executions_of(calls, moved) == executions


def test_a_loaded_call_that_is_running_is_concluded(calls: CallStore, transfer: TransferStore) -> None:
    running = steps.begin(calls, steps.submit(calls))
    execution = replace(steps.execution_of(calls, running), tenant_id="moved")
    moved = elsewhere(running)
    steps.apply(calls, first(moved))
    transfer.load_executions([execution])

    done = steps.conclude(calls, moved)

    assert done.status.is_finished
    assert executions_of(calls, moved)[0].finished_at is not None


# -- events -------------------------------------------------------------------------------------------------------


@pytest.fixture
def homes(store: Store) -> None:
    """Make the namespaces of the calls of some tenants: without one a tenant has no calls."""
    for tenant in ("acme", "moved", "zeta"):
        store.catalogue.create_namespace(f"calls@{tenant}", num_shards=4, dedicated=False, now=NOW, tenant_id=tenant)


def all_events(transfer: TransferStore, *, limit: int = 3) -> list[OutboxEvent]:
    pages: list[EventPage] = [transfer.all_events(cursor=None, limit=limit)]
    while (cursor := pages[-1].next_cursor) is not None:
        pages.append(transfer.all_events(cursor=cursor, limit=limit))
        assert len(pages) < 1000
    assert [page.unreadable for page in pages] == [()] * len(pages)
    return [event for page in pages for event in page.events]


@pytest.mark.usefixtures("homes")
def test_all_events_are_read_in_order_of_their_call(
    calls: CallStore, transfer: TransferStore, outbox: Outbox
) -> None:
    assert all_events(transfer) == []
    made = [steps.run(calls, steps.submit(calls, tenant_id=tenant)) for tenant in ("zeta", "acme", "acme")]
    published = outbox.unpublished_of(CallRef("acme", made[1].call_id), limit=100)
    outbox.mark_published(published[:3], now=NOW)
    removed = steps.run(calls, steps.submit(calls))
    calls.delete(removed.tenant_id, removed.call_id, now=NOW)

    events = all_events(transfer)

    by_call: dict[str, list[OutboxEvent]] = {}
    for stored_event in events:
        by_call.setdefault(stored_event.event.aggregate_id, []).append(stored_event)
    assert [event for of_call in by_call.values() for event in of_call] == events  # adjacent
    assert set(by_call) == {call.call_id for call in [*made, removed]}
    for call in [*made, removed]:
        sequences = [stored_event.event.sequence for stored_event in by_call[call.call_id]]
        assert sequences == list(range(1, call.event_count + 1))
    times = [stored_event.published_at for stored_event in by_call[made[1].call_id]]
    assert times == [NOW] * 3 + [None] * (len(times) - 3)
    for call in made:
        shown = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
        assert [stored_event.event for stored_event in by_call[call.call_id]] == shown


def moved_events(calls: CallStore, call: ServiceCall, *, published: int) -> list[OutboxEvent]:
    events = calls.list_events(call.tenant_id, call.call_id, after=0, limit=100)
    return [
        OutboxEvent(replace(event, tenant_id="moved"), EARLIER if at < published else None)
        for at, event in enumerate(events)
    ]


@pytest.mark.usefixtures("homes")
def test_events_are_loaded_as_they_were(calls: CallStore, outbox: Outbox, transfer: TransferStore) -> None:
    call = steps.run(calls, steps.submit(calls))
    moved = elsewhere(call)
    events = moved_events(calls, call, published=3)
    steps.apply(calls, first(moved))

    assert transfer.load_events(events[:4], now=NOW) == [LOADED] * 4
    assert transfer.load_events(events, now=NOW) == [PRESENT] * 4 + [LOADED] * (len(events) - 4)

    of_moved = [each for each in all_events(transfer) if each.event.tenant_id == "moved"]
    assert of_moved == events
    shown = calls.list_events("moved", call.call_id, after=0, limit=100)
    assert shown == [each.event for each in events]
    waiting_ones = outbox.unpublished_of(CallRef("moved", call.call_id), limit=100)
    assert [each.event for each in waiting_ones] == [each.event for each in events[3:]]
    found = outbox.unpublished(limit=100, skip=frozenset({steps.ref(call)}))
    assert [each.event for each in found] == [each.event for each in events[3:]]


@pytest.mark.usefixtures("homes")
def test_loaded_events_are_published_and_followed_by_the_next(
    calls: CallStore, outbox: Outbox, transfer: TransferStore
) -> None:
    call = steps.begin(calls, steps.submit(calls))
    execution = replace(steps.execution_of(calls, call), tenant_id="moved")
    moved = elsewhere(call)
    events = moved_events(calls, call, published=2)
    steps.apply(calls, first(moved))
    transfer.load_executions([execution])
    transfer.load_events(events, now=NOW)
    ref = CallRef("moved", call.call_id)

    outbox.mark_published(outbox.unpublished_of(ref, limit=100), now=NOW)
    done = steps.conclude(calls, moved)

    assert [each.event.sequence for each in outbox.unpublished_of(ref, limit=100)] == list(
        range(len(events) + 1, done.event_count + 1)
    )


@pytest.mark.usefixtures("homes")
def test_another_event_under_the_same_number_is_a_conflict(calls: CallStore, transfer: TransferStore) -> None:
    call = steps.run(calls, steps.submit(calls))
    events = moved_events(calls, call, published=0)
    transfer.load_events(events, now=NOW)
    others = [
        replace(events[0], event=replace(events[0].event, payload_json="{}")),
        replace(events[1], published_at=NOW),
    ]

    assert transfer.load_events(others, now=NOW) == [CONFLICT, CONFLICT]
    of_moved = [each for each in all_events(transfer) if each.event.tenant_id == "moved"]
    assert of_moved == events


@pytest.mark.usefixtures("homes")
def test_events_that_a_transition_wrote_are_known_when_they_are_loaded(
    calls: CallStore, transfer: TransferStore
) -> None:
    call = steps.run(calls, steps.submit(calls))
    events = [each for each in all_events(transfer) if each.event.aggregate_id == call.call_id]

    assert transfer.load_events(events, now=NOW) == [PRESENT] * len(events)
