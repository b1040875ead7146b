"""uvicorn's protocol with bounds for what comes before anybody is asked for a key: the head, and the wait for it.

httptools keeps what it has read of a head until the head is complete, however long that takes and however long the
head gets; so it does with trailers and with what frames the chunks of a body. Bodies have bounds in ``asgi``.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of all that a request has beside its body. What arrives in one piece, as a socket gives it, may be more, and is not
counted for a request that begins within it: where, the parser does not tell."""
HEAD_SECONDS: Final = 20.0
"""From the connection, or from the first byte of a later request, to the end of its head."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"  # RFC 6585
)


class BoundedHttp(HttpToolsProtocol):
    head_seconds: float = HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._beside_bodies = 0
        self._piece_bytes = 0
        self._is_within_piece = False
        self._is_in_head = True
        self._head_timer = self.loop.call_later(self.head_seconds, self._close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._piece_bytes, self._is_within_piece = len(data), False
        super().data_received(data)
        self._beside_bodies += len(data)
        if not self._is_in_head and self.timeout_keep_alive_task is None and self._is_answered():
            # Empty lines, or the rest of a body that nobody wants, begin no request: the connection is idle still.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        if self._beside_bodies > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self._is_in_head and self._is_answered():
                self.transport.write(_TOO_LARGE)
            self._close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._beside_bodies = -self._piece_bytes if self._is_within_piece else 0
        self._is_within_piece = True
        if not self._is_in_head:
            self._is_in_head = True
            self._head_timer = self.loop.call_later(self.head_seconds, self._close)

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_timer.cancel()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._is_within_piece = True
        self._beside_bodies -= len(body)
        super().on_body(body)

    def _is_answered(self) -> bool:
        """Whether no answer is under way."""
        return self.cycle is None or self.cycle.response_complete

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
