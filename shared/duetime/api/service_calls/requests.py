"""Requests about service calls: what they may hold."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from duetime.api.http import validators
from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.raw_json import Shape
from duetime.api.http.request_models import (
    EXAMPLE_TARGET,
    WITH_TARGET,
    CallbackUrl,
    CorrelationId,
    Duration,
    Instant,
    Limit,
    PageQuery,
    RequestModel,
    RetryPolicy,
    Revision,
    Tags,
    TargetBody,
    all_of,
    any_case,
    at_most_one_of,
    given,
    headers_schema,
    one_of,
    shape_of,
    some_of,
    text_schema,
)
from duetime.api.service_calls import validators as call_validators
from duetime.domain.service_calls import (
    DEFAULT_TIMEOUT_SECONDS,
    MAX_NAME_CHARACTERS,
    MAX_TIMEOUT_SECONDS,
    CallStatus,
    Method,
)

DEFAULT_EVENTS = 100

_HEADERS_SCHEMA = headers_schema("headers of framing and of the connection, and x-correlation-id, are refused")
_BODY_SCHEMA = {
    "description": "any JSON, at most 256 KiB: a string is sent as its text, any other value as the JSON text given"
}
_KEY_SCHEMA = {"type": "string", "pattern": validators.HEADER_TEXT_PATTERN}

Name = Annotated[str, AfterValidator(call_validators.name), WithJsonSchema(text_schema(MAX_NAME_CHARACTERS))]
Headers = Annotated[str, AfterValidator(call_validators.headers), WithJsonSchema(_HEADERS_SCHEMA)]
RequestBody = Annotated[str, WithJsonSchema(_BODY_SCHEMA)]
HttpMethod = Annotated[Method, Field(strict=False)]
IdempotencyKey = Annotated[str, AfterValidator(validators.header_text), WithJsonSchema(_KEY_SCHEMA)]
CallId = Annotated[str, WithJsonSchema({"type": "string", "format": "uuid"})]
TimeoutSeconds = Annotated[int, Field(ge=1, le=MAX_TIMEOUT_SECONDS)]

_EXAMPLE_REQUEST: dict[str, Any] = {
    "method": "POST",
    "url": "https://billing.example.com/invoices/2026-11",
    "headers": {"Authorization": "Bearer ...", "Content-Type": "application/json"},
    "body": {"customer": 4711, "amount": 12.5},
}


_MESSAGE: Final = {
    "not": {
        "allOf": [
            given("target"),
            {
                "anyOf": [
                    {"properties": {"body": {"not": {"type": "object"}}}},
                    {"required": ["method"], "properties": {"method": {"not": {"enum": ["POST", None]}}}},
                ]
            },
        ]
    }
}
"""A target takes an object, by POST."""
_ONE_DESTINATION: Final = at_most_one_of("url", "target"), at_most_one_of("target", "headers")


class CallRequest(RequestModel):
    """The HTTP request to be sent: ``method`` and ``url``. Or the message to a ``target``: its body is an object."""

    model_config = ConfigDict(
        json_schema_extra=all_of(one_of("url", "target"), some_of("method", "target"), _MESSAGE, *_ONE_DESTINATION)
        | {"examples": [_EXAMPLE_REQUEST, {"target": EXAMPLE_TARGET, "body": {"customer": 4711}}]}
    )

    method: HttpMethod | None = Field(default=None, description="required with url; POST with target")
    url: CallbackUrl | None = None
    target: TargetBody | None = Field(default=None, description="in the place of url; takes no headers")
    headers_json: Headers | None = None
    body_json: RequestBody | None = None


class CallRequestPatch(RequestModel):
    """What is omitted of the request stays; null removes headers or body, each as a whole. ``target`` takes the
    place of method, URL and headers, ``url`` that of the target."""

    model_config = ConfigDict(json_schema_extra=all_of(*_ONE_DESTINATION))

    method: HttpMethod = Field(default=None)  # type: ignore[assignment]  # omitted; null is refused
    url: CallbackUrl = Field(default=None)  # type: ignore[assignment]
    target: TargetBody = Field(default=None, description="takes no headers")  # type: ignore[assignment]
    headers_json: Headers | None = None
    body_json: RequestBody | None = None


class CallTemplateBody(RequestModel):
    """What is called, and how. Null is the default."""

    name: Name = Field(description="for people, and to list by its beginning")
    request: CallRequest
    tags: Tags | None = None
    starred: bool | None = None
    timeout_seconds: TimeoutSeconds | None = Field(
        default=None, description=f"of one execution; {DEFAULT_TIMEOUT_SECONDS} when it is omitted"
    )
    retry_policy_json: RetryPolicy | None = Field(
        default=None, description="one attempt when it, or its maxAttempts, is omitted"
    )
    correlation_id: CorrelationId | None = None


class ServiceCallBody(CallTemplateBody):
    """A service call to submit. At most one of ``dueAt`` and ``delay``; without either it is due now."""

    model_config = ConfigDict(
        json_schema_extra=at_most_one_of("dueAt", "delay")
        | {
            "examples": [
                {
                    "name": "invoice November",
                    "request": _EXAMPLE_REQUEST,
                    "dueAt": "2026-12-01T06:00:00+01:00",
                    "tags": ["invoices", "customer-4711"],
                    "idempotencyKey": "invoice-4711-2026-11",
                    "retryPolicy": {"maxAttempts": 3, "initialInterval": "30s"},
                },
                {"name": "ping", "request": {"method": "GET", "url": "https://example.com/"}},
            ]
        }
    )

    due_at: Instant | None = Field(default=None, description="a past time is due at once")
    delay: Duration | None = None
    idempotency_key: IdempotencyKey | None = Field(
        default=None, description="may be given as the header Idempotency-Key instead"
    )
    correlation_id: CorrelationId | None = Field(
        default=None, description="when it is omitted, the header X-Correlation-Id, or else a UUIDv7 that is made"
    )


class ServiceCallBatch(RequestModel):
    """Service calls to submit. Each is accepted or refused alone."""

    service_calls: Annotated[list[ServiceCallBody], Field(max_length=MAX_BATCH_ITEMS)]


class ServiceCallItem(RequestModel):
    """One service call to cancel or remove, in whatever revision it is or in this one only."""

    id: CallId
    revision: Revision | None = Field(default=None, description="in any revision when it is omitted")


class ServiceCallItemBatch(RequestModel):
    """Service calls to cancel or remove. With ``revision`` only if the call still has it."""

    service_calls: Annotated[list[ServiceCallItem], Field(max_length=MAX_BATCH_ITEMS)]


class ServiceCallPatch(RequestModel):
    """A merge patch: what is omitted stays. ``dueAt``, ``delay`` and ``request`` only while the call
    waits: while it is Scheduled, or between two attempts."""

    model_config = ConfigDict(
        json_schema_extra=at_most_one_of("dueAt", "delay")
        | {
            "examples": [
                {"starred": True, "tags": ["invoices"]},
                {"dueAt": "2026-12-02T06:00:00Z", "request": {"url": "https://billing.example.com/v2"}},
            ]
        }
    )

    name: Name = Field(default=None)  # type: ignore[assignment]  # omitted; null is refused
    tags: Tags | None = None
    starred: bool = Field(default=None)  # type: ignore[assignment]
    due_at: Instant = Field(default=None)  # type: ignore[assignment]
    delay: Duration = Field(default=None)  # type: ignore[assignment]
    request: CallRequestPatch = Field(default=None)  # type: ignore[assignment]


class RerunBody(RequestModel):
    """When to repeat a finished service call: now, unless ``dueAt`` or ``delay`` says otherwise."""

    model_config = ConfigDict(
        json_schema_extra=at_most_one_of("dueAt", "delay") | {"examples": [{}, {"delay": "1h"}]}
    )

    due_at: Instant | None = Field(default=None, description="a past time is due at once")
    delay: Duration | None = None
    idempotency_key: IdempotencyKey | None = Field(
        default=None, description="of the rerun; may be given as the header Idempotency-Key instead"
    )
    correlation_id: CorrelationId | None = Field(
        default=None, description="when it is omitted, the header X-Correlation-Id, or else that of the call"
    )


class CallQuery(PageQuery):
    """All conditions must hold."""

    status: Annotated[CallStatus, Field(strict=False), any_case(CallStatus)] | None = None
    tag: Tags | None = Field(default=None, description="can be repeated: calls that have all of these tags")
    created_from: Instant | None = None
    created_to: Instant | None = None
    name: Name | None = Field(default=None, description="the beginning of the name")
    starred: Annotated[bool, PlainValidator(call_validators.flag), WithJsonSchema({"type": "boolean"})] | None = None
    correlation_id: CorrelationId | None = None
    order: Literal["dueAt"] | None = Field(
        default=None, description="dueAt, with status=Scheduled: what comes next; the newest first when omitted"
    )
    due_to: Instant | None = Field(default=None, description="with order=dueAt: due before then")


_Sequence = Annotated[
    int,
    PlainValidator(call_validators.sequence),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": 10**15 - 1, "default": 0}),
]


class EventQuery(RequestModel):
    after: _Sequence = Field(default=0, description="events with a greater sequence than this")
    limit: Limit = DEFAULT_EVENTS


_OBJECTS: Final = {"request": shape_of(CallRequest, objects=WITH_TARGET)}
CALL_TEMPLATE_SHAPE: Final = shape_of(CallTemplateBody, objects=_OBJECTS)
CALL_SHAPE: Final = shape_of(ServiceCallBody, objects=_OBJECTS)
CALLS_SHAPE: Final = shape_of(ServiceCallBody, items="serviceCalls", objects=_OBJECTS)
PLAIN_CALLS_SHAPE: Final = Shape(items="serviceCalls")
