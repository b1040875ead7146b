"""Requests about timers: what they may hold, by which rules it is checked and as what it is kept.

A field of a timer stands here once, under its name in ``TimerContent``: create, replace, change and batches, their
validation, their decoding and their documentation come from it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from duetime.api.http import validators
from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.raw_json import Shape
from duetime.api.http.request_models import (
    EXAMPLE_TARGET,
    MAX_PAGE_ITEMS,
    WITH_TARGET,
    CallbackUrl,
    CorrelationId,
    Cursor,
    Duration,
    Instant,
    PageQuery,
    RequestModel,
    Revision,
    Tag,
    Tags,
    TargetBody,
    TimerRetryPolicy,
    all_of,
    any_case,
    at_most_one_of,
    duration_schema,
    given,
    headers_schema,
    one_of,
    only_with,
    shape_of,
)
from duetime.delivery.headers import is_reserved
from duetime.domain.ids import MAX_TIMER_ID_CHARACTERS
from duetime.domain.timers import (
    DEFAULT_CALLBACK_TIMEOUT_SECONDS,
    MAX_CALLBACK_TIMEOUT_SECONDS,
    MAX_EXPIRE_AFTER_MS,
    FailureReason,
    TimerState,
)
from duetime.domain.times import parse_duration_ms
from duetime.recurrence.spec import MAX_WINDOW_MS, Dst

DEFAULT_REDRIVE_ITEMS: Final = 100

_HEADERS_SCHEMA = headers_schema("sent with every callback; framing, connection and webhook- headers are refused")
TIMER_ID_SCHEMA: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_TIMER_ID_CHARACTERS,
    "pattern": r"^[^/\u0000-\u001f\u007f-\u009f]+$",
    "examples": ["order-4711-reminder"],
}
_EXPIRE_AFTER_SCHEMA = duration_schema(
    least_seconds=0.001, most_seconds=MAX_EXPIRE_AFTER_MS / 1000, step_seconds=0.001
)
_LOCAL_TIME_SCHEMA = {
    "type": "string",
    "format": "duetime-local-time",
    "pattern": validators.LOCAL_TIME_PATTERN,
    "examples": ["2027-03-28T09:00"],
}
_PAYLOAD_SCHEMA = {"description": "any JSON, at most 256 KiB; delivered as the exact text that was sent"}


def _headers(text: str) -> str:
    validators.check_headers(text, is_reserved)
    return text


def _expire_after_ms(value: Any) -> int:
    return parse_duration_ms(value, max_ms=MAX_EXPIRE_AFTER_MS)


def _spread_ms(value: Any) -> int:
    return parse_duration_ms(value, min_ms=0, max_ms=MAX_WINDOW_MS)


def _dst_of_one(value: Any) -> Dst:
    """Read ``dst`` of a timer. It cannot be ``both``: a timer fires once."""
    if not isinstance(value, str) or value.casefold() not in (Dst.ONCE, Dst.SKIP):
        raise ValueError("must be once or skip")
    return Dst(value.casefold())


TimerId = Annotated[str, WithJsonSchema(TIMER_ID_SCHEMA)]
Payload = Annotated[str, WithJsonSchema(_PAYLOAD_SCHEMA)]
Headers = Annotated[str, AfterValidator(_headers), WithJsonSchema(_HEADERS_SCHEMA)]
CallbackTimeout = Annotated[int, Field(ge=1, le=MAX_CALLBACK_TIMEOUT_SECONDS)]
ExpireAfter = Annotated[int, PlainValidator(_expire_after_ms), WithJsonSchema(_EXPIRE_AFTER_SCHEMA)]

SpreadMs = Annotated[
    int,
    PlainValidator(_spread_ms),
    WithJsonSchema(duration_schema(least_seconds=0, most_seconds=MAX_WINDOW_MS / 1000, step_seconds=0.001)),
]


TimeZone = Annotated[
    str,
    WithJsonSchema({"type": "string", "format": "duetime-time-zone", "minLength": 1, "examples": ["Europe/Berlin"]}),
]
LocalTime = Annotated[datetime, PlainValidator(validators.local_time), WithJsonSchema(_LOCAL_TIME_SCHEMA)]
DstOfOne = Annotated[Dst, PlainValidator(_dst_of_one), WithJsonSchema({"type": "string", "enum": ["once", "skip"]})]


class CallbackFields(RequestModel):
    """What is sent, and how: of a timer, and of a schedule. Null is the default."""

    callback_url: CallbackUrl | None = None
    target: TargetBody | None = Field(default=None, description="in the place of callbackUrl; takes no headers")
    payload_json: Payload | None = None
    headers_json: Headers | None = None
    retry_policy_json: TimerRetryPolicy | None = None
    callback_timeout_seconds: CallbackTimeout | None = Field(
        default=None,
        alias="timeoutSeconds",
        description=f"of one attempt; {DEFAULT_CALLBACK_TIMEOUT_SECONDS} when it is omitted; a deployment may"
        " allow less",
    )
    expire_after_ms: ExpireAfter | None = Field(
        default=None, description="no attempt is begun later than this after the due time; whole milliseconds"
    )
    correlation_id: CorrelationId | None = None
    tags: Tags | None = None


class TimerFields(CallbackFields):
    """What a client gives of a timer. Null is the default."""

    execute_at: Instant | None = Field(default=None, description="a past time is due at once")
    delay: Duration | None = None
    local_time: LocalTime | None = Field(
        default=None, description="the due time by the clocks of timeZone, also when its rules change until then"
    )
    time_zone: TimeZone | None = Field(
        default=None, description="a name of the IANA time zone database; required with localTime"
    )
    dst: DstOfOne | None = Field(
        default=None,
        description="a localTime that does not exist, where clocks are changed: with once, which is the default, it"
        " fires at the first instant after the gap; skip refuses it. The first of two, if it happens twice",
    )


_ONLY_LOCAL: Final = all_of(only_with("localTime", "timeZone", "dst"), only_with("timeZone", "localTime"))

_NO_HEADERS: Final = at_most_one_of("target", "headers")


class TimerBody(TimerFields):
    """A timer to create. Exactly one of ``executeAt``, ``delay`` and ``localTime`` is required, and exactly one of
    ``callbackUrl`` and ``target``."""

    model_config = ConfigDict(
        json_schema_extra=all_of(
            one_of("executeAt", "delay", "localTime"), one_of("callbackUrl", "target"), _NO_HEADERS, _ONLY_LOCAL
        )
        | {
            "examples": [
                {
                    "id": "order-4711-reminder",
                    "executeAt": "2026-12-20T15:30:00Z",
                    "callbackUrl": "https://shop.example.com/hooks/orders",
                    "payload": {"orderId": 4711},
                    "retryPolicy": {"maxAttempts": 5, "initialInterval": "30s"},
                    "tags": ["reminder"],
                },
                {"delay": "1h", "target": EXAMPLE_TARGET, "payload": {"orderId": 4711}},
                {"delay": "1h30m", "callbackUrl": "https://shop.example.com/hooks/orders"},
                {
                    "localTime": "2027-03-28T09:00",
                    "timeZone": "Europe/Berlin",
                    "callbackUrl": "https://shop.example.com/hooks/orders",
                },
            ]
        }
    )

    id: TimerId | None = Field(default=None, description="a UUIDv7 is made when it is omitted")


class TimerPatch(TimerFields):
    """A JSON merge patch: what is omitted stays, null clears. The due time and where it is sent cannot be
    cleared; ``target`` takes the place of ``callbackUrl`` and headers, ``callbackUrl`` that of ``target``."""

    model_config = ConfigDict(
        json_schema_extra=all_of(
            at_most_one_of("executeAt", "delay", "localTime"),
            at_most_one_of("callbackUrl", "target"),
            _NO_HEADERS,
            _ONLY_LOCAL,
        )
        | {"examples": [{"delay": "2h"}, {"payload": {"orderId": 4712}, "tags": None}]}
    )

    execute_at: Instant = Field(default=None)  # type: ignore[assignment]  # omitted; null is refused
    delay: Duration = Field(default=None)  # type: ignore[assignment]
    local_time: LocalTime = Field(default=None)  # type: ignore[assignment]
    time_zone: TimeZone = Field(default=None)  # type: ignore[assignment]
    callback_url: CallbackUrl = Field(default=None)  # type: ignore[assignment]
    target: TargetBody = Field(default=None, description="takes no headers")  # type: ignore[assignment]


class SpreadFields(RequestModel):
    """What holds for all timers of a batch."""

    spread_ms: SpreadMs | None = Field(
        default=None,
        description="each timer is due later than it says, by less than this: evenly, and for an id always as much",
    )


class TimerBatch(SpreadFields):
    """Timers to create. Each is accepted or refused alone."""

    timers: Annotated[list[TimerBody], Field(max_length=MAX_BATCH_ITEMS)]


class TimerItem(RequestModel):
    """One timer to cancel or remove, in whatever revision it is or in this one only."""

    id: TimerId
    revision: Revision | None = Field(default=None, description="in any revision when it is omitted")


class TimerItemBatch(RequestModel):
    """Timers to cancel or remove. With ``revision`` only if the timer still has it."""

    timers: Annotated[list[TimerItem], Field(max_length=MAX_BATCH_ITEMS)]


class TimerQuery(PageQuery):
    state: Annotated[TimerState, Field(strict=False), any_case(TimerState)] | None = None
    tag: Tag | None = None
    due_from: Instant | None = Field(default=None, description="inclusive")
    due_to: Instant | None = Field(default=None, description="exclusive")
    correlation_id: CorrelationId | None = None
    reason: Annotated[FailureReason, Field(strict=False), any_case(FailureReason)] | None = Field(
        default=None, description="of the last failed attempt"
    )
    failed_from: Instant | None = Field(default=None, description="failed timers only; inclusive")
    failed_to: Instant | None = Field(default=None, description="failed timers only; exclusive")


_REDRIVE_FILTERS = (
    *("reason", "tag", "correlationId", "dueFrom", "dueTo", "failedFrom", "failedTo"),
    *("limit", "cursor", "dryRun"),
)


class RedriveBody(RequestModel):
    """Which failed timers: those that fit all filters given, a page of them, or ``ids``, which go without filters."""

    model_config = ConfigDict(
        json_schema_extra={
            "not": {"allOf": [given("ids"), {"anyOf": [given(name) for name in _REDRIVE_FILTERS]}]},
            "examples": [{"reason": FailureReason.HTTP_STATUS, "limit": 100}, {"ids": ["order-4711-reminder"]}],
        }
    )

    reason: Annotated[FailureReason, Field(strict=False), any_case(FailureReason)] | None = None
    tag: Tag | None = None
    correlation_id: CorrelationId | None = None
    due_from: Instant | None = Field(default=None, description="inclusive")
    due_to: Instant | None = Field(default=None, description="exclusive")
    failed_from: Instant | None = Field(default=None, description="inclusive")
    failed_to: Instant | None = Field(default=None, description="exclusive")
    limit: Annotated[int, Field(ge=1, le=MAX_PAGE_ITEMS)] | None = Field(
        default=None, description=f"the most timers that this call redrives; {DEFAULT_REDRIVE_ITEMS} by default"
    )
    cursor: Cursor | None = None
    dry_run: bool | None = Field(default=None, description="true: count them, and change nothing")
    ids: Annotated[list[TimerId], Field(max_length=MAX_BATCH_ITEMS)] | None = Field(
        default=None, description="these timers, and no filter beside them"
    )


TIMER_SHAPE: Final = shape_of(TimerBody, objects=WITH_TARGET)
TIMERS_SHAPE: Final = shape_of(TimerBody, items="timers", objects=WITH_TARGET)
PLAIN_ITEMS_SHAPE: Final = Shape(items="timers")
