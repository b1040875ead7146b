"""Responses about event webhooks and their deliveries."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duetime.api.http.responses import (
    FailureResponse,
    Instant,
    Page,
    ResponseModel,
    failure_response,
    instant,
)
from duetime.domain.call_events import CallEventType
from duetime.domain.event_webhooks import EventWebhook, read_delivery_id
from duetime.domain.timers import Timer, TimerState


class EventWebhookResponse(ResponseModel):
    url: str
    event_types: Annotated[
        list[str] | None, Meta(description="null: all; a newer version may have stored more of them")
    ]
    enabled: bool
    revision: Annotated[int, Meta(description="Counts changes, those of its secrets too; it is the ETag")]


def webhook_response(webhook: EventWebhook, *, revision: int) -> EventWebhookResponse:
    types = None if webhook.event_types is None else [str(event_type) for event_type in webhook.event_types]
    return EventWebhookResponse(
        url=webhook.url,
        event_types=types,
        enabled=webhook.is_enabled,
        revision=revision,
    )


class DeliveryResponse(ResponseModel):
    """An event on its way to the webhook. The event itself: ``GET .../service-calls/{id}/events`` has it."""

    id: Annotated[str, Meta(description="the service call and the event's sequence")]
    event_id: Annotated[str, Meta(description="the webhook-id of all attempts")]
    type: Annotated[str | None, Meta(extra_json_schema={"examples": [str(CallEventType.SUCCEEDED)]})]
    service_call_id: str | None
    sequence: int | None
    state: TimerState
    attempts: int
    created_at: Instant
    updated_at: Instant
    next_attempt_at: Instant | None
    delivered_at: Instant | None
    failure: Annotated[FailureResponse | None, Meta(description="of the last attempt that failed")]


def delivery_response(timer: Timer) -> DeliveryResponse:
    delivery = read_delivery_id(timer.timer_id)
    return DeliveryResponse.of(
        timer,
        id=timer.timer_id,
        event_id=timer.firing_id,
        type=timer.content.tags[0] if timer.content.tags else None,
        service_call_id=None if delivery is None else delivery.call_id,
        sequence=None if delivery is None else delivery.sequence,
        delivered_at=instant(timer.fired_at) if timer.state is TimerState.FIRED else None,
        failure=failure_response(timer.failure),
    )


class DeliveryPage(Page[DeliveryResponse]):
    """Deliveries, in no order that means anything."""
