"""One write as statements of a conditional batch: the row, and the entries and hints that lead to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final
from uuid import UUID

from duetime.stores.backend import Change, Comparison, Now, Plus, Write
from duetime.stores.backends.cassandra import layout
from duetime.stores.backends.cassandra.layout import PARTITION_COLUMNS, TIMERS, Partition, Way, columns_of
from duetime.stores.backends.cassandra.requests import Row, Statement
from duetime.stores.backends.cassandra.session import UNSET
from duetime.stores.entities import DUE, ENTITIES, TIMER
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Value

LAST_EXPIRY_MS: Final = (2**31 - 1 - 86_400) * 1000
"""A TTL that ends later, in 2038, is refused by Cassandra 4 and, as it is set up at first, 5; less a day, since its
clocks are not ours."""
TRACE_SECONDS: Final = 3600
"""How long a deletion can be told from a timer that never was: no request is in flight for so long.

A creation that arrives when its timer has come and gone meanwhile finds the trace, and makes nothing.
"""
_OTHER_WRITE: Final = "write_id !="
_SPARE_SECONDS = 60
"""How much longer than it lives the row of a lease stays: whose clock is ahead must not lose it."""


@dataclass(frozen=True, slots=True)
class Hint:
    """Leads to the row of ``target``, a key, at a place of a path."""

    path: AccessPath
    by: bytes
    place: bytes
    target: Key


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A write, its place, and what it adds to and takes from the paths of its row.

    ``known`` is what is stored as far as the writer knows, or as it was read: then the row has to be that of the
    write ``pinned`` still. ``after``: what is stored then; None: nothing.
    """

    write: Write
    partition: Partition
    known: Mapping[str, Value]
    after: Mapping[str, Value] | None
    ttl_seconds: int
    is_whole: bool
    pinned: UUID | None
    place: bytes = field(init=False)
    size: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "place", layout.place_of(self.write.entity, self.write.key))
        texts = (value for value in (self.after or {}).values() if isinstance(value, str))
        object.__setattr__(self, "size", sum(map(len, texts)))

    # -- what has to be stored -------------------------------------------------------------------------------

    def conditions(self) -> dict[str, Value]:
        """Return what the columns of the row have to hold; empty for an unconditional write."""
        write = self.write
        if write.change is Change.INSERT or write.change is Change.PUT:
            return {}
        if write.change is Change.DELETE and not write.conditions:
            return {}
        found: dict[str, Value] = {"is_there": True}
        if self.pinned is not None:
            found["write_id"] = self.pinned
        for each in write.conditions:
            value = self.known.get(each.name) if each.comparison is Comparison.IS_PAST else each.value
            if each.name not in PARTITION_COLUMNS[self.partition.table]:
                found[each.name] = None if value is DAMAGED else value
        return found

    def holds(self, stored: Row | None) -> bool:
        """Tell whether the write can be made onto the stored row."""
        if self.write.change is Change.INSERT:
            return stored is None or not stored["is_there"]
        wanted = self.conditions()
        if not wanted:
            return True
        return stored is not None and all(stored[name] == value for name, value in wanted.items())

    # -- statements ------------------------------------------------------------------------------------------

    def statements(self, write_id: UUID, over: UUID | None) -> Iterator[Statement]:
        """``over``: an insertion is made onto the trace that this write left, or onto nothing."""
        if self.after is None:
            yield from self._removal(write_id)
        else:
            conditions = self.conditions() or self._always(write_id)
            if self.write.change is Change.INSERT and self.partition.is_conditional:
                conditions = {"write_id": over}
            yield self._update(write_id, self.after, conditions, self.ttl_seconds)
        old, new = self._entries(self.known), self._entries(self.after)
        for kind, place in old.keys() - new.keys():
            yield Statement(_delete_cql(self.partition.table, ()), self._at(kind, place))
        for (kind, place), path in new.items():
            if (kind, place) not in old or self.is_whole:
                target = layout.place_of(self.write.entity, self.write.key)
                is_taken = path.is_unique and self.write.change is Change.INSERT
                cql = _entry_cql(self.partition.table, is_conditional=is_taken)
                yield Statement(
                    cql, (self.ttl_seconds, target, *self._at(kind, place), *([None] if is_taken else []))
                )

    def _removal(self, write_id: UUID) -> Iterator[Statement]:
        entity, table = self.write.entity, self.partition.table
        conditions = self.conditions() or self._always(write_id)
        if table == TIMERS:
            yield self._update(write_id, {}, conditions, TRACE_SECONDS)
            return
        values = (*self._at(entity.name, self.place), *conditions.values())
        yield Statement(_delete_cql(table, tuple(conditions)), values)
        for part in ENTITIES:
            if part.part_of == entity.name:
                for kind in (part.name, *(path.name for path in part.paths)):
                    yield Statement(_delete_kind_cql(table), (*self.partition.values, kind))

    def _always(self, write_id: UUID) -> dict[str, Value]:
        """Return a condition that holds unless this very write was made: so one without any is a conditional write,
        too.
        """
        return {_OTHER_WRITE: write_id} if self.partition.is_conditional and not self.partition.has_hints else {}

    def _update(
        self, write_id: UUID, after: Mapping[str, Value], conditions: Mapping[str, Value], ttl: int
    ) -> Statement:
        entity, table = self.write.entity, self.partition.table
        is_update = self.write.change is Change.UPDATE
        values = [
            self._written(name, after.get(name), is_set=not is_update or self.is_whole or name in self._changes)
            for name in columns_of(entity, table)
        ]
        cql = _update_cql(entity, table, tuple(conditions))
        at = self._at(entity.name, self.place)
        is_there = True if after else None
        if is_update and not self.is_whole:
            is_there = UNSET
        return Statement(cql, (ttl, write_id, is_there, *values, *at, *map(_column, conditions.values())))

    @property
    def _changes(self) -> Mapping[str, Value]:
        return self.write.changes or {}

    def _written(self, name: str, value: Value, *, is_set: bool) -> Any:
        """Nothing is written that is there, and no tombstone where nothing is."""
        if not is_set or value is DAMAGED:
            return UNSET
        if value is None:
            # Only the row of a new call is as new as is likely: what takes the call's place leaves nothing of its.
            is_new = self.write.change is Change.INSERT or (self.write.is_new and self.partition.has_hints)
            return UNSET if is_new or self.known.get(name, DAMAGED) is None else None
        if not self.is_whole and self.write.change is Change.UPDATE and self.known.get(name, DAMAGED) == value:
            return UNSET
        return _column(value)

    def _at(self, kind: str, place: bytes) -> tuple[Value, ...]:
        return (*self.partition.values, kind, place)

    # -- paths -----------------------------------------------------------------------------------------------

    def _entries(self, values: Mapping[str, Value] | None) -> dict[tuple[str, bytes], AccessPath]:
        """By where they stand, of those paths that the write may have moved the row on."""
        found: dict[tuple[str, bytes], AccessPath] = {}
        for path in self._moved(self._paths(has_hints=False), values):
            for _, place in layout.places_on(self.write.entity, path, values or {}, has_hints=False):
                suffix = b"" if path.is_unique else self.place
                found[path.name, place + suffix] = path
        return found

    def hints(self, values: Mapping[str, Value] | None) -> set[Hint]:
        found: set[Hint] = set()
        if self.partition.has_hints:
            for path in self._moved(self._paths(has_hints=True), values):
                found |= {
                    Hint(path, by, place, tuple(self.write.key))
                    for by, place in layout.places_on(self.write.entity, path, values or {}, has_hints=True)
                }
        return found

    def _moved(self, paths: list[AccessPath], values: Mapping[str, Value] | None) -> Iterator[AccessPath]:
        for path in paths:
            needed = layout.fields_of(path)
            is_same = self.write.change is Change.UPDATE and not self.is_whole and not needed & self._changes.keys()
            if not is_same and values is not None and needed <= values.keys():
                yield path

    def _paths(self, *, has_hints: bool) -> list[AccessPath]:
        return _paths(self.write.entity, self.partition.table, has_hints=has_hints)


