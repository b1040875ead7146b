"""The end of attempts: outcomes are recorded, and finished timers whose time is up are removed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property

from duetime.domain.errors import StoreUnavailable
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus, reconciled
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores import backend as writes
from duetime.stores.backend import (
    Alike,
    Backend,
    Batch,
    Condition,
    Guard,
    PartitionUnavailable,
    Query,
    Write,
    WriteStatus,
    rounds,
)
from duetime.stores.core.schedules import line_of
from duetime.stores.core.timer_codec import (
    OUTCOME_CHANGES,
    OUTCOME_EXPECTS,
    SCHEDULE_CHANGES,
    decode_or_salvage,
    encode,
    encode_new,
    encode_outcome,
    key_of,
)
from duetime.stores.entities import EXPIRED_RECORDS, EXPIRED_TIMERS, IDEMPOTENCY_RECORD, SHARD, TIMER
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Value

# By whether there is a next attempt, since that is None in all writes that are alike, or in none; and a schedule.
_ALIKE = {
    (has_next, is_of_schedule): Alike(TIMER, SCHEDULE_CHANGES if is_of_schedule else OUTCOME_CHANGES, OUTCOME_EXPECTS)
    for has_next in (True, False)
    for is_of_schedule in (True, False)
}
_STATUSES = {
    WriteStatus.WRITTEN: RecordStatus.APPLIED,
    WriteStatus.NOT_WRITTEN: RecordStatus.SUPERSEDED,
    WriteStatus.GUARD_LOST: RecordStatus.LEASE_LOST,
    WriteStatus.REFUSED: RecordStatus.REFUSED,
    WriteStatus.UNAVAILABLE: RecordStatus.UNAVAILABLE,
}
_IN_DOUBT = (RecordStatus.SUPERSEDED, RecordStatus.LEASE_LOST)


class Recording:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        """Write outcomes, each only onto the attempt that was made.

        That is fenced by the firing, the number of attempts, the state, and that the timer was not made due later
        (``domain.outcomes.reconciled``, for all stores alike): what a client changed about it otherwise stays, and
        the revision counts on. An outcome that is stored already, since the answer of an earlier try was lost, is
        APPLIED, whoever owns the shard now.

        Each is judged by its own ``fence``, whatever leases others of its shard bring: a store with transactions
        checks ``shard_version`` and owner and answers LEASE_LOST; one without (DynamoDB) goes by the attempt alone,
        as every store does for an outcome without a fence.
        ``updated_at`` becomes ``now``. Where all goes well it is one write.
        """
        statuses: dict[int, RecordStatus] = {}
        waiting = dict(enumerate(outcomes))
        for turn in rounds():
            if turn:  # read now, not before the wait
                waiting = self._reconciled(waiting, statuses)
            if waiting:
                statuses |= zip(waiting, self._write(list(waiting.values()), now), strict=True)
                waiting = {place: each for place, each in waiting.items() if statuses[place] in _IN_DOUBT}
            if not waiting:
                return [statuses[place] for place in range(len(outcomes))]
        raise StoreUnavailable("other writers changed the timers again and again")

    def _reconciled(
        self, refused: dict[int, LeasedOutcome], statuses: dict[int, RecordStatus]
    ) -> dict[int, LeasedOutcome]:
        """Return what is to be written again, and note in ``statuses`` what was written before."""
        again: dict[int, LeasedOutcome] = {}
        stored = self._read([each.outcome.timer for each in refused.values()])
        for (place, each), timer in zip(refused.items(), stored, strict=True):
            becomes = reconciled(each.outcome, timer)
            if becomes is RecordStatus.APPLIED:
                statuses[place] = becomes
            elif isinstance(becomes, Outcome) and statuses[place] is RecordStatus.SUPERSEDED:
                again[place] = replace(each, outcome=becomes)
        return again

    def _read(self, timers: Sequence[Timer]) -> list[Timer | None]:
        rows = self._backend.read(TIMER, [key_of(timer) for timer in timers])
        return [None if row is None else decode_or_salvage(row) for row in rows]

    def _write(self, outcomes: Sequence[LeasedOutcome], now: datetime) -> list[RecordStatus]:
        guards = guards_of([each.fence for each in outcomes])
        outcome_writes = [_write_of(each.outcome, guard) for each, guard in zip(outcomes, guards, strict=True)]
        has_lines = any(each.outcome.schedule is not None for each in outcomes)
        lines = _lines_of([each.outcome for each in outcomes], guards) if has_lines else []
        groups = {
            at: writes.spelled_out([writes.put(TIMER, encode_new(beside), is_new=True), outcome_writes[at]])
            for at, each in enumerate(outcomes)
            if (beside := each.outcome.beside) is not None
        }
        single = [write for at, write in enumerate(outcome_writes) if at not in groups]
        try:
            statuses = iter(_statuses(self._backend.write([*lines, *single], now=now))[len(lines) :])
            of_groups = iter(_statuses(self._backend.atomic([*groups.values()], now=now)) if groups else [])
        except PartitionUnavailable:  # outcomes of other shards need not wait
            return [RecordStatus.UNAVAILABLE] * len(outcomes)
        return [next(of_groups if at in groups else statuses) for at in range(len(outcomes))]

    def prune(self, *, now: datetime, limit: int) -> int:
        """Delete up to ``limit`` expired timers, and as many expired idempotency records; how many of both.

        Where the database does it too, by its own clock, this helps when that is off, slow or behind.
        """
        expired = self._prune(TIMER, EXPIRED_TIMERS, now, limit)
        return expired + self._prune(IDEMPOTENCY_RECORD, EXPIRED_RECORDS, now, limit)

    def _prune(self, entity: Entity, path: AccessPath, now: datetime, limit: int) -> int:
        assert entity.expires is not None
        fields = (*entity.key, entity.expires)
        found = self._backend.scan(Query(entity, path, fields=fields, until=to_milliseconds(now), limit=limit))
        if not found.rows:
            return 0
        # ``now`` tells whether to look. What goes does not come back: the database's time decides, where it has one.
        at_ms = to_milliseconds(self._backend.time(now=now).at)
        # Conditional: it may have been redriven or replaced meanwhile.
        deletes = [
            writes.delete(entity, row[:-1], Condition(entity.expires, row[-1]))
            for row in found.rows
            if row[-1] is DAMAGED or row[-1] <= at_ms
        ]
        return sum(written.is_written for written in self._backend.write(deletes, now=now).results)


def _lines_of(outcomes: Sequence[Outcome], guards: Sequence[Guard | None]) -> list[Write]:
    """Return the writes of histories, one for each row, under the guards of their outcomes.

    One that is written without its outcome is of an attempt that was made, and is written over by the next try.
    """
    schedules_last = sorted(zip(outcomes, guards, strict=True), key=lambda each: each[0].timer.is_schedule)
    lines = [
        line_of(each.timer, line, guard)
        for each, guard in schedules_last
        if each.schedule is not None
        for line in each.schedule.occurrences
    ]
    return list({write.key: write for write in lines}.values())


def _statuses(batch: Batch) -> list[RecordStatus]:
    return [
        RecordStatus.APPLIED if written is writes.WRITTEN else _STATUSES[written.status] for written in batch.results
    ]


def _write_of(outcome: Outcome, guard: Guard | None) -> Write:
    timer = outcome.timer
    alike = _ALIKE[outcome.next_attempt_at is not None, outcome.schedule is not None]
    return alike.update(
        (timer.shard_id, timer.namespace, timer.timer_id),
        encode_outcome(outcome),
        guard=guard,
        known=lambda: _KnownTimer(timer),
    )


class _KnownTimer(Mapping[str, Value]):
    """The row of a timer, made when more than its payload is asked for: that is seldom."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer

    @cached_property
    def _row(self) -> dict[str, Value]:
        return dict(zip(TIMER.names, encode(self._timer), strict=True))

    def __getitem__(self, name: str) -> Value:
        return self._timer.content.payload_json if name == "timer_payload" else self._row[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)


def guards_of(fences: Iterable[Lease | None]) -> list[Guard | None]:
    """Return a guard for each lease, the same for the same one; None where there is no lease."""
    guards: dict[int, Guard | None] = {id(None): None}
    kept = list(fences)  # whose identities are not given to others meanwhile
    for lease in kept:
        if lease is not None and id(lease) not in guards:
            guards[id(lease)] = guard_of(lease)
    return [guards[id(lease)] for lease in kept]


def guard_of(lease: Lease) -> Guard:
    """Return a guard that holds as long as a lease is the stored one."""
    conditions = (Condition("shard_version", lease.version), Condition("shard_owner_id", lease.owner_id))
    return Guard(SHARD, (lease.shard_id,), conditions)
