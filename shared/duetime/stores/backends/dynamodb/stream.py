"""What the stream of the table of service calls tells: events that were written.

Every other record is none of a consumer's business; an event source mapping can leave them out by filters on
``eventName`` and ``dynamodb.NewImage.row_type``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.entities import EVENT
from duetime.stores.port.calls import CallRef


@dataclass(frozen=True, slots=True)
class EventsWritten:
    """A call has events to be published: ``Outbox.unpublished_of`` gives them in order.

    The stream keeps the order of one item's records, not that of the items of a call.
    """

    ref: CallRef


def read_record(record: Mapping[str, Any]) -> EventsWritten | None:
    """Return what a record of the stream means; None: nothing to do. Raises ``ValueError`` for a broken one."""
    if record.get("eventName") != "INSERT":
        return None
    layout = LAYOUTS[EVENT]
    image = record.get("dynamodb", {}).get("NewImage", {})
    if image.get("row_type", {}).get("S") != layout.row_type:
        return None
    try:
        tenant_id, call_id, _ = layout.parts_of(image)
    except KeyError as error:
        raise ValueError(f"a record of the stream lacks {error}") from error
    return EventsWritten(CallRef(tenant_id, call_id))
