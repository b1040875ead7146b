"""Writes as statements: those of one shape are run together, and each tells how many rows it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from duetime.stores.backend import Change, Condition, Now, Plus, Test, Write
from duetime.stores.backends.sql.mapping import MAPPINGS, Mapping
from duetime.stores.entities import SERVICE_CALL
from duetime.stores.entity import DAMAGED, Value
from duetime.stores.sql.call_tables import service_call_tags
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.tables import constant, given, given_count

Shape = tuple[Any, ...]
"""What a statement is made of, whatever its values: two writes of one shape are one statement, run twice."""


@dataclass(frozen=True, slots=True)
class Run:
    """A statement and the values of each of its rows. ``must_match``: each has to change one row."""

    statement: Prepared
    rows: list[tuple[Any, ...]]
    must_match: bool = True


class Statements:
    """Compiled when they are first run, and kept: a store has a few dozen shapes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepared: dict[Shape, Prepared] = {}
        self._plans: dict[str, _Plan] = {}

    def runs(self, writes: Sequence[Write]) -> Iterator[Run]:
        """``writes`` as statements, in the order of their first appearance."""
        groups: dict[Shape, tuple[list[Write], list[tuple[Any, ...]]]] = {}
        for write in writes:
            shape, values = self._encoded(write)
            group, rows = groups.setdefault(shape, ([], []))
            group.append(write)
            rows.append(values)
        for shape, (group, rows) in groups.items():
            first = group[0]
            statement = self._prepared.get(shape)
            if statement is None:
                statement = self._prepared[shape] = self._prepare(first)
            must_match = first.change is not Change.DELETE or bool(first.conditions)
            yield Run(statement, rows, must_match)
            if first.entity is SERVICE_CALL:
                yield from self._tags(group)

    def _encoded(self, write: Write) -> tuple[Shape, tuple[Any, ...]]:
        if write.like is None:
            return _encoded(write)
        plan = self._plans.get(write.like)
        if plan is None:
            plan = self._plans[write.like] = _Plan(write)
        return plan.shape, plan.values(write)

    def _prepare(self, write: Write) -> Prepared:
        mapping = MAPPINGS[write.entity.name]
        table = mapping.table
        values = {name: self._value(mapping, name, value) for name, value in _written(write)}
        if write.change is Change.INSERT:
            statement: Any = self._database.insert_if_absent(table).values(values)
        elif write.change is Change.DELETE:
            statement = sa.delete(table).where(*self._where(mapping, write))
        else:
            statement = sa.update(table).where(*self._where(mapping, write)).values(values)
        return self._database.prepare(statement, *_names(write))

    def _value(self, mapping: Mapping, name: str, value: Value) -> Any:
        if isinstance(value, Now):
            return self._now(mapping, name, value)
        if isinstance(value, Plus):
            return mapping.table.c[name] + constant(value.amount)
        return given(f"new_{name}")

    def _now(self, mapping: Mapping, name: str, value: Now) -> Any:
        now = self._database.db_now
        if mapping.entity.has_iso_times:
            return now.iso_text()
        return now.epoch_ms(given_count(f"plus_{name}")) if value.plus_ms else now.epoch_ms()

    def _where(self, mapping: Mapping, write: Write) -> list[Any]:
        columns = mapping.table.c
        found_by = [columns[name] == given(f"key_{name}") for name in mapping.key_names(write.conditions)]
        return found_by + [self._condition(mapping, each) for each in write.conditions]

    def _condition(self, mapping: Mapping, condition: Condition) -> Any:
        column = mapping.table.c[condition.name]
        if condition.value is DAMAGED:
            return sa.true()  # a typed column holds no such value
        if condition.test is Test.IS_PAST:
            return sa.or_(column.is_(None), column <= self._database.db_now.epoch_ms())
        return column.is_(None) if condition.value is None else column == given(f"old_{condition.name}")

    def _tags(self, group: Sequence[Write]) -> Iterator[Run]:
        """A call's tags, which stand in a table of their own, too."""
        changed = [write for write in group if _has_tags(write)]
        if not changed:
            return
        tag = service_call_tags.c
        key = sa.and_(tag.tenant_id == given("tenant"), tag.service_call_id == given("call"))
        if changed[0].change is not Change.INSERT:
            remove = self._kept("remove tags", sa.delete(service_call_tags).where(key), "tenant", "call")
            yield Run(remove, [write.key for write in changed], must_match=False)
        names = ("tenant_id", "service_call_id", "tag")
        rows = [(*write.key, tag) for write in changed for tag in dict.fromkeys(_tags_of(write))]
        if rows:
            add = self._database.insert_if_absent(service_call_tags).values({name: given(name) for name in names})
            yield Run(self._kept("add tags", add, *names), rows, must_match=False)

    def _kept(self, name: str, statement: Any, *names: str) -> Prepared:
        shape = (name,)
        if shape not in self._prepared:
            self._prepared[shape] = self._database.prepare(statement, *names)
        return self._prepared[shape]


