"""What a poller has taken and not finished: the attempts, by timer and by callback."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from duetime.domain.timers import Timer, TimerState
from duetime.engine.delivery import Attempt, AttemptState, Delivery
from duetime.engine.keys import FiringKey, QueueKey, firing_key
from duetime.engine.payloads import HeldPayloads
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState


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

    def is_new(self, shard: ShardState, timer: Timer) -> bool:
        """False for a timer that was taken, or whose recorded attempt may still show in the page at hand.

        What was taken under a lost lease does not count: its outcome cannot be recorded.
        """
        attempt = self._attempts.get(firing_key(timer))
        return attempt is None or attempt.shard is not shard

    def take(
        self, delivery: Delivery, shard: ShardState, timer: Timer, queue: QueueKey, page: Span, monotonic: float
    ) -> Attempt:
        """The timer, found on ``page``, is in hand from now on."""
        self._last_number += 1
        attempt = Attempt(delivery, shard, timer, queue, page, self._last_number, monotonic)
        self._attempts[firing_key(timer)] = attempt
        shard.holds += 1
        self._payloads.add(timer)
        return attempt

    def give_up(self, attempt: Attempt) -> None:
        """It is not fired after all, and has to be read again."""
        key = firing_key(attempt.timer)
        self._let_go(attempt)
        self._attempts.pop(key, None)
        self._payloads.remove(key)
        attempt.shard.reading.leave(attempt.queue, attempt.page)

    def settle(self, attempt: Attempt) -> None:
        """What came of it is recorded, or it is forgotten: its row has left the due index, or is due for real."""
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
        """The page of ``shard`` has been looked at, or there is none."""
        shard.reading.is_polling = False
        for key in shard.settled:
            attempt = self._attempts.get(key)
            if attempt is not None and attempt.shard is shard:
                del self._attempts[key]
        shard.settled.clear()

    def park(self, attempt: Attempt, parked: Timer) -> None:
        """The row of ``attempt``, which is still sent, is ``parked`` now: it is due again only if it never ends."""
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
        """How many callbacks are in flight."""
        return len(self._sent)

    def __iter__(self) -> Iterator[Attempt]:
        """Those whose callbacks are in flight, in the order in which they were sent."""
        return iter(self._sent.values())

    def send(self, attempt: Attempt) -> None:
        attempt.state = AttemptState.SENT
        self._sent[attempt.number] = attempt
        self._fresh.append(attempt)

    def pop(self, number: int) -> Attempt | None:
        """The attempt, whose callback has ended; None when it was given up."""
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
        """Those that have become slow since this was last asked; they count as slow from now on."""
        limit = monotonic - self._slow_after_seconds
        while self._fresh and self._fresh[0].started <= limit:
            attempt = self._fresh.popleft()
            if attempt.number in self._sent:
                attempt.is_slow = True
                self.slow += 1
                yield attempt

    def next_slow_at(self) -> float | None:
        """When the next one may become slow."""
        return self._fresh[0].started + self._slow_after_seconds if self._fresh else None


def _open_key(timer: Timer) -> FiringKey:
    """No timer has such a number of attempts."""
    return timer.firing_id, -1
