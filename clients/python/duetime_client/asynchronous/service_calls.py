"""Service calls of a tenant: requests of its own, sent at a due time."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Unpack

from duetime_client import bodies
from duetime_client.asynchronous.batches import AsyncBatches
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.batching import encoded_calls, encoded_refs
from duetime_client.call_models import (
    CallArguments,
    CallChange,
    CallEvent,
    CallStatus,
    Execution,
    NewServiceCall,
    ServiceCall,
)
from duetime_client.following import EventPage, Following
from duetime_client.models import ItemResult
from duetime_client.requests import MERGE_PATCH, changing, reading, removing, segment
from duetime_client.values import UNSET, RawJson, Unset


class AsyncServiceCalls:
    """The service calls of one tenant."""

    def __init__(self, transport: AsyncTransport, tenant_path: str) -> None:
        self._transport = transport
        self._path = f"{tenant_path}/service-calls"
        self._batches = AsyncBatches(transport)

    async def submit(self, *, name: str, **call: Unpack[CallArguments]) -> ServiceCall:
        """Submit a new call, due now unless ``due_at`` or ``delay`` is given; or get the one that was submitted
        before with this idempotency key and content. Its fields are those of ``NewServiceCall``.

        One of ``url`` and ``target`` is needed. The ``method`` is GET when it is omitted; a target has none and
        takes a ``body`` that is an object. A ``body`` that is a text is sent as this text, anything else as JSON.

        Without ``idempotency_key`` the client makes one, so that a request whose answer was lost can be repeated.
        Raises ``Conflict`` when other content was submitted with this key.
        """
        return await self._transport.send(
            changing(
                "submitServiceCall",
                "POST",
                self._path,
                ServiceCall,
                bodies.call_body(NewServiceCall(name=name, **call)),
                has_own_key=True,
            )
        )

    async def submit_many(self, calls: Iterable[NewServiceCall | RawJson]) -> tuple[ItemResult, ...]:
        """Submit any number of calls, up to 500 in a request. A result for each, in order, with the id of the call.

        A ``RawJson`` is a call as the API takes it. Failures are as in ``AsyncTimers.create_many``.
        """
        items = encoded_calls(calls)
        return await self._batches.send("submitServiceCalls", f"{self._path}/batch", "serviceCalls", items)

    async def cancel_many(
        self, call_ids: Iterable[str], *, if_revisions: Mapping[str, int] | None = None
    ) -> tuple[ItemResult, ...]:
        """Cancel any number of calls; those in ``if_revisions`` only if they still have it. As ``submit_many``."""
        items = encoded_refs("call_ids", call_ids, if_revisions or {})
        return await self._batches.send("cancelServiceCalls", f"{self._path}/batch-cancel", "serviceCalls", items)

    async def delete_many(
        self, call_ids: Iterable[str], *, if_revisions: Mapping[str, int] | None = None
    ) -> tuple[ItemResult, ...]:
        """Remove any number of finished calls; those in ``if_revisions`` only if they still have it. As
        ``submit_many``."""
        items = encoded_refs("call_ids", call_ids, if_revisions or {})
        path = f"{self._path}/batch-delete"
        return await self._batches.send("deleteServiceCalls", path, "serviceCalls", items, is_removal=True)

    async def get(self, call_id: str) -> ServiceCall:
        """Return a call. Raises ``NotFound``."""
        return await self._transport.send(reading("getServiceCall", self._of(call_id), ServiceCall))

    def list(
        self,
        *,
        status: CallStatus | str | None = None,
        tags: Sequence[str] | None = None,
        created_from: datetime | None = None,
        created_to: datetime | None = None,
        name: str | None = None,
        starred: bool | None = None,
        correlation_id: str | None = None,
        page_size: int = bodies.PAGE_ITEMS,
    ) -> AsyncIterator[ServiceCall]:
        """List the calls that match all filters, the newest first, without bodies, a page at a time.

        ``tags``: they have all of these. ``name``: theirs begins with it; they come in order of names then.
        """
        query = bodies.query(
            status=status,
            tag=tags,
            created_from=created_from,
            created_to=created_to,
            name=name,
            starred=starred,
            correlation_id=correlation_id,
            limit=page_size,
        )
        return self._transport.items("listServiceCalls", self._path, ServiceCall, query)

    def upcoming(
        self, *, due_to: datetime | None = None, page_size: int = bodies.PAGE_ITEMS
    ) -> AsyncIterator[ServiceCall]:
        """List scheduled calls, what comes next first, up to those due before ``due_to``."""
        query = bodies.query(status=CallStatus.SCHEDULED, order="dueAt", due_to=due_to, limit=page_size)
        return self._transport.items("listServiceCalls", self._path, ServiceCall, query)

    async def update(
        self,
        call_id: str,
        *,
        name: str | Unset = UNSET,
        if_revision: int | None = None,
        **change: Unpack[CallChange],
    ) -> ServiceCall:
        """Change what is given and keep the rest; None clears. All but ``name``, ``tags`` and ``starred`` only while
        nothing of it is in flight: for its due time, or between two attempts.

        With ``if_revision`` only if it still has this one, else ``PreconditionFailed``.
        """
        of_request = {each: value for each, value in change.items() if each in bodies.CALL_REQUEST}
        others = {each: value for each, value in change.items() if each not in of_request}
        members = bodies.patch(bodies.CALL, name=name, **others)
        request = bodies.patch(bodies.CALL_REQUEST, **of_request)
        return await self._transport.send(
            changing(
                "patchServiceCall",
                "PATCH",
                self._of(call_id),
                ServiceCall,
                members | ({"request": request} if request else {}),
                if_revision=if_revision,
                content_type=MERGE_PATCH,
            )
        )

    async def star(self, call_id: str) -> ServiceCall:
        """Keep it after its end."""
        return await self.update(call_id, starred=True)

    async def unstar(self, call_id: str) -> ServiceCall:
        """Let it expire its retention after its end: an old one at once."""
        return await self.update(call_id, starred=False)

    async def fire(self, call_id: str, *, if_revision: int | None = None) -> ServiceCall:
        """Make a call due now that waits for its due time or its next attempt. A finished one, and one whose request
        is in flight, is a ``Conflict``."""
        path = f"{self._of(call_id)}/fire"
        return await self._transport.send(
            changing("fireServiceCall", "POST", path, ServiceCall, if_revision=if_revision)
        )

    async def cancel(self, call_id: str, *, if_revision: int | None = None) -> ServiceCall:
        """End a call that waits for its due time or its next attempt: it is kept as Cancelled, and nothing of it is
        sent any more. A finished one, and one whose request is in flight, is a ``Conflict``; a Cancelled one is
        left as it is."""
        path = f"{self._of(call_id)}/cancel"
        return await self._transport.send(
            changing("cancelServiceCall", "POST", path, ServiceCall, if_revision=if_revision)
        )

    async def delete(self, call_id: str, *, if_revision: int | None = None) -> None:
        """Remove a finished call with all that it has. One that has not finished is a ``Conflict``."""
        await self._transport.send(removing("deleteServiceCall", self._of(call_id), if_revision=if_revision))

    async def rerun(
        self,
        call_id: str,
        *,
        due_at: datetime | None = None,
        delay: timedelta | None = None,
        idempotency_key: str | None = None,
        correlation_id: str | None = None,
        if_revision: int | None = None,
    ) -> ServiceCall:
        """Submit a finished call once more, as a new one. The key is as for ``submit``."""
        body = bodies.body(
            bodies.CALL,
            due_at=due_at,
            delay=delay,
            idempotency_key=bodies.new_id() if idempotency_key is None else idempotency_key,
            correlation_id=correlation_id,
        )
        path = f"{self._of(call_id)}/rerun"
        return await self._transport.send(
            changing("rerunServiceCall", "POST", path, ServiceCall, body, if_revision=if_revision, has_own_key=True)
        )

    def executions(self, call_id: str, *, page_size: int = bodies.PAGE_ITEMS) -> AsyncIterator[Execution]:
        """List its executions, the newest first, without bodies."""
        path = f"{self._of(call_id)}/executions"
        return self._transport.items("listExecutions", path, Execution, [("limit", str(page_size))])

    async def execution(self, call_id: str, execution_id: str) -> Execution:
        """Return what was sent and what came back."""
        path = f"{self._of(call_id)}/executions/{segment('execution_id', execution_id)}"
        return await self._transport.send(reading("getExecution", path, Execution))

    async def events(
        self, call_id: str, *, after: int = 0, page_size: int = bodies.PAGE_ITEMS
    ) -> AsyncIterator[CallEvent]:
        """Return the events that there are by now, with a greater sequence than ``after``."""
        path = f"{self._of(call_id)}/events"
        while True:
            query = bodies.query(after=after, limit=page_size)
            page = await self._transport.send(reading("listEvents", path, EventPage, query=query))
            for event in page.items:
                yield event
            if page.complete or not page.items:
                return
            after = page.next_after

    def follow(self, call_id: str, *, after: int = 0) -> AsyncGenerator[CallEvent, None]:
        """Yield the events that there are and those to come, until the call has finished or is removed.

        They come as a stream, which is made again behind the last event when it breaks off. A server without streams
        is asked every second.
        """
        path = f"{self._of(call_id)}/events"
        retries = self._transport.connecting.retries
        return self._transport.follow(Following(path, after=after, retries=retries, random=random.random))

    def _of(self, call_id: str) -> str:
        return f"{self._path}/{segment('call_id', call_id)}"
