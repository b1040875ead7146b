"""Events as documents of ``outbox`` and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.stores.call_check import checked_event
from duetime.stores.decoding import repaired
from duetime.stores.event_reading import UnreadableEventError, report_unreadable, up_to_damage
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import (
    DECODING_ERRORS,
    instant,
    optional,
    text,
    what_is_wrong,
    whole,
    without_none,
)
from duetime.stores.port.outbox import OutboxEvent

UNPUBLISHED = "is_unpublished"
"""True for an event that is still to be published, and not there for any other: what the outbox's index holds."""


def encode_event(event: CallEvent, *, now: datetime, published_at: datetime | None = None) -> Document:
    return without_none(
        {
            "tenant_id": event.tenant_id,
            "aggregate_id": event.aggregate_id,
            "event_sequence": event.sequence,
            "event_id": event.event_id,
            "event_type": event.type.value,
            "occurred_at": event.occurred_at,
            "created_at": now,
            "correlation_id": event.correlation_id,
            "causation_id": event.causation_id,
            "event_payload": event.payload_json,
            UNPUBLISHED: True if published_at is None else None,
            "published_at": published_at,
        }
    )


def decode_event(document: Document) -> OutboxEvent:
    """Raises ``UnreadableEventError``."""
    try:
        event = CallEvent(
            event_id=text(document, "event_id"),
            type=CallEventType(document["event_type"]),
            tenant_id=text(document, "tenant_id"),
            aggregate_id=text(document, "aggregate_id"),
            sequence=whole(document, "event_sequence"),
            occurred_at=instant(document, "occurred_at"),
            correlation_id=text(document, "correlation_id"),
            causation_id=optional(text, document, "causation_id"),
            payload_json=text(document, "event_payload"),
        )
        return OutboxEvent(checked_event(event), str(document["_id"]), optional(instant, document, "published_at"))
    except DECODING_ERRORS as error:
        raise UnreadableEventError(f"the stored event cannot be read: {what_is_wrong(error)}") from error


def readable_events(documents: Iterable[Document]) -> Iterator[OutboxEvent]:
    """Those of one call, up to the first that cannot be read."""
    return up_to_damage(documents, decode_event, report_document)


def report_document(document: Document, error: UnreadableEventError) -> None:
    tenant_id, call_id = repaired(document.get("tenant_id", "")), repaired(document.get("aggregate_id", ""))
    report_unreadable(error, tenant_id=tenant_id, call_id=call_id, sequence=document.get("event_sequence", 0))
