"""The HTTP client: libcurl within the event loop.

Why libcurl, and why its socket interface: docs/decisions/0006-libcurl-sends-the-callbacks.md.

Nothing here blocks. Names are looked up in threads of their own (``delivery.dns``). Results leave in batches, one for
all sockets that were ready at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

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
_SLICE = 64
"""How many callbacks begin in one turn of the event loop: some milliseconds, for a new connection costs 100 us."""

OnResults = Callable[[list[CallbackResult]], None]


class CurlSender:
    """``delivery.port.Sender`` on libcurl.

    It bounds connections, not callbacks: whoever submits bounds how many are in flight.

    A callback's deadline covers waiting for a connection. It is one request at most: a kept-alive connection that is
    found closed before anything was sent is replaced, and one that ends later makes the callback fail.
    """

    def __init__(self, settings: SenderSettings | None = None, *, resolve: Resolve = system_resolve) -> None:
        """``resolve`` looks host names up; it runs in threads of its own and may block."""
        self._settings = settings or SenderSettings()
        self._resolve = resolve
        self._sending: _Sending | None = None

    def start(self, on_results: OnResults) -> None:
        """Begin in the running event loop. Raises ``RuntimeError`` when it has begun already."""
        if self._sending is not None:
            raise RuntimeError("the sender has been started")
        self._sending = _Sending(self._settings, self._resolve, on_results)

    def submit(self, callbacks: Sequence[Callback]) -> None:
        """Send callbacks. Raises ``RuntimeError`` when it is closed, and nobody would send them."""
        if self._sending is None:
            raise RuntimeError("the sender is closed")
        self._sending.submit(callbacks)

    def close(self) -> None:
        """Abort what is in flight, without results, and close all connections. Idempotent."""
        sending, self._sending = self._sending, None
        if sending is not None:
            sending.close()


class _Sending:
    """From ``start`` to ``close``: starts what is submitted, lets libcurl work, reports what ended."""

    def __init__(self, settings: SenderSettings, resolve: Resolve, on_results: OnResults) -> None:
        self._settings = settings
        self._on_results = on_results
        self._loop = asyncio.get_running_loop()
        self._guard = Guard(settings.egress, resolve, self._pass_on, fresh_seconds=settings.dns_cache_seconds)
        self._multi = Multi(settings, self._loop, self._on_ready)
        self._connections = Connections(2 * settings.max_connections)
        self._idle: list[Transfer] = []
        self._waiting = PendingLookups()
        self._queue: deque[tuple[Callback, Target, float]] = deque()
        """They begin in their turn. With each where it goes, and since when (monotonic seconds) its deadline runs."""
        self._next_slice: asyncio.Handle | None = None
        self._results: list[CallbackResult] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = 0.0

    def submit(self, callbacks: Sequence[Callback]) -> None:
        now = time.monotonic()
        for callback in callbacks:
            self._accept(callback, now)
        if self._next_slice is None:
            self._begin_slice()

    def close(self) -> None:
        for handle in (self._alarm, self._next_slice):
            if handle is not None:
                handle.cancel()
        self._abort("the sender was closed")
        self._results.clear()
        self._guard.close()
        for transfer in self._idle:
            transfer.close()
        self._close_multi()

    # -- what the event loop calls -----------------------------------------------------------------------------

    def _on_ready(self) -> None:
        self._turn(self._multi.serve)
        self._report()

    def _on_alarm(self) -> None:
        self._alarm = None
        for waiting in self._waiting.leave_late(now := time.monotonic()):
            message = "timed out while the host's name was looked up"
            key, seconds = waiting.callback.key, now - waiting.since
            self._results.append(error_result(key, TransportError.TIMEOUT, message, seconds))
        self._turn(self._multi.act)
        self._report()

    def _pass_on(self, lookup: Lookup) -> None:
        """Hand a look-up to the loop. Called in the thread of the look-up."""
        with contextlib.suppress(RuntimeError):  # the loop has closed
            self._loop.call_soon_threadsafe(self._on_lookup, lookup)

    def _on_lookup(self, lookup: Lookup) -> None:
        target = self._guard.settle(lookup, time.monotonic())
        self._queue.extend((waiting.callback, target, waiting.since) for waiting in self._waiting.leave(target))
        if self._next_slice is None and self._queue:  # not at once: many look-ups may end together
            self._next_slice = self._loop.call_soon(self._begin_slice)

    def _begin_slice(self) -> None:
        """Begin a part of the queue. What ends at once is reported later: its submitter is not ready for it yet."""
        self._next_slice = None
        now = time.monotonic()
        for _ in range(min(_SLICE, len(self._queue))):
            callback, target, since = self._queue.popleft()
            self._begin(callback, target, now - since)
        self._turn(self._multi.act)
        if self._queue:
            self._next_slice = self._loop.call_soon(self._begin_slice)
        if self._results:
            self._loop.call_soon(self._report)

    def _turn(self, step: Callable[[], None]) -> None:
        try:
            step()
            for transfer, code, message in self._multi.finished():
                if transfer.is_stale:
                    transfer.start_afresh()
                    self._multi.add(transfer)
                    continue
                self._results.append(transfer.failed(code, message) if code else transfer.succeeded())
                self._multi.forget(transfer)
                self._release(transfer)
        except Exception:  # whatever state libcurl is in: what is in flight must get its results
            _logger.exception("sending broke off; starting afresh", extra={"action": "sender.broken"})
            self._abort("sending broke off")
            self._close_multi()
            self._multi = Multi(self._settings, self._loop, self._on_ready)
        self._set_alarm()

    def _set_alarm(self) -> None:
        """Set the alarm for when libcurl, or a callback that waits for its host's addresses, is due.

        One that is too early stays: deadlines are rarely reached, and setting it for each callback would cost more.
        """
        waits = [self._multi.seconds_left(), self._waiting.seconds_left(time.monotonic())]
        seconds = min((wait for wait in waits if wait is not None), default=None)
        if seconds is None:
            return
        at = self._loop.time() + seconds
        if self._alarm is not None:
            if self._alarm_at <= at:
                return
            self._alarm.cancel()
        self._alarm_at = at
        self._alarm = self._loop.call_later(seconds, self._on_alarm)

    # -- callbacks ---------------------------------------------------------------------------------------------

    def _accept(self, callback: Callback, now: float) -> None:
        """Queue it when the addresses of its host are known, else let it wait for them."""
        try:
            target = self._guard.target(callback.url, now)
        except RefusedUrl as error:
            self._results.append(error_result(callback.key, TransportError.REFUSED_URL, f"the URL {error}"))
        except Exception:
            self._not_started(callback)
        else:
            if now < target.usable_until:
                self._queue.append((callback, target, now))
            else:
                seconds = min(callback.timeout_seconds, self._settings.connect_timeout_seconds)
                self._waiting.add(target, Waiting(callback, now, now + seconds))

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

    def _not_started(self, callback: Callback) -> None:
        """Report a callback that could not be started: out of memory, say. Called in an exception handler."""
        _logger.exception("a callback could not be started", extra={"action": "sender.start_failed"})
        self._results.append(error_result(callback.key, TransportError.ABORTED, "it could not be started"))

    def _release(self, transfer: Transfer) -> None:
        if len(self._idle) < self._settings.max_connections:
            transfer.release()
            self._idle.append(transfer)
        else:
            transfer.close()

    def _abort(self, why: str) -> None:
        for waiting in self._waiting.leave_all():
            self._results.append(error_result(waiting.callback.key, TransportError.ABORTED, why))
        for callback, _, _ in self._queue:
            self._results.append(error_result(callback.key, TransportError.ABORTED, why))
        self._queue.clear()
        for transfer in self._multi.remove_all():
            self._results.append(error_result(transfer.key, TransportError.ABORTED, why))
            transfer.close()

    def _close_multi(self) -> None:
        """Close all connections, in a thread that may be left behind.

        Nothing should keep it from closing, but all of the process would wait here if something did.
        """
        self._multi.detach()
        closer = threading.Thread(target=self._multi.close, name="duetime-sender-closer", daemon=True)
        closer.start()
        closer.join(_CLOSE_SECONDS)

    def _report(self) -> None:
        results, self._results = self._results, []
        if results:
            try:
                self._on_results(results)
            except Exception:  # the receiver's fault must not cost the others theirs
                _logger.exception("taking results failed", extra={"action": "sender.results_lost"})
