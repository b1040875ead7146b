"""What the answers about service calls hold, as ``answers`` has it for timers."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from duetime.api.answers import Answer, PageAnswer, RetryPolicyAnswer
from duetime.domain.call_events import CallEventType
from duetime.domain.executions import ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus, Method

_EXAMPLE_ID = "0193e5a1-7c00-7abc-8def-0123456789ab"


class CallTimerAnswer(Answer):
    """The timer of the call: its due time is reached once."""

    state: Literal["Scheduled", "Reached"]
    registered_at: datetime = Field(description="when the due time was last set")
    reached_at: datetime | None
    correlation_id: str


class CallOutcomeAnswer(Answer):
    """How the last execution ended; the response itself is in the execution."""

    execution_id: str
    status: int | None = Field(description="the HTTP status of the response, if there was one")
    reason: CallFailure | None = Field(description="null after a success")
    message: str | None


class CallRequestSummary(Answer):
    method: Method
    url: str
    headers: dict[str, str] | None = Field(description="values that may be secrets read [redacted]")
    body_bytes: int = Field(ge=0, description="of the body as JSON text")


class CallRequestAnswer(CallRequestSummary):
    body: Any = Field(description="the exact text that was given")


class ServiceCallSummary(Answer):
    """A service call as lists show it."""

    id: str = Field(examples=[_EXAMPLE_ID])
    tenant_id: str
    name: str
    status: CallStatus
    revision: int = Field(ge=1, description="counts changes; the ETag is this number in quotes")
    submitted_at: datetime
    updated_at: datetime
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None = Field(description="when a finished call that is not starred is removed by itself")
    attempts: int = Field(ge=0, description="executions begun")
    next_attempt_at: datetime | None = Field(description="null while an execution is under way, and when finished")
    execution_id: str | None = Field(description="of the execution that is under way")
    outcome: CallOutcomeAnswer | None
    tags: list[str]
    starred: bool
    correlation_id: str
    idempotency_key: str | None
    rerun_of: str | None = Field(description="the call that this one repeats")
    timer: CallTimerAnswer
    timeout_seconds: int
    retry_policy: RetryPolicyAnswer = Field(description="the one in force")
    request: CallRequestSummary


class ServiceCallAnswer(ServiceCallSummary):
    request: CallRequestAnswer


class HeaderAnswer(Answer):
    name: str
    value: str


class LoggedRequestSummary(Answer):
    method: Method
    url: str = Field(description="values of parameters that may be secrets read [redacted]")
    headers: list[HeaderAnswer]
    body_bytes: int = Field(ge=0)
    body_truncated: bool = Field(description="body is not the whole of it")
    body_is_base64: bool = Field(description="the bytes of body are no UTF-8")


class LoggedRequestAnswer(LoggedRequestSummary):
    body: str | None


class LoggedResponseSummary(Answer):
    status: int
    headers: list[HeaderAnswer]
    body_bytes: int = Field(ge=0, description="as far as it was read")
    body_truncated: bool
    body_is_base64: bool


class LoggedResponseAnswer(LoggedResponseSummary):
    body: str | None


class ExecutionSummary(Answer):
    """One attempt of a service call, as lists show it."""

    id: str
    service_call_id: str
    tenant_id: str
    number: int = Field(ge=1)
    status: ExecutionStatus
    started_at: datetime
    finished_at: datetime | None
    duration_ms: int | None = Field(description="of the exchange; null when nobody came back to tell")
    deadline_at: datetime = Field(description="when the watchdog ends it as Timeout")
    request: LoggedRequestSummary
    response: LoggedResponseSummary | None = Field(description="null when there was none")
    reason: CallFailure | None
    message: str | None


class ExecutionAnswer(ExecutionSummary):
    """What was sent and what came back, redacted, and cut where it is too long."""

    request: LoggedRequestAnswer
    response: LoggedResponseAnswer | None


class EventAnswer(Answer):
    """The envelope of an event, as it is published too."""

    id: str
    type: CallEventType
    tenant_id: str
    aggregate_id: str = Field(description="the service call")
    sequence: int = Field(ge=1, description="counts the events of the call without gaps")
    occurred_at: datetime
    correlation_id: str
    causation_id: str | None
    payload: dict[str, Any]


class EventPage(Answer):
    """Events in order. Ask again with ``after`` = ``nextAfter``, until ``complete``."""

    items: list[EventAnswer]
    next_after: int = Field(ge=0)
    complete: bool = Field(description="the call has finished, and there are no further events")


class ServiceCallPage(PageAnswer[ServiceCallSummary]):
    """The newest first; with name by name, then the newest first; with order=dueAt by due time."""


class ExecutionPage(PageAnswer[ExecutionSummary]):
    """The newest first."""
