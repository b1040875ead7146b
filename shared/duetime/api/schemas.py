"""What a request may hold. The OpenAPI document is generated from these same models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    PlainValidator,
    WithJsonSchema,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from duetime.api.http import validators as fields
from duetime.api.http.raw_json import RawJson, Shape
from duetime.domain.api_keys import MAX_KEY_NAME_CHARACTERS, check_key_name
from duetime.domain.ids import MAX_TIMER_ID_CHARACTERS
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, MAX_NUM_SHARDS, Misfire
from duetime.domain.principals import Role
from duetime.domain.retry import DEFAULT_RETRY_POLICY, MAX_ATTEMPTS, MIN_INTERVAL_SECONDS
from duetime.domain.service_calls import ONE_ATTEMPT
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    MAX_CALLBACK_TIMEOUT_SECONDS,
    FailureReason,
    TimerState,
)

MAX_BATCH_ITEMS = 500
MAX_PAGE_ITEMS = 500
DEFAULT_PAGE_ITEMS = 50
DEFAULT_REDRIVE_ITEMS = 100
MAX_CURSOR_CHARACTERS = 8192
MAX_REVISION = 2**63 - 1
MAX_NAMESPACE_IN_FLIGHT = 100_000
MIN_RATE_LIMIT = 0.001
MAX_RATE_LIMIT = 100_000


class RawSchema:
    """Tells pydantic to take a RawJson as it is."""

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.is_instance_schema(RawJson)


_INSTANT_SCHEMA = {"type": "string", "format": "date-time", "examples": ["2026-12-20T15:30:00Z"]}
_DURATION_SCHEMA = {
    "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
    "examples": ["1h30m", "PT5M", 90],
}
_INTERVAL_SCHEMA = _DURATION_SCHEMA | {
    "anyOf": [{"type": "string"}, {"type": "number", "minimum": MIN_INTERVAL_SECONDS}],
    "description": "at least 100ms",
}


def _retry_policy_schema(max_attempts: int) -> dict[str, Any]:
    """``max_attempts``: when it is omitted."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "maxAttempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS, "default": max_attempts},
            "maxAttemptsDuration": _DURATION_SCHEMA
            | {"default": "24h", "description": "from the first attempt, or a later redrive"},
            "initialInterval": _INTERVAL_SCHEMA | {"default": "2s"},
            "backoffMultiplier": {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "maxInterval": _INTERVAL_SCHEMA | {"default": "1h"},
        },
    }


_HEADERS_SCHEMA = {
    "type": "object",
    "maxProperties": fields.MAX_HEADERS,
    "additionalProperties": {"type": "string"},
    "description": "sent with every callback; framing, connection and webhook- headers are refused",
}
_TAGS_SCHEMA = {
    "type": "array",
    "maxItems": fields.MAX_TAGS,
    "uniqueItems": True,
    "items": {"type": "string", "minLength": 1, "maxLength": fields.MAX_TAG_CHARACTERS},
}
_PAYLOAD_SCHEMA = {"description": "any JSON, at most 256 KiB; delivered as the exact text that was sent"}

