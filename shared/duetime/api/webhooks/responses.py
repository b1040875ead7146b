"""What the answers about event webhooks hold, as ``answers`` has it for timers."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field

from duetime.api.answers import Answer, FailureAnswer, PageAnswer
from duetime.domain.call_events import CallEventType
from duetime.domain.timers import TimerState


class EventWebhookAnswer(Answer):
    url: str
    event_types: list[str] | None = Field(description="null: all; a newer version may have stored more of them")
    enabled: bool
    revision: int = Field(description="Counts changes, those of its secrets too; it is the ETag")


class DeliveryAnswer(Answer):
    """An event on its way to the webhook."""

    id: str = Field(description="the service call and the event's sequence")
    event_id: str = Field(description="the webhook-id of all attempts")
    type: CallEventType | None
    service_call_id: str | None
    sequence: int | None
    state: TimerState
    attempts: int
    created_at: datetime
    updated_at: datetime
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    failure: FailureAnswer | None = Field(description="of the last attempt that failed")


class DeliveryPage(PageAnswer[DeliveryAnswer]):
    """Deliveries, in no order that means anything."""
