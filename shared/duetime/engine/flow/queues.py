"""Waiting lines that are fair between namespaces, and bounded by what each may have in flight.

A queue holds the timers of one namespace for one host. A namespace's queues take turns, and so do the namespaces. A
queue or namespace that must not start anything leaves the round until something happens that may let it in again:
one of its attempts ends, its host has room, or its bucket has a token.
"""

from __future__ import annotations

from collections import deque

from duetime.domain.timers import Timer
from duetime.engine.flow.breaker import BreakerState, CircuitBreaker
from duetime.engine.flow.limits import ConcurrencyWindow, TokenBucket
from duetime.engine.keys import QueueKey
from duetime.engine.shards.shard import ShardState

Waiting = tuple[ShardState, Timer, float]
"""The timer, its shard, and the monotonic time at which it was read."""


class Host:
    """What all namespaces together have in flight to one host."""

    __slots__ = ("blocked", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.blocked: dict[HostQueue, None] = {}
        """HostQueues that wait for room here, first come first served."""


class HostQueue:
    __slots__ = ("breaker", "host", "in_flight", "is_in_round", "key", "namespace", "slow", "waiting", "window")

    def __init__(
        self, key: QueueKey, namespace: NamespaceQueue, host: Host, window: ConcurrencyWindow, breaker: CircuitBreaker
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.host = host
        self.window = window
        self.breaker = breaker
        self.waiting: deque[Waiting] = deque()
        self.in_flight = 0
        self.slow = 0
        """How many of those in flight have been so for long."""
        self.is_in_round = False

    def is_idle(self, monotonic: float) -> bool:
        """True when nothing is lost by forgetting it but what was learnt about its host."""
        return not (self.waiting or self.in_flight or self.breaker.state(monotonic) is BreakerState.OPEN)

    def may_start(self, monotonic: float) -> bool:
        """As far as its own limits go."""
        state = self.breaker.state(monotonic)
        if state is BreakerState.CLOSED:
            return self.in_flight < self.window.size
        return state is BreakerState.HALF_OPEN and self.in_flight == 0


class NamespaceQueue:
    __slots__ = (
        "bucket",
        "in_flight",
        "initial_window",
        "is_in_round",
        "max_in_flight",
        "name",
        "round",
        "waiting",
        "waits_for_token",
        "window",
    )

    def __init__(self, name: str, window: ConcurrencyWindow, max_in_flight: int, initial_window: int) -> None:
        self.name = name
        self.window = window
        self.max_in_flight = max_in_flight
        self.initial_window = initial_window
        """With how many each of its queues begins."""
        self.bucket: TokenBucket | None = None
        self.round: deque[HostQueue] = deque()
        """HostQueues with something waiting that may start, as far as is known."""
        self.waiting = 0
        self.in_flight = 0
        self.is_in_round = False
        self.waits_for_token = False

    def has_room(self) -> bool:
        return self.in_flight < min(self.window.size, self.max_in_flight)
