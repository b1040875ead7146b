"""Responses about timers: what they hold, and how they are made of what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, UnsetType

from duetime.api.http.batches import ItemResult
from duetime.api.http.responses import (
    FailureResponse,
    Instant,
    Page,
    ResponseModel,
    TargetResponse,
    TimerRetryPolicyResponse,
    failure_response,
    instant,
    raw,
    shown_destination,
    timer_retry_policy_response,
)
from duetime.domain.attempts import AttemptOutcome, AttemptRecord
from duetime.domain.retry import RetryPolicy, policy_in_force
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.domain.times import format_duration, format_instant
from duetime.recurrence.local_due import read_local_due

HeadersText = Annotated[
    Raw, Meta(extra_json_schema={"type": ["object", "null"], "additionalProperties": {"type": "string"}})
]
PayloadText = Annotated[Raw, Meta(description="the exact text that was given")]


class CallbackResponse(ResponseModel):
    """What timers and schedules have alike."""

    id: str
    namespace: str
    callback_url: Annotated[str | None, Meta(description="null with target")]
    target: TargetResponse | None
    expire_after: Annotated[str | None, Meta(description="a duration in whole units", examples=["1h30m"])]
    correlation_id: str | None
    tags: tuple[str, ...]


def callback_fields(timer: Timer) -> dict[str, Any]:
    """Return the fields of ``CallbackResponse``, but for the id, and the exact texts that were given."""
    content = timer.content
    callback_url, target = shown_destination(content.callback_url)
    return {
        "namespace": timer.namespace,
        "callback_url": callback_url,
        "target": target,
        "expire_after": None if content.expire_after_ms is None else format_duration(content.expire_after_ms),
        "correlation_id": content.correlation_id,
        "tags": content.tags,
        "headers": raw(content.headers_json),
        "payload": raw(content.payload_json),
    }


class TimerResponse(CallbackResponse):
    state: TimerState
    revision: Annotated[int, Meta(ge=1, description="counts changes; the ETag is this number in quotes")]
    attempts: Annotated[int, Meta(ge=0, description="attempts of the present firing that have ended")]
    execute_at: Annotated[Instant, Meta(description="the due time that was asked for")]
    local_time: Annotated[
        str | None,
        Meta(description="the due time as it was asked for; null: as an instant", examples=["2027-03-28T09:00:00"]),
    ]
    time_zone: Annotated[str | None, Meta(description="of localTime", examples=["Europe/Berlin"])]
    next_attempt_at: Annotated[Instant | None, Meta(description="null when finished")]
    fired_at: Instant | None
    created_at: Instant
    updated_at: Instant
    failure: FailureResponse | None
    timeout_seconds: int
    headers: HeadersText
    retry_policy: Annotated[
        TimerRetryPolicyResponse, Meta(description="the one in force: its own, or else its namespace's")
    ]
    payload: PayloadText


def timer_response(timer: Timer, namespace_policy: RetryPolicy) -> TimerResponse:
    """Make the response. ``namespace_policy`` holds for a timer without a retry policy of its own."""
    content = timer.content
    local = None if content.timing_json is None else read_local_due(content.timing_json)
    return TimerResponse(
        id=timer.timer_id,
        state=timer.state,
        revision=timer.revision,
        attempts=timer.attempts,
        execute_at=format_instant(content.execute_at),
        local_time=None if local is None else local.text,
        time_zone=None if local is None else local.time_zone,
        next_attempt_at=instant(timer.next_attempt_at),
        fired_at=instant(timer.fired_at),
        created_at=format_instant(timer.created_at),
        updated_at=format_instant(timer.updated_at),
        failure=failure_response(timer.failure),
        timeout_seconds=content.callback_timeout_seconds,
        retry_policy=timer_retry_policy_response(policy_in_force(content.retry_policy_json, namespace_policy)),
        **callback_fields(timer),
    )


class TimerPage(Page[TimerResponse]):
    """Timers in the order of shard, then id."""


class AttemptResponse(ResponseModel):
    """One attempt: what was sent back, without secrets, and what the timer became by it."""

    number: Annotated[int, Meta(ge=1, description="within its firing")]
    firing_id: Annotated[str, Meta(description="the webhook-id that was sent")]
    started_at: Instant
    finished_at: Instant
    duration_ms: Annotated[int, Meta(ge=0)]
    outcome: AttemptOutcome
    status: Annotated[int | None, Meta(description="the HTTP status of the response, if there was one")]
    reason: FailureReason | None
    error_class: str | None
    message: str | None
    headers: Annotated[
        Mapping[str, str], Meta(description="the most telling ones of the response; secrets are redacted")
    ]
    body: Annotated[str | None, Meta(description="the beginning of the response", examples=["accepted"])]
    body_bytes: Annotated[int, Meta(ge=0, description="how much of the response was read")]
    body_truncated: bool


def attempt_response(attempt: AttemptRecord) -> AttemptResponse:
    return AttemptResponse.of(attempt, message=attempt.message or None)


class AttemptPage(Page[AttemptResponse]):
    """The last attempts of a timer, oldest first, always on one page."""


class DeleteResponse(ResponseModel):
    id: str
    namespace: str
    attempt_in_flight: bool


class DeletedItem(ItemResult):
    attempt_in_flight: bool | UnsetType = UNSET


class DeletedBatch(ResponseModel):
    items: list[DeletedItem]


class MovedTimersResponse(ResponseModel):
    """What one request did to a page of timers that are due at a local time."""

    affected: Annotated[int, Meta(ge=0, description="moved; with dryRun: would be", examples=[3])]
    skipped: Annotated[int, Meta(ge=0, description="left as they are, since they have changed meanwhile")]
    next_cursor: str | None


class RedriveResponse(ResponseModel):
    """What this call did. There may be more: call again with ``nextCursor`` until it is null."""

    redriven: int
    skipped: Annotated[
        int, Meta(description="failed timers that were not redriven: unreadable, or changed meanwhile")
    ]
    examined: int
    next_cursor: str | None
    items: Annotated[list[ItemResult] | UnsetType, Meta(description="one per id, in order, when ids were given")] = (
        UNSET
    )
