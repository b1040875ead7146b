"""libcurl's multi handle, and the sockets that it wants watched, within an event loop."""

from __future__ import annotations

import contextlib
import select
import selectors
import time
from asyncio import AbstractEventLoop
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

import pycurl

from duetime.delivery.settings import SenderSettings
from duetime.delivery.transfer import Transfer

_MAX_EVENTS = 256
_TURN_SECONDS = 0.01
"""Bounds how long one turn keeps the event loop from its other work. Sockets that it did not get to stay ready."""

# libcurl's wish (none, in, out, in and out) as the poller's events.
_EVENTS = (0, select.POLLIN, select.POLLOUT, select.POLLIN | select.POLLOUT)


class Multi:
    """Drives many transfers at once. Everything is called in the thread of ``loop``, and ``close`` when it has ended.

    libcurl's sockets are in a poller of their own, and the loop watches that one. So it costs the loop nothing when
    they come and go, as they do with each callback, and all that are ready are served in one turn. libcurl's timer
    is asked for rather than called back: it changes several times per callback.
    """

    def __init__(self, settings: SenderSettings, loop: AbstractEventLoop, on_ready: Callable[[], None]) -> None:
        """``on_ready`` is called when ``serve`` has something to do."""
        self._loop = loop
        self._watched: set[int] = set()
        self._poller = _open_poller()
        loop.add_reader(self._poller.fileno(), on_ready)
        self._curl = pycurl.CurlMulti()
        self._curl.setopt(pycurl.M_MAXCONNECTS, settings.max_connections)
        self._curl.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, settings.max_connections)
        self._curl.setopt(pycurl.M_MAX_HOST_CONNECTIONS, settings.max_connections_per_host)
        self._curl.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self._added: dict[pycurl.Curl, Transfer] = {}
        """By their handles, which libcurl names them by."""

    def add(self, transfer: Transfer) -> None:
        self._curl.add_handle(transfer.handle)
        self._added[transfer.handle] = transfer

    def forget(self, transfer: Transfer) -> None:
        del self._added[transfer.handle]

    def remove_all(self) -> list[Transfer]:
        """Remove and return those that were added and are not forgotten."""
        for handle in self._added:
            with contextlib.suppress(pycurl.error):  # it has ended
                self._curl.remove_handle(handle)
        transfers = list(self._added.values())
        self._added.clear()
        return transfers

    def serve(self) -> None:
        """Let the transfers go on whose sockets are ready."""
        curl, until = self._curl, time.monotonic() + _TURN_SECONDS
        for fd, mask in self._poller.poll(0, _MAX_EVENTS):
            curl.socket_action(fd, _action(mask))
            if time.monotonic() >= until:
                return

    def act(self) -> None:
        """Begin what was added, and end what has reached its deadline."""
        self._curl.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def seconds_left(self) -> float | None:
        """Return how long until ``act`` is to be called; None: not before a socket is ready."""
        timeout_ms: int = self._curl.timeout()
        return None if timeout_ms < 0 else timeout_ms / 1000

    def finished(self) -> Iterator[tuple[Transfer, int, str]]:
        """Return the transfers that ended since the last call, with libcurl's error code (0: none) and message. Each
        is to be added again or forgotten."""
        curl = self._curl
        more = True
        while more:
            more, succeeded, failed = curl.info_read(_MAX_EVENTS)
            for handle, code, message in (*((handle, 0, "") for handle in succeeded), *failed):
                curl.remove_handle(handle)
                yield self._added[handle], code, message

    def detach(self) -> None:
        """Leave the event loop."""
        self._loop.remove_reader(self._poller.fileno())

    def close(self) -> None:
        """Close all connections, those of transfers in flight too. From any thread, once it is detached."""
        self._curl.close()
        self._poller.close()

    def _watch(self, wish: int, fd: int, _multi: object, _data: object) -> None:
        """Serve libcurl's socket callback. It cannot report errors: a socket left unwatched ends at its deadline."""
        if wish == pycurl.POLL_REMOVE:
            self._watched.discard(fd)
            with contextlib.suppress(OSError, KeyError):  # closed already
                self._poller.unregister(fd)
        elif fd in self._watched:
            self._poller.modify(fd, _EVENTS[wish])
        else:
            self._watched.add(fd)
            self._poller.register(fd, _EVENTS[wish])


class SelectorPoller:
    """What is used of ``select.epoll``, where there is none. It costs some 8 us more for each callback."""

    def __init__(self) -> None:
        self._selector: Any = selectors.DefaultSelector()  # kqueue: like epoll's, its descriptor can be watched
        self.fileno: Callable[[], int] = self._selector.fileno
        self.unregister: Callable[[int], object] = self._selector.unregister
        self.close: Callable[[], None] = self._selector.close

    def register(self, fd: int, events: int) -> None:
        self._selector.register(fd, _selector_events(events))

    def modify(self, fd: int, events: int) -> None:
        self._selector.modify(fd, _selector_events(events))

    def poll(self, timeout: float, _max_events: int) -> list[tuple[int, int]]:
        return [
            (
                key.fd,
                (select.POLLIN if mask & selectors.EVENT_READ else 0)
                | (select.POLLOUT if mask & selectors.EVENT_WRITE else 0),
            )
            for key, mask in self._selector.select(timeout)
        ]


_open_poller: Final[Callable[[], Any]] = select.epoll if hasattr(select, "epoll") else SelectorPoller


def _selector_events(events: int) -> int:
    return (selectors.EVENT_READ if events & select.POLLIN else 0) | (
        selectors.EVENT_WRITE if events & select.POLLOUT else 0
    )


@lru_cache(maxsize=64)
def _action(mask: int) -> int:
    return (
        (pycurl.CSELECT_IN if mask & select.POLLIN else 0)
        | (pycurl.CSELECT_OUT if mask & select.POLLOUT else 0)
        | (pycurl.CSELECT_ERR if mask & (select.POLLERR | select.POLLHUP) else 0)
    )
