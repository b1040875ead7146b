"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar

from tests.support.clock import NOW

T = TypeVar("T")

START = NOW


class VirtualClock:
    """A ``Clock`` that stands still unless it is moved. It counts whole microseconds, as ``datetime`` does."""

    def __init__(self, start: datetime = START) -> None:
        self._start = start
        self._elapsed_microseconds = 0

    @property
    def elapsed_seconds(self) -> float:
        return self._elapsed_microseconds / 1e6

    def now(self) -> datetime:
        return self._start + timedelta(microseconds=self._elapsed_microseconds)

    def monotonic(self) -> float:
        return self.elapsed_seconds

    def advance(self, seconds: float) -> None:
        """Move on, by a microsecond at least: a wait that is too short to count must end too."""
        self._elapsed_microseconds += max(1, ceil(seconds * 1e6))


class _JumpingSelector(selectors.SelectSelector):
    """Where a real selector would sleep for ``timeout``, this one moves the clock by it."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        ready = super().select(0)
        if not ready and timeout > 0:
            self._clock.advance(timeout)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_JumpingSelector(clock))

    def time(self) -> float:
        return self._virtual_clock.monotonic()


class InlineOffload:
    """Runs blocking calls in place: with virtual time there is nothing to wait for."""

    def __init__(self, threads: int = 1, name: str = "") -> None:
        pass

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)
        return future

    def close(self) -> None:
        pass


def run_virtually(clock: VirtualClock, main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(clock)) as runner:
        return runner.run(main)
