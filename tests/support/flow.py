"""Flow control with a clock that is set by hand."""

from __future__ import annotations

from typing import Any

from duetime.engine.delivery import Attempt
from duetime.engine.flow.control import FlowControl
from duetime.engine.flow.queues import BreakerState, HostSignal
from duetime.engine.keys import QueueKey, queue_key
from duetime.engine.settings import EngineSettings
from tests.support.engine import make_attempt, make_shard, make_timer

SHARD = make_shard()


class FlowSubject:
    """Host names stand for whole origins."""

    def __init__(self, **settings: Any) -> None:
        self.given_up: list[str] = []
        self.now = 0.0
        self.settings = EngineSettings(**settings)
        self.flow = FlowControl(self.settings, random=lambda: 0.5, give_up=self._give_up)
        self.number = 0
        self.in_flight: dict[QueueKey, list[Attempt]] = {}

    def _give_up(self, attempt: Attempt) -> None:
        self.given_up.append(attempt.timer.timer_id)

    def add(self, namespace: str = "a", host: str = "h", *, number: int = 1) -> int:
        """How many of ``number`` timers were accepted."""
        accepted = 0
        for _ in range(number):
            self.number += 1
            timer = make_timer(f"{namespace}{self.number}", namespace=namespace, callback_url=f"http://{host}/x")
            if self.flow.accepts(queue_key(timer), self.now):
                self.flow.add(make_attempt(timer, SHARD, read_at=self.now), self.now)
                accepted += 1
        return accepted

    def take(self, number: int = 10_000) -> list[QueueKey]:
        """The queues of what may be started now, in order."""
        taken = self.flow.take(self.now, number, lambda attempt: True)
        for attempt in taken:
            attempt.started = self.now
            self.in_flight.setdefault(attempt.queue, []).append(attempt)
        return [attempt.queue for attempt in taken]

    def end(self, key: QueueKey, signal: HostSignal = HostSignal.ANSWERED) -> BreakerState | None:
        """End the attempt of a queue that was started last."""
        return self.flow.end(self.in_flight[key].pop(), signal, self.now)

    def slow_down(self, key: QueueKey) -> None:
        """All attempts of a queue have been in flight for long."""
        for attempt in self.in_flight[key]:
            attempt.is_slow = True
            self.flow.slow_down(attempt)

    def cycle(self, key: QueueKey, number: int) -> None:
        """Have ``number`` more attempts answered, so that the windows grow."""
        for _ in range(number):
            self.add(key[0], key[1].removeprefix("http://"))
            assert self.take(1) == [key]
            self.end(key)


def key(namespace: str = "a", host: str = "h") -> QueueKey:
    return namespace, f"http://{host}"
