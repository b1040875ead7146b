"""What attempts led to, written onto the timers that were fired, while their shards are still owned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.stores.cassandra.changes import Change, ttl_seconds
from duetime.stores.cassandra.leases import read_shards
from duetime.stores.cassandra.requests import Requests
from duetime.stores.cassandra.timer_rows import encode, key_of
from duetime.stores.cassandra.timers import Holds, Own, Timers, rounds


class Recording:
    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        """Nothing is read where all goes well: an outcome says which row it is for, and the batch has the lease's row
        among its conditions."""
        changes = {place: _change(each.outcome, now) for place, each in enumerate(outcomes)}
        holds = {place: each.fence for place, each in enumerate(outcomes)}
        own = Own()
        statuses: dict[int, RecordStatus] = {}
        waiting = dict(changes)
        for _ in rounds():
            if not waiting:
                return [statuses[place] for place in range(len(outcomes))]
            for place in self._timers.make(waiting, own, holds=holds):
                statuses[place] = RecordStatus.APPLIED
            waiting = {place: each for place, each in waiting.items() if place not in statuses}
            if waiting:
                statuses |= self._refused(waiting, own, holds)
                waiting = {place: each for place, each in waiting.items() if place not in statuses}
        raise StoreUnavailable("other writers changed the timers again and again")

    def _refused(self, waiting: Mapping[int, Change], own: Own, holds: Holds) -> dict[int, RecordStatus]:
        """Why changes were not made: nothing of those that were merely beside one that could not be."""
        lost = self.lost_leases(holds[place] for place in waiting)
        rows = self._timers.find_many([change.key for change in waiting.values()])
        statuses: dict[int, RecordStatus] = {}
        for place, change in waiting.items():
            row = rows.get(change.key)
            if own.has(place, row):
                statuses[place] = RecordStatus.APPLIED
            elif holds[place] in lost:
                statuses[place] = RecordStatus.LEASE_LOST
            elif not change.is_still(row):
                statuses[place] = RecordStatus.SUPERSEDED
        return statuses

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
        after=encode(_recorded(outcome, now)),
        is_fired=True,
        ttl_seconds=ttl_seconds(outcome.expires_at, now),
    )


def _recorded(outcome: Outcome, now: datetime) -> Timer:
    timer = outcome.timer
    return replace(
        timer,
        content=replace(timer.content, execute_at=outcome.execute_at),
        state=outcome.state,
        attempts=outcome.attempts,
        revision=timer.revision + 1,
        next_attempt_at=outcome.next_attempt_at,
        firing_id=outcome.firing_id,
        fired_at=outcome.fired_at,
        failure=outcome.failure,
        expires_at=outcome.expires_at,
        attempt_log=timer.attempt_log if outcome.attempt_log is None else outcome.attempt_log,
        updated_at=now,
    )
