"""How an entity's rows stand in its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Mapping as Mapping_
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sqlalchemy as sa

from duetime.domain.ids import timer_uuid
from duetime.domain.times import format_instant, from_milliseconds, read_instant, to_milliseconds
from duetime.stores.backend import Condition
from duetime.stores.entities import ENTITIES, SHARD, TIMER
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Kind, Row, Value
from duetime.stores.sql import call_tables  # noqa: F401  # declares its tables
from duetime.stores.sql.tables import NIL_UUID, RowType, constant, metadata

Encode = Callable[[Value], Any]
_instant_text = lru_cache(maxsize=4096)(lambda at_ms: format_instant(from_milliseconds(at_ms)))
_read_text = lru_cache(maxsize=4096)(lambda text: to_milliseconds(read_instant(text)))
_as_json = json.JSONEncoder(ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Column:
    """``read``: from what the driver gives to a value, None where they are the same. ``write``: the other way."""

    name: str
    column: sa.Column[Any]
    kind: Kind
    write: Encode | None = None
    read: Encode | None = None


def _text_of_instant(at_ms: Value) -> Any:
    return _instant_text(at_ms)


def _instant_of_text(text: Any) -> Value:
    try:
        return _read_text(text)
    except ValueError:
        return DAMAGED


def _tags_of_text(text: Any) -> Value:
    try:
        tags = json.loads(text)
    except ValueError:
        return DAMAGED
    is_list = isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
    return tuple(tags) if is_list else DAMAGED


def _columns(entity: Entity) -> tuple[Column, ...]:
    table = metadata.tables[entity.table]
    columns = []
    for field in entity.fields:
        write: Encode | None = None
        read: Encode | None = None
        if field.kind is Kind.INSTANT and entity.has_iso_times:
            write, read = _text_of_instant, _instant_of_text
        elif field.kind is Kind.FLAG:
            write, read = int, bool
        elif field.kind is Kind.TEXTS:
            write, read = _as_json, _tags_of_text
        elif field.kind is Kind.BYTES:
            read = bytes
        columns.append(Column(field.name, table.c[field.name], field.kind, write, read))
    return tuple(columns)


class Mapping:
    """Of an entity that has its table for itself."""

    def __init__(self, entity: Entity) -> None:
        self.entity = entity
        self.table = metadata.tables[entity.table]
        self.columns = _columns(entity)
        self.by_name = {each.name: each for each in self.columns}

    def select(self, name: str) -> sa.ColumnElement[Any]:
        return self.by_name[name].column

    def is_of_entity(self) -> list[sa.ColumnElement[bool]]:
        """What tells the entity's rows from others of the table."""
        return []

    def is_on(self, path: AccessPath) -> list[sa.ColumnElement[bool]]:
        """What the rows on a path have in common, as the planner must see it."""
        column = self.select
        conditions = [*self.is_of_entity(), *(column(name).is_not(None) for name in path.present)]
        conditions += [column(name).is_(None) for name in path.absent]
        return conditions + [
            column(name) == constant(int(value) if isinstance(value, bool) else value)
            for name, value in path.where.items()
        ]

    def key_names(self, conditions: Iterable[Condition]) -> tuple[str, ...]:  # noqa: ARG002
        """The columns that a write finds its row by."""
        return self.entity.key

    def key_values(self, key: Key, conditions: Iterable[Condition]) -> tuple[Any, ...]:  # noqa: ARG002
        return tuple(key)

    def whole(self, row: Row) -> tuple[tuple[str, ...], Sequence[Value]]:
        """The columns that a whole row is written to, and their values."""
        return self.entity.names, row

    def changed(self, changes: Mapping_[str, Value]) -> Mapping_[str, Value]:
        """The columns that a change is written to, and their values."""
        return changes

    @cached_property
    def writes(self) -> dict[str, Encode]:
        """How the values of columns are written that are not written as they are."""
        return {each.name: each.write for each in self.columns if each.write is not None}

    def reader(self, names: tuple[str, ...]) -> Callable[[Any], tuple[Value, ...]]:
        """From what the driver gives of these fields to their values."""
        reads = [(place, self.by_name[name].read) for place, name in enumerate(names)]
        changed = [(place, read) for place, read in reads if read is not None]
        if not changed:
            return tuple

        def read(row: Any) -> tuple[Value, ...]:
            values = list(row)
            for place, convert in changed:
                if values[place] is not None:
                    values[place] = convert(values[place])
            return tuple(values)

        return read


