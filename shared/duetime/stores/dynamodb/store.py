"""The DynamoDB store (docs/stores/dynamodb.md, decision 0018)."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError

from duetime.domain.errors import InvalidSettings, StoreEmpty, StoreNotReady
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.schema import create_table
from duetime.stores.backends.dynamodb.url import default_calls_table_name, parse_dynamodb_url
from duetime.stores.dynamodb.api_keys import ApiKeys
from duetime.stores.dynamodb.calls import keys as call_keys
from duetime.stores.dynamodb.catalogue import CATALOGUE_SHARD, Catalogue
from duetime.stores.dynamodb.due import Due
from duetime.stores.dynamodb.idempotency import IdempotencyRecords
from duetime.stores.dynamodb.items import item_key
from duetime.stores.dynamodb.leases import Leases
from duetime.stores.dynamodb.listing import Listing
from duetime.stores.dynamodb.payloads import Payloads
from duetime.stores.dynamodb.table import Table
from duetime.stores.dynamodb.timers import Timers
from duetime.stores.family_parts import (
    FamilyCalls,
    FamilyCatalogue,
    FamilyLeases,
    FamilyOutbox,
    FamilyTimers,
    FamilyTransfer,
)
from duetime.stores.time_source import StoreTime, TimeSource

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

    from duetime.stores.dynamodb.calls.store import DynamoDbCallStore


class DynamoDbStore(Catalogue, ApiKeys, IdempotencyRecords, Timers, Listing, Leases, Due):
    """``stores.port.store.Store`` over one table, and ``calls`` over another beside it. Thread-safe.

    ``calls_table_name`` None: as in ``url.calls_table_name``. ``batch_statements`` as in ``Table``; ``max_parallel``
    and ``event_retention`` as in ``DynamoDbCallStore``, None: its default. ``time_source`` says what ``time``
    tells: the service's time or the caller's.
    """

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        *,
        calls_table_name: str | None = None,
        batch_statements: bool = True,
        max_parallel: int | None = None,
        event_retention: timedelta | None = None,
        time_source: TimeSource = TimeSource.DATABASE,
    ) -> None:
        self._time_source = time_source
        self._table = Table(client, table_name, batch_statements=batch_statements)
        self._payloads = Payloads(self._table)
        self._calls_table = Table(
            client,
            calls_table_name or default_calls_table_name(table_name),
            key_names=call_keys.KEY_NAMES,
            batch_statements=batch_statements,
        )
        self._max_parallel = max_parallel
        self._event_retention = event_retention
        self._call_store: DynamoDbCallStore | None = None
        self._calls_lock = threading.Lock()
        self.timers = FamilyTimers(self)
        self.leases = FamilyLeases(self)
        self.catalogue = FamilyCatalogue(self)

    @cached_property
    def calls(self) -> FamilyCalls:
        return FamilyCalls(self.call_store)

    @cached_property
    def outbox(self) -> FamilyOutbox:
        return FamilyOutbox(self.call_store)

    @cached_property
    def transfer(self) -> FamilyTransfer:
        return FamilyTransfer(self, self.call_store)

    @property
    def call_store(self) -> DynamoDbCallStore:
        """Made when it is first asked for: the timers API does without, and what is imported is cold start."""
        with self._calls_lock:
            if self._call_store is None:
                from duetime.stores.dynamodb.calls.store import (
                    DEFAULT_MAX_PARALLEL,
                    EVENT_RETENTION,
                    DynamoDbCallStore,
                )

                self._call_store = DynamoDbCallStore(
                    self._table,
                    self._calls_table,
                    max_parallel=self._max_parallel or DEFAULT_MAX_PARALLEL,
                    event_retention=self._event_retention or EVENT_RETENTION,
                )
            return self._call_store

    def time(self, *, now: datetime) -> StoreTime:
        at = self._table.service_time() if self._time_source is TimeSource.DATABASE else None
        return StoreTime(now, resolution_seconds=0.001) if at is None else StoreTime(at, resolution_seconds=1.0)

    def initialise(self) -> None:
        create_table(self._table.client, self._table.name)
        self.call_store.initialise()
        self.point_to_namespaces()

    def check(self) -> None:
        try:
            self._table.get(item_key(CATALOGUE_SHARD, "COUNTER#SHARDS"), consistent=False)
        except StoreEmpty as error:
            try:
                self.call_store.check()
            except StoreNotReady:
                raise error from None
            raise StoreNotReady("there is a DynamoDB table of service calls and none of timers") from None
        self.call_store.check()

    def close(self) -> None:
        if self._call_store is not None:
            self._call_store.close()
        self._table.client.close()


def open_dynamodb_store(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> DynamoDbStore:
    """The store at ``dynamodb://<table>?...`` (url.py). Contacts nothing yet; raises ``InvalidSettings``."""
    parsed = parse_dynamodb_url(url)
    try:
        client = make_client(endpoint_url=parsed.endpoint_url, region=parsed.region)
    except (BotoCoreError, ValueError) as error:  # no region, a malformed endpoint, an unknown profile
        raise InvalidSettings(f"the DynamoDB store cannot be used: {error}") from error
    return DynamoDbStore(
        client,
        parsed.table_name,
        calls_table_name=parsed.calls_table_name,
        batch_statements=parsed.batch_statements,
        event_retention=parsed.event_retention,
        time_source=time_source,
    )
