"""The DynamoDB store (docs/stores.md, decision 0020)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError

from duetime.domain.errors import InvalidSettings
from duetime.stores.dynamodb.api_keys import ApiKeys
from duetime.stores.dynamodb.catalogue import CATALOGUE_SHARD, Catalogue
from duetime.stores.dynamodb.client import make_client
from duetime.stores.dynamodb.due import Due
from duetime.stores.dynamodb.items import item_key
from duetime.stores.dynamodb.leases import Leases
from duetime.stores.dynamodb.listing import Listing
from duetime.stores.dynamodb.payloads import Payloads
from duetime.stores.dynamodb.schema import create_table
from duetime.stores.dynamodb.table import Table
from duetime.stores.dynamodb.timers import Timers
from duetime.stores.dynamodb.url import parse_dynamodb_url

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbStore(Catalogue, ApiKeys, Timers, Listing, Leases, Due):
    """``stores.port.Store`` over one table. Thread-safe; ``batch_statements`` as in ``Table``."""

    def __init__(self, client: DynamoDBClient, table_name: str, *, batch_statements: bool = True) -> None:
        self._table = Table(client, table_name, batch_statements=batch_statements)
        self._payloads = Payloads(self._table)

    def initialise(self) -> None:
        create_table(self._table.client, self._table.name)
        self.point_to_namespaces()

    def check(self) -> None:
        self._table.get(item_key(CATALOGUE_SHARD, "COUNTER#SHARDS"), consistent=False)

    def close(self) -> None:
        self._table.client.close()


def open_dynamodb_store(url: str) -> DynamoDbStore:
    """The store at ``dynamodb://<table>?...`` (url.py). Contacts nothing yet; raises ``InvalidSettings``."""
    parsed = parse_dynamodb_url(url)
    try:
        client = make_client(endpoint_url=parsed.endpoint_url, region=parsed.region)
    except (BotoCoreError, ValueError) as error:  # no region, a malformed endpoint, an unknown profile
        raise InvalidSettings(f"the DynamoDB store cannot be used: {error}") from error
    return DynamoDbStore(client, parsed.table_name, batch_statements=parsed.batch_statements)
