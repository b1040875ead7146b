"""Service calls as they lie in the table: what is stored, what is left, what is not written again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.errors import CallUnreadable, StoreNotReady
from duetime.domain.executions import LoggedMessage
from duetime.domain.service_calls import MAX_BODY_BYTES, CallStatus, ServiceCall, request_spec
from duetime.domain.times import format_instant
from duetime.stores.backends.dynamodb.events import EVENT_RETENTION
from duetime.stores.backends.dynamodb.items import Item
from duetime.stores.backends.dynamodb.layouts import call_item_key, event_sort_key
from duetime.stores.backends.dynamodb.url import default_calls_table_name
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.port.calls import ApplyStatus, CallFilter, CallOrder, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import seconds
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import Body, DynamoDbProxy, Fault, Forward

LARGE = '"' + "x" * (MAX_BODY_BYTES - 2) + '"'
Rows = Callable[[], dict[str, Item]]


@pytest.fixture
def calls(store: Store) -> CallStore:
    return store.calls


@pytest.fixture
def outbox(store: Store) -> Outbox:
    return store.outbox


@pytest.fixture
def rows(ministack_client: Any, timers_table: str) -> Rows:
    """All items of the tenant by sort key."""

    def read() -> dict[str, Item]:
        pages = ministack_client.get_paginator("query").paginate(
            TableName=default_calls_table_name(timers_table),
            KeyConditionExpression="tenant_id = :tenant",
            ExpressionAttributeValues={":tenant": {"S": make.TENANT}},
            ConsistentRead=True,
        )
        return {item["sort_key"]["S"]: item for page in pages for item in page["Items"]}

    return read


@pytest.fixture
def remove(ministack_client: Any, timers_table: str) -> Callable[[Item], None]:
    """Removes an item behind the store's back, as TTL does."""

    def delete(key: Item) -> None:
        ministack_client.delete_item(TableName=default_calls_table_name(timers_table), Key=key)

    return delete


def kinds(rows: dict[str, Item]) -> Counter[str]:
    return Counter(sort_key.partition("#")[0] for sort_key in rows)


def failing_often(calls: CallStore, attempts: int) -> ServiceCall:
    """A finished call with that many executions, and a body that is an item of its own."""
    policy, body = f'{{"maxAttempts":{attempts},"initialInterval":"1s","maxInterval":"1s"}}', '"' + "x" * 2000 + '"'
    call = steps.submit(calls, retry_policy_json=policy, body_json=body, idempotency_key="k", tags=("a",))
    for attempt in range(attempts):
        call = steps.run(calls, call, is_ok=False, now=NOW + seconds(attempt))
    assert call.status is CallStatus.FAILED
    return call


# -- the table ----------------------------------------------------------------------------------------------------


def test_initialise_adds_the_table_to_a_deployment_without_it(ministack_client: Any, timers_table: str) -> None:
    calls_table = default_calls_table_name(timers_table)
    ministack_client.delete_table(TableName=calls_table)
    store = dynamodb_store(ministack_client, timers_table)
    with pytest.raises(StoreNotReady, match=f"'{calls_table}' of service calls"):
        store.check()

    store.initialise()

    store.check()
    table = ministack_client.describe_table(TableName=calls_table)["Table"]
    assert table["StreamSpecification"] == {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"}
    time_to_live = ministack_client.describe_time_to_live(TableName=calls_table)["TimeToLiveDescription"]
    assert time_to_live == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}


def test_the_table_may_have_another_name(ministack_client: Any, timers_table: str) -> None:
    name = f"{timers_table}-other"
    store = dynamodb_store(ministack_client, timers_table, calls_table_name=name)
    store.initialise()

    call = steps.submit(store.calls)

    assert ministack_client.scan(TableName=name)["Count"] == 2
    assert steps.got(store.calls, call) == call
    ministack_client.delete_table(TableName=name)


# -- items --------------------------------------------------------------------------------------------------------


def test_a_life_leaves_what_it_should(store: Store, calls: CallStore, rows: Rows) -> None:
    call = steps.submit(calls, tags=("a", "b"), idempotency_key="k")
    assert kinds(rows()) == {"CALL": 1, "KEY": 1, "TAG": 2, "EVENT": 1}
    done = steps.run(calls, call)
    assert kinds(rows()) == {"CALL": 1, "KEY": 1, "TAG": 2, "EVENT": 3, "EXEC": 1}
    item = rows()[f"CALL#{call.call_id}"]
    assert "due_key" not in item
    assert item["status_key"]["S"] == "acme#Succeeded"

    assert calls.delete(make.TENANT, call.call_id, now=NOW) is DeleteStatus.DELETED

    assert kinds(rows()) == {"EVENT": 3}
    assert store.timers.get(make.namespace_of(), call.call_id, now=NOW) is None
    assert done.shard_id == call.shard_id


