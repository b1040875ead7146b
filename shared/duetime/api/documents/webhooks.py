"""The requests that Duetime sends, as webhooks of the document."""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import UNSET, Meta, Raw, UnsetType
from pydantic import ConfigDict, Field

from duetime.api.documents.schemas import REFERENCE, References
from duetime.api.http.request import JSON
from duetime.api.http.request_models import Duration, RequestModel
from duetime.api.http.request_models import Instant as GivenInstant
from duetime.api.http.responses import Instant, ResponseModel
from duetime.delivery.headers import OCCURRENCE_HEADER, SCHEDULE_ID_HEADER, SCHEDULED_AT_HEADER

Json = dict[str, Any]


_AckUrl = Annotated[
    str | UnsetType,
    Meta(description="where to say what came of work that is taken with a 202; absent without a public URL"),
]


class Taken(RequestModel):
    """Counts with a 202 alone."""

    model_config = ConfigDict(extra="allow")

    within: Annotated[Duration, Field(description="until when an answer comes; 24 hours at most")]


_Ack = Annotated[
    Taken | None,
    Field(description="with a 202: the work is taken, and an answer comes to ackUrl", examples=[{"within": "10m"}]),
]


class TimerCallback(ResponseModel):
    """What is sent to the callbackUrl of a timer that is due."""

    namespace: str
    timer_id: str
    execute_at: Annotated[Instant, Meta(description="the due time that was asked for")]
    fired_at: Annotated[Instant, Meta(description="when this attempt started")]
    attempt: Annotated[int, Meta(ge=1)]
    payload: Annotated[Raw, Meta(description="the exact JSON text that was stored; null if there was none")]
    ack_url: _AckUrl = UNSET


class ScheduleCallback(ResponseModel):
    """What is sent to the callbackUrl of a schedule when it occurs."""

    namespace: str
    schedule_id: str
    scheduled_at: Annotated[Instant, Meta(description="by the schedule, without a delay by jitter or window")]
    occurrence: Annotated[
        int, Meta(ge=0, description="its number, from 1; 0 when it was fired by hand", examples=[12])
    ]
    execute_at: Annotated[Instant, Meta(description="the scheduled time with its delay")]
    fired_at: Annotated[Instant, Meta(description="when this attempt started")]
    attempt: Annotated[int, Meta(ge=1)]
    payload: Annotated[Raw, Meta(description="the exact JSON text that was stored; null if there was none")]
    ack_url: _AckUrl = UNSET


class CallbackResponse(RequestModel):
    """What a receiver may answer with a 2xx. An empty body is a success too."""

    model_config = ConfigDict(extra="allow")

    ok: bool | None = None
    next_execute_at: GivenInstant | None = None
    ack: _Ack = None


class ScheduleCallbackResponse(RequestModel):
    """What the receiver of a schedule may answer with a 2xx. An empty body is a success too."""

    model_config = ConfigDict(extra="allow")

    ok: bool | None = None
    pause: Annotated[bool | str | None, Field(description="pauses the schedule: true, or the reason")] = None
    end: Annotated[bool | None, Field(description="ends the schedule")] = None
    ack: _Ack = None


WEBHOOK_BODIES: Final = (TimerCallback, ScheduleCallback)
WEBHOOK_RESPONSES: Final = (CallbackResponse, ScheduleCallbackResponse)

_EVENT: Final = {"$ref": REFERENCE.format(name="EventResponse")}
"""The pages of events have it, so the document does."""
_FIRING_ID: Final = "0190f0aa-7c11-7b0c-9a51-93b2a30e0f17"
_HEADERS: Final = (
    ("webhook-id", True, "names what is delivered, the same in all attempts: deduplicate by it", _FIRING_ID),
    ("webhook-timestamp", True, "when this attempt started, in seconds since 1970", "1797780600"),
    (
        "webhook-signature",
        False,
        "one signature by each valid secret (Standard Webhooks, scheme v1), once there is a secret",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
    ("x-correlation-id", False, "the correlation id, if there is one", "order-4711"),
)
_HEADERS_OF_OCCURRENCE: Final = (
    (
        SCHEDULE_ID_HEADER,
        True,
        "scheduleId of the body; what is not visible ASCII is percent-encoded",
        "daily-report",
    ),
    (SCHEDULED_AT_HEADER, True, "scheduledAt of the body", "2026-12-20T15:30:00.000Z"),
    (OCCURRENCE_HEADER, True, "occurrence of the body", "7"),
)


def webhooks(references: References) -> Json:
    parameters, of_occurrence = (
        [
            {
                "name": name,
                "in": "header",
                "required": is_required,
                "description": description,
                "schema": {"type": "string", "examples": [example]},
            }
            for name, is_required, description, example in headers
        ]
        for headers in (_HEADERS, _HEADERS_OF_OCCURRENCE)
    )
    done: Json = {"description": "It is done."}
    again: Json = {"description": "It is sent again, as the retry policy says; so are 408, 425, 429 and no response."}
    final: Json = {"description": "It is not sent again: any other 4xx."}
    fired, occurred = (
        done | {"content": {JSON: {"schema": references[each.__name__]}}} for each in WEBHOOK_RESPONSES
    )
    return {
        "timerDue": {
            "post": {
                "operationId": "timerDue",
                "summary": "A timer is due",
                "description": "Sent to the callbackUrl of the timer. Its own headers are sent along.",
                "tags": ["timers"],
                "parameters": parameters,
                "requestBody": {"required": True, "content": {JSON: {"schema": references["TimerCallback"]}}},
                "responses": {"200": fired, "400": final, "503": again},
            }
        },
        "scheduleDue": {
            "post": {
                "operationId": "scheduleDue",
                "summary": "A schedule occurs",
                "description": "Sent to the callbackUrl of the schedule. Its own headers are sent along.",
                "tags": ["schedules"],
                "parameters": [*parameters, *of_occurrence],
                "requestBody": {"required": True, "content": {JSON: {"schema": references["ScheduleCallback"]}}},
                "responses": {"200": occurred, "400": final, "503": again},
            }
        },
        "serviceCallEvent": {
            "post": {
                "operationId": "serviceCallEvent",
                "summary": "Something happened to a service call",
                "description": "Sent to the event webhook of the tenant, in order for each service call.",
                "tags": ["event webhooks"],
                "parameters": parameters,
                "requestBody": {"required": True, "content": {JSON: {"schema": _EVENT}}},
                "responses": {"204": done, "410": final, "503": again},
            }
        },
    }
