"""Errors as RFC 9457 problems: the one mapping from ``DuetimeError`` to HTTP."""

from __future__ import annotations

import math
from typing import Annotated

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from duetime.api.http.errors import (
    AdvanceUnfinished,
    ApiKeyNotFound,
    CrossSiteRequest,
    DuplicateId,
    EventWebhookNotFound,
    FieldError,
    Forbidden,
    IdempotencyKeyInUse,
    IdempotencyKeyReused,
    InvalidFields,
    MethodNotAllowed,
    ResponseNotKept,
    RouteNotFound,
    TenantNotFound,
    TooManyStreams,
    Unauthenticated,
    UnknownHost,
    UnsupportedMediaType,
)
from duetime.api.http.request import Reply
from duetime.api.http.responses import ResponseModel, encode_ascii
from duetime.delivery.encryption import SecretUnavailable
from duetime.domain.errors import (
    AttemptInFlight,
    CalendarMissing,
    CalendarNotFound,
    CallConflict,
    CallFinished,
    CallNotFinished,
    CallNotFound,
    CallRunning,
    CallUnreadable,
    DuetimeError,
    ExecutionNotFound,
    FiringNotWaiting,
    FiringOver,
    InvalidInput,
    NamespaceConflict,
    NamespaceDeleting,
    NamespaceNotEmpty,
    NamespaceNotFound,
    NamespaceResharding,
    NamespaceUnreadable,
    PayloadTooLarge,
    RevisionMismatch,
    ScheduleConflict,
    ScheduleEnded,
    ScheduleNotFound,
    ScheduleUnreadable,
    SecretNotFound,
    SecretRotationInProgress,
    SecretShownOnce,
    StoreNotReady,
    StoreRefused,
    StoreUnavailable,
    TimerConflict,
    TimerFinished,
    TimerNotFailed,
    TimerNotFound,
    TimerUnreadable,
)

PROBLEM_JSON = "application/problem+json"
MAX_FIELD_ERRORS = 50
"""A body of nothing but mistakes does not deserve an answer as long as itself."""

# The first class that fits counts, so special ones come first.
_KINDS: tuple[tuple[type[DuetimeError], int, str], ...] = (
    (PayloadTooLarge, 413, "Content too large"),
    (InvalidInput, 400, "Invalid request"),
    (Unauthenticated, 401, "Unauthenticated"),
    (Forbidden, 403, "Forbidden"),
    (CrossSiteRequest, 403, "Cross-site request"),
    (RouteNotFound, 404, "Not found"),
    (TenantNotFound, 404, "Tenant not found"),
    (ApiKeyNotFound, 404, "API key not found"),
    (EventWebhookNotFound, 404, "Event webhook not found"),
    (NamespaceNotFound, 404, "Namespace not found"),
    (TimerNotFound, 404, "Timer not found"),
    (ScheduleNotFound, 404, "Schedule not found"),
    (CalendarNotFound, 404, "Calendar not found"),
    (SecretNotFound, 404, "Secret not found"),
    (CallNotFound, 404, "Service call not found"),
    (ExecutionNotFound, 404, "Execution not found"),
    (MethodNotAllowed, 405, "Method not allowed"),
    (NamespaceConflict, 409, "Namespace conflict"),
    (TimerConflict, 409, "Timer conflict"),
    (ScheduleConflict, 409, "Schedule conflict"),
    (ScheduleEnded, 409, "Schedule ended"),
    (ScheduleUnreadable, 409, "Schedule unreadable"),
    (CalendarMissing, 409, "Calendar missing"),
    (TimerFinished, 409, "Timer finished"),
    (TimerNotFailed, 409, "Timer not failed"),
    (TimerUnreadable, 409, "Timer unreadable"),
    (AttemptInFlight, 409, "Attempt in flight"),
    (FiringOver, 409, "Firing over"),
    (FiringNotWaiting, 409, "Firing not waiting"),
    (NamespaceDeleting, 409, "Namespace deleting"),
    (NamespaceNotEmpty, 409, "Namespace not empty"),
    (NamespaceUnreadable, 409, "Namespace unreadable"),
    (CallUnreadable, 409, "Service call unreadable"),
    (SecretRotationInProgress, 409, "Secret rotation in progress"),
    (SecretShownOnce, 409, "Secret shown once"),
    (IdempotencyKeyReused, 409, "Idempotency key reused"),
    (IdempotencyKeyInUse, 409, "Idempotency key in use"),
    (ResponseNotKept, 409, "Response not kept"),
    (DuplicateId, 409, "Duplicate id"),
    (CallConflict, 409, "Service call conflict"),
    (CallFinished, 409, "Service call finished"),
    (CallRunning, 409, "Service call running"),
    (CallNotFinished, 409, "Service call not finished"),
    (RevisionMismatch, 412, "Revision mismatch"),
    (UnsupportedMediaType, 415, "Unsupported media type"),
    (UnknownHost, 421, "Unknown host"),
    (NamespaceResharding, 503, "Namespace resharding"),
    (SecretUnavailable, 503, "Secrets unavailable"),
    (TooManyStreams, 503, "Too many streams"),
    (AdvanceUnfinished, 503, "Advance unfinished"),
    (StoreNotReady, 503, "Store not ready"),
    (StoreUnavailable, 503, "Store unavailable"),
    (StoreRefused, 507, "Refused by the store"),
)
_INTERNAL = (500, "Internal error")
_NOT_READY_RETRY_SECONDS = 5
_NOT_WAITING_RETRY_SECONDS = 1
"""A response is recorded within tens of milliseconds."""


