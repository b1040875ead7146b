"""Ownership of shards, and the workers that share them.

All times are the ``now`` that is passed, which callers correct by ``store_time``: Cassandra has no clock that a
condition could use.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from duetime.domain.errors import StoreUnavailable
from duetime.domain.shards import Lease, ShardStatus
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.cassandra.changes import new_write_id
from duetime.stores.cassandra.requests import Requests, Row, Statement, Unsettled
from duetime.stores.cassandra.schema import SHARD
from duetime.stores.shard_reading import read_status

_OF_SHARD = (
    f"shard_id = ? AND row_kind = {SHARD} AND sort_at = 0 AND timer_namespace = '' AND sort_text = '' "
    "AND timer_id = ''"
)
_READ_SHARD = (
    "SELECT shard_version, shard_owner_id, shard_claimed_at, shard_lease_expires_at, "
    "shard_metadata, write_id "
    f"FROM timers WHERE {_OF_SHARD}"
)
_CLAIM = (
    "UPDATE timers SET shard_version = ?, shard_owner_id = ?, shard_claimed_at = ?, shard_lease_expires_at = ?, "
    f"shard_metadata = ?, write_id = ? WHERE {_OF_SHARD} "
    "IF shard_version = ? AND shard_owner_id = ? AND shard_lease_expires_at = ?"
)
_CHANGE = (
    "UPDATE timers SET shard_owner_id = ?, shard_lease_expires_at = ?, write_id = ? "
    f"WHERE {_OF_SHARD} IF shard_version = ? AND shard_owner_id = ?"
)
_WORKERS: Final = "all"
_WORKER_SPARE_SECONDS: Final = 60
"""How much longer than it lives a worker's row stays: whose clock is ahead must not lose it."""


