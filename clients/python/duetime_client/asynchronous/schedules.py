"""Schedules: the preview of one that is not stored."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.models import Dst, SchedulePreview
from duetime_client.requests import changing


class AsyncSchedules:
    """Times that recur."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def preview(
        self,
        *,
        cron: str | Sequence[str] = (),
        every: timedelta | None = None,
        rrule: str | Sequence[str] = (),
        time_zone: str | None = None,
        anchor: datetime | None = None,
        dst: Dst | str | None = None,
        start_at: datetime | None = None,
        end_at: datetime | None = None,
        exclude: str | Sequence[str] = (),
        jitter: timedelta | None = None,
        window: timedelta | None = None,
        from_at: datetime | None = None,
        count: int | None = None,
        schedule_id: str | None = None,
    ) -> SchedulePreview:
        """Return when a schedule would occur, from ``from_at`` (now) on. One of ``cron``, ``every`` and ``rrule`` is
        needed; several together occur at the times of all.

        Raises ``InvalidRequest`` with the field at fault.
        """
        body = bodies.body(
            bodies.TIMING,
            cron=_one_or_more(cron),
            every=every,
            rrule=_one_or_more(rrule),
            time_zone=time_zone,
            anchor=anchor,
            dst=dst,
            start_at=start_at,
            end_at=end_at,
            exclude=_one_or_more(exclude),
            jitter=jitter,
            window=window,
            from_at=from_at,
            count=count,
            schedule_id=schedule_id,
        )
        request = changing("previewSchedule", "POST", "/v1/schedules/preview", SchedulePreview, body)
        return await self._transport.send(request)


def _one_or_more(texts: str | Sequence[str]) -> Sequence[str] | None:
    return (texts,) if isinstance(texts, str) else texts or None
