"""Defines the events of service calls: one envelope for all types. docs/events.md describes each."""

from __future__ import annotations

import json
from datetime import datetime
from enum import StrEnum
from typing import Any

from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.times import format_instant


class CallEventType(StrEnum):
    SUBMITTED = "ServiceCallSubmitted"
    SCHEDULED = "ServiceCallScheduled"
    RUNNING = "ServiceCallRunning"
    SUCCEEDED = "ServiceCallSucceeded"
    FAILED = "ServiceCallFailed"
    CANCELLED = "ServiceCallCancelled"
    UPDATED = "ServiceCallUpdated"
    DELETED = "ServiceCallDeleted"
    DUE_TIME_REACHED = "DueTimeReached"
    EXECUTION_STARTED = "ExecutionStarted"
    EXECUTION_SUCCEEDED = "ExecutionSucceeded"
    EXECUTION_FAILED = "ExecutionFailed"

    @property
    def is_terminal(self) -> bool:
        """Tell whether the call has ended with this event. Each call has exactly one such event."""
        return self in (CallEventType.SUCCEEDED, CallEventType.FAILED, CallEventType.CANCELLED)


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """``event_id`` is a UUIDv7. ``aggregate_id`` is the service call; ``sequence`` counts its events from 1 without
    gaps and is their order. ``causation_id`` is the event, or for the first one whatever else, that led to it.
    ``payload_json`` is the text of a JSON object without secrets.
    """

    event_id: str
    type: CallEventType
    tenant_id: str
    aggregate_id: str
    sequence: int
    occurred_at: datetime
    correlation_id: str
    causation_id: str | None
    payload_json: str

    def document(self) -> dict[str, Any]:
        """Return the envelope as it is published: JSON values, camelCase names."""
        return {**self._head(), "payload": json.loads(self.payload_json)}

    def to_json(self) -> str:
        """Return the text of ``document``, with the payload's as it is stored."""
        return f'{json.dumps(self._head(), separators=(",", ":"))[:-1]},"payload":{self.payload_json}}}'

    def _head(self) -> dict[str, Any]:
        return {
            "id": self.event_id,
            "type": str(self.type),
            "tenantId": self.tenant_id,
            "aggregateId": self.aggregate_id,
            "sequence": self.sequence,
            "occurredAt": format_instant(self.occurred_at),
            "correlationId": self.correlation_id,
            "causationId": self.causation_id,
        }
