"""Writes of one partition as one conditional batch, and what became of those whose answers were lost."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final
from uuid import UUID

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.stores.backend import (
    GUARD_LOST,
    NOT_WRITTEN,
    WRITTEN,
    Change,
    Guard,
    Write,
    WriteStatus,
    Written,
    rounds,
)
from duetime.stores.backends.cassandra import layout
from duetime.stores.backends.cassandra.batches import Batch, Stored, Unit, batches_of
from duetime.stores.backends.cassandra.changes import Hint, Prepared, prepared, unknown_of
from duetime.stores.backends.cassandra.hints import Found, Hints
from duetime.stores.backends.cassandra.layout import PARTITION_COLUMNS, Partition
from duetime.stores.backends.cassandra.reads import Reads
from duetime.stores.backends.cassandra.requests import Statement, Unsettled
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.decoding import can_be_stored
from duetime.stores.entities import SERVICE_CALL
from duetime.stores.entity import Entity, Key, Value

_UNAVAILABLE: Final = Written(WriteStatus.UNAVAILABLE)


class Turns:
    """In this process, one conditional write of a partition at a time.

    Several at once only hold each other up, until some of them end without an answer.
    """

    def __init__(self, count: int = 64) -> None:
        self._locks = [threading.Lock() for _ in range(count)]

    @contextmanager
    def of(self, partitions: Iterable[Partition]) -> Iterator[None]:
        with ExitStack() as stack:
            # In one order, so that nobody waits in a circle.
            for number in sorted({hash(partition) % len(self._locks) for partition in partitions}):
                stack.enter_context(self._locks[number])
            yield


class Writes:
    def __init__(self, session: CassandraSession, reads: Reads, hints: Hints) -> None:
        self._session = session
        self._reads = reads
        self._hints = hints
        self._turns = Turns()

    def run(self, groups: Sequence[Sequence[Write]], now_ms: int) -> list[Written]:
        results: dict[int, Written] = {}
        waiting = [Unit(number, group) for number, group in enumerate(groups)]
        lost = self._lost(waiting)
        for unit in waiting:
            if unit.guard in lost:
                results[unit.number] = GUARD_LOST
            elif not all(can_be_stored(write.key) for write in unit.writes):
                results[unit.number] = NOT_WRITTEN
        alone: set[int] = set()
        unavailable: StoreUnavailable | None = None
        for _ in rounds():
            waiting = [unit for unit in waiting if unit.number not in results]
            if not waiting:
                break
            try:
                unavailable = self._try(waiting, results, alone, now_ms) or unavailable
            except StoreUnavailable as error:
                unavailable = error
                break
        found = [results.get(number, _UNAVAILABLE) for number in range(len(groups))]
        if found and all(each is _UNAVAILABLE for each in found):
            raise unavailable or StoreUnavailable("other writers changed the rows again and again")
        return found

    def _try(
        self, units: Sequence[Unit], results: dict[int, Written], alone: set[int], now_ms: int
    ) -> StoreUnavailable | None:
        """Add to ``results`` what became of them, except those to be tried again; tell why some are unavailable."""
        unavailable: StoreUnavailable | None = None
        batches = self._with_hints(list(batches_of(self._prepared(units, results, now_ms), alone)), results)
        for batch, answer in zip(batches, self._decide(batches), strict=True):
            try:
                results |= self._told(batch, answer, alone)
            except StoreUnavailable as error:
                unavailable = error
                results |= {unit.number: _UNAVAILABLE for unit in batch.units}
        return unavailable

    def _told(self, batch: Batch, answer: bool | StoreError, alone: set[int]) -> dict[int, Written]:
        """Return what became of the writes of a batch; those without a result are to be tried again."""
        if answer is True:
            self._clean_up(batch)
            return {unit.number: WRITTEN for unit in batch.units}
        if answer is False or isinstance(answer, Unsettled):
            return self._settled(batch, answer)
        if isinstance(answer, StoreUnavailable):
            raise answer
        if len(batch.units) == 1:
            return {batch.units[0].number: Written(WriteStatus.REFUSED, answer)}
        alone |= {unit.number for unit in batch.units}  # one of them is refused
        return {}

    # -- before ----------------------------------------------------------------------------------------------

    def _lost(self, units: Sequence[Unit]) -> set[Guard | None]:
        """Return those guards of other partitions that do not hold: no batch can have them among its conditions."""
        guards = {unit.guard for unit in units if unit.guard is not None and unit.held is None}
        if not guards:
            return set()
        entity = next(iter(guards)).entity
        keys = list(dict.fromkeys(guard.key for guard in guards))
        found = self._reads.find(entity, keys, entity.names)
        return {guard for guard in guards if not _is_held(guard, found.get(guard.key))}

    def _prepared(self, units: Sequence[Unit], results: dict[int, Written], now_ms: int) -> list[Unit]:
        """Return those that can be made as far as is known; of others the results are told."""
        missing: dict[tuple[Entity, Key], None] = {}
        for unit in units:
            for write in unit.writes:
                if not unit.steps and unknown_of(write):
                    missing[write.entity, tuple(write.key)] = None
        stored = self._stored_rows(list(missing))
        ready: list[Unit] = []
        for unit in units:
            if unit.steps:
                ready.append(unit)
                continue
            steps: list[Prepared] = []
            for write in unit.writes:
                at = (write.entity, tuple(write.key))
                found = stored.get(at)
                if at in missing and found is None and write.change is Change.DELETE and not write.conditions:
                    continue
                step = None if at in missing and found is None else prepared(write, found, now_ms)
                if step is None:
                    results[unit.number] = NOT_WRITTEN
                    break
                steps.append(step)
            else:
                unit.steps = steps
                if steps:
                    ready.append(unit)
                else:
                    results[unit.number] = WRITTEN
        return ready

    def _stored_rows(
        self, wanted: Sequence[tuple[Entity, Key]]
    ) -> dict[tuple[Entity, Key], tuple[Mapping[str, Value], UUID]]:
        found: dict[tuple[Entity, Key], tuple[Mapping[str, Value], UUID]] = {}
        for entity in {entity for entity, _ in wanted}:
            keys = [key for each, key in wanted if each is entity]
            for key, values in self._reads.find(entity, keys, (*entity.names, "write_id")).items():
                found[entity, key] = (values, values["write_id"])
        return found

    def _with_hints(self, batches: Sequence[Batch], results: dict[int, Written]) -> list[Batch]:
        """Hints are written before what they lead to. A batch is left out when a place of a unique path is taken."""
        ready: list[Batch] = []
        for batch in batches:
            if not batch.partition.has_hints:
                ready.append(batch)
                continue
            above = max((unit.last_attempt or "" for unit in batch.units), default="")
            batch.attempt = self._hints.attempts.next(batch.write_id, above=above or None)
            for step in batch.steps:
                before, after = step.hints(step.known), step.hints(step.after)
                # What is put may have been taken off its path meanwhile.
                batch.added |= after if step.write.change is Change.PUT else after - before
                batch.removed |= before - after
            if all(self._is_taken(hint, batch.attempt) for hint in batch.added if hint.path.is_unique):
                ready.append(batch)
            else:
                results |= {unit.number: NOT_WRITTEN for unit in batch.units}
        self._hints.put([(hint, batch.attempt) for batch in ready for hint in batch.added])
        return ready

    def _is_taken(self, hint: Hint, attempt: str) -> bool:
        return self._hints.take(hint, attempt, self._reads.fits(SERVICE_CALL))

    # -- the change ------------------------------------------------------------------------------------------

    def _decide(self, batches: Sequence[Batch]) -> list[bool | StoreError]:
        """Batches of several partitions side by side, those of one partition one after another."""
        answers: dict[int, bool | StoreError] = {}
        waiting = list(range(len(batches)))
        while waiting:
            first_of = {batches[at].partition: at for at in reversed(waiting)}
            wave = sorted(first_of.values())
            plain = [at for at in wave if not batches[at].partition.is_conditional]
            decided = [at for at in wave if at not in plain]
            with self._turns.of(first_of):
                self._session.write_each([batches[at].statements() for at in plain])
                answers |= dict.fromkeys(plain, True)
                statements = [batches[at].statements() for at in decided]
                answers |= zip(decided, self._session.decide_each(statements), strict=True)
            waiting = [at for at in waiting if at not in answers]
        return [answers[at] for at in range(len(batches))]

    # -- after -----------------------------------------------------------------------------------------------

    def _settled(self, batch: Batch, answer: bool | StoreError) -> dict[int, Written]:
        """Return what became of a batch that was not made, or whose answer was lost. Those without a result may be
        made.

        A serial read ends what is in flight in the partition: either it is carried out now or never.
        """
        last = self._hints.last_attempt(batch.partition) if batch.partition.has_hints else None
        stored = self._stored(batch)
        if isinstance(answer, Unsettled) and self._is_made(batch, stored, last):
            self._clean_up(batch)
            return {unit.number: WRITTEN for unit in batch.units}
        guard = batch.units[0].held
        if guard is not None and not _is_held(guard, stored.get((guard.entity.name, b""))):
            return {unit.number: GUARD_LOST for unit in batch.units}
        open_ones = {unit.number for unit in batch.units if unit.holds(stored) or unit.is_outdated(stored)}
        if isinstance(answer, Unsettled) and not open_ones:
            raise answer
        results: dict[int, Written] = {}
        for unit in batch.units:
            if unit.number not in open_ones:
                results[unit.number] = NOT_WRITTEN
                continue
            unit.last_attempt = last
            unit.over = {
                at: stored[at]["write_id"]
                for at in ((step.write.entity.name, step.place) for step in unit.steps)
                if at in stored and not stored[at]["is_there"]
            }
            if unit.is_outdated(stored):
                unit.steps = []
        self._forget([(hint, batch.attempt) for hint in batch.added])
        return results

    def _is_made(self, batch: Batch, stored: Stored, last: str | None) -> bool:
        if last is not None and last == batch.attempt:
            return True
        for step in batch.steps:
            row = stored.get((step.write.entity.name, step.place))
            if row is not None and row["write_id"] == batch.write_id:
                return True
            is_removal = step.after is None and step.partition.table != layout.TIMERS
            if is_removal and row is None and step.conditions():
                return True
        return False

    def _stored(self, batch: Batch) -> Stored:
        names = {"write_id", "is_there"}
        at = [(step.write.entity.name, step.place) for step in batch.steps]
        for step in batch.steps:
            names |= step.conditions().keys()
        guard = batch.units[0].held
        if guard is not None:
            at.append((guard.entity.name, b""))
            names |= {each.name for each in guard.conditions}
        table = batch.partition.table
        of = " AND ".join(f"{name} = ?" for name in PARTITION_COLUMNS[table])
        columns = ", ".join(("row_kind", "place", *sorted(names)))
        cql = f"SELECT {columns} FROM {table} WHERE {of} AND (row_kind, place) IN ?"
        rows = self._session.read(Statement(cql, (*batch.partition.values, at)), is_serial=True)
        return {(row["row_kind"], row["place"]): row for row in rows}

    def _clean_up(self, batch: Batch) -> None:
        """Remove hints of earlier changes. What fails here, readers make good: the change is stored."""
        try:
            self._hints.remove_earlier([(hint, batch.attempt) for hint in batch.removed])
        except StoreUnavailable:
            return

    def _forget(self, written: Sequence[Found]) -> None:
        """Hints of a change that will never be made; what fails here, readers make good."""
        try:
            self._hints.remove(written)
        except StoreUnavailable:
            return


def _is_held(guard: Guard, row: Mapping[str, Value] | None) -> bool:
    return row is not None and all(row[each.name] == each.value for each in guard.conditions)
