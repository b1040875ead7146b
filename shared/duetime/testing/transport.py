"""Requests of httpx that go to a handler in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import httpx

from duetime.local import gateway
from duetime.runtime.wiring import Handler


class HandlerTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Brings requests to ``handler`` as a gateway would. ``requests`` are what was asked."""

    def __init__(
        self, handler: Handler, now: Callable[[], datetime], *, on_served: Callable[[], None] = lambda: None
    ) -> None:
        """``on_served`` is called after each request, before its response is returned."""
        self.requests: list[httpx.Request] = []
        self._handler = handler
        self._now = now
        self._on_served = on_served

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._respond(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._respond(request, await request.aread())

    def _respond(self, request: httpx.Request, body: bytes) -> httpx.Response:
        self.requests.append(request)
        target, headers = request.url.raw_path.decode(), request.headers.items()
        response = gateway.ask(
            self._handler, request.method, target, headers=headers, body=body, received_at=self._now()
        )
        self._on_served()
        return httpx.Response(response.status, headers=response.headers, content=response.body)
