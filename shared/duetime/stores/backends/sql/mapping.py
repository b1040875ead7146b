"""How an entity's rows stand in its table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import sqlalchemy as sa

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.times import format_instant, from_milliseconds, read_instant, to_milliseconds
from duetime.stores.backend import Condition
from duetime.stores.backends.sql import call_tables  # noqa: F401  # declares its tables
from duetime.stores.backends.sql.tables import NIL_UUID, RowType, constant, metadata
from duetime.stores.entities import ENTITIES, SHARD, TIMER
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Kind, Value
from duetime.stores.json_texts import as_json, read_json

Encode = Callable[[Value], Any]


class Constant(NamedTuple):
    """A value that is the same for all rows that are written alike."""

    value: int | bytes


Source = int | Constant
"""What a column is given: the value at this place of a row or a change, or a constant."""

_instant_text = lru_cache(maxsize=4096)(lambda at_ms: format_instant(from_milliseconds(at_ms)))


@dataclass(frozen=True, slots=True)
class Column:
    """``read``: from what the driver gives to a value, None where they are the same. ``write``: the other way."""

    name: str
    column: sa.Column[Any]
    kind: Kind
    write: Encode | None = None
    read: Encode | None = None


@lru_cache(maxsize=4096)
def _instant_of_text(text: Any) -> Value:
    try:
        return to_milliseconds(read_instant(text))
    except ValueError:
        return DAMAGED


def _tags_of_text(text: Any) -> Value:
    try:
        tags = read_json(text)
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
            write, read = _instant_text, _instant_of_text
        elif field.kind is Kind.FLAG:
            write, read = int, bool
        elif field.kind is Kind.TEXTS:
            write, read = as_json, _tags_of_text
        columns.append(Column(field.name, table.c[field.name], field.kind, write, read))
    return tuple(columns)


class Mapping:
    """Of an entity that has its table for itself."""

    derived: tuple[str, ...] = ()
    """The columns that are made of the key's."""

    def __init__(self, entity: Entity) -> None:
        self.entity = entity
        self.table = metadata.tables[entity.table]
        self.columns = _columns(entity)
        self.by_name = {each.name: each for each in self.columns}

    def select(self, name: str) -> sa.ColumnElement[Any]:
        return self.by_name[name].column

    def is_of_entity(self) -> list[sa.ColumnElement[bool]]:
        """Return what tells the entity's rows from others of the table."""
        return []

    def is_on(self, path: AccessPath) -> list[sa.ColumnElement[bool]]:
        """Return what the rows on a path have in common, as the planner must see it."""
        column = self.select
        conditions = [*self.is_of_entity(), *(column(name).is_not(None) for name in path.present)]
        conditions += [column(name).is_(None) for name in path.absent]
        return conditions + [
            column(name) == constant(int(value) if isinstance(value, bool) else value)
            for name, value in path.where.items()
        ]

    def are_alike_on(self, path: AccessPath) -> set[str]:
        """Return the columns that have one value in all rows of one range of a path."""
        return {*path.by, *path.where, *path.absent}

    def is_implied_by(self, conditions: Iterable[Condition]) -> list[sa.ColumnElement[bool]]:  # noqa: ARG002
        """Return what has to hold besides the conditions of a write."""
        return []

    def key_names(self, conditions: Iterable[Condition], *, by_all_keys: bool = False) -> tuple[str, ...]:  # noqa: ARG002
        """Return the columns that a write finds its row by. ``by_all_keys``: all columns of each unique index."""
        return self.entity.key

    def key_reader(self, names: tuple[str, ...]) -> Callable[[Key], tuple[Any, ...]]:  # noqa: ARG002
        """From a key to the values of these ``key_names``."""
        return tuple

    def targets(self, names: tuple[str, ...], values: Sequence[Value]) -> dict[str, Source]:  # noqa: ARG002
        """Return the columns that ``values`` of the fields ``names`` are written to, a whole row's or a change's."""
        return {name: place for place, name in enumerate(names)}

    @cached_property
    def writes(self) -> dict[str, Encode]:
        """How the values of columns are written that are not written as they are."""
        return {each.name: each.write for each in self.columns if each.write is not None}

    def reader(self, names: tuple[str, ...]) -> Callable[[Any], tuple[Value, ...]]:
        """From what the driver gives of these fields to their values."""
        columns = [(place, self.by_name[name].read) for place, name in enumerate(names)]
        changed = [(place, read) for place, read in columns if read is not None]
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

    derived = ("timer_uuid",)

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

    def are_alike_on(self, path: AccessPath) -> set[str]:
        return {*super().are_alike_on(path), "row_type"}

    def is_implied_by(self, conditions: Iterable[Condition]) -> list[sa.ColumnElement[bool]]:
        """Ask for a finished row where an end is asked for: damage may have put an end into a waiting one."""
        has_end = any(each.name == "timer_expires_at" for each in conditions)
        return [self.table.c.row_type == constant(RowType.FINISHED)] if has_end else []

    def key_names(self, conditions: Iterable[Condition], *, by_all_keys: bool = False) -> tuple[str, ...]:
        names = {each.name for each in conditions}
        if "timer_uuid" in names:  # it tells the row, whose id may be damaged
            return "shard_id", "row_type"
        if "timer_execute_at" in names:  # with it the primary key: one step
            return (*_LOOKUP, "row_type", "timer_uuid") if by_all_keys else ("shard_id", "row_type", "timer_uuid")
        return _LOOKUP

    def key_reader(self, names: tuple[str, ...]) -> Callable[[Key], tuple[Any, ...]]:
        return _FOUND_BY[names]

    def targets(self, names: tuple[str, ...], values: Sequence[Value]) -> dict[str, Source]:
        columns: dict[str, Source] = {name: place for place, name in enumerate(names)}
        if "timer_execute_at" not in names:
            return columns
        if values[names.index("timer_execute_at")] is not None:
            return {**columns, "row_type": Constant(RowType.TIMER)}
        is_whole = names is TIMER.names
        last = {"timer_execute_at": names.index("timer_due_at")} if is_whole else {}
        del columns["timer_execute_at"]
        return {**columns, **last, "row_type": Constant(RowType.FINISHED)}


