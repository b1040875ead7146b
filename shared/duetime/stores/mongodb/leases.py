"""Ownership of shards, and the workers that share them.

All times are one clock's: the server's ``$$NOW`` (a test's own in tests), which stands in the update itself. So
workers whose clocks differ agree on leases, and nobody asks for the time first.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

from bson import ObjectId
from pymongo import ReturnDocument, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import BulkWriteError, DuplicateKeyError

from duetime.domain.errors import StoreUnavailable
from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import MIN_INSTANT
from duetime.stores.mongodb.database import TIMERS, WORKERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.timer_documents import RowType
from duetime.stores.mongodb.url import Document
from duetime.stores.shard_reading import read_status

_SHARD = RowType.SHARD.value
_DUPLICATE_KEY = 11000


class Leases:
    """A lease is live up to, and not including, ``shard_lease_expires_at``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._shards = database[TIMERS]
        self._workers = database[WORKERS]

    @translated
    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        owned = self._read_shards(shard_ids)
        at = self._database.clock(now)
        return [
            read_status(shard_id, partial(_status, shard_id, owned.get(shard_id, {}), at)) for shard_id in shard_ids
        ]

    @translated
    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        if not shard_ids:
            return []
        claim_id = ObjectId()
        change = self._claim_change(owner_id, claim_id, _milliseconds(lease_seconds), metadata, now)
        shards = self._claim_each(shard_ids, change)
        if missing := [shard_id for shard_id in shard_ids if shard_id not in shards]:
            self._make_shards(missing)
            shards |= self._claim_each(missing, change)
        return [_lease(owner_id, claim_id, shards.get(shard_id, {})) for shard_id in shard_ids]

    def _claim_each(self, shard_ids: Sequence[int], change: list[Document]) -> dict[int, Document]:
        """The shards that there are, after ``change`` of each."""
        updates = [UpdateOne({"shard_id": shard_id, "row_type": _SHARD}, change) for shard_id in sorted(shard_ids)]
        self._shards.bulk_write(updates, ordered=False)
        return self._read_shards(shard_ids)

    def _make_shards(self, shard_ids: Sequence[int]) -> None:
        try:
            self._shards.insert_many(
                [{"shard_id": shard_id, "row_type": _SHARD} for shard_id in shard_ids], ordered=False
            )
        except BulkWriteError as error:  # another worker was first
            if any(each.get("code") != _DUPLICATE_KEY for each in error.details.get("writeErrors", [])):
                raise

    def _claim_change(
        self, owner_id: str, claim_id: ObjectId, lease_ms: int, metadata: str, now: datetime
    ) -> list[Document]:
        """Takes the shard if it is free, else leaves all as it is: the claim id tells who took it."""
        at = self._database.now_expression(now)
        lease_end = {"$ifNull": ["$shard_lease_expires_at", MIN_INSTANT]}
        # As numbers, which are the same to every server: SecantusDB cannot tell $$NOW from a stored date.
        is_free = {"$lte": [{"$toLong": lease_end}, {"$toLong": at}]}
        taken = {
            "shard_version": {"$add": [{"$ifNull": ["$shard_version", 0]}, 1]},
            "shard_owner_id": {"$literal": owner_id},
            "shard_claim_id": claim_id,
            "shard_claimed_at": at,
            "shard_lease_expires_at": {"$add": [at, lease_ms]},
            "shard_metadata": {"$literal": metadata},
        }
        return [{"$set": {name: {"$cond": [is_free, value, f"${name}"]} for name, value in taken.items()}}]

    @translated
    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        if not leases:
            return []
        lease_ms = _milliseconds(lease_seconds)
        until = {"$add": [self._database.now_expression(now), lease_ms]}
        change = [{"$set": {"shard_lease_expires_at": until}}]
        self._shards.bulk_write([UpdateOne(_held(lease), change) for lease in leases], ordered=False)
        # Version and owner are one claim's alone, so who still has them has just been renewed.
        owned = self._read_shards([lease.shard_id for lease in leases])
        return [_renewed(lease, owned.get(lease.shard_id, {})) for lease in leases]

    @translated
    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:  # noqa: ARG002
        if leases:
            change = {"$unset": {"shard_owner_id": "", "shard_lease_expires_at": ""}}
            self._shards.bulk_write([UpdateOne(_held(lease), change) for lease in leases], ordered=False)

    def _read_shards(self, shard_ids: Sequence[int]) -> dict[int, Document]:
        wanted = {"shard_id": {"$in": list(shard_ids)}, "row_type": _SHARD}
        found = read(self._shards, wanted, limit=len(shard_ids))
        return {document["shard_id"]: document for document in found}

    @translated
    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        ttl_ms = _milliseconds(ttl_seconds)
        until = {"$add": [self._database.now_expression(now), ttl_ms]}
        mine = _changed(self._workers, {"_id": worker_id}, [{"$set": {"worker_expires_at": until}}])
        at = mine["worker_expires_at"] - timedelta(milliseconds=ttl_ms)
        living = self._workers.find({"worker_expires_at": {"$gt": at}}, {"_id": 1})
        return sorted(worker["_id"] for worker in living)

    @translated
    def withdraw_worker(self, worker_id: str) -> None:
        self._workers.delete_one({"_id": worker_id})


def _changed(collection: Collection[Document], key: Document, change: list[Document]) -> Document:
    """The document with ``key`` after the change; made first if there is none."""
    document = collection.find_one_and_update(key, change, return_document=ReturnDocument.AFTER)
    if document is None:
        with suppress(DuplicateKeyError):  # another worker was first
            collection.insert_one(dict(key))
        document = collection.find_one_and_update(key, change, return_document=ReturnDocument.AFTER)
    if document is None:
        raise StoreUnavailable("a shard or worker was removed while it was being changed")
    return document


def _held(lease: Lease) -> Document:
    return {
        "shard_id": lease.shard_id,
        "row_type": _SHARD,
        "shard_version": lease.version,
        "shard_owner_id": lease.owner_id,
    }


def _is_held(lease: Lease, shard: Document) -> bool:
    return (shard.get("shard_version"), shard.get("shard_owner_id")) == (lease.version, lease.owner_id)


def _renewed(lease: Lease, shard: Document) -> Lease | None:
    return replace(lease, expires_at=shard["shard_lease_expires_at"]) if _is_held(lease, shard) else None


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _lease(owner_id: str, claim_id: ObjectId, shard: Document) -> Lease | None:
    """What the claim with this id won; None when it is not the shard's."""
    if shard.get("shard_claim_id") != claim_id:
        return None
    return Lease(shard["shard_id"], int(shard["shard_version"]), owner_id, shard["shard_lease_expires_at"])


def _status(shard_id: int, shard: Document, at: datetime) -> ShardStatus:
    expires_at = shard.get("shard_lease_expires_at")
    return ShardStatus(
        shard_id,
        version=int(shard.get("shard_version", 0)),
        owner_id=shard.get("shard_owner_id"),
        claimed_at=shard.get("shard_claimed_at"),
        lease_expires_at=expires_at,
        metadata=shard.get("shard_metadata"),
        is_free=expires_at is None or expires_at <= at,
    )
