"""Responses about schedules."""

from __future__ import annotations

from collections.abc import Callable
from datetime import tzinfo
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta

from duetime.api.http.responses import (
    NULL,
    FailureResponse,
    Instant,
    Page,
    ResponseModel,
    RetryPolicyResponse,
    TimerRetryPolicyResponse,
    failure_response,
    retry_policy_response,
    timer_retry_policy_response,
)
from duetime.api.service_calls.responses import CallRequestResponse, call_request_response
from duetime.api.timers.responses import CallbackResponse, HeadersText, PayloadText, callback_fields
from duetime.app.pages import ChangedPage
from duetime.app.schedule_lists import readable_timing, state_of
from duetime.domain.attempts import read_attempts
from duetime.domain.call_templates import readable_template
from duetime.domain.occurrences import OccurrenceKind, OccurrenceRecord, OccurrenceState
from duetime.domain.retry import RetryPolicy, policy_in_force
from duetime.domain.schedules import (
    Occurrence,
    Overlap,
    ScheduleEnd,
    ScheduleMisfire,
    SchedulePolicy,
    ScheduleState,
)
from duetime.domain.timers import Timer
from duetime.domain.times import format_duration, format_instant
from duetime.recurrence.spec import ClockEffect, DayOff, Dst, TimingSpec

if TYPE_CHECKING:
    from duetime.recurrence.clock_effects import AffectedChange


class OccurrenceResponse(ResponseModel):
    scheduled_at: Annotated[
        Instant,
        Meta(
            description="by the schedule, without a delay by jitter or window", examples=["2026-12-21T08:30:00.000Z"]
        ),
    ]
    local_time: Annotated[
        Instant,
        Meta(
            description="the scheduled time in the time zone of the schedule, with its offset then",
            examples=["2026-12-21T09:30:00.000+01:00"],
        ),
    ]
    due_at: Annotated[Instant, Meta(description="when it is to fire: the scheduled time with its delay")]


def occurrence_response(occurrence: Occurrence, zone: tzinfo) -> OccurrenceResponse:
    return OccurrenceResponse(
        scheduled_at=format_instant(occurrence.scheduled_at),
        local_time=occurrence.scheduled_at.astimezone(zone).isoformat(timespec="milliseconds"),
        due_at=format_instant(occurrence.due_at),
    )


class ClockChangeResponse(ResponseModel):
    """A change of clocks that affects an occurrence."""

    effect: ClockEffect
    set_from: Annotated[
        Instant,
        Meta(description="what clocks show just before it", examples=["2027-03-28T02:00:00.000+01:00"]),
    ]
    set_to: Annotated[
        Instant,
        Meta(description="what they show after it, at the same instant", examples=["2027-03-28T03:00:00.000+02:00"]),
    ]


def clock_change_response(change: AffectedChange) -> ClockChangeResponse:
    return ClockChangeResponse(
        effect=change.effect,
        set_from=change.before.isoformat(timespec="milliseconds"),
        set_to=change.after.isoformat(timespec="milliseconds"),
    )


class SchedulePreviewResponse(ResponseModel):
    description: Annotated[
        str, Meta(description="when it occurs, in English", examples=["At 09:30, Monday to Friday, Europe/Berlin"])
    ]
    time_zone: Annotated[str, Meta(examples=["Europe/Berlin"])]
    tzdata_version: Annotated[
        str, Meta(description="of the rules of time zones, as IANA names it", examples=["2026f"])
    ]
    items: Annotated[list[OccurrenceResponse], Meta(description="fewer than asked for when the schedule ends")]
    clock_changes: Annotated[
        list[ClockChangeResponse],
        Meta(description="those within a year at which an occurrence is moved, left out or doubled"),
    ]


class ScheduledCallResponse(ResponseModel):
    """What each occurrence submits."""

    name: str
    request: CallRequestResponse
    tags: Annotated[tuple[str, ...], Meta(description="beside schedule:<namespace>/<id>, which all its calls have")]
    starred: bool
    timeout_seconds: int
    retry_policy: Annotated[RetryPolicyResponse, Meta(description="the one in force")]
    correlation_id: Annotated[str | None, Meta(description="null: each call has its own")]


