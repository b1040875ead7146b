"""Requests about API keys."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from duetime.api.http import validators
from duetime.api.http.request_models import Instant, RequestModel, at_most_one_of, duration_schema
from duetime.domain.api_keys import MAX_KEY_NAME_CHARACTERS, MAX_KEY_SECONDS, check_key_name
from duetime.domain.principals import Role

KeySeconds = Annotated[
    float,
    PlainValidator(validators.key_seconds),
    WithJsonSchema(duration_schema(least_seconds=1, most_seconds=MAX_KEY_SECONDS)),
]
KeyName = Annotated[
    str,
    AfterValidator(check_key_name),
    WithJsonSchema({"type": "string", "maxLength": MAX_KEY_NAME_CHARACTERS, "pattern": validators.TEXT_PATTERN}),
]


class ApiKeyBody(RequestModel):
    """An API key to create. At most one of ``expiresAt`` and ``expiresIn``; without either it never expires."""

    model_config = ConfigDict(
        json_schema_extra=at_most_one_of("expiresAt", "expiresIn")
        | {"examples": [{"role": "writer", "name": "the shop", "expiresIn": "90d"}]}
    )

    role: Annotated[Role, Field(strict=False)] = Field(description="a writer may do what a reader may, an admin all")
    name: KeyName | None = Field(default=None, description="for people: what the key is for")
    expires_at: Instant | None = None
    expires_in: KeySeconds | None = Field(default=None, description="the end, counted from now")
