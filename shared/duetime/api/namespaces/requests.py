"""Requests about namespaces and their secrets."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, PlainValidator, WithJsonSchema

from duetime.api.http import validators
from duetime.api.http.request_models import RequestModel, RetryPolicy, duration_schema, shape_of
from duetime.domain.namespaces import DEFAULT_NUM_SHARDS, MAX_NUM_SHARDS, Misfire
from duetime.domain.secrets import MAX_OVERLAP_SECONDS
from duetime.domain.times import parse_duration_ms
from duetime.recurrence.spec import MIN_INTERVAL_MS

MAX_NAMESPACE_IN_FLIGHT: Final = 100_000
MIN_RATE_LIMIT: Final = 0.001
MAX_RATE_LIMIT: Final = 100_000
_MOST_BETWEEN_MS: Final = 366 * 86_400_000

_SECRET_SCHEMA = {
    "type": "string",
    "pattern": "^whsec_(?:[A-Za-z0-9+/]{4}){8,20}(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$",
    "examples": ["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"],
}
Overlap = Annotated[
    float,
    PlainValidator(validators.overlap_seconds),
    WithJsonSchema(duration_schema(most_seconds=MAX_OVERLAP_SECONDS)),
]

MinInterval = Annotated[
    int,
    PlainValidator(lambda value: parse_duration_ms(value, min_ms=MIN_INTERVAL_MS, max_ms=_MOST_BETWEEN_MS)),
    WithJsonSchema(
        duration_schema(
            least_seconds=MIN_INTERVAL_MS / 1000, most_seconds=_MOST_BETWEEN_MS / 1000, step_seconds=0.001
        )
    ),
]


NumShards = Annotated[int, Field(ge=1, le=MAX_NUM_SHARDS)]


class NamespaceBody(RequestModel):
    """What is omitted is as it is, or has its default when the namespace is new. Shards do not change."""

    num_shards: NumShards | None = Field(
        default=None,
        description=f"when omitted for a new namespace, what the deployment sets: {DEFAULT_NUM_SHARDS} by default",
    )
    dedicated: bool | None = Field(default=None, description="a range of shards of its own")
    retry_policy_json: RetryPolicy | None = Field(
        default=None, description="for the timers that have none of their own; null for the default"
    )
    max_in_flight: Annotated[int, Field(ge=1, le=MAX_NAMESPACE_IN_FLIGHT)] | None = Field(
        default=None,
        description="callbacks that may be in flight at once, but at least one for each poller with shards of the"
        " namespace; null for no limit of its own",
    )
    rate_limit_per_second: (
        Annotated[float, Field(ge=MIN_RATE_LIMIT, le=MAX_RATE_LIMIT, allow_inf_nan=False)] | None
    ) = Field(default=None, alias="rateLimit", description="attempts started per second; null for no limit")
    misfire: Annotated[Misfire, Field(strict=False)] | None = Field(
        default=None,
        description="what becomes of timers that came due while the namespace was paused: fire, which is the"
        " default, or expire",
    )
    min_schedule_interval_ms: MinInterval | None = Field(
        default=None, description="schedules that occur more often are refused; null for 1s"
    )


class PauseBody(RequestModel):
    """Why nothing is to be fired, for people."""

    reason: Annotated[str, Field(min_length=1, max_length=255)] | None = Field(default=None, description="for people")


class ReshardBody(RequestModel):
    """The shards that new timers are to go to."""

    num_shards: NumShards = Field(description="how many; more or fewer than before", examples=[16])


class DeleteNamespaceQuery(RequestModel):
    force: bool = Field(default=False, strict=False, description="whether its timers are deleted with it")


class SecretBody(RequestModel):
    """A signing secret to create. The one before it stays valid for the overlap."""

    secret: Annotated[str, WithJsonSchema(_SECRET_SCHEMA)] | None = Field(
        default=None,
        description="whsec_ and the base64 of 24 to 64 bytes; one is made when it is omitted",
        repr=False,
    )
    overlap: Overlap | None = Field(
        default=None, description="how long the secret before this one stays valid; 24h when it is omitted"
    )


NAMESPACE_SHAPE: Final = shape_of(NamespaceBody)