def status_of(error: Exception) -> int:
    return _kind(error)[0]


class FieldProblem(ResponseModel):
    field: Annotated[str, Meta(description="the path of the value as it was sent, e.g. retryPolicy.maxAttempts")]
    message: str


class Problem(ResponseModel):
    """RFC 9457. ``code`` is stable; ``errors`` is there when the input is at fault."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] | UnsetType = UNSET
    request_id: Annotated[str | UnsetType, Meta(description="not in the items of a batch")] = UNSET


def problem(error: Exception) -> Problem:
    """The problem object. An error that is not ours to explain tells nothing of the inside."""
    status, title = _kind(error)
    is_known = status != _INTERNAL[0] and isinstance(error, DuetimeError)
    code = error.code if isinstance(error, DuetimeError) else DuetimeError.code
    return Problem(
        type=f"urn:duetime:problem:{code}",
        title=title,
        status=status,
        detail=_detail(error) if is_known else "the request could not be served; it is not the caller's fault",
        code=code,
        errors=_field_problems(error) if isinstance(error, InvalidInput) else UNSET,
    )


def _field_problems(error: InvalidInput) -> list[FieldProblem]:
    return [FieldProblem(field=each.field, message=each.message) for each in _field_errors(error)]


def problem_reply(error: Exception, *, request_id: str) -> Reply:
    described = replace(problem(error), request_id=request_id)
    headers = {}
    if isinstance(error, MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    elif isinstance(error, Unauthenticated):
        # RFC 6750: the error is named to those alone who showed a key.
        headers["www-authenticate"] = 'Bearer realm="duetime"' + (
            ', error="invalid_token"' if error.was_given else ""
        )
    elif isinstance(error, StoreUnavailable | NamespaceResharding):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_seconds)))
    elif isinstance(error, FiringNotWaiting):
        headers["retry-after"] = str(_NOT_WAITING_RETRY_SECONDS)
    elif isinstance(error, IdempotencyKeyInUse):
        headers["retry-after"] = str(error.retry_after_seconds)
    elif isinstance(error, StoreNotReady | TooManyStreams):
        headers["retry-after"] = str(_NOT_READY_RETRY_SECONDS)
    # ASCII: a field name may hold anything, even what has no UTF-8 form.
    return Reply(status=described.status, body=encode_ascii(described), content_type=PROBLEM_JSON, headers=headers)


def _kind(error: Exception) -> tuple[int, str]:
    for kind, status, title in _KINDS:
        if isinstance(error, kind):
            return status, title
    return _INTERNAL


def _detail(error: Exception) -> str:
    # What the store says names servers and databases: that is for the log.
    if isinstance(error, StoreUnavailable):
        return "the store does not answer for now: the same request may succeed later"
    if isinstance(error, StoreNotReady):
        return "the store is not ready for this version of the service"
    if not isinstance(error, InvalidInput):
        return str(error)
    first = _field_errors(error)[0]
    return f"{first.field}: {first.message}" if first.field else first.message


def _field_errors(error: InvalidInput) -> list[FieldError]:
    if isinstance(error, InvalidFields):
        return list(error.errors[:MAX_FIELD_ERRORS])
    return [FieldError(error.field, error.message)]
