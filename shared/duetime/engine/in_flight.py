"""What a poller has taken and not finished: the attempts, their payloads, and those that were put off."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterator

from duetime.domain.timers import Timer, TimerState
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, AttemptState, Delivery
from duetime.engine.keys import FiringKey, QueueKey, firing_key
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState

_FIRST_DEFERRAL_SECONDS = 5.0
LONGEST_DEFERRAL_SECONDS = 300.0
_MAX_DEFERRALS_KNOWN = 10_000
_SMALL_BYTES = 4096
"""The number of timers bounds those, and most have no more: they are not counted."""


def payload_bytes(timer: Timer) -> int:
    """Return what the payload takes in memory; 0 for a small one."""
    payload = timer.content.payload_json
    if payload is None or len(payload) <= _SMALL_BYTES // 4:
        return 0
    size = sys.getsizeof(payload)  # up to four times its characters
    return size if size > _SMALL_BYTES else 0


class HeldPayloads:
    """The large payloads of timers that wait, are in flight or are not recorded. For the event loop's thread alone.

    Up to ``max_bytes`` every timer is accepted. Beyond that, each namespace may hold its share, and always one timer.
    All together hold at most twice ``max_bytes``, with what is reserved for bodies that are being read; or one alone.
    """

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._held: dict[FiringKey, tuple[str, int]] = {}
        self._by_namespace: dict[str, int] = {}
        self._reserved = 0
        self._on_less: Callable[[], None] | None = None
        self.bytes = 0

    def accepts(self, timer: Timer) -> bool:
        """Tell whether it may be taken. One that is not stays in the store."""
        size = payload_bytes(timer)
        if size == 0 or self.bytes + self._reserved == 0:
            return True
        if self.bytes + self._reserved + size > 2 * self._max_bytes:
            return False
        if self.bytes + size <= self._max_bytes:
            return True
        own = self._by_namespace.get(timer.namespace, 0)
        return own == 0 or own + size <= self._share(own)

    def wants(self, namespace: str) -> bool:
        """Tell whether it pays to read timers of a namespace again that were not taken."""
        if self.bytes <= self._max_bytes // 2:
            return True
        own = self._by_namespace.get(namespace, 0)
        return own <= self._share(own) // 2 and self.bytes <= self._max_bytes * 3 // 2

    def add(self, timer: Timer) -> None:
        """Count a timer that has been taken."""
        size = payload_bytes(timer)
        if size:
            self.hold(firing_key(timer), timer.namespace, size)

    def hold(self, key: FiringKey, namespace: str, size: int) -> None:
        """Set what an attempt of ``namespace`` takes from now on, in the place of what it took before."""
        self.remove(key)
        if size > _SMALL_BYTES:
            self._held[key] = (namespace, size)
            self._by_namespace[namespace] = self._by_namespace.get(namespace, 0) + size
            self.bytes += size

    def remove(self, key: FiringKey) -> None:
        """Take a settled attempt out. Nothing happens if it was not counted."""
        namespace, size = self._held.pop(key, ("", 0))
        if size:
            self.bytes -= size
            self._by_namespace[namespace] -= size
            if not self._by_namespace[namespace]:
                del self._by_namespace[namespace]
            self._tell_of_less()

    def reserve(self, most: int, size: int, on_less: Callable[[], None]) -> int:
        """Reserve ``size`` for each of up to ``most`` bodies whose sizes are known only when they are read.

        Returns for how many there is room. If not for all, ``on_less`` is called once when less is held.
        """
        room = (2 * self._max_bytes - self.bytes - self._reserved) // size
        count = max(0 if self.bytes + self._reserved else 1, min(most, room))
        if count < most:
            self._on_less = on_less
        self._reserved += count * size
        return count

    def release(self, size: int) -> None:
        """Give back what was reserved: what the bodies take is known and held now."""
        self._reserved -= size
        self._tell_of_less()

    def _tell_of_less(self) -> None:
        on_less, self._on_less = self._on_less, None
        if on_less is not None:
            on_less()

    def _share(self, own: int) -> int:
        return self._max_bytes // (len(self._by_namespace) + (own == 0))


class InFlight:
    """In the event loop's thread, but for ``parked``.

    A timer stays in the due index until its outcome is recorded, and may be on a page that is being read even after
    that. So it is here from ``take`` to ``settle``, and to the end of such a read.
    """

    def __init__(self, payloads: HeldPayloads, *, slow_after_seconds: float) -> None:
        self._payloads = payloads
        self._slow_after_seconds = slow_after_seconds
        self._attempts: dict[FiringKey, Attempt] = {}
        self._sent: dict[int, Attempt] = {}
        """By number, in the order in which they were sent."""
        self._fresh: deque[Attempt] = deque()
        """Sent and not slow yet, in that order; may have ended."""
        self._last_number = 0
        self.slow = 0

    # -- timers ----------------------------------------------------------------------------------------------

    def is_taken(self, shard: ShardState, firing_id: str, attempts: int) -> bool:
        """Tell whether a timer was taken, or its recorded attempt may still show in the page at hand. From any
        thread.

        What was taken under a lost lease does not count: its outcome cannot be recorded.
        """
        attempt = self._attempts.get((firing_id, attempts))
        return attempt is not None and attempt.shard is shard

    def take(
        self, delivery: Delivery, shard: ShardState, timer: Timer, queue: QueueKey, page: Span, monotonic: float
    ) -> Attempt:
        """Take the timer that was found on ``page``: it counts as in flight from now on."""
        self._last_number += 1
        attempt = Attempt(delivery, shard, timer, queue, page, self._last_number, monotonic)
        self._attempts[firing_key(timer)] = attempt
        shard.holds += 1
        self._payloads.add(timer)
        return attempt

    def give_up(self, attempt: Attempt) -> None:
        """Give an attempt up: it is not fired after all, and has to be read again."""
        key = firing_key(attempt.timer)
        self._let_go(attempt)
        self._attempts.pop(key, None)
        self._payloads.remove(key)
        attempt.shard.reading.leave(attempt.queue, attempt.page)

    def settle(self, attempt: Attempt) -> None:
        """Settle an attempt that is recorded or forgotten: its row has left the due index, or is due for real."""
        key = firing_key(attempt.timer)
        self._let_go(attempt)
        if self._attempts.get(key) is not attempt:
            return
        self._payloads.remove(key)
        if attempt.shard.is_polling:
            attempt.shard.settled.append(key)
        else:
            del self._attempts[key]

    def end_poll(self, shard: ShardState) -> None:
        """Note that the page of ``shard`` has been looked at, or that there is none."""
        shard.reading.is_polling = False
        for key in shard.settled:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.shard is shard:
                del self._attempts[key]
        shard.settled.clear()

    def park(self, attempt: Attempt, parked: Timer) -> None:
        """Note that the row of ``attempt``, which is still sent, is ``parked``: it is due again only if it never
        ends."""
        attempt.timer, attempt.state = parked, AttemptState.PARKED
        self._let_go(attempt)

    @property
    def parked(self) -> int:
        """From any thread."""
        return sum(attempt.timer.state is TimerState.FIRING for attempt in list(self._sent.values()))

    @staticmethod
    def _let_go(attempt: Attempt) -> None:
        attempt.shard.holds -= attempt.holds_shard
        attempt.holds_shard = False

    # -- executions, whose rows change before they are sent ------------------------------------------------------

    def open(self, attempt: Attempt, *, body_bytes: int) -> None:
        """Its timer was stored with the time at which somebody has to look after it. Nobody here is to, until it is
        closed, whatever the revision and the lease are by then."""
        self.settle(attempt)
        key = _open_key(attempt.timer)
        self._attempts[key] = attempt
        self._payloads.hold(key, attempt.timer.namespace, body_bytes)

    def is_open(self, timer: Timer) -> bool:
        return _open_key(timer) in self._attempts

    def close(self, attempt: Attempt) -> None:
        key = _open_key(attempt.timer)
        self._attempts.pop(key, None)
        self._payloads.remove(key)

    # -- callbacks -------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return how many callbacks are in flight."""
        return len(self._sent)

    def __iter__(self) -> Iterator[Attempt]:
        """Return those whose callbacks are in flight, in the order in which they were sent."""
        return iter(self._sent.values())

    def send(self, attempt: Attempt) -> None:
        attempt.state = AttemptState.SENT
        self._sent[attempt.number] = attempt
        self._fresh.append(attempt)

    def pop(self, number: int) -> Attempt | None:
        """Return the attempt, whose callback has ended; None when it was given up."""
        attempt = self._sent.pop(number, None)
        if attempt is not None and attempt.is_slow:
            self.slow -= 1
        return attempt

    def clear(self) -> list[Attempt]:
        """Give up all callbacks."""
        attempts = list(self._sent.values())
        self._sent.clear()
        self._fresh.clear()
        self.slow = 0
        return attempts

    def newly_slow(self, monotonic: float) -> Iterator[Attempt]:
        """Return those that have become slow since this was last asked; they count as slow from now on."""
        limit = monotonic - self._slow_after_seconds
        while self._fresh and self._fresh[0].started <= limit:
            attempt = self._fresh.popleft()
            if attempt.number in self._sent:
                attempt.is_slow = True
                self.slow += 1
                yield attempt

    def next_slow_at(self) -> float | None:
        """Return when the next one may become slow."""
        return self._fresh[0].started + self._slow_after_seconds if self._fresh else None


