"""Webhooks and deliveries as JSON."""

from __future__ import annotations

from duetime.api.encoding import encode, failure_members, instant_json
from duetime.domain.event_webhooks import EventWebhook, read_delivery_id
from duetime.domain.timers import Timer, TimerState
from duetime.domain.times import format_instant


def webhook_json(webhook: EventWebhook, *, revision: int) -> str:
    types = None if webhook.event_types is None else [str(event_type) for event_type in webhook.event_types]
    return encode({"url": webhook.url, "eventTypes": types, "enabled": webhook.is_enabled, "revision": revision})


def delivery_json(timer: Timer) -> str:
    """Without the event itself: ``GET .../service-calls/{id}/events`` has it."""
    delivery = read_delivery_id(timer.timer_id)
    return encode(
        {
            "id": timer.timer_id,
            "eventId": timer.firing_id,
            "type": timer.content.tags[0] if timer.content.tags else None,
            "serviceCallId": None if delivery is None else delivery.call_id,
            "sequence": None if delivery is None else delivery.sequence,
            "state": timer.state,
            "attempts": timer.attempts,
            "createdAt": format_instant(timer.created_at),
            "updatedAt": format_instant(timer.updated_at),
            "nextAttemptAt": instant_json(timer.next_attempt_at),
            "deliveredAt": instant_json(timer.fired_at) if timer.state is TimerState.FIRED else None,
            "failure": None if timer.failure is None else failure_members(timer.failure),
        }
    )
