"""The table of service calls: created by ``duetime init``, or on AWS by template.yaml, which must say the same."""

from __future__ import annotations

from typing import Any

from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.schema import key_schema

_INDEXES = (
    (keys.STATUS_INDEX, "tenant_id", "status_key"),
    (keys.STARRED_INDEX, "tenant_id", "starred_key"),
    (keys.NAME_INDEX, "tenant_id", "name_key"),
    (keys.CORRELATION_INDEX, "correlation_key", "sort_key"),
    (keys.DUE_INDEX, "tenant_id", "due_key"),
    (keys.OUTBOX_INDEX, "outbox_partition", "outbox_key"),
)
"""Name, hash key and range key. Each is sparse, and projects nothing but keys."""
_NUMBERS = frozenset({"outbox_partition"})


def calls_table_definition(name: str) -> dict[str, Any]:
    """Parameters of CreateTable for the table of service calls."""
    attributes = dict.fromkeys([*keys.KEY_NAMES, *(each for _, *pair in _INDEXES for each in pair)])
    return {
        "TableName": name,
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": each, "AttributeType": "N" if each in _NUMBERS else "S"} for each in attributes
        ],
        "KeySchema": key_schema(*keys.KEY_NAMES),
        "GlobalSecondaryIndexes": [
            {
                "IndexName": index,
                "KeySchema": key_schema(hash_name, range_name),
                "Projection": {"ProjectionType": "KEYS_ONLY"},
            }
            for index, hash_name, range_name in _INDEXES
        ],
        "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "NEW_AND_OLD_IMAGES"},
    }
