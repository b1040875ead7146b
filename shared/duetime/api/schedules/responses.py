"""Responses about schedules."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duetime.api.http.responses import Instant, ResponseModel


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


class SchedulePreviewResponse(ResponseModel):
    description: Annotated[
        str, Meta(description="when it occurs, in English", examples=["At 09:30, Monday to Friday, Europe/Berlin"])
    ]
    time_zone: Annotated[str, Meta(description="in which times of day are meant", examples=["Europe/Berlin"])]
    tzdata_version: Annotated[
        str, Meta(description="of the rules of time zones, as IANA names it", examples=["2026f"])
    ]
    items: Annotated[list[OccurrenceResponse], Meta(description="fewer than asked for when the schedule ends")]
