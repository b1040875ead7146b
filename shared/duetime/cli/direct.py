"""Calls the API's handler in this process, as a server would."""

from __future__ import annotations

import httpx

from duetime.domain.clock import Clock
from duetime.local import gateway
from duetime.runtime.wiring import Handler


class HandlerTransport(httpx.BaseTransport):
    """Passes requests to ``handler`` and returns its responses."""

    def __init__(self, handler: Handler, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = gateway.ask(
            self._handler,
            request.method,
            request.url.raw_path.decode(),
            headers=request.headers.items(),
            body=request.read(),
            received_at=self._clock.now(),
        )
        return httpx.Response(response.status, headers=response.headers, content=response.body)
