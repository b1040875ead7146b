"""Limits what a client can make the server hold before it is authenticated: the head of a request, and its time.

httptools buffers an incomplete head without limits of size and time, and trailers and chunk framing likewise. Bodies
have their limits in ``asgi``.

uvicorn refuses requests by the number of connections, so a client with many silent ones would lock out all others.
Here only requests that have arrived count, and waiting connections are closed to make room (``crowd``).

uvicorn has no option for any of this (only its slower h11 protocol limits the size of heads), so its private parts
are used: pyproject.toml bounds its version.
"""

from __future__ import annotations

import asyncio
from typing import Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from duetime.local.crowd import Crowd, State

MAX_HEAD_BYTES: Final = 64 * 1024
"""Limit for head, chunk framing and trailers. Approximate for pipelined requests: the bytes of a read in which a
request starts are not counted for it."""
HEAD_SECONDS: Final = 20.0
"""From the connection, or the first byte of a later request, to the end of the head."""
CROWDED_HEAD_SECONDS: Final = 2.0
"""The same for a peer that has many half-open requests already."""
HEALTH_PATH: Final = b"/health"
"""Always served: a health check would take a refusal for a failure."""

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
        if not self._is_in_head and self.timeout_keep_alive_task is None and self._has_responded():
            # Empty lines, or the rest of a refused body, start no request: the connection is still idle.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        if self._beside_bodies > MAX_HEAD_BYTES and not self.transport.is_closing():
            if self._is_in_head and self._has_responded():
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
        is_full = limit is not None and self._crowd.in_flight(len(self.connections)) >= limit
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
        if not self._has_responded() and not self._is_within_message:
            state = State.IN_FLIGHT
        else:
            state = State.HALF_OPEN if self._is_within_message else State.IDLE
        self._crowd.note(self, state)

    def _has_responded(self) -> bool:
        """Tell whether no response is in progress."""
        return self.cycle is None or self.cycle.response_complete

    def give_way(self) -> None:
        """Close the connection, for ``Crowd``."""
        self._close()

    def _close(self) -> None:
        if not self.transport.is_closing():
            self.transport.close()
