"""Shard ownership rows, ``sortKey = SHARD#OWNERSHIP``: claimed by conditional writes, fenced by version.

DynamoDB has no clock that a condition could use: what is free is judged by the ``now`` that is passed, which callers
correct by ``store_time``.

A row always has the same size: a partition that is full takes no write that makes an item larger, and nothing of a
shard that cannot be claimed would ever fire.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.changes import Change, Item, text, whole
from duetime.stores.dynamodb.items import item_key
from duetime.stores.dynamodb.table import UNREAD, Table, Unread, Written, raise_put_off
from duetime.stores.shard_reading import read_status

_OWNERSHIP = "SHARD#OWNERSHIP"
_VARIABLE_BYTES = 768
"""What owner, metadata and version have between them. The rest of a row is below 256 bytes: 1 write unit in all."""
_OF_OWNER = ("shard_owner_id", "shard_lease_expires_at")
_RELEASED = "shard_released"
"""Stands in a row that nobody owns for what the owner had there."""


class Leases:
    _table: Table

    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        # Eventually consistent, at half the price: a claim is what decides, and it is conditional.
        items = self._table.get_each([item_key(shard_id, _OWNERSHIP) for shard_id in shard_ids], consistent=False)
        return [
            read_status(shard_id, partial(_status, shard_id, item, now))
            for shard_id, item in zip(shard_ids, items, strict=True)
        ]

    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        items = self._table.get_each([item_key(shard_id, _OWNERSHIP) for shard_id in shard_ids], consistent=True)
        until = read_instant(format_instant(now + timedelta(seconds=lease_seconds)))
        new: list[tuple[Lease, Item]] = []
        changes: list[tuple[Lease, Change]] = []
        for shard_id, item in zip(shard_ids, items, strict=True):
            status = read_status(shard_id, partial(_status, shard_id, item, now))
            if not status.is_free or item is UNREAD:
                continue
            lease = Lease(shard_id, status.version + 1, owner_id, until)
            claimed = _claimed(lease, metadata=metadata, now=now)
            if item is None:
                new.append((lease, {**item_key(shard_id, _OWNERSHIP), "row_type": text("SHARD"), **claimed}))
            else:
                unchanged = {name: item.get(name) for name in ("shard_version", "shard_lease_expires_at")}
                key = item_key(shard_id, _OWNERSHIP)
                change = Change(key=key, sets=claimed, removes=(_RELEASED,), unchanged=unchanged)
                changes.append((lease, change))
        claims = [*self._make(new), *self._take(changes)]
        won = {lease.shard_id: lease for lease, written in claims if written.is_applied}
        failures = [written.failure for _, written in claims if written.failure is not None]
        if failures and not won:
            raise failures[0]
        return [won.get(shard_id) for shard_id in shard_ids]

    def _make(self, new: Sequence[tuple[Lease, Item]]) -> list[tuple[Lease, Written]]:
        """Claim shards that have no row. One that the driver made twice is applied."""
        if not new:
            return []
        written = self._table.insert([item for _, item in new], is_patient=False)
        refused = [at for at, each in enumerate(written) if not each.is_applied]
        keys = [item_key(new[at][0].shard_id, _OWNERSHIP) for at in refused]
        for at, stored in zip(refused, self._table.get_many(keys, consistent=True), strict=True):
            if stored == new[at][1]:
                written[at] = Written(is_applied=True)
        return [(lease, each) for (lease, _), each in zip(new, written, strict=True)]

    def _take(self, changes: Sequence[tuple[Lease, Change]]) -> list[tuple[Lease, Written]]:
        """Claim shards whose rows are there."""
        if not changes:
            return []
        written = self._apply([change for _, change in changes])
        return [
            (lease, Written(is_applied=True) if each.is_own_work(change) else each)
            for (lease, change), each in zip(changes, written, strict=True)
        ]

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        until = format_instant(now + timedelta(seconds=lease_seconds))
        changes = [_change(lease, sets={"shard_lease_expires_at": text(until)}) for lease in leases]
        renewed = self._apply(changes)
        if all(written.is_put_off for written in renewed):
            raise_put_off(renewed)
        return [
            replace(lease, expires_at=read_instant(until))
            if written.is_applied
            else lease
            if written.is_put_off
            else None
            for lease, written in zip(leases, renewed, strict=True)
        ]

    def _apply(self, changes: Sequence[Change]) -> list[Written]:
        """Of several shards none waits for another. The outbox, which has one, may not use PartiQL on this table."""
        return self._table.apply(changes, is_patient=len(changes) == 1)

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:
        del now  # a released shard is free whatever the time
        raise_put_off(self._table.apply([_released(lease) for lease in leases]))


def _released(lease: Lease) -> Change:
    size = sum(map(len, _OF_OWNER)) + len(lease.owner_id.encode()) + len(format_instant(lease.expires_at))
    return _change(lease, sets={_RELEASED: text("." * (size - len(_RELEASED)))}, removes=_OF_OWNER)


def _change(lease: Lease, *, sets: Item | None = None, removes: tuple[str, ...] = ()) -> Change:
    return Change(
        key=item_key(lease.shard_id, _OWNERSHIP),
        sets=sets or {},
        removes=removes,
        unchanged={"shard_version": whole(lease.version), "shard_owner_id": text(lease.owner_id)},
    )


def _claimed(lease: Lease, *, metadata: str, now: datetime) -> Item:
    used = len(lease.owner_id.encode()) + len(metadata.encode()) + (len(str(lease.version)) + 1) // 2
    return {
        "shard_reserve": text("." * max(1, _VARIABLE_BYTES - used)),
        "shard_version": whole(lease.version),
        "shard_owner_id": text(lease.owner_id),
        "shard_claimed_at": text(format_instant(now)),
        "shard_lease_expires_at": text(format_instant(lease.expires_at)),
        "shard_metadata": text(metadata),
    }


def _status(shard_id: int, item: Item | Unread | None, now: datetime) -> ShardStatus:
    if item is None:
        return ShardStatus(shard_id)
    if item is UNREAD:
        return ShardStatus(shard_id, is_free=False)
    stored = item.get("shard_lease_expires_at")
    expires_at = None if stored is None else read_instant(stored["S"])
    return ShardStatus(
        shard_id=shard_id,
        version=int(item["shard_version"]["N"]),
        owner_id=item.get("shard_owner_id", {}).get("S"),
        claimed_at=read_instant(item["shard_claimed_at"]["S"]),
        lease_expires_at=expires_at,
        metadata=item.get("shard_metadata", {}).get("S"),
        is_free=expires_at is None or expires_at <= now,
    )
