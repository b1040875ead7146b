"""Requests about schedules: the times at which one occurs."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Annotated, Any, Final

from pydantic import AfterValidator, ConfigDict, Field, PlainValidator, WithJsonSchema

from duetime.api.calendars.requests import CALENDAR_NAME_SCHEMA
from duetime.api.http import validators
from duetime.api.http.request_models import (
    MAX_COUNT,
    WITH_TARGET,
    CallbackUrl,
    Instant,
    PagedBody,
    PageQuery,
    RequestModel,
    Tag,
    TargetBody,
    all_of,
    any_case,
    at_most_one_of,
    duration_schema,
    one_of,
    shape_of,
    some_of,
    text_schema,
)
from duetime.api.namespaces.requests import PauseBody
from duetime.api.service_calls.requests import CALL_TEMPLATE_SHAPE, CallTemplateBody
from duetime.api.timers.requests import TIMER_ID_SCHEMA, CallbackFields, TimeZone
from duetime.app.schedule_lists import ScheduleFilter
from duetime.domain.calendars import check_name
from duetime.domain.ids import MAX_SCHEDULE_ID_CHARACTERS
from duetime.domain.schedules import MAX_CAUGHT_UP, Overlap, ScheduleMisfire, SchedulePolicy, ScheduleState
from duetime.domain.times import MAX_DURATION_SECONDS, parse_duration_ms
from duetime.recurrence.spec import (
    MAX_CHARACTERS,
    MAX_CRON,
    MAX_EXCLUSIONS,
    MAX_RRULE,
    MAX_WINDOW_MS,
    MIN_INTERVAL_MS,
    DayOff,
    Dst,
    TimingSpec,
)

DEFAULT_COUNT: Final = 10
SCHEDULE_ID_SCHEMA: Final = TIMER_ID_SCHEMA | {
    "maxLength": MAX_SCHEDULE_ID_CHARACTERS,
    "examples": ["daily-report"],
}
_MAX_DURATION_MS: Final = int(MAX_DURATION_SECONDS * 1000)


def _texts_schema(form: str, example: str, max_items: int) -> dict[str, Any]:
    text = {"type": "string", "format": form, "minLength": 1, "maxLength": MAX_CHARACTERS, "examples": [example]}
    return {"type": "array", "maxItems": max_items, "items": text}


def _sources_schema(form: str, example: str, max_items: int) -> WithJsonSchema:
    texts = _texts_schema(form, example, max_items)
    return WithJsonSchema({"anyOf": [texts["items"], texts], "examples": [example]})


def _sources(value: Any) -> tuple[str, ...]:
    return _texts([value] if isinstance(value, str) else value, "must be a string or an array of strings")


def _exclusions(value: Any) -> tuple[str, ...]:
    return _texts(value, "must be an array of strings")


def _texts(value: Any, problem: str) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise ValueError(problem)
    return tuple(value)


def _duration_ms(value: Any) -> int:
    return parse_duration_ms(value, min_ms=0, max_ms=_MAX_DURATION_MS)


def _durations(*, least_ms: int, most_ms: int) -> WithJsonSchema:
    return WithJsonSchema(
        duration_schema(least_seconds=least_ms / 1000, most_seconds=most_ms / 1000, step_seconds=0.001)
    )


Cron = Annotated[
    tuple[str, ...], PlainValidator(_sources), _sources_schema("duetime-cron", "30 9 * * MON-FRI", MAX_CRON)
]
Rrule = Annotated[
    tuple[str, ...],
    PlainValidator(_sources),
    _sources_schema("duetime-rrule", "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", MAX_RRULE),
]
Exclude = Annotated[
    tuple[str, ...],
    PlainValidator(_exclusions),
    WithJsonSchema(_texts_schema("duetime-exclusion", "2026-12-25", MAX_EXCLUSIONS)),
]
Interval = Annotated[
    int, PlainValidator(_duration_ms), _durations(least_ms=MIN_INTERVAL_MS, most_ms=_MAX_DURATION_MS)
]
Delay = Annotated[int, PlainValidator(_duration_ms), _durations(least_ms=0, most_ms=MAX_WINDOW_MS)]

CalendarName = Annotated[str, AfterValidator(check_name), WithJsonSchema(CALENDAR_NAME_SCHEMA)]


def _id(value: str) -> str:
    return validators.text(value, MAX_SCHEDULE_ID_CHARACTERS)


class TimingFields(RequestModel):
    """When a schedule occurs: one or more of ``cron``, ``every`` and ``rrule``. Null is the default.

    The values themselves are checked by ``recurrence``.
    """

    cron: Cron | None = Field(
        default=None,
        description="expressions of 5 fields, or 6 with the second first; @daily and the like;"
        " EventBridge's cron(...) and rate(...)",
    )
    every_ms: Interval | None = Field(default=None, description="an interval of 1s or more, counted from anchor")
    rrule: Rrule | None = Field(default=None, description="recurrence rules of RFC 5545")
    anchor: Instant | None = Field(
        default=None,
        description="where intervals are counted from; when it is omitted, 1970 for every, and startAt or else 1970"
        " for rrule and rate(...)",
    )
    time_zone: TimeZone | None = Field(
        default=None, description="a name of the IANA time zone database; UTC when it is omitted"
    )
    dst: Annotated[Dst, Field(strict=False), any_case(Dst)] | None = Field(
        default=None,
        description="when a time of day that does not exist, or happens twice, occurs where clocks are changed:"
        " once, which is the default, at the first instant after the gap and at the first of two;"
        " skip not in a gap; both at both of two",
    )
    start_at: Instant | None = None
    end_at: Instant | None = None
    exclude: Exclude | None = Field(
        default=None, description="dates, and cron expressions of times, on which it does not occur; of local time"
    )
    calendar: CalendarName | None = Field(
        default=None, description="the calendar that knows the business days; all days are some when it is omitted"
    )
    day_off: Annotated[DayOff, Field(strict=False), any_case(DayOff)] | None = Field(
        default=None,
        description="what is done with an occurrence on a day that is no business day of the calendar: skip, which is"
        " the default, leaves it out; next and previous move it to that business day, at its time of day",
    )
    jitter_ms: Delay | None = Field(
        default=None, description="each occurrence is delayed by up to this, by the id and the scheduled time"
    )
    window_ms: Delay | None = Field(
        default=None, description="all occurrences are delayed by the same time within this, by the id"
    )

    def timing(self) -> TimingSpec:
        """Return what was given of it."""
        names = TimingSpec.__dataclass_fields__
        return TimingSpec(**{name: value for name in names if (value := getattr(self, name)) is not None})


CatchUp = Annotated[int, PlainValidator(_duration_ms), _durations(least_ms=0, most_ms=_MAX_DURATION_MS)]
ScheduleId = Annotated[str, WithJsonSchema(SCHEDULE_ID_SCHEMA)]
_EXAMPLE: Final = {
    "cron": "30 9 * * MON-FRI",
    "timeZone": "Europe/Berlin",
    "callbackUrl": "https://shop.example.com/hooks/report",
}
_EXAMPLE_CALL: Final = {
    "name": "close orders",
    "request": {"method": "POST", "url": "https://shop.example.com/orders/close", "body": {"olderThan": "1h"}},
    "tags": ["orders"],
}


OF_CALLBACKS: Final = ("payload", "headers", "retryPolicy", "timeoutSeconds", "correlationId", "pauseAfter")
"""What a schedule with ``serviceCall`` cannot have."""


class ScheduleFields(TimingFields, CallbackFields):
    """When it occurs, what is done then, and what is done when that cannot be in time. Null is the default."""

    callback_url: CallbackUrl | None = Field(default=None, description="where each occurrence is sent")
    service_call: CallTemplateBody | None = Field(
        default=None,
        description="what each occurrence submits in the place of a callback, for the tenant of the namespace;"
        f" without {', '.join(OF_CALLBACKS)}",
    )
    misfire: Annotated[ScheduleMisfire, Field(strict=False), any_case(ScheduleMisfire)] | None = Field(
        default=None,
        description="what is done with occurrences that were missed, by an outage or a pause: all, which is the"
        f" default, fires those of the last catchUp, up to {MAX_CAUGHT_UP}; latest the last one; skip none",
    )
    catch_up_ms: CatchUp | None = Field(default=None, description="with misfire all; 1h when it is omitted")
    overlap: Annotated[Overlap, Field(strict=False), any_case(Overlap)] | None = Field(
        default=None,
        description="what is done with an occurrence while an earlier one is retried or in flight: allow, which is"
        " the default, fires it; skip does not; bufferOne fires the last one when the earlier one has ended",
    )
    max_firings: Annotated[int, Field(ge=1, le=2**53)] | None = None
    pause_after: Annotated[int, Field(ge=1, le=1000)] | None = Field(
        default=None, description="it is paused after so many failures in a row"
    )

    def policy(self) -> SchedulePolicy:
        names = SchedulePolicy.__dataclass_fields__
        return SchedulePolicy(**{name: value for name in names if (value := getattr(self, name)) is not None})


class ScheduleBody(ScheduleFields):
    """A schedule to create."""

    model_config = ConfigDict(
        json_schema_extra=all_of(
            some_of("cron", "every", "rrule"),
            one_of("callbackUrl", "target", "serviceCall"),
            at_most_one_of("target", "headers"),
            *(at_most_one_of("serviceCall", name) for name in OF_CALLBACKS),
        )
        | {
            "examples": [
                {"id": "daily-report", **_EXAMPLE},
                {**_EXAMPLE, "overlap": "skip", "misfire": "latest"},
                {"every": "1h", "serviceCall": _EXAMPLE_CALL},
            ]
        }
    )

    id: ScheduleId | None = Field(default=None, description="a UUIDv7 is made when it is omitted")
    paused: bool | None = Field(
        default=None,
        description="nothing fires until it is resumed; when it is omitted a schedule that is replaced stays"
        " paused or not",
    )


class SchedulePatch(ScheduleFields):
    """A JSON merge patch: what is omitted stays, null clears. None of ``callbackUrl``, ``target`` and
    ``serviceCall`` can be cleared. ``serviceCall`` can be given if the schedule has one, and is replaced as a whole;
    the others if it has none, and take each other's place."""

    model_config = ConfigDict(
        json_schema_extra=all_of(
            at_most_one_of("callbackUrl", "target", "serviceCall"),
            at_most_one_of("target", "headers"),
            *(at_most_one_of("serviceCall", name) for name in OF_CALLBACKS),
        )
        | {"examples": [{"cron": "0 10 * * *"}, {"maxFirings": None}]}
    )

    callback_url: CallbackUrl = Field(default=None)  # type: ignore[assignment]  # omitted; null is refused
    target: TargetBody = Field(default=None, description="takes no headers")  # type: ignore[assignment]
    service_call: CallTemplateBody = Field(default=None, description="replaced as a whole")  # type: ignore[assignment]

    def given_of(self, kind: type) -> dict[str, Any]:
        """Return what is given of the fields of ``kind``, a dataclass; null is its default."""
        return {
            each.name: each.default if getattr(self, each.name) is None else getattr(self, each.name)
            for each in fields(kind)
            if each.name in self.model_fields_set
        }


