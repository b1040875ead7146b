"""A store with a clock of its own and requests that take time, in virtual time, and machines with wrong clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from math import ceil
from typing import Any, TypeVar

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreUnavailable
from duetime.stores.core.store import Store
from duetime.stores.time_source import StoreTime
from tests.support.parts import Intercepted

T = TypeVar("T")

_BY_ITS_OWN_CLOCK = frozenset(
    {"leases.announce_worker", "leases.claim", "leases.release", "leases.renew", "leases.statuses", "time"}
)
"""What a database judges and writes by its own clock, whatever it is told."""


class SkewedClock:
    """A machine's clock that is ``ahead_seconds`` ahead of the true one. Its monotonic clock is right."""

    def __init__(self, clock: Clock, ahead_seconds: float) -> None:
        self._clock = clock
        self.ahead_seconds = ahead_seconds

    def now(self) -> datetime:
        return self._clock.now() + timedelta(seconds=self.ahead_seconds)

    def monotonic(self) -> float:
        return self._clock.monotonic()


class TimedStore(Intercepted):
    """``store``, whose leases go by ``clock``. ``seconds`` counts what the requests since the last look took.

    ``request_seconds`` each: 25 claims, renewals or releases are one, 100 statuses, and any other call.
    ``delays``: what one call of an operation takes besides, ``claim_seconds`` a claim of a shard.
    Calls, outbox and transfers take no time.
    ``refuses_claims``: every claim fails; ``refused_shards``: those that have one of them.
    ``skewed_by``: by how much what it tells of its time is wrong.
    """

    def __init__(self, store: Store, clock: Clock, *, request_seconds: float = 0.0) -> None:
        super().__init__(store, self._operate)
        self._clock = clock
        self._request_seconds = request_seconds
        self.seconds = 0.0
        self.delays: dict[str, float] = {}
        self.claim_seconds = 0.0
        self.refuses_claims = False
        self.refused_shards: set[int] = set()
        self.is_down = False
        self.skewed_by: Callable[[], float] = lambda: 0.0

    def _operate(self, name: str, operation: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        if name.startswith(("calls.", "outbox.", "transfer.")):
            return operation(*arguments, **named)
        self.seconds += self._request_seconds * _requests(name, arguments) + self.delays.get(name, 0.0)
        if self.is_down:
            raise StoreUnavailable("down")
        if name == "leases.claim":
            self.seconds += self.claim_seconds * len(arguments[0])
            if self.refuses_claims or self.refused_shards & set(arguments[0]):
                raise StoreUnavailable("no claims")
        if name in _BY_ITS_OWN_CLOCK:
            named["now"] = self._clock.now()
        answer = operation(*arguments, **named)
        if name == "time":
            answer = StoreTime(answer.at + timedelta(seconds=self.skewed_by()), answer.resolution_seconds)
        return answer

    def offload(self, threads: int = 1, name: str = "") -> LatentOffload:
        """``make_offload`` for a poller on this store."""
        del threads, name
        return LatentOffload(self)

    def take_seconds(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds


def _requests(name: str, arguments: tuple[Any, ...]) -> int:
    size = {"leases.claim": 25, "leases.renew": 25, "leases.release": 25, "leases.statuses": 100}.get(name)
    return 1 if size is None else ceil(len(arguments[0]) / size)


class LatentOffload:
    """One thread: each call is done in its turn, and its answer comes when its requests are over."""

    def __init__(self, store: TimedStore) -> None:
        self._store = store
        self._free_at = 0.0

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        return self._run(function)

    async def _run(self, function: Callable[[], T]) -> T:
        loop = asyncio.get_running_loop()
        begin = max(self._free_at, loop.time())
        self._free_at = begin  # whoever comes next waits for this one
        turn = asyncio.Event()
        loop.call_at(begin, turn.set)
        await turn.wait()
        self._store.take_seconds()
        error: BaseException | None = None
        try:
            answer = function()
        except Exception as raised:
            error = raised
        seconds = self._store.take_seconds()
        self._free_at = loop.time() + seconds
        if seconds:
            await asyncio.sleep(seconds)
        if error is not None:
            raise error
        return answer

    def close(self) -> None:
        pass
