"""The HTTP client: libcurl in one thread of its own.

Why libcurl, and why its socket interface: docs/decisions/0006-libcurl-sends-the-callbacks.md.

New callbacks reach the thread over a lock-protected list and a socket pair. Results leave it in batches, one per
turn, so that no callback pays for a thread switch of its own.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Sequence

import pycurl

from duetime.delivery.connections import Connections
from duetime.delivery.dns import Resolve, system_resolve
from duetime.delivery.egress import RefusedUrl
from duetime.delivery.guard import Guard, Lookup, Target
from duetime.delivery.multi import Multi
from duetime.delivery.pending_dns import PendingLookups, Waiting
from duetime.delivery.port import Callback, CallbackResult, TransportError
from duetime.delivery.settings import SenderSettings
from duetime.delivery.transfer import Transfer, Unsendable, error_result

_logger = logging.getLogger(__name__)

_CLOSE_SECONDS = 0.5

OnResults = Callable[[list[CallbackResult]], None]


class CurlSender:
    """``delivery.port.Sender`` on libcurl.

    It bounds connections, not callbacks: whoever submits bounds how many are in flight. ``close`` must be called:
    the thread is no daemon, so that the interpreter's end never cuts a callback off.

    A callback's deadline covers waiting for a connection. It is one request at most: a kept-alive connection that is
    found closed before anything was sent is replaced, and one that ends later makes the callback fail.
    """

    def __init__(self, settings: SenderSettings | None = None, *, resolve: Resolve = system_resolve) -> None:
        """``resolve`` looks host names up; it runs in threads of its own and may block."""
        self._settings = settings or SenderSettings()
        self._resolve = resolve
        self._inbox = _Inbox()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self, on_results: OnResults) -> None:
        """Begin. Raises ``RuntimeError`` when it has been started or closed before."""
        with self._start_lock:
            if self._thread is not None or self._inbox.is_closed:
                raise RuntimeError("a sender starts once")
            loop = _Loop(self._settings, self._inbox, self._resolve, on_results)
            self._thread = threading.Thread(target=loop.run, name="duetime-sender")
            self._thread.start()

    def submit(self, callbacks: Sequence[Callback]) -> None:
        """Queue callbacks. Raises ``RuntimeError`` after ``close``, when nobody would send them."""
        self._inbox.put(callbacks)

    def close(self, *, grace_seconds: float) -> None:
        """Let what is in flight finish for up to ``grace_seconds``, then abort the rest. Blocks; idempotent."""
        self._inbox.close()
        with self._start_lock:
            thread = self._thread
        if thread is not None:
            thread.join(grace_seconds)
            self._inbox.abort()
            thread.join()
        self._inbox.discard()


class _Inbox:
    """What other threads have for the loop. ``fd`` is readable from a change until the loop has taken it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._receiver, self._sender = socket.socketpair()
        self._callbacks: list[Callback] = []
        self._lookups: list[Lookup] = []
        self._is_signalled = False
        self.is_closed = False
        self.is_aborted = False

    @property
    def fd(self) -> int:
        return self._receiver.fileno()

    def put(self, callbacks: Sequence[Callback]) -> None:
        with self._lock:
            if self.is_closed:
                raise RuntimeError("the sender is closed")
            self._callbacks.extend(callbacks)
            self._signal()

    def put_lookup(self, lookup: Lookup) -> None:
        with self._lock:
            self._lookups.append(lookup)
            self._signal()

    def close(self) -> None:
        """Nothing more will come."""
        with self._lock:
            self.is_closed = True
            self._signal()

    def abort(self) -> None:
        """What is still in flight shall be given up."""
        with self._lock:
            self.is_aborted = True
            self._signal()

    def take(self) -> tuple[list[Callback], list[Lookup]]:
        with self._lock:
            if self._is_signalled:
                self._receiver.recv(1)
                self._is_signalled = False
            taken = self._callbacks, self._lookups
            self._callbacks, self._lookups = [], []
            return taken

    def discard(self) -> None:
        """Close the sockets; the loop has ended."""
        with self._lock:
            self._receiver.close()
            self._sender.close()

    def _signal(self) -> None:
        if not self._is_signalled and self._sender.fileno() >= 0:
            self._is_signalled = True
            self._sender.send(b"\0")


