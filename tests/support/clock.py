"""A clock that moves only when a test says so."""

from __future__ import annotations

from datetime import datetime, timedelta

from duetime.testing.contract.builders import NOW as NOW


class FakeClock:
    """Implements ``duetime.domain.clock.Clock``."""

    def __init__(self, now: datetime = NOW) -> None:
        self._now = now
        self._monotonic = 0.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> datetime:
        """Move both times forward; the new ``now()``."""
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds
        return self._now
