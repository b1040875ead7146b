"""Timers of which the store takes nothing, through a fault of their own: each is tried again alone, ever later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt
from duetime.engine.in_flight import InFlight
from duetime.engine.keys import FiringKey, firing_key

LONGEST_SECONDS = 300.0
_MAX_KNOWN = 10_000


class Deferrals:
    """In the event loop's thread. A timer that waits here is still taken: it is neither read nor fired meanwhile."""

    def __init__(self, context: EngineContext, in_flight: InFlight) -> None:
        self._settings = context.settings
        self._random = context.random
        self._in_flight = in_flight
        self._tries: dict[FiringKey, int] = {}
        """How often each was postponed; the latest at the end, so that the oldest can be forgotten."""
        self._waiting: dict[FiringKey, tuple[asyncio.TimerHandle, Callable[[], None]]] = {}
        """With what gives each of them up."""

    def __len__(self) -> int:
        return len(self._waiting)

    def postpone(self, key: FiringKey, again: Callable[[], None], *, give_up: Callable[[], None]) -> None:
        """Call ``again`` after a pause that doubles each time, or ``give_up`` when the run ends before."""

        def wake() -> None:
            del self._waiting[key]
            again()

        tries = self._tries.pop(key, 0)
        self._tries[key] = tries + 1
        if len(self._tries) > _MAX_KNOWN:
            del self._tries[next(iter(self._tries))]
        pause = min(self._settings.max_backoff_seconds * 2.0 ** min(tries, 16), LONGEST_SECONDS)
        pause *= 0.75 + self._random() / 4
        self._waiting[key] = asyncio.get_running_loop().call_later(pause, wake), give_up

    def put_back(self, attempt: Attempt) -> None:
        """Its timer is due still: it is read and fired again, but not at once and over and over."""

        def settle() -> None:
            self._in_flight.settle(attempt)

        self.postpone(firing_key(attempt.timer), settle, give_up=settle)

    def forget(self, key: FiringKey) -> None:
        """The store has taken it."""
        self._tries.pop(key, None)

    def clear(self) -> None:
        """At the end of a run: give up what waits."""
        waiting, self._waiting = self._waiting, {}
        for handle, give_up in waiting.values():
            handle.cancel()
            give_up()
