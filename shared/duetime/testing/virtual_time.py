"""Virtual time: an event loop whose clock jumps to the next timer instead of waiting for it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Awaitable, Callable, Coroutine
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar

T = TypeVar("T")

_TICK_SECONDS = 1e-6
"""What the clock counts in. Sums of binary fractions miss a time by less."""


class VirtualClock:
    """A ``Clock`` that stands still unless it is moved. It counts whole microseconds, as ``datetime`` does."""

    def __init__(self, start: datetime) -> None:
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

    def advance_to(self, instant: datetime) -> None:
        """Move on to ``instant``, exactly; never back."""
        microseconds = (instant - self._start) // timedelta(microseconds=1)
        self._elapsed_microseconds = max(self._elapsed_microseconds, microseconds)


class _JumpingSelector(selectors.SelectSelector):
    """Asks ``sleep`` to move the clock where a real selector would sleep for ``timeout``.

    ``sleep`` tells whether to wait for a file after all.
    """

    def __init__(self, sleep: Callable[[float | None], bool]) -> None:
        super().__init__()
        self._sleep = sleep

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and (timeout is None or timeout > 0) and self._sleep(timeout):
            ready = super().select(None)
        return ready


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Jumps from timer to timer for as long as there is anything to do."""

    def __init__(self, clock: VirtualClock) -> None:
        self._virtual_clock = clock
        super().__init__(_JumpingSelector(self._sleep))
        # Python's own nanosecond is lost in a float after half a year, when a timer would never be due. There is no
        # public way to say so; a test goes there.
        self._clock_resolution = _TICK_SECONDS

    def time(self) -> float:
        return self._virtual_clock.monotonic()

    def _sleep(self, timeout: float | None) -> bool:
        if timeout is None:
            raise RuntimeError("deadlock: nothing is ready and no timer is set")
        self._virtual_clock.advance(timeout)
        return False


class SteppedLoop(VirtualTimeLoop):
    """Jumps up to a limit, which ``advance`` moves, and then waits for other threads.

    Time stands still while ``is_busy``: what happens outside, a request over a network say, takes none.
    """

    def __init__(self, clock: VirtualClock, is_busy: Callable[[], bool]) -> None:
        self._is_busy = is_busy
        self._limit: datetime | None = clock.now()
        self._arrival: asyncio.Future[None] | None = None
        super().__init__(clock)

    async def advance(self, to: datetime) -> None:
        """Return when all that happens up to ``to``, inclusive, has happened. For one caller at a time.

        The next call may begin after this one was cancelled, and before that has reached it.
        """
        self._limit = to
        arrival = self._arrival = self.create_future()
        try:
            await arrival
        finally:
            if self._arrival is arrival:
                self._limit, self._arrival = self._virtual_clock.now(), None

    def unlimit(self) -> None:
        """Time has no limit any more: what is left, the end of the program say, takes as long as it takes."""
        self._limit = None

    def _sleep(self, timeout: float | None) -> bool:
        if self._is_busy():
            return True
        limit = self._limit
        if timeout is not None and (limit is None or timeout <= self._seconds_until(limit) + _TICK_SECONDS):
            self._virtual_clock.advance(timeout)
            return False
        if limit is not None:
            self._virtual_clock.advance_to(limit)
        arrival = self._arrival
        if arrival is None or arrival.done():
            return True
        arrival.set_result(None)
        return False

    def _seconds_until(self, instant: datetime) -> float:
        return (instant - self._virtual_clock.now()).total_seconds()


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
    """Run ``main`` as ``asyncio.run`` does, in virtual time."""
    with asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(clock)) as runner:
        return runner.run(main)
