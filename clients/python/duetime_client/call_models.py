"""What the API answers about service calls, their executions and events, and event webhooks, as ``models`` has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, TypedDict

from duetime_client.decoding import OpenEnum
from duetime_client.models import Failure, TimerState
from duetime_client.values import RetryPolicy, Target

_MILLISECONDS = timedelta(milliseconds=1)
_SECONDS = timedelta(seconds=1)


class Method(OpenEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class CallStatus(OpenEnum):
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_finished(self) -> bool:
        return self in (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED)


class CallFailure(OpenEnum):
    """Why an execution failed."""

    HTTP_STATUS = "HttpStatus"
    TIMEOUT = "Timeout"
    NETWORK = "Network"
    REFUSED_URL = "RefusedUrl"
    REFUSED_ADDRESS = "RefusedAddress"
    UNREADABLE = "Unreadable"


class CallTimerState(OpenEnum):
    SCHEDULED = "Scheduled"
    REACHED = "Reached"


class ExecutionStatus(OpenEnum):
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


class EventType(OpenEnum):
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
    def is_last(self) -> bool:
        """Tell whether the service call has ended: nothing of it is sent after an event of this type."""
        return self in (EventType.SUCCEEDED, EventType.FAILED, EventType.CANCELLED)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallTimer:
    """The timer of a service call. ``registered_at``: when the due time was last set."""

    state: CallTimerState
    registered_at: datetime
    reached_at: datetime | None
    correlation_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """How the last execution ended; ``reason`` is None after a success."""

    execution_id: str
    status: int | None
    reason: CallFailure | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRequest:
    """The request of a service call. Values of headers that may be secrets read ``[redacted]``.

    ``body`` is None in lists, which leave it out; ``body_bytes`` is its length as JSON text.
    """

    method: Method
    url: str | None
    target: Target | None
    headers: Mapping[str, str] | None = field(repr=False)
    body_bytes: int
    body: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall:
    """``attempts`` counts executions begun. ``expires_at``: when a finished call that is not starred is removed.

    ``execution_id`` is of the execution that is in flight, ``rerun_of`` the call that this one repeats.
    """

    id: str
    tenant_id: str
    name: str
    status: CallStatus
    revision: int
    created_at: datetime
    updated_at: datetime
    due_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    attempts: int
    next_attempt_at: datetime | None
    execution_id: str | None
    outcome: CallOutcome | None
    tags: tuple[str, ...]
    starred: bool
    correlation_id: str
    idempotency_key: str | None
    rerun_of: str | None
    timer: CallTimer
    timeout: timedelta = field(metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    retry_policy: RetryPolicy
    request: CallRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class NewServiceCall:
    """A service call to submit, as ``submit`` takes it. Without ``idempotency_key`` the client makes one.

    One of ``url`` and ``target`` is needed. ``method`` None: GET; a target has none.
    """

    name: str
    url: str | None = None
    target: Target | None = None
    method: Method | str | None = None
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    body: Any = field(default=None, repr=False)
    due_at: datetime | None = None
    delay: timedelta | None = None
    tags: tuple[str, ...] | list[str] | None = None
    starred: bool = False
    idempotency_key: str | None = None
    timeout: timedelta | None = field(default=None, metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    retry_policy: RetryPolicy | None = None
    correlation_id: str | None = None


class CallChange(TypedDict, total=False):
    """What is to be changed of a service call, as arguments: what is not given stays, None clears."""

    url: str | None
    target: Target | None
    method: Method | str | None
    headers: Mapping[str, str] | None
    body: Any
    due_at: datetime | None
    delay: timedelta | None
    tags: tuple[str, ...] | list[str] | None
    starred: bool


class CallArguments(CallChange, total=False):
    """``NewServiceCall``, as arguments of methods; but for its name."""

    idempotency_key: str | None
    timeout: timedelta | None
    retry_policy: RetryPolicy | None
    correlation_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    name: str
    value: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class SentRequest:
    """A request as it was sent, redacted. ``body`` is None in lists, and what is too long is cut."""

    method: Method
    url: str
    headers: tuple[Header, ...]
    body_bytes: int
    body_truncated: bool
    body_is_base64: bool
    body: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedResponse:
    """What came back; the rest is as for ``SentRequest``."""

    status: int
    headers: tuple[Header, ...]
    body_bytes: int
    body_truncated: bool
    body_is_base64: bool
    body: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One attempt of a service call. ``response`` is None when there was none.

    ``deadline_at``: when it ends as timed out if it is unreported until then; then it has no ``duration``.
    """

    id: str
    service_call_id: str
    tenant_id: str
    number: int
    status: ExecutionStatus
    started_at: datetime
    finished_at: datetime | None
    duration: timedelta | None = field(metadata={"json": "durationMs", "unit": _MILLISECONDS})
    deadline_at: datetime
    request: SentRequest
    response: ReceivedResponse | None
    reason: CallFailure | None
    message: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CallEvent:
    """``sequence`` counts the events of the service call ``aggregate_id`` from 1 without gaps: their order."""

    id: str
    type: EventType
    tenant_id: str
    aggregate_id: str
    sequence: int
    occurred_at: datetime
    correlation_id: str
    causation_id: str | None
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EventWebhook:
    """``event_types`` is None for all types. ``revision`` counts changes of its secrets too."""

    url: str
    event_types: tuple[EventType, ...] | None
    enabled: bool
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An event on its way to the webhook; one that has failed is a dead letter. ``id`` is what is redriven."""

    id: str
    event_id: str
    type: EventType | None
    service_call_id: str | None
    sequence: int | None
    state: TimerState
    attempts: int
    created_at: datetime
    updated_at: datetime
    next_attempt_at: datetime | None
    delivered_at: datetime | None
    failure: Failure | None
