"""Calendars: the business days that schedules share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import date

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.requests import changing, reading, removing, segment
from duetime_client.schedule_models import Calendar, Weekday

_PATH = "/v1/calendars"


class AsyncCalendars:
    """The calendars of a tenant."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    def list(self) -> AsyncIterator[Calendar]:
        """List calendars by name."""
        return self._transport.items("listCalendars", _PATH, Calendar, [])

    async def get(self, name: str) -> Calendar:
        """Return a calendar. Raises ``NotFound``."""
        return await self._transport.send(reading("getCalendar", _of(name), Calendar))

    async def put(
        self,
        name: str,
        *,
        weekdays: Sequence[Weekday | str] | None = None,
        days_off: Sequence[date | str] = (),
        business_days: Sequence[date | str] = (),
        ics: str | None = None,
        if_revision: int | None = None,
    ) -> Calendar:
        """Create or replace a calendar. ``weekdays`` are like ``MON``: Monday to Friday without them.

        ``ics``: the text of an iCalendar file. The whole days of its events are days off, too.
        Schedules follow it from their next occurrence but one on. ``schedules.recompute`` computes the next one, too,
        if it is sent ten seconds later. With ``if_revision`` only if it still has this one; else
        ``PreconditionFailed``.
        """
        body = bodies.body(
            bodies.CALENDAR, weekdays=weekdays, days_off=days_off, business_days=business_days, ics=ics
        )
        request = changing("putCalendar", "PUT", _of(name), Calendar, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def delete(self, name: str, *, if_revision: int | None = None) -> None:
        """Delete a calendar. Schedules that name it do not fire until there is one with its name again."""
        await self._transport.send(removing("deleteCalendar", _of(name), if_revision=if_revision))


def _of(name: str) -> str:
    return f"{_PATH}/{segment('name', name)}"
