"""Ownership of shards, and the workers that share them. All times are DbNow's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import sqlalchemy as sa

from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.decoding import repaired
from duetime.stores.shard_reading import read_status
from duetime.stores.sql.database import Database
from duetime.stores.sql.tables import NIL_UUID, RowType, constant, given, given_count, is_shard_row, timers, workers

_ROW_TYPE = constant(RowType.SHARD)


class Leases:
    """A lease is live up to, and not including, ``shard_lease_expires_at``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepare_shards()
        self._prepare_workers()

    def _prepare_shards(self) -> None:
        prepare, db_now = self._database.prepare, self._database.db_now
        row = timers.c
        shard = sa.and_(row.shard_id == given("shard"), row.row_type == _ROW_TYPE)
        held = sa.and_(
            shard,
            row.shard_version == given("version"),
            row.shard_owner_id == given("owner"),
        )
        lease_end = db_now.epoch_ms(given_count("lease_ms"))
        status = sa.select(
            row.shard_id,
            row.shard_version,
            row.shard_owner_id,
            row.shard_claimed_at,
            row.shard_lease_expires_at,
            row.shard_metadata,
        ).where(*is_shard_row())
        self._statuses = self._database.prepare_list(status, row.shard_id, "nil")
        self._make = prepare(
            self._database.insert_if_absent(timers).values(
                shard_id=given("shard"),
                row_type=_ROW_TYPE,
                timer_execute_at=constant(0),
                timer_uuid=given("nil"),
                shard_version=constant(0),
            ),
            "shard",
            "nil",
        )
        is_free = sa.or_(row.shard_lease_expires_at.is_(None), row.shard_lease_expires_at <= db_now.epoch_ms())
        self._claim = prepare(
            sa.update(timers)
            .where(shard, is_free)
            .values(
                shard_version=row.shard_version + constant(1),
                shard_owner_id=given("owner"),
                shard_claimed_at=db_now.epoch_ms(),
                shard_lease_expires_at=lease_end,
                shard_metadata=given("metadata"),
            ),
            "shard",
            "owner",
            "lease_ms",
            "metadata",
        )
        self._renew = prepare(
            sa.update(timers).where(held).values(shard_lease_expires_at=lease_end),
            "lease_ms",
            "shard",
            "version",
            "owner",
        )
        self._release = prepare(
            sa.update(timers).where(held).values(shard_owner_id=sa.null(), shard_lease_expires_at=sa.null()),
            "shard",
            "version",
            "owner",
        )

    def _prepare_workers(self) -> None:
        prepare, db_now = self._database.prepare, self._database.db_now
        worker = workers.c.worker_id == given("worker")
        until = db_now.epoch_ms(given_count("ttl_ms"))
        self._extend = prepare(sa.update(workers).where(worker).values(worker_expires_at=until), "worker", "ttl_ms")
        self._add = prepare(
            self._database.insert_if_absent(workers).values(worker_id=given("worker"), worker_expires_at=until),
            "worker",
            "ttl_ms",
        )
        self._forget = prepare(
            sa.delete(workers).where(worker, workers.c.worker_expires_at <= db_now.epoch_ms()), "worker"
        )
        self._announced = prepare(
            sa.select(workers.c.worker_id, workers.c.worker_expires_at).order_by(workers.c.worker_id)
        )
        self._remove = prepare(sa.delete(workers).where(worker), "worker")

    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        with self._database.read() as connection:
            rows = self._statuses.rows(connection, shard_ids, NIL_UUID)
            now_ms = self._database.clock_ms(connection, now)
        found = {row[0]: read_status(row[0], partial(_status, row, now_ms)) for row in rows}
        return [found.get(shard_id) or ShardStatus(shard_id) for shard_id in shard_ids]

    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        if not shard_ids:
            return []
        lease_ms = _milliseconds(lease_seconds)
        with self._database.write(now) as mutation:
            connection, now_ms = mutation.connection, to_milliseconds(mutation.now)
            # In one order everywhere, so that claims of the same shards wait for one another and do not embrace.
            ordered = sorted(shard_ids)
            known = {
                row[0]: read_status(row[0], partial(_status, row, now_ms))
                for row in self._statuses.rows(connection, ordered, NIL_UUID)
            }
            self._make.many(connection, [(shard_id, NIL_UUID) for shard_id in ordered if shard_id not in known])
            taken = [
                shard_id
                for shard_id in ordered
                if (shard_id not in known or known[shard_id].is_free)
                and self._claim.count(connection, shard_id, owner_id, lease_ms, metadata)
            ]
            versions = {row[0]: row[1] for row in self._statuses.rows(connection, taken, NIL_UUID)}
            until = mutation.now + timedelta(milliseconds=lease_ms)
        return [
            Lease(shard_id, versions[shard_id], owner_id, until) if shard_id in versions else None
            for shard_id in shard_ids
        ]

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        if not leases:
            return []
        lease_ms = _milliseconds(lease_seconds)
        ordered = sorted(leases, key=lambda lease: lease.shard_id)
        rows = [(lease_ms, lease.shard_id, lease.version, lease.owner_id) for lease in ordered]
        with self._database.write(now) as mutation:
            if self._renew.many(mutation.connection, rows) == len(leases):
                held = set(leases)
            else:  # a batch as a whole does not say which of them are lost; to renew one again changes nothing
                counts = [self._renew.count(mutation.connection, *row) for row in rows]
                held = {lease for lease, count in zip(ordered, counts, strict=True) if count}
            until = mutation.now + timedelta(milliseconds=lease_ms)
        return [replace(lease, expires_at=until) if lease in held else None for lease in leases]

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:
        if not leases:
            return
        with self._database.write(now) as mutation:
            self._release.many(
                mutation.connection, sorted((lease.shard_id, lease.version, lease.owner_id) for lease in leases)
            )

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        ttl_ms = _milliseconds(ttl_seconds)
        with self._database.write(now) as mutation:
            connection = mutation.connection
            if not self._extend.count(connection, worker_id, ttl_ms):
                self._add.one(connection, worker_id, ttl_ms)
            announced: list[Any] = list(self._announced.one(connection).fetchall())
        now_ms = to_milliseconds(mutation.now)
        if ended := [(worker_id,) for worker_id, expires_at in announced if expires_at <= now_ms]:
            # By themselves and by their keys: workers that announce themselves must not wait for one another.
            with self._database.write(now) as mutation:
                self._forget.many(mutation.connection, ended)
        return [repaired(worker_id) for worker_id, expires_at in announced if expires_at > now_ms]

    def withdraw_worker(self, worker_id: str) -> None:
        with self._database.write() as mutation:
            self._remove.one(mutation.connection, worker_id)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _status(row: Any, now_ms: int) -> ShardStatus:
    shard_id, version, owner_id, claimed_at, lease_expires_at, metadata = row
    return ShardStatus(
        shard_id,
        version=version,
        owner_id=owner_id,
        claimed_at=None if claimed_at is None else from_milliseconds(claimed_at),
        lease_expires_at=None if lease_expires_at is None else from_milliseconds(lease_expires_at),
        metadata=metadata,
        is_free=lease_expires_at is None or lease_expires_at <= now_ms,
    )
