"""Callbacks that wait until their host's addresses are known, each until a deadline of its own."""

from __future__ import annotations

from dataclasses import dataclass

from duetime.delivery.guard import Target
from duetime.delivery.port import Callback


@dataclass(frozen=True, slots=True)
class Waiting:
    """``since`` and ``until`` in seconds of a monotonic clock."""

    callback: Callback
    since: float
    until: float


class PendingLookups:
    """For one thread. Bounded by whoever bounds how many callbacks are in flight."""

    def __init__(self) -> None:
        self._by_target: dict[Target, list[Waiting]] = {}
        self._look_at = float("inf")

    def add(self, target: Target, waiting: Waiting) -> None:
        self._by_target.setdefault(target, []).append(waiting)
        self._look_at = min(self._look_at, waiting.until)

    def leave(self, target: Target) -> list[Waiting]:
        """Return all that wait for ``target``, in the order in which they came."""
        return self._by_target.pop(target, [])

    def leave_all(self) -> list[Waiting]:
        everyone = [waiting for several in self._by_target.values() for waiting in several]
        self._by_target.clear()
        return everyone

    def leave_late(self, now: float) -> list[Waiting]:
        """Return those whose deadline has passed."""
        if now < self._look_at:
            return []
        late: list[Waiting] = []
        self._look_at = float("inf")
        for target, several in list(self._by_target.items()):
            late.extend(waiting for waiting in several if waiting.until <= now)
            patient = [waiting for waiting in several if waiting.until > now]
            if patient:
                self._by_target[target] = patient
                self._look_at = min(self._look_at, *(waiting.until for waiting in patient))
            else:
                del self._by_target[target]
        return late

    def seconds_left(self, now: float) -> float | None:
        """Return how long until ``leave_late`` should be asked; None when nobody waits."""
        return max(0.0, self._look_at - now) if self._by_target else None
