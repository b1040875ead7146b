"""The part of the store port with the leases of shards, the workers that share them, and whether these sleep."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from duetime.domain.shards import Lease, ShardStatus


class LeaseStore(Protocol):
    def statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        """One per id, in order; a shard that was never claimed has version 0. The store's clock says what is free."""
        ...

    def claim(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        """Own those of the shards that nobody's lease is live of: each ``shard_version`` grows by exactly one.

        None where a live lease is in the way (be it the caller's own), or another claim won. ``metadata``: JSON that
        tells of the owner, for people to read. Raises only if nothing was claimed, as far as is known.
        """
        ...

    def renew(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        """Extend to ``now + lease_seconds``. None for a lease whose version or owner is no longer the stored one.

        A lease that has expired but that nobody has claimed since can still be renewed. One that cannot be written
        for now, unlike others, comes back as it was given. Raises only if none was renewed, as far as is known.
        """
        ...

    def release(self, leases: Sequence[Lease], *, now: datetime) -> None:
        """End leases so that they can be claimed at once and never renewed. A stale lease changes nothing."""
        ...

    def sleep_epoch(self) -> int:
        """How often pollers have woken or fallen asleep; 0 at first. Even while they sleep; strongly consistent.

        Only those count it that sleep at all: pollers on Lambda.
        """
        ...

    def advance_sleep_epoch(self, epoch: int) -> bool:
        """Count one more if ``epoch`` is what is stored; whether this call did."""
        ...

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        """Say that a worker lives up to, not including, ``now + ttl_seconds``; the sorted ids of all that do."""
        ...

    def withdraw_worker(self, worker_id: str) -> None:
        """The worker lives no longer. One that nobody knows changes nothing."""
        ...
