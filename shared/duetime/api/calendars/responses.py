"""Responses about calendars."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from duetime.api.http.responses import Page, ResponseModel
from duetime.domain.calendars import WEEKDAYS, Calendar, Weekday

_DATES = Meta(examples=[["2026-12-25"]], extra_json_schema={"items": {"type": "string", "format": "date"}})


class CalendarResponse(ResponseModel):
    name: Annotated[str, Meta(examples=["de"])]
    revision: Annotated[int, Meta(ge=1, description="counts changes; the ETag is this number in quotes")]
    weekdays: list[Weekday]
    days_off: Annotated[list[str], Meta(description="dates that are no business days, in order"), _DATES]
    business_days: Annotated[
        list[str], Meta(description="dates that are business days on any weekday, in order"), _DATES
    ]


def calendar_response(calendar: Calendar) -> CalendarResponse:
    return CalendarResponse(
        name=calendar.name,
        revision=calendar.revision,
        weekdays=[each for each in WEEKDAYS if each in calendar.weekdays],
        days_off=[each.isoformat() for each in sorted(calendar.days_off)],
        business_days=[each.isoformat() for each in sorted(calendar.business_days)],
    )


class CalendarPage(Page[CalendarResponse]):
    """All calendars of the tenant, in order of name."""
