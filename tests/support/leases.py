"""Claims of single shards, for tests that are about something else than claims."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from duetime.domain.shards import Lease


class Claims(Protocol):
    """The part of ``Store`` that is used."""

    def claim_shards(
        self, shard_ids: list[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]: ...


def claim_shard(
    store: Claims, shard_id: int, owner_id: str, *, lease_seconds: float, now: datetime, metadata: str = "{}"
) -> Lease | None:
    """The lease, or None when somebody else has one."""
    (lease,) = store.claim_shards([shard_id], owner_id, lease_seconds=lease_seconds, metadata=metadata, now=now)
    return lease
