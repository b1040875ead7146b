"""What is really in the table, read with a plain client."""

from __future__ import annotations

import json
from typing import Any

import pytest

from duetime.domain.api_keys import SECRET_BYTES, ApiKey, hash_of, new_secret
from duetime.domain.errors import InvalidCursor, StoreNotReady
from duetime.domain.namespaces import Namespace
from duetime.domain.principals import Role
from duetime.domain.shards import MAX_SHARED_SHARDS
from duetime.domain.timers import FailureReason, Timer, TimerChange
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, timer_item_key
from duetime.stores.backends.dynamodb.schema import create_table, table_definition
from duetime.stores.core.store import Store
from duetime.stores.core.timer_codec import encode
from duetime.stores.entities import TIMER
from duetime.stores.port.timers import PutMode, PutStatus, TimerFilter
from duetime.testing.contract.builders import RETENTION, fired, make_timer, make_timers, retried, seconds
from duetime.testing.contract.steps import claim, create, due, record, stored
from tests.support.clock import NOW
from tests.support.dynamodb import item_of
from tests.support.dynamodb_units import item_size


@pytest.fixture
def raw(ministack_client: Any, timers_table: str) -> Any:
    """Reads an item by its shard and sort key."""

    def read(shard_id: int, sort_key: str) -> dict[str, Any] | None:
        answer = ministack_client.get_item(
            TableName=timers_table, Key=timer_item_key(shard_id, sort_key), ConsistentRead=True
        )
        item: dict[str, Any] | None = answer.get("Item")
        return item

    return read


