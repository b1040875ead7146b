"""Requests of httpx that go to a handler in this process."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import httpx

from duetime.local.gateway import HttpRequest, from_result, to_event
from duetime.runtime.wiring import Handler


class HandlerTransport(httpx.BaseTransport, httpx.AsyncBaseTransport):
    """Brings requests to ``handler`` as a gateway would. ``requests`` are what was asked."""

    def __init__(
        self, handler: Handler, now: Callable[[], datetime], *, on_served: Callable[[], None] = lambda: None
    ) -> None:
        """``on_served`` is called after each request, before its answer is handed out."""
        self.requests: list[httpx.Request] = []
        self._handler = handler
        self._now = now
        self._on_served = on_served

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, request.read())

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        return self._answer(request, await request.aread())

    def _answer(self, request: httpx.Request, body: bytes) -> httpx.Response:
        self.requests.append(request)
        path, _, query = request.url.raw_path.decode().partition("?")
        event = to_event(
            HttpRequest(
                method=request.method,
                raw_path=path,
                raw_query=query,
                headers=tuple(request.headers.items()),
                body=body,
                http_version="1.1",
                client_host="127.0.0.1",
                request_id="gateway-request",
                received_at=self._now(),
            )
        )
        result = from_result(self._handler(event, None))
        self._on_served()
        return httpx.Response(result.status, headers=result.headers, content=result.body)
