"""Small tools of the event loop: pauses after errors, an event that wakes early, and work handed to threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from math import ceil
from typing import Final, Protocol, TypeVar

_FIRST_BACKOFF_SECONDS: Final = 0.1
MAX_BACKOFF_SECONDS: Final = 5.0
_FLOAT_ERROR_MS: Final = 1e-5

T = TypeVar("T")


def backoff_after(errors: int, random: float) -> float:
    """Return the seconds to wait after ``errors`` (1 or more) store errors in a row; ``random`` in [0, 1)."""
    exponential = _FIRST_BACKOFF_SECONDS * 2.0 ** min(errors - 1, 16)
    return float(min(exponential, MAX_BACKOFF_SECONDS) * (0.5 + random / 2))


def whole_milliseconds(seconds: float) -> float:
    """Return ``seconds``, rounded up to what the event loop can wait for, 0.001 at least.

    It rounds to the nearest millisecond by itself, and would wake before it is time half of the time.
    """
    return max(1, ceil(seconds * 1000 - _FLOAT_ERROR_MS)) / 1000


class WakeupEvent:
    """Wakes one waiter at a time or when set. A set while nobody waits is kept for the next wait."""

    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[None] | None = None
        self._repeat: Callable[[], None] | None = None

    def set(self) -> None:
        """Call from the event loop's thread."""
        was_set, self._is_set = self._is_set, True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        elif self._repeat is not None and not was_set:
            asyncio.get_running_loop().call_soon(self._repeat)

    async def repeat(self, step: Callable[[], float]) -> None:
        """Call ``step`` now, whenever this is set, and after the seconds that it returned, until cancelled or it
        raises.

        The timer calls it: no task has to be woken for that, which would take another turn of the loop.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        handle: asyncio.TimerHandle | None = None

        def run() -> None:
            nonlocal handle
            if handle is not None:
                handle.cancel()
            self._is_set = False
            if ended.done():
                return
            try:
                seconds = step()
            except Exception as error:
                ended.set_exception(error)
            else:
                handle = loop.call_later(seconds, run)

        self._repeat = run
        try:
            run()
            await ended
        finally:
            self._repeat = None
            if handle is not None:
                handle.cancel()

    async def wait(self, timeout_seconds: float) -> None:
        """Return when set, or after ``timeout_seconds``."""
        if not self._is_set and timeout_seconds > 0:
            loop = asyncio.get_running_loop()
            self._waiter = loop.create_future()
            handle = loop.call_later(timeout_seconds, _finish, self._waiter)
            try:
                await self._waiter
            finally:
                handle.cancel()
                self._waiter = None
        self._is_set = False


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class Offload(Protocol):
    """Runs blocking calls beside the event loop."""

    def run(self, function: Callable[[], T]) -> Awaitable[T]: ...

    def close(self) -> None: ...


class ThreadOffload:
    def __init__(self, threads: int, name: str) -> None:
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._executor, function)

    def close(self) -> None:
        self._executor.shutdown(wait=True)


class Threads:
    """Makes what runs blocking calls, and closes all of it."""

    def __init__(self, make_offload: Callable[[int, str], Offload]) -> None:
        self._make_offload = make_offload
        self._made: list[Offload] = []

    def make(self, threads: int, name: str) -> Offload:
        self._made.append(self._make_offload(threads, name))
        return self._made[-1]

    def close(self) -> None:
        for offload in self._made:
            offload.close()
