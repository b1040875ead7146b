"""SELECT: rows in the order that Cassandra gives them, a page at a time.

https://cassandra.apache.org/doc: CQL, "DML", "SELECT": selection, WHERE, ORDER BY, LIMIT, PER PARTITION LIMIT.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import InvalidRequest

from tests.support.cql import column_types
from tests.support.cql.binding import Bound
from tests.support.cql.restrictions import Restrictions, restrictions_of
from tests.support.cql.syntax import Select, Selector
from tests.support.cql.tables import Cell, Column, Key, Partition, Table

_FUNCTIONS = ("count", "writetime", "ttl", "token", "totimestamp", "now")


@dataclass(frozen=True, slots=True)
class Rows:
    """``values`` are the driver's; ``paging_state`` None: this is the last page."""

    names: tuple[str, ...]
    types: tuple[Any, ...]
    values: list[tuple[Any, ...]]
    paging_state: bytes | None = None


@dataclass(frozen=True, slots=True)
class Found:
    partition: Partition
    clustering: Key | None
    cells: dict[str, Cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where a page ended, and how many rows there were, in all and of that partition."""

    partition_key: Key
    clustering: Key | None
    rows: int
    rows_of_partition: int


class Selection:
    """One SELECT on its table, checked."""

    def __init__(self, statement: Select, table: Table, bound: Bound) -> None:
        self._statement = statement
        self._table = table
        self._bound = bound
        if statement.allows_filtering:
            raise NotImplementedError("the model has no ALLOW FILTERING, which reads whatever the table holds")
        self.restrictions: Restrictions = restrictions_of(table, statement.where, bound)
        self._selectors = _selectors(statement, table)
        self._is_backwards = self._check_order()
        if statement.is_distinct:
            self._check_distinct()
        self._limit = self._positive(statement.limit, "[limit]")
        self._per_partition = self._positive(statement.per_partition_limit, "[per_partition_limit]")

    def partitions(self) -> list[Partition]:
        """Those that may have rows, in the order of the answer: as named by IN, else by token."""
        keys = self.restrictions.partition_keys
        if keys is not None:
            found = [self._table.partitions[key] for key in sorted(keys) if key in self._table.partitions]
        else:
            found = sorted(self._table.partitions.values(), key=lambda partition: partition.token)
        return [partition for partition in found if self.restrictions.tokens(partition.token)]

    def run(self, *, now_s: float, fetch_size: int | None, paging_state: bytes | None) -> Rows:
        names = tuple(name for name, _, _ in self._selectors)
        types = tuple(cql_type for _, cql_type, _ in self._selectors)
        if self._statement.order_by and self.restrictions.has_partition_in and fetch_size is not None:
            raise InvalidRequest(
                "Cannot page queries with both ORDER BY and a IN restriction on the partition key; you must either "
                "remove the ORDER BY or the IN and sort client side, or disable paging for this query"
            )
        if any(selector.function == "count" for _, _, selector in self._selectors):
            count = sum(1 for _ in self._limited(self._found(now_s, None), None))
            return Rows(names, types, [(count,)])
        after: Position | None = None if paging_state is None else pickle.loads(paging_state)
        values: list[tuple[Any, ...]] = []
        last: Position | None = None
        for found, position in self._limited(self._found(now_s, after), after):
            if fetch_size is not None and len(values) == fetch_size:
                return Rows(names, types, values, pickle.dumps(last))
            values.append(tuple(self._value(selector, found, now_s) for _, _, selector in self._selectors))
            last = position
        return Rows(names, types, values)

    # -- rows ------------------------------------------------------------------------------------------------

    def _found(self, now_s: float, after: Position | None) -> Iterator[Found]:
        """Every row behind ``after``."""
        is_reached = after is None
        for partition in self.partitions():
            key: Key | None = None
            if not is_reached:
                assert after is not None
                if self.restrictions.partition_keys is None:
                    if partition.token < self._table.token_of(after.partition_key):
                        continue
                elif partition.key < after.partition_key:
                    continue
                is_reached = True
                if partition.key == after.partition_key:
                    if after.clustering is None:
                        continue
                    key = after.clustering
            yield from self._rows_of(partition, now_s, key)

    def _rows_of(self, partition: Partition, now_s: float, after: Key | None) -> Iterator[Found]:
        static = partition.static_cells(now_s)
        if self._statement.is_distinct:
            rows = (partition.live_cells(row, now_s) for row in partition.rows.values())
            if static or any(cells is not None for cells in rows):
                yield Found(partition, None, static)
            return
        keys = list(self.restrictions.clustering.keys_in(partition, self._table))
        if self._is_backwards:
            keys.reverse()
        if after is not None:
            keys = [key for key in keys if self._is_behind(key, after)]
        is_empty = True
        for key in keys:
            cells = partition.live_cells(partition.rows[key], now_s)
            if cells is None:
                continue
            is_empty = False
            both = {**cells, **static}
            if all(self._has(both, column, value) for column, value in self.restrictions.others):
                yield Found(partition, key, both)
        is_restricted = self.restrictions.is_clustering_restricted or bool(self.restrictions.others)
        if static and is_empty and after is None and not is_restricted and self._table.clustering:
            yield Found(partition, None, static)

    def _is_behind(self, key: Key, after: Key) -> bool:
        mine, other = self._table.sort_key(key), self._table.sort_key(after)
        return mine < other if self._is_backwards else other < mine

    def _has(self, cells: dict[str, Cell], column: Column, value: Any) -> bool:
        cell = cells.get(column.name)
        return cell is not None and column_types.read(column.cql_type, cell.data) == value

    def _limited(self, rows: Iterator[Found], after: Position | None) -> Iterator[tuple[Found, Position]]:
        count = 0 if after is None else after.rows
        of_partition = 0 if after is None else after.rows_of_partition
        current = None if after is None else after.partition_key
        for found in rows:
            if found.partition.key != current:
                current, of_partition = found.partition.key, 0
            if self._per_partition is not None and of_partition >= self._per_partition:
                continue
            if self._limit is not None and count >= self._limit:
                return
            count += 1
            of_partition += 1
            yield (
                found,
                Position(
                    partition_key=found.partition.key,
                    clustering=found.clustering,
                    rows=count,
                    rows_of_partition=of_partition,
                ),
            )

    # -- values ----------------------------------------------------------------------------------------------

    def _value(self, selector: Selector, found: Found, now_s: float) -> Any:
        if selector.function is None:
            assert selector.column is not None
            return self._column_value(self._table.columns[selector.column], found)
        if selector.function == "token":
            return found.partition.token
        if selector.function == "totimestamp":
            data = self._bound.instant_ms.to_bytes(8, "big", signed=True)
            return column_types.read(column_types.type_of("timestamp"), data)
        assert selector.column is not None
        cell = found.cells.get(selector.column)
        if selector.function == "writetime":
            return None if cell is None else cell.written_us
        return None if cell is None or cell.expires_s is None else int(cell.expires_s - now_s)

    def _column_value(self, column: Column, found: Found) -> Any:
        if column.kind == "partition_key":
            return found.partition.key[self._table.partition_key.index(column)]
        if column.kind == "clustering":
            return None if found.clustering is None else found.clustering[self._table.clustering.index(column)]
        cell = found.cells.get(column.name)
        return None if cell is None else column_types.read(column.cql_type, cell.data)

    # -- checks ----------------------------------------------------------------------------------------------

    def _check_order(self) -> bool:
        """Whether the rows are read backwards."""
        order = self._statement.order_by
        if not order:
            return False
        if self.restrictions.partition_keys is None:
            raise InvalidRequest("ORDER BY is only supported when the partition key is restricted by an EQ or an IN.")
        if len(self.restrictions.partition_keys) > 1:
            raise NotImplementedError("the model does not merge the rows of several partitions for ORDER BY")
        clustering = self._table.clustering
        directions: set[bool] = set()
        for at, (name, is_descending) in enumerate(order):
            if name not in self._table.columns:
                raise InvalidRequest(f"Undefined column name {name} in table {self._table.name}")
            if at >= len(clustering) or clustering[at].name != name:
                raise InvalidRequest(
                    "Order by currently only supports the ordering of columns following their declared order in the "
                    "PRIMARY KEY"
                )
            directions.add(is_descending != clustering[at].is_descending)
        if len(directions) > 1:
            raise InvalidRequest("Unsupported order by relation")
        return directions.pop()

    def _check_distinct(self) -> None:
        for _, _, selector in self._selectors:
            column = self._table.columns.get(selector.column or "")
            if column is not None and column.kind not in ("partition_key", "static"):
                raise InvalidRequest(
                    "SELECT DISTINCT queries must only request partition key columns and/or static columns (not "
                    f"{column.name})"
                )
        if self.restrictions.is_clustering_restricted:
            raise InvalidRequest("SELECT DISTINCT with WHERE clause only supports restriction by partition key")

    def _positive(self, term: Any, name: str) -> int | None:
        value = self._bound.whole(term, name)
        if value is not None and value <= 0:
            raise InvalidRequest(
                f"{'LIMIT' if name == '[limit]' else 'PER PARTITION LIMIT'} must be strictly positive"
            )
        return value


def result_columns(statement: Select, table: Table) -> Sequence[tuple[str, Any]]:
    return [(name, cql_type) for name, cql_type, _ in _selectors(statement, table)]


def _selectors(statement: Select, table: Table) -> list[tuple[str, Any, Selector]]:
    """(name in the result, type, selector)"""
    if statement.selectors is None:
        return [(column.name, column.cql_type, Selector(column.name)) for column in table.ordered_columns()]
    return [_selector(selector, table) for selector in statement.selectors]


def _selector(selector: Selector, table: Table) -> tuple[str, Any, Selector]:
    function = selector.function
    if function is not None and function not in _FUNCTIONS:
        raise InvalidRequest(f"Unknown function '{function}'")
    if function in ("count", "token"):
        return selector.alias or (function if function == "count" else "system.token"), _type("bigint"), selector
    if function == "totimestamp":
        return selector.alias or "system.totimestamp(system.now())", _type("timestamp"), selector
    column = table.columns.get(selector.column or "")
    if column is None:
        raise InvalidRequest(f"Undefined column name {selector.column} in table {table.keyspace}.{table.name}")
    if function is None:
        return selector.alias or column.name, column.cql_type, selector
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"Cannot use selection function {function} on PRIMARY KEY part {column.name}")
    kind = "bigint" if function == "writetime" else "int"
    return selector.alias or f"{function}({column.name})", _type(kind), selector


def _type(name: str) -> Any:
    return column_types.type_of(name)
