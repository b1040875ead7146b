"""Ownership of shards, the workers that share them, and whether these sleep.

A lease is live up to, and not including, its end.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime

from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import to_milliseconds
from duetime.stores import backend as writes
from duetime.stores.backend import Alike, Backend, Comparison, Condition, Now, Query, Write, WriteStatus
from duetime.stores.core.catalogue_codec import decode_counter
from duetime.stores.core.instants import instant, optional_instant
from duetime.stores.decoding import DECODING_ERRORS, repaired, what_is_wrong, whole
from duetime.stores.entities import ALL_WORKERS, COUNTER, SHARD, WORKER
from duetime.stores.entity import DAMAGED, Row, Value

_log = logging.getLogger(__name__)
_MOST_WORKERS = 10_000
SLEEP_EPOCH = "sleep_epoch"
_ENDS = SHARD.places["shard_lease_expires_at"]
_OWNER = SHARD.places["shard_owner_id"]
_IS_HELD = ("shard_version", "shard_owner_id")
_RENEWAL = Alike(SHARD, ("shard_lease_expires_at",), _IS_HELD)
_RELEASE = Alike(SHARD, ("shard_owner_id", "shard_lease_expires_at"), _IS_HELD)
_IS_FREE = Condition("shard_lease_expires_at", writes.NOW, Comparison.IS_PAST)

HasDied = Callable[[str], bool]
"""Whether the process of a worker's id has died for certain."""


def nobody_has(worker_id: str) -> bool:  # noqa: ARG001
    """``HasDied`` where nothing is known."""
    return False


