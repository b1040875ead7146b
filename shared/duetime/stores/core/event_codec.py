"""Events of service calls as rows of ``entities.EVENT`` and back."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from datetime import datetime

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.stores.backend import NOW
from duetime.stores.core.call_check import checked_event
from duetime.stores.core.instants import instant, milliseconds, optional_instant, optional_milliseconds
from duetime.stores.decoding import DECODING_ERRORS, UnreadableError, repaired
from duetime.stores.entities import EVENT
from duetime.stores.entity import DAMAGED, Row
from duetime.stores.port.outbox import OutboxEvent

READ = tuple(name for name in EVENT.names if name != "created_at")
"""What ``decode_event`` reads: no event tells when its row was made."""
_TYPES = {each.value: each for each in CallEventType}
_log = logging.getLogger(__name__)


def encode_event(event: CallEvent, *, published_at: datetime | None = None) -> Row:
    return (
        event.tenant_id,
        event.aggregate_id,
        event.sequence,
        event.event_id,
        event.type._value_,
        milliseconds(event.occurred_at),
        NOW,
        optional_milliseconds(published_at),
        event.correlation_id,
        event.causation_id,
        event.payload_json,
    )


def decode_event(row: Row) -> OutboxEvent:
    """Return the event of a row of ``READ``. Raises ``UnreadableError``."""
    (
        tenant_id,
        aggregate_id,
        sequence,
        event_id,
        event_type,
        occurred_at,
        published_at,
        correlation_id,
        causation_id,
        payload_json,
    ) = row
    try:
        if DAMAGED in row:
            raise ValueError(READ[row.index(DAMAGED)])
        event = CallEvent(
            event_id=event_id,
            type=_TYPES[event_type],
            tenant_id=tenant_id,
            aggregate_id=aggregate_id,
            sequence=sequence,
            occurred_at=instant(occurred_at),
            correlation_id=correlation_id,
            causation_id=causation_id,
            payload_json=payload_json,
        )
        return OutboxEvent(checked_event(event), optional_instant(published_at))
    except DECODING_ERRORS as error:
        raise UnreadableError(f"the stored event cannot be read: {type(error).__name__}") from error


def readable_events(rows: Iterable[Row]) -> Iterator[OutboxEvent]:
    """Return the events of ``rows``, which are of one call in order, up to the first that cannot be read.

    Those behind it have to wait, or their order would be lost; other calls' events need not.
    """
    for row in rows:
        try:
            yield decode_event(row)
        except UnreadableError as error:
            report_row(row, error)
            return


def report_row(row: Row, error: UnreadableError) -> None:
    tenant_id, call_id, sequence = shown_key(row)
    where = {"tenant_id": tenant_id, "call_id": call_id, "sequence": sequence}
    _log.error("%s", error, extra={"action": "outbox.unreadable", **where})


def shown_key(row: Row) -> tuple[str, str, int]:
    """Return the tenant, the call and the sequence of an event, whatever is damaged: 0 for a sequence that is."""
    tenant_id, call_id, sequence = EVENT.key_of(row)
    return repaired(tenant_id), repaired(call_id), 0 if sequence is DAMAGED else sequence
