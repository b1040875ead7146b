"""Writes as statements: those of one shape are run together, and each tells how many rows it changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Any

import sqlalchemy as sa

from duetime.stores.backend import Alike, Change, Comparison, Condition, Now, Plus, Write, spelled_out
from duetime.stores.backends.sql.call_tables import service_call_tags
from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.mapping import MAPPINGS, Constant, Encode
from duetime.stores.backends.sql.prepared import Prepared
from duetime.stores.backends.sql.tables import constant, given, given_count
from duetime.stores.entities import SERVICE_CALL
from duetime.stores.entity import DAMAGED, Value

Shape = tuple[Any, ...]
"""What a statement is made of, whatever its values: two writes of one shape are one statement, run twice."""
_plus_ms = attrgetter("plus_ms")


@dataclass(frozen=True, slots=True)
class Run:
    """A statement and the values of each of its rows. ``must_match``: each has to change one row.

    ``writes``: those that it makes; none for what only goes with other writes.
    """

    statement: Prepared
    rows: list[Sequence[Any]]
    must_match: bool = True
    writes: Sequence[Write] = ()
    has_tags: bool = False


class Plan:
    """The statement of a shape, and how the values of its writes are got. Made of the first of them.

    The values of a write are those of its row or its changes, of its key, and of its conditions, one after the other.
    """

    def __init__(self, database: Database, first: Write, change: Change) -> None:
        part = first.like if isinstance(first.like, Alike) and change is Change.REPLACE else None
        (write,) = spelled_out([first])
        self._places: Sequence[int] = range(len(_source(write)[1]))
        if part is not None:
            self._places = [write.entity.places[name] for name in part.changed]
            write = write._replace(changes={name: write.row[write.entity.places[name]] for name in part.changed})
        self.must_match = change is not Change.DELETE or bool(write.conditions)
        self._database = database
        self._mapping = MAPPINGS[write.entity.name]
        self._is_change, self._is_insert = write.changes is not None, change is Change.INSERT
        self._given: dict[str, int] = {}
        self._converts: list[tuple[int, Encode]] = []
        found_by = self._mapping.key_names(write.conditions, by_all_keys=database.keeps_plans)
        self._key = self._mapping.key_reader(found_by)
        found_by = () if self._is_insert else found_by
        values = {} if change is Change.DELETE else self._values(write, found_by)
        key_place = len(_source(first)[1])
        # What those that are alike expect stands in their rows.
        place = key_place + len(found_by) if first.conditions else len(self._places)
        where = [] if self._is_insert else self._where(write, found_by, key_place, place)
        table = self._mapping.table
        if change is Change.INSERT:
            self.statement = database.prepare_insert(table, values, self._given)
        elif change is Change.DELETE:
            self.statement = database.prepare_change(sa.delete(table).where(*where), self._given)
        else:
            self.statement = database.prepare_change(sa.update(table).where(*where).values(values), self._given)

    def values(self, write: Write) -> Sequence[Any]:
        """Return what the statement is given for a write."""
        values = write.row if write.changes is None else tuple(write.changes.values())
        if not self._is_insert:
            values += self._key(write.key)
            if write.conditions:
                values += tuple([each.value for each in write.conditions])
        if not self._converts:
            return values
        converted = list(values)
        for place, convert in self._converts:
            if converted[place] is not None:
                converted[place] = convert(converted[place])
        return converted

    def _values(self, write: Write, found_by: Sequence[str]) -> dict[str, Any]:
        """Return what columns become. They stand in the order of the table, as SQLAlchemy writes them."""
        mapping = self._mapping
        names, source = _source(write)
        targets = mapping.targets(names, source)
        # A whole row keeps what it is found by, and columns made of that: to write them is to write its indexes.
        fixed = {*found_by, *mapping.derived} - {"row_type"} if not (self._is_change or self._is_insert) else set()
        values: dict[str, Any] = {}
        for column in mapping.table.c:
            if (name := column.name) not in targets or name in fixed:
                continue
            target = targets[name]
            if isinstance(target, Constant):
                is_bytes = isinstance(target.value, bytes)
                values[name] = sa.literal(target.value) if is_bytes else constant(int(target.value))
            else:
                values[name] = self._value(name, target, source[target])
        return values

    def _value(self, name: str, place: int, value: Value) -> Any:
        mapping, now = self._mapping, self._database.db_now
        if isinstance(value, Plus):
            return mapping.table.c[name] + constant(value.amount)
        if isinstance(value, Now) and mapping.entity.has_iso_times:
            return now.iso_text()
        if isinstance(value, Now) and not value.plus_ms:
            return now.epoch_ms()
        place = self._places[place]
        if isinstance(value, Now):
            return now.epoch_ms(given_count(self._give(f"new_{name}", place, _plus_ms)))
        return given(self._give(f"new_{name}", place, mapping.writes.get(name)), mapping.table.c[name].type)

    def _where(self, write: Write, found_by: Sequence[str], key_place: int, place: int) -> list[Any]:
        """``key_place`` and ``place``: where the values of the key begin, and those of the conditions."""
        columns = self._mapping.table.c
        key = enumerate(found_by, key_place)
        where = [columns[name] == given(self._give(f"key_{name}", at, None)) for at, name in key]
        where += self._mapping.is_implied_by(write.conditions)
        return where + [self._condition(at, each) for at, each in enumerate(write.conditions, place)]

    def _condition(self, place: int, condition: Condition) -> Any:
        column = self._mapping.table.c[condition.name]
        if condition.value is DAMAGED:
            return sa.true()  # a typed column holds no such value
        if condition.comparison is Comparison.IS_PAST:
            return sa.or_(column.is_(None), column <= self._database.db_now.epoch_ms())
        if condition.value is None:
            return column.is_(None)
        encode = self._mapping.writes.get(condition.name)
        return column == given(self._give(f"old_{condition.name}", place, encode))

    def _give(self, name: str, place: int, encode: Encode | None) -> str:
        self._given[name] = place
        if encode is not None:
            self._converts.append((place, encode))
        return name


class Statements:
    """Compiled when they are first run, and kept: a store has a few dozen shapes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._plans: dict[Any, Plan] = {}

    def runs(self, writes: Sequence[Write], *, put_as: Change | None = None) -> Iterator[Run]:
        """Return ``writes`` as statements, in the order of their first appearance. A PUT is run as ``put_as``; None:
        as what is likely to be enough."""
        together: dict[Any, list[Write]] = {}
        for write in writes:
            kind = write.like or _shape(write)
            if kind in together:
                together[kind].append(write)
            else:
                together[kind] = [write]
        for kind, group in together.items():
            plan = self._plan(kind, group[0], put_as)
            has_tags = _has_tags(group[0])
            yield Run(plan.statement, list(map(plan.values, group)), plan.must_match, group, has_tags)
            if has_tags:
                yield from self._tags(group)

    def _plan(self, kind: str | Alike | Shape, write: Write, put_as: Change | None) -> Plan:
        change = write.change
        if change is Change.PUT:
            change = put_as or (Change.INSERT if write.is_new else Change.REPLACE)
        plan = self._plans.get((kind, change))
        if plan is None:
            plan = self._plans[kind, change] = Plan(self._database, write, change)
        return plan

    def _tags(self, group: Sequence[Write]) -> Iterator[Run]:
        """Return a call's tags, which stand in a table of their own, too."""
        if group[0].change is not Change.INSERT:
            yield Run(self._remove_tags, [write.key for write in group], must_match=False)
        rows: list[Sequence[Any]] = [(*write.key, tag) for write in group for tag in dict.fromkeys(_tags_of(write))]
        if rows:
            yield Run(self._add_tags, rows, must_match=False)

    @cached_property
    def _remove_tags(self) -> Prepared:
        tag = service_call_tags.c
        is_of_call = (tag.tenant_id == given("tenant"), tag.service_call_id == given("call"))
        return self._database.prepare_change(
            sa.delete(service_call_tags).where(*is_of_call), {"tenant": 0, "call": 1}
        )

    @cached_property
    def _add_tags(self) -> Prepared:
        values = {each.name: given(each.name, each.type) for each in service_call_tags.c}
        return self._database.prepare_insert(service_call_tags, values, {name: at for at, name in enumerate(values)})


