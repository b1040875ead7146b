"""Whether shards still belong to who thinks so: asked inside the transaction that depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from duetime.domain.shards import Lease
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.tables import NIL_UUID, is_shard_row, timers


class ShardFence:
    def __init__(self, database: Database) -> None:
        row = timers.c
        owners = sa.select(row.shard_id, row.shard_version, row.shard_owner_id).where(*is_shard_row())
        # In the order of the shards: two workers that both think they own some must not wait for each other.
        self._owners = database.prepare_list(owners.order_by(row.shard_id).with_for_update(), row.shard_id, "nil")

    def lost_shards(self, mutation: Mutation, shard_ids: Iterable[int], leases: Mapping[int, Lease]) -> set[int]:
        """Those of ``shard_ids`` whose lease is not the stored one. The ownership rows stay locked until the end."""
        wanted = sorted(set(shard_ids))
        held = {
            shard_id
            for shard_id, version, owner_id in self._owners.rows(mutation.connection, wanted, NIL_UUID)
            if (lease := leases.get(shard_id)) is not None and (version, owner_id) == (lease.version, lease.owner_id)
        }
        return set(wanted) - held
