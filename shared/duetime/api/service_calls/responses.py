"""Responses about service calls, their executions and events.

Values of headers that may be secrets are shown to nobody, not even to the tenant that gave them
(``domain.redaction``).
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from duetime.api.http.responses import (
    Instant,
    Page,
    ResponseModel,
    RetryPolicyResponse,
    TargetResponse,
    instant,
    raw,
    retry_policy_response,
    shown_destination,
)
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.executions import REDACTED, Execution, ExecutionStatus, LoggedMessage
from duetime.domain.redaction import DEFAULT_RULES
from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
)
from duetime.domain.times import format_instant

_EXAMPLE_ID = "0193e5a1-7c00-7abc-8def-0123456789ab"


class CallTimerResponse(ResponseModel):
    """The timer of the call: its due time is reached once."""

    state: Literal["Scheduled", "Reached"]
    registered_at: Instant
    reached_at: Instant | None
    correlation_id: str


class CallOutcomeResponse(ResponseModel):
    """How the last execution ended; the receiver's response itself is in the execution."""

    execution_id: str
    status: Annotated[int | None, Meta(description="the HTTP status of the response, if there was one")]
    reason: Annotated[CallFailure | None, Meta(description="null after a success")]
    message: str | None


class CallRequestResponse(ResponseModel):
    method: Method
    url: Annotated[str | None, Meta(description="null with target")]
    target: TargetResponse | None
    headers: Annotated[dict[str, str] | None, Meta(description="values that may be secrets read [redacted]")]
    body_bytes: Annotated[int, Meta(ge=0, description="of the body as JSON text")]
    body: Annotated[Raw | UnsetType, Meta(description="the exact text that was given; not in lists")] = UNSET


class ServiceCallResponse(ResponseModel):
    id: Annotated[str, Meta(examples=[_EXAMPLE_ID])]
    tenant_id: str
    name: str
    status: CallStatus
    revision: Annotated[int, Meta(ge=1, description="counts changes; the ETag is this number in quotes")]
    created_at: Instant
    updated_at: Instant
    due_at: Instant
    started_at: Instant | None
    finished_at: Instant | None
    expires_at: Annotated[
        Instant | None, Meta(description="when a finished call that is not starred is removed by itself")
    ]
    attempts: Annotated[int, Meta(ge=0, description="executions begun")]
    next_attempt_at: Annotated[
        Instant | None, Meta(description="null while an execution is in flight, and when finished")
    ]
    execution_id: Annotated[str | None, Meta(description="of the execution that is in flight")]
    outcome: CallOutcomeResponse | None
    tags: tuple[str, ...]
    starred: bool
    correlation_id: str
    idempotency_key: str | None
    rerun_of: str | None
    timer: CallTimerResponse
    timeout_seconds: int
    retry_policy: Annotated[RetryPolicyResponse, Meta(description="the one in force")]
    request: CallRequestResponse


def call_response(call: ServiceCall, *, with_body: bool = True) -> ServiceCallResponse:
    """Make the response. ``with_body``: with that of its request. Lists go without."""
    return ServiceCallResponse.of(
        call,
        id=call.call_id,
        created_at=format_instant(call.submitted_at),
        next_attempt_at=instant(call.wake_at) if call.is_waiting else None,
        outcome=None if call.outcome is None else _outcome(call.outcome),
        timer=CallTimerResponse.of(call, state="Scheduled" if call.reached_at is None else "Reached"),
        retry_policy=retry_policy_response(call.retry_policy),
        request=call_request_response(call.request, with_body=with_body),
    )


def _outcome(outcome: CallOutcome) -> CallOutcomeResponse:
    return CallOutcomeResponse.of(outcome, status=outcome.http_status, message=outcome.message or None)


def call_request_response(request: RequestSpec, *, with_body: bool = True) -> CallRequestResponse:
    headers = None if request.headers_json is None else json.loads(request.headers_json)
    url, target = shown_destination(request.url)
    return CallRequestResponse.of(
        request,
        url=url,
        target=target,
        headers=headers and {name: _shown(name, value) for name, value in headers.items()},
        body=raw(request.body_json) if with_body else UNSET,
    )


