"""Many items in as many requests as they need: made, cancelled and removed, dead letters redriven."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from duetime_client.asynchronous.transport import AsyncTransport
from duetime_client.batching import (
    MAX_BATCH_BYTES,
    MAX_BATCH_ITEMS,
    Encoded,
    RedriveByIds,
    batch_request,
    failed_items,
    may_have_done_something,
)
from duetime_client.errors import DuetimeError
from duetime_client.models import ItemResult
from duetime_client.requests import split


class AsyncBatches:
    """What timers, service calls and deliveries share."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def send(
        self,
        operation: str,
        path: str,
        member: str,
        items: Sequence[Encoded],
        *,
        beside: Mapping[str, Any] | None = None,
        is_removal: bool = False,
    ) -> tuple[ItemResult, ...]:
        """Send ``items``: a result for each, in order; ``member`` of the body has them, and ``beside`` what else is
        in it.

        Raises what kept the first request from doing anything.
        """
        results: list[ItemResult] = []
        for start, end in split(
            [content for _, content in items], max_items=MAX_BATCH_ITEMS, max_bytes=MAX_BATCH_BYTES
        ):
            request = batch_request(
                operation, path, member, items[start:end], beside=beside or {}, is_removal=is_removal
            )
            try:
                found = await self._transport.send(request)
            except DuetimeError as error:
                if not results and not may_have_done_something(error):
                    raise
                return (*results, *failed_items([each for each, _ in items[start:]], error))
            results += found
        return tuple(results)

    async def redrive_ids(self, operation: str, path: str, ids: Iterable[str]) -> tuple[ItemResult, ...]:
        """Return a result for each, in order."""
        redrive = RedriveByIds(operation, path, ids)
        while (request := redrive.request()) is not None:
            try:
                found = await self._transport.send(request)
            except DuetimeError as error:
                redrive.failed(error)
            else:
                redrive.answered(found)
        return redrive.results()
