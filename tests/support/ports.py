"""A port for a server that cannot choose one itself (``--port 0``)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def reserved_port() -> Iterator[int]:
    """A free port of 127.0.0.1 that nobody else is given inside the block.

    A server that binds with SO_REUSEADDR, as asyncio's do, may listen on it: the port is bound here and not listened
    to. Leave the block once it does. Other tests run meanwhile, so a port that was merely seen to be free may go to
    one of their servers or connections.
    """
    with socket.socket() as reservation:
        reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        reservation.bind(("127.0.0.1", 0))
        port: int = reservation.getsockname()[1]
        yield port