class TimerMapping(Mapping):
    """A finished timer's row leaves the pollers' range, and keeps the time of its last attempt: a part of the primary
    key cannot be NULL."""

    def select(self, name: str) -> sa.ColumnElement[Any]:
        column = super().select(name)
        if name != "timer_execute_at":
            return column
        is_waiting = self.table.c.row_type == constant(RowType.TIMER)
        return sa.case((is_waiting, column)).label(name)

    def is_of_entity(self) -> list[sa.ColumnElement[bool]]:
        return [self.table.c.row_type != constant(RowType.SHARD)]

    def is_on(self, path: AccessPath) -> list[sa.ColumnElement[bool]]:
        if "timer_execute_at" in path.present:
            return [self.table.c.row_type == constant(RowType.TIMER)]
        if "timer_expires_at" in path.present:
            # A waiting timer does not expire, whatever damage has put into its row.
            return [self.table.c.row_type == constant(RowType.FINISHED), self.table.c.timer_expires_at.is_not(None)]
        return [self.table.c[name].is_not(None) for name in path.present]

    def key_names(self, conditions: Iterable[Condition]) -> tuple[str, ...]:
        if any(each.name == "timer_execute_at" for each in conditions):
            return "shard_id", "row_type", "timer_uuid"  # with timer_execute_at the primary key: one step
        return "timer_namespace", "shard_id", "timer_id"

    def key_values(self, key: Key, conditions: Iterable[Condition]) -> tuple[Any, ...]:
        shard_id, namespace, timer_id = key
        if any(each.name == "timer_execute_at" for each in conditions):
            return shard_id, RowType.TIMER.value, timer_uuid(namespace, timer_id).bytes
        return namespace, shard_id, timer_id

    def whole(self, row: Row) -> tuple[tuple[str, ...], Sequence[Value]]:
        if row[_EXECUTE_AT] is not None:
            return _TIMER_COLUMNS, (*row, RowType.TIMER.value)
        values = [*row, RowType.FINISHED.value]
        values[_EXECUTE_AT] = row[_DUE_AT]
        return _TIMER_COLUMNS, values

    def changed(self, changes: Mapping_[str, Value]) -> Mapping_[str, Value]:
        if "timer_execute_at" not in changes:
            return changes
        if changes["timer_execute_at"] is not None:
            return {**changes, "row_type": RowType.TIMER.value}
        kept = {name: value for name, value in changes.items() if name != "timer_execute_at"}
        return {**kept, "row_type": RowType.FINISHED.value}


_EXECUTE_AT, _DUE_AT = TIMER.places["timer_execute_at"], TIMER.places["timer_due_at"]
_TIMER_COLUMNS = (*TIMER.names, "row_type")


class ShardMapping(Mapping):
    def is_of_entity(self) -> list[sa.ColumnElement[bool]]:
        row = self.table.c
        return [row.row_type == constant(RowType.SHARD), row.timer_execute_at == constant(0)]

    def whole(self, row: Row) -> tuple[tuple[str, ...], Sequence[Value]]:
        return _SHARD_COLUMNS, (*row, RowType.SHARD.value, 0, NIL_UUID)

    def key_names(self, conditions: Iterable[Condition]) -> tuple[str, ...]:  # noqa: ARG002
        return "shard_id", "row_type", "timer_execute_at", "timer_uuid"

    def key_values(self, key: Key, conditions: Iterable[Condition]) -> tuple[Any, ...]:  # noqa: ARG002
        return key[0], RowType.SHARD.value, 0, NIL_UUID


_SHARD_COLUMNS = (*SHARD.names, "row_type", "timer_execute_at", "timer_uuid")
_OWN = {TIMER: TimerMapping, SHARD: ShardMapping}
MAPPINGS = {entity.name: _OWN.get(entity, Mapping)(entity) for entity in ENTITIES}
