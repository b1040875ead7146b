"""The outbox: events in order, once each until they are marked, fair between tenants; pruning."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import DeletionReason, Transition, deleted
from duetime.domain.service_calls import ServiceCall
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.core.transfer import TransferStore
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds
from duetime.testing.contract.subject import Subject

DAY = timedelta(days=1)


def waiting(outbox: Outbox, *, limit: int = 100, skip: Iterable[ServiceCall] = ()) -> list[OutboxEvent]:
    found = outbox.unpublished(limit=limit, skip=frozenset(map(steps.ref, skip)))
    assert len(found) <= limit
    assert all(stored.published_at is None for stored in found)
    return found


def by_call(found: Iterable[OutboxEvent]) -> dict[CallRef, list[int]]:
    """Return the sequence numbers of each call in the order in which they were handed out."""
    numbers: dict[CallRef, list[int]] = {}
    for stored in found:
        ref = CallRef(stored.event.tenant_id, stored.event.aggregate_id)
        numbers.setdefault(ref, []).append(stored.event.sequence)
    return numbers


def drained(outbox: Outbox, *, limit: int) -> list[CallEvent]:
    """All there is, published page by page."""
    events: list[CallEvent] = []
    for _ in range(200):
        page = waiting(outbox, limit=limit)
        if not page:
            return events
        outbox.mark_published(page, now=NOW)
        events += [stored.event for stored in page]
    raise AssertionError("the outbox does not become empty")


def test_an_empty_outbox(calls: CallStore, outbox: Outbox) -> None:
    assert waiting(outbox) == []
    outbox.mark_published([], now=NOW)


def test_events_are_found_as_they_were_written(calls: CallStore, outbox: Outbox) -> None:
    first = make.submitted()
    call = steps.applied(calls, first)
    second = make.begun(call)
    steps.applied(calls, second)

    found = waiting(outbox)

    assert [stored.event for stored in found] == [*first.events, *second.events]
    events = calls.list_events(make.TENANT, call.call_id, after=0, limit=9)
    assert events == [stored.event for stored in found]


def test_what_is_marked_is_not_found_again(calls: CallStore, outbox: Outbox) -> None:
    call = steps.submit(calls)
    found = waiting(outbox)

    outbox.mark_published(found[:1], now=NOW)
    assert waiting(outbox) == found[1:]
    outbox.mark_published(found, now=NOW + DAY)
    outbox.mark_published(found, now=NOW + 2 * DAY)
    assert waiting(outbox) == []
    assert len(calls.list_events(make.TENANT, call.call_id, after=0, limit=9)) == 2


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_every_event_once_and_each_calls_in_order(calls: CallStore, outbox: Outbox, limit: int) -> None:
    stored = [
        steps.run(calls, steps.submit(calls, tenant_id=tenant_id))
        for tenant_id in ("a", "b", "c", "d")
        for _ in range(1 if tenant_id == "b" else 3)
    ]

    events = drained(outbox, limit=limit)

    assert len({event.event_id for event in events}) == len(events) == sum(call.event_count for call in stored)
    numbers = by_call(OutboxEvent(event) for event in events)
    assert numbers == {steps.ref(call): list(range(1, call.event_count + 1)) for call in stored}


def test_a_page_is_full_when_there_is_enough(calls: CallStore, outbox: Outbox) -> None:
    stored = [steps.run(calls, steps.submit(calls, tenant_id=name)) for name in ("a", "b", "b", "b", "b")]
    total = sum(call.event_count for call in stored)

    for limit in range(1, total + 2):
        assert len(waiting(outbox, limit=limit)) == min(limit, total)


def test_no_tenants_backlog_keeps_another_from_the_page(calls: CallStore, outbox: Outbox) -> None:
    for _ in range(12):
        steps.submit(calls, tenant_id="busy")
    other = steps.submit(calls, tenant_id="quiet", now=NOW + DAY)

    for limit in (2, 4):
        assert steps.ref(other) in by_call(waiting(outbox, limit=limit))


def test_a_page_begins_with_each_calls_first_unpublished_event(calls: CallStore, outbox: Outbox) -> None:
    stored = [steps.run(calls, steps.submit(calls)) for _ in range(4)]
    outbox.mark_published([each for each in waiting(outbox) if each.event.sequence <= 2], now=NOW)

    for limit in (1, 3, 11):
        numbers = by_call(waiting(outbox, limit=limit))
        for found in numbers.values():
            assert found == list(range(3, 3 + len(found)))
    assert len(by_call(waiting(outbox))) == len(stored)


def test_skipped_calls_hide_nothing_of_the_others(calls: CallStore, outbox: Outbox) -> None:
    blocked = [steps.run(calls, steps.submit(calls)) for _ in range(30)]
    free = steps.run(calls, steps.submit(calls, now=NOW + DAY))
    other = steps.submit(calls, tenant_id="zeta")

    for limit in (2, 9, 100):
        numbers = by_call(waiting(outbox, limit=limit, skip=blocked))
        assert set(numbers) == {steps.ref(free), steps.ref(other)}
    assert numbers == {steps.ref(free): [1, 2, 3, 4, 5, 6, 7], steps.ref(other): [1, 2]}
    assert waiting(outbox, skip=[*blocked, free, other]) == []
    outbox.mark_published(waiting(outbox, skip=blocked), now=NOW)
    assert set(by_call(waiting(outbox))) <= set(map(steps.ref, blocked))


def test_a_skipped_call_of_another_tenant_with_the_same_id_is_not_meant(calls: CallStore, outbox: Outbox) -> None:
    one = steps.submit(calls)
    other = steps.submit(calls, tenant_id="other", call_id=one.call_id)

    assert set(by_call(waiting(outbox, skip=[one]))) == {steps.ref(other)}


def test_the_events_of_one_call(calls: CallStore, outbox: Outbox) -> None:
    call = steps.run(calls, steps.submit(calls))
    steps.submit(calls)
    mine = outbox.unpublished_of(steps.ref(call), limit=100)

    assert [stored.event.sequence for stored in mine] == list(range(1, call.event_count + 1))
    assert outbox.unpublished_of(steps.ref(call), limit=3) == mine[:3]
    outbox.mark_published(mine[:2], now=NOW)
    assert outbox.unpublished_of(steps.ref(call), limit=3) == mine[2:5]
    assert outbox.unpublished_of(CallRef("other", call.call_id), limit=3) == []
    calls.delete(make.TENANT, call.call_id, now=NOW)
    assert outbox.unpublished_of(steps.ref(call), limit=100) == mine[2:]


def test_events_are_listed_after_a_sequence(calls: CallStore) -> None:
    call = steps.run(calls, steps.submit(calls))

    def numbers(after: int, limit: int = 100) -> list[int]:
        return [event.sequence for event in calls.list_events(make.TENANT, call.call_id, after=after, limit=limit)]

    assert numbers(0) == list(range(1, call.event_count + 1))
    assert numbers(3, limit=2) == [4, 5]
    assert numbers(call.event_count) == []
    assert calls.list_events(make.TENANT, make.id_at(NOW), after=0, limit=5) == []


# -- pruning ------------------------------------------------------------------------------------------------------


def prune(calls: CallStore, *, before: timedelta = DAY, limit: int = 100, now: timedelta = timedelta(0)) -> int:
    return calls.prune(now=NOW + now, events_published_before=NOW + before, limit=limit)


def test_published_events_are_pruned_when_their_time_is_up(
    subject: Subject, calls: CallStore, outbox: Outbox
) -> None:
    call = steps.submit(calls)
    outbox.mark_published(waiting(outbox)[:1], now=NOW)

    assert prune(calls, before=timedelta(0)) == 0
    pruned = prune(calls, before=seconds(0.001))

    assert pruned == (0 if subject.events_expire_by_themselves else 1)
    assert [stored.event.sequence for stored in waiting(outbox)] == [2]
    if not subject.events_expire_by_themselves:
        left = calls.list_events(make.TENANT, call.call_id, after=0, limit=5)
        assert [event.sequence for event in left] == [2]


def published(outbox: Outbox, *, now: timedelta = timedelta(0)) -> None:
    outbox.mark_published(waiting(outbox), now=NOW + now)


def past_retention(subject: Subject, calls: CallStore, *, days: int) -> None:
    """Prune after ``days``, with a retention of a week. Twice: what is put off must not be met again at once."""
    for _ in range(2):
        prune(calls, before=(days - 7) * DAY, now=days * DAY)
        if subject.expire_events is not None:
            subject.expire_events(NOW + days * DAY)


def kept(calls: CallStore, call: ServiceCall) -> list[int]:
    return [event.sequence for event in calls.list_events(make.TENANT, call.call_id, after=0, limit=100)]


@pytest.mark.parametrize("how", ["from the beginning", "after they were published", "before they are published"])
def test_events_of_a_starred_call_stay_with_it(subject: Subject, calls: CallStore, outbox: Outbox, how: str) -> None:
    call = steps.run(calls, steps.submit(calls, starred=how == "from the beginning"))
    other = steps.run(calls, steps.submit(calls))
    if how == "after they were published":
        published(outbox)
    if how != "from the beginning":
        call = steps.applied(calls, make.amended(call, starred=True))
    published(outbox)

    past_retention(subject, calls, days=8)
    past_retention(subject, calls, days=16)

    assert kept(calls, call) == list(range(1, call.event_count + 1))
    assert kept(calls, other) == []
    call = steps.applied(calls, make.amended(call, starred=False))
    published(outbox, now=16 * DAY)
    past_retention(subject, calls, days=24)
    assert kept(calls, call) == []


def test_events_of_a_starred_call_that_is_moved_stay_with_it(
    subject: Subject, calls: CallStore, outbox: Outbox, transfer: TransferStore
) -> None:
    call = replace(steps.run(calls, steps.submit(calls, starred=True)), tenant_id="moved")
    events = [replace(stored.event, tenant_id="moved") for stored in waiting(outbox)]
    steps.applied(calls, Transition(before=None, after=call))

    transfer.load_events([OutboxEvent(event, NOW) for event in events], now=NOW)
    past_retention(subject, calls, days=8)

    assert calls.list_events("moved", call.call_id, after=0, limit=100) == events


def test_events_of_a_removed_call_go_though_it_was_starred(
    subject: Subject, calls: CallStore, outbox: Outbox, transfer: TransferStore
) -> None:
    call = steps.run(calls, steps.submit(calls, starred=True))
    published(outbox)
    past_retention(subject, calls, days=8)
    event = deleted(call, DeletionReason.REQUEST, new_id=make.ids_at(NOW), now=NOW)
    calls.delete(make.TENANT, call.call_id, now=NOW, if_revision=call.revision, event=event)
    published(outbox, now=8 * DAY)

    past_retention(subject, calls, days=16)

    assert transfer.all_events(cursor=None, limit=100).events == []


def test_no_unpublished_event_is_pruned(calls: CallStore, outbox: Outbox) -> None:
    call = steps.run(calls, steps.submit(calls))

    prune(calls, before=100 * DAY, now=100 * DAY)

    found = outbox.unpublished_of(steps.ref(call), limit=100)
    assert [stored.event.sequence for stored in found] == list(range(1, 8))


def test_expired_calls_are_pruned_with_all_they_have(store: Store, calls: CallStore) -> None:
    ended = steps.run(calls, steps.submit(calls, tags=("a",), idempotency_key="k"))
    execution_id = calls.list_executions(make.TENANT, ended.call_id, cursor=None, limit=1).items[0].execution_id
    kept = steps.applied(calls, make.amended(steps.run(calls, steps.submit(calls)), starred=True))
    open_one = steps.submit(calls)
    assert store.timers.get(make.namespace_of(), ended.call_id, now=NOW) is not None

    assert prune(calls, now=make.RETENTION - seconds(0.001)) == 0
    assert prune(calls, now=make.RETENTION) == 1

    assert calls.get_execution(make.TENANT, ended.call_id, execution_id) is None
    later = NOW + make.RETENTION
    assert [call is None for call in calls.get(list(map(steps.ref, (ended, kept, open_one))), now=later)] == [
        True,
        False,
        False,
    ]
    assert store.timers.get(make.namespace_of(), ended.call_id, now=later) is None
    steps.assert_waits(store, open_one)


def test_pruning_is_bounded(subject: Subject, calls: CallStore, outbox: Outbox) -> None:
    for _ in range(3):
        steps.run(calls, steps.submit(calls))
    outbox.mark_published(waiting(outbox)[:4], now=NOW)

    pruned = [prune(calls, limit=3, now=make.RETENTION) for _ in range(4)]

    assert pruned == ([3, 0, 0, 0] if subject.events_expire_by_themselves else [3, 3, 1, 0])
