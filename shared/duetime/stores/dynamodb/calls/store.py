"""``stores.family_parts.FamilyCallStore`` over two tables (docs/stores/dynamodb.md, decision 0018)."""

from __future__ import annotations

from datetime import timedelta

from duetime.domain.errors import StoreNotReady
from duetime.stores.backends.dynamodb.schema import calls_table_definition, create_table
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.applying import Applying
from duetime.stores.dynamodb.calls.deleting import Deleting
from duetime.stores.dynamodb.calls.listing import Listing
from duetime.stores.dynamodb.calls.loading import Loading
from duetime.stores.dynamodb.table import Table
from duetime.stores.side_by_side import Workers

DEFAULT_MAX_PARALLEL = 8
EVENT_RETENTION = timedelta(days=7)
"""How long published events stay readable."""


class DynamoDbCallStore(Applying, Deleting, Listing, Loading):
    """Thread-safe. ``max_parallel`` requests of one operation at once, and of all operations together."""

    def __init__(
        self,
        timers: Table,
        calls: Table,
        *,
        max_parallel: int = DEFAULT_MAX_PARALLEL,
        event_retention: timedelta = EVENT_RETENTION,
    ) -> None:
        self._timers = timers
        self._calls = calls
        self._workers = Workers(max_parallel)
        self._event_retention = event_retention

    def initialise(self) -> None:
        create_table(self._calls.client, self._calls.name, calls_table_definition)

    def check(self) -> None:
        try:
            self._calls.get(keys.key("@", "CHECK"), consistent=False)
        except StoreNotReady:
            raise StoreNotReady(
                f"the DynamoDB table {self._calls.name!r} of service calls does not exist; `duetime init` creates it"
            ) from None

    def close(self) -> None:
        self._workers.close()
