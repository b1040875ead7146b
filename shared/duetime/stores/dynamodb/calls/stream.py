"""What the stream of the table tells: events that were written.

Every other record is none of a consumer's business; an event source mapping can leave them out by filters on
``eventName`` and ``dynamodb.NewImage.row_type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duetime.stores.dynamodb.calls import event_items
from duetime.stores.dynamodb.changes import Item
from duetime.stores.port.calls import CallRef


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """A call has events to be published: ``DynamoDbCallStore.unpublished_of`` gives them in order.

    The stream keeps the order of one item's records, not that of the items of a call.
    """

    ref: CallRef


def read_record(record: Mapping[str, Any]) -> EventsWritten | None:
    """What a record of the stream means; None for all that needs nothing. Raises ``ValueError`` for a broken one."""
    if record.get("eventName") != "INSERT":
        return None
    image: Item = record.get("dynamodb", {}).get("NewImage", {})
    if _row_type(image) != event_items.ROW_TYPE:
        return None
    try:
        return EventsWritten(CallRef(image["tenant_id"]["S"], image["call_id"]["S"]))
    except KeyError as error:
        raise ValueError(f"a record of the stream lacks {error}") from error


def _row_type(image: Item) -> str | None:
    row_type = image.get("row_type", {}).get("S")
    return row_type if isinstance(row_type, str) else None
