"""Lets pages of listed origins use the local server: ``api.http.cors`` for ASGI."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

from duetime.api.http.cors import Cors
from duetime.local.asgi import Asgi, Receive, Scope, Send, send_response
from duetime.local.gateway import HttpResponse


class WithCors:
    """An ASGI application that answers browsers' questions, and adds to what ``app`` responds."""

    def __init__(self, app: Asgi, cors: Cors) -> None:
        self._app = app
        self._cors = cors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        given = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        allowed = self._cors.preflight(scope["method"], given)
        if allowed is not None:
            await send_response(HttpResponse(204, tuple(allowed.items()), b""), send)
            return
        more = self._cors.headers(given.get("origin"))

        async def send_with_more(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                added = [(name.encode(), value.encode()) for name, value in more.items()]
                message = {**message, "headers": [*message["headers"], *added]}
            await send(message)

        await self._app(scope, receive, send_with_more)
