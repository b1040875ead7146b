"""The end of attempts: outcomes are recorded, and finished timers whose time is up are removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus
from duetime.domain.timers import Timer
from duetime.stores.mongodb.batches import Batches, Delete, Update
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.fencing import ShardFence
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import BY_ID, EXPIRY, LOOKUP
from duetime.stores.mongodb.timer_documents import decode_or_salvage, key_of, outcome_change
from duetime.stores.mongodb.timers import Timers
from duetime.stores.recording import record


class Recording:
    """Two requests per batch: one reads the leases, one writes every outcome onto the revision that was fired."""

    def __init__(self, database: Database) -> None:
        self._batches = Batches(database)
        self._fence = ShardFence(database)
        self._timers = Timers(database)
        self._collection = database[TIMERS]

    @translated
    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        return record(outcomes, write=lambda some: self._write(some, now), read=self._read)

    def _read(self, timers: Sequence[Timer]) -> list[Timer | None]:
        keys = [(timer.shard_id, timer.namespace, timer.timer_id) for timer in timers]
        found = {key: decode_or_salvage(document) for key, document in self._timers.find_many(keys).items()}
        return [found.get(key) for key in keys]

    def _write(self, outcomes: Sequence[LeasedOutcome], now: datetime) -> list[RecordStatus]:
        lost = self._fence.lost(each.fence for each in outcomes)
        kept = [each.outcome for each in outcomes if each.fence not in lost]
        written = iter(self._batches.run([_update(outcome, now) for outcome in kept]))
        return [RecordStatus.LEASE_LOST if each.fence in lost else _status(next(written)) for each in outcomes]

    @translated
    def prune_expired(self, *, now: datetime, limit: int) -> int:
        """The TTL index does it too, by the server's clock; where that is off, slow or behind, this does."""
        expired = {"timer_expires_at": {"$lte": now}}
        fields, order = {"_id": 1, "shard_id": 1}, [("timer_expires_at", 1)]
        found = read(self._collection, expired, fields, order=order, limit=limit, hint=EXPIRY)
        # Conditional again: a timer may have been redriven or replaced meanwhile.
        return sum(
            self._batches.run([Delete(collection=TIMERS, found_by={**each, **expired}, hint=BY_ID) for each in found])
        )


def _update(outcome: Outcome, now: datetime) -> Update:
    timer = outcome.timer
    return Update(
        collection=TIMERS,
        found_by={
            **key_of(timer),
            "timer_revision": timer.revision,
            "timer_firing_id": timer.firing_id,
            "timer_execute_at": timer.next_attempt_at,
        },
        change=outcome_change(outcome, now=now),
        hint=LOOKUP,
    )


def _status(is_written: bool) -> RecordStatus:
    return RecordStatus.APPLIED if is_written else RecordStatus.SUPERSEDED
