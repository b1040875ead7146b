"""Timers of a namespace."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import timedelta
from typing import Unpack

from duetime_client import bodies
from duetime_client.asynchronous.batches import AsyncBatches
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.batching import encoded_refs, encoded_timers
from duetime_client.models import (
    AnswerArguments,
    Answered,
    Attempt,
    Deleted,
    ItemResult,
    MovedTimers,
    NewTimer,
    Redriven,
    Timer,
    TimerArguments,
    TimerFilter,
    TimerState,
)
from duetime_client.requests import (
    MERGE_PATCH,
    Answer,
    Request,
    answering,
    changing,
    id_segment,
    reading,
    revision_header,
    segment,
)
from duetime_client.values import RawJson


class AsyncTimers:
    """Timers of one namespace."""

    def __init__(self, transport: AsyncTransport, namespace: str) -> None:
        self._transport = transport
        self._namespace_path = f"/v1/namespaces/{segment('namespace', namespace)}"
        self._path = f"{self._namespace_path}/timers"
        self._batches = AsyncBatches(transport)

    async def create(self, *, timer_id: str | None = None, **timer: Unpack[TimerArguments]) -> Timer:
        """Create a timer, or get the one with the same id and content: its fields are those of ``NewTimer``.

        A ``local_time`` that does not exist fires at the first instant after the gap; with ``dst`` "skip" it is
        refused.

        Without ``timer_id`` the client makes one, so that a request whose answer was lost can be repeated. Raises
        ``Conflict`` when a timer with this id and other content exists.
        """
        body = bodies.timer_body(NewTimer(**timer, id=bodies.new_id() if timer_id is None else timer_id))
        return await self._transport.send(changing("createTimer", "POST", self._path, Timer, body))

    async def put(
        self,
        timer_id: str,
        *,
        if_revision: int | None = None,
        if_absent: bool = False,
        **timer: Unpack[TimerArguments],
    ) -> Timer:
        """Create or replace a timer, even after it fired.

        With ``if_revision`` only if it still has this one, with ``if_absent`` only if there is none; else
        ``PreconditionFailed``. The same content with the same ``execute_at`` as before changes nothing, in any state.
        """
        request = changing(
            "putTimer",
            "PUT",
            self._of(timer_id),
            Timer,
            bodies.timer_body(NewTimer(**timer, id=None)),
            if_revision=if_revision,
            headers={"if-none-match": "*"} if if_absent else None,
        )
        return await self._transport.send(request)

    async def create_many(
        self, timers: Iterable[NewTimer | RawJson], *, spread: timedelta | None = None
    ) -> tuple[ItemResult, ...]:
        """Create any number of timers, up to 500 in a request. A result for each, in order.

        A ``RawJson`` is a timer as the API takes it. With ``spread`` each is due later than it says, by less than
        that: evenly, and for an id always as much.

        Timers without an id are given one, which is in the result. What goes wrong with single timers is in their
        results. When a request fails as a whole, its timers and those after it have that error in theirs; but if
        that is the first one, and it stored nothing, it is raised.
        """
        return await self._batches.send(
            "createTimers",
            f"{self._path}/batch",
            "timers",
            encoded_timers(timers),
            beside=bodies.body(bodies.BATCH, spread=spread),
        )

    async def cancel_many(
        self, timer_ids: Iterable[str], *, if_revisions: Mapping[str, int] | None = None
    ) -> tuple[ItemResult, ...]:
        """Cancel any number of timers; those in ``if_revisions`` only if they still have it. As ``create_many``."""
        items = encoded_refs("timer_ids", timer_ids, if_revisions or {})
        return await self._batches.send("cancelTimers", f"{self._path}/batch-cancel", "timers", items)

    async def delete_many(
        self, timer_ids: Iterable[str], *, if_revisions: Mapping[str, int] | None = None
    ) -> tuple[ItemResult, ...]:
        """Remove any number of timers; those in ``if_revisions`` only if they still have it. As ``create_many``."""
        items = encoded_refs("timer_ids", timer_ids, if_revisions or {})
        return await self._batches.send(
            "deleteTimers", f"{self._path}/batch-delete", "timers", items, is_removal=True
        )

    async def get(self, timer_id: str) -> Timer:
        """Return a timer. Raises ``NotFound``."""
        return await self._transport.send(reading("getTimer", self._of(timer_id), Timer))

    async def update(
        self, timer_id: str, *, if_revision: int | None = None, **change: Unpack[TimerArguments]
    ) -> Timer:
        """Change what is given of a timer that has not finished, and keep the rest; None clears.

        With ``if_revision`` only if it still has this one, else ``PreconditionFailed``.
        """
        request = changing(
            "patchTimer",
            "PATCH",
            self._of(timer_id),
            Timer,
            bodies.patch(bodies.TIMER, **change),
            if_revision=if_revision,
            content_type=MERGE_PATCH,
        )
        return await self._transport.send(request)

    async def cancel(self, timer_id: str, *, if_revision: int | None = None) -> Timer:
        """End a waiting timer: it is kept as Cancelled, and not fired any more. One that fired, failed or is being
        sent is a ``Conflict``; a Cancelled one is returned as it is."""
        path = f"{self._of(timer_id)}/cancel"
        return await self._transport.send(changing("cancelTimer", "POST", path, Timer, if_revision=if_revision))

    async def delete(self, timer_id: str, *, if_revision: int | None = None) -> Deleted:
        """Remove a timer in any state. Raises ``NotFound``, unless an earlier try, whose answer was lost, may have
        removed it."""
        request = Request(
            operation="deleteTimer",
            method="DELETE",
            path=self._of(timer_id),
            headers=revision_header(if_revision),
            read=_deleted,
            gone=lambda: Deleted(id=timer_id, attempt_in_flight=None),
        )
        return await self._transport.send(request)

    def list(
        self,
        *,
        state: TimerState | str | None = None,
        page_size: int = bodies.PAGE_ITEMS,
        **filters: Unpack[TimerFilter],
    ) -> AsyncIterator[Timer]:
        """List the timers that match all filters, a page at a time."""
        query = bodies.query(state=state, **filters, limit=page_size)
        return self._transport.items("listTimers", self._path, Timer, query)

    def dead_letters(
        self, *, page_size: int = bodies.PAGE_ITEMS, **filters: Unpack[TimerFilter]
    ) -> AsyncIterator[Timer]:
        """List failed timers, as ``list`` does; ``redrive_many`` puts them back."""
        return self.list(state=TimerState.FAILED, page_size=page_size, **filters)

    def attempts(self, timer_id: str) -> AsyncIterator[Attempt]:
        """Return the last attempts, oldest first."""
        return self._transport.items("listAttempts", f"{self._of(timer_id)}/attempts", Attempt)

    async def answer(self, timer_id: str, firing_id: str, answer: str, **given: Unpack[AnswerArguments]) -> Answered:
        """Say what came of work that a receiver took with a 202: ``ack``, ``nack`` or ``heartbeat``.

        Raises ``Conflict`` where none is awaited (code ``firing_not_waiting``), or not any more (``firing_over``).
        """
        return await self._transport.send(answering("answerTimer", self._of(timer_id), firing_id, answer, given))

    async def fire(self, timer_id: str, *, if_revision: int | None = None) -> Timer:
        """Fire a waiting timer now."""
        path = f"{self._of(timer_id)}/fire"
        return await self._transport.send(changing("fireTimer", "POST", path, Timer, if_revision=if_revision))

    async def redrive(self, timer_id: str, *, if_revision: int | None = None) -> Timer:
        """Put a failed timer back to scheduled, due now."""
        path = f"{self._of(timer_id)}/redrive"
        return await self._transport.send(changing("redriveTimer", "POST", path, Timer, if_revision=if_revision))

    async def redrive_many(
        self,
        *,
        dry_run: bool = False,
        page_size: int = bodies.PAGE_ITEMS,
        on_page: Callable[[Redriven], None] | None = None,
        **filters: Unpack[TimerFilter],
    ) -> Redriven:
        """Redrive all failed timers that all of this holds for; without filters, all that have failed.

        ``dry_run`` only counts. ``on_page`` is told what each request did: what was redriven stays redriven when it
        breaks off.
        """
        body = bodies.conditions(**filters, dry_run=dry_run or None, limit=page_size)
        path = f"{self._namespace_path}/redrive"
        return await self._transport.each_page("redriveTimers", path, Redriven, body, on_page)

    async def redrive_ids(self, timer_ids: Iterable[str]) -> tuple[ItemResult, ...]:
        """Redrive these failed timers. A result for each, as ``create_many`` has it."""
        return await self._batches.redrive_ids("redriveTimers", f"{self._namespace_path}/redrive", timer_ids)

    async def recompute(
        self,
        *,
        dry_run: bool = False,
        page_size: int | None = None,
        on_page: Callable[[MovedTimers], None] | None = None,
    ) -> MovedTimers:
        """Compute again when timers with a ``local_time`` are due: for a new release of tzdata.

        ``dry_run`` only counts those that would move. ``on_page`` is told what each request did.
        """
        body = bodies.conditions(dry_run=dry_run or None, limit=page_size)
        path = f"{self._path}/recompute"
        return await self._transport.each_page("recomputeTimers", path, MovedTimers, body, on_page)

    def _of(self, timer_id: str) -> str:
        return f"{self._path}/{id_segment('timer_id', timer_id)}"


def _deleted(answer: Answer) -> Deleted:
    return answer.as_a(Deleted)
