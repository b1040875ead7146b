"""Where the events of a tenant's service calls are delivered to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Unpack

from duetime_client import bodies
from duetime_client.asynchronous.batches import AsyncBatches
from duetime_client.asynchronous.namespaces import AsyncSigningSecrets
from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.call_models import Delivery, EventType, EventWebhook
from duetime_client.models import Attempt, ItemResult, Redriven, TimerFilter, TimerState
from duetime_client.requests import changing, reading, removing, segment


class AsyncTenantWebhook:
    """The event webhook of the tenant: at most one."""

    def __init__(self, transport: AsyncTransport, tenant_path: str) -> None:
        self._transport = transport
        self._path = f"{tenant_path}/event-webhook"
        self._batches = AsyncBatches(transport)
        self.secrets = AsyncSigningSecrets(
            transport, self._path, operations=("createEventSecret", "listEventSecrets", "deleteEventSecret")
        )

    async def put(
        self,
        *,
        url: str,
        event_types: Sequence[EventType | str] | None = None,
        enabled: bool = True,
        if_revision: int | None = None,
        if_absent: bool = False,
    ) -> EventWebhook:
        """Set it. Without ``event_types`` it gets all.

        With ``if_revision`` only if it still has this one, with ``if_absent`` only if there is none; else
        ``PreconditionFailed``.
        """
        body = bodies.body(bodies.WEBHOOK, url=url, event_types=event_types, enabled=enabled)
        return await self._transport.send(
            changing(
                "putEventWebhook",
                "PUT",
                self._path,
                EventWebhook,
                body,
                if_revision=if_revision,
                headers={"if-none-match": "*"} if if_absent else None,
            )
        )

    async def get(self) -> EventWebhook:
        """Return it. Raises ``NotFound``."""
        return await self._transport.send(reading("getEventWebhook", self._path, EventWebhook))

    async def delete(self, *, if_revision: int | None = None) -> None:
        """Remove it and its secrets; what waits becomes dead letters."""
        await self._transport.send(removing("deleteEventWebhook", self._path, if_revision=if_revision))

    def deliveries(
        self,
        *,
        state: TimerState | str | None = None,
        type: EventType | str | None = None,  # noqa: A002
        page_size: int = bodies.PAGE_ITEMS,
    ) -> AsyncIterator[Delivery]:
        """List events on their way, delivered ones and dead letters (``state=TimerState.FAILED``)."""
        query = bodies.query(state=state, type=type, limit=page_size)
        return self._transport.items("listDeliveries", f"{self._path}/deliveries", Delivery, query)

    def attempts(self, delivery_id: str) -> AsyncIterator[Attempt]:
        """Return the last attempts of a delivery, oldest first."""
        path = f"{self._path}/deliveries/{segment('delivery_id', delivery_id)}/attempts"
        return self._transport.items("listDeliveryAttempts", path, Attempt)

    async def redrive_many(
        self,
        *,
        dry_run: bool = False,
        page_size: int = bodies.PAGE_ITEMS,
        on_page: Callable[[Redriven], None] | None = None,
        **filters: Unpack[TimerFilter],
    ) -> Redriven:
        """Deliver dead letters again: all that this holds for, as ``redrive_many`` of timers has it."""
        body = bodies.conditions(**filters, dry_run=dry_run or None, limit=page_size)
        path = f"{self._path}/redrive"
        return await self._transport.each_page("redriveDeliveries", path, Redriven, body, on_page)

    async def redrive_ids(self, delivery_ids: Iterable[str]) -> tuple[ItemResult, ...]:
        """Deliver these dead letters again. A result for each, in order."""
        return await self._batches.redrive_ids("redriveDeliveries", f"{self._path}/redrive", delivery_ids)
