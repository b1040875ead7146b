"""Which leases are lost, as far as a look can tell before a change."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from duetime.domain.shards import Lease, ShardStatus

ShardStatuses = Callable[[Sequence[int]], list[ShardStatus]]


def lost_shards(leases: Mapping[int, Lease], shard_statuses: ShardStatuses) -> set[int]:
    """The shards that somebody else has claimed since, or that were released."""
    held = list(leases.values())
    statuses = shard_statuses([lease.shard_id for lease in held]) if held else []
    return {
        lease.shard_id
        for lease, status in zip(held, statuses, strict=True)
        if (status.version, status.owner_id) != (lease.version, lease.owner_id)
    }