def _call_response(schedule: Timer) -> ScheduledCallResponse | None:
    template = readable_template(schedule)
    if template is None:
        return None
    return ScheduledCallResponse.of(
        template,
        request=call_request_response(template.request),
        retry_policy=retry_policy_response(template.retry_policy),
        correlation_id=template.correlation_id or None,
    )


class ScheduleResponse(CallbackResponse):
    state: ScheduleState
    revision: Annotated[
        int, Meta(ge=1, description="counts changes, and occurrences too; the ETag is this number in quotes")
    ]
    next_scheduled_at: Annotated[
        Instant | None, Meta(description="by the schedule; null when it has ended, or its calendar is not there")
    ]
    next_due_at: Annotated[Instant | None, Meta(description="when that fires: with its delay by jitter and window")]
    number: Annotated[int, Meta(ge=0, description="of the next occurrence")]
    firings: Annotated[int, Meta(ge=0, description="how often it has fired, failures included")]
    end_reason: ScheduleEnd | None
    paused_at: Instant | None
    pause_reason: str | None
    fired_at: Annotated[Instant | None, Meta(description="of the last occurrence that did not have to be retried")]
    failure: Annotated[FailureResponse | None, Meta(description="of the last attempt; null when that was good")]
    created_at: Instant
    updated_at: Instant
    description: Annotated[
        str | None,
        Meta(
            description="when it occurs, in English; null when that cannot be read",
            examples=["At 09:30, Monday to Friday, Europe/Berlin"],
        ),
    ]
    cron: tuple[str, ...]
    every: Annotated[str | None, Meta(description="a duration in whole units", examples=["1h30m"])]
    rrule: tuple[str, ...]
    anchor: Instant | None
    time_zone: str
    dst: Dst
    start_at: Instant | None
    end_at: Instant | None
    exclude: tuple[str, ...]
    calendar: str | None
    day_off: DayOff
    jitter: str | None
    window: str | None
    misfire: ScheduleMisfire
    catch_up: str
    overlap: Overlap
    max_firings: int | None
    pause_after: int | None
    service_call: Annotated[
        ScheduledCallResponse | None,
        Meta(description="what an occurrence submits in the place of a callback: callbackUrl is null"),
    ]
    timeout_seconds: Annotated[int | None, Meta(description="null with serviceCall")]
    headers: HeadersText
    retry_policy: Annotated[
        TimerRetryPolicyResponse | None,
        Meta(description="the one in force: its own, or else its namespace's; null with serviceCall"),
    ]
    payload: PayloadText


def schedule_response(timer: Timer, namespace_policy: RetryPolicy) -> ScheduleResponse:
    """Make the response. ``namespace_policy`` holds for a schedule without a retry policy of its own."""
    content, schedule = timer.content, timer.schedule
    pending = None if schedule is None or schedule.is_unknown else schedule.pending
    pause = None if schedule is None else schedule.pause
    readable = readable_timing(timer)
    spec = readable or TimingSpec()
    policy = SchedulePolicy() if schedule is None else schedule.policy
    callback = callback_fields(timer)
    if timer.submits_call:
        callback |= {"callback_url": None, "payload": NULL}
    return ScheduleResponse.of(
        timer,
        content,
        spec,
        policy,
        id=timer.schedule_id or "",
        state=state_of(timer),
        next_scheduled_at=None if pending is None else format_instant(pending.scheduled_at),
        next_due_at=None if pending is None else format_instant(pending.due_at),
        number=0 if schedule is None else schedule.number,
        firings=0 if schedule is None else schedule.firings,
        end_reason=None if schedule is None else schedule.end,
        paused_at=None if pause is None else format_instant(pause.at),
        pause_reason=None if pause is None else pause.reason,
        failure=failure_response(timer.failure),
        description=None if readable is None else _sentence(readable),
        every=None if spec.every_ms is None else format_duration(spec.every_ms),
        jitter=format_duration(spec.jitter_ms) if spec.jitter_ms else None,
        window=format_duration(spec.window_ms) if spec.window_ms else None,
        catch_up=format_duration(policy.catch_up_ms),
        service_call=_call_response(timer),
        timeout_seconds=None if timer.submits_call else content.callback_timeout_seconds,
        retry_policy=(
            None
            if timer.submits_call
            else timer_retry_policy_response(policy_in_force(content.retry_policy_json, namespace_policy))
        ),
        **callback,
    )


