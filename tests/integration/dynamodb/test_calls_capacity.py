"""What a service call's life costs, counted from real answers (where they deviate: tests/support/capacity.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from benchmarks.dynamodb_calls_capacity import KINDS, USUAL, Life
from duetime.domain.call_steps import DeletionReason, deleted
from duetime.domain.service_calls import ServiceCall
from duetime.stores.backends.dynamodb.derived import OUTBOX_PARTITIONS
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallFilter, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from tests.support.capacity import CapacityMeter, counted_client
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store

LATER = NOW + seconds(60)
WRITE_UNITS = {
    "usual": {"submit": 13, "begin": 14, "end": 13, "publish": 6, "delete": 11},
    "with an idempotency key": {"submit": 15, "begin": 14, "end": 13, "publish": 6, "delete": 13},
    "with three tags": {"submit": 19, "begin": 14, "end": 13, "publish": 6, "delete": 17},
    "body of 4 KiB": {"submit": 21, "begin": 14, "end": 13, "publish": 6, "delete": 19},
    "body of 256 KiB": {"submit": 527, "begin": 14, "end": 13, "publish": 6, "delete": 525},
    "answer of 64 KiB": {"submit": 13, "begin": 14, "end": 141, "publish": 6, "delete": 139},
}
"""As docs/stores/dynamodb.md has them."""


@pytest.fixture
def client(ministack_url: str) -> Iterator[Any]:
    with counted_client(ministack_url) as client:
        yield client


@pytest.fixture
def singly(client: Any, timers_table: str) -> Store:
    """Single writes: their units are counted right. In one thread, as is the meter."""
    return dynamodb_store(client, timers_table, batch_statements=False, max_parallel=1)


@pytest.mark.parametrize("kind", KINDS)
def test_write_units_of_a_life(client: Any, kind: str) -> None:
    life = Life(client, number=2)
    try:
        counted = {step.name: step.write_units for step in life.run(**KINDS[kind])}
    finally:
        life.close()

    assert counted == WRITE_UNITS[kind]


def _delete(store: Store, call: ServiceCall) -> None:
    event = deleted(call, DeletionReason.REQUEST, new_id=make.ids_at(NOW), now=NOW)
    store.calls.delete(call.tenant_id, call.call_id, now=NOW, if_revision=call.revision, event=event)


Act = Callable[[Store, ServiceCall], object]
CHANGES: dict[str, tuple[Act, float]] = {
    "star": (lambda store, call: steps.applied(store.calls, make.amended(call, starred=True)), 9),
    "another name": (lambda store, call: steps.applied(store.calls, make.amended(call, name="other")), 10),
    "another tag": (lambda store, call: steps.applied(store.calls, make.amended(call, tags=("a", "c"))), 12),
    "due later": (lambda store, call: steps.applied(store.calls, make.amended(call, due_at=LATER)), 11),
    "cancel": (lambda store, call: steps.applied(store.calls, make.cancelled(call)), 12),
    "delete": (lambda store, call: _delete(store, call), 17),
}


@pytest.mark.parametrize("change", CHANGES)
def test_write_units_of_a_change(client: Any, singly: Store, change: str) -> None:
    act, units = CHANGES[change]
    call = steps.submit(singly.calls, **USUAL, tags=("a", "b"))
    meter = CapacityMeter(client)

    act(singly, call)

    meter.stop()
    assert meter.write_units == units


def test_a_refused_step_costs_nothing_but_its_units(client: Any, singly: Store) -> None:
    call = steps.submit(singly.calls, **USUAL)
    steps.begin(singly.calls, call)
    meter = CapacityMeter(client)

    steps.apply(singly.calls, make.begun(call))

    meter.stop()
    # And a look at what is in the way.
    assert dict(meter.requests) == {"TransactWriteItems": 1, "GetItem": 1}


def test_requests_of_reads(client: Any, singly: Store) -> None:
    submitted = [steps.submit(singly.calls, **USUAL) for _ in range(5)]
    large = steps.submit(singly.calls, body_json='"' + "x" * 5000 + '"', idempotency_key="k")
    meter = CapacityMeter(client)

    def requests(act: Callable[[], object]) -> dict[str, int]:
        meter.reset()
        act()
        return dict(meter.requests)

    refs = [CallRef(call.tenant_id, call.call_id) for call in submitted]
    calls = singly.calls
    listing: dict[str, Any] = {"cursor": None, "limit": 3, "now": NOW}
    assert requests(lambda: calls.get(refs, now=NOW)) == {"BatchGetItem": 1}
    assert requests(lambda: calls.get([*refs, steps.ref(large)], now=NOW)) == {"BatchGetItem": 1, "GetItem": 1}
    assert requests(lambda: calls.find_by_idempotency_key(make.TENANT, "k", now=NOW)) == {
        "GetItem": 3,
    }
    assert requests(lambda: calls.list(make.TENANT, CallFilter(), **listing)) == {"Query": 1}
    assert meter.items_read == 3
    assert requests(lambda: calls.list(make.TENANT, CallFilter(name_prefix="m"), **listing)) == {
        "Query": 1,
        "BatchGetItem": 1,
    }
    assert meter.items_read == 3
    assert requests(lambda: calls.list_events(make.TENANT, large.call_id, after=0, limit=9)) == {
        "GetItem": 1,
        "Query": 1,
    }
    outbox = singly.outbox
    outbox.mark_published(outbox.unpublished(limit=100), now=NOW)
    assert requests(lambda: outbox.unpublished(limit=100)) == {"Query": OUTBOX_PARTITIONS}
    assert meter.items_read == 0
    meter.stop()
