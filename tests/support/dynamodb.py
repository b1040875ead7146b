"""DynamoDB stores on emulators.

- ministack: over HTTP, in a process of its own, with a table for each test. Conditional writes race as they do on
  AWS, and PartiQL batches work: races and batch recording are proved here.
- dynoxide: the same, as another author read the documentation; on the server of ``DUETIME_TEST_DYNOXIDE_URL``
  (scripts/server.sh starts one), where there is one.
- moto: in this process. It locks nothing (under threads two conditional writes can win) and its PartiQL knows
  neither several SETs nor parameters in INSERT: single-threaded, with single conditional writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import uuid4

from moto import mock_aws

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.backend import insert
from duetime.stores.backends.dynamodb.backend import DynamoDbBackend
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.derived import TIME_TO_LIVE
from duetime.stores.backends.dynamodb.driver import DEFAULT_PARALLEL
from duetime.stores.backends.dynamodb.expansion import expanded
from duetime.stores.backends.dynamodb.items import Item
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.backends.dynamodb.url import default_calls_table_name, parse_dynamodb_url
from duetime.stores.core.store import Store
from duetime.stores.entities import EVENT, SERVICE_CALL, TIMER
from duetime.stores.entity import Entity, Row
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import Subject
from tests.support.cheap_moto import cheap_moto

REGION = "us-east-1"
_NEVER = {"N": "inf"}


def dynoxide_endpoint() -> str | None:
    url = os.environ.get("DUETIME_TEST_DYNOXIDE_URL")
    return parse_dynamodb_url(url).endpoint_url if url else None


def unique_table_name() -> str:
    return f"timers-{uuid4().hex}"


def item_of(entity: Entity, row: Row) -> Item:
    """The item of a new row."""
    (write, *_) = expanded(insert(entity, row), "", 0, lambda key: None)
    assert write.item is not None
    return write.item


def dynamodb_store(
    client: Any, table_name: str, *, time_source: TimeSource = TimeSource.CALLER, **options: Any
) -> Store:
    return Store(DynamoDbBackend(client, table_name, time_source=time_source, **options))


@lru_cache
def _moto_client() -> Any:
    # Made once: building a client takes longer than most tests. Every mock_aws() begins with an empty account.
    return make_client(region=REGION)


@contextmanager
def moto_subject() -> Iterator[Subject]:
    with mock_aws(), cheap_moto():
        yield _subject(_moto_client(), "timers", batch_statements=False, is_thread_safe=False)


@contextmanager
def served_subject(client: Any) -> Iterator[Subject]:
    """A store on tables of its own, removed at the end, on an emulator that is spoken to over HTTP. The client serves
    the whole session."""
    name = unique_table_name()
    try:
        yield _subject(client, name, batch_statements=True, is_thread_safe=True)
    finally:
        client.delete_table(TableName=name)
        client.delete_table(TableName=default_calls_table_name(name))


def _subject(client: Any, name: str, *, batch_statements: bool, is_thread_safe: bool) -> Subject:
    def open_again() -> Store:
        return dynamodb_store(
            client,
            name,
            batch_statements=batch_statements,
            max_parallel=DEFAULT_PARALLEL if is_thread_safe else 1,
            time_source=TimeSource.CALLER,
        )

    def corrupt(timer: Timer) -> None:
        client.update_item(
            TableName=name,
            Key=LAYOUTS[TIMER].key_of((timer.shard_id, timer.namespace, timer.timer_id)),
            UpdateExpression="SET timer_state = :state REMOVE timer_callback_url",
            ExpressionAttributeValues={":state": {"S": "nonsense"}},
        )

    def corrupt_call(call: ServiceCall) -> None:
        client.update_item(
            TableName=default_calls_table_name(name),
            Key=LAYOUTS[SERVICE_CALL].key_of((call.tenant_id, call.call_id)),
            UpdateExpression="SET #request = :spec REMOVE digest",
            ExpressionAttributeNames={"#request": "request"},
            ExpressionAttributeValues={":spec": {"S": "nonsense"}},
        )

    def expire_events(until: datetime) -> None:
        calls_table = default_calls_table_name(name)
        for page in client.get_paginator("scan").paginate(TableName=calls_table, ConsistentRead=True):
            for item in page["Items"]:
                end = float(item.get(TIME_TO_LIVE, _NEVER)["N"])
                if item["row_type"]["S"] == "EVENT" and end <= until.timestamp():
                    key = {each: item[each] for each in LAYOUTS[EVENT].key_names}
                    client.delete_item(TableName=calls_table, Key=key)

    store = open_again()
    store.initialise()
    return Subject(
        store=store,
        corrupt=corrupt,
        corrupt_call=corrupt_call,
        reopen=open_again,
        is_thread_safe=is_thread_safe,
        checks_leases=False,
        expires_by_itself=True,
        events_expire_by_themselves=True,
        expire_events=expire_events,
    )
