"""How much may be started: a window that follows the responses, and a bucket of tokens."""

from __future__ import annotations


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
        """How long until there is a token; 0 when there is one."""
        self._fill(monotonic)
        # A billionth is what adding up fractions may lose.
        return 0.0 if self._tokens >= 1.0 - 1e-9 else (1.0 - self._tokens) / self.per_second

    def take(self) -> None:
        self._tokens -= 1.0

    def _fill(self, monotonic: float) -> None:
        if monotonic > self._at:
            self._tokens = min(self.burst, self._tokens + (monotonic - self._at) * self.per_second)
            self._at = monotonic
