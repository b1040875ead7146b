"""Request models: what all of them have in common. The OpenAPI document is generated from the same models."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from itertools import combinations
from typing import Annotated, Any, Final, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from duetime.api.http import validators
from duetime.api.http.raw_json import Shape
from duetime.domain.retry import DEFAULT_RETRY_POLICY, MAX_ATTEMPTS, MIN_INTERVAL_SECONDS
from duetime.domain.service_calls import ONE_ATTEMPT
from duetime.domain.targets import MAX_ARN_CHARACTERS
from duetime.domain.times import MAX_DURATION_CHARACTERS, MAX_DURATION_SECONDS, parse_duration

MAX_PAGE_ITEMS: Final = 500
DEFAULT_PAGE_ITEMS: Final = 50
MAX_COUNT: Final = 100
"""Of what one request computes or changes."""
MAX_CURSOR_CHARACTERS: Final = 8192

COMPONENT: Final = "x-component"
"""Names the component that the document makes of a schema which no model has."""
_INSTANT_SCHEMA: Final = {
    "type": "string",
    "format": "date-time",
    "pattern": "^(?:19[7-9][0-9]|[2-9][0-9]{3})-",
    "examples": ["2026-12-20T15:30:00Z"],
}
_URL_SCHEMA: Final = {
    "type": "string",
    "format": "uri",
    "maxLength": validators.MAX_URL_CHARACTERS,
    "description": "an absolute http or https URL in ASCII, without user information or fragment",
    "examples": ["https://shop.example.com/hooks/orders"],
}
EXAMPLE_TARGET: Final[dict[str, Any]] = {"arn": "arn:aws:sqs:eu-central-1:123456789012:orders"}
_ARN_SCHEMA: Final = {
    "type": "string",
    "format": "duetime-target-arn",
    "maxLength": MAX_ARN_CHARACTERS,
    "pattern": "^arn:aws[a-z-]*:(?:sqs|sns|events|lambda|states):",
    "description": "of an SQS queue, an SNS topic, an EventBridge bus, a Lambda function or a Step Functions state"
    " machine",
    "examples": [EXAMPLE_TARGET["arn"]],
}


def duration_schema(
    *, least_seconds: float = 0, most_seconds: float = MAX_DURATION_SECONDS, step_seconds: float | None = None
) -> dict[str, Any]:
    # Not the format "duration" of JSON Schema, which is ISO 8601 alone.
    text = {"type": "string", "format": "duetime-duration", "maxLength": MAX_DURATION_CHARACTERS}
    number = {"type": "number", "minimum": least_seconds, "maximum": most_seconds}
    if step_seconds is not None:
        number["multipleOf"] = step_seconds
    return {"anyOf": [text, number], "examples": ["1h30m", "PT5M", 90]}


def text_schema(max_characters: int) -> dict[str, Any]:
    return {"type": "string", "minLength": 1, "maxLength": max_characters, "pattern": validators.TEXT_PATTERN}


_TAG_SCHEMA: Final = text_schema(validators.MAX_TAG_CHARACTERS)
_TAGS_SCHEMA: Final = {
    "type": "array",
    "maxItems": validators.MAX_TAGS,
    "uniqueItems": True,
    "items": _TAG_SCHEMA,
}


def headers_schema(description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "maxProperties": validators.MAX_HEADERS,
        "propertyNames": {"pattern": validators.HEADER_NAME_PATTERN},
        "additionalProperties": {"type": "string", "pattern": validators.HEADER_VALUE_PATTERN},
        "description": description,
    }


def _retry_policy_schema(component: str, description: str, properties: dict[str, Any]) -> dict[str, Any]:
    """Make the schema of a retry policy. ``properties`` are those that it has beside the common ones."""
    attempts: dict[str, Any] = {
        "type": "integer",
        "minimum": 1,
        "maximum": MAX_ATTEMPTS,
        "description": "the most attempts, the first one included; when it is omitted,"
        f" {DEFAULT_RETRY_POLICY.max_attempts} for a timer, {ONE_ATTEMPT.max_attempts} for a service call",
    }
    return {
        COMPONENT: component,
        "description": f"{description}. What is omitted has its default.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "maxAttempts": attempts,
            "maxAttemptsDuration": duration_schema()
            | {"default": "24h", "description": "from the first attempt, or a later redrive"},
            "initialInterval": duration_schema(least_seconds=MIN_INTERVAL_SECONDS)
            | {"default": "2s", "description": "at least 100ms"},
            "backoffMultiplier": {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "maxInterval": duration_schema(least_seconds=MIN_INTERVAL_SECONDS)
            | {"default": "1h", "description": "at least 100ms"},
            **properties,
        },
    }


def given(name: str) -> dict[str, Any]:
    """Ask for a member that is there and not null."""
    return {"required": [name], "properties": {name: {"not": {"type": "null"}}}}


def _absent(*names: str) -> dict[str, Any]:
    """Ask for members that are null or not there."""
    return {"properties": {name: {"type": "null"} for name in names}}


def at_most_one_of(*names: str) -> dict[str, Any]:
    """Ask for one of the members at most: by a ``not``, since generators make a type per branch of a ``oneOf``."""
    return {"not": {"anyOf": [{"allOf": [given(one), given(other)]} for one, other in combinations(names, 2)]}}


def some_of(*names: str) -> dict[str, Any]:
    """Ask for one of the members, or more, that is there and not null."""
    return {"not": _absent(*names)}


_RETRY_POLICY_SCHEMA: Final = _retry_policy_schema("RetryPolicy", "When failed attempts are repeated", {})
_TIMER_RETRY_POLICY_SCHEMA: Final = _retry_policy_schema(
    "TimerRetryPolicy",
    "When failed attempts are repeated, and who is told in the end",
    {
        "escalateUrl": _URL_SCHEMA
        | {
            "type": ["string", "null"],
            "description": "called when the timer has failed, by a timer of its own, with the event of the failure"
            " and the payload",
            "examples": ["https://alerts.example.com/timers"],
        },
        "escalateTarget": {
            "type": ["object", "null"],
            "additionalProperties": False,
            "required": ["arn"],
            "properties": {"arn": _ARN_SCHEMA},
            "description": "in the place of escalateUrl",
            "examples": [EXAMPLE_TARGET],
        },
    },
) | at_most_one_of("escalateUrl", "escalateTarget")


def only_with(name: str, *others: str) -> dict[str, Any]:
    """Ask for none of ``others`` without ``name``."""
    return {"not": {"anyOf": [{"allOf": [given(other), _absent(name)]} for other in others]}}


def all_of(*rules: dict[str, Any]) -> dict[str, Any]:
    """Return all of what the functions above return."""
    return {"not": {"anyOf": [rule["not"] for rule in rules]}}


def one_of(*names: str) -> dict[str, Any]:
    return all_of(at_most_one_of(*names), some_of(*names))


EnumT = TypeVar("EnumT", bound=StrEnum)


def any_case(kind: type[EnumT]) -> BeforeValidator:
    """Take the values of ``kind`` in any case. Responses have them in one."""
    by_folded = {value.casefold(): value for value in kind}
    return BeforeValidator(lambda given: by_folded.get(given.casefold(), given) if isinstance(given, str) else given)


Instant = Annotated[datetime, PlainValidator(validators.instant), WithJsonSchema(_INSTANT_SCHEMA)]
Duration = Annotated[float, PlainValidator(parse_duration), WithJsonSchema(duration_schema())]
CallbackUrl = Annotated[str, AfterValidator(validators.callback_url), WithJsonSchema(_URL_SCHEMA)]
TargetArn = Annotated[str, AfterValidator(validators.target_arn), WithJsonSchema(_ARN_SCHEMA)]
RetryPolicy = Annotated[str, AfterValidator(validators.retry_policy), WithJsonSchema(_RETRY_POLICY_SCHEMA)]
"""JSON text."""
TimerRetryPolicy = Annotated[
    str, AfterValidator(validators.timer_retry_policy), WithJsonSchema(_TIMER_RETRY_POLICY_SCHEMA)
]
CorrelationId = Annotated[
    str,
    AfterValidator(validators.correlation_id),
    WithJsonSchema(text_schema(validators.MAX_CORRELATION_ID_CHARACTERS)),
]
Tag = Annotated[str, AfterValidator(validators.tag), WithJsonSchema(_TAG_SCHEMA)]
Tags = Annotated[list[str], AfterValidator(validators.tags), WithJsonSchema(_TAGS_SCHEMA)]
Limit = Annotated[
    int,
    PlainValidator(validators.whole_number(1, MAX_PAGE_ITEMS)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ITEMS}),
]
"""In a query string."""
Revision = Annotated[int, Field(ge=1, le=2**63 - 1)]
Cursor = Annotated[str, Field(min_length=1, max_length=MAX_CURSOR_CHARACTERS)]


def json_name(name: str) -> str:
    """Return the name of a field in JSON: camelCase, without how the value is kept (``_json``: as text, ``_ms``)."""
    return to_camel(name.removesuffix("_json").removesuffix("_ms"))


class RequestModel(BaseModel):
    """Strict: no value is coerced, no unknown member is passed over. Built when first used (cold start).

    Where a field becomes one of the domain, it has its name and its type.
    """

    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=json_name,
        defer_build=True,
        hide_input_in_errors=True,
    )


class TargetBody(RequestModel):
    """What takes a message in the place of a URL. The deployment allows which ones; none by default."""

    model_config = ConfigDict(json_schema_extra={"examples": [EXAMPLE_TARGET]})

    arn: TargetArn


class NothingBody(RequestModel):
    """No members: what is asked for is in the path."""


class PageQuery(RequestModel):
    limit: Limit = DEFAULT_PAGE_ITEMS
    cursor: Cursor | None = None


class PagedBody(RequestModel):
    """How much one call does."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"dryRun": True}]})

    limit: Annotated[int, Field(ge=1, le=MAX_COUNT)] = Field(default=MAX_COUNT, description="the most of this call")
    cursor: Cursor | None = None
    dry_run: bool | None = Field(default=None, description="true: count them, and change nothing")


def shape_of(
    model: type[RequestModel], *, items: str | None = None, objects: dict[str, Shape] | None = None
) -> Shape:
    """Return how the JSON of ``model`` is read: a field named ``..._json`` stays the text that it was."""
    named = model.model_fields.items()
    opaque = frozenset(field.alias or name for name, field in named if name.endswith("_json"))
    return Shape(opaque=opaque, items=items, objects=objects or {})


PLAIN_SHAPE: Final = Shape()
WITH_TARGET: Final = {"target": PLAIN_SHAPE}
