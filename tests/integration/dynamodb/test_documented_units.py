"""Write units by the documented rule (tests/support/dynamodb_units.py) for what is written in production, PartiQL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from duetime.domain.escalations import escalated
from duetime.domain.namespaces import Namespace
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import failed, fired, make_timers, parked, retried, seconds, waiting
from duetime.testing.contract.schedules import after, make_schedule
from duetime.testing.contract.steps import claim, create, record
from tests.integration.dynamodb.test_capacity import FIELDS
from tests.support.attempts import logged
from tests.support.capacity import CapacityMeter, counted_client
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_service import DocumentedService
from tests.support.dynamodb_units import item_size, write_units

BATCH = 30
"""Two requests."""
LATER = NOW + seconds(60)


@pytest.mark.parametrize(
    ("outcome", "fields", "created", "units"),
    [
        (lambda timer: logged(fired(timer)), {}, 2, 2),
        (fired, {"correlation_id": "c"}, 3, 2),
        (lambda timer: logged(failed(timer), status=400), {}, 2, 3),
        (lambda timer: parked(timer, until=LATER), {}, 2, 3),
        (lambda timer: waiting(timer, until=LATER, attempt_log="[1]"), {}, 2, 3),
        (lambda timer: logged(retried(timer, next_attempt_at=LATER), status=503), {}, 2, 5),
    ],
    ids=["fired", "fired with a correlation id", "failed", "parked", "taken by the receiver", "retried"],
)
def test_write_units_of_batches(
    proxied: Store,
    single: Namespace,
    service: DocumentedService,
    outcome: Callable[..., Any],
    fields: dict[str, Any],
    created: float,
    units: float,
) -> None:
    timers = create(proxied, *make_timers(single, BATCH, **FIELDS, **fields))
    assert dict(service.units) == {"BatchExecuteStatement": BATCH * created}

    record(proxied, [outcome(timer) for timer in timers])

    assert dict(service.units) == {"BatchExecuteStatement": BATCH * (created + units)}


@pytest.mark.parametrize(
    ("outcome", "units"),
    [(fired, 1 + 3), (lambda timer: retried(timer, next_attempt_at=LATER), 1 + 2 * (2 + 3))],
    ids=["ended", "goes on as a timer"],
)
def test_write_units_of_occurrences(
    proxied: Store, single: Namespace, service: DocumentedService, outcome: Callable[..., Any], units: float
) -> None:
    schedules = create(proxied, *(make_schedule(single, f"s{number}") for number in range(BATCH)))
    assert sum(service.units.values()) == BATCH * 2

    record(proxied, [after(outcome(schedule)) for schedule in schedules])

    assert sum(service.units.values()) == BATCH * (2 + units)


def test_write_units_of_escalations(proxied: Store, single: Namespace, service: DocumentedService) -> None:
    fields = FIELDS | {"retry_policy_json": '{"escalateUrl": "https://alerts.example.com/"}'}
    timers = create(proxied, *make_timers(single, BATCH, **fields))
    service.units.clear()

    record(proxied, [escalated(logged(failed(timer), status=400)) for timer in timers])

    assert sum(service.units.values()) == BATCH * 2 * (3 + 4)


def test_an_outcome_that_is_too_late_costs_a_unit_and_a_lease_one_each_time(
    proxied: Store, single: Namespace, service: DocumentedService
) -> None:
    timers = create(proxied, *make_timers(single, 2, **FIELDS))
    record(proxied, [fired(timer) for timer in timers])
    service.units.clear()
    record(proxied, [fired(timer) for timer in timers])
    assert dict(service.units) == {"BatchExecuteStatement": 2}

    service.units.clear()
    for _ in range(2):
        lease = claim(proxied)
        proxied.leases.renew([lease], lease_seconds=10, now=NOW)
        proxied.leases.release([lease], now=NOW)
    assert sum(service.units.values()) == 6


def test_the_emulator_counts_single_writes_by_the_same_rule(
    ministack_url: str, timers_table: str, single: Namespace, items: Any
) -> None:
    """Two readings of the documentation: ministack's, where it has one, and ours."""
    with counted_client(ministack_url) as client:
        definition = client.describe_table(TableName=timers_table)["Table"]
        singly = dynamodb_store(client, timers_table, batch_statements=False)
        meter = CapacityMeter(client)
        (timer,) = create(singly, *make_timers(single, 1, correlation_id="c", payload_json='"' + "x" * 3000 + '"'))
        (before,) = items(0, "TIMER#")
        created = meter.write_units
        record(singly, [logged(retried(timer, next_attempt_at=LATER), status=503)])
    (after,) = items(0, "TIMER#")
    assert created == write_units(definition, None, before)
    assert meter.write_units - created == write_units(definition, before, after)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ({"S": "é"}, 2),
        ({"N": "0"}, 1),
        ({"N": "1234567"}, 5),
        ({"N": "-20"}, 3),
        ({"B": b"123"}, 3),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"SS": ["a", "bc"]}, 3),
        ({"L": [{"S": "a"}, {"S": "b"}]}, 3 + 2 * (1 + 1)),
        ({"M": {"k": {"S": "ab"}}}, 3 + 1 + 1 + 2),
    ],
)
def test_sizes_of_values(value: dict[str, Any], size: int) -> None:
    assert item_size({"name": value}) == 4 + size