def _written(write: Write) -> list[tuple[str, Value]]:
    """What a write gives to columns."""
    mapping = MAPPINGS[write.entity.name]
    if write.changes is not None:
        return list(mapping.changed(write.changes).items())
    if write.change is Change.DELETE:
        return []
    names, values = mapping.whole(write.row)
    found_by = () if write.change is Change.INSERT else _fixed(mapping, write)
    return [each for each in zip(names, values, strict=True) if each[0] not in found_by]


def _fixed(mapping: Mapping, write: Write) -> tuple[str, ...]:
    """The columns that a row is found by, and that so keep their values."""
    return tuple(name for name in mapping.key_names(write.conditions) if name != "row_type")


def _encoded(write: Write) -> tuple[Shape, tuple[Any, ...]]:
    """The shape of a write, and the values of its statement in the order of ``_names``."""
    mapping = MAPPINGS[write.entity.name]
    convert = mapping.writes
    shape: list[Any] = [write.change, write.entity.name]
    values: list[Any] = []
    for name, value in _written(write):
        kind = type(value)
        if kind is Now:
            shape.append((name, bool(value.plus_ms)))
            if value.plus_ms:
                values.append(value.plus_ms)
        elif kind is Plus:
            shape.append((name, value.amount))
        else:
            shape.append(name)
            values.append(value if value is None or name not in convert else convert[name](value))
    if write.change is not Change.INSERT:
        values += mapping.key_values(write.key, write.conditions)
        for each in write.conditions:
            is_given = _is_given(each)
            shape.append((each.name, each.test, is_given, each.value is DAMAGED))
            if is_given:
                value = each.value
                values.append(value if each.name not in convert else convert[each.name](value))
    return tuple(shape), tuple(values)


class _Plan:
    """How the values of writes that are alike are got, made of the first of them."""

    def __init__(self, first: Write) -> None:
        self.shape, _ = _encoded(first)
        mapping = MAPPINGS[first.entity.name]
        assert not {name for name, _ in _written(first)} & mapping.writes.keys()
        self._whole, self._changed, self._key = mapping.whole, mapping.changed, mapping.key_values
        self._is_insert = first.change is Change.INSERT
        self._given = [place for place, (_, value) in enumerate(_written(first)) if type(value) not in (Now, Plus)]
        self._conditions = [place for place, each in enumerate(first.conditions) if _is_given(each)]

    def values(self, write: Write) -> tuple[Any, ...]:
        if self._is_insert:
            _, values = self._whole(write.row)
            return tuple([values[place] for place in self._given])
        assert write.changes is not None
        values = list(self._changed(write.changes).values())
        conditions = write.conditions
        return (
            *[values[place] for place in self._given],
            *self._key(write.key, conditions),
            *[conditions[place].value for place in self._conditions],
        )


def _names(write: Write) -> list[str]:
    """The names of a statement's values, in the order in which ``_encoded`` gives them."""
    mapping = MAPPINGS[write.entity.name]
    names: list[str] = []
    for name, value in _written(write):
        if isinstance(value, Now):
            names += [f"plus_{name}"] if value.plus_ms else []
        elif not isinstance(value, Plus):
            names.append(f"new_{name}")
    if write.change is not Change.INSERT:
        names += [f"key_{name}" for name in mapping.key_names(write.conditions)]
        names += [f"old_{each.name}" for each in write.conditions if _is_given(each)]
    return names


def _is_given(condition: Condition) -> bool:
    return condition.test is Test.IS and condition.value is not None and condition.value is not DAMAGED


def _has_tags(write: Write) -> bool:
    if write.entity is not SERVICE_CALL or write.change is Change.DELETE:
        return False
    return write.changes is None or "tags" in write.changes


def _tags_of(write: Write) -> tuple[str, ...]:
    tags = write.row[SERVICE_CALL.places["tags"]] if write.changes is None else write.changes["tags"]
    return tags or ()
