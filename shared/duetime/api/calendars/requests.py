"""Requests about calendars."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field, PlainValidator, WithJsonSchema

from duetime.api.calendars.ics import days_of
from duetime.api.http.request_models import RequestModel, any_case
from duetime.domain.calendars import CALENDAR_PATTERN, MAX_DATES, MONDAY_TO_FRIDAY, Calendar, Weekday

CALENDAR_NAME_SCHEMA: Final = {"type": "string", "pattern": f"^{CALENDAR_PATTERN}$", "examples": ["de"]}
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_DATES_SCHEMA: Final = {
    "type": "array",
    "maxItems": MAX_DATES,
    "items": {"type": "string", "format": "date", "examples": ["2026-12-25"]},
}
_ICS_SCHEMA: Final = {
    "type": "string",
    "pattern": "^BEGIN:VCALENDAR\\r?\\n[^ \\t]",
    "examples": ["BEGIN:VCALENDAR\nBEGIN:VEVENT\nDTSTART;VALUE=DATE:20261225\nEND:VEVENT\nEND:VCALENDAR\n"],
}


def _dates(value: Any) -> frozenset[date]:
    if not isinstance(value, list) or not all(isinstance(each, str) and _DATE.fullmatch(each) for each in value):
        raise ValueError("must be an array of dates like 2026-12-25")
    try:
        return frozenset(map(date.fromisoformat, value))
    except ValueError:
        raise ValueError("must have days that exist") from None


def _days_of(value: Any) -> frozenset[date]:
    if not isinstance(value, str):
        raise ValueError("must be the text of an iCalendar file")
    return frozenset(days_of(value))


Dates = Annotated[frozenset[date], PlainValidator(_dates), WithJsonSchema(_DATES_SCHEMA)]


class CalendarBody(RequestModel):
    """The business days of a calendar. What is omitted has its default: it does not stay as it was."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"daysOff": ["2026-12-25", "2027-01-01"]}, {"weekdays": ["SUN", "MON"]}]}
    )

    weekdays: list[Annotated[Weekday, Field(strict=False), any_case(Weekday)]] | None = Field(
        default=None, description="those that have business days; Monday to Friday when it is omitted"
    )
    days_off: Dates | None = None
    business_days: Dates | None = None
    ics: Annotated[frozenset[date], PlainValidator(_days_of), WithJsonSchema(_ICS_SCHEMA)] | None = Field(
        default=None,
        description="the text of an iCalendar file: the whole days of its events are days off, too. Events with a "
        "time of day are left out, and one that recurs is refused: it must be listed day by day",
    )

    def calendar(self, name: str) -> Calendar:
        return Calendar(
            name=name,
            weekdays=MONDAY_TO_FRIDAY if self.weekdays is None else frozenset(self.weekdays),
            days_off=(self.days_off or frozenset()) | (self.ics or frozenset()),
            business_days=self.business_days or frozenset(),
        )
