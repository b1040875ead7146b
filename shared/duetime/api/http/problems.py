"""Errors as RFC 9457 problems: the one mapping from ``DuetimeError`` to HTTP."""

from __future__ import annotations

import math
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from duetime.api.http import errors as http
from duetime.api.http.request import Reply
from duetime.api.http.responses import ResponseModel, encode_ascii
from duetime.delivery.encryption import SecretUnavailable
from duetime.domain import errors as domain
from duetime.domain.errors import DuetimeError

PROBLEM_JSON = "application/problem+json"
MAX_FIELD_ERRORS = 50
"""A body of nothing but mistakes does not deserve an answer as long as itself."""

_KINDS: Final[dict[int, tuple[type[DuetimeError], ...]]] = {
    413: (domain.PayloadTooLarge,),
    400: (domain.InvalidInput,),
    401: (http.Unauthenticated,),
    403: (http.Forbidden, http.CrossSiteRequest),
    404: (
        http.RouteNotFound,
        http.TenantNotFound,
        http.ApiKeyNotFound,
        http.EventWebhookNotFound,
        domain.NamespaceNotFound,
        domain.TimerNotFound,
        domain.ScheduleNotFound,
        domain.CalendarNotFound,
        domain.SecretNotFound,
        domain.CallNotFound,
        domain.ExecutionNotFound,
    ),
    405: (http.MethodNotAllowed,),
    409: (
        domain.NamespaceConflict,
        domain.TimerConflict,
        domain.ScheduleConflict,
        domain.ScheduleEnded,
        domain.ScheduleUnreadable,
        domain.CalendarMissing,
        domain.TimerFinished,
        domain.TimerNotFailed,
        domain.TimerUnreadable,
        domain.AttemptInFlight,
        domain.FiringOver,
        domain.FiringNotWaiting,
        domain.NamespaceDeleting,
        domain.NamespaceNotEmpty,
        domain.NamespaceUnreadable,
        domain.CallUnreadable,
        domain.SecretRotationInProgress,
        domain.SecretShownOnce,
        http.IdempotencyKeyReused,
        http.IdempotencyKeyInUse,
        http.ResponseNotKept,
        http.DuplicateId,
        domain.CallConflict,
        domain.CallFinished,
        domain.CallRunning,
        domain.CallNotFinished,
    ),
    412: (domain.RevisionMismatch,),
    415: (http.UnsupportedMediaType,),
    421: (http.UnknownHost,),
    429: (domain.StoreThrottled,),
    503: (
        domain.NamespaceResharding,
        SecretUnavailable,
        http.TooManyStreams,
        http.AdvanceUnfinished,
        domain.StoreNotReady,
        domain.StoreUnavailable,
    ),
    507: (domain.StoreRefused,),
}
_STATUSES: Final = {kind: status for status, kinds in _KINDS.items() for kind in kinds}
_TITLES: Final[dict[type[DuetimeError], str]] = {
    domain.PayloadTooLarge: "Content too large",
    domain.InvalidInput: "Invalid request",
    http.CrossSiteRequest: "Cross-site request",
    http.RouteNotFound: "Not found",
    http.ApiKeyNotFound: "API key not found",
    SecretUnavailable: "Secrets unavailable",
    domain.StoreRefused: "Refused by the store",
}
"""Where it is not what the code says."""
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
    """Return the problem object. An error that is not ours to explain tells nothing of the inside."""
    status, title = _kind(error)
    is_known = status != _INTERNAL[0] and isinstance(error, DuetimeError)
    code = error.code if isinstance(error, DuetimeError) else DuetimeError.code
    return Problem(
        type=f"urn:duetime:problem:{code}",
        title=title,
        status=status,
        detail=_detail(error) if is_known else "the request could not be served; it is not the caller's fault",
        code=code,
        errors=_field_problems(error) if isinstance(error, domain.InvalidInput) else UNSET,
    )


def _field_problems(error: domain.InvalidInput) -> list[FieldProblem]:
    return [FieldProblem(field=each.field, message=each.message) for each in _field_errors(error)]


def problem_reply(error: Exception, *, request_id: str) -> Reply:
    described = replace(problem(error), request_id=request_id)
    headers = {}
    if isinstance(error, http.MethodNotAllowed):
        headers["allow"] = ", ".join(error.allowed)
    elif isinstance(error, http.Unauthenticated):
        # RFC 6750: the error is named to those alone who showed a key.
        headers["www-authenticate"] = 'Bearer realm="duetime"' + (
            ', error="invalid_token"' if error.was_given else ""
        )
    elif isinstance(error, domain.StoreUnavailable | domain.NamespaceResharding):
        headers["retry-after"] = str(max(1, math.ceil(error.retry_after_seconds)))
    elif isinstance(error, domain.FiringNotWaiting):
        headers["retry-after"] = str(_NOT_WAITING_RETRY_SECONDS)
    elif isinstance(error, http.IdempotencyKeyInUse):
        headers["retry-after"] = str(error.retry_after_seconds)
    elif isinstance(error, domain.StoreNotReady | http.TooManyStreams):
        headers["retry-after"] = str(_NOT_READY_RETRY_SECONDS)
    # ASCII: a field name may hold anything, even what has no UTF-8 form.
    return Reply(status=described.status, body=encode_ascii(described), content_type=PROBLEM_JSON, headers=headers)


def _kind(error: Exception) -> tuple[int, str]:
    """Return the status and the title of the first class that has a status, from the error's own upwards."""
    for kind in type(error).__mro__:
        if issubclass(kind, DuetimeError) and (status := _STATUSES.get(kind)) is not None:
            return status, _TITLES.get(kind) or kind.code.replace("_", " ").capitalize()
    return _INTERNAL


def _detail(error: Exception) -> str:
    # What the store says names servers and databases: that is for the log.
    if isinstance(error, domain.StoreThrottled):
        return "the store takes fewer requests than it gets: the same request may succeed later"
    if isinstance(error, domain.StoreUnavailable):
        return "the store does not answer for now: the same request may succeed later"
    if isinstance(error, domain.StoreNotReady):
        return "the store is not ready for this version of the service"
    if not isinstance(error, domain.InvalidInput):
        return str(error)
    first = _field_errors(error)[0]
    return f"{first.field}: {first.message}" if first.field else first.message


def _field_errors(error: domain.InvalidInput) -> list[http.FieldError]:
    if isinstance(error, http.InvalidFields):
        return list(error.errors[:MAX_FIELD_ERRORS])
    return [http.FieldError(error.field, error.message)]
