"""Errors that only HTTP knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from duetime.domain.errors import DuetimeError, InvalidInput
from duetime.domain.principals import Role


@dataclass(frozen=True, slots=True)
class FieldError:
    """``field`` is the path of the value as the caller wrote it, e.g. ``tags[3]``; empty for the whole input."""

    field: str
    message: str


class InvalidFields(InvalidInput):
    """Several values of one request are not acceptable; ``errors`` has them all, the first one is ``field``."""

    def __init__(self, errors: Sequence[FieldError]) -> None:
        first = errors[0]
        super().__init__(first.field, first.message)
        self.errors = tuple(errors)


class RouteNotFound(DuetimeError):
    code = "route_not_found"


class MethodNotAllowed(DuetimeError):
    """The path exists, with other methods."""

    code = "method_not_allowed"

    def __init__(self, message: str, *, allowed: Sequence[str]) -> None:
        super().__init__(message)
        self.allowed = tuple(allowed)


class Unauthenticated(DuetimeError):
    """No API key, or none that is good. ``was_given`` says whether one came with the request."""

    code = "unauthenticated"

    def __init__(self, message: str, *, was_given: bool) -> None:
        super().__init__(message)
        self.was_given = was_given


class Forbidden(DuetimeError):
    """The API key is good, and its role is not enough."""

    code = "forbidden"

    def __init__(self, needed: Role) -> None:
        super().__init__(f"this needs an API key with the role {needed}")
        self.needed = needed


class TenantNotFound(DuetimeError):
    """The path is not of the tenant of the API key; whether there is anything at it is not said."""

    code = "tenant_not_found"

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"there is no tenant {tenant_id!r} for this API key")


class ApiKeyNotFound(DuetimeError):
    code = "api_key_not_found"

    def __init__(self, key_id: str) -> None:
        super().__init__(f"the tenant has no API key {key_id!r}")


class EventWebhookNotFound(DuetimeError):
    code = "event_webhook_not_found"

    def __init__(self, tenant_id: str) -> None:
        super().__init__(f"tenant {tenant_id!r} has set no event webhook")


class TooManyStreams(DuetimeError):
    """As many clients follow events as this process serves at once; there may be room soon."""

    code = "too_many_streams"


class AdvanceUnfinished(DuetimeError):
    """A virtual clock could not be moved in the time that a request may take: it stands where it got to."""

    code = "advance_unfinished"


class UnknownHost(DuetimeError):
    """The ``Host`` of the request is none of this server's names."""

    code = "unknown_host"

    def __init__(self, host: str) -> None:
        super().__init__(
            f"this server is not known by the name {host!r}, which a page in a browser could have made up: use its"
            " address, or have its operator name it by --allowed-hosts"
        )


class CrossSiteRequest(DuetimeError):
    """A page of another site has made the request, in the browser of somebody who need not know."""

    code = "cross_site_request"

    def __init__(self) -> None:
        super().__init__("requests of other sites' pages are not served without an API key")


class IdempotencyKeyReused(DuetimeError):
    """The key was used before, with another request."""

    code = "idempotency_key_reused"

    def __init__(self) -> None:
        super().__init__("the idempotency key was used before, for another request: use a new key")


class IdempotencyKeyInUse(DuetimeError):
    """The first request with this key is being carried out."""

    code = "idempotency_key_in_use"

    def __init__(self, *, retry_after_seconds: int) -> None:
        super().__init__("the first request with this idempotency key is being carried out")
        self.retry_after_seconds = retry_after_seconds


class ResponseNotKept(DuetimeError):
    """It was carried out before, and its response was too long to be kept."""

    code = "response_not_kept"

    def __init__(self) -> None:
        super().__init__("the request was carried out before; its response was too long to be kept")


class UnsupportedMediaType(DuetimeError):
    code = "unsupported_media_type"


class DuplicateId(DuetimeError):
    """A batch has two items for one thing; the first one counts."""

    code = "duplicate_id"
