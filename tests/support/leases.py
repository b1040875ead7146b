"""Claims of single shards, for tests that are about something else than claims."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from duetime.domain.shards import Lease
from duetime.stores.port.leases import LeaseStore


class Leasing(Protocol):
    """The part of ``Store`` that is used."""

    @property
    def leases(self) -> LeaseStore: ...


def claim_shard(
    store: Leasing, shard_id: int, owner_id: str, *, lease_seconds: float, now: datetime, metadata: str = "{}"
) -> Lease | None:
    """The lease, or None when somebody else has one."""
    (lease,) = store.leases.claim([shard_id], owner_id, lease_seconds=lease_seconds, metadata=metadata, now=now)
    return lease