class PutScheduleQuery(RequestModel):
    dry_run: bool = Field(
        default=False, strict=False, description="true: answer what would be stored, and store nothing"
    )


class OccurrenceQuery(RequestModel):
    from_at: Instant | None = Field(
        default=None, alias="from", description="only what is scheduled then or later; all when it is omitted"
    )
    count: Annotated[
        int,
        PlainValidator(validators.whole_number(1, MAX_COUNT)),
        WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_COUNT}),
    ] = Field(default=DEFAULT_COUNT, description="the most past ones, and the most coming ones, that are returned")


class ScheduleFilters(RequestModel):
    """What all that is given must hold for."""

    tag: Tag | None = None
    due_from: Instant | None = Field(default=None, description="of the next occurrence; inclusive")
    due_to: Instant | None = Field(default=None, description="of the next occurrence; exclusive")

    def wanted(self, state: ScheduleState | None) -> ScheduleFilter:
        return ScheduleFilter(state=state, tag=self.tag, due_from=self.due_from, due_to=self.due_to)


class ScheduleQuery(ScheduleFilters, PageQuery):
    state: Annotated[ScheduleState, Field(strict=False), any_case(ScheduleState)] | None = None
    calendar: CalendarName | None = Field(default=None, description="the calendar that it names")

    def wanted_ones(self) -> ScheduleFilter:
        return replace(self.wanted(self.state), calendar=self.calendar)


