from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from duetime.domain.namespaces import Namespace
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.dynamodb.store import DynamoDbStore
from tests.support.clock import NOW
from tests.support.dynamodb_proxy import DynamoDbProxy, running_proxy
from tests.support.dynamodb_service import DocumentedService


@pytest.fixture
def store(ministack_client: Any, timers_table: str) -> DynamoDbStore:
    return DynamoDbStore(ministack_client, timers_table)


@pytest.fixture
def single(store: DynamoDbStore) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


@pytest.fixture
def orders(store: DynamoDbStore) -> Namespace:
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
def proxied(proxy: DynamoDbProxy, timers_table: str, undelayed: None) -> Iterator[DynamoDbStore]:
    """A store whose requests go through the proxy, with the driver's retries but none of its waiting."""
    client = make_client(endpoint_url=proxy.url)
    yield DynamoDbStore(client, timers_table)
    client.close()
