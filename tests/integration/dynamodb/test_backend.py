"""What the backend under core keeps of rows, and what becomes of writes whose answer is lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.timers import Rearm, Timer
from duetime.stores.backends.dynamodb.backend import DynamoDbBackend
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.layouts import timer_item_key
from duetime.stores.core.store import CoreStore
from duetime.stores.port.timers import PutMode, PutStatus, TimerRef
from duetime.stores.time_source import TimeSource
from tests.contract.steps import create, record, stored
from tests.support.builders import failed, fired, leased, make_timer, make_timers, seconds
from tests.support.clock import NOW
from tests.support.dynamodb_proxy import DynamoDbProxy, lose_first_answer
from tests.support.leases import claim_shard

LARGE = '"' + "x" * 40_000 + '"'
LATER = NOW + seconds(60)


def _store(client: Any, table: str) -> CoreStore:
    return CoreStore(DynamoDbBackend(client, table, time_source=TimeSource.CALLER))


@pytest.fixture
def store(ministack_client: Any, timers_table: str) -> CoreStore:
    return _store(ministack_client, timers_table)


@pytest.fixture
def proxied(proxy: DynamoDbProxy, timers_table: str, undelayed: None) -> Iterator[CoreStore]:
    client = make_client(endpoint_url=proxy.url)
    yield _store(client, timers_table)
    client.close()


@pytest.fixture
def item(ministack_client: Any, timers_table: str) -> Any:
    """What is stored under a sort key of shard 0."""

    def of_key(sort_key: str) -> dict[str, Any] | None:
        key = timer_item_key(0, sort_key)
        found = ministack_client.get_item(TableName=timers_table, Key=key, ConsistentRead=True)
        return found.get("Item")

    return of_key


def _bytes(item: dict[str, Any]) -> int:
    return sum(len(name) + len(value.get("S", value.get("N", ""))) for name, value in item.items())


def test_the_item_of_a_lease_always_has_one_size(store: CoreStore, item: Any) -> None:
    sizes = set()
    for turn in range(2):
        lease = claim_shard(store, 0, "worker" * (turn + 1), lease_seconds=10, now=LATER)
        assert lease is not None
        sizes.add(_bytes(item("SHARD#OWNERSHIP")))
        store.leases.renew([lease], lease_seconds=20, now=LATER)
        sizes.add(_bytes(item("SHARD#OWNERSHIP")))
        store.leases.release([lease], now=LATER)
        sizes.add(_bytes(item("SHARD#OWNERSHIP")))
    assert len(sizes) == 1


def test_a_large_payload_lives_and_ends_with_its_timer(store: CoreStore, single: Namespace, item: Any) -> None:
    (timer,) = create(store, make_timer(single, "t1", payload_json=LARGE))
    assert "timer_payload" not in item("TIMER#single#t1")
    assert "expires_at" not in item("LARGE#single#t1")

    record(store, [failed(timer)])
    assert item("LARGE#single#t1")["expires_at"] == item("TIMER#single#t1")["expires_at"]
    store.timers.rearm(single, [TimerRef("t1")], rearm=Rearm.REDRIVE, now=NOW)
    assert "expires_at" not in item("LARGE#single#t1")

    store.timers.put([make_timer(single, "t1", payload_json="1")], mode=PutMode.REPLACE, now=NOW)
    assert item("LARGE#single#t1") is None
    store.timers.put([make_timer(single, "t1", payload_json=LARGE)], mode=PutMode.REPLACE, now=NOW)
    assert stored(store, single, "t1").content.payload_json == LARGE
    store.timers.delete(single, [TimerRef("t1")], now=NOW)
    assert item("LARGE#single#t1") is None


def test_a_large_payload_that_does_not_fit_its_timer_is_damage(
    store: CoreStore, single: Namespace, ministack_client: Any, timers_table: str
) -> None:
    create(store, make_timer(single, "t1", payload_json=LARGE), make_timer(single, "t2"))
    ministack_client.delete_item(TableName=timers_table, Key=timer_item_key(0, "LARGE#single#t1"))

    page = store.timers.due(0, until=NOW, limit=10)

    assert [timer.timer_id for timer in page.timers] == ["t2"]
    assert [row.timer_id for row in page.unreadable] == ["t1"]
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=LATER)
    assert store.timers.due(0, until=NOW, limit=10).unreadable == ()


@pytest.mark.parametrize(
    ("sort_key", "damage"),
    [
        ("TIMER#single#t1", {"timer_revision": {"S": "one"}}),
        ("TIMER#single#t1", {"timer_revision": {"N": "1.5"}}),
        ("TIMER#single#t1", {"timer_updated_at": {"S": "yesterday"}}),
        ("TIMER#odd", {}),
        ("odd", {"timer_revision": {"N": "7"}}),
    ],
)
def test_a_damaged_item_is_taken_aside(
    store: CoreStore,
    single: Namespace,
    ministack_client: Any,
    timers_table: str,
    sort_key: str,
    damage: dict[str, Any],
    item: Any,
) -> None:
    create(store, make_timer(single, "t1"), make_timer(single, "t2"))
    bad = {**item("TIMER#single#t1"), **timer_item_key(0, sort_key), **damage}
    ministack_client.put_item(TableName=timers_table, Item=bad)

    page = store.timers.due(0, until=NOW, limit=10)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=LATER)

    assert len(page.unreadable) == 1
    assert "timer_execute_at" not in item(sort_key)
    after = store.timers.due(0, until=NOW, limit=10)
    assert after.unreadable == ()
    assert "t2" in [timer.timer_id for timer in after.timers]


@pytest.mark.parametrize("number", [1, 3])
def test_a_write_whose_answer_was_lost_is_recognised(
    proxy: DynamoDbProxy, proxied: CoreStore, store: CoreStore, single: Namespace, number: int
) -> None:
    timers: list[Timer] = make_timers(single, number)
    proxy.intercept = lose_first_answer("PutItem" if number == 1 else "BatchExecuteStatement")
    results = proxied.timers.put(timers, mode=PutMode.CREATE, now=NOW)
    assert [result.status for result in results] == [PutStatus.CREATED] * number

    held = leased([fired(timer) for timer in timers])
    proxy.intercept = lose_first_answer("UpdateItem" if number == 1 else "BatchExecuteStatement")
    assert proxied.timers.record(held, now=NOW) == [RecordStatus.APPLIED] * number