class LeaseStore:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        """Return one per id, in order; a shard that was never claimed has version 0. The store's clock says what is
        free."""
        rows = self._rows(shard_ids)
        now_ms = to_milliseconds(self._backend.time(now=now).at if self._backend.has_clock else now)
        return [_status(shard_id, rows.get(shard_id), now_ms) for shard_id in shard_ids]

    def claim(
        self,
        shard_ids: Sequence[int],
        owner_id: str,
        *,
        lease_seconds: float,
        metadata: str,
        has_died: HasDied = nobody_has,
        now: datetime,
    ) -> list[Lease | None]:
        """Own those of the shards that nobody's lease is live of: each ``shard_version`` grows by exactly one.

        None where a live lease is in the way, the caller's own included, or another claim won. The lease of a worker
        that ``has_died`` is not live. ``metadata``: JSON that tells of the owner, for people to read. Raises only if
        nothing was claimed, as far as is known.
        """
        if not shard_ids:
            return []
        lease_ms = _milliseconds(lease_seconds)
        stored = self._rows(shard_ids)
        claims: list[Write] = []
        for shard_id in sorted(shard_ids):  # in one order everywhere, so that claims wait for one another in turn
            row = stored.get(shard_id)
            if row is None:
                new = (shard_id, 1, owner_id, writes.NOW, Now(lease_ms), metadata)
                claims.append(writes.insert(SHARD, new))
            elif _status(shard_id, row, 0).version > 0:  # one that cannot be read may hide a live lease
                former = row[_OWNER]
                is_orphaned = former is not None and has_died(former)
                claims.append(_claim(row, owner_id, lease_ms, metadata, is_orphaned=is_orphaned))
        batch = self._backend.write(claims, now=now)
        won = {
            claim.key[0]: 1 if claim.changes is None else claim.changes["shard_version"]
            for claim, written in zip(claims, batch.results, strict=True)
            if written.is_written
        }
        if not won:
            batch.checked()
        ends = self._ends(list(won), batch.at_ms, lease_ms)
        return [
            Lease(shard_id, won[shard_id], owner_id, ends[shard_id]) if shard_id in ends else None
            for shard_id in shard_ids
        ]

    def _ends(self, shard_ids: Sequence[int], at_ms: int | None, lease_ms: int) -> dict[int, datetime]:
        """Return when the leases end that were just written. A shard that is gone again is left out."""
        if at_ms is not None:
            return dict.fromkeys(shard_ids, instant(at_ms + lease_ms))
        ends = {shard_id: optional_instant(row[_ENDS]) for shard_id, row in self._rows(shard_ids).items()}
        return {shard_id: end for shard_id, end in ends.items() if end is not None}

    def renew(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        """Extend to ``now + lease_seconds``. None for a lease whose version or owner is no longer the stored one.

        A lease that has expired but that nobody has claimed since can still be renewed. One that cannot be written
        for now, unlike others, comes back as it was given. Raises only if none was renewed, as far as is known.
        """
        if not leases:
            return []
        lease_ms = _milliseconds(lease_seconds)
        ordered = sorted(leases, key=lambda lease: lease.shard_id)
        end = Now(lease_ms)
        renewals = [_held(_RENEWAL, lease, end) for lease in ordered]
        batch = self._backend.write(renewals, now=now)
        statuses = {lease.shard_id: written.status for lease, written in zip(ordered, batch.results, strict=True)}
        held = [shard_id for shard_id, status in statuses.items() if status is WriteStatus.WRITTEN]
        if not held:
            batch.checked()
        ends = self._ends(held, batch.at_ms, lease_ms)
        return [_renewed(lease, statuses[lease.shard_id], ends.get(lease.shard_id)) for lease in leases]

    def release(self, leases: Sequence[Lease], *, now: datetime) -> None:
        """End leases so that they can be claimed at once and never renewed. A stale lease changes nothing."""
        if not leases:
            return
        ordered = sorted(leases, key=lambda lease: lease.shard_id)
        releases = [_held(_RELEASE, lease, None, None) for lease in ordered]
        self._backend.write(releases, now=now).checked()

    def _rows(self, shard_ids: Sequence[int]) -> dict[int, Row]:
        if not shard_ids:
            return {}
        rows = self._backend.read(SHARD, [(shard_id,) for shard_id in shard_ids])
        return {shard_id: row for shard_id, row in zip(shard_ids, rows, strict=True) if row is not None}

    def sleep_epoch(self) -> int:
        """Return how often pollers have woken or fallen asleep; 0 at first. Even while they sleep; strongly
        consistent.

        Only those count it that sleep at all: pollers on Lambda.
        """
        (row,) = self._backend.read(COUNTER, [(SLEEP_EPOCH,)])
        return 0 if row is None else decode_counter(row)

    def advance_sleep_epoch(self, epoch: int) -> bool:
        """Count one more if ``epoch`` is what is stored; whether this call did."""
        if epoch == 0:
            change = writes.insert(COUNTER, (SLEEP_EPOCH, 1))
        else:
            is_same = Condition("counter_value", epoch)
            change = writes.update(COUNTER, (SLEEP_EPOCH,), {"counter_value": epoch + 1}, is_same)
        return self._backend.write([change]).checked()[0].is_written

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        """Say that a worker lives up to, not including, ``now + ttl_seconds``; the sorted ids of all that do."""
        ttl_ms = _milliseconds(ttl_seconds)
        batch = self._backend.write([writes.put(WORKER, (worker_id, Now(ttl_ms)))], now=now)
        batch.checked()
        announced = self._backend.scan(Query(WORKER, ALL_WORKERS, limit=_MOST_WORKERS)).rows
        ends: dict[str, int] = dict(row for row in announced if DAMAGED not in row)
        at_ms = batch.at_ms if batch.at_ms is not None else ends.get(worker_id, ttl_ms) - ttl_ms
        ended = [name for name, end in ends.items() if end <= at_ms]
        if ended:
            self._backend.write(
                [writes.delete(WORKER, (name,), Condition("worker_expires_at", ends[name])) for name in ended],
                now=now,
            )
        return sorted(repaired(name) for name, end in ends.items() if end > at_ms)

    def withdraw_worker(self, worker_id: str) -> None:
        """Say that a worker lives no longer. One that nobody knows changes nothing."""
        self._backend.write([writes.delete(WORKER, (worker_id,))])


def _claim(row: Row, owner_id: str, lease_ms: int, metadata: str, *, is_orphaned: bool) -> Write:
    version = row[SHARD.places["shard_version"]]
    changes = {
        "shard_version": version + 1,
        "shard_owner_id": owner_id,
        "shard_claimed_at": writes.NOW,
        "shard_lease_expires_at": Now(lease_ms),
        "shard_metadata": metadata,
    }
    is_same = Condition("shard_version", version)
    conditions = (is_same,) if is_orphaned else (is_same, _IS_FREE)
    return writes.update(SHARD, row[:1], changes, *conditions, known=writes.known(SHARD, row))


def _held(alike: Alike, lease: Lease, *changes: Value) -> Write:
    """Return a change of a shard that is made as long as a lease is the stored one."""
    return alike.update((lease.shard_id,), (*changes, lease.version, lease.owner_id))


def _renewed(lease: Lease, status: WriteStatus, end: datetime | None) -> Lease | None:
    if status is WriteStatus.UNAVAILABLE:
        return lease
    return None if end is None else Lease(lease.shard_id, lease.version, lease.owner_id, end)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _status(shard_id: int, row: Row | None, now_ms: int) -> ShardStatus:
    """Return the status of a shard. A damaged row may hide a live lease: its shard is not free until somebody mends
    it."""
    try:
        return ShardStatus(shard_id) if row is None else whole(_decoded(row, now_ms))
    except DECODING_ERRORS as error:
        _log.error(
            "the ownership row of a shard cannot be read: nobody can claim it, and its timers wait",
            extra={"action": "shard.unreadable", "shard_id": shard_id, "reason": what_is_wrong(error)},
        )
        return ShardStatus(shard_id, is_free=False)


def _decoded(row: Row, now_ms: int) -> ShardStatus:
    if DAMAGED in row:
        raise ValueError("a value is damaged")
    shard_id, version, owner_id, claimed_at, lease_expires_at, metadata = row
    return ShardStatus(
        shard_id,
        version=version,
        owner_id=owner_id,
        claimed_at=optional_instant(claimed_at),
        lease_expires_at=optional_instant(lease_expires_at),
        metadata=metadata,
        is_free=lease_expires_at is None or lease_expires_at <= now_ms,
    )
