"""Refuses to transfer a store that is being served, since its contents would change meanwhile."""

from __future__ import annotations

from datetime import datetime
from hashlib import sha256

from duetime.stores.core.store import Store
from duetime.transfer.errors import TransferRefused

_SHARDS_AT_ONCE = 500
_MARK_CHARACTERS = 16


def refuse_if_served(store: Store, *, now: datetime) -> str:
    """Raise ``TransferRefused`` while a poller holds a shard. A server without workers cannot be seen.

    Returns a hash that changes whenever a shard is claimed.
    """
    shard_ids = store.catalogue.shard_map().shard_ids()
    held = 0
    claims = sha256()
    owners: set[str] = set()
    for start in range(0, len(shard_ids), _SHARDS_AT_ONCE):
        for status in store.leases.statuses(shard_ids[start : start + _SHARDS_AT_ONCE], now=now):
            if status.version:
                claims.update(f"{status.shard_id}:{status.version};".encode())
            if not status.is_free:
                held += 1
                owners.add(status.owner_id or "?")
    if held:
        raise TransferRefused(
            f"the store is being served: {held} of its shards are held by {', '.join(sorted(owners)[:3])}. "
            "Stop all servers and workers and wait for their leases to end, or allow it by --allow-running"
        )
    return claims.hexdigest()[:_MARK_CHARACTERS]