@cache
def _paths(entity: Entity, table: str, *, has_hints: bool) -> list[AccessPath]:
    if entity is TIMER and table != TIMERS:
        return [DUE] if has_hints else []
    way = Way.HINTS if has_hints else Way.ENTRIES
    return [path for path in entity.paths if layout.way_of(entity, path) is way]


def prepared(write: Write, stored: tuple[Mapping[str, Value], UUID] | None, now_ms: int) -> Prepared | None:
    """None where the write cannot be made. ``stored``: the row that was read, and the write that it is of."""
    entity = write.entity
    partition = layout.partition_of(entity, write.key)
    known = known_of(write) | (dict(stored[0]) if stored is not None else {})
    if write.change is Change.DELETE:
        after: dict[str, Value] | None = None
    elif write.change is Change.UPDATE:
        after = known | {
            name: _given(value, known.get(name), now_ms) for name, value in (write.changes or {}).items()
        }
    else:
        after = {name: _given(value, None, now_ms) for name, value in zip(entity.names, write.row, strict=True)}
    for each in write.conditions:
        limit = _given(each.value, None, now_ms)
        if each.comparison is Comparison.IS_PAST and known.get(each.name) is not None and known[each.name] > limit:
            return None
    ttl = 0
    is_ending = entity.expires is not None and not partition.has_hints
    if is_ending and after is not None:
        ttl = ttl_seconds(after.get(entity.expires or ""), now_ms)
        ttl += _SPARE_SECONDS if entity.is_lease else 0
    return Prepared(
        write=write,
        partition=partition,
        known=known,
        after=after,
        ttl_seconds=ttl,
        is_whole=is_ending and (ttl > 0 or known.get(entity.expires or "") is not None),
        pinned=None if stored is None else stored[1],
    )


