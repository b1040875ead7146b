"""Whether shards still belong to who thinks so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from duetime.domain.shards import Lease
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.timer_documents import RowType

_OWNER = {"shard_id": 1, "shard_version": 1, "shard_owner_id": 1, "_id": 0}


class ShardFence:
    """Read just before the write that depends on it, and not locked: that write is fenced by a revision of its own,
    so a claim in between makes it no less right (docs/decisions/0111-mongodb-fencing.md)."""

    def __init__(self, database: Database) -> None:
        self._collection = database[TIMERS]

    def lost_shards(self, shard_ids: Iterable[int], leases: Mapping[int, Lease]) -> set[int]:
        """Those of ``shard_ids`` whose lease is not the stored one."""
        wanted = set(shard_ids)
        if not wanted:
            return set()
        of_shards = {"shard_id": {"$in": sorted(wanted)}, "row_type": RowType.SHARD.value}
        found = read(self._collection, of_shards, _OWNER, limit=len(wanted))
        owners = {each["shard_id"]: (each.get("shard_version"), each.get("shard_owner_id")) for each in found}
        held = {
            shard_id
            for shard_id in wanted
            if (lease := leases.get(shard_id)) is not None and owners.get(shard_id) == (lease.version, lease.owner_id)
        }
        return wanted - held