_LOOKUP = ("timer_namespace", "shard_id", "timer_id")
_WAITS = RowType.TIMER.value
"""A value of the key, and no constant of the statement: where PostgreSQL takes timers that wait to be few, it would
go through all of them, and look each up among the given rows."""
_FOUND_BY: dict[tuple[str, ...], Callable[[Key], tuple[Any, ...]]] = {
    _LOOKUP: itemgetter(1, 0, 2),
    ("shard_id", "row_type"): lambda key: (key[0], _WAITS),
    ("shard_id", "row_type", "timer_uuid"): lambda key: (key[0], _WAITS, timer_uuid_bytes(key[1], key[2])),
    (*_LOOKUP, "row_type", "timer_uuid"): lambda key: (
        *(key[1], key[0], key[2], _WAITS),
        timer_uuid_bytes(key[1], key[2]),
    ),
}
"""By ``key_names``: from a key to their values."""


class ShardMapping(Mapping):
    def is_of_entity(self) -> list[sa.ColumnElement[bool]]:
        """Return all of the primary key but the shard, so that a planner knows of one row for each."""
        row = self.table.c
        is_first = row.timer_execute_at == constant(0)
        return [row.row_type == constant(RowType.SHARD), is_first, row.timer_uuid == sa.literal(NIL_UUID)]

    def targets(self, names: tuple[str, ...], values: Sequence[Value]) -> dict[str, Source]:
        columns = super().targets(names, values)
        is_whole = names is SHARD.names
        return {**columns, **_SHARD_KEY} if is_whole else columns

    def key_names(self, conditions: Iterable[Condition], *, by_all_keys: bool = False) -> tuple[str, ...]:  # noqa: ARG002
        return "shard_id", "row_type", "timer_execute_at", "timer_uuid"

    def key_reader(self, names: tuple[str, ...]) -> Callable[[Key], tuple[Any, ...]]:  # noqa: ARG002
        return lambda key: (*key, *_BEHIND_SHARD)


_BEHIND_SHARD = (RowType.SHARD.value, 0, NIL_UUID)
_SHARD_KEY: dict[str, Source] = {
    "row_type": Constant(RowType.SHARD),
    "timer_execute_at": Constant(0),
    "timer_uuid": Constant(NIL_UUID),
}
_OWN = {TIMER: TimerMapping, SHARD: ShardMapping}
MAPPINGS = {entity.name: _OWN.get(entity, Mapping)(entity) for entity in ENTITIES}