def _shown(name: str, value: str) -> str:
    return REDACTED if DEFAULT_RULES.headers.fits(name) else value


class ServiceCallPage(Page[ServiceCallResponse]):
    """The newest first; with name by name, then the newest first; with order=dueAt by due time."""


class HeaderResponse(ResponseModel):
    name: str
    value: str


class _Message(ResponseModel, kw_only=True):
    headers: list[HeaderResponse]
    body_bytes: Annotated[int, Meta(ge=0, description="as far as it was read")]
    body_truncated: bool
    body_is_base64: bool
    body: Annotated[str | UnsetType | None, Meta(description="not in lists", examples=["accepted"])] = UNSET


class SentRequest(_Message, kw_only=True):
    method: Method
    url: Annotated[
        str, Meta(description="or the ARN of a target; values of parameters that may be secrets read [redacted]")
    ]


class ReceivedResponse(_Message, kw_only=True):
    status: int


class ExecutionResponse(ResponseModel):
    """One attempt of a service call: what was sent and what came back, redacted, and cut where it is too long."""

    id: str
    service_call_id: str
    tenant_id: str
    number: Annotated[int, Meta(ge=1)]
    status: ExecutionStatus
    started_at: Instant
    finished_at: Instant | None
    duration_ms: Annotated[int | None, Meta(description="of the exchange; null when nobody came back to tell")]
    deadline_at: Annotated[Instant, Meta(description="when the watchdog ends it as Timeout")]
    request: SentRequest
    response: Annotated[ReceivedResponse | None, Meta(description="null when there was none")]
    reason: CallFailure | None
    message: str | None


def execution_response(execution: Execution, *, with_bodies: bool = True) -> ExecutionResponse:
    """Make the response. ``with_bodies``: with what was sent and what came back. Lists go without."""
    # The log hides what it is configured to hide; of what was given, no response shows more than that of the call.
    headers = tuple((name, _shown(name, value)) for name, value in execution.request.headers)
    response = None
    if execution.response_status is not None:
        message = execution.response or LoggedMessage()
        response = ReceivedResponse(
            status=execution.response_status,
            **_message(message, message.headers, with_bodies=with_bodies),
        )
    return ExecutionResponse.of(
        execution,
        id=execution.execution_id,
        service_call_id=execution.call_id,
        request=SentRequest(
            method=execution.method,
            url=execution.url,
            **_message(execution.request, headers, with_bodies=with_bodies),
        ),
        response=response,
        reason=execution.failure,
        message=execution.message or None,
    )


def _message(message: LoggedMessage, headers: tuple[tuple[str, str], ...], *, with_bodies: bool) -> dict[str, Any]:
    return {
        "headers": [HeaderResponse(name=name, value=value) for name, value in headers],
        "body_bytes": message.body_bytes,
        "body_truncated": message.is_truncated,
        "body_is_base64": message.body_is_base64,
        "body": message.body if with_bodies else UNSET,
    }


class ExecutionPage(Page[ExecutionResponse]):
    """The newest first."""


class EventResponse(ResponseModel):
    """The envelope of an event, as it is published too."""

    id: str
    type: CallEventType
    tenant_id: str
    aggregate_id: str
    sequence: Annotated[int, Meta(ge=1, description="counts the events of the call without gaps")]
    occurred_at: Instant
    correlation_id: str
    causation_id: str | None
    payload: dict[str, Any]


def event_response(event: CallEvent) -> EventResponse:
    return msgspec.convert(event.document(), EventResponse)


class EventPage(ResponseModel):
    """Events in order. Ask again with ``after`` = ``nextAfter``, until ``complete``."""

    items: list[EventResponse]
    next_after: Annotated[int, Meta(ge=0)]
    complete: Annotated[bool, Meta(description="the call has finished, and there are no further events")]
