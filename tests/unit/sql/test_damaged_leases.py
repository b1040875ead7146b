"""An ownership row that cannot be read harms its shard alone."""

from __future__ import annotations

import sqlalchemy as sa

from duetime.stores.backends.sql.tables import RowType, timers
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.stores import memory_store


def test_a_damaged_lease_is_nobody_s_to_claim_and_hides_no_other_shard() -> None:
    with memory_store() as store:
        assert isinstance(store, SqlStore)
        store.leases.claim([0, 1], "me", lease_seconds=10, metadata="{}", now=NOW)
        damage = (
            sa.update(timers)
            .where(timers.c.shard_id == 0, timers.c.row_type == RowType.SHARD)
            .values(shard_lease_expires_at=2**62)
        )
        with store.database.engine.begin() as connection:
            connection.execute(damage)

        damaged, held, free = store.leases.statuses([0, 1, 2], now=NOW)

        assert (damaged.shard_id, damaged.owner_id, damaged.is_free) == (0, None, False)
        assert (held.owner_id, held.is_free, free.is_free) == ("me", False, True)
        assert store.leases.claim([0], "other", lease_seconds=10, metadata="{}", now=NOW) == [None]