def _source(write: Write) -> tuple[tuple[str, ...], Sequence[Value]]:
    """Return the fields that a write gives values to, and these."""
    if write.changes is None:
        return write.entity.names, write.row
    return tuple(write.changes), tuple(write.changes.values())


def _shape(write: Write) -> Shape:
    names, values = _source(write) if write.change is not Change.DELETE else ((), ())
    by_place = [
        (place, value.amount if type(value) is Plus else bool(value.plus_ms), type(value))
        for place, value in enumerate(values)
        if type(value) in _COMPUTED
    ]
    is_waiting = "timer_execute_at" not in names or values[names.index("timer_execute_at")] is not None
    conditions = [
        (each.name, each.comparison is Comparison.IS, each.value is None, each.value is DAMAGED)
        for each in write.conditions
    ]
    return (
        write.entity.name,
        write.change._value_,
        write.is_new,
        names,
        is_waiting,
        *by_place,
        *conditions,
    )


_COMPUTED = (Now, Plus)


def _has_tags(write: Write) -> bool:
    if write.entity is not SERVICE_CALL or write.change is Change.DELETE:
        return False
    return write.changes is None or "tags" in write.changes


def _tags_of(write: Write) -> tuple[str, ...]:
    tags = write.row[SERVICE_CALL.places["tags"]] if write.changes is None else write.changes["tags"]
    return tags or ()
