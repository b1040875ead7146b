"""Spreads what many schedules, or many timers, have at one instant: the same delay each time, by a hash."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import blake2b

from duetime.domain.times import MILLISECOND, to_milliseconds


@dataclass(frozen=True, slots=True)
class Spread:
    """``window_ms``: an occurrence is due up to this much later, by the id of its schedule: always as much, so the
    distance between two stays. ``jitter_ms``: up to this much later, by the id and the scheduled time: each time
    another delay, which ends before the next occurrence."""

    jitter_ms: int
    window_ms: int

    def due_at(self, scheduled_at: datetime, following: datetime | None, schedule_id: str) -> datetime:
        """Return when it is due. ``following`` is the next scheduled time; None: there is none."""
        delay_ms = 0
        if self.jitter_ms:
            most = self.jitter_ms
            if following is not None:
                most = min(most, (following - scheduled_at) // MILLISECOND)
            delay_ms = _hash(f"{to_milliseconds(scheduled_at)} {schedule_id}") % most
        return scheduled_at + self.least_delay(schedule_id) + delay_ms * MILLISECOND

    def least_delay(self, schedule_id: str) -> timedelta:
        """Return the delay that all occurrences have."""
        return delay_within(self.window_ms, schedule_id)


def delay_within(window_ms: int, item_id: str) -> timedelta:
    """Return a delay of less than ``window_ms``: always the same for an id, and even over many."""
    return (_hash(item_id) % window_ms if window_ms else 0) * MILLISECOND


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
