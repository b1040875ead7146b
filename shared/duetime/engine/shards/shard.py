"""One owned shard as the poller sees it: its lease, and how it is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from duetime.domain.shards import Lease
from duetime.engine.keys import FiringKey
from duetime.engine.shards.reading import ShardReading


@dataclass(slots=True, eq=False)
class ShardState:
    """Touched by the event loop only. ``trusted_until`` is monotonic seconds.

    ``holds`` counts the attempts that keep it from being released: those that are neither recorded nor parked.
    ``settled``: attempts recorded while a read is in flight, which may yet appear in that read's page
    (``engine.in_flight``).
    """

    lease: Lease
    trusted_until: float
    reading: ShardReading
    is_releasing: bool = False
    holds: int = 0
    settled: list[FiringKey] = field(default_factory=list)

    @property
    def shard_id(self) -> int:
        return self.lease.shard_id

    @property
    def is_polling(self) -> bool:
        """Whether a read is in flight."""
        return self.reading.is_polling

    def is_trusted(self, monotonic: float) -> bool:
        return monotonic < self.trusted_until

    def note_due(self, at: datetime, monotonic: float) -> None:
        """Do as ``ShardReading.note_due``."""
        self.reading.note_due(at, monotonic)
