"""libcurl's multi handle and the sockets that it wants watched."""

from __future__ import annotations

import contextlib
import select
from collections.abc import Callable, Iterator
from math import ceil
from typing import Any

import pycurl

from duetime.delivery.settings import SenderSettings
from duetime.delivery.transfer import Transfer

_MAX_EVENTS_PER_TURN = 256
"""Bounds a turn to some 10 ms, so that results and new callbacks never wait longer for the thread."""

# libcurl's wish (none, in, out, in and out) as the poller's events.
_EVENTS = (0, select.POLLIN, select.POLLOUT, select.POLLIN | select.POLLOUT)


class Multi:
    """Drives many transfers at once; for one thread. ``wake_fd`` ends the wait of a turn when it is readable.

    The timer of libcurl is asked for (``timeout``) rather than called back: each callback would have to take
    the interpreter lock from within libcurl.
    """

    def __init__(self, settings: SenderSettings, wake_fd: int) -> None:
        self._wake_fd = wake_fd
        self._watched: set[int] = set()
        self._poller, self._wait = _open_poller()
        self._poller.register(wake_fd, select.POLLIN)
        self._curl = pycurl.CurlMulti()
        self._curl.setopt(pycurl.M_MAXCONNECTS, settings.max_connections)
        self._curl.setopt(pycurl.M_MAX_TOTAL_CONNECTIONS, settings.max_connections)
        self._curl.setopt(pycurl.M_MAX_HOST_CONNECTIONS, settings.max_connections_per_host)
        self._curl.setopt(pycurl.M_SOCKETFUNCTION, self._watch)
        self.add: Callable[[Transfer], None] = self._curl.add_handle
        self.remove: Callable[[Transfer], None] = self._curl.remove_handle

    def turn(self, in_flight: int, max_wait_seconds: float | None = None) -> None:
        """Wait until something can go on, and let it. ``in_flight``: how many are added and not yet finished."""
        curl = self._curl
        timeout_ms = curl.timeout()
        if timeout_ms == 0:
            _, running = curl.socket_action(pycurl.SOCKET_TIMEOUT, 0)
            # One may have ended at once; nothing would wake us for it.
            timeout_ms = curl.timeout() if running == in_flight else 0
        if max_wait_seconds is not None:
            max_wait_ms = ceil(max_wait_seconds * 1000)
            timeout_ms = max_wait_ms if timeout_ms < 0 else min(timeout_ms, max_wait_ms)
        events = self._wait(timeout_ms)
        for fd, mask in events:
            if fd != self._wake_fd:
                curl.socket_action(fd, _action(mask))
        if not events:
            curl.socket_action(pycurl.SOCKET_TIMEOUT, 0)

    def finished(self) -> Iterator[tuple[Transfer, int, str]]:
        """Transfers that ended since the last call, each removed, with libcurl's error code (0: none) and message."""
        curl = self._curl
        more = True
        while more:
            more, succeeded, failed = curl.info_read(_MAX_EVENTS_PER_TURN)
            for transfer in succeeded:
                curl.remove_handle(transfer)
                yield transfer, 0, ""
            for transfer, code, message in failed:
                curl.remove_handle(transfer)
                yield transfer, code, message

    def close(self) -> None:
        """Close all connections, those of transfers in flight too."""
        self._curl.close()
        if hasattr(self._poller, "close"):
            self._poller.close()

    def _watch(self, wish: int, fd: int, _multi: object, _data: object) -> None:
        """libcurl's socket callback. It cannot report errors: a socket left unwatched ends at its deadline."""
        if wish == pycurl.POLL_REMOVE:
            self._watched.discard(fd)
            with contextlib.suppress(OSError):  # closed already
                self._poller.unregister(fd)
        elif fd in self._watched:
            self._poller.modify(fd, _EVENTS[wish])
        else:
            self._watched.add(fd)
            self._poller.register(fd, _EVENTS[wish])


def _action(mask: int) -> int:
    return (
        (pycurl.CSELECT_IN if mask & select.POLLIN else 0)
        | (pycurl.CSELECT_OUT if mask & select.POLLOUT else 0)
        | (pycurl.CSELECT_ERR if mask & (select.POLLERR | select.POLLHUP) else 0)
    )


def _open_poller() -> tuple[Any, Callable[[int], list[tuple[int, int]]]]:
    """A poller and its wait in milliseconds (negative: for ever). Its cost must not grow with idle connections.

    The standard ``selectors`` would do, at 8 us more for each callback.
    """
    if hasattr(select, "epoll"):
        epoll = select.epoll()
        return epoll, lambda ms: epoll.poll(ms / 1000 if ms >= 0 else None, _MAX_EVENTS_PER_TURN)
    poll = select.poll()
    return poll, poll.poll
