"""What a timer's life costs, counted from real answers (tests/support/capacity.py says where ministack deviates)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, TimerChange
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract.builders import (
    failed,
    fired,
    make_timer,
    make_timers,
    parked,
    rescheduled,
    retried,
    seconds,
)
from duetime.testing.contract.steps import claim_shard, create, record
from tests.support.attempts import logged
from tests.support.capacity import CapacityMeter
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store

LATER = NOW + seconds(60)


@pytest.fixture
def batched(client: Any, timers_table: str) -> Store:
    """As in production: the number of requests is right."""
    return dynamodb_store(client, timers_table)


FIELDS: dict[str, Any] = {
    "callback_url": "https://api.example.com/v1/orders/reminders",
    "payload_json": '{"orderId": "0191e5a2-6c3f-7c5e-9d1b-2f6c1f0a7b11", "kind": "reminder"}',
    "headers_json": '{"X-Source": "orders"}',
    "retry_policy_json": '{"maxAttempts": 5, "initialInterval": "10s"}',
}
"""A usual timer: below 1 KB, the size of a write unit."""


def test_a_timers_life_costs_four_write_units(singly: Store, single: Namespace, meter: CapacityMeter) -> None:
    timers = create(singly, *make_timers(single, 10, **FIELDS))
    assert meter.write_units == 10 * 2

    record(singly, [logged(fired(timer)) for timer in timers])

    assert meter.write_units == 10 * 4


def test_the_firing_side_takes_few_requests_in_batches(
    batched: Store, single: Namespace, meter: CapacityMeter
) -> None:
    number = 500
    timers = make_timers(single, number, **FIELDS)
    batched.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    assert dict(meter.requests) == {"BatchExecuteStatement": number / 25}

    meter.reset()
    page = batched.timers.due(0, until=NOW, limit=500)
    while page.cursor is not None:
        record(batched, [fired(timer) for timer in page.timers])
        page = batched.timers.due(0, until=NOW, limit=500, cursor=page.cursor)

    assert meter.total_requests / number < 0.15
    # A first look, the rest of the page, an empty page, and a look at what comes next.
    assert dict(meter.requests) == {"Query": 4, "BatchExecuteStatement": number / 25}
    assert meter.items_read == number + 3  # three are looked at before


@pytest.mark.parametrize("later", [0, 1, 60])
def test_a_lone_timer_is_read_by_one_request_that_tells_what_comes_next(
    batched: Store, single: Namespace, meter: CapacityMeter, later: int
) -> None:
    create(batched, make_timer(single, "lone", execute_at=NOW), *make_timers(single, later, execute_at=LATER))
    meter.reset()

    page = batched.timers.due(0, until=NOW, limit=500)

    assert [timer.timer_id for timer in page.timers] == ["lone"]
    assert (page.cursor, page.next_attempt_at) == (None, LATER if later else None)
    assert dict(meter.requests) == {"Query": 1}


def test_a_lone_timer_is_read_by_one_request_before_the_last_one_is_recorded(
    batched: Store, single: Namespace, meter: CapacityMeter
) -> None:
    last, _, _ = create(
        batched,
        make_timer(single, "last", execute_at=NOW),
        make_timer(single, "lone", execute_at=NOW + seconds(1)),
        make_timer(single, "next", execute_at=LATER),
    )
    meter.reset()

    until, taken = NOW + seconds(1), (last.firing_id, 0)
    page = batched.timers.due(0, since=NOW, until=until, limit=500, is_known=lambda *attempt: attempt == taken)

    assert [timer.timer_id for timer in page.timers] == ["lone"]
    assert page.next_attempt_at == LATER
    assert dict(meter.requests) == {"Query": 1}


@pytest.mark.parametrize("has_next", [True, False])
def test_an_idle_poll_is_one_request_that_reads_nothing(
    batched: Store, single: Namespace, meter: CapacityMeter, has_next: bool
) -> None:
    if has_next:
        create(batched, make_timer(single, execute_at=LATER, payload_json='"' + "x" * 30_000 + '"'))
    meter.reset()

    page = batched.timers.due(0, until=NOW, limit=500, known_next=LATER)

    assert page.next_attempt_at == LATER
    assert dict(meter.requests) == {"Query": 1}
    assert meter.items_read == 0


@pytest.mark.parametrize("pending", [0, 60])
def test_a_first_poll_is_one_request_that_reads_little(
    batched: Store, single: Namespace, meter: CapacityMeter, pending: int
) -> None:
    create(batched, *make_timers(single, pending, execute_at=LATER))
    meter.reset()

    page = batched.timers.due(0, until=NOW, limit=500)

    assert page.next_attempt_at == (LATER if pending else None)
    assert dict(meter.requests) == {"Query": 1}
    assert meter.items_read <= 25


Costs = Callable[[Store, Namespace], object]


OPERATIONS: dict[str, tuple[dict[str, Any], Costs, float]] = {
    "retry": ({}, lambda store, ns: _record(store, ns, lambda t: retried(t, next_attempt_at=LATER)), 3),
    "park": ({}, lambda store, ns: _record(store, ns, lambda t: parked(t, until=LATER)), 3),
    "reschedule": ({}, lambda store, ns: _record(store, ns, lambda t: rescheduled(t, execute_at=LATER)), 3),
    "fire": ({}, lambda store, ns: _record(store, ns, fired), 2),
    "retry with a log": (
        {},
        lambda store, ns: _record(store, ns, lambda t: logged(retried(t, next_attempt_at=LATER), status=503)),
        5,
    ),
    "reschedule with a log": (
        {},
        lambda store, ns: _record(store, ns, lambda t: logged(rescheduled(t, execute_at=LATER))),
        3,
    ),
    "fire with a log": ({}, lambda store, ns: _record(store, ns, lambda t: logged(fired(t))), 2),
    "fail with a log": ({}, lambda store, ns: _record(store, ns, lambda t: logged(failed(t), status=400)), 3),
    "fire with a correlation id": ({"correlation_id": "c"}, lambda store, ns: _record(store, ns, fired), 2),
    "change of the tags": ({}, lambda store, ns: _update(store, ns, TimerChange(tags=("x",))), 2),
    "change of the due time": ({}, lambda store, ns: _update(store, ns, TimerChange(execute_at=LATER)), 3),
    "failure and redrive": ({}, lambda store, ns: _redrive(store, ns), 2 + 2),
    "retry fired by hand": ({}, lambda store, ns: _fire_waiting(store, ns), 3 + 3),
    "delete": ({}, lambda store, ns: store.timers.delete(ns, [TimerRef("t1")], now=NOW), 2),
    "delete with a correlation id": (
        {"correlation_id": "c"},
        lambda store, ns: store.timers.delete(ns, [TimerRef("t1")], now=NOW),
        3,
    ),
}


def _record(store: Store, namespace: Namespace, outcome: Callable[..., Any]) -> None:
    timer = store.timers.get(namespace, "t1", now=NOW)
    record(store, [outcome(timer)])


def _update(store: Store, namespace: Namespace, change: TimerChange) -> None:
    store.timers.update(namespace, "t1", change, firing_id="f", now=NOW)


def _redrive(store: Store, namespace: Namespace) -> None:
    _record(store, namespace, failed)
    store.timers.rearm(namespace, [TimerRef("t1")], rearm=Rearm.REDRIVE, now=NOW)


def _fire_waiting(store: Store, namespace: Namespace) -> None:
    _record(store, namespace, lambda timer: retried(timer, next_attempt_at=LATER))
    store.timers.rearm(namespace, [TimerRef("t1")], rearm=Rearm.FIRE, now=NOW)


@pytest.mark.parametrize("operation", OPERATIONS)
def test_write_units_of_an_operation(singly: Store, single: Namespace, meter: CapacityMeter, operation: str) -> None:
    fields, act, units = OPERATIONS[operation]
    create(singly, make_timer(single, **FIELDS, **fields))
    created = meter.write_units
    assert created == (3 if fields else 2)  # a correlation id costs one unit, in its index

    act(singly, single)

    assert meter.write_units - created == units


def test_a_large_payload_is_written_once_and_closed_once(
    singly: Store, single: Namespace, meter: CapacityMeter
) -> None:
    kilobytes = 100
    (timer,) = create(singly, make_timer(single, payload_json='"' + "x" * (kilobytes * 1024 - 202) + '"'))
    assert meter.write_units == 2 * kilobytes + 3

    record(singly, [retried(timer, next_attempt_at=LATER)])
    assert meter.write_units == 2 * kilobytes + 3 + 3

    waiting = singly.timers.get(single, "t1", now=NOW)
    assert waiting is not None
    record(singly, [fired(waiting)])
    assert meter.write_units == 4 * kilobytes + 3 + 3 + 3


def test_a_redrive_of_many_takes_few_requests(batched: Store, single: Namespace, meter: CapacityMeter) -> None:
    timers = create(batched, *make_timers(single, 100, **FIELDS))
    record(batched, [failed(timer) for timer in timers])
    meter.reset()

    refs = [TimerRef(timer.timer_id) for timer in timers]
    batched.timers.rearm(single, refs, rearm=Rearm.REDRIVE, now=LATER)

    assert dict(meter.requests) == {"BatchGetItem": 1, "BatchExecuteStatement": 4}


def test_a_renewal_of_many_leases_is_one_request(batched: Store, single: Namespace, meter: CapacityMeter) -> None:
    leases = [claim_shard(batched, shard_id, "w1", lease_seconds=10, now=NOW) for shard_id in range(16)]
    meter.reset()

    batched.leases.renew([lease for lease in leases if lease], lease_seconds=10, now=NOW)
    batched.leases.statuses(range(100), now=NOW)
    batched.catalogue.shard_map()

    assert dict(meter.requests) == {"BatchExecuteStatement": 1, "BatchGetItem": 2}
