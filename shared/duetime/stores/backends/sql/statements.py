"""Writes as statements: those of one shape are run together, and each tells how many rows it changed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter, itemgetter
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
    rows: list[tuple[Any, ...]]
    must_match: bool = True
    writes: Sequence[Write] = ()
    has_tags: bool = False


class Plan:
    """The statement of a shape, and how the values of its writes are got. Made of the first of them."""

    def __init__(self, database: Database, first: Write, change: Change) -> None:
        alike, places = first.like if isinstance(first.like, Alike) else None, first.entity.places
        part = alike if change is Change.REPLACE else None
        (write,) = spelled_out([first])
        if part is not None:
            write = write._replace(changes={name: write.row[places[name]] for name in part.changed})
        self.must_match = change is not Change.DELETE or bool(write.conditions)
        self._database = database
        self._mapping = MAPPINGS[write.entity.name]
        self._is_change, self._is_insert = write.changes is not None, change is Change.INSERT
        self._new: list[tuple[int, Encode | None]] = []
        self._old: list[tuple[int, Encode | None]] = []
        self._names: list[str] = []
        found_by = () if self._is_insert else self._mapping.key_names(write.conditions)
        where = [] if self._is_insert else self._where(write, found_by)
        names, self._names = self._names, []
        values = {} if change is Change.DELETE else self._values(write, found_by)
        table = self._mapping.table
        if change is Change.INSERT:
            statement: Any = database.insert_if_absent(table).values(values)
        elif change is Change.DELETE:
            statement = sa.delete(table).where(*where)
        else:
            statement = sa.update(table).where(*where).values(values)
        self.statement = database.prepare(statement, *self._names, *names)
        self._key = self._mapping.key_reader(write.conditions)
        self._is_alike = alike is not None
        num_changed = 0 if alike is None else len(alike.changed)
        if part is not None:
            self._new = [(places[part.changed[place]], encode) for place, encode in self._new]
        self._pick = _picker([place for place, _ in self._new])
        self._pick_old = _picker([num_changed + place for place, _ in self._old])
        self._converts, self._converts_old = _converts(self._new), _converts(self._old)

    def values(self, write: Write) -> tuple[Any, ...]:
        """The values of the statement for a write."""
        changes = write.changes
        new = self._pick(write.row if changes is None else tuple(changes.values()))
        if self._converts:
            new = _converted(new, self._converts)
        if self._is_insert:
            return new
        if not self._old:
            return new + self._key(write.key)
        old = self._pick_old(write.row if self._is_alike else [each.value for each in write.conditions])
        if self._converts_old:
            old = _converted(old, self._converts_old)
        return new + self._key(write.key) + old

    def _values(self, write: Write, found_by: Sequence[str]) -> dict[str, Any]:
        """What columns become. They stand in the order of the table, as SQLAlchemy writes them."""
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
        self._names.append(f"new_{name}")
        if isinstance(value, Now):
            self._new.append((place, _plus_ms))
            return now.epoch_ms(given_count(f"new_{name}"))
        self._new.append((place, mapping.writes.get(name)))
        return given(f"new_{name}")

    def _where(self, write: Write, found_by: Sequence[str]) -> list[Any]:
        columns = self._mapping.table.c
        where = [columns[name] == given(f"key_{name}") for name in found_by]
        self._names += [f"key_{name}" for name in found_by]
        where += self._mapping.is_implied_by(write.conditions)
        return where + [self._condition(place, each) for place, each in enumerate(write.conditions)]

    def _condition(self, place: int, condition: Condition) -> Any:
        column = self._mapping.table.c[condition.name]
        if condition.value is DAMAGED:
            return sa.true()  # a typed column holds no such value
        if condition.comparison is Comparison.IS_PAST:
            return sa.or_(column.is_(None), column <= self._database.db_now.epoch_ms())
        if condition.value is None:
            return column.is_(None)
        self._old.append((place, self._mapping.writes.get(condition.name)))
        self._names.append(f"old_{condition.name}")
        return column == given(f"old_{condition.name}")


class Statements:
    """Compiled when they are first run, and kept: a store has a few dozen shapes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._plans: dict[Any, Plan] = {}

    def runs(self, writes: Sequence[Write], *, put_as: Change | None = None) -> Iterator[Run]:
        """``writes`` as statements, in the order of their first appearance. A PUT is run as ``put_as``; None: as what
        is likely to be enough."""
        for plan, group in self._together(writes, put_as).items():
            has_tags = _has_tags(group[0])
            yield Run(plan.statement, list(map(plan.values, group)), plan.must_match, group, has_tags)
            if has_tags:
                yield from self._tags(group)

    def _together(self, writes: Sequence[Write], put_as: Change | None) -> dict[Plan, list[Write]]:
        like = writes[0].like if writes else None
        if like is not None and all(write.like is like for write in writes):
            return {self._plan(writes[0], put_as): list(writes)}
        together: dict[Plan, list[Write]] = {}
        for write in writes:
            plan = self._plan(write, put_as)
            if plan in together:
                together[plan].append(write)
            else:
                together[plan] = [write]
        return together

    def _plan(self, write: Write, put_as: Change | None) -> Plan:
        change = write.change
        if change is Change.PUT:
            change = put_as or (Change.INSERT if write.is_new else Change.REPLACE)
        shape = (write.like or _shape(write), change._value_)
        plan = self._plans.get(shape)
        if plan is None:
            plan = self._plans[shape] = Plan(self._database, write, change)
        return plan

    def _tags(self, group: Sequence[Write]) -> Iterator[Run]:
        """A call's tags, which stand in a table of their own, too."""
        if group[0].change is not Change.INSERT:
            yield Run(self._remove_tags, [write.key for write in group], must_match=False)
        rows = [(*write.key, tag) for write in group for tag in dict.fromkeys(_tags_of(write))]
        if rows:
            yield Run(self._add_tags, rows, must_match=False)

    @cached_property
    def _remove_tags(self) -> Prepared:
        tag = service_call_tags.c
        is_of_call = (tag.tenant_id == given("tenant"), tag.service_call_id == given("call"))
        return self._database.prepare(sa.delete(service_call_tags).where(*is_of_call), "tenant", "call")

    @cached_property
    def _add_tags(self) -> Prepared:
        names = ("tenant_id", "service_call_id", "tag")
        add = self._database.insert_if_absent(service_call_tags).values({name: given(name) for name in names})
        return self._database.prepare(add, *names)


