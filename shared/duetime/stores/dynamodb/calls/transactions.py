"""TransactWriteItems: what refused a transaction is a result, what was in its way is waited for."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import uuid4

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.backends.dynamodb.errors import (
    RETRY_AFTER_SECONDS,
    TRANSIENT_STATEMENT_CODES,
    cancelled_for_good,
    translate,
)
from duetime.stores.dynamodb.changes import Change, Item
from duetime.stores.dynamodb.table import back_offs

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

MAX_WRITES = 100
_TRIES = 8

Write: TypeAlias = Any
"""A member of TransactItems: ``{"Put": {"TableName": ..., "Item": ...}}``."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Conditions of a transaction did not hold, so nothing of it was written.

    ``met``: by position of the writes whose conditions failed, the stored item, None when there is none.
    ``is_repeated``: the driver sent the request more than once, so what was met may be this transaction's work.
    """

    met: dict[int, Item | None]
    is_repeated: bool


def put(table_name: str, item: Item, condition: str | None = None, values: Item | None = None) -> Write:
    return {"Put": {"TableName": table_name, "Item": item, **_conditions(condition, values)}}


def delete(table_name: str, key: Item, condition: str | None = None, values: Item | None = None) -> Write:
    return {"Delete": {"TableName": table_name, "Key": key, **_conditions(condition, values)}}


def update(table_name: str, change: Change) -> Write:
    """``change`` with every name written out as a placeholder: some of ours are reserved words."""
    names: dict[str, str] = {}
    values: Item = {}

    def name_of(name: str) -> str:
        return names.setdefault(name, f"#n{len(names)}")

    def value_of(value: object) -> str:
        placeholder = f":v{len(values)}"
        values[placeholder] = value
        return placeholder

    sets = [f"{name_of(name)} = {value_of(value)}" for name, value in change.sets.items()]
    removes = [name_of(name) for name in change.removes]
    conditions = [
        f"attribute_not_exists({name_of(name)})" if value is None else f"{name_of(name)} = {value_of(value)}"
        for name, value in change.unchanged.items()
    ]
    clauses = [f"SET {', '.join(sets)}"] if sets else []
    clauses += [f"REMOVE {', '.join(removes)}"] if removes else []
    return {
        "Update": {
            "TableName": table_name,
            "Key": change.key,
            "UpdateExpression": " ".join(clauses),
            "ConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": {placeholder: name for name, placeholder in names.items()},
            "ExpressionAttributeValues": values,
            "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        }
    }


def _conditions(condition: str | None, values: Item | None) -> dict[str, Any]:
    if condition is None:
        return {}
    return {
        "ConditionExpression": condition,
        "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
        **({"ExpressionAttributeValues": values} if values else {}),
    }


def write_all(client: DynamoDBClient, writes: Sequence[Write]) -> Refusal | None:
    """Carry out all of ``writes`` (at most 100 items, 4 MB) or none. None: it is done.

    A request whose answer is lost is sent again by the driver under the same token, so it counts once. Another
    transaction on the same items, and throttling, are waited for; then ``StoreUnavailable``.
    """
    if len(writes) > MAX_WRITES:
        raise StoreError(f"a transaction of {len(writes)} items is beyond the {MAX_WRITES} of DynamoDB")
    is_repeated = False
    for back_off in back_offs(_TRIES):
        try:
            # A transaction that was cancelled wrote nothing: the next try is a new one, with a token of its own.
            client.transact_write_items(TransactItems=writes, ClientRequestToken=uuid4().hex)
        except (ClientError, BotoCoreError, ResponseParserError) as error:
            reasons = _cancellation_reasons(error)
            if reasons is None:
                raise translate(error) from error
            is_repeated |= _is_repeated(error)
            refusal = _refusal(reasons, is_repeated=is_repeated)
            if refusal is not None:
                return refusal
        else:
            return None
        time.sleep(back_off)
    raise StoreUnavailable(
        "DynamoDB cancelled a transaction again and again", retry_after_seconds=RETRY_AFTER_SECONDS
    )


def _cancellation_reasons(error: Exception) -> list[dict[str, Any]] | None:
    """One per write; None when ``error`` is no cancellation."""
    if not isinstance(error, ClientError) or error.response["Error"]["Code"] != "TransactionCanceledException":
        return None
    answer: dict[str, Any] = dict(error.response)
    reasons: list[dict[str, Any]] = answer.get("CancellationReasons", [])
    return reasons


def _is_repeated(error: Exception) -> bool:
    answer: dict[str, Any] = dict(error.response) if isinstance(error, ClientError) else {}
    return bool(answer.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def _refusal(reasons: list[dict[str, Any]], *, is_repeated: bool) -> Refusal | None:
    """The refusal among ``reasons``; None when trying again may help. Raises ``StoreError`` for anything else."""
    met = {
        at: reason.get("Item") for at, reason in enumerate(reasons) if reason.get("Code") == "ConditionalCheckFailed"
    }
    if met:
        return Refusal(met, is_repeated)
    codes = {reason.get("Code") for reason in reasons} - {None, "None"}
    if codes <= TRANSIENT_STATEMENT_CODES:
        return None
    raise cancelled_for_good(reasons)