def test_a_finished_call_has_no_end_for_ttl_which_would_tell_nobody(
    store: Store, calls: CallStore, rows: Rows, items: Any
) -> None:
    call = steps.run(calls, steps.submit(calls))
    (timer,) = items(call.shard_id, "TIMER#")

    assert "expires_at" not in timer
    assert "timer_execute_at" not in timer
    item = rows()[f"CALL#{call.call_id}"]
    assert "expires_at" not in item
    assert item["outbox_key"] == {"S": format_instant(NOW + make.RETENTION)}

    assert calls.prune(now=NOW + make.RETENTION, events_published_before=NOW, limit=9) == 1

    assert items(call.shard_id, "TIMER#") == []
    assert kinds(rows()).keys() == {"EVENT"}


def test_a_large_body_is_written_once(calls: CallStore, rows: Rows) -> None:
    call = steps.submit(calls, body_json=LARGE, due_at=NOW + seconds(60))
    stored = rows()
    assert len(str(stored[f"CALL#{call.call_id}"])) < 4000
    assert stored[f"BODY#{call.call_id}"]["request_body"]["S"] == LARGE

    starred = steps.applied(calls, make.amended(call, starred=True))
    assert rows()[f"BODY#{call.call_id}"] == stored[f"BODY#{call.call_id}"]
    assert steps.got(calls, call) == starred

    small = request_spec(method=call.request.method, url="http://x.test/", headers_json=None, body_json="1")
    changed = steps.applied(calls, make.amended(starred, request=small))
    assert kinds(rows())["BODY"] == 0
    assert steps.got(calls, call) == changed

    again = steps.applied(calls, make.amended(changed, request=call.request))
    assert steps.got(calls, call) == again
    calls.delete(make.TENANT, call.call_id, now=NOW)
    assert kinds(rows()) == {"EVENT": 4}


def test_a_call_and_its_body_belong_together(calls: CallStore, proxy: DynamoDbProxy, proxied: Store) -> None:
    call = steps.submit(calls, body_json='"' + "a" * 5000 + '"', due_at=NOW + seconds(60))
    other = request_spec(
        method=call.request.method, url="http://x.test/", headers_json=None, body_json='"' + "b" * 5000 + '"'
    )
    changed: list[ServiceCall] = []

    def change_in_between(operation: str, body: Body, forward: Forward) -> Body:
        if len(proxy.operations) == 2:  # the call has been read, its body has not
            changed.append(steps.applied(calls, make.amended(call, request=other)))
        return forward(body)

    proxy.intercept = change_in_between

    assert steps.got(proxied.calls, call) == changed[0]
    assert proxy.operations == ["GetItem"] * 4


def test_a_body_that_is_lost_makes_the_call_unreadable(calls: CallStore, remove: Callable[[Item], None]) -> None:
    call = steps.submit(calls, body_json=LARGE)
    remove(call_item_key(make.TENANT, f"BODY#{call.call_id}"))

    with pytest.raises(CallUnreadable):
        steps.got(calls, call)
    assert calls.delete(make.TENANT, call.call_id, now=NOW) is DeleteStatus.DELETED


def test_long_messages_are_read_whole(calls: CallStore) -> None:
    sent = LoggedMessage(body="ü" * 65_536, body_bytes=131_072)
    answer = LoggedMessage(headers=(("a", "b"),), body="y" * 65_536, body_bytes=10**7, is_truncated=True)
    begun = make.begun(steps.submit(calls))
    execution = replace(begun.executions[0], request=sent)
    running = steps.applied(calls, replace(begun, executions=(execution,)))
    ended = make.concluded(running, execution)
    ended = replace(ended, executions=(replace(ended.executions[0], response=answer),))
    steps.applied(calls, ended)

    assert calls.get_execution(make.TENANT, running.call_id, execution.execution_id) == ended.executions[0]
    assert calls.list_executions(make.TENANT, running.call_id, cursor=None, limit=5).items == [ended.executions[0]]


# -- removal ------------------------------------------------------------------------------------------------------


def test_a_call_with_more_executions_than_a_transaction_holds_is_removed(calls: CallStore, rows: Rows) -> None:
    call = failing_often(calls, 101)
    assert kinds(rows())["EXEC"] == 101

    assert calls.delete(make.TENANT, call.call_id, now=NOW) is DeleteStatus.DELETED

    assert kinds(rows()).keys() == {"EVENT"}
    assert calls.delete(make.TENANT, call.call_id, now=NOW) is DeleteStatus.NOT_FOUND


