"""Events as items and back. The events of one transition are one item: they are written, and marked, together.

It stands in the outbox index until all of its events are published.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.times import format_instant, read_instant
from duetime.stores.call_check import checked_event
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.dynamodb.items import Unreadable

ROW_TYPE = "EVENT"


def encode_events(events: Sequence[CallEvent]) -> Item:
    """``events`` of one transition, in order, at least one."""
    last = events[-1]
    return {
        **keys.key(last.tenant_id, keys.event_sort_key(last.aggregate_id, last.sequence)),
        "row_type": text(ROW_TYPE),
        "call_id": text(last.aggregate_id),
        "correlation_id": text(last.correlation_id),
        "first_sequence": whole(events[0].sequence),
        "events": {"L": [_encode(event) for event in events]},
        "outbox_partition": whole(keys.outbox_partition(last.aggregate_id)),
        "outbox_key": text(keys.outbox_index_key(last)),
    }


def _encode(event: CallEvent) -> Item:
    item = {
        "id": text(event.event_id),
        "type": text(event.type.value),
        "at": text(format_instant(event.occurred_at)),
        "payload": text(event.payload_json),
    }
    if event.causation_id is not None:
        item["cause"] = text(event.causation_id)
    return {"M": item}


def decode_events(item: Item) -> list[CallEvent]:
    """The events of ``item``, in order. Raises ``Unreadable``."""
    try:
        first = int(item["first_sequence"]["N"])
        return [checked_event(_decode(item, each["M"], first + at)) for at, each in enumerate(item["events"]["L"])]
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        missing = f": {error}" if isinstance(error, KeyError) else ""
        raise Unreadable(f"{type(error).__name__}{missing}") from error


def _decode(item: Item, event: Item, sequence: int) -> CallEvent:
    return CallEvent(
        event_id=event["id"]["S"],
        type=CallEventType(event["type"]["S"]),
        tenant_id=item["tenant_id"]["S"],
        aggregate_id=item["call_id"]["S"],
        sequence=sequence,
        occurred_at=read_instant(event["at"]["S"]),
        correlation_id=item["correlation_id"]["S"],
        causation_id=event["cause"]["S"] if "cause" in event else None,
        payload_json=event["payload"]["S"],
    )


def published_times(item: Item) -> dict[int, datetime]:
    """By ``sequence``, when those events were published that were, if ``item`` is not published as a whole."""
    if "published" not in item:
        return {}
    found: dict[str, str] = json.loads(item["published"]["S"])
    return {int(sequence): read_instant(at) for sequence, at in found.items()}


def published_text(times: dict[int, datetime]) -> str:
    return json.dumps({str(sequence): format_instant(at) for sequence, at in sorted(times.items())})
