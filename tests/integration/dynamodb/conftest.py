from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.items import Item
from duetime.stores.core.store import Store
from tests.support.capacity import CapacityMeter, counted_client
from tests.support.clock import NOW
from tests.support.dynamodb import dynamodb_store
from tests.support.dynamodb_proxy import DynamoDbProxy, running_proxy
from tests.support.dynamodb_service import DocumentedService


@pytest.fixture
def store(ministack_client: Any, timers_table: str) -> Store:
    return dynamodb_store(ministack_client, timers_table)


@pytest.fixture
def single(store: Store) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


@pytest.fixture
def orders(store: Store) -> Namespace:
    """A namespace with several shards."""
    return store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)[0]


@pytest.fixture
def proxy(ministack_url: str) -> Iterator[DynamoDbProxy]:
    with running_proxy(ministack_url) as proxy:
        yield proxy


@pytest.fixture
def service(proxy: DynamoDbProxy, ministack_client: Any) -> DocumentedService:
    """What the emulator leaves out, in front of it."""
    proxy.intercept = service = DocumentedService(ministack_client)
    return service


@pytest.fixture
def undelayed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver retries without waiting."""
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda self, context: 0)


@pytest.fixture
def proxied_client(proxy: DynamoDbProxy, undelayed: None) -> Iterator[Any]:
    # A batch becomes many requests, for which a busy machine may take longer than 3 s: a repeat would be counted.
    client = make_client(endpoint_url=proxy.url, read_timeout_seconds=60)
    yield client
    client.close()


@pytest.fixture
def proxied(proxied_client: Any, timers_table: str) -> Store:
    """A store whose requests go through the proxy, with the driver's retries but none of its waiting."""
    return dynamodb_store(proxied_client, timers_table)


@pytest.fixture
def items(ministack_client: Any, timers_table: str) -> Callable[[int, str], list[Item]]:
    """Items of a shard whose sort keys begin with a text."""

    def read(shard_id: int, prefix: str) -> list[Item]:
        found: list[Item] = ministack_client.query(
            TableName=timers_table,
            KeyConditionExpression="shard_id = :shard",
            ExpressionAttributeValues={":shard": {"N": str(shard_id)}},
            ConsistentRead=True,
        )["Items"]
        return [item for item in found if item["sortKey"]["S"].startswith(prefix)]

    return read


@pytest.fixture
def client(ministack_url: str) -> Iterator[Any]:
    with counted_client(ministack_url) as client:
        yield client


@pytest.fixture
def meter(client: Any, single: Namespace) -> CapacityMeter:
    """Begins to count when there is a namespace."""
    return CapacityMeter(client)


@pytest.fixture
def singly(client: Any, timers_table: str) -> Store:
    """Single writes: their units are counted right."""
    return dynamodb_store(client, timers_table, batch_statements=False)
