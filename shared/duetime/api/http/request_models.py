"""Request models: what all of them have in common. The OpenAPI document is generated from the same models."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema
from pydantic.alias_generators import to_camel

from duetime.api.http import validators
from duetime.api.http.raw_json import Shape
from duetime.domain.retry import DEFAULT_RETRY_POLICY, MAX_ATTEMPTS, MIN_INTERVAL_SECONDS

MAX_PAGE_ITEMS: Final = 500
DEFAULT_PAGE_ITEMS: Final = 50
MAX_CURSOR_CHARACTERS: Final = 8192

DURATION_SCHEMA: Final[dict[str, Any]] = {
    "anyOf": [{"type": "string"}, {"type": "number", "minimum": 0}],
    "examples": ["1h30m", "PT5M", 90],
}
_INSTANT_SCHEMA = {"type": "string", "format": "date-time", "examples": ["2026-12-20T15:30:00Z"]}
_INTERVAL_SCHEMA = DURATION_SCHEMA | {
    "anyOf": [{"type": "string"}, {"type": "number", "minimum": MIN_INTERVAL_SECONDS}],
    "description": "at least 100ms",
}


def retry_policy_schema(max_attempts: int) -> dict[str, Any]:
    """``max_attempts``: when it is omitted."""
    return {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "maxAttempts": {"type": "integer", "minimum": 1, "maximum": MAX_ATTEMPTS, "default": max_attempts},
            "maxAttemptsDuration": DURATION_SCHEMA
            | {"default": "24h", "description": "from the first attempt, or a later redrive"},
            "initialInterval": _INTERVAL_SCHEMA | {"default": "2s"},
            "backoffMultiplier": {"type": "number", "minimum": 1, "maximum": 100, "default": 2},
            "maxInterval": _INTERVAL_SCHEMA | {"default": "1h"},
        },
    }


Instant = Annotated[datetime, PlainValidator(validators.instant), WithJsonSchema(_INSTANT_SCHEMA)]
Duration = Annotated[float, PlainValidator(validators.duration_seconds), WithJsonSchema(DURATION_SCHEMA)]
CallbackUrl = Annotated[
    str,
    AfterValidator(validators.callback_url),
    WithJsonSchema({"type": "string", "format": "uri", "maxLength": validators.MAX_URL_CHARACTERS}),
]
RetryPolicy = Annotated[
    str,
    AfterValidator(validators.retry_policy),
    WithJsonSchema(retry_policy_schema(DEFAULT_RETRY_POLICY.max_attempts)),
]
"""JSON text."""
CorrelationId = Annotated[
    str,
    AfterValidator(validators.correlation_id),
    WithJsonSchema({"type": "string", "minLength": 1, "maxLength": validators.MAX_CORRELATION_ID_CHARACTERS}),
]
Tag = Annotated[str, AfterValidator(validators.tag)]
Limit = Annotated[
    int,
    PlainValidator(validators.whole_number(1, MAX_PAGE_ITEMS)),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_PAGE_ITEMS}),
]
"""In a query string."""
Cursor = Annotated[str, Field(min_length=1, max_length=MAX_CURSOR_CHARACTERS)]


def json_name(name: str) -> str:
    """The name of a field in JSON: camelCase, without how the value is kept (``_json``: as text, ``_ms``)."""
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


class NothingBody(RequestModel):
    """No members: what is asked for is in the path."""


class PageQuery(RequestModel):
    limit: Limit = DEFAULT_PAGE_ITEMS
    cursor: Cursor | None = None


def shape_of(
    model: type[RequestModel], *, items: str | None = None, objects: dict[str, Shape] | None = None
) -> Shape:
    """How the JSON of ``model`` is read: a field named ``..._json`` stays the text that it was."""
    named = model.model_fields.items()
    opaque = frozenset(field.alias or name for name, field in named if name.endswith("_json"))
    return Shape(opaque=opaque, items=items, objects=objects or {})


PLAIN_SHAPE: Final = Shape()