def _source(write: Write) -> tuple[tuple[str, ...], Sequence[Value]]:
    """The fields that a write gives values to, and these."""
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
        names,
        is_waiting,
        *by_place,
        *conditions,
    )


_COMPUTED = (Now, Plus)


def _picker(places: list[int]) -> Callable[[Sequence[Value]], tuple[Any, ...]]:
    """What takes the values at ``places``."""
    if len(places) > 1:
        return itemgetter(*places)
    if not places:
        return lambda _: ()
    (place,) = places
    return lambda values: (values[place],)


def _converts(places: list[tuple[int, Encode | None]]) -> list[tuple[int, Encode]]:
    return [(at, convert) for at, (_, convert) in enumerate(places) if convert is not None]


def _converted(values: tuple[Any, ...], converts: list[tuple[int, Encode]]) -> tuple[Any, ...]:
    converted = list(values)
    for at, convert in converts:
        if converted[at] is not None:
            converted[at] = convert(converted[at])
    return tuple(converted)


def _has_tags(write: Write) -> bool:
    if write.entity is not SERVICE_CALL or write.change is Change.DELETE:
        return False
    return write.changes is None or "tags" in write.changes


def _tags_of(write: Write) -> tuple[str, ...]:
    tags = write.row[SERVICE_CALL.places["tags"]] if write.changes is None else write.changes["tags"]
    return tags or ()