def test_a_removal_that_was_cut_short_reads_as_done_and_is_completed(
    calls: CallStore, rows: Rows, proxy: DynamoDbProxy, proxied: Store
) -> None:
    call = failing_often(calls, 101)

    def refuse_batches(operation: str, body: Body, forward: Forward) -> Body:
        if operation == "DeleteItem":
            raise Fault(400, "ThrottlingException")
        return forward(body)

    proxy.intercept = refuse_batches
    assert proxied.calls.delete(make.TENANT, call.call_id, now=NOW) is DeleteStatus.DELETED

    assert steps.got(calls, call) is None
    assert kinds(rows())["EXEC"] > 20
    for call_filter in (CallFilter(), CallFilter(tags=("a",)), CallFilter(status=CallStatus.FAILED)):
        assert calls.list(make.TENANT, call_filter, cursor=None, limit=5, now=NOW).items == []
    assert calls.list_events(make.TENANT, call.call_id, after=0, limit=5) == []
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) is None
    assert steps.apply(calls, make.amended(call, starred=True)) == [ApplyStatus.SUPERSEDED]

    assert calls.prune(now=NOW, events_published_before=NOW, limit=5) == 0
    assert kinds(rows()).keys() == {"EVENT"}


# -- the outbox ---------------------------------------------------------------------------------------------------


def test_published_events_leave_the_index_and_get_an_end(calls: CallStore, outbox: Outbox, rows: Rows) -> None:
    call = steps.submit(calls)
    first, second = outbox.unpublished(limit=10)
    key = event_sort_key(call.call_id, 2)

    outbox.mark_published([first], now=NOW)
    assert "outbox_key" in rows()[key]
    outbox.mark_published([second], now=NOW + seconds(1))

    item = rows()[key]
    assert not {"outbox_key", "outbox_partition", "published"} & item.keys()
    assert int(item["expires_at"]["N"]) == (NOW + seconds(1) + EVENT_RETENTION).timestamp()
    outbox.mark_published([first, second], now=NOW + seconds(9))
    assert rows()[key] == item


def test_the_index_is_read_past_what_is_to_be_skipped(
    calls: CallStore, outbox: Outbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.stores.core.outbox._CHUNK", 3)
    blocked = [steps.run(calls, steps.submit(calls)) for _ in range(40)]
    free = steps.submit(calls, now=NOW + seconds(9))
    skip = frozenset(map(steps.ref, blocked))

    assert {stored.event.aggregate_id for stored in outbox.unpublished(limit=2, skip=skip)} == {free.call_id}
    assert len(outbox.unpublished(limit=500)) == 40 * 7 + 2


def test_an_index_that_lags_opens_no_gap(calls: CallStore, proxy: DynamoDbProxy, proxied: Store) -> None:
    call = steps.begin(calls, steps.submit(calls))

    def hide_the_first(operation: str, body: Body, forward: Forward) -> Body:
        answer = forward(body)
        if body.get("IndexName") == "outbox_key-index" and answer["Items"]:
            answer["Items"] = answer["Items"][1:]
        return answer

    proxy.intercept = hide_the_first
    found = proxied.outbox.unpublished(limit=10)

    assert [stored.event.sequence for stored in found] == list(range(1, call.event_count + 1))


def test_an_index_that_lags_shows_nothing_twice(calls: CallStore, proxy: DynamoDbProxy, proxied: Store) -> None:
    steps.submit(calls)
    before: dict[str, Body] = {}

    def as_it_was(operation: str, body: Body, forward: Forward) -> Body:
        if body.get("IndexName") != "outbox_key-index":
            return forward(body)
        partition = str(body["ExpressionAttributeValues"])
        if partition not in before:
            before[partition] = forward(body)
        return before[partition]

    proxy.intercept = as_it_was
    proxied.outbox.mark_published(proxied.outbox.unpublished(limit=10), now=NOW)

    assert len({item["sort_key"]["S"] for answer in before.values() for item in answer["Items"]}) == 1
    assert proxied.outbox.unpublished(limit=10) == []


# -- requests -----------------------------------------------------------------------------------------------------


def test_nothing_is_ever_scanned(proxy: DynamoDbProxy, proxied: Store) -> None:
    calls = proxied.calls
    call = steps.run(calls, steps.submit(calls, tags=("a",), idempotency_key="k"))
    for call_filter in (
        CallFilter(),
        CallFilter(status=CallStatus.SCHEDULED),
        CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
        CallFilter(tags=("a", "b"), starred=False),
        CallFilter(starred=True),
        CallFilter(starred=False),
        CallFilter(name_prefix=""),
        CallFilter(correlation_id="corr-1"),
        CallFilter(due_to=NOW),
    ):
        calls.list(make.TENANT, call_filter, cursor=None, limit=5, now=NOW)
    calls.list_executions(make.TENANT, call.call_id, cursor=None, limit=5)
    proxied.outbox.mark_published(proxied.outbox.unpublished(limit=100), now=NOW)
    calls.find_by_idempotency_key(make.TENANT, "k", now=NOW)
    calls.delete(make.TENANT, call.call_id, now=NOW)

    assert "Scan" not in proxy.operations
    assert proxy.operations.count("Query") > 10