def _sentence(spec: TimingSpec) -> str:
    # It takes long to load, and a process without schedules does without.
    from duetime.recurrence.words import sentence

    return sentence(spec)


class SchedulePage(Page[ScheduleResponse]):
    """Schedules in the order of shard, then id."""


class ChangedSchedulesResponse(ResponseModel):
    """What one request did to a page of schedules."""

    affected: Annotated[int, Meta(ge=0, description="paused, resumed, moved; with dryRun: would be", examples=[3])]
    skipped: Annotated[int, Meta(ge=0, description="left as they are, since they have changed or ended meanwhile")]
    next_cursor: str | None


def changed_response(page: ChangedPage, to_cursor: Callable[[str | None], str | None]) -> ChangedSchedulesResponse:
    return ChangedSchedulesResponse(page.affected, page.skipped, to_cursor(page.next_cursor))


class PastOccurrenceResponse(ResponseModel):
    """What became of an occurrence, or of a span of missed ones."""

    number: Annotated[int, Meta(ge=0, description="0: it was triggered or backfilled, beside the schedule")]
    kind: Annotated[OccurrenceKind, Meta(description="what had it sent")]
    state: OccurrenceState
    scheduled_at: Instant
    last_scheduled_at: Annotated[
        Instant | None, Meta(description="of a span of missed ones, the last", examples=["2026-12-20T15:35:00.000Z"])
    ]
    count: Annotated[
        int, Meta(ge=1, description="of missed ones in this span; at most 100, which stands for as many or more")
    ]
    started_at: Annotated[Instant | None, Meta(description="of its last attempt; null when nothing was sent")]
    recorded_at: Instant
    attempts: Annotated[int, Meta(ge=0)]
    failure: FailureResponse | None
    message: Annotated[str | None, Meta(description="of its last attempt: what was wrong, or the receiver asked for")]
    service_call_id: Annotated[str | None, Meta(description="the service call that was submitted")]


def past_occurrence_response(line: OccurrenceRecord) -> PastOccurrenceResponse:
    attempts = read_attempts(line.attempt_log)
    return PastOccurrenceResponse.of(
        line,
        failure=failure_response(line.failure),
        message=(attempts[-1].message or None) if attempts else None,
        service_call_id=line.call_id,
    )


class OccurrencesResponse(ResponseModel):
    past: Annotated[list[PastOccurrenceResponse], Meta(description="the latest first")]
    coming: Annotated[list[OccurrenceResponse], Meta(description="the next first; none of a schedule that has ended")]


class TriggerResponse(ResponseModel):
    id: str
    namespace: str
    scheduled_at: Annotated[Instant, Meta(description="as the callback will have it")]
    firing_id: Annotated[str, Meta(description="the webhook-id of the callback")]


class ScheduleDeletionResponse(ResponseModel):
    id: str
    namespace: str


class BackfillResponse(ResponseModel):
    """What one request did of a backfill."""

    created: Annotated[
        int, Meta(ge=0, description="occurrences that will be sent, or with dryRun: would be", examples=[7])
    ]
    skipped: Annotated[int, Meta(ge=0, description="those that an earlier backfill is still to send")]
    last_due_at: Annotated[
        Instant | None,
        Meta(
            description="when the last of them is due; null when there is none", examples=["2026-12-20T15:30:09.000Z"]
        ),
    ]
    next_cursor: str | None


class CancelBackfillResponse(ResponseModel):
    """What one request did to cancel backfills."""

    cancelled: Annotated[
        int, Meta(ge=0, description="occurrences that are not sent, or with dryRun: would not be", examples=[7])
    ]
    skipped: Annotated[int, Meta(ge=0, description="those in flight for long, or changed meanwhile")]
    next_cursor: str | None
