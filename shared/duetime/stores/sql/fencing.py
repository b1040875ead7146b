"""Whether shards still belong to who thinks so: asked inside the transaction that depends on it."""

from __future__ import annotations

from collections.abc import Iterable

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

    def lost(self, mutation: Mutation, fences: Iterable[Lease | None]) -> set[Lease | None]:
        """Those leases that are not the stored ones. The ownership rows stay locked until the end."""
        leases = {lease for lease in fences if lease is not None}
        if not leases:
            return set()
        shard_ids = sorted({lease.shard_id for lease in leases})
        owners = {tuple(row) for row in self._owners.rows(mutation.connection, shard_ids, NIL_UUID)}
        return {lease for lease in leases if (lease.shard_id, lease.version, lease.owner_id) not in owners}
