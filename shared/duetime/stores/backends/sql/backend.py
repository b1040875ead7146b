"""The primitives of a store on SQL databases: each batch of writes is one transaction, and so is a group."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from operator import attrgetter

from duetime.domain.times import to_milliseconds
from duetime.stores.backend import GUARD_LOST, NOT_WRITTEN, WRITTEN, Batch, Change, Guard, Scan, Write, Written
from duetime.stores.backends.sql.reads import Reads
from duetime.stores.backends.sql.statements import Statements
from duetime.stores.entities import TIMER
from duetime.stores.entity import AccessPath, Entity, Key, Place, Row, Value
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.restarting import restarted
from duetime.stores.time_source import StoreTime


class SqlBackend:
    """Writes of a batch are made in the order of their keys, so that two batches that overlap never wait for each
    other. A guard's row is locked until the end of the transaction."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._reads = Reads(database)
        self._statements = Statements(database)

    # -- reads -----------------------------------------------------------------------------------------------

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        if not keys:
            return []
        with self.database.read() as connection:
            rows = self._reads.rows(connection, entity, keys, fields=fields)
        return [rows.get(tuple(key)) for key in keys]

    def scan(
        self,
        entity: Entity,
        path: AccessPath,
        by: Key = (),
        *,
        fields: tuple[str, ...] | None = None,
        after: Place | None = None,
        since: Value = None,
        until: Value = None,
        limit: int,
        budget: int | None = None,
    ) -> Scan:
        with self.database.read() as connection:
            return self._reads.scan(
                connection,
                entity,
                path,
                by,
                fields=fields,
                after=after,
                since=since,
                until=until,
                limit=limit,
                budget=budget,
            )

    # -- writes ----------------------------------------------------------------------------------------------

    @restarted
    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        """The usual case is that each statement makes all of its writes, or none. Else each write is run alone."""
        if not writes:
            return Batch([], None)
        with self.database.write(now) as mutation:
            lost = self._lost(mutation, {write.guard for write in writes})
            kept = [write for write in writes if write.guard not in lost] if lost else writes
            results = self._made_together(mutation, _in_lock_order(kept))
            if results is None:
                mutation.connection.rollback()
            else:
                return _batch(mutation, writes, lost, results)
        with self.database.write(now) as mutation:
            lost = self._lost(mutation, {write.guard for write in writes})
            results = {
                id(write): WRITTEN if self._is_made(mutation, write) else NOT_WRITTEN
                for write in _in_lock_order(writes)
                if write.guard not in lost
            }
            return _batch(mutation, writes, lost, results)

    def _made_together(self, mutation: Mutation, writes: Sequence[Write]) -> dict[int, Written] | None:
        """The results of those that are not made. None where they cannot be told: the transaction is to be rolled
        back."""
        results: dict[int, Written] = {}
        for run in self._statements.runs(writes):
            made = run.statement.many(mutation.connection, run.rows)
            if made == len(run.rows) or not run.must_match:
                continue
            if made or run.has_tags or run.writes[0].change is Change.PUT:
                return None
            results |= {id(write): NOT_WRITTEN for write in run.writes}
        return results

    @restarted
    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        """The usual case is that all groups are made. Else a transaction each tells which cannot."""
        with self.database.write(now) as mutation:
            lost = self._lost(mutation, {write.guard for group in groups for write in group})
            kept = [group for group in groups if not any(write.guard in lost for write in group if write.guard)]
            ordered = [write for group in sorted(kept, key=_group_order) for write in group]
            if self._are_made(mutation, ordered):
                is_kept = {id(group) for group in kept}
                results = [WRITTEN if id(group) in is_kept else GUARD_LOST for group in groups]
                return Batch(results, to_milliseconds(mutation.now))
            mutation.connection.rollback()
        if len(groups) == 1:
            return Batch([NOT_WRITTEN], None)
        return Batch([self.atomic([group], now=now).results[0] for group in groups], None)

    def _are_made(self, mutation: Mutation, writes: Sequence[Write]) -> bool:
        """Whether all of ``writes`` are made. If not, some may be: the transaction is to be rolled back."""
        for run in self._statements.runs(writes):
            if run.statement.many(mutation.connection, run.rows) == len(run.rows) or not run.must_match:
                continue
            is_put = run.writes[0].change is Change.PUT
            if not is_put or not all(self._is_made(mutation, write) for write in run.writes):
                return False
        return True

    def _is_made(self, mutation: Mutation, write: Write) -> bool:
        if write.change is not Change.PUT:
            return self._is_run(mutation, write)
        return any(self._is_run(mutation, write, put_as=change) for change in (Change.REPLACE, Change.INSERT))

    def _is_run(self, mutation: Mutation, write: Write, *, put_as: Change | None = None) -> bool:
        is_made = True
        for place, run in enumerate(self._statements.runs([write], put_as=put_as)):
            if place > 0 and not is_made:
                break  # its tags
            counts = [run.statement.count(mutation.connection, *row) for row in run.rows]
            if place == 0:
                is_made = not run.must_match or counts == [1]
        return is_made

    def _lost(self, mutation: Mutation, guards: set[Guard | None]) -> set[Guard | None]:
        """Those guards that do not hold; the rows that they are about stay locked."""
        distinct = sorted((guard for guard in guards if guard is not None), key=lambda guard: guard.key)
        if not distinct:
            return set()
        entity = distinct[0].entity
        keys = list(dict.fromkeys(guard.key for guard in distinct))
        rows = self._reads.rows(mutation.connection, entity, keys, is_locking=True)
        return {guard for guard in distinct if not _holds(guard, rows.get(guard.key))}

    # -- the rest --------------------------------------------------------------------------------------------

    def time(self, *, now: datetime) -> StoreTime:
        return self.database.store_time(now=now)

    def initialise(self) -> None:
        self.database.initialise()

    def check(self) -> None:
        self.database.check()

    def close(self) -> None:
        self.database.close()


def _batch(
    mutation: Mutation, writes: Sequence[Write], lost: set[Guard | None], results: dict[int, Written]
) -> Batch:
    """``results``: by the identity of a write; WRITTEN where there is none."""
    at_ms = to_milliseconds(mutation.now)
    if not lost and not results:
        return Batch([WRITTEN] * len(writes), at_ms)
    return Batch([GUARD_LOST if write.guard in lost else results.get(id(write), WRITTEN) for write in writes], at_ms)


def _in_lock_order(writes: Sequence[Write]) -> list[Write]:
    if len({write.entity for write in writes}) <= 1:
        return sorted(writes, key=attrgetter("key"))
    return sorted(writes, key=lambda write: (write.entity.name, write.key))


def _group_order(group: Sequence[Write]) -> Key:
    """That of the timers' batches: transactions that meet on several rows must not wait for each other."""
    return next((write.key for write in group if write.entity is TIMER), group[0].key)


def _holds(guard: Guard, row: Row | None) -> bool:
    places = guard.entity.places
    return row is not None and all(row[places[each.name]] == each.value for each in guard.conditions)
