"""The whole days of the events in an iCalendar file (RFC 5545), as calendars of holidays have them."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final

from duetime.domain.calendars import MAX_DATES

_DAY: Final = timedelta(days=1)


def days_of(text: str) -> list[date]:
    """Return the days of all events that last whole days (``VALUE=DATE``), in order, each once.

    DTEND is the day after the last; without it an event has one day. Cancelled events do not count. Raises
    ``ValueError`` for what is no iCalendar file, for events that recur, and for more than ``MAX_DATES`` days.
    """
    found: set[date] = set()
    event: dict[str, str] | None = None
    lines = _unfolded(text)
    if not lines or lines[0].upper() != "BEGIN:VCALENDAR":
        raise ValueError("it is no iCalendar file: it does not begin with BEGIN:VCALENDAR")
    for line in lines:
        name, _, value = line.partition(":")
        member = name.partition(";")[0].upper()
        if (member, value.strip().upper()) == ("BEGIN", "VEVENT"):
            event = {}
        elif (member, value.strip().upper()) == ("END", "VEVENT"):
            found |= _days(event or {})
            event = None
        elif event is not None:
            event[member] = value.strip()
        if len(found) > MAX_DATES:
            raise ValueError(f"it has more than {MAX_DATES} days")
    return sorted(found)


def _unfolded(text: str) -> list[str]:
    """Join each line that begins with a space to the one before."""
    lines = text.replace("\r\n", "\n").replace("\n ", "").replace("\n\t", "").split("\n")
    return [line for line in lines if line.strip()]


def _days(event: dict[str, str]) -> set[date]:
    start, end = event.get("DTSTART", ""), event.get("DTEND")
    if len(start) != 8 or event.get("STATUS", "").upper() == "CANCELLED":
        return set()
    named = event.get("SUMMARY", start)[:60]
    for member in ("RRULE", "RDATE"):
        if member in event:
            raise ValueError(f"the event {named!r} recurs ({member}): list its days instead")
    first = _date(start, named)
    last = first if end is None else max(first, _date(end, named) - _DAY)
    if last - first > MAX_DATES * _DAY:
        raise ValueError(f"the event {named!r} has more than {MAX_DATES} days")
    return {first + number * _DAY for number in range((last - first).days + 1)}


def _date(text: str, named: str) -> date:
    try:
        return datetime.strptime(text, "%Y%m%d").date()  # noqa: DTZ007  # a local day
    except ValueError:
        raise ValueError(f"the event {named!r} has a day that cannot be read: {text[:20]!r}") from None
