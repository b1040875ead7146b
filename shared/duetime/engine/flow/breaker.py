"""A circuit breaker: after too many failures in a row nothing is tried for a while, then one probe decides."""

from __future__ import annotations

from enum import StrEnum

_JITTER = 0.2
_MAX_DOUBLINGS = 16
_SHORTEST_TROUBLE_SECONDS = 1.0
"""A burst of callbacks may meet one bad moment of a gateway; that is what retries are for."""


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
        """Opens after ``failures`` in a row for ``pause_seconds``, doubled with every probe that fails."""
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
        """An attempt was answered. True when that closes the breaker."""
        was_open = self._open_until is not None
        self._failures = self._reopenings = 0
        self._open_until = None
        return was_open

    def failed(self, *, started: float, is_answered: bool, monotonic: float, random: float) -> bool:
        """An attempt that was started at ``started`` failed. True when that opens the breaker.

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