class _Loop:
    """The thread's side: starts what is submitted, lets libcurl work, reports what ended."""

    def __init__(self, settings: SenderSettings, inbox: _Inbox, resolve: Resolve, on_results: OnResults) -> None:
        self._settings = settings
        self._inbox = inbox
        self._on_results = on_results
        self._guard = Guard(settings.egress, resolve, inbox.put_lookup, fresh_seconds=settings.dns_cache_seconds)
        self._multi = Multi(settings, inbox.fd)
        self._connections = Connections(2 * settings.max_connections)
        self._idle: list[Transfer] = []
        self._in_flight: set[Transfer] = set()
        self._waiting = PendingLookups()
        self._results: list[CallbackResult] = []

    def run(self) -> None:
        """Until the inbox is closed and nothing is in flight, or it is aborted."""
        is_running = True
        while is_running:
            try:
                is_running = self._turn()
            except Exception:  # whatever state libcurl is in: what is in flight must get its results
                _logger.exception("sending broke off; starting afresh", extra={"action": "sender.broken"})
                self._abort("sending broke off")
                self._close_multi()
                self._multi = Multi(self._settings, self._inbox.fd)
            self._report()
        self._guard.close()
        for transfer in self._idle:
            transfer.close()
        self._close_multi()

    def _turn(self) -> bool:
        """One wait and what it brings. False when it was the last."""
        inbox = self._inbox
        callbacks, lookups = inbox.take()
        now = time.monotonic()
        for lookup in lookups:
            self._start_waiting(lookup, now)
        for callback in callbacks:
            self._start(callback, now)
        self._end_late(now)
        if inbox.is_aborted:
            self._abort("the sender was closed")
        if inbox.is_closed and not self._in_flight and not self._waiting:
            return False
        if not self._results:  # else something ended before it began: report that first
            self._multi.turn(len(self._in_flight), self._waiting.seconds_left(now))
            for transfer, code, message in self._multi.finished():
                if transfer.is_stale:
                    transfer.start_afresh()
                    self._multi.add(transfer)
                    continue
                self._results.append(transfer.failed(code, message) if code else transfer.succeeded())
                self._in_flight.discard(transfer)
                self._release(transfer)
        return True

    def _start(self, callback: Callback, now: float) -> None:
        """At once when the addresses of its host are known, else when they are."""
        try:
            target = self._guard.target(callback.url, now)
        except RefusedUrl as error:
            self._results.append(error_result(callback.key, TransportError.REFUSED_URL, f"the URL {error}"))
        except Exception:
            self._not_started(callback)
        else:
            if now < target.usable_until:
                self._begin(callback, target, 0.0)
            else:
                seconds = min(callback.timeout_seconds, self._settings.connect_timeout_seconds)
                self._waiting.add(target, Waiting(callback, now, now + seconds))

    def _start_waiting(self, lookup: Lookup, now: float) -> None:
        target = self._guard.settle(lookup, now)
        for waiting in self._waiting.leave(target):
            self._begin(waiting.callback, target, now - waiting.since)

    def _begin(self, callback: Callback, target: Target, waited_seconds: float) -> None:
        refusal = target.refusal
        if refusal is not None:
            self._results.append(error_result(callback.key, refusal.error, refusal.message, waited_seconds))
            return
        try:
            transfer = self._idle.pop() if self._idle else Transfer(self._settings, self._guard, self._connections)
            transfer.prepare(callback, target, waited_seconds)
            self._multi.add(transfer)
        except Unsendable as error:
            self._results.append(error_result(callback.key, TransportError.REFUSED_URL, str(error)))
        except Exception:
            self._not_started(callback)
        else:
            self._in_flight.add(transfer)

    def _not_started(self, callback: Callback) -> None:
        """In an exception handler. Out of memory, say: none of the callback's fault, and none of the next one's."""
        _logger.exception("a callback could not be started", extra={"action": "sender.start_failed"})
        self._results.append(error_result(callback.key, TransportError.ABORTED, "it could not be started"))

    def _end_late(self, now: float) -> None:
        for waiting in self._waiting.leave_late(now):
            message = "timed out while the host's name was looked up"
            key, seconds = waiting.callback.key, now - waiting.since
            self._results.append(error_result(key, TransportError.TIMEOUT, message, seconds))

    def _release(self, transfer: Transfer) -> None:
        if len(self._idle) < self._settings.max_connections:
            transfer.release()
            self._idle.append(transfer)
        else:
            transfer.close()

    def _abort(self, why: str) -> None:
        for waiting in self._waiting.leave_all():
            self._results.append(error_result(waiting.callback.key, TransportError.ABORTED, why))
        for transfer in self._in_flight:
            self._results.append(error_result(transfer.key, TransportError.ABORTED, why))
            with contextlib.suppress(pycurl.error):
                self._multi.remove(transfer)
            transfer.close()
        self._in_flight.clear()

    def _close_multi(self) -> None:
        """Close all connections, in a thread that may be left behind.

        Nothing should keep it from closing, but all of the process would wait here if something did.
        """
        closer = threading.Thread(target=self._multi.close, name="duetime-sender-closer", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)

    def _report(self) -> None:
        results, self._results = self._results, []
        if results:
            try:
                self._on_results(results)
            except Exception:  # the receiver's fault must not end the thread that serves all others
                _logger.exception("taking results failed", extra={"action": "sender.results_lost"})
