"""Response models: one declaration that documents a response, types it and encodes it.

A model is a msgspec struct: the fields' order, names (camelCase in JSON) and types are those of the response, and the
OpenAPI document is generated from them. Structs cost a cold start next to nothing (decision 0029).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Final, Generic, Self, TypeVar

import msgspec
from msgspec import Meta, Raw

from duetime.api.http.request import Reply
from duetime.domain.retry import RetryPolicy
from duetime.domain.targets import is_arn
from duetime.domain.timers import Failure, FailureReason
from duetime.domain.times import format_duration, format_instant

ItemT = TypeVar("ItemT")


class ResponseModel(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """What a response holds. Every field is there unless its type allows ``msgspec.UNSET``."""

    @classmethod
    def of(cls, *sources: object, **given: object) -> Self:
        """Make the response of ``sources``: a field that is not ``given`` has its name in one of them, the first that
        has it. Times become texts."""
        for name in cls.__struct_fields__:
            if name not in given:
                value = next(getattr(source, name) for source in sources if hasattr(source, name))
                given[name] = format_instant(value) if isinstance(value, datetime) else value
        return cls(**given)


class TargetResponse(ResponseModel):
    """What takes a message on AWS, in the place of a URL."""

    arn: str


def shown_destination(stored: str) -> tuple[str | None, TargetResponse | None]:
    """Return the URL and the target that ``stored`` is: one of them is None."""
    return (None, TargetResponse(stored)) if is_arn(stored) else (stored, None)


Instant = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
NULL: Final = Raw(b"null")


class RetryPolicyResponse(ResponseModel):
    """A retry policy, whole. Durations are in whole units, e.g. 1h30m."""

    max_attempts: Annotated[int, Meta(ge=1, description="the first one included")]
    max_attempts_duration: Annotated[str | None, Meta(description="from the first attempt, or a later redrive")]
    initial_interval: str
    backoff_multiplier: float
    max_interval: str


class TimerRetryPolicyResponse(RetryPolicyResponse):
    """The retry policy of a timer or a schedule, whole. Durations are in whole units, e.g. 1h30m."""

    escalate_url: Annotated[
        str | None,
        Meta(description="called when the timer has failed", examples=["https://alerts.example.com/timers"]),
    ]
    escalate_target: Annotated[TargetResponse | None, Meta(description="told of it in the place of escalateUrl")]


class FailureResponse(ResponseModel):
    """The last failed attempt."""

    reason: FailureReason
    message: str
    status: Annotated[int | None, Meta(description="the HTTP status of the receiver's response, if there was one")]
    at: Instant
    escalation_id: Annotated[
        str | None,
        Meta(
            description="the timer that tells the retry policy's escalateUrl or escalateTarget of it",
            examples=["escalation:5f3759df:8f3c6a0e-2b1d-5c4e-9a7f-0d6b8e2c4f1a"],
        ),
    ]


class Page(ResponseModel, Generic[ItemT]):
    """A page may be short, even empty, and not be the last: ``nextCursor`` tells."""

    items: list[ItemT]
    next_cursor: str | None


@lru_cache(maxsize=1024)
def retry_policy_response(policy: RetryPolicy) -> RetryPolicyResponse:
    return RetryPolicyResponse(**_retries(policy))


@lru_cache(maxsize=1024)
def timer_retry_policy_response(policy: RetryPolicy) -> TimerRetryPolicyResponse:
    url, target = (None, None) if policy.escalate_url is None else shown_destination(policy.escalate_url)
    return TimerRetryPolicyResponse(**_retries(policy), escalate_url=url, escalate_target=target)


def _retries(policy: RetryPolicy) -> dict[str, Any]:
    duration, multiplier = policy.max_attempts_duration_seconds, policy.backoff_multiplier
    return {
        "max_attempts": policy.max_attempts,
        "max_attempts_duration": None if duration is None else _duration(duration),
        "initial_interval": _duration(policy.initial_interval_seconds),
        "backoff_multiplier": int(multiplier) if multiplier.is_integer() else multiplier,
        "max_interval": _duration(policy.max_interval_seconds),
    }


def _duration(seconds: float) -> str:
    return format_duration(round(seconds * 1000))


def failure_response(failure: Failure | None) -> FailureResponse | None:
    return None if failure is None else FailureResponse.of(failure)


def instant(value: datetime | None) -> str | None:
    return None if value is None else format_instant(value)


def raw(json_text: str | None) -> Raw:
    """Return what a client gave as JSON as the text that it was."""
    return NULL if json_text is None else Raw(json_text.encode())


def encode(model: ResponseModel) -> str:
    return msgspec.json.encode(model).decode()


def encode_ascii(model: ResponseModel) -> str:
    """Encode text that strangers wrote: control characters, and what has no UTF-8 form, become escapes.

    Models with ``Raw`` fields are not for this.
    """
    return json.dumps(msgspec.to_builtins(model), separators=(",", ":"))


def json_reply(status: int, model: ResponseModel, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(status=status, body=encode(model), headers=headers or {})


def ascii_reply(model: ResponseModel) -> Reply:
    return Reply(status=200, body=encode_ascii(model))
