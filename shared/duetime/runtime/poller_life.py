"""The life of one poller on Lambda (decision 0034): when it hands over, and the seat by which others know of it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.shards import MAX_DEDICATED_SHARD, Lease
from duetime.engine.poller import FINAL_WRITES_SECONDS
from duetime.runtime.settings import PollerSettings
from duetime.stores.core.store import Store

TICK_SECONDS = 60.0
"""Between two scheduled events."""
_LATE_TICK_SECONDS = 30.0
_SELF_STARTED_SECONDS = 30.0
"""What a successor that the schedule did not start has for its own start."""
_WAIT_SECONDS = 60.0
"""The longest that a seat is held."""
_SEATS = 2 * MAX_DEDICATED_SHARD
"""No shard has such a number: seats begin here."""


@dataclass(frozen=True, slots=True)
class Life:
    """The times of a poller's life, in monotonic seconds.

    From ``succession_at`` on a successor may wait, which the schedule starts in one of the ticks up to
    ``planned_end``; then the poller starts it itself. The poller stops as soon as one waits, and at the latest when
    callbacks would no longer have ``drain_seconds`` until the ``deadline``.
    """

    started: float
    deadline: float
    planned_end: float
    succession_at: float

    @classmethod
    def of(cls, remaining_seconds: float, started: float, settings: PollerSettings) -> Life:
        """Plan a life of ``remaining_seconds``. One that is too short for a tick and a start has no successor."""
        left = max(0.0, remaining_seconds - settings.deadline_margin_seconds)
        polling = left - min(settings.drain_seconds + FINAL_WRITES_SECONDS, left / 2)
        until_end = polling - _SELF_STARTED_SECONDS
        until_succession = until_end - TICK_SECONDS - _LATE_TICK_SECONDS
        if until_succession <= 0:
            until_end = until_succession = float("inf")
        return cls(started, started + left, started + until_end, started + until_succession)

    @property
    def seconds_to_succession(self) -> float:
        return self.succession_at - self.started


class Seat:
    """A part's seat, as one poller sees it. Its calls block."""

    def __init__(self, store: Store, clock: Clock, owner_id: str, lease_seconds: float) -> None:
        self._store = store
        self._clock = clock
        self._owner_id = owner_id
        self._lease_seconds = lease_seconds
        self._lease: Lease | None = None
        self._taken_at = self._renewed_at = float("-inf")

    @property
    def is_held(self) -> bool:
        return self._lease is not None

    def take(self, head: int) -> bool:
        """Take the seat of the part that begins with shard ``head``, unless another holds it."""
        self._taken_at = self._renewed_at = self._clock.monotonic()
        (self._lease,) = self._store.leases.claim(
            [_SEATS + head],
            self._owner_id,
            lease_seconds=self._lease_seconds,
            metadata="{}",
            now=self._clock.now(),
        )
        return self.is_held

    def keep(self, *, head: int, owned: int, wanted: int) -> bool:
        """Hold the seat until the part is owned, for a while at most; take it again when all is lost."""
        monotonic = self._clock.monotonic()
        if self._lease is None:
            return owned == 0 and self.take(head)
        if owned >= wanted or monotonic - self._taken_at >= _WAIT_SECONDS:
            self.leave()
        elif monotonic - self._renewed_at >= self._lease_seconds / 3:
            self._renewed_at = monotonic
            (self._lease,) = self._store.leases.renew(
                [self._lease], lease_seconds=self._lease_seconds, now=self._clock.now()
            )
        return self.is_held

    def leave(self) -> None:
        """Let others have the seat."""
        lease, self._lease = self._lease, None
        if lease is not None:
            with suppress(StoreError):  # it is free when the lease ends
                self._store.leases.release([lease], now=self._clock.now())

    def is_taken(self, head: int) -> bool:
        """Tell whether another holds the seat."""
        (status,) = self._store.leases.statuses([_SEATS + head], now=self._clock.now())
        return not status.is_free and status.owner_id != self._owner_id