class Leases:
    """A lease is live up to, and not including, ``shard_lease_expires_at``."""

    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def shard_statuses(self, shard_ids: Sequence[int], *, now: datetime) -> list[ShardStatus]:
        rows = read_shards(self._requests, shard_ids)
        return [
            read_status(shard_id, partial(_status, shard_id, row, now))
            for shard_id, row in zip(shard_ids, rows, strict=True)
        ]

    def claim_shards(
        self, shard_ids: Sequence[int], owner_id: str, *, lease_seconds: float, metadata: str, now: datetime
    ) -> list[Lease | None]:
        """Side by side. What was not answered counts as not won, unless nothing was answered."""
        until, rows = _later(now, lease_seconds), read_shards(self._requests, shard_ids)
        claims: list[_Claim] = []
        for shard_id, row in zip(shard_ids, rows, strict=True):
            status = read_status(shard_id, partial(_status, shard_id, row, now))
            if status.is_free:
                lease = Lease(shard_id, status.version + 1, owner_id, until)
                claims.append(_claim(lease, row, metadata=metadata, now=now))
        answers = self._requests.decide_each([[claim.statement] for claim in claims])
        won: dict[int, Lease] = {}
        unanswered: list[StoreUnavailable] = []
        for claim, answer in zip(claims, answers, strict=True):
            try:
                if isinstance(answer, Unsettled):
                    answer = self._is_settled(claim, answer)
                elif isinstance(answer, StoreUnavailable):
                    raise answer
            except StoreUnavailable as error:
                unanswered.append(error)
            else:
                if answer:
                    won[claim.lease.shard_id] = claim.lease
        if unanswered and len(unanswered) == len(claims):
            raise unanswered[0]
        return [won.get(shard_id) for shard_id in shard_ids]

    def _is_settled(self, claim: _Claim, unsettled: Unsettled) -> bool:
        """Whether a claim won whose answer was lost. Raises ``unsettled`` where it may still do so."""
        rows = self._requests.read(Statement(_READ_SHARD, (claim.lease.shard_id,)), is_serial=True)
        row = rows[0] if rows else {}
        if row.get("write_id") == claim.write_id:
            return True
        if _condition(row) == claim.seen:
            raise unsettled
        return False

    def renew_leases(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        until = _later(now, lease_seconds)
        renewed: list[Lease | None] = []
        unanswered: list[StoreUnavailable] = []
        for lease, answer in zip(leases, self._change(leases, expires_at=to_milliseconds(until)), strict=True):
            if isinstance(answer, StoreUnavailable):
                unanswered.append(answer)
                renewed.append(lease)
            else:
                renewed.append(replace(lease, expires_at=until) if answer else None)
        if unanswered and len(unanswered) == len(leases):
            raise unanswered[0]
        return renewed

    def release_leases(self, leases: Sequence[Lease], *, now: datetime) -> None:  # noqa: ARG002
        for answer in self._change(leases, expires_at=None):
            if isinstance(answer, StoreUnavailable):
                raise answer

    def _change(self, leases: Sequence[Lease], *, expires_at: int | None) -> list[bool | StoreUnavailable]:
        """Whether each was still held, and is now held until ``expires_at`` (None: no longer), side by side; or why
        that is not known. To do so twice is to do so once.
        """
        groups = [
            [
                Statement(
                    _CHANGE,
                    (
                        lease.owner_id if expires_at is not None else None,
                        expires_at,
                        new_write_id(),
                        lease.shard_id,
                        lease.version,
                        lease.owner_id,
                    ),
                )
            ]
            for lease in leases
        ]
        answers = self._requests.decide_each(groups)
        return [
            self._settled(group[0], answer) if isinstance(answer, Unsettled) else answer
            for group, answer in zip(groups, answers, strict=True)
        ]

    def _settled(self, change: Statement, unsettled: Unsettled) -> bool | StoreUnavailable:
        """As if it had been answered, or why that is not known."""
        owner_id, expires_at, _, shard_id, version, _ = change.values
        try:
            rows = self._requests.read(Statement(_READ_SHARD, (shard_id,)), is_serial=True)
        except StoreUnavailable as error:
            return error
        row = rows[0] if rows else {}
        is_made = (row.get("shard_version"), row.get("shard_owner_id"), row.get("shard_lease_expires_at")) == (
            version,
            owner_id,
            expires_at,
        )
        return True if is_made else unsettled

    # -- workers ---------------------------------------------------------------------------------------------

    def announce_worker(self, worker_id: str, *, ttl_seconds: float, now: datetime) -> list[str]:
        cql = "INSERT INTO workers (worker_group, worker_id, worker_expires_at) VALUES (?, ?, ?) USING TTL ?"
        until = to_milliseconds(_later(now, ttl_seconds))
        self._requests.write([Statement(cql, (_WORKERS, worker_id, until, int(ttl_seconds) + _WORKER_SPARE_SECONDS))])
        cql = "SELECT worker_id, worker_expires_at FROM workers WHERE worker_group = ?"
        at = to_milliseconds(now)
        rows = self._requests.read(Statement(cql, (_WORKERS,)))
        return sorted(row["worker_id"] for row in rows if (row["worker_expires_at"] or 0) > at)

    def withdraw_worker(self, worker_id: str) -> None:
        cql = "DELETE FROM workers WHERE worker_group = ? AND worker_id = ?"
        self._requests.write([Statement(cql, (_WORKERS, worker_id))])


def read_shards(requests: Requests, shard_ids: Sequence[int]) -> list[Row]:
    """The ownership row of each; an empty one where a shard was never claimed."""
    found = requests.read_each([Statement(_READ_SHARD, (shard_id,)) for shard_id in shard_ids])
    return [rows[0] if rows else {} for rows in found]


@dataclass(frozen=True, slots=True)
class _Claim:
    """``seen``: what the row must still say."""

    lease: Lease
    statement: Statement
    write_id: Any
    seen: tuple[Any, ...]


def _claim(lease: Lease, row: Row, *, metadata: str, now: datetime) -> _Claim:
    write_id, seen = new_write_id(), _condition(row)
    times = (to_milliseconds(now), to_milliseconds(lease.expires_at))
    values = (lease.version, lease.owner_id, *times, metadata, write_id, lease.shard_id, *seen)
    return _Claim(lease, Statement(_CLAIM, values), write_id, seen)


def _condition(row: Row) -> tuple[Any, ...]:
    return (row.get("shard_version"), row.get("shard_owner_id"), row.get("shard_lease_expires_at"))


def _status(shard_id: int, row: Row, now: datetime) -> ShardStatus:
    claimed_at, expires_at = row.get("shard_claimed_at"), row.get("shard_lease_expires_at")
    return ShardStatus(
        shard_id,
        version=row.get("shard_version") or 0,
        owner_id=row.get("shard_owner_id"),
        claimed_at=None if claimed_at is None else from_milliseconds(claimed_at),
        lease_expires_at=None if expires_at is None else from_milliseconds(expires_at),
        metadata=row.get("shard_metadata"),
        is_free=expires_at is None or expires_at <= to_milliseconds(now),
    )


def _later(now: datetime, seconds: float) -> datetime:
    """To the millisecond, which is what is stored."""
    return from_milliseconds(to_milliseconds(now + timedelta(seconds=seconds)))