class ResumeSchedulesBody(ScheduleFilters, PagedBody):
    """Which paused schedules: those that fit all filters given, a page of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tag": "billing"}]})


class PauseSchedulesBody(ResumeSchedulesBody, PauseBody):
    """Which active schedules: those that fit all filters given, a page of them."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"tag": "billing", "reason": "end of the year"}]})


class BackfillBody(PagedBody):
    """Which occurrences are sent once more, or late, and how fast. None is sent that is pending or to come."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"from": "2026-12-01T00:00:00Z", "to": "2026-12-08T00:00:00Z", "rateLimit": 0.5}]
        }
    )

    from_at: Instant = Field(alias="from", description="inclusive")
    to_at: Instant | None = Field(default=None, alias="to", description="exclusive; now when it is omitted")
    rate_limit: Annotated[float, Field(ge=0.01, le=1000, allow_inf_nan=False)] = Field(
        default=1.0, description="how many become due per second"
    )


SCHEDULE_SHAPE: Final = shape_of(ScheduleBody, objects={"serviceCall": CALL_TEMPLATE_SHAPE, **WITH_TARGET})


class SchedulePreviewBody(TimingFields):
    """A schedule that is not stored."""

    model_config = ConfigDict(
        json_schema_extra=some_of("cron", "every", "rrule")
        | {
            "examples": [
                {"cron": "30 9 * * MON-FRI", "timeZone": "Europe/Berlin", "count": 5},
                {"every": "90m", "from": "2026-12-20T15:30:00Z"},
                {"rrule": "FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17", "exclude": ["2026-12-25"]},
            ]
        }
    )

    from_at: Instant | None = Field(
        default=None, alias="from", description="the first occurrence is then or later; now when it is omitted"
    )
    count: Annotated[int, Field(ge=1, le=MAX_COUNT)] = Field(
        default=DEFAULT_COUNT, description="the most occurrences that are returned"
    )
    id: Annotated[str, AfterValidator(_id), WithJsonSchema(text_schema(MAX_SCHEDULE_ID_CHARACTERS))] | None = Field(
        default=None, description="the id of the schedule, on which the delays of jitter and window depend"
    )