Instant = Annotated[datetime, PlainValidator(fields.instant), WithJsonSchema(_INSTANT_SCHEMA)]
Duration = Annotated[float, PlainValidator(fields.duration_seconds), WithJsonSchema(_DURATION_SCHEMA)]
ExpireAfter = Annotated[int, PlainValidator(fields.expire_after_ms), WithJsonSchema(_DURATION_SCHEMA)]
Overlap = Annotated[float, PlainValidator(fields.overlap_seconds), WithJsonSchema(_DURATION_SCHEMA)]
KeySeconds = Annotated[float, PlainValidator(fields.key_seconds), WithJsonSchema(_DURATION_SCHEMA)]
KeyName = Annotated[
    str,
    AfterValidator(check_key_name),
    WithJsonSchema({"type": "string", "maxLength": MAX_KEY_NAME_CHARACTERS}),
]
CallbackUrl = Annotated[
    str,
    AfterValidator(fields.callback_url),
    WithJsonSchema({"type": "string", "format": "uri", "maxLength": fields.MAX_URL_CHARACTERS}),
]
Payload = Annotated[RawJson, RawSchema, WithJsonSchema(_PAYLOAD_SCHEMA)]
Headers = Annotated[RawJson, RawSchema, AfterValidator(fields.headers), WithJsonSchema(_HEADERS_SCHEMA)]
RetryPolicy = Annotated[
    RawJson,
    RawSchema,
    AfterValidator(fields.retry_policy),
    WithJsonSchema(_retry_policy_schema(DEFAULT_RETRY_POLICY.max_attempts)),
]
CallRetryPolicy = Annotated[
    RawJson,
    RawSchema,
    AfterValidator(fields.retry_policy),
    WithJsonSchema(_retry_policy_schema(ONE_ATTEMPT.max_attempts)),
]
CallbackTimeout = Annotated[int, Field(ge=1, le=MAX_CALLBACK_TIMEOUT_SECONDS)]
CorrelationId = Annotated[
    str,
    AfterValidator(fields.correlation_id),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": fields.MAX_CORRELATION_ID_CHARACTERS}),
]
Tags = Annotated[list[str], AfterValidator(fields.tags), WithJsonSchema(_TAGS_SCHEMA)]
TimerId = Annotated[str, Field(json_schema_extra={"minLength": 1, "maxLength": MAX_TIMER_ID_CHARACTERS})]


class Body(BaseModel):
    """Strict: no value is coerced, no unknown member is passed over. Built when first used (cold start)."""

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        defer_build=True,
        hide_input_in_errors=True,
    )


class TimerBody(Body):
    """A timer to create. Exactly one of ``executeAt`` and ``delay`` is required."""

    id: TimerId | None = Field(default=None, description="a UUIDv7 is made when it is omitted")
    execute_at: Instant | None = Field(default=None, description="a past time is due at once")
    delay: Duration | None = Field(default=None, description="the due time, counted from now")
    callback_url: CallbackUrl
    payload: Payload | None = None
    headers: Headers | None = None
    retry_policy: RetryPolicy | None = None
    callback_timeout_seconds: CallbackTimeout | None = Field(
        default=None, description=f"{DEFAULT_CALLBACK_TIMEOUT_SECONDS} when it is omitted"
    )
    expire_after: ExpireAfter | None = Field(
        default=None, description="no attempt is begun later than this after the due time; whole milliseconds"
    )
    correlation_id: CorrelationId | None = None
    tags: Tags | None = None


class TimerPatch(Body):
    """A JSON merge patch: what is omitted stays, null clears. ``executeAt`` and ``callbackUrl`` cannot be cleared."""

    execute_at: Instant = Field(default=None)  # type: ignore[assignment]  # omitted; null is refused
    delay: Duration = Field(default=None)  # type: ignore[assignment]
    callback_url: CallbackUrl = Field(default=None)  # type: ignore[assignment]
    payload: Payload | None = None
    headers: Headers | None = None
    retry_policy: RetryPolicy | None = None
    callback_timeout_seconds: CallbackTimeout | None = None
    expire_after: ExpireAfter | None = None
    correlation_id: CorrelationId | None = None
    tags: Tags | None = None


class NamespaceBody(Body):
    """What is omitted is as it is, or has its default when the namespace is new. Shards never change."""

    num_shards: Annotated[int, Field(ge=1, le=MAX_NUM_SHARDS)] | None = Field(
        default=None,
        description=f"when omitted for a new namespace, what the deployment sets: {DEFAULT_NUM_SHARDS} by default",
    )
    dedicated: bool | None = Field(default=None, description="a range of shards of its own")
    retry_policy: RetryPolicy | None = Field(
        default=None, description="for the timers that have none of their own; null for the default"
    )
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_NAMESPACE_IN_FLIGHT)] | None = Field(
        default=None, description="callbacks that may be under way at once; null for no limit of its own"
    )
    rate_limit: Annotated[float, Field(ge=MIN_RATE_LIMIT, le=MAX_RATE_LIMIT, allow_inf_nan=False)] | None = Field(
        default=None, description="attempts started per second; null for no limit"
    )
    misfire: Annotated[Misfire, Field(strict=False)] | None = Field(
        default=None,
        description="what becomes of timers that came due while the namespace was paused: fire, which is the"
        " default, or expire",
    )


