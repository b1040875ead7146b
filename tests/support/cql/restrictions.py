"""Which partitions and rows a WHERE clause names, and what Cassandra does not let it name.

https://cassandra.apache.org/doc: CQL, "DML", "The WHERE clause", "Allow filtering", "Multi-column relations".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from cassandra import InvalidRequest

from tests.support.cql.binding import Bound
from tests.support.cql.syntax import Relation
from tests.support.cql.tables import TOP, Column, Key, Partition, Table

MAX_IN = 100
"""More members of IN than this are refused: a guardrail that operators set, and Duetime stays below."""
_FILTERING = (
    "Cannot execute this query as it might involve data filtering and thus may have unpredictable performance. "
    "If you want to execute this query despite the performance unpredictability, use ALLOW FILTERING"
)


@dataclass(frozen=True, slots=True)
class Edge:
    values: Key
    is_inclusive: bool


@dataclass(frozen=True, slots=True)
class ClusteringRange:
    """``prefixes``: the beginnings that EQ and IN allow, in no order. ``lower`` and ``upper`` bound what follows."""

    prefixes: tuple[Key, ...]
    lower: Edge | None = None
    upper: Edge | None = None

    @property
    def depth(self) -> int:
        return len(self.prefixes[0]) if self.prefixes else 0

    def has_keys_of(self, table: Table) -> bool:
        """Every prefix is a whole clustering key."""
        return self.lower is None and self.upper is None and self.depth == len(table.clustering)

    def covers(self, key: Key) -> bool:
        depth = self.depth
        if key[:depth] not in self.prefixes:
            return False
        rest = key[depth:]
        lower, upper = self.lower, self.upper
        if lower is not None:
            part = rest[: len(lower.values)]
            if part < lower.values or (part == lower.values and not lower.is_inclusive):
                return False
        if upper is not None:
            part = rest[: len(upper.values)]
            if part > upper.values or (part == upper.values and not upper.is_inclusive):
                return False
        return True

    def keys_in(self, partition: Partition, table: Table) -> Iterator[Key]:
        """The clustering keys of a partition that are covered, in the table's order."""
        for prefix in sorted(set(self.prefixes), key=table.sort_key):
            start, end = self._bounds(prefix, table)
            for key in partition.keys_between(start, end):
                if self.covers(key):
                    yield key

    def _bounds(self, prefix: Key, table: Table) -> tuple[Key, Key]:
        start, end = table.sort_key(prefix), (*table.sort_key(prefix), TOP)
        behind = table.clustering[len(prefix) :]
        longest = max((len(edge.values) for edge in (self.lower, self.upper) if edge is not None), default=0)
        directions = {column.is_descending for column in behind[:longest]}
        if len(directions) != 1:  # none, or no one range of the order: every row is looked at
            return start, end
        first, last = (self.upper, self.lower) if directions == {True} else (self.lower, self.upper)
        if first is not None:
            start = (*table.sort_key(prefix + first.values), *(() if first.is_inclusive else (TOP,)))
        if last is not None:
            end = (*table.sort_key(prefix + last.values), *((TOP,) if last.is_inclusive else ()))
        return start, end


@dataclass(frozen=True, slots=True)
class Restrictions:
    """``partition_keys`` None: every partition. ``tokens``: what ``token(...)`` allows."""

    partition_keys: tuple[Key, ...] | None
    clustering: ClusteringRange
    is_clustering_restricted: bool
    has_partition_in: bool
    tokens: Callable[[int], bool]
    others: tuple[tuple[Column, Any], ...] = ()
    """Indexed columns and the values that they must have."""


def restrictions_of(table: Table, where: Sequence[Relation], bound: Bound) -> Restrictions:
    """Raises ``InvalidRequest`` for what Cassandra refuses without ALLOW FILTERING."""
    by_column: dict[str, list[Relation]] = defaultdict(list)
    for relation in where:
        if relation.is_token:
            continue
        for name in relation.columns:
            if name not in table.columns:
                raise InvalidRequest(f"Undefined column name {name} in table {table.keyspace}.{table.name}")
            by_column[name].append(relation)
    _check_one_equal(by_column)
    partition_keys, has_in = _partition_keys(table, by_column, bound)
    clustering = _clustering_range(table, by_column, bound)
    others = _indexed(table, by_column, bound)
    is_restricted = any(column.name in by_column for column in table.clustering)
    has_key_part = is_restricted or any(column.name in by_column for column in table.partition_key)
    if partition_keys is None and not others and has_key_part:
        raise InvalidRequest(_FILTERING)
    if len(others) > 1 or (others and is_restricted):
        raise InvalidRequest(_FILTERING)
    return Restrictions(
        partition_keys, clustering, is_restricted, has_in, _tokens(table, where, bound), tuple(others)
    )


def _check_one_equal(by_column: dict[str, list[Relation]]) -> None:
    for name, relations in by_column.items():
        operators = [relation.operator for relation in relations]
        if "!=" in operators:
            raise InvalidRequest(f"Unsupported != relation: {name}")
        if len(relations) > 1 and any(operator in ("=", "IN") for operator in operators):
            raise InvalidRequest(f"{name} cannot be restricted by more than one relation if it includes an Equal")


def members_of(relation: Relation, column: Column, bound: Bound) -> list[Any]:
    """The values of ``=`` or ``IN`` of one column."""
    if relation.is_bare_in:
        values = bound.key_value(relation.values[0], column.name, f"list<{column.type_name}>")
        members = list(values)
    else:
        members = [bound.key_value(term, column.name, column.type_name) for term in relation.values]
    if len(members) > MAX_IN:
        raise InvalidRequest(f"Guardrail in_select_cartesian_product violated: {len(members)} members of IN")
    return members


