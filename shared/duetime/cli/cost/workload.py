"""The timers of a month."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from duetime.cli.cost import counts

HOURS = 730
"""Of a month."""
SECONDS = HOURS * 3600.0
MILLION = 1e6
GB = 1024.0**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What is asked for, and what cannot be counted.

    Timers are created and fire evenly over ``active_hours`` of the month, each with one attempt, after
    ``pending_hours``.
    """

    timers_per_month: int
    payload_bytes: int
    is_batched: bool
    active_hours: int
    shards: int
    is_provisioned: bool
    pending_hours: int
    retention_days: int
    api_milliseconds: int
    api_memory_mb: int
    poller_memory_mb: int
    cpu_microseconds: int
    may_sleep: bool
    has_dashboard: bool
    target: str | None
    """The service that takes the messages; None: callbacks go to a URL."""

    def chunks(self, kilobytes: int, *, beside_bytes: int = 0) -> int:
        """Return as how many a payload is charged, with ``beside_bytes``, by a service that counts started chunks."""
        return max(1, ceil((beside_bytes + self.payload_bytes) / (kilobytes * 1024)))

    @property
    def active_seconds(self) -> float:
        return self.active_hours * 3600.0

    @property
    def awake_seconds(self) -> float:
        """Return for how many seconds of the month pollers on Lambda run."""
        if not self.may_sleep:
            return SECONDS
        return min(self.active_seconds, self.timers_per_month * counts.AWAKE_SECONDS_OF_A_TIMER)

    @property
    def pending_months(self) -> float:
        return self.pending_hours / HOURS

    @property
    def retention_months(self) -> float:
        return self.retention_days * 24 / HOURS

    @property
    def requests(self) -> float:
        """Return how many requests create timers."""
        return self.timers_per_month / self.timers_per_request

    @property
    def timers_per_request(self) -> int:
        return counts.timers_per_batch(self.payload_bytes) if self.is_batched else 1
