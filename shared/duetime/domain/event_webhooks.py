"""A tenant's webhook for the events of its service calls, and the timers that deliver to it.

Each event is one timer in the internal namespace ``events@<tenant>``, so it is signed, guarded, limited, retried and
kept as a dead letter as every timer is. Its id names call and sequence: that is how order is kept
(``calls.webhook_order``).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.tenants import internal_namespace

EVENTS_PURPOSE = "events"
EVENTS_PREFIX = f"{EVENTS_PURPOSE}@"
WEBHOOK_TIMEOUT_SECONDS = 15
WEBHOOK_RETRY_POLICY_JSON = (
    '{"maxAttempts":50,"maxAttemptsDuration":"24h","initialInterval":"5s","backoffMultiplier":3,"maxInterval":"1h"}'
)
"""For one event, from when its turn came: about thirty attempts in a day."""
EXPIRE_AFTER_MS = 7 * 86_400_000
"""What could not even be tried for so long is a dead letter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWebhook:
    """``event_types`` None: all. While it is not ``is_enabled``, events pass it by.

    A newer version may have stored types that this one does not know: they are texts like the others.
    ``unknown_json`` is as in ``NamespaceSettings``.
    """

    url: str = field(repr=False)  # it may carry a key in its query
    event_types: tuple[str, ...] | None = None
    is_enabled: bool = True
    unknown_json: str | None = None

    def wants(self, event_type: CallEventType) -> bool:
        return self.is_enabled and (self.event_types is None or event_type in self.event_types)


@dataclass(frozen=True, slots=True)
class DeliveryId:
    """Identifies the event that a timer delivers."""

    call_id: str
    sequence: int

    def __str__(self) -> str:
        return f"{self.call_id}.{self.sequence}"


def events_namespace(tenant_id: str) -> str:
    """Return the internal namespace whose timers are the deliveries to a tenant's webhook."""
    return internal_namespace(EVENTS_PURPOSE, tenant_id)


def delivery_of(event: CallEvent) -> DeliveryId:
    return DeliveryId(event.aggregate_id, event.sequence)


def read_delivery_id(timer_id: str) -> DeliveryId | None:
    """Parse the text of a ``DeliveryId``; None for anything else."""
    call_id, _, sequence = timer_id.rpartition(".")
    return DeliveryId(call_id, int(sequence)) if call_id and sequence.isascii() and sequence.isdigit() else None
