"""Namespaces: named sets of timers with a fixed number of shards."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from duetime.domain.shards import MAX_SHARED_SHARDS, shard_index

DEFAULT_NUM_SHARDS = 16
MAX_NUM_SHARDS = MAX_SHARED_SHARDS


@dataclass(frozen=True, slots=True)
class Namespace:
    """``num_shards``, ``first_shard`` and ``dedicated`` never change after creation."""

    name: str
    num_shards: int
    first_shard: int
    dedicated: bool
    created_at: datetime

    def shard_of(self, timer_id: str) -> int:
        return self.first_shard + shard_index(timer_id, self.num_shards)

    def shard_ids(self) -> range:
        return range(self.first_shard, self.first_shard + self.num_shards)
