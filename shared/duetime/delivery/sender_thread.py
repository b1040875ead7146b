"""A sender for those who have no event loop for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from duetime.delivery.port import Callback, CallbackResult, Sender


class SenderThread:
    """Runs a sender in an event loop and a thread of its own, in which results arrive.

    ``close`` must be called: the thread is no daemon, so that the interpreter's end cuts no callback off.
    """

    def __init__(self, sender: Sender) -> None:
        self._sender = sender
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="duetime-sender")

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        """Begin. Raises ``RuntimeError`` when it has been started before."""
        self._thread.start()
        self._loop.call_soon_threadsafe(self._sender.start, on_results)

    def submit(self, callbacks: Sequence[Callback]) -> None:
        """Send callbacks. From any thread. Raises ``RuntimeError`` after ``close``."""
        self._loop.call_soon_threadsafe(self._sender.submit, callbacks)

    def close(self) -> None:
        """Abort what is in flight, without results. Blocks; idempotent."""
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._sender.close()