def known_of(write: Write) -> dict[str, Value]:
    """Return what is known of the stored row without reading it."""
    if write.change is Change.INSERT:
        return {}
    known = {each.name: each.value for each in write.conditions if each.comparison is Comparison.IS}
    known |= write.known() if write.known is not None else {}
    return known | dict(zip(write.entity.key, write.key, strict=True))


def unknown_of(write: Write) -> bool:
    """Tell whether the stored row has to be read first."""
    if write.change in (Change.INSERT, Change.PUT):
        return False
    entity, partition = write.entity, layout.partition_of(write.entity, write.key)
    needed = {each.name for each in write.conditions if each.comparison is Comparison.IS_PAST}
    is_update = write.change is Change.UPDATE
    if is_update and entity.expires is not None and not partition.has_hints:
        needed |= {*entity.names}
    for has_hints in (False, True):
        for path in _paths(entity, partition.table, has_hints=has_hints and partition.has_hints):
            fields = layout.fields_of(path)
            if not is_update or fields & (write.changes or {}).keys():
                needed |= fields
    return not needed <= known_of(write).keys()


def ttl_seconds(expires_ms: Value, now_ms: int) -> int:
    """For a row that expires, at least 1: rounded up, so that it is never gone before its time. 0: it stays."""
    if expires_ms is None or expires_ms > LAST_EXPIRY_MS:
        return 0
    return max(-(-(int(expires_ms) - now_ms) // 1000), 1)


def _given(value: Value, stored: Value, now_ms: int) -> Value:
    if isinstance(value, Now):
        return now_ms + value.plus_ms
    return stored + value.amount if isinstance(value, Plus) else value


def _column(value: Value) -> Any:
    return list(value) if isinstance(value, tuple) else value


# -- texts -----------------------------------------------------------------------------------------------------------


@cache
def at_cql(table: str) -> str:
    return " AND ".join(f"{name} = ?" for name in (*PARTITION_COLUMNS[table], "row_kind", "place"))


def _if_cql(conditions: tuple[str, ...]) -> str:
    compared = [name if name == _OTHER_WRITE else f"{name} =" for name in conditions]
    return f" IF {' AND '.join(f'{each} ?' for each in compared)}" if conditions else ""


@cache
def _update_cql(entity: Entity, table: str, conditions: tuple[str, ...]) -> str:
    columns = ", ".join(f"{name} = ?" for name in ("write_id", "is_there", *columns_of(entity, table)))
    return f"UPDATE {table} USING TTL ? SET {columns} WHERE {at_cql(table)}{_if_cql(conditions)}"


@cache
def _entry_cql(table: str, *, is_conditional: bool) -> str:
    condition = _if_cql(("target",)) if is_conditional else ""
    return f"UPDATE {table} USING TTL ? SET target = ? WHERE {at_cql(table)}{condition}"


@cache
def _delete_cql(table: str, conditions: tuple[str, ...]) -> str:
    return f"DELETE FROM {table} WHERE {at_cql(table)}{_if_cql(conditions)}"


@cache
def _delete_kind_cql(table: str) -> str:
    return f"DELETE FROM {table} WHERE {' AND '.join(f'{n} = ?' for n in PARTITION_COLUMNS[table])} AND row_kind = ?"
