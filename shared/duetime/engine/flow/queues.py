"""What waits for its turn: a queue per namespace and host, and one per namespace over those."""

from __future__ import annotations

from collections import OrderedDict, deque

from duetime.engine.delivery import Attempt
from duetime.engine.flow.breaker import BreakerState, CircuitBreaker
from duetime.engine.flow.limits import ConcurrencyWindow, TokenBucket
from duetime.engine.keys import QueueKey


class Host:
    """What all namespaces together have in flight to one host."""

    __slots__ = ("crowd", "in_flight")

    def __init__(self) -> None:
        self.in_flight = 0
        self.crowd: dict[HostQueue, None] = {}
        """Queues that could start one more if there were room here, in the order in which they came."""


class HostQueue:
    """The timers of one namespace for one host."""

    __slots__ = ("breaker", "host", "in_flight", "key", "namespace", "slow", "waiting", "window")

    def __init__(
        self, key: QueueKey, namespace: NamespaceQueue, host: Host, window: ConcurrencyWindow, breaker: CircuitBreaker
    ) -> None:
        self.key = key
        self.namespace = namespace
        self.host = host
        self.window = window
        self.breaker = breaker
        self.waiting: deque[Attempt] = deque()
        self.in_flight = 0
        self.slow = 0
        """How many of those in flight have been so for long."""

    def is_idle(self, monotonic: float) -> bool:
        """True when nothing is lost by forgetting it but what was learnt about its host."""
        return not (self.waiting or self.in_flight or self.breaker.state(monotonic) is BreakerState.OPEN)

    def has_room(self) -> bool:
        """Whether its own window and breaker let one more start. While the breaker is open nothing waits."""
        return self.in_flight < (self.window.size if self.breaker.open_until is None else 1)


class NamespaceQueue:
    """The queues of one namespace. They take turns: ``ready`` are those that may have one, as far as their own limits
    and their hosts' go; the one at the front has waited for it the longest."""

    __slots__ = ("bucket", "in_flight", "initial_window", "max_in_flight", "ready", "waiting", "window")

    def __init__(self, window: ConcurrencyWindow, max_in_flight: int, initial_window: int) -> None:
        self.window = window
        self.max_in_flight = max_in_flight
        self.initial_window = initial_window
        """With how many each of its queues begins."""
        self.bucket: TokenBucket | None = None
        self.ready: OrderedDict[HostQueue, None] = OrderedDict()
        self.waiting = 0
        self.in_flight = 0

    def has_room(self) -> bool:
        return self.in_flight < min(self.window.size, self.max_in_flight)
