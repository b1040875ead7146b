"""The attempts in flight, and which of them have been so for long."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from duetime.delivery.port import CallbackResult
from duetime.domain.retry import DEFAULT_RETRY_POLICY, RetryPolicy
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.keys import QueueKey
from duetime.engine.shards.shard import ShardState


@dataclass(slots=True)
class Attempt:
    """A callback in flight. ``timer`` is the revision that its outcome applies to. ``started`` is monotonic seconds.

    ``result`` is kept while a parking write is in flight: the outcome then waits for the parked revision.
    ``is_parked``: it is not to be parked any more: it is, or the store refuses it.
    ``default_policy`` is its namespace's as the attempt began, for timers without a policy of their own.
    ``token`` is set when a handler has begun it (``execution_handler``); such an attempt is parked from the start.
    """

    shard: ShardState
    lease: Lease
    queue: QueueKey
    timer: Timer
    fired_at: datetime
    started: float
    default_policy: RetryPolicy = DEFAULT_RETRY_POLICY
    is_slow: bool = False
    is_parking: bool = False
    is_parked: bool = False
    result: CallbackResult | None = None
    is_superseded: bool = False
    token: object | None = None

    @property
    def lag_seconds(self) -> float:
        """Of a first attempt. A timer that was stored with a time in the past is due from then on."""
        timer = self.timer
        return (self.fired_at - max(timer.armed_at, timer.updated_at)).total_seconds()


class InFlight:
    """Attempts by the key of their callback, in the order of their start."""

    def __init__(self, slow_after_seconds: float) -> None:
        self._slow_after_seconds = slow_after_seconds
        self._attempts: dict[int, Attempt] = {}
        self._fresh: deque[tuple[int, Attempt]] = deque()
        """Not slow yet, in the order of their start; may have ended."""
        self._last_key = 0
        self.slow = 0

    def __len__(self) -> int:
        return len(self._attempts)

    def __iter__(self) -> Iterator[Attempt]:
        return iter(self._attempts.values())

    def add(self, attempt: Attempt) -> int:
        """The key for its callback."""
        self._last_key += 1
        self._attempts[self._last_key] = attempt
        self._fresh.append((self._last_key, attempt))
        return self._last_key

    def pop(self, key: int) -> Attempt | None:
        """The attempt, which is no longer in flight; None when it was given up."""
        attempt = self._attempts.pop(key, None)
        if attempt is not None and attempt.is_slow:
            self.slow -= 1
        return attempt

    def clear(self) -> list[Attempt]:
        """Give all up."""
        attempts = list(self._attempts.values())
        self._attempts.clear()
        self._fresh.clear()
        self.slow = 0
        return attempts

    def newly_slow(self, monotonic: float) -> Iterator[Attempt]:
        """Those that have become slow since this was last asked; they count as slow from now on."""
        limit = monotonic - self._slow_after_seconds
        while self._fresh and self._fresh[0][1].started <= limit:
            key, attempt = self._fresh.popleft()
            if key in self._attempts:
                attempt.is_slow = True
                self.slow += 1
                yield attempt

    def next_slow_at(self) -> float | None:
        """When the next one may become slow."""
        return self._fresh[0][1].started + self._slow_after_seconds if self._fresh else None
