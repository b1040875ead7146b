"""The primitives of a store on SQL databases: each batch of writes is one transaction, and so is a group."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from operator import attrgetter, itemgetter
from typing import ParamSpec, TypeVar

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.domain.times import to_milliseconds
from duetime.stores.backend import (
    GUARD_LOST,
    NOT_WRITTEN,
    WRITTEN,
    Batch,
    Change,
    Comparison,
    Condition,
    Guard,
    Query,
    Scan,
    Write,
    WriteStatus,
    Written,
    spelled_out,
)
from duetime.stores.backends.sql.database import Database, Mutation
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.errors import TransactionAborted
from duetime.stores.backends.sql.reads import Reads
from duetime.stores.backends.sql.statements import Statements
from duetime.stores.decoding import is_text
from duetime.stores.entities import TIMER
from duetime.stores.entity import DAMAGED, Entity, Key, Row, Value
from duetime.stores.time_source import StoreTime, TimeSource

MAX_TRIES = 10
"""With each try another transaction has ended, so only a crowd on the same rows needs several."""

P = ParamSpec("P")
R = TypeVar("R")


def retry_on_deadlock(operation: Callable[P, R]) -> Callable[P, R]:
    """Try ``operation`` again when its transaction was ended. Raises ``TransactionAborted`` after ``MAX_TRIES``.

    InnoDB locks rows by one index after the other, so even transactions of a single row can deadlock, whatever the
    order of the statements. Databases then end one of them, which has stored nothing, and ask for it again.
    """

    @wraps(operation)
    def retried(*args: P.args, **kwargs: P.kwargs) -> R:
        for _ in range(MAX_TRIES - 1):
            try:
                return operation(*args, **kwargs)
            except TransactionAborted:
                continue
        return operation(*args, **kwargs)

    return retried


class SqlBackend:
    """Writes of a batch are made in the order of their keys, so that two batches that overlap never wait for each
    other. A guard's row is locked until the end of the transaction."""

    has_clock = True

    def __init__(self, database: Database) -> None:
        self.database = database
        self._reads = Reads(database)
        self._statements = Statements(database)

    # -- reads -----------------------------------------------------------------------------------------------

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        if not keys:
            return []
        try:
            with self.database.read() as connection:
                rows = self._reads.rows(connection, entity, keys, fields=fields)
        except StoreError as error:
            _refusal(error)
            found = list(filter(_is_taken, keys))
            if len(found) == len(keys):
                raise
            again = self.read(entity, found, fields=fields)
            rows = {key: row for key, row in zip(found, again, strict=True) if row is not None}
        return [rows.get(tuple(key)) for key in keys]

    def scan(self, query: Query) -> Scan:
        with self.database.read() as connection:
            return self._reads.scan(connection, query)

    def firsts(self, query: Query, values: Sequence[Value]) -> list[Value]:
        with self.database.read() as connection:
            return self._reads.firsts(connection, query, values)

    # -- writes ----------------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        if not writes:
            return Batch([], None)
        try:
            batch = self._write(writes, now)
        except StoreError as error:
            _refusal(error)
            batch = None
        return batch or self._apart([(write,) for write in writes], now)

    @retry_on_deadlock
    def _write(self, writes: Sequence[Write], now: datetime | None) -> Batch | None:
        """Write in the usual case: each statement makes all of its writes, or none. Else None, and nothing is
        written."""
        with self.database.write(now) as mutation:
            lost = self._lost(mutation, {write.guard for write in writes})
            kept = [write for write in writes if write.guard not in lost] if lost else writes
            results = self._made_together(mutation, _in_lock_order(kept))
            if results is not None:
                return _batch(mutation, writes, lost, results)
            mutation.connection.rollback()
        return None

    def _made_together(self, mutation: Mutation, writes: Sequence[Write]) -> dict[int, Written] | None:
        """Return the results of those that are not made. None where they cannot be told: the transaction is to be
        rolled back."""
        results: dict[int, Written] = {}
        for run in self._statements.runs(writes):
            made = run.statement.many(mutation.connection, run.rows)
            if made == len(run.rows) or not run.must_match:
                continue
            if made or run.has_tags or run.writes[0].change is Change.PUT:
                return None
            results |= {id(write): NOT_WRITTEN for write in run.writes}
        return results

    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        if not groups:
            return Batch([], None)
        return self._apart(groups, now, is_judged=False)

    @retry_on_deadlock
    def _apart(self, groups: Sequence[Sequence[Write]], now: datetime | None, *, is_judged: bool = True) -> Batch:
        """Make those groups that can be made, in one transaction where all goes well.

        ``is_judged``: what is stored tells which cannot. Where another writer is faster, or the database refuses one
        of them, each half is made by itself.
        """
        result = NOT_WRITTEN
        try:
            with self.database.write(now) as mutation:
                results = self._guarded(mutation, groups)
                if is_judged:
                    self._judge(mutation, groups, results)
                kept = [group for group, each in zip(groups, results, strict=True) if each is WRITTEN]
                if self._are_made(mutation, [write for group in sorted(kept, key=_group_order) for write in group]):
                    return Batch(results, to_milliseconds(mutation.now))
                mutation.connection.rollback()
        except StoreError as error:
            result = Written(WriteStatus.REFUSED, _refusal(error))
        if not is_judged and len(groups) > 1:
            return self._apart(groups, now)
        if len(groups) == 1:
            return Batch([result], None)
        middle = len(groups) // 2
        first = self._apart(groups[:middle], now).results
        try:
            return Batch(first + self._apart(groups[middle:], now).results, None)
        except StoreUnavailable:  # the others are written
            return Batch(first + [Written(WriteStatus.UNAVAILABLE)] * (len(groups) - middle), None)

    def _guarded(self, mutation: Mutation, groups: Sequence[Sequence[Write]]) -> list[Written]:
        lost = self._lost(mutation, {write.guard for group in groups for write in group})
        if not lost:
            return [WRITTEN] * len(groups)
        return [GUARD_LOST if any(write.guard in lost for write in group) else WRITTEN for group in groups]

    def _judge(self, mutation: Mutation, groups: Sequence[Sequence[Write]], results: list[Written]) -> None:
        """Put down which groups cannot be made by what is stored. The rows that the others change stay locked."""
        asked: dict[tuple[str, tuple[str, ...], bool], list[tuple[int, Write]]] = {}
        for place, group in enumerate(groups):
            for write in spelled_out(group) if results[place] is WRITTEN else ():
                if _is_told_by_its_row(write):
                    is_new = write.change is Change.INSERT
                    fields = tuple(each.name for each in write.conditions) or write.entity.key
                    asked.setdefault((write.entity.name, fields, is_new), []).append((place, write))
        for (_, fields, is_new), about in sorted(asked.items(), key=itemgetter(0)):
            entity, keys = about[0][1].entity, [write.key for _, write in about]
            rows = self._reads.rows(mutation.connection, entity, keys, fields=fields, is_locking=not is_new)
            for place, write in about:
                row = rows.get(write.key)
                can_be_made = row is None if is_new else _all_hold(write.conditions, row, mutation.now)
                if not can_be_made:
                    results[place] = NOT_WRITTEN

    def _are_made(self, mutation: Mutation, writes: Sequence[Write]) -> bool:
        """Tell whether all of ``writes`` are made. If not, some may be: the transaction is to be rolled back."""
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
        """Return those guards that do not hold; the rows that they are about stay locked."""
        distinct = sorted((guard for guard in guards if guard is not None), key=lambda guard: guard.key)
        if not distinct:
            return set()
        entity = distinct[0].entity
        keys = list(dict.fromkeys(guard.key for guard in distinct))
        rows = self._reads.rows(mutation.connection, entity, keys, is_locking=True)
        return {guard for guard in distinct if not guard.holds(rows.get(guard.key))}

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
    """Return the order of the timers' batches: transactions that meet on several rows must not deadlock."""
    for write in group:
        if write.entity is TIMER:
            return write.key
    return group[0].key


