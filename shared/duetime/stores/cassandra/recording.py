"""What attempts led to, written onto the timers that were fired, while their shards are still owned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus, recorded
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.stores.cassandra.changes import Change, ttl_seconds
from duetime.stores.cassandra.leases import read_shards
from duetime.stores.cassandra.requests import Requests
from duetime.stores.cassandra.timer_rows import decode_or_salvage, encode, key_of
from duetime.stores.cassandra.timers import Own, Timers
from duetime.stores.recording import record


class Recording:
    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        """Nothing is read where all goes well: an outcome says which row it is for, and the batch has the lease's row
        among its conditions."""
        return record(outcomes, write=lambda some: self._write(some, now), read=self._read)

    def _write(self, outcomes: Sequence[LeasedOutcome], now: datetime) -> list[RecordStatus]:
        """Of a batch that was not made, all are refused: those that were merely beside another are written again."""
        changes = {place: _change(each.outcome, now) for place, each in enumerate(outcomes)}
        holds = {place: each.fence for place, each in enumerate(outcomes)}
        made = self._timers.make(changes, Own(), holds=holds)
        lost = self.lost_leases(lease for place, lease in holds.items() if place not in made)
        refused = [RecordStatus.LEASE_LOST if lease in lost else RecordStatus.SUPERSEDED for lease in holds.values()]
        return [RecordStatus.APPLIED if place in made else status for place, status in enumerate(refused)]

    def _read(self, timers: Sequence[Timer]) -> list[Timer | None]:
        rows = self._timers.find_many([key_of(timer) for timer in timers])
        found = [rows.get(key_of(timer)) for timer in timers]
        return [None if row is None else decode_or_salvage(row) for row in found]

    def lost_leases(self, fences: Iterable[Lease | None]) -> set[Lease | None]:
        """Those leases that are not the stored ones."""
        leases = {lease for lease in fences if lease is not None}
        shard_ids = sorted({lease.shard_id for lease in leases})
        rows = zip(shard_ids, read_shards(self._requests, shard_ids), strict=True)
        owners = {(shard_id, row.get("shard_version"), row.get("shard_owner_id")) for shard_id, row in rows}
        return {lease for lease in leases if (lease.shard_id, lease.version, lease.owner_id) not in owners}

    def prune_expired(self, *, now: datetime, limit: int) -> int:  # noqa: ARG002
        return 0  # finished timers have a TTL


def _change(outcome: Outcome, now: datetime) -> Change:
    timer = outcome.timer
    return Change(
        key=key_of(timer),
        before=encode(timer),
        after=encode(recorded(outcome, now=now)),
        is_fired=True,
        ttl_seconds=ttl_seconds(outcome.expires_at, now),
    )