def _partition_keys(
    table: Table, by_column: dict[str, list[Relation]], bound: Bound
) -> tuple[tuple[Key, ...] | None, bool]:
    choices: list[list[Any]] = []
    has_in = False
    for column in table.partition_key:
        relations = by_column.get(column.name)
        if not relations:
            return None, False
        relation = relations[0]
        if relation.is_tuple:
            raise InvalidRequest(f"Multi-column relations can only be applied to clustering columns: {column.name}")
        if relation.operator not in ("=", "IN"):
            raise InvalidRequest(
                "Only EQ and IN relation are supported on the partition key (unless you use the token() function)"
            )
        has_in |= relation.operator == "IN"
        choices.append(members_of(relation, column, bound))
    keys = tuple(dict.fromkeys(product(*choices)))
    if len(keys) > MAX_IN:
        raise InvalidRequest(f"Guardrail partition_keys_in_select violated: {len(keys)} partitions of IN")
    for key in keys:
        check_partition_key(table, key)
    return keys, has_in


def check_partition_key(table: Table, key: Key) -> None:
    if len(key) == 1 and key[0] in ("", b""):
        raise InvalidRequest("Key may not be empty")
    length = sum(
        len(part.encode()) if isinstance(part, str) else len(part) for part in key if hasattr(part, "__len__")
    )
    if length > 65535:
        raise InvalidRequest(f"Key length of {length} is longer than maximum of 65535")


def _clustering_range(table: Table, by_column: dict[str, list[Relation]], bound: Bound) -> ClusteringRange:
    prefixes: list[Key] = [()]
    columns = table.clustering
    at = 0
    lower: Edge | None = None
    upper: Edge | None = None
    while at < len(columns) and (relations := by_column.get(columns[at].name)):
        relation = relations[0]
        _check_starts_here(relation, columns, at)
        width = len(relation.columns)
        if relation.operator in ("=", "IN"):
            parts = _choices(relation, columns[at : at + width], bound)
            prefixes = [(*prefix, *part) for prefix in prefixes for part in parts]
            at += width
            continue
        lower, upper = _edges(relations, columns, at, bound)
        at += max(len(each.columns) for each in relations)
        break
    for column in columns[at:]:
        if column.name in by_column:
            before = columns[columns.index(column) - 1].name
            why = "is restricted by a non-EQ relation" if lower or upper else "is not restricted"
            raise InvalidRequest(
                f'PRIMARY KEY column "{column.name}" cannot be restricted (preceding column "{before}" {why})'
            )
    return ClusteringRange(tuple(prefixes), lower, upper)


def _check_starts_here(relation: Relation, columns: Sequence[Column], at: int) -> None:
    expected = tuple(column.name for column in columns[at : at + len(relation.columns)])
    if relation.columns != expected:
        raise InvalidRequest(f"Clustering columns must appear in the PRIMARY KEY order: {relation.columns}")


def _choices(relation: Relation, columns: Sequence[Column], bound: Bound) -> list[Key]:
    if not relation.is_tuple:
        return [(member,) for member in dict.fromkeys(members_of(relation, columns[0], bound))]
    tuples = relation.values if relation.operator == "IN" else (relation.values,)
    return [
        tuple(
            bound.key_value(term, column.name, column.type_name) for term, column in zip(terms, columns, strict=True)
        )
        for terms in tuples
    ]


def _edges(
    relations: Sequence[Relation], columns: Sequence[Column], at: int, bound: Bound
) -> tuple[Edge | None, Edge | None]:
    lower: Edge | None = None
    upper: Edge | None = None
    for relation in relations:
        _check_starts_here(relation, columns, at)
        named = zip(relation.values, columns[at:], strict=False)
        values = tuple(bound.key_value(term, column.name, column.type_name) for term, column in named)
        edge = Edge(values, relation.operator in (">=", "<="))
        if relation.operator in (">", ">="):
            if lower is not None:
                raise InvalidRequest(f"More than one restriction was found for the start bound on {relation.columns}")
            lower = edge
        else:
            if upper is not None:
                raise InvalidRequest(f"More than one restriction was found for the end bound on {relation.columns}")
            upper = edge
    return lower, upper


def _indexed(table: Table, by_column: dict[str, list[Relation]], bound: Bound) -> list[tuple[Column, Any]]:
    found: list[tuple[Column, Any]] = []
    for name, relations in by_column.items():
        column = table.columns[name]
        if column.kind in ("partition_key", "clustering"):
            continue
        if name not in table.indexed or relations[0].operator != "=":
            raise InvalidRequest(_FILTERING)
        found.append((column, bound.key_value(relations[0].values[0], name, column.type_name)))
    return found


def _tokens(table: Table, where: Sequence[Relation], bound: Bound) -> Callable[[int], bool]:
    edges: list[tuple[str, int]] = []
    for relation in where:
        if not relation.is_token:
            continue
        if relation.columns != tuple(column.name for column in table.partition_key):
            raise InvalidRequest(
                "The token() function must be applied to all partition key components or none of them"
            )
        edges.append((relation.operator, bound.key_value(relation.values[0], "partition key token", "bigint")))

    def allows(token: int) -> bool:
        tests = {
            "=": lambda edge: token == edge,
            "<": lambda edge: token < edge,
            "<=": lambda edge: token <= edge,
            ">": lambda edge: token > edge,
            ">=": lambda edge: token >= edge,
        }
        return all(tests[operator](edge) for operator, edge in edges)

    return allows
