"""What attempts led to, written onto the timers that were fired, while their shards are still owned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer, TimerState
from duetime.stores.cassandra.changes import Change, ttl_seconds
from duetime.stores.cassandra.leases import read_shards
from duetime.stores.cassandra.requests import Requests
from duetime.stores.cassandra.timer_rows import encode, key_of
from duetime.stores.cassandra.timers import Own, Timers, rounds


class Recording:
    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers

    def record(
        self, outcomes: Sequence[Outcome], *, leases: Mapping[int, Lease], now: datetime
    ) -> list[RecordStatus]:
        """Nothing is read where all goes well: an outcome says which row it is for, and the batch has the lease's row
        among its conditions."""
        changes = {place: _change(outcome, now) for place, outcome in enumerate(outcomes)}
        # The outcome of a parked timer belongs to its attempt, not to whoever owns the shard.
        fenced = [place for place, each in enumerate(outcomes) if each.timer.state is not TimerState.FIRING]
        holds = {place: leases[changes[place].key[0]] for place in fenced}
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

    def _refused(
        self, waiting: Mapping[int, Change], own: Own, holds: Mapping[int, Lease]
    ) -> dict[int, RecordStatus]:
        """Why changes were not made: nothing of those that were merely beside one that could not be."""
        lost = self.lost_shards({holds[place].shard_id: holds[place] for place in waiting if place in holds})
        rows = self._timers.find_many([change.key for change in waiting.values()])
        statuses: dict[int, RecordStatus] = {}
        for place, change in waiting.items():
            row = rows.get(change.key)
            if own.has(place, row):
                statuses[place] = RecordStatus.APPLIED
            elif place in holds and holds[place].shard_id in lost:
                statuses[place] = RecordStatus.LEASE_LOST
            elif not change.is_still(row):
                statuses[place] = RecordStatus.SUPERSEDED
        return statuses

    def lost_shards(self, leases: Mapping[int, Lease]) -> set[int]:
        """The shards whose lease is not the stored one."""
        rows = read_shards(self._requests, list(leases))
        return {
            shard_id
            for (shard_id, lease), row in zip(leases.items(), rows, strict=True)
            if (row.get("shard_version"), row.get("shard_owner_id")) != (lease.version, lease.owner_id)
        }

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
