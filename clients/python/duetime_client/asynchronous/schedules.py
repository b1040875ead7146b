"""Schedules of namespaces, and the preview of one that is not stored."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime
from typing import Unpack

from duetime_client import bodies
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.models import AnswerArguments, Answered, SchedulePreview
from duetime_client.requests import MERGE_PATCH, answering, changing, id_segment, reading, removing, segment
from duetime_client.schedule_models import (
    Backfilled,
    CancelledBackfill,
    ChangedSchedules,
    NewSchedule,
    Occurrences,
    Schedule,
    ScheduleChange,
    ScheduleFilter,
    ScheduleState,
    TimingArguments,
    Triggered,
)


class AsyncSchedules:
    """Callbacks at times that recur."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, namespace: str, schedule: NewSchedule, *, schedule_id: str | None = None) -> Schedule:
        """Create a new schedule, or the one that exists with the same id and is the same.

        Without ``schedule_id`` the client makes one, so that a request whose answer was lost can be repeated. Raises
        ``Conflict`` when there is another one with this id.
        """
        body = bodies.schedule_body(schedule, id=bodies.new_id() if schedule_id is None else schedule_id)
        request = changing("createSchedule", "POST", _path(namespace), Schedule, body)
        return await self._transport.send(request)

    async def put(
        self,
        namespace: str,
        schedule_id: str,
        schedule: NewSchedule,
        *,
        dry_run: bool | None = None,
        if_revision: int | None = None,
    ) -> Schedule:
        """Create or replace a schedule. Its history stays, and the same one changes nothing.

        With ``dry_run`` the same is returned, and nothing is stored. With ``if_revision`` only if it still has this
        one; else ``PreconditionFailed``.
        """
        path, body = _path(namespace, schedule_id), bodies.schedule_body(schedule, id=None)
        query = bodies.query(dry_run=dry_run)
        request = changing("putSchedule", "PUT", path, Schedule, body, query=query, if_revision=if_revision)
        return await self._transport.send(request)

    async def update(
        self, namespace: str, schedule_id: str, *, if_revision: int | None = None, **change: Unpack[ScheduleChange]
    ) -> Schedule:
        """Change what is given; None clears. With other times the next occurrence is the first after now."""
        request = changing(
            "patchSchedule",
            "PATCH",
            _path(namespace, schedule_id),
            Schedule,
            bodies.patch(bodies.SCHEDULE, **change),
            if_revision=if_revision,
            content_type=MERGE_PATCH,
        )
        return await self._transport.send(request)

    async def get(self, namespace: str, schedule_id: str) -> Schedule:
        """Return a schedule. Raises ``NotFound``."""
        return await self._transport.send(reading("getSchedule", _path(namespace, schedule_id), Schedule))

    def list(
        self,
        namespace: str,
        *,
        state: ScheduleState | str | None = None,
        calendar: str | None = None,
        page_size: int = bodies.PAGE_ITEMS,
        **filters: Unpack[ScheduleFilter],
    ) -> AsyncIterator[Schedule]:
        """List the schedules that match all filters, a page at a time, by shard and id."""
        query = bodies.query(state=state, calendar=calendar, **filters, limit=page_size)
        return self._transport.items("listSchedules", _path(namespace), Schedule, query)

    async def pause_many(
        self,
        namespace: str,
        *,
        reason: str | None = None,
        dry_run: bool = False,
        page_size: int | None = None,
        on_page: Callable[[ChangedSchedules], None] | None = None,
        **filters: Unpack[ScheduleFilter],
    ) -> ChangedSchedules:
        """Pause all active schedules that all of this holds for; without filters, all that are active.

        ``dry_run`` only counts. ``on_page`` is told what each request did: what was paused stays paused when it
        breaks off.
        """
        body = bodies.conditions(reason=reason, **filters, dry_run=dry_run or None, limit=page_size)
        path = f"{_path(namespace)}/pause"
        return await self._transport.each_page("pauseSchedules", path, ChangedSchedules, body, on_page)

    async def resume_many(
        self,
        namespace: str,
        *,
        dry_run: bool = False,
        page_size: int | None = None,
        on_page: Callable[[ChangedSchedules], None] | None = None,
        **filters: Unpack[ScheduleFilter],
    ) -> ChangedSchedules:
        """Resume all paused schedules that all of this holds for, as ``pause_many`` pauses."""
        body = bodies.conditions(**filters, dry_run=dry_run or None, limit=page_size)
        path = f"{_path(namespace)}/resume"
        return await self._transport.each_page("resumeSchedules", path, ChangedSchedules, body, on_page)

    async def recompute(
        self,
        namespace: str,
        *,
        dry_run: bool = False,
        page_size: int | None = None,
        on_page: Callable[[ChangedSchedules], None] | None = None,
    ) -> ChangedSchedules:
        """Compute again when each schedule occurs next: for a new release of tzdata. ``dry_run`` only counts those
        that would move."""
        body = bodies.conditions(dry_run=dry_run or None, limit=page_size)
        path = f"{_path(namespace)}/recompute"
        return await self._transport.each_page("recomputeSchedules", path, ChangedSchedules, body, on_page)

    async def delete(self, namespace: str, schedule_id: str, *, if_revision: int | None = None) -> None:
        """Remove a schedule, its history and what its backfills are still to send.

        An occurrence that is being retried, or in flight, goes on.
        """
        request = removing("deleteSchedule", _path(namespace, schedule_id), if_revision=if_revision)
        await self._transport.send(request)

    async def pause(
        self, namespace: str, schedule_id: str, *, reason: str | None = None, if_revision: int | None = None
    ) -> Schedule:
        """Fire nothing of it until it is resumed. Raises ``Conflict`` when it has ended."""
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

    async def answer(
        self,
        namespace: str,
        schedule_id: str,
        firing_id: str,
        answer: str,
        *,
        scheduled_at: datetime,
        **given: Unpack[AnswerArguments],
    ) -> Answered:
        """Say what came of an occurrence, as ``timers(...).answer`` does of a timer."""
        path = _path(namespace, schedule_id)
        request = answering("answerOccurrence", path, firing_id, answer, given, scheduled_at=scheduled_at)
        return await self._transport.send(request)

    async def backfill(
        self,
        namespace: str,
        schedule_id: str,
        *,
        from_at: datetime,
        to_at: datetime | None = None,
        rate_limit: float | None = None,
        dry_run: bool = False,
        page_size: int | None = None,
        on_page: Callable[[Backfilled], None] | None = None,
    ) -> Backfilled:
        """Send the occurrences from ``from_at`` up to ``to_at`` (now) once more, or late.

        ``rate_limit`` of them become due per second, 1 without it. ``dry_run`` only counts. ``on_page`` is told what
        each request did. What is there when it breaks off is sent: ``cancel_backfill`` removes it.
        """
        body = bodies.conditions(
            **{"from": from_at, "to": to_at},
            rate_limit=rate_limit,
            dry_run=dry_run or None,
            limit=page_size,
        )
        path = f"{_path(namespace, schedule_id)}/backfill"
        return await self._transport.each_page("backfillSchedule", path, Backfilled, body, on_page)

    async def cancel_backfill(
        self, namespace: str, schedule_id: str, *, dry_run: bool = False, page_size: int | None = None
    ) -> CancelledBackfill:
        """Remove what backfills are still to send. ``dry_run`` only counts it."""
        body = bodies.conditions(dry_run=dry_run or None, limit=page_size)
        path = f"{_path(namespace, schedule_id)}/backfill/cancel"
        return await self._transport.each_page("cancelBackfill", path, CancelledBackfill, body)

    async def occurrences(
        self, namespace: str, schedule_id: str, *, from_at: datetime | None = None, count: int | None = None
    ) -> Occurrences:
        """Return the last ``count`` (10) occurrences with what became of them, and as many of the next ones.

        With ``from_at`` only what is scheduled then or later.
        """
        query = bodies.query(**{"from": from_at}, count=count)
        path = f"{_path(namespace, schedule_id)}/occurrences"
        return await self._transport.send(reading("listOccurrences", path, Occurrences, query=query))

    async def preview(
        self,
        *,
        cron: str | Sequence[str] = (),
        rrule: str | Sequence[str] = (),
        exclude: str | Sequence[str] = (),
        from_at: datetime | None = None,
        count: int | None = None,
        schedule_id: str | None = None,
        **timing: Unpack[TimingArguments],
    ) -> SchedulePreview:
        """Return when a schedule would occur, from ``from_at`` (now) on. One of ``cron``, ``every`` and ``rrule`` is
        needed; several together occur at the times of all.

        Raises ``InvalidRequest`` with the field at fault.
        """
        body = bodies.body(
            bodies.TIMING,
            cron=cron,
            rrule=rrule,
            exclude=exclude,
            from_at=from_at,
            count=count,
            schedule_id=schedule_id,
            **timing,
        )
        request = changing("previewSchedule", "POST", "/v1/schedules/preview", SchedulePreview, body)
        return await self._transport.send(request)


def _path(namespace: str, schedule_id: str | None = None) -> str:
    path = f"/v1/namespaces/{segment('namespace', namespace)}/schedules"
    return path if schedule_id is None else f"{path}/{id_segment('schedule_id', schedule_id)}"
