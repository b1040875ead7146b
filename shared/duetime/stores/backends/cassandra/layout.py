"""Where rows live, and how each access path leads to them.

A partition holds rows of some entities (``row_kind`` is the entity's name) and entries of paths that stay within it
(``row_kind`` is the path's name); both change in one conditional batch. Other paths have hints in partitions of their
own (``hints.py``). A service call's timer lives with its call, so the two change as one, and is due by a hint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Final

from duetime.domain.service_calls import tenant_of
from duetime.domain.timers import TimerState
from duetime.stores.backends.cassandra import places
from duetime.stores.backends.cassandra.places import Parts, parts_of
from duetime.stores.entities import (
    API_KEY,
    COUNTER,
    DUE,
    EVENT,
    EXECUTION,
    IDEMPOTENCY_RECORD,
    NAMESPACE,
    OCCURRENCE,
    SECRET,
    SERVICE_CALL,
    SHARD,
    TIMER,
    WORKER,
)
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Kind, Value

TIMERS, CALLS, CATALOGUE, RECORDS, WORKERS = "timers", "service_calls", "catalogue", "idempotency_records", "workers"
PARTITION_COLUMNS: Final = {
    TIMERS: ("shard_id",),
    CALLS: ("tenant_id", "service_call_id"),
    CATALOGUE: ("catalogue_part",),
    RECORDS: ("record_key",),
    WORKERS: ("worker_group",),
}
"""By table."""
_HOMES: Final[Mapping[Entity, tuple[str, int | str]]] = {
    TIMER: (TIMERS, 1),
    OCCURRENCE: (TIMERS, 1),
    SHARD: (TIMERS, 1),
    SERVICE_CALL: (CALLS, 2),
    EXECUTION: (CALLS, 2),
    EVENT: (CALLS, 2),
    NAMESPACE: (CATALOGUE, "namespaces"),
    COUNTER: (CATALOGUE, "namespaces"),
    SECRET: (CATALOGUE, "secrets"),
    API_KEY: (CATALOGUE, "api_keys"),
    IDEMPOTENCY_RECORD: (RECORDS, 1),
    WORKER: (WORKERS, "all"),
}
"""The table of an entity, and how many of the first fields of its key name the partition, or its fixed name."""
ENTITIES_OF: Final = {
    table: tuple(entity for entity, (home, _) in _HOMES.items() if home == table) for table in PARTITION_COLUMNS
}
_ENDED: Final = frozenset(state.value for state in TimerState if state.is_finished)
"""Never due. A node that was away for longer than ``gc_grace_seconds`` brings a deleted value back, not one that was
written over: the state."""
SLICES: Final = 8
"""Partitions of a path's hints: how far it goes is this many times what a partition can hold."""


@dataclass(frozen=True, slots=True)
class Partition:
    table: str
    values: tuple[Value, ...]

    @property
    def has_hints(self) -> bool:
        return self.table == CALLS

    @property
    def is_conditional(self) -> bool:
        """Whether all writes are: times of conditional writes and those of plain ones must not meet on a row."""
        return self.table != WORKERS


class Way(Enum):
    """How rows are found by a path."""

    ROWS = "in the order of their keys"
    ENTRIES = "by entries in their partition"
    HINTS = "by hints in other partitions"
    PARTITIONS = "partition by partition, in the order of the database"
    NONE = "not at all: the database removes what has expired"


def partition_of(entity: Entity, key: Key) -> Partition:
    """Return where the row of a key lives. A key of fewer values has to have those that name the partition."""
    table, named_by = _HOMES[entity]
    if isinstance(named_by, str):
        return Partition(table, (named_by,))
    if entity is TIMER and len(key) > 1 and (tenant_id := tenant_of(key[1])) is not None:
        return Partition(CALLS, (tenant_id, key[2]))
    return Partition(table, tuple(key[:named_by]))


def table_of(entity: Entity) -> str:
    return _HOMES[entity][0]


