"""INSERT, UPDATE and DELETE: what they are checked for, what they change, on what condition.

https://cassandra.apache.org/doc: CQL, "DML", "INSERT", "UPDATE", "DELETE", "BATCH"; "Lightweight transactions".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cassandra import InvalidRequest

from tests.support.cql import column_types
from tests.support.cql.binding import Bound, Unset
from tests.support.cql.restrictions import ClusteringRange, check_partition_key, restrictions_of
from tests.support.cql.syntax import Condition, Delete, Insert, Mutation, Update
from tests.support.cql.tables import Cell, Column, Key, Partition, RangeDeletion, Row, Table

MAX_TTL_SECONDS = 20 * 365 * 24 * 3600
MAX_EXPIRY_SECONDS = 2**31 - 1
"""Since 1970 (NEWS.txt of 3.11.2, "Maximum TTL Expiration Date Notice"; 5.0 with ``storage_compatibility_mode: NONE``
has more)."""
Change = Callable[[Partition, int, float], None]
"""Carried out on a partition with the write's time in microseconds and the server's clock in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What IF asks of one row, or of the static columns (``clustering`` None).

    ``must_exist``: True for IF EXISTS, False for IF NOT EXISTS, None for ``conditions``.
    """

    clustering: Key | None
    must_exist: bool | None
    conditions: tuple[tuple[Column, str, tuple[Any, ...]], ...] = ()

    def holds(self, partition: Partition, now_s: float) -> bool:
        cells = cells_of(partition, self.clustering, now_s)
        if self.must_exist is not None:
            return (cells is not None) == self.must_exist
        static = partition.static_cells(now_s)
        for column, operator, expected in self.conditions:
            cell = (static if column.kind == "static" else cells or {}).get(column.name)
            stored = None if cell is None else column_types.read(column.cql_type, cell.data)
            if not _compare(column.name, stored, operator, expected):
                return False
        return True


@dataclass(frozen=True, slots=True, kw_only=True)
class Write:
    table: Table
    partition_keys: tuple[Key, ...]
    change: Change
    check: Check | None
    timestamp_us: int | None
    size_bytes: int
    has_clustering_in: bool = False


def cells_of(partition: Partition, clustering: Key | None, now_s: float) -> dict[str, Cell] | None:
    """The live cells of a row; None when there is none. ``clustering`` None: the static ones."""
    if clustering is None:
        return partition.static_cells(now_s) or None
    row = partition.rows.get(clustering)
    return None if row is None else partition.live_cells(row, now_s)


def planned(statement: Mutation, table: Table, bound: Bound) -> Write:
    """Raises ``InvalidRequest`` for what Cassandra refuses."""
    is_conditional = _is_conditional(statement)
    if is_conditional and statement.timestamp is not None:
        raise InvalidRequest("Cannot provide custom timestamp for conditional updates")
    if isinstance(statement, Insert):
        return _insert(statement, table, bound)
    restrictions = restrictions_of(table, statement.where, bound)
    if restrictions.partition_keys is None:
        missing = [column.name for column in table.partition_key]
        raise InvalidRequest(f"Some partition key parts are missing: {', '.join(missing)}")
    if restrictions.others:
        names = ", ".join(column.name for column, _ in restrictions.others)
        raise InvalidRequest(f"Non PRIMARY KEY columns found in where clause: {names}")
    if is_conditional and restrictions.has_partition_in:
        raise InvalidRequest("IN on the partition key is not supported with conditional updates")
    if isinstance(statement, Update):
        return _update(statement, table, bound, restrictions.partition_keys, restrictions.clustering)
    return _delete(statement, table, bound, restrictions.partition_keys, restrictions.clustering)


def _is_conditional(statement: Mutation) -> bool:
    if isinstance(statement, Insert):
        return statement.if_not_exists
    return statement.if_exists or bool(statement.conditions)


def _insert(statement: Insert, table: Table, bound: Bound) -> Write:
    given = dict(zip(statement.columns, statement.values, strict=True))
    for name in given:
        _column(table, name)
    missing = [column.name for column in table.partition_key if column.name not in given]
    if missing:
        raise InvalidRequest(f"Some partition key parts are missing: {', '.join(missing)}")
    others = [name for name in given if table.columns[name].kind in ("regular", "static")]
    is_static = _is_static_only(table, others, given)
    missing = [column.name for column in table.clustering if column.name not in given]
    if missing and not is_static:
        raise InvalidRequest(f"Some clustering keys are missing: {', '.join(missing)}")
    key = _key(table.partition_key, given, bound)
    check_partition_key(table, key)
    clustering = None if is_static else _key(table.clustering, given, bound)
    cells = _cells(table, {name: given[name] for name in others}, bound)
    ttl_seconds = _ttl(statement.ttl, table, bound)

    def change(partition: Partition, written_us: int, now_s: float) -> None:
        expires_s = None if not ttl_seconds else now_s + ttl_seconds
        if clustering is not None:
            row = partition.row(clustering, table.sort_key(clustering))
            row.write_marker(Cell(b"", written_us, expires_s))
        _write_cells(table, partition, clustering, cells, written_us, expires_s)

    check = Check(clustering=clustering, must_exist=False) if statement.if_not_exists else None
    return Write(
        table=table,
        partition_keys=(key,),
        change=change,
        check=check,
        timestamp_us=bound.whole(statement.timestamp, "[timestamp]"),
        size_bytes=_size(key, clustering or (), cells),
    )


def _is_static_only(table: Table, others: Sequence[str], given: dict[str, Any]) -> bool:
    if not table.clustering or any(column.name in given for column in table.clustering):
        return False
    return bool(others) and all(table.columns[name].kind == "static" for name in others)


def _key(columns: Sequence[Column], given: dict[str, Any], bound: Bound) -> Key:
    return tuple(bound.key_value(given[column.name], column.name, column.type_name) for column in columns)


def _update(
    statement: Update, table: Table, bound: Bound, partition_keys: tuple[Key, ...], where: ClusteringRange
) -> Write:
    assigned = dict(statement.assignments)
    if len(assigned) != len(statement.assignments):
        raise InvalidRequest("Multiple incompatible setting of one column")
    for name in assigned:
        if _column(table, name).kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"PRIMARY KEY part {name} found in SET part")
    cells = _cells(table, assigned, bound)
    keys = _whole_keys(statement, table, where, list(assigned))
    ttl_seconds = _ttl(statement.ttl, table, bound)

    def change(partition: Partition, written_us: int, now_s: float) -> None:
        expires_s = None if not ttl_seconds else now_s + ttl_seconds
        for key in keys:
            _write_cells(table, partition, key, cells, written_us, expires_s)

    return Write(
        table=table,
        partition_keys=partition_keys,
        change=change,
        check=_check(statement, table, bound, keys),
        timestamp_us=bound.whole(statement.timestamp, "[timestamp]"),
        size_bytes=_size(partition_keys[0], keys[0] or (), cells),
        has_clustering_in=len(where.prefixes) > 1,
    )


def _whole_keys(
    statement: Update | Delete, table: Table, where: ClusteringRange, names: Sequence[str]
) -> list[Key | None]:
    """The rows that are named; [None] for the static columns."""
    of_static = bool(names) and all(table.columns[name].kind == "static" for name in names)
    if table.clustering and of_static and where.depth == 0:
        if any(table.columns[each.column].kind != "static" for each in statement.conditions):
            raise InvalidRequest("Some clustering keys are missing for a condition on a column that is not static")
        return [None]
    if where.lower is not None or where.upper is not None:
        raise InvalidRequest("Slice restrictions are not supported on the clustering columns in UPDATE statements")
    if not where.has_keys_of(table):
        missing = [column.name for column in table.clustering[where.depth :]]
        raise InvalidRequest(f"Some clustering keys are missing: {', '.join(missing)}")
    if len(where.prefixes) > 1 and _is_conditional(statement):
        raise InvalidRequest("IN on the clustering key columns is not supported with conditional updates")
    return list(where.prefixes)


def _delete(
    statement: Delete, table: Table, bound: Bound, partition_keys: tuple[Key, ...], where: ClusteringRange
) -> Write:
    for name in statement.columns:
        if _column(table, name).kind in ("partition_key", "clustering"):
            raise InvalidRequest(f"Invalid identifier {name} for deletion (should not be a PRIMARY KEY part)")
    is_whole = where.has_keys_of(table)
    keys: list[Key | None] = []
    if statement.columns or (is_whole and table.clustering) or not table.clustering:
        keys = _whole_keys(statement, table, where, statement.columns)
    elif statement.if_exists or any(_column(table, each.column).kind != "static" for each in statement.conditions):
        raise InvalidRequest(
            "DELETE statements must restrict all PRIMARY KEY columns with equality relations in order to use IF "
            "condition on non static columns"
        )

    def change(partition: Partition, written_us: int, _now_s: float) -> None:
        if statement.columns:
            gone = dict.fromkeys(statement.columns)
            for key in keys:
                _write_cells(table, partition, key, gone, written_us, None)
        elif where.depth == 0 and where.lower is None and where.upper is None:
            partition.deleted_us = max(partition.deleted_us, written_us)
        elif keys:
            for key in keys:
                assert key is not None
                row = partition.row(key, table.sort_key(key))
                row.deleted_us = max(row.deleted_us, written_us)
        else:
            partition.ranges.append(RangeDeletion(where.covers, written_us))

    return Write(
        table=table,
        partition_keys=partition_keys,
        change=change,
        check=_check(statement, table, bound, keys or [None]),
        timestamp_us=bound.whole(statement.timestamp, "[timestamp]"),
        size_bytes=_size(partition_keys[0], (), {}),
        has_clustering_in=len(where.prefixes) > 1,
    )


def _check(statement: Update | Delete, table: Table, bound: Bound, keys: Sequence[Key | None]) -> Check | None:
    if statement.if_exists:
        return Check(clustering=keys[0], must_exist=True)
    if not statement.conditions:
        return None
    return Check(
        clustering=keys[0],
        must_exist=None,
        conditions=tuple(_condition(each, table, bound) for each in statement.conditions),
    )


def _condition(condition: Condition, table: Table, bound: Bound) -> tuple[Column, str, tuple[Any, ...]]:
    column = _column(table, condition.column)
    if column.kind in ("partition_key", "clustering"):
        raise InvalidRequest(f"PRIMARY KEY column '{column.name}' cannot have IF conditions")
    values = tuple(bound.value(term, column.name, column.type_name) for term in condition.values)
    for value in values:
        if isinstance(value, Unset):
            raise InvalidRequest(f"Invalid 'unset' value in condition for column {column.name}")
        if value is None and condition.operator not in ("=", "!=", "IN"):
            raise InvalidRequest(f'Invalid comparison with null for operator "{condition.operator}"')
    return column, condition.operator, values


def _compare(name: str, stored: Any, operator: str, expected: tuple[Any, ...]) -> bool:
    if operator == "IN":
        return stored in expected
    (value,) = expected
    if operator == "=":
        return bool(stored == value)
    if operator == "!=":
        return bool(stored != value)
    if stored is None:
        return False
    results = {"<": stored < value, "<=": stored <= value, ">": stored > value, ">=": stored >= value}
    return bool(results[operator])


def _column(table: Table, name: str) -> Column:
    found = table.columns.get(name)
    if found is None:
        raise InvalidRequest(f"Undefined column name {name} in table {table.keyspace}.{table.name}")
    return found


def _cells(table: Table, given: dict[str, Any], bound: Bound) -> dict[str, bytes | None]:
    """What is to be written; what is unset is left out. An empty collection that is not frozen is no value."""
    found: dict[str, bytes | None] = {}
    for name, term in given.items():
        column = table.columns[name]
        data = bound.data(term, name, column.type_name)
        if isinstance(data, Unset):
            continue
        if data is not None and column_types.is_collection(column.type_name):
            data = data if column_types.read(column.cql_type, data) else None
        found[name] = data
    return found


def _write_cells(
    table: Table,
    partition: Partition,
    clustering: Key | None,
    cells: dict[str, bytes | None],
    written_us: int,
    expires_s: float | None,
) -> None:
    row: Row | None = None
    for name, data in cells.items():
        cell = Cell(data, written_us, None if data is None else expires_s)
        if table.columns[name].kind == "static":
            partition.static.write(name, cell)
            continue
        assert clustering is not None
        row = row or partition.row(clustering, table.sort_key(clustering))
        row.write(name, cell)


def _ttl(term: Any, table: Table, bound: Bound) -> int:
    seconds = bound.whole(term, "[ttl]")
    if seconds is None:
        return table.default_ttl_seconds
    if seconds < 0:
        raise InvalidRequest(f"A TTL must be greater or equal to 0, but was {seconds}")
    if seconds > MAX_TTL_SECONDS:
        raise InvalidRequest(f"ttl is too large. requested ({seconds}) maximum ({MAX_TTL_SECONDS})")
    if seconds > 0 and bound.instant_ms // 1000 + seconds > MAX_EXPIRY_SECONDS:
        raise InvalidRequest(
            f"Request on table {table.keyspace}.{table.name} with ttl of {seconds} seconds exceeds maximum supported "
            "expiration date of 2038-01-19T03:14:06+00:00."
        )
    return seconds


def _size(partition_key: Key, clustering: Key, cells: dict[str, bytes | None]) -> int:
    keys = sum(len(str(part)) for part in (*partition_key, *clustering))
    return keys + sum(len(data) for data in cells.values() if data is not None)
