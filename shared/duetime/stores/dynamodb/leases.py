"""Shard ownership rows, ``sortKey = SHARD#OWNERSHIP``: claimed by conditional updates, fenced by version."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import uuid4

from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.changes import Change, Item, text, whole
from duetime.stores.dynamodb.items import item_key
from duetime.stores.dynamodb.table import Table

_OWNERSHIP = "SHARD#OWNERSHIP"
_CLAIM = (
    "SET row_type = :type, shard_version = if_not_exists(shard_version, :zero) + :one, shard_owner_id = :owner, "
    "shard_claimed_at = :now, shard_lease_expires_at = :until, shard_metadata = :metadata"
)
_IS_FREE = "attribute_not_exists(shard_lease_expires_at) OR shard_lease_expires_at <= :now"


class Leases:
    _table: Table

    def shard_statuses(self, shard_ids: Sequence[int]) -> list[ShardStatus]:
        # Eventually consistent, at half the price: a claim is what decides, and it is conditional.
        items = self._table.get_many([item_key(shard_id, _OWNERSHIP) for shard_id in shard_ids], consistent=False)
        return [_status(shard_id, item) for shard_id, item in zip(shard_ids, items, strict=True)]

    def claim_shard(self, shard_id: int, owner_id: str, *, lease_seconds: float, now: datetime) -> Lease | None:
        # The claim's own id tells a lost answer from a lost race: the driver may send the request twice.
        metadata = text(json.dumps({"claimId": uuid4().hex}))
        until = format_instant(now + timedelta(seconds=lease_seconds))
        written = self._table.update(
            Key=item_key(shard_id, _OWNERSHIP),
            UpdateExpression=_CLAIM,
            ConditionExpression=_IS_FREE,
            ExpressionAttributeValues={
                ":type": text("SHARD"),
                ":zero": whole(0),
                ":one": whole(1),
                ":owner": text(owner_id),
                ":now": text(format_instant(now)),
                ":until": text(until),
                ":metadata": metadata,
            },
            ReturnValues="ALL_NEW",
        )
        if written.item is None or written.item.get("shard_metadata") != metadata:
            return None
        return Lease(shard_id, int(written.item["shard_version"]["N"]), owner_id, read_instant(until))

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        until = format_instant(now + timedelta(seconds=lease_seconds))
        changes = [_change(lease, sets={"shard_lease_expires_at": text(until)}) for lease in leases]
        return [
            Lease(lease.shard_id, lease.version, lease.owner_id, read_instant(until)) if written.is_applied else None
            for lease, written in zip(leases, self._table.apply(changes), strict=True)
        ]

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:
        del now  # a released shard is free whatever the time
        self._table.apply([_change(lease, removes=("shard_owner_id", "shard_lease_expires_at")) for lease in leases])


def _change(lease: Lease, *, sets: Item | None = None, removes: tuple[str, ...] = ()) -> Change:
    return Change(
        key=item_key(lease.shard_id, _OWNERSHIP),
        sets=sets or {},
        removes=removes,
        unchanged={"shard_version": whole(lease.version), "shard_owner_id": text(lease.owner_id)},
    )


def _status(shard_id: int, item: Item | None) -> ShardStatus:
    if item is None:
        return ShardStatus(shard_id)
    expires_at = item.get("shard_lease_expires_at")
    return ShardStatus(
        shard_id=shard_id,
        version=int(item["shard_version"]["N"]),
        owner_id=item.get("shard_owner_id", {}).get("S"),
        claimed_at=read_instant(item["shard_claimed_at"]["S"]),
        lease_expires_at=None if expires_at is None else read_instant(expires_at["S"]),
    )
