"""What the stream of the table tells (NEW_AND_OLD_IMAGES): events that were written, and calls that TTL removed.

Every other record is none of a consumer's business; an event source mapping can leave them out by filters on
``eventName``, ``dynamodb.NewImage.row_type`` and ``dynamodb.OldImage.row_type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duetime.stores.calls_port import CallRef
from duetime.stores.dynamodb.calls import event_items, items, keys
from duetime.stores.dynamodb.changes import Item

_TTL = "dynamodb.amazonaws.com"


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """A call has events to be published: ``DynamoDbCallStore.unpublished_of`` gives them in order.

    The stream keeps the order of one item's records, not that of the items of a call.
    """

    ref: CallRef


@dataclass(frozen=True, slots=True)
class CallExpired:
    """TTL has removed a call: ``image`` is for ``DynamoDbCallStore.remove_children``."""

    ref: CallRef
    image: Item


def read_record(record: Mapping[str, Any]) -> EventsWritten | CallExpired | None:
    """What a record of the stream means; None for all that needs nothing. Raises ``ValueError`` for a broken one."""
    change = record.get("dynamodb", {})
    try:
        if record.get("eventName") == "INSERT":
            image: Item = change.get("NewImage", {})
            if _row_type(image) == event_items.ROW_TYPE:
                return EventsWritten(CallRef(image["tenant_id"]["S"], image["call_id"]["S"]))
        elif record.get("eventName") == "REMOVE" and record.get("userIdentity", {}).get("principalId") == _TTL:
            image = change.get("OldImage", {})
            if _row_type(image) == items.ROW_TYPE:
                ref = CallRef(image["tenant_id"]["S"], keys.call_id_of(image["sort_key"]["S"]))
                return CallExpired(ref, image)
    except KeyError as error:
        raise ValueError(f"a record of the stream lacks {error}") from error
    return None


def _row_type(image: Item) -> str | None:
    row_type = image.get("row_type", {}).get("S")
    return row_type if isinstance(row_type, str) else None
