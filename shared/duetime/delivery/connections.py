"""Whether a kept connection is still one, asked of its socket right before a request is written to it.

libcurl looks only once a second. What the other side closed since would be found out by sending to it, and then
nobody knows whether the request was read.
"""

from __future__ import annotations

import contextlib
import select
import socket
from collections.abc import Iterable

Connection = tuple[str, str, int, int]
"""As libcurl names one: remote and own address, remote and own port."""


class Connections:
    """Sockets by connection, for one thread. Each new connection must be told (``made``) before it is asked about.

    So one that ended needs no removal: whatever has its name later is told anew.
    """

    def __init__(self, limit: int) -> None:
        """``limit``: how many are remembered. It should exceed the connections that are open at a time."""
        self._limit = limit
        self._pollers: dict[Connection, select.poll] = {}

    def made(self, connection: Connection, descriptors: Iterable[int]) -> None:
        """Note that one of ``descriptors``, the sockets that were opened for it, became ``connection``."""
        self._pollers.pop(connection, None)
        for descriptor in descriptors:
            if _own_port(descriptor) == connection[3]:
                poller = self._pollers[connection] = select.poll()
                poller.register(descriptor, select.POLLIN)
        if len(self._pollers) > self._limit:
            del self._pollers[next(iter(self._pollers))]

    def is_ended(self, connection: Connection) -> bool:
        """Tell whether the other side closed or reset ``connection``, or sent what nobody asked for. Unknown:
        False."""
        poller = self._pollers.get(connection)
        return poller is not None and bool(poller.poll(0))


def _own_port(descriptor: int) -> int | None:
    """Return the local port of a socket; None if it was closed meanwhile, or is no such socket any more."""
    with contextlib.suppress(OSError):
        opened = socket.socket(fileno=descriptor)
        try:
            return int(opened.getsockname()[1])
        finally:
            opened.detach()
    return None