def test_the_table_is_that_of_the_design(ministack_client: Any, timers_table: str) -> None:
    table = ministack_client.describe_table(TableName=timers_table)["Table"]

    assert table["KeySchema"] == [
        {"AttributeName": "shard_id", "KeyType": "HASH"},
        {"AttributeName": "sortKey", "KeyType": "RANGE"},
    ]
    (due_index,) = table["LocalSecondaryIndexes"]
    assert due_index["IndexName"] == "timer_execute_at-index"
    assert due_index["KeySchema"] == [
        {"AttributeName": "shard_id", "KeyType": "HASH"},
        {"AttributeName": "timer_execute_at", "KeyType": "RANGE"},
    ]
    assert due_index["Projection"] == {"ProjectionType": "ALL"}
    assert table["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
    time_to_live = ministack_client.describe_time_to_live(TableName=timers_table)["TimeToLiveDescription"]
    assert time_to_live == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
    backups = ministack_client.describe_continuous_backups(TableName=timers_table)["ContinuousBackupsDescription"]
    assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


def test_a_table_of_another_shape_is_not_ready(ministack_client: Any) -> None:
    definition = table_definition("another-shape")
    del definition["LocalSecondaryIndexes"]
    definition["AttributeDefinitions"] = [
        each for each in definition["AttributeDefinitions"] if each["AttributeName"] != "timer_execute_at"
    ]
    ministack_client.create_table(**definition)

    with pytest.raises(StoreNotReady, match="timer_execute_at-index"):
        create_table(ministack_client, "another-shape")

    ministack_client.delete_table(TableName="another-shape")


def test_timers_are_stored_in_the_encoded_shape_by_single_and_by_batch_writes(
    store: Store, single: Namespace, raw: Any
) -> None:
    fields: dict[str, Any] = {"payload_json": "1.10", "headers_json": "{}", "tags": ("b", "a"), "correlation_id": "c"}
    (alone,) = create(store, make_timer(single, "alone", **fields))
    together = create(store, *make_timers(single, 2, **fields))

    for timer in (alone, *together):
        assert raw(0, f"TIMER#single#{timer.timer_id}") == item_of(TIMER, encode(timer))


def test_an_end_is_written_by_a_batch_as_by_a_single_write(store: Store, single: Namespace, raw: Any) -> None:
    alone, *together = create(store, *make_timers(single, 3))
    record(store, [fired(alone)])
    record(store, [fired(timer) for timer in together])

    for timer in (alone, *together):
        item = raw(0, f"TIMER#single#{timer.timer_id}")
        assert item == item_of(TIMER, encode(stored(store, single, timer.timer_id)))
        assert "timer_execute_at" not in item
        assert item["expires_at"]["N"].isdigit()


def test_a_retry_keeps_its_due_time_apart_and_a_change_back_drops_it(
    store: Store, single: Namespace, raw: Any
) -> None:
    (timer,) = create(store, make_timer(single))
    record(store, [retried(timer, next_attempt_at=NOW + seconds(5))])
    assert raw(0, "TIMER#single#t1")["timer_due_at"] == {"S": "2026-12-20T15:30:00.000Z"}

    store.timers.update(single, "t1", TimerChange(execute_at=NOW + seconds(9)), firing_id="f", now=NOW)

    item = raw(0, "TIMER#single#t1")
    assert item["timer_execute_at"] == {"S": "2026-12-20T15:30:09.000Z"}
    assert item["timer_due_at"] == item["timer_execute_at"]
    assert "timer_failure" not in item


def test_a_replacement_leaves_nothing_of_the_former_timer(store: Store, single: Namespace, raw: Any) -> None:
    (timer,) = create(store, make_timer(single, payload_json="1", headers_json="{}", tags=("x",), correlation_id="c"))
    record(store, [fired(timer)])

    (result,) = store.timers.put([make_timer(single)], mode=PutMode.REPLACE, now=NOW)

    assert result.timer is not None
    assert raw(0, "TIMER#single#t1") == item_of(TIMER, encode(result.timer))


def test_a_change_keeps_attributes_of_a_later_version(
    store: Store, single: Namespace, raw: Any, ministack_client: Any, timers_table: str
) -> None:
    create(store, make_timer(single))
    ministack_client.update_item(
        TableName=timers_table,
        Key=LAYOUTS[TIMER].key_of((0, "single", "t1")),
        UpdateExpression="SET timer_of_the_future = :x",
        ExpressionAttributeValues={":x": {"S": "x"}},
    )

    store.timers.update(single, "t1", TimerChange(tags=("y",)), firing_id="f", now=NOW)

    assert raw(0, "TIMER#single#t1")["timer_of_the_future"] == {"S": "x"}


def test_the_ownership_row_is_that_of_the_design(store: Store, raw: Any) -> None:
    claim(store, 286, "instance-1")
    lease = claim(store, 286, "instance-2", now=NOW + seconds(10))

    item = raw(286, "SHARD#OWNERSHIP")
    assert json.loads(item.pop("shard_metadata")["S"]) == {}
    assert set(item.pop("shard_reserve")["S"] + item.pop("shard_owner_reserve")["S"]) == {
        "."
    }  # room, so that a claim never makes a full shard larger
    assert item == {
        "shard_id": {"N": "286"},
        "sortKey": {"S": "SHARD#OWNERSHIP"},
        "row_type": {"S": "SHARD"},
        "shard_version": {"N": "2"},
        "shard_owner_id": {"S": "instance-2"},
        "shard_claimed_at": {"S": "2026-12-20T15:30:10.000Z"},
        "shard_lease_expires_at": {"S": "2026-12-20T15:30:20.000Z"},
    }

    store.leases.release([lease], now=NOW)

    released = raw(286, "SHARD#OWNERSHIP")
    assert released["shard_version"] == {"N": "2"}
    assert "shard_owner_id" not in released
    assert "shard_lease_expires_at" not in released


def test_the_ownership_row_always_has_one_size(store: Store, raw: Any) -> None:
    sizes = set()
    for turn in (1, 2):
        lease = claim(store, 0, "worker" * turn)
        sizes.add(item_size(raw(0, "SHARD#OWNERSHIP")))
        store.leases.renew([lease], lease_seconds=20, now=NOW)
        sizes.add(item_size(raw(0, "SHARD#OWNERSHIP")))
        store.leases.release([lease], now=NOW)
        sizes.add(item_size(raw(0, "SHARD#OWNERSHIP")))
    assert len(sizes) == 1


def test_the_catalogue_has_a_partition_of_its_own(store: Store, single: Namespace, raw: Any) -> None:
    store.catalogue.create_namespace("vip", num_shards=3, dedicated=True, now=NOW, tenant_id="acme")
    store.catalogue.create_namespace("calls@acme", num_shards=1, dedicated=False, now=NOW, tenant_id="acme")
    store.leases.announce_worker("w1", ttl_seconds=10, now=NOW)

    assert raw(-1, "NAMESPACE#vip") == {
        "shard_id": {"N": "-1"},
        "sortKey": {"S": "NAMESPACE#vip"},
        "row_type": {"S": "NAMESPACE"},
        "num_shards": {"N": "3"},
        "first_shard": {"N": str(MAX_SHARED_SHARDS)},
        "is_dedicated": {"BOOL": True},
        "is_internal": {"BOOL": False},
        "created_at": {"S": "2026-12-20T15:30:00.000Z"},
        "namespace_revision": {"N": "1"},
        "tenant_id": {"S": "acme"},
    }
    assert raw(-1, "TENANT#acme\0NAMESPACE#vip") is not None
    assert raw(-1, "INTERNAL#calls@acme")["is_internal"] == {"BOOL": True}
    assert raw(-1, "TENANT#acme\0NAMESPACE#calls@acme") is None
    assert raw(-1, "WORKER#w1")["expires_at"] == {"N": str(int(NOW.timestamp()) + 10)}


def test_an_api_key_is_kept_without_its_secret(store: Store, raw: Any) -> None:
    secret = new_secret(b"s" * SECRET_BYTES)
    key = ApiKey(key_id="k1", tenant_id="acme", role=Role.ADMIN, secret_hash=hash_of(secret), created_at=NOW)

    assert store.catalogue.create_api_key(key)

    kept = raw(-1, "APIKEY#k1")
    assert set(raw(-1, "TENANT#acme\0APIKEY#k1")) == {"shard_id", "sortKey", "row_type"}
    assert secret not in repr(kept)
    assert bytes(kept["key_secret_hash"]["B"]) == hash_of(secret)
    assert store.catalogue.delete_api_key("acme", "k1")
    assert raw(-1, "APIKEY#k1") is None
    assert raw(-1, "TENANT#acme\0APIKEY#k1") is None


# -- broken items ---------------------------------------------------------------------------------------------


@pytest.fixture
def breaks(ministack_client: Any, timers_table: str) -> Any:
    """Writes an attribute behind the store's back."""

    def write(timer: Timer, name: str, value: dict[str, Any]) -> None:
        ministack_client.update_item(
            TableName=timers_table,
            Key=LAYOUTS[TIMER].key_of((timer.shard_id, timer.namespace, timer.timer_id)),
            UpdateExpression=f"SET {name} = :value",
            ExpressionAttributeValues={":value": value},
        )

    return write


BROKEN = [
    ("timer_revision", {"S": "1"}),
    ("timer_revision", {"N": "1.5"}),
    ("timer_created_at", {"S": "yesterday"}),
    ("timer_firing_id", {"B": b"\xff"}),
    ("timer_tags", {"S": "x"}),
]


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_any_broken_item_is_put_aside_and_can_be_replaced(
    store: Store, single: Namespace, breaks: Any, name: str, value: dict[str, Any]
) -> None:
    bad, good = create(store, make_timer(single, "bad"), make_timer(single, "good"))
    breaks(bad, name, value)

    page = store.timers.due(0, until=NOW, limit=9)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert page.timers == [good]
    assert store.timers.due(0, until=NOW, limit=9).unreadable == ()
    failure = stored(store, single, "bad").failure
    assert failure is not None
    assert failure.reason is FailureReason.UNREADABLE
    replace_and_read(store, single)


@pytest.mark.parametrize(("name", "value"), BROKEN)
def test_a_broken_item_can_be_replaced_before_it_is_found(
    store: Store, single: Namespace, breaks: Any, name: str, value: dict[str, Any]
) -> None:
    (bad,) = create(store, make_timer(single, "bad"))
    breaks(bad, name, value)

    replace_and_read(store, single)


def replace_and_read(store: Store, namespace: Namespace) -> None:
    (result,) = store.timers.put([make_timer(namespace, "bad")], mode=PutMode.REPLACE, now=NOW)
    assert result.status is PutStatus.REPLACED
    assert result.timer is not None
    assert stored(store, namespace, "bad") == result.timer
    assert result.timer in due(store, namespace)


@pytest.mark.parametrize(("sort_key", "damage"), [("TIMER#odd", {}), ("odd", {"timer_revision": {"N": "7"}})])
def test_an_item_under_a_key_of_no_timer_is_put_aside(
    store: Store,
    single: Namespace,
    ministack_client: Any,
    timers_table: str,
    raw: Any,
    sort_key: str,
    damage: dict[str, Any],
) -> None:
    (good,) = create(store, make_timer(single))
    bad = {**raw(0, "TIMER#single#t1"), **timer_item_key(0, sort_key), **damage}
    ministack_client.put_item(TableName=timers_table, Item=bad)

    page = store.timers.due(0, until=NOW, limit=9)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert len(page.unreadable) == 1
    assert "timer_execute_at" not in raw(0, sort_key)
    after = store.timers.due(0, until=NOW, limit=9)
    assert (after.timers, after.unreadable) == ([good], ())


def test_an_index_key_that_is_no_time_is_put_aside_and_hides_no_later_one(
    store: Store, single: Namespace, breaks: Any
) -> None:
    (bad,) = create(store, make_timer(single, "bad"))
    breaks(bad, "timer_execute_at", {"S": "someday"})  # sorts after every time

    page = store.timers.due(0, until=NOW, limit=9)
    assert (page.timers, page.next_attempt_at) == ([], None)
    store.timers.quarantine(page.unreadable, now=NOW, expires_at=NOW + RETENTION)

    assert store.timers.due(0, until=NOW, limit=9).unreadable == ()


def test_a_correlation_has_no_place_at_the_start_of_a_shard(store: Store, single: Namespace) -> None:
    with pytest.raises(InvalidCursor):
        store.timers.find_by_correlation(single, "c", cursor='[0,""]', limit=3, now=NOW)


@pytest.mark.parametrize("cursor", ["", "x", "[]", "[1]", "[true,false]"])
def test_a_cursor_of_something_else_is_refused(store: Store, single: Namespace, cursor: str) -> None:
    with pytest.raises(InvalidCursor):
        store.timers.list(single, TimerFilter(), cursor=cursor, limit=3, now=NOW)
    with pytest.raises(InvalidCursor):
        store.timers.find_by_correlation(single, "c", cursor=cursor, limit=3, now=NOW)