class PauseBody(Body):
    """Why nothing is to be fired, for people."""

    reason: Annotated[str, Field(min_length=1, max_length=255)] | None = None


class DeleteNamespaceQuery(Body):
    force: bool = Field(default=False, strict=False, description="whether its timers are deleted with it")


class SecretBody(Body):
    """A signing secret to create. The one before it stays valid for the overlap."""

    secret: str | None = Field(
        default=None,
        description="whsec_ and the base64 of 24 to 64 bytes; one is made when it is omitted",
        repr=False,
    )
    overlap: Overlap | None = Field(
        default=None, description="how long the secret before this one stays valid; 24h when it is omitted"
    )


class ApiKeyBody(Body):
    """An API key to create. At most one of ``expiresAt`` and ``expiresIn``; without either it never expires."""

    role: Annotated[Role, Field(strict=False)] = Field(description="a writer may do what a reader may, an admin all")
    name: KeyName | None = Field(default=None, description="for people: what the key is for")
    expires_at: Instant | None = None
    expires_in: KeySeconds | None = Field(default=None, description="the end, counted from now")


class CancelItem(Body):
    """One timer to cancel, in whatever revision it is or in this one only."""

    id: str
    revision: Annotated[int, Field(ge=1, le=MAX_REVISION)] | None = None


Limit = Annotated[
    int,
    PlainValidator(fields.whole_number(1, MAX_PAGE_ITEMS)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ITEMS}),
]
"""In a query string."""


class PageQuery(Body):
    limit: Limit = DEFAULT_PAGE_ITEMS
    cursor: Annotated[str, Field(min_length=1, max_length=MAX_CURSOR_CHARACTERS)] | None = None


class TimerQuery(PageQuery):
    state: Annotated[TimerState, Field(strict=False)] | None = None
    tag: Annotated[str, AfterValidator(fields.tag)] | None = None
    due_from: Instant | None = Field(default=None, description="inclusive")
    due_to: Instant | None = Field(default=None, description="exclusive")
    correlation_id: CorrelationId | None = None
    reason: Annotated[FailureReason, Field(strict=False)] | None = Field(
        default=None, description="of the last failed attempt"
    )


class NothingBody(Body):
    """No members: what is asked for is in the path."""


class RedriveBody(Body):
    """Which failed timers: those that fit all filters given, a page of them, or ``ids``, which go without filters."""

    reason: Annotated[FailureReason, Field(strict=False)] | None = None
    tag: Annotated[str, AfterValidator(fields.tag)] | None = None
    correlation_id: CorrelationId | None = None
    due_from: Instant | None = Field(default=None, description="inclusive")
    due_to: Instant | None = Field(default=None, description="exclusive")
    failed_from: Instant | None = Field(default=None, description="inclusive")
    failed_to: Instant | None = Field(default=None, description="exclusive")
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] | None = Field(
        default=None, description=f"the most timers that this call redrives; {DEFAULT_REDRIVE_ITEMS} by default"
    )
    cursor: Annotated[str, Field(min_length=1, max_length=MAX_CURSOR_CHARACTERS)] | None = Field(
        default=None, description="nextCursor of the call before, with the same filters"
    )
    ids: Annotated[list[str], Field(max_length=MAX_BATCH_ITEMS)] | None = None


class TimerBatch(Body):
    """Timers to create. Each is accepted or refused alone."""

    timers: Annotated[list[TimerBody], Field(max_length=MAX_BATCH_ITEMS)]


class CancelBatch(Body):
    """Timers to cancel. With ``revision`` only if the timer still has it."""

    timers: Annotated[list[CancelItem], Field(max_length=MAX_BATCH_ITEMS)]


TIMER_SHAPE = Shape(opaque=frozenset({"payload", "headers", "retryPolicy"}))
TIMERS_SHAPE = Shape(opaque=TIMER_SHAPE.opaque, items="timers")
NAMESPACE_SHAPE = Shape(opaque=frozenset({"retryPolicy"}))
PLAIN_SHAPE = Shape()
PLAIN_ITEMS_SHAPE = Shape(items="timers")
