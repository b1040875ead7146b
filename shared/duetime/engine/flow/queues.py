"""The queues of hosts and namespaces, and what bounds them: windows, buckets of tokens, circuit breakers."""

from __future__ import annotations

from collections import OrderedDict, deque
from enum import StrEnum

from duetime.delivery.port import CallbackResult, TransportError
from duetime.engine.delivery import Attempt
from duetime.engine.keys import QueueKey

_GATEWAY_ERRORS = frozenset({502, 503, 504})
"""What says that the host itself is not there. A 500 is a response of the receiver to this one timer."""
_HOST_ERRORS = frozenset(
    {
        TransportError.TIMEOUT,
        TransportError.RESOLVE,
        TransportError.CONNECT,
        TransportError.TLS,
        TransportError.PROTOCOL,
    }
)
_JITTER = 0.2
_MAX_DOUBLINGS = 16
_SHORTEST_TROUBLE_SECONDS = 1.0
"""A burst of callbacks may meet one bad moment of a gateway; that is what retries are for."""


class HostSignal(StrEnum):
    """What the end of an attempt says about its host."""

    ANSWERED = "answered"
    FAILED = "failed"
    """It did not answer."""
    UNAVAILABLE = "unavailable"
    """A gateway answered that the host is not there."""
    NEUTRAL = "neutral"
    """Nothing: the attempt was refused or given up by us."""


def signal_of(result: CallbackResult) -> HostSignal:
    if result.status is not None:
        return HostSignal.UNAVAILABLE if result.status in _GATEWAY_ERRORS else HostSignal.ANSWERED
    return HostSignal.FAILED if result.error in _HOST_ERRORS else HostSignal.NEUTRAL


class ConcurrencyWindow:
    """How many attempts may be in flight: few at first, one more with every response, half after a failure.

    So a destination that answers is soon used to the full, and one that hangs never holds more than it held when it
    last answered (the idea is TCP's slow start and multiplicative decrease: RFC 5681).
    """

    __slots__ = ("_initial", "size")

    def __init__(self, initial: int) -> None:
        self._initial = initial
        self.size = initial

    def begin_with(self, initial: int) -> None:
        """Have another initial size. A window that failures have made smaller than the old one must earn it."""
        if self.size >= self._initial:
            self.size = max(self.size, initial)
        self._initial = initial

    def answered(self, limit: int) -> None:
        if self.size < limit:
            self.size += 1

    def failed(self) -> None:
        self.size = max(1, self.size // 2)


class TokenBucket:
    """Lets ``per_second`` starts through, with a burst of what one second allows. Times are monotonic seconds."""

    __slots__ = ("_at", "_tokens", "per_second")

    def __init__(self, per_second: float, *, monotonic: float) -> None:
        self.per_second = per_second
        self._tokens = self.burst
        self._at = monotonic

    @property
    def burst(self) -> float:
        return max(1.0, self.per_second)

    def change(self, per_second: float, *, monotonic: float) -> None:
        self._fill(monotonic)
        self.per_second = per_second
        self._tokens = min(self._tokens, self.burst)

    def wait_seconds(self, monotonic: float) -> float:
        """Return how long until there is a token; 0 when there is one."""
        self._fill(monotonic)
        # A billionth is what adding up fractions may lose.
        return 0.0 if self._tokens >= 1.0 - 1e-9 else (1.0 - self._tokens) / self.per_second

    def take(self) -> None:
        self._tokens -= 1.0

    def _fill(self, monotonic: float) -> None:
        if monotonic > self._at:
            self._tokens = min(self.burst, self._tokens + (monotonic - self._at) * self.per_second)
            self._at = monotonic


class BreakerState(StrEnum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"
    """The pause is over: one attempt at a time may show whether the destination is back."""


class CircuitBreaker:
    """For one destination. Times are monotonic seconds; the caller counts what is in flight."""

    __slots__ = (
        "_failing_since",
        "_failures",
        "_max_pause_seconds",
        "_open_until",
        "_pause_seconds",
        "_reopenings",
        "_threshold",
    )

    def __init__(self, *, failures: int, pause_seconds: float, max_pause_seconds: float) -> None:
        """Open after ``failures`` in a row for ``pause_seconds``, doubled with every probe that fails."""
        self._threshold = failures
        self._pause_seconds = pause_seconds
        self._max_pause_seconds = max_pause_seconds
        self._failures = 0
        self._failing_since = 0.0
        self._reopenings = 0
        self._open_until: float | None = None

    @property
    def open_until(self) -> float | None:
        """When it becomes half-open; None while it is closed."""
        return self._open_until

    def state(self, monotonic: float) -> BreakerState:
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if monotonic < self._open_until else BreakerState.HALF_OPEN

    def succeeded(self) -> bool:
        """Count an attempt that was answered. True when that closes the breaker."""
        was_open = self._open_until is not None
        self._failures = self._reopenings = 0
        self._open_until = None
        return was_open

    def failed(self, *, started: float, is_answered: bool, monotonic: float, random: float) -> bool:
        """Count a failed attempt that was started at ``started``. True when that opens the breaker.

        ``is_answered``: a gateway answered in the place of the destination, which has to go on for a second to count.
        ``random`` in [0, 1) spreads the pause by +/- 20 %, so that pollers do not probe in step. What was started
        before the breaker opened says nothing about the destination now.
        """
        if self._open_until is None:
            if not self._failures:
                self._failing_since = monotonic
            self._failures += 1
            is_short = is_answered and monotonic - self._failing_since < _SHORTEST_TROUBLE_SECONDS
            if self._failures < self._threshold or is_short:
                return False
        elif started < self._open_until:
            return False
        else:
            self._reopenings = min(self._reopenings + 1, _MAX_DOUBLINGS)
        pause = min(self._pause_seconds * 2.0**self._reopenings, self._max_pause_seconds)
        self._open_until = monotonic + pause * (1 - _JITTER + 2 * _JITTER * random)
        return True


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
        """Return True when nothing is lost by forgetting it but what was learnt about its host."""
        return not (self.waiting or self.in_flight or self.breaker.state(monotonic) is BreakerState.OPEN)

    def has_room(self) -> bool:
        """Tell whether its own window and breaker let one more start. While the breaker is open nothing waits."""
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