def _open_key(timer: Timer) -> FiringKey:
    """Make a key of its own: no timer has such a number of attempts."""
    return timer.firing_id, -1


class Deferrals:
    """Timers that the store refuses for a fault of their own: each is tried again alone, ever later.

    In the event loop's thread. A timer that waits here is still taken: it is neither read nor fired meanwhile.
    """

    def __init__(self, context: EngineContext, in_flight: InFlight) -> None:
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
        if len(self._tries) > _MAX_DEFERRALS_KNOWN:
            del self._tries[next(iter(self._tries))]
        pause = min(_FIRST_DEFERRAL_SECONDS * 2.0 ** min(tries, 16), LONGEST_DEFERRAL_SECONDS)
        pause *= 0.75 + self._random() / 4
        self._waiting[key] = asyncio.get_running_loop().call_later(pause, wake), give_up

    def put_back(self, attempt: Attempt) -> None:
        """Put a timer back that is due still: it is read and fired again, but not at once and over and over."""

        def settle() -> None:
            self._in_flight.settle(attempt)

        self.postpone(firing_key(attempt.timer), settle, give_up=settle)

    def forget(self, key: FiringKey) -> None:
        """Forget it: the store has taken it."""
        self._tries.pop(key, None)

    def clear(self) -> None:
        """At the end of a run: give up what waits."""
        waiting, self._waiting = self._waiting, {}
        for handle, give_up in waiting.values():
            handle.cancel()
            give_up()
