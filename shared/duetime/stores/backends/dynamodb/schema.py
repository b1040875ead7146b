"""The tables: created by ``duetime init``, or on AWS by template.yaml, which must say the same."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError, WaiterError

from duetime.domain.errors import StoreNotReady, StoreUnavailable
from duetime.stores.backends.dynamodb.derived import CALL_INDEXES, OUTBOX_NAMES, TIME_TO_LIVE
from duetime.stores.backends.dynamodb.errors import translate

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

_log = logging.getLogger(__name__)

DUE_INDEX = "timer_execute_at-index"
CORRELATION_INDEX = "timer_correlation_id-index"
OUTBOX_INDEX = "outbox_key-index"
Keys = tuple[str, str]
"""The names of a hash key and a range key."""
_CALL_INDEXES = {
    **{index.name: index.keys for index in CALL_INDEXES},
    OUTBOX_INDEX: OUTBOX_NAMES,
}
"""Each is sparse, and projects nothing but keys."""
_NUMBERS = frozenset({"outbox_partition", "shard_id"})
_WAIT_SECONDS = 1
_MAX_WAITS = 60
_RECOVERY_TRIES = 10


Define = Callable[[str], dict[str, Any]]
"""From a table's name to the parameters of CreateTable."""


def table_definition(name: str) -> dict[str, Any]:
    """Parameters of CreateTable for the table of timers."""
    keys, due_keys = ("shard_id", "sortKey"), ("shard_id", "timer_execute_at")
    correlation = {CORRELATION_INDEX: ("timer_correlation_id", "sortKey")}
    return {
        **_definition(name, keys, correlation, (*keys, *due_keys)),
        "LocalSecondaryIndexes": [_index(DUE_INDEX, due_keys, "ALL")],
    }


def calls_table_definition(name: str) -> dict[str, Any]:
    """Parameters of CreateTable for the table of service calls."""
    keys = ("tenant_id", "sort_key")
    return {
        **_definition(name, keys, _CALL_INDEXES, keys),
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }


def _definition(name: str, keys: Keys, indexes: Mapping[str, Keys], others: Iterable[str]) -> dict[str, Any]:
    """``others``: what stands in keys beside those of the global ``indexes``."""
    attributes = dict.fromkeys([*others, *(each for pair in indexes.values() for each in pair)])
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": each, "AttributeType": "N" if each in _NUMBERS else "S"} for each in attributes
        ],
        "KeySchema": _key_schema(keys),
        "GlobalSecondaryIndexes": [_index(index, pair, "KEYS_ONLY") for index, pair in indexes.items()],
    }


def _index(name: str, keys: Keys, projection: str) -> dict[str, Any]:
    return {"IndexName": name, "KeySchema": _key_schema(keys), "Projection": {"ProjectionType": projection}}


def _key_schema(keys: Keys) -> list[dict[str, str]]:
    return [{"AttributeName": name, "KeyType": kind} for name, kind in zip(keys, ("HASH", "RANGE"), strict=True)]


def create_table(client: DynamoDBClient, name: str, define: Define = table_definition) -> None:
    """Make the table unless it exists, with TTL and point-in-time recovery. Idempotent.

    Raises ``StoreNotReady`` when a table of this name has other keys or lacks an index.
    """
    try:
        _create(client, name, define)
        _check_shape(client, name, define)
        _enable_time_to_live(client, name)
        _enable_recovery(client, name)
    except WaiterError as error:
        raise StoreUnavailable("the DynamoDB table did not become active in time") from error
    except (ClientError, BotoCoreError) as error:
        raise translate(error) from error


def _create(client: DynamoDBClient, name: str, define: Define) -> None:
    try:
        client.create_table(**define(name))
        _log.info("table created", extra={"action": "store.table_created", "table": name})
    except client.exceptions.ResourceInUseException:
        pass  # made before, or by another process just now
    client.get_waiter("table_exists").wait(
        TableName=name, WaiterConfig={"Delay": _WAIT_SECONDS, "MaxAttempts": _MAX_WAITS}
    )


def _check_shape(client: DynamoDBClient, name: str, define: Define) -> None:
    found: Any = client.describe_table(TableName=name)["Table"]
    wanted = define(name)
    same_keys = _as_pairs(found["KeySchema"]) == _as_pairs(wanted["KeySchema"])
    missing = _indexes(wanted) - _indexes(found)
    if not same_keys or missing:
        raise StoreNotReady(
            f"table {name!r} exists with another shape; missing indexes: {', '.join(sorted(i[0] for i in missing))}"
        )


def _indexes(table: dict[str, Any]) -> set[tuple[str, frozenset[tuple[str, str]], str]]:
    return {
        (index["IndexName"], _as_pairs(index["KeySchema"]), index["Projection"]["ProjectionType"])
        for kind in ("LocalSecondaryIndexes", "GlobalSecondaryIndexes")
        for index in table.get(kind, [])
    }


def _as_pairs(key_schema: list[dict[str, str]]) -> frozenset[tuple[str, str]]:
    return frozenset((key["AttributeName"], key["KeyType"]) for key in key_schema)


def _enable_time_to_live(client: DynamoDBClient, name: str) -> None:
    if _is_time_to_live_on(client, name):
        return
    try:
        client.update_time_to_live(
            TableName=name,
            TimeToLiveSpecification={"Enabled": True, "AttributeName": TIME_TO_LIVE},
        )
    except ClientError:
        if not _is_time_to_live_on(client, name):  # by another process just now: then it is refused
            raise


def _is_time_to_live_on(client: DynamoDBClient, name: str) -> bool:
    found = client.describe_time_to_live(TableName=name)["TimeToLiveDescription"]
    return found.get("TimeToLiveStatus") in ("ENABLED", "ENABLING")


def _enable_recovery(client: DynamoDBClient, name: str) -> None:
    """Point-in-time recovery, where there is such a thing. A table that was just made may not take it at once."""
    code = ""
    for _ in range(_RECOVERY_TRIES):
        try:
            client.update_continuous_backups(
                TableName=name, PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": True}
            )
        except ClientError as error:
            code = error.response["Error"]["Code"]
            if code != "ContinuousBackupsUnavailableException":
                break
            time.sleep(_WAIT_SECONDS)
        else:
            return
    _log.warning(
        "point-in-time recovery is off", extra={"action": "store.recovery_unavailable", "table": name, "code": code}
    )