def partition_fields(entity: Entity) -> tuple[str, ...]:
    named_by = _HOMES[entity][1]
    return () if isinstance(named_by, str) else entity.key[:named_by]


@cache
def key_parts(entity: Entity) -> Parts:
    return parts_of(entity, entity.key)


def place_of(entity: Entity, key: Key) -> bytes:
    """Return where in its partition the row of a key stands."""
    skipped = len(partition_fields(entity))
    return places.encode(key_parts(entity)[skipped:], key[skipped:])


@cache
def columns_of(entity: Entity, table: str) -> tuple[str, ...]:
    """Return the fields that are columns of their own, beside those that name the partition."""
    return tuple(name for name in entity.names if name not in PARTITION_COLUMNS[table])


@cache
def way_of(entity: Entity, path: AccessPath) -> Way:
    inside = partition_fields(entity)
    if path.order_names == (entity.expires,):
        return Way.NONE
    if _HOMES[entity][0] == CALLS and not {*inside} <= {*path.by}:
        return Way.PARTITIONS if path.order == entity.key and not path.absent else Way.HINTS
    in_partition = [name for name in (*path.by, *path.order) if name not in inside]
    return Way.ROWS if in_partition == [name for name in entity.key if name not in inside] else Way.ENTRIES


@cache
def place_fields(entity: Entity, path: AccessPath) -> tuple[str, ...]:
    """Return what the places of a path begin with: of entries and rows with ``by``, but for what names the
    partition."""
    if way_of(entity, path) is Way.HINTS:
        return path.order
    inside = partition_fields(entity)
    return tuple(name for name in (*path.by, *path.order) if name not in inside)


@cache
def place_parts(entity: Entity, path: AccessPath) -> Parts:
    return parts_of(entity, place_fields(entity, path))


@cache
def fields_of(path: AccessPath) -> frozenset[str]:
    """Return what tells whether and where a row is on a path."""
    state = ("timer_state",) if path is DUE else ()
    return frozenset((*path.by, *path.order_names, *path.present, *path.absent, *path.where, *state))


def is_on(path: AccessPath, values: Mapping[str, Value]) -> bool:
    if path is DUE and values["timer_state"] in _ENDED:
        return False
    return (
        all(values[name] not in (None, DAMAGED) for name in (*path.present, *path.by, *path.order_names))
        and all(values[name] is None for name in path.absent)
        and all(values[name] == value for name, value in path.where.items())
    )


def places_on(
    entity: Entity, path: AccessPath, values: Mapping[str, Value], *, has_hints: bool
) -> set[tuple[bytes, bytes]]:
    """Return where a row with ``values`` stands on a path: of hints their ``by`` and place, of an entry its place
    alone."""
    if not is_on(path, values):
        return set()
    if not has_hints:
        names = place_fields(entity, path)
        return {(b"", places.encode(place_parts(entity, path), [values[name.removeprefix("-")] for name in names]))}
    place = places.encode(parts_of(entity, path.order), [values[name] for name in path.order_names])
    return {(encode_by(entity, path, by), place) for by in _alternatives(entity, path, values)}


def _alternatives(entity: Entity, path: AccessPath, values: Mapping[str, Value]) -> list[tuple[Value, ...]]:
    found: list[tuple[Value, ...]] = [()]
    for name in path.by:
        several = values[name] if entity.by_name[name].kind is Kind.TEXTS else (values[name],)
        found = [(*each, value) for each in found for value in several]
    return found


def encode_by(entity: Entity, path: AccessPath, by: Key) -> bytes:
    kinds = [entity.by_name[name].kind for name in path.by]
    return places.encode([(Kind.TEXT if kind is Kind.TEXTS else kind, False) for kind in kinds], by)


def slices_of(path: AccessPath) -> int:
    """Return how many partitions a path is cut into. The due timers of a shard are one anyway."""
    return 1 if path is DUE or path.is_unique else SLICES


def is_sliced_by_order(entity: Entity, path: AccessPath) -> bool:
    """Tell whether the first field of the order tells the slice, else the key does."""
    return path.order_names[:1] == entity.key[:1]