def _is_told_by_its_row(write: Write) -> bool:
    """Tell whether the row that a write finds by its key tells what becomes of it."""
    is_unconditional = write.change is Change.DELETE and not write.conditions
    return write.change is not Change.PUT and not is_unconditional and DAMAGED not in write.key


def _all_hold(conditions: Sequence[Condition], values: Row | None, now: datetime) -> bool:
    """``values``: of the conditions' fields; None: there is no such row."""
    if values is None:
        return False
    for condition, value in zip(conditions, values, strict=False):
        if condition.comparison is Comparison.IS_PAST:
            if value is not None and value > to_milliseconds(now):
                return False
        elif condition.value is not DAMAGED and value != condition.value:
            return False
    return True


def _is_taken(key: Key) -> bool:
    """Tell whether no database refuses to look for ``key``: some do for U+0000, others for what is no Unicode."""
    return all(is_text(part) and "\0" not in part for part in key if isinstance(part, str))


def _refusal(error: StoreError) -> StoreError:
    """Return ``error``, if the database refuses a statement for good; raise any other."""
    if type(error) is not StoreError:
        raise error
    return error


def open_sql(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> SqlBackend:
    """Return the backend on the database of a URL (dialects). Raises ``InvalidSettings``."""
    return SqlBackend(Database(open_dialect(url), time_source=time_source))
