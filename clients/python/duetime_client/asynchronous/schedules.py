"""Schedules of namespaces, and the preview of one that is not stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.models import Dst, SchedulePreview
from duetime_client.requests import MERGE_PATCH, changing, reading, removing, segment
from duetime_client.schedule_models import NewSchedule, Occurrences, Schedule, ScheduleChange, Triggered


class AsyncSchedules:
    """Callbacks at times that recur."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, namespace: str, schedule: NewSchedule, *, schedule_id: str | None = None) -> Schedule:
        """A new schedule, or the one that exists with the same id and is the same.

        Without ``schedule_id`` the client makes one, so that a request whose answer was lost can be repeated. Raises
        ``Conflict`` when there is another one with this id.
        """
        body = bodies.schedule_body(schedule, id=bodies.new_id() if schedule_id is None else schedule_id)
        request = changing("createSchedule", "POST", _path(namespace), Schedule, body)
        return await self._transport.send(request)

    async def put(
        self, namespace: str, schedule_id: str, schedule: NewSchedule, *, if_revision: int | None = None
    ) -> Schedule:
        """Create or replace a schedule. Its history stays, and the same one changes nothing.

        With ``if_revision`` only if it still has this one; else ``PreconditionFailed``.
        """
        path, body = _path(namespace, schedule_id), bodies.schedule_body(schedule, id=None)
        request = changing("putSchedule", "PUT", path, Schedule, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def update(
        self, namespace: str, schedule_id: str, change: ScheduleChange, *, if_revision: int | None = None
    ) -> Schedule:
        """Change what is given. With other times the next occurrence is the first after now; else it stays."""
        request = changing(
            "patchSchedule",
            "PATCH",
            _path(namespace, schedule_id),
            Schedule,
            bodies.schedule_patch(change),
            if_revision=if_revision,
            content_type=MERGE_PATCH,
        )
        return await self._transport.send(request)

    async def get(self, namespace: str, schedule_id: str) -> Schedule:
        """Raises ``NotFound``."""
        return await self._transport.send(reading("getSchedule", _path(namespace, schedule_id), Schedule))

    def list(self, namespace: str, *, page_size: int = bodies.PAGE_ITEMS) -> AsyncIterator[Schedule]:
        """A page at a time, in no order that means anything."""
        return self._transport.items("listSchedules", _path(namespace), Schedule, [("limit", str(page_size))])

    async def delete(self, namespace: str, schedule_id: str, *, if_revision: int | None = None) -> None:
        """Remove a schedule and its history. An occurrence that is being retried, or in flight, goes on."""
        request = removing("deleteSchedule", _path(namespace, schedule_id), if_revision=if_revision)
        await self._transport.send(request)

    async def pause(
        self, namespace: str, schedule_id: str, *, reason: str | None = None, if_revision: int | None = None
    ) -> Schedule:
        """Nothing of it is fired until it is resumed. Raises ``Conflict`` when it has ended."""
        path, body = f"{_path(namespace, schedule_id)}/pause", bodies.conditions(reason=reason)
        request = changing("pauseSchedule", "POST", path, Schedule, body, if_revision=if_revision)
        return await self._transport.send(request)

    async def resume(self, namespace: str, schedule_id: str, *, if_revision: int | None = None) -> Schedule:
        """Fire again. What came due meanwhile is missed, and fires as its ``misfire`` says."""
        path = f"{_path(namespace, schedule_id)}/resume"
        request = changing("resumeSchedule", "POST", path, Schedule, if_revision=if_revision)
        return await self._transport.send(request)

    async def trigger(self, namespace: str, schedule_id: str) -> Triggered:
        """Fire it now, beside its occurrences, which stay as they are. A paused one, too."""
        path = f"{_path(namespace, schedule_id)}/trigger"
        return await self._transport.send(changing("triggerSchedule", "POST", path, Triggered))

    async def occurrences(
        self, namespace: str, schedule_id: str, *, past: int | None = None, coming: int | None = None
    ) -> Occurrences:
        """Return the last ``past`` occurrences with what became of them, and the next ``coming``."""
        query = bodies.query(past=past, coming=coming)
        path = f"{_path(namespace, schedule_id)}/occurrences"
        return await self._transport.send(reading("listOccurrences", path, Occurrences, query=query))

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


def _path(namespace: str, schedule_id: str | None = None) -> str:
    path = f"/v1/namespaces/{segment('namespace', namespace)}/schedules"
    return path if schedule_id is None else f"{path}/{segment('schedule_id', schedule_id)}"


def _one_or_more(texts: str | Sequence[str]) -> Sequence[str] | None:
    return (texts,) if isinstance(texts, str) else texts or None
