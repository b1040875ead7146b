"""The API's handler, called in this process as a server would call it."""

from __future__ import annotations

import httpx

from duetime.domain.clock import Clock
from duetime.local.gateway import HttpRequest, from_result, to_event
from duetime.runtime.ids import new_id
from duetime.runtime.wiring import Handler


class HandlerTransport(httpx.BaseTransport):
    """Brings requests to ``handler``, and its answers back."""

    def __init__(self, handler: Handler, clock: Clock) -> None:
        self._handler = handler
        self._clock = clock

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        path, _, query = request.url.raw_path.decode().partition("?")
        event = to_event(
            HttpRequest(
                method=request.method,
                raw_path=path,
                raw_query=query,
                headers=tuple(request.headers.items()),
                body=request.read(),
                http_version="1.1",
                client_host="127.0.0.1",
                request_id=new_id(),
                received_at=self._clock.now(),
            )
        )
        answer = from_result(self._handler(event, None))
        return httpx.Response(answer.status, headers=answer.headers, content=answer.body)
