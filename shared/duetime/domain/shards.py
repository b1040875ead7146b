"""Shards: which one a timer lives on, and who may poll it."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import datetime

from duetime.domain.ids import escalation_shard_hash, schedule_id_of, schedule_timer_id

MAX_SHARED_SHARDS = 4096
"""Shared namespaces use shards 0 to ``num_shards - 1``; dedicated ranges begin here."""

MAX_DEDICATED_SHARD = 1_000_000


def shard_index(timer_id: str, num_shards: int) -> int:
    """Return ``shard_hash`` modulo ``num_shards`` (rule: durable-timer seed)."""
    return shard_hash(timer_id) % num_shards


def shard_hash(timer_id: str) -> int:
    """Return the CRC-32 of the id's UTF-8 bytes.

    The occurrences of a schedule are on its shard, and an escalation is on that of what has failed: what becomes of
    both is one write.
    """
    schedule_id, of_failed = schedule_id_of(timer_id), escalation_shard_hash(timer_id)
    if of_failed is not None:
        return of_failed
    if schedule_id is not None:
        timer_id = schedule_timer_id(schedule_id)
    return zlib.crc32(timer_id.encode())


@dataclass(frozen=True, slots=True)
class Lease:
    """Ownership of one shard until ``expires_at`` by the store's clock, fenced by ``version``."""

    shard_id: int
    version: int
    owner_id: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class ShardStatus:
    """The ownership row of a shard; ``version`` 0 and no owner if it was never claimed.

    ``metadata``: JSON about the owner, stored by the claim. ``is_free``: nobody's lease is live, by the
    clock that the store judges claims by. A lease is live up to, and not including, ``lease_expires_at``.
    """

    shard_id: int
    version: int = 0
    owner_id: str | None = None
    claimed_at: datetime | None = None
    lease_expires_at: datetime | None = None
    metadata: str | None = None
    is_free: bool = True


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The shards that exist: ``0..shared_shards-1`` and ``MAX_SHARED_SHARDS..dedicated_end-1``."""

    shared_shards: int = 0
    dedicated_end: int = MAX_SHARED_SHARDS

    def shard_ids(self) -> list[int]:
        return [*range(self.shared_shards), *range(MAX_SHARED_SHARDS, self.dedicated_end)]
