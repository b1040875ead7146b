"""Values of bind markers and literals: which type each has, and what it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import InvalidRequest
from cassandra.query import UNSET_VALUE

from tests.support.cql import column_types
from tests.support.cql.syntax import (
    Call,
    Collection,
    Delete,
    Insert,
    Literal,
    Marker,
    Relation,
    Select,
    Statement,
    Term,
    Update,
)
from tests.support.cql.tables import Table


@dataclass(frozen=True, slots=True)
class Unset:
    """Bound as UNSET_VALUE: the column stays as it is."""


UNSET = Unset()


@dataclass(frozen=True, slots=True)
class MarkerSpec:
    name: str
    type_name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The values of one execution. ``instant_ms``: what ``now()`` gives."""

    values: Sequence[Any] = ()
    instant_ms: int = 0

    def data(self, term: Term, column: str, type_name: str) -> bytes | Unset | None:
        """The serialised value of ``term`` for a column."""
        value = self.value(term, column, type_name)
        if value is None or isinstance(value, Unset):
            return value
        return column_types.serialised(column_types.type_of(type_name), value)

    def value(self, term: Term, column: str, type_name: str) -> Any:
        if isinstance(term, Marker):
            data = self.values[term.index] if term.index < len(self.values) else UNSET_VALUE
            if data is UNSET_VALUE:
                return UNSET
            return None if data is None else column_types.checked(column, type_name, data)
        if isinstance(term, Literal):
            return None if term.kind == "null" else column_types.literal_value(column, type_name, term)
        if isinstance(term, Collection):
            return column_types.collection_value(column, type_name, term)
        if isinstance(term, Call) and term.function in ("totimestamp", "currenttimestamp", "to_timestamp"):
            return column_types.read(
                column_types.type_of("timestamp"), self.instant_ms.to_bytes(8, "big", signed=True)
            )
        raise NotImplementedError(f"the model has no {term}")

    def key_value(self, term: Term, column: str, type_name: str) -> Any:
        """As ``value`` for a part of a key. Raises ``InvalidRequest`` for what no key can hold."""
        value = self.value(term, column, type_name)
        if value is None:
            raise InvalidRequest(f"Invalid null value in condition for column {column}")
        if isinstance(value, Unset):
            raise InvalidRequest(f"Invalid unset value for column {column}")
        if isinstance(value, list):
            return tuple(value)
        return value

    def whole(self, term: Term | None, name: str) -> int | None:
        """Of LIMIT, TTL and TIMESTAMP. None: not given, or unset."""
        if term is None:
            return None
        value = self.value(term, name, "bigint" if name == "[timestamp]" else "int")
        if value is None:
            raise InvalidRequest(f"Invalid null value of {name.strip('[]')}")
        return None if isinstance(value, Unset) else int(value)


def marker_specs(statement: Statement, table: Table) -> list[MarkerSpec]:
    """In the order of the markers. Raises ``InvalidRequest`` for a column that the table has not."""
    found: dict[int, MarkerSpec] = {}
    for term, name, type_name in _uses(statement, table):
        if isinstance(term, Marker):
            found[term.index] = MarkerSpec(term.name or name, type_name)
    return [found[index] for index in sorted(found)]


def _uses(statement: Statement, table: Table) -> Iterator[tuple[Any, str, str]]:
    """Every term with the name and the type that its marker has."""

    def of(column: str) -> tuple[str, str]:
        if column not in table.columns:
            raise InvalidRequest(f"Undefined column name {column} in table {table.keyspace}.{table.name}")
        return column, table.columns[column].type_name

    if isinstance(statement, Select):
        yield from _relation_uses(statement.where, of)
        yield statement.limit, "[limit]", "int"
        yield statement.per_partition_limit, "[per_partition_limit]", "int"
        return
    if isinstance(statement, Insert):
        for column, term in zip(statement.columns, statement.values, strict=True):
            yield term, *of(column)
    if isinstance(statement, Update | Delete):
        yield from _change_uses(statement, of)
    if isinstance(statement, Insert | Update):
        yield statement.ttl, "[ttl]", "int"
    if isinstance(statement, Insert | Update | Delete):
        yield statement.timestamp, "[timestamp]", "bigint"


def _change_uses(statement: Update | Delete, of: Any) -> Iterator[tuple[Any, str, str]]:
    if isinstance(statement, Update):
        for column, term in statement.assignments:
            yield term, *of(column)
    else:
        for column in statement.columns:
            of(column)
    yield from _relation_uses(statement.where, of)
    for condition in statement.conditions:
        for term in condition.values:
            yield term, *of(condition.column)


def _relation_uses(where: Sequence[Relation], of: Any) -> Iterator[tuple[Any, str, str]]:
    for relation in where:
        if relation.is_token:
            for column in relation.columns:
                of(column)
            yield relation.values[0], "partition key token", "bigint"
        elif relation.is_tuple and relation.operator == "IN":
            for members in relation.values:
                for column, term in zip(relation.columns, members, strict=True):
                    yield term, *of(column)
        elif relation.is_tuple:
            for column, term in zip(relation.columns, relation.values, strict=True):
                yield term, *of(column)
        elif relation.is_bare_in:
            name, type_name = of(relation.columns[0])
            yield relation.values[0], f"in({name})", f"list<{type_name}>"
        else:
            for term in relation.values:
                yield term, *of(relation.columns[0])
