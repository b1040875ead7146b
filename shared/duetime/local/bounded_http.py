"""uvicorn's protocol with bounds for what comes before anybody is asked for a key: the head, and the wait for it.

httptools keeps what it has read of a head until the head is complete, however long that takes and however long the
head gets; so it does with trailers and with what frames the chunks of a body. Bodies have bounds in ``asgi``.

uvicorn refuses requests by the number of connections, so that whoever opens many and says nothing shuts all others
out. Here only requests that have arrived count, and connections that wait give way (``crowd``).
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duetime.local.crowd import Crowd, State

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of all that a request has beside its body. What arrives in one piece, as a socket gives it, may be more, and is not
counted for a request that begins within it: where, the parser does not tell."""
HEAD_SECONDS: Final = 20.0
"""From the connection, or from the first byte of a later request, to the end of its head."""
CROWDED_HEAD_SECONDS: Final = 2.0
"""The same, where the peer has many requests half open already."""
HEALTH_PATH: Final = b"/health"
"""Served however many requests are under way: who asks would take a refusal for a death."""

_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"  # RFC 6585
)


class BoundedHttp(HttpToolsProtocol):
    head_seconds: float = HEAD_SECONDS
    crowded_head_seconds: float = CROWDED_HEAD_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._crowd = Crowd.of(self.server_state)
        self._is_within_message = True
        self._note_state()
        limit = self.config.limit_concurrency
        if limit is not None and len(self.connections) > limit:
            self._crowd.make_room(self)
        self._beside_bodies = 0
        self._piece_bytes = 0
        self._is_within_piece = False
        self._begin_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        self._crowd.leave(self)
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
        self._is_within_message = True
        self._note_state()
        if not self._is_in_head:
            self._begin_head()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        self._head_timer.cancel()
        limit = self.config.limit_concurrency
        is_full = limit is not None and self._crowd.under_way(len(self.connections)) >= limit
        # 0 makes uvicorn refuse this request, None makes it count no connections.
        self.limit_concurrency = 0 if is_full and self.url.partition(b"?")[0] != HEALTH_PATH else None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_within_message = False
        super().on_message_complete()
        self._note_state()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._note_state()

    def on_body(self, body: bytes) -> None:
        self._is_within_piece = True
        self._beside_bodies -= len(body)
        super().on_body(body)

    def _begin_head(self) -> None:
        self._is_in_head = True
        is_crowded = self._crowd.is_crowded_by(self)
        self._head_timer = self.loop.call_later(
            self.crowded_head_seconds if is_crowded else self.head_seconds, self._close
        )

    def _note_state(self) -> None:
        if not self._is_answered() and not self._is_within_message:
            state = State.UNDER_WAY
        else:
            state = State.HALF_OPEN if self._is_within_message else State.IDLE
        self._crowd.note(self, state)

    def _is_answered(self) -> bool:
        """Whether no answer is under way."""
        return self.cycle is None or self.cycle.response_complete

    def give_way(self) -> None:
        """For ``Crowd``: there is no place for it any more."""
        self._close()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
