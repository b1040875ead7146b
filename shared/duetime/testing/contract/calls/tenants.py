"""No operation of the call store reads or changes anything of another tenant, with the very same ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from duetime.domain.call_steps import Transition
from duetime.domain.executions import Execution
from duetime.domain.service_calls import CallStatus, ServiceCall, calls_namespace
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallOrder, CallRef, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, seconds

MINE, THEIRS, NOBODY = "acme", "acme2", "acme-"


@dataclass(frozen=True)
class Twin:
    """Two calls that differ in their tenant and name only, each with an execution that has ended."""

    mine: ServiceCall
    theirs: ServiceCall
    execution: Execution


@pytest.fixture
def twin(calls: CallStore) -> Twin:
    call_id = make.id_at(NOW)
    fields: dict[str, Any] = {"call_id": call_id, "tags": ("a",), "idempotency_key": "k", "correlation_id": "c"}
    fields |= {"retry_policy_json": make.RETRIED}
    ended = {}
    for tenant_id in (MINE, THEIRS):
        call = steps.submit(calls, tenant_id=tenant_id, name=f"of {tenant_id}", **fields)
        ended[tenant_id] = steps.applied(calls, make.amended(steps.run(calls, call, is_ok=False), starred=True))
    (execution,) = calls.list_executions(THEIRS, call_id, cursor=None, limit=5).items
    return Twin(ended[MINE], ended[THEIRS], execution)


def tenants_of(found: list[ServiceCall]) -> set[str]:
    return {call.tenant_id for call in found}


def test_calls_by_id(calls: CallStore, twin: Twin) -> None:
    call_id = twin.mine.call_id

    assert calls.get([CallRef(NOBODY, call_id), CallRef(MINE, call_id)], now=NOW) == [None, twin.mine]
    assert steps.got(calls, twin.theirs) == twin.theirs


def test_calls_by_idempotency_key(calls: CallStore, twin: Twin) -> None:
    assert calls.find_by_idempotency_key(MINE, "k", now=NOW) == twin.mine
    assert calls.find_by_idempotency_key(THEIRS, "k", now=NOW) == twin.theirs
    assert calls.find_by_idempotency_key(NOBODY, "k", now=NOW) is None


LISTS = [
    CallFilter(),
    CallFilter(status=CallStatus.RUNNING),
    CallFilter(tags=("a",)),
    CallFilter(starred=True),
    CallFilter(correlation_id="c"),
    CallFilter(name_prefix="of"),
    CallFilter(submitted_from=NOW - seconds(1), submitted_to=NOW + seconds(1)),
    CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
]


@pytest.mark.parametrize("call_filter", LISTS, ids=str)
def test_lists(calls: CallStore, twin: Twin, call_filter: CallFilter) -> None:
    for tenant_id in (MINE, THEIRS):
        steps.submit(calls, tenant_id=tenant_id, name="of another", tags=("a",), correlation_id="c")

    for tenant_id, expected in ((MINE, {MINE}), (THEIRS, {THEIRS}), (NOBODY, set())):
        page = calls.list(tenant_id, call_filter, cursor=None, limit=10, now=NOW)
        assert tenants_of(page.items) == expected
        assert page.next_cursor is None
    assert twin.mine.call_id == twin.theirs.call_id


def test_executions(calls: CallStore, twin: Twin) -> None:
    call_id, theirs = twin.mine.call_id, twin.execution.execution_id

    assert calls.get_execution(MINE, call_id, theirs) is None
    assert calls.get_execution(THEIRS, call_id, theirs) == twin.execution
    (mine,) = calls.list_executions(MINE, call_id, cursor=None, limit=5).items
    assert mine.tenant_id == MINE
    assert calls.list_executions(NOBODY, call_id, cursor=None, limit=5).items == []


def test_events(calls: CallStore, outbox: Outbox, twin: Twin) -> None:
    call_id = twin.mine.call_id

    for tenant_id in (MINE, THEIRS):
        events = calls.list_events(tenant_id, call_id, after=0, limit=100)
        assert [event.tenant_id for event in events] == [tenant_id] * twin.mine.event_count
        found = outbox.unpublished_of(CallRef(tenant_id, call_id), limit=100)
        assert [stored.event for stored in found] == events
    assert calls.list_events(NOBODY, call_id, after=0, limit=100) == []
    outbox.mark_published(outbox.unpublished_of(CallRef(MINE, call_id), limit=100), now=NOW)
    assert len(outbox.unpublished_of(CallRef(THEIRS, call_id), limit=100)) == twin.theirs.event_count


def test_deleting(store: Store, calls: CallStore) -> None:
    mine = steps.submit(calls, tags=("a",), idempotency_key="k")
    theirs = steps.submit(calls, tenant_id=THEIRS, call_id=mine.call_id, tags=("a",), idempotency_key="k")

    assert calls.delete(NOBODY, mine.call_id, now=NOW) is DeleteStatus.NOT_FOUND
    assert calls.delete(MINE, mine.call_id, now=NOW) is DeleteStatus.DELETED

    assert steps.got(calls, theirs) == theirs
    assert calls.find_by_idempotency_key(THEIRS, "k", now=NOW) == theirs
    assert len(calls.list(THEIRS, CallFilter(tags=("a",)), cursor=None, limit=5, now=NOW).items) == 1
    assert len(calls.list_events(THEIRS, mine.call_id, after=0, limit=5)) == 2
    steps.assert_waits(store, theirs)


def test_steps(store: Store, calls: CallStore, twin: Twin) -> None:
    changed = make.amended(twin.mine, tags=("b",), name="changed")

    steps.applied(calls, changed)

    assert steps.got(calls, twin.theirs) == twin.theirs
    assert calls.list(THEIRS, CallFilter(tags=("b",)), cursor=None, limit=5, now=NOW).items == []
    assert calls.get_execution(THEIRS, twin.theirs.call_id, twin.execution.execution_id) == twin.execution
    steps.assert_waits(store, changed.after)
    steps.assert_waits(store, twin.theirs)


def test_a_step_of_a_call_that_only_another_tenant_has(calls: CallStore, twin: Twin) -> None:
    nobodys = replace(twin.mine, tenant_id=NOBODY)
    step = Transition(before=nobodys, after=replace(nobodys, revision=nobodys.revision + 1, name="changed"))

    assert steps.apply(calls, step) == [ApplyStatus.SUPERSEDED]
    assert steps.got(calls, twin.mine) == twin.mine


def test_timers(store: Store, twin: Twin) -> None:
    for call in (twin.mine, twin.theirs):
        assert call.wake_at is not None
        (timer,) = steps.due_timers(store, call, until=call.wake_at)
        assert timer.namespace == calls_namespace(call.tenant_id)
