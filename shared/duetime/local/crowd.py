"""Tracks the connections of an HTTP server, and closes waiting ones when there are too many."""

from __future__ import annotations

from collections import Counter
from enum import Enum, auto
from typing import Final, Protocol
from weakref import WeakKeyDictionary

MAX_HALF_OPEN_PER_PEER: Final = 100
"""A client that opens many connections says on each at once what it wants; these are for slow networks."""


class State(Enum):
    HALF_OPEN = auto()
    """A request is awaited, or has arrived in part."""
    IN_FLIGHT = auto()
    """A request has arrived and is being processed."""
    IDLE = auto()
    """Every request has its response, and no further one has begun."""


class Connection(Protocol):
    """``client`` is the peer's host and port; None where it has none."""

    client: tuple[str, int] | None

    def give_way(self) -> None: ...


class Crowd:
    """Tracks the connections of one server, in one event loop."""

    def __init__(self) -> None:
        self._half_open: dict[Connection, None] = {}
        self._idle: dict[Connection, None] = {}
        """Both in the order in which they began to wait."""
        self._half_open_of: Counter[str] = Counter()

    @classmethod
    def of(cls, server: object) -> Crowd:
        """Return the crowd of ``server``, an object that lives as long as the server."""
        return _crowds.setdefault(server, cls())

    def note(self, connection: Connection, state: State) -> None:
        if state is State.HALF_OPEN and connection in self._half_open:
            return  # it goes on waiting
        self.leave(connection)
        if state is State.HALF_OPEN:
            self._half_open[connection] = None
            self._half_open_of[_peer(connection)] += 1
        elif state is State.IDLE:
            self._idle[connection] = None

    def leave(self, connection: Connection) -> None:
        """Note that a connection was closed or waits no more."""
        self._idle.pop(connection, None)
        if connection in self._half_open:
            del self._half_open[connection]
            peer = _peer(connection)
            self._half_open_of[peer] -= 1
            if not self._half_open_of[peer]:
                del self._half_open_of[peer]

    def in_flight(self, connections: int) -> int:
        """Count the ``connections`` whose request is being processed."""
        return connections - len(self._half_open) - len(self._idle)

    def is_crowded_by(self, connection: Connection) -> bool:
        """Tell whether the peer has too many half-open requests for the full timeout."""
        return self._half_open_of[_peer(connection)] > MAX_HALF_OPEN_PER_PEER

    def make_room(self, newcomer: Connection) -> None:
        """Close the connection that has been half open for longest, else the one that has been idle for longest."""
        for waiting in (self._half_open, self._idle):
            oldest = next(iter(waiting), None)
            if oldest is not None and oldest is not newcomer:
                self.leave(oldest)
                oldest.give_way()
                return


_crowds: WeakKeyDictionary[object, Crowd] = WeakKeyDictionary()


def _peer(connection: Connection) -> str:
    return "" if connection.client is None else connection.client[0]
