"""Events as rows of ``outbox`` and back."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.stores.call_check import checked_event
from duetime.stores.decoding import repaired
from duetime.stores.event_reading import UnreadableEventError, report_unreadable, up_to_damage
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.sql.call_rows import instant_text, optional_instant, text_instant
from duetime.stores.sql.call_tables import outbox

EVENT_NAMES = (
    "tenant_id",
    "aggregate_id",
    "event_sequence",
    "event_id",
    "event_type",
    "occurred_at",
    "correlation_id",
    "causation_id",
    "event_payload",
)
"""What ``encode_event`` writes."""
EVENT_COLUMNS = (*(outbox.c[name] for name in EVENT_NAMES), outbox.c.id, outbox.c.published_at)
"""What ``decode_event`` reads."""
TENANT, AGGREGATE, SEQUENCE, EVENT_ID = range(4)
"""Places in such a row."""

Row = Any


def encode_event(event: CallEvent) -> tuple[Any, ...]:
    """The values for ``EVENT_NAMES``."""
    return (
        event.tenant_id,
        event.aggregate_id,
        event.sequence,
        event.event_id,
        event.type.value,
        instant_text(event.occurred_at),
        event.correlation_id,
        event.causation_id,
        event.payload_json,
    )


def decode_event(row: Row) -> OutboxEvent:
    """Raises ``UnreadableEventError``."""
    (
        tenant_id,
        aggregate_id,
        sequence,
        event_id,
        event_type,
        occurred_at,
        correlation_id,
        causation_id,
        payload_json,
        position,
        published_at,
    ) = row
    try:
        event = CallEvent(
            event_id=event_id,
            type=CallEventType(event_type),
            tenant_id=tenant_id,
            aggregate_id=aggregate_id,
            sequence=sequence,
            occurred_at=text_instant(occurred_at),
            correlation_id=correlation_id,
            causation_id=causation_id,
            payload_json=payload_json,
        )
        return OutboxEvent(checked_event(event), str(position), optional_instant(published_at))
    except ValueError as error:
        raise UnreadableEventError(f"the stored event cannot be read: {type(error).__name__}") from error


def readable_events(rows: Iterable[Row]) -> Iterator[OutboxEvent]:
    """Those of one call, up to the first that cannot be read."""
    return up_to_damage(rows, decode_event, report_row)


def report_row(row: Row, error: UnreadableEventError) -> None:
    tenant_id, call_id = repaired(row[TENANT]), repaired(row[AGGREGATE])
    report_unreadable(error, tenant_id=tenant_id, call_id=call_id, sequence=row[SEQUENCE])
