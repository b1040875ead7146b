"""Whether shards still belong to who thinks so: asked inside the transaction that depends on it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import sqlalchemy as sa

from duetime.domain.shards import Lease
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.tables import RowType, constant, given, timers


class ShardFence:
    def __init__(self, database: Database) -> None:
        row = timers.c
        self._owner = database.prepare(
            sa.select(row.shard_version, row.shard_owner_id)
            .where(row.shard_id == given("shard"), row.row_type == constant(RowType.SHARD))
            .with_for_update(),
            "shard",
        )

    def lost_shards(self, mutation: Mutation, shard_ids: Iterable[int], leases: Mapping[int, Lease]) -> set[int]:
        """Those of ``shard_ids`` whose lease is not the stored one. The ownership rows stay locked until the end."""
        return {shard_id for shard_id in sorted(set(shard_ids)) if not self._is_held(mutation, shard_id, leases)}

    def _is_held(self, mutation: Mutation, shard_id: int, leases: Mapping[int, Lease]) -> bool:
        lease = leases.get(shard_id)
        row = self._owner.one(mutation.connection, shard_id).first()
        return lease is not None and row is not None and tuple(row) == (lease.version, lease.owner_id)
