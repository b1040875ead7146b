"""Ids that are the same in every run."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from duetime.domain.clock import Clock
from duetime.domain.ids import uuid7_at


def counted_ids(clock: Clock) -> Callable[[], str]:
    """Return what makes UUIDv7s of the time that ``clock`` shows, each later than the one before. Thread-safe."""
    numbers = count(1)
    return lambda: uuid7_at(clock.now(), next(numbers))
