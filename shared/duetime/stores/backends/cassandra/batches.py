"""Batches: the writes of one partition that are sent as one conditional statement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias
from uuid import UUID

from duetime.stores.backend import Change, Guard, Write
from duetime.stores.backends.cassandra import layout
from duetime.stores.backends.cassandra.changes import Hint, Prepared
from duetime.stores.backends.cassandra.hints import KEPT_SECONDS, new_write_id
from duetime.stores.backends.cassandra.layout import CALLS, Partition
from duetime.stores.backends.cassandra.requests import Row, Statement
from duetime.stores.entities import SERVICE_CALL, TIMER

WRITES_PER_BATCH: Final = 30
BYTES_PER_BATCH: Final = 1024 * 1024
_HOLD: Final = "UPDATE timers SET shard_owner_id = ? WHERE shard_id = ? AND row_kind = ? AND place = ? IF "
_OF_CALL: Final = "tenant_id = ? AND service_call_id = ?"
_ORDERED: Final = f"UPDATE service_calls USING TTL ? SET last_attempt = ? WHERE {_OF_CALL} IF last_attempt "
_CHECKED: Final = f"UPDATE service_calls USING TTL ? SET is_checked = ? WHERE {_OF_CALL} IF last_attempt "

Stored: TypeAlias = Mapping[tuple[str, bytes], Row]
"""Rows of a partition by their kind and place."""


@dataclass(slots=True)
class Unit:
    """Writes that are made together or not at all, of one partition."""

    number: int
    writes: Sequence[Write]
    steps: list[Prepared] = field(default_factory=list)
    over: dict[tuple[str, bytes], UUID] = field(default_factory=dict)
    """By kind and place: the traces onto which rows are inserted."""
    last_attempt: str | None = ""
    """Of the partition, as it was read; empty: not yet."""

    @property
    def partition(self) -> Partition:
        return layout.partition_of(self.writes[0].entity, self.writes[0].key)

    @property
    def guard(self) -> Guard | None:
        return next((write.guard for write in self.writes if write.guard is not None), None)

    @property
    def held(self) -> Guard | None:
        """The guard, if its row is of the same partition: then it is a condition of the batch."""
        guard = self.guard
        is_here = guard is not None and layout.partition_of(guard.entity, guard.key) == self.partition
        return guard if is_here else None

    @property
    def size(self) -> int:
        return sum(step.size for step in self.steps)

    def holds(self, stored: Stored) -> bool:
        return all(step.holds(stored.get((step.write.entity.name, step.place))) for step in self.steps)

    def is_outdated(self, stored: Stored) -> bool:
        """Tell whether a row that was read for it has changed since, which says nothing of its conditions."""
        pinned = [(step, stored.get((step.write.entity.name, step.place))) for step in self.steps if step.pinned]
        return any(row is not None and row["write_id"] != step.pinned for step, row in pinned)


@dataclass(slots=True)
class Batch:
    units: list[Unit]
    write_id: UUID = field(default_factory=new_write_id)
    attempt: str = ""
    added: set[Hint] = field(default_factory=set)
    removed: set[Hint] = field(default_factory=set)

    @property
    def partition(self) -> Partition:
        return self.units[0].partition

    @property
    def steps(self) -> list[Prepared]:
        return [step for unit in self.units for step in unit.steps]

    def statements(self) -> list[Statement]:
        statements = [_hold(guard)] if (guard := self.units[0].held) is not None else []
        statements += self._order()
        for unit in self.units:
            for step in unit.steps:
                over = unit.over.get((step.write.entity.name, step.place))
                statements += step.statements(self.write_id, over)
        return statements

    def _order(self) -> list[Statement]:
        """Return what has a partition take changes in the order of their names. One of events alone leaves no name:
        the partition may be that of a call that is gone.
        """
        of_call = [step for step in self.steps if step.write.entity in (SERVICE_CALL, TIMER)]
        if not self.partition.has_hints or not (of_call or self.added):
            return []
        last = max((unit.last_attempt or "" for unit in self.units), default="")
        is_read = any(unit.last_attempt != "" for unit in self.units)
        is_new = last == "" if is_read else any(step.write.change is Change.INSERT for step in of_call)
        condition = "= ?" if is_new else "< ?"
        limit = None if is_new else self.attempt
        at = self.partition.values
        if not of_call:
            return [Statement(_CHECKED + condition, (KEPT_SECONDS, True, *at, limit))]
        kept = KEPT_SECONDS if any(step.after is None for step in of_call) else 0
        return [Statement(_ORDERED + condition, (kept, self.attempt, *at, limit))]


def batches_of(units: Sequence[Unit], alone: set[int]) -> Iterator[Batch]:
    """Put those of one partition and under one guard together, and not too much at once."""
    together: dict[tuple[Partition, Guard | None, int], list[Unit]] = {}
    for unit in units:
        by_itself = unit.number if unit.number in alone or _is_by_itself(unit) else -1
        together.setdefault((unit.partition, unit.held, by_itself), []).append(unit)
    for some in together.values():
        batch: list[Unit] = []
        size = 0
        for unit in some:
            if batch and (len(batch) == WRITES_PER_BATCH or size + unit.size > BYTES_PER_BATCH):
                yield Batch(batch)
                batch, size = [], 0
            batch.append(unit)
            size += unit.size
        yield Batch(batch)


def _is_by_itself(unit: Unit) -> bool:
    """Tell whether a unit goes alone: a group has the guard of its own, and takes places of unique paths."""
    return unit.partition.table == CALLS and any(write.entity is SERVICE_CALL for write in unit.writes)


def _hold(guard: Guard) -> Statement:
    """Return a statement that holds only while the guard does; changes nothing."""
    values = {each.name: each.value for each in guard.conditions}
    condition = " AND ".join(f"{name} = ?" for name in values)
    at = (*layout.partition_of(guard.entity, guard.key).values, guard.entity.name, b"")
    return Statement(_HOLD + condition, (values["shard_owner_id"], *at, *values.values()))
