"""Requests about event webhooks."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from duetime.api.http.request_models import CallbackUrl, PageQuery, RequestModel, any_case
from duetime.domain.call_events import CallEventType
from duetime.domain.timers import TimerState

_TYPES_SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 1,
    "uniqueItems": True,
    "items": {"type": "string", "enum": [str(event_type) for event_type in CallEventType]},
}


def _event_types(value: list[str]) -> list[str]:
    if not value:
        raise ValueError("must have an item; leave it out for all types")
    if len(set(value)) != len(value):
        raise ValueError("must not have an item twice")
    known = [str(event_type) for event_type in CallEventType]
    unknown = next((item for item in value if item not in known), None)
    if unknown is not None:
        raise ValueError(f"must hold types of events: {', '.join(known)}")
    return value


class EventWebhookBody(RequestModel):
    """Where the events of the tenant's service calls are delivered to. What is omitted has its default."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"url": "https://acme.example.com/events"},
                {
                    "url": "https://acme.example.com/events",
                    "eventTypes": ["ServiceCallSucceeded", "ServiceCallFailed"],
                    "enabled": True,
                },
            ]
        }
    )

    url: CallbackUrl
    event_types: Annotated[list[str], AfterValidator(_event_types), WithJsonSchema(_TYPES_SCHEMA)] | None = Field(
        default=None, description="all types when it is omitted"
    )
    enabled: bool = Field(default=True, description="while it is false, events pass by and what waits is held")


class DeliveryQuery(PageQuery):
    """All conditions must hold."""

    state: Annotated[TimerState, Field(strict=False), any_case(TimerState)] | None = Field(
        default=None, description="failed: the dead letters"
    )
    type: Annotated[CallEventType, Field(strict=False)] | None = Field(default=None, description="of the event")
