"""Whether shards still belong to who thinks so."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.domain.shards import Lease
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.timer_documents import RowType

_OWNER = {"shard_id": 1, "shard_version": 1, "shard_owner_id": 1, "_id": 0}


class ShardFence:
    """Read just before the write that depends on it, and not locked: that write is fenced by a revision of its own,
    so a claim in between makes it no less right (docs/decisions/0019-mongodb.md)."""

    def __init__(self, database: Database) -> None:
        self._collection = database[TIMERS]

    def lost(self, fences: Iterable[Lease | None]) -> set[Lease | None]:
        """Those leases that are not the stored ones."""
        leases = {lease for lease in fences if lease is not None}
        if not leases:
            return set()
        shard_ids = sorted({lease.shard_id for lease in leases})
        of_shards = {"shard_id": {"$in": shard_ids}, "row_type": RowType.SHARD.value}
        found = read(self._collection, of_shards, _OWNER, limit=len(shard_ids))
        owners = {(each["shard_id"], each.get("shard_version"), each.get("shard_owner_id")) for each in found}
        return {lease for lease in leases if (lease.shard_id, lease.version, lease.owner_id) not in owners}
