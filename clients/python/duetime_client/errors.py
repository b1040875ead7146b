"""What can go wrong for a user of the client. Nothing but the standard library is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


class DuetimeError(Exception):
    """The root of all errors of the client."""


class InvalidArgument(DuetimeError, ValueError):
    """A call that cannot succeed, like one with a time without an offset. Nothing was sent."""


class Unreachable(DuetimeError):
    """No answer. ``may_have_been_done`` is false when the request never reached a server.

    ``request_id`` finds it in the server's log, if it got there.
    """

    def __init__(self, message: str, *, may_have_been_done: bool = True, request_id: str | None = None) -> None:
        super().__init__(message)
        self.may_have_been_done = may_have_been_done
        self.request_id = request_id


class UnexpectedAnswer(DuetimeError):
    """An answer, but none that Duetime gives: the URL may lead to something else."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class FieldError:
    """``field`` is the path of a value as it was sent: ``retryPolicy.maxAttempts``, ``tags[3]``."""

    field: str
    message: str


class ApiError(DuetimeError):
    """The API has refused, or cannot now.

    ``code`` is stable (``timer_not_found``), ``detail`` is for people, ``request_id`` is in the server's log.
    ``retry_after`` is what the server asks for, ``errors`` are the faulty values of an ``InvalidRequest``.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        code: str = "",
        detail: str = "",
        request_id: str | None = None,
        retry_after: timedelta | None = None,
        errors: tuple[FieldError, ...] = (),
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.detail = detail
        self.request_id = request_id
        self.retry_after = retry_after
        self.errors = errors


class InvalidRequest(ApiError):
    """400, 413, 415: ``errors`` says which values are at fault. Nothing was stored."""


class Unauthenticated(ApiError):
    """401: no API key, or none that is good."""


class Forbidden(ApiError):
    """403: the role of the API key is not enough; ``detail`` names the one that is. 421: a server without keys is not
    known by the name in the URL."""


class NotFound(ApiError):
    """404: it does not exist, or belongs to another tenant; ``code`` says what."""


class Conflict(ApiError):
    """409: what is there stands against it; ``code`` says how."""


class PreconditionFailed(ApiError):
    """412: the revision is another one, or the timer exists already."""


class Throttled(ApiError):
    """429: too many requests."""


class Unavailable(ApiError):
    """502, 503, 504: it may succeed later."""


class ServerError(ApiError):
    """Any other 5xx: it is not the caller's fault, and ``request_id`` finds it in the log."""


_FAMILIES: Mapping[int, type[ApiError]] = {
    400: InvalidRequest,
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    412: PreconditionFailed,
    413: InvalidRequest,
    415: InvalidRequest,
    421: Forbidden,
    429: Throttled,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


def error_from(problem: object, *, status: int, retry_after: timedelta | None = None) -> ApiError:
    """Make the error of the JSON of a problem (RFC 9457), or of a gateway's own words (``{"message": ...}``), or of
    none."""
    members: Mapping[str, Any] = problem if isinstance(problem, dict) else {}
    code = _text(members.get("code"))
    detail = _text(members.get("detail")) or _text(members.get("message"))
    errors = _field_errors(members.get("errors"))
    request_id = _text(members.get("requestId")) or None
    said = "; ".join(f"{each.field}: {each.message}" for each in errors) if len(errors) > 1 else detail
    facts = [f"HTTP {status}", *filter(None, [code, request_id and f"request {request_id}"])]
    family = _FAMILIES.get(status, ServerError if status >= 500 else ApiError)
    return family(
        f"{said or 'without a word'} ({', '.join(facts)})",
        status=status,
        code=code,
        detail=detail,
        request_id=request_id,
        retry_after=retry_after,
        errors=errors,
    )


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _field_errors(value: object) -> tuple[FieldError, ...]:
    items = value if isinstance(value, list) else []
    return tuple(
        FieldError(_text(item.get("field")), _text(item.get("message"))) for item in items if isinstance(item, dict)
    )
