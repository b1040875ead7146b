"""Rows by their keys."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final

from duetime.stores.backends.cassandra import layout
from duetime.stores.backends.cassandra.changes import Hint, at_cql
from duetime.stores.backends.cassandra.layout import PARTITION_COLUMNS, Partition
from duetime.stores.backends.cassandra.requests import Row as Columns
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.decoding import can_be_stored
from duetime.stores.entity import DAMAGED, Entity, Key, Row, Value

KEYS_PER_READ: Final = 50

Values = Mapping[str, Value]


class Reads:
    def __init__(self, session: CassandraSession) -> None:
        self._session = session

    def rows(self, entity: Entity, keys: Sequence[Key], names: Sequence[str]) -> list[Row | None]:
        found = self.find(entity, keys, names)
        return [None if (values := found.get(tuple(key))) is None else row_of(values, names) for key in keys]

    def find(self, entity: Entity, keys: Sequence[Key], names: Sequence[str]) -> dict[Key, Values]:
        """Return the values of ``names`` of those that there are."""
        wanted = {
            (layout.partition_of(entity, key), layout.place_of(entity, key)): tuple(key)
            for key in keys
            if can_be_stored(key)
        }
        columns = tuple(name for name in names if name not in entity.key)
        found: dict[Key, Values] = {}
        for rows, table in self._read_all(entity, list(wanted), columns):
            for row in rows:
                at = Partition(table, tuple(row[name] for name in PARTITION_COLUMNS[table]))
                key = wanted[at, row["place"]]
                if row["is_there"]:
                    found[key] = values_of(entity, key, names, row)
        return found

    def _read_all(
        self, entity: Entity, wanted: Sequence[tuple[Partition, bytes]], columns: tuple[str, ...]
    ) -> Iterator[tuple[list[Columns], str]]:
        """Rows of one partition are read together, and those that stand at one place of several."""
        in_partition: dict[Partition, list[bytes]] = {}
        for partition, place in wanted:
            in_partition.setdefault(partition, []).append(place)
        together: dict[tuple[str, tuple[Value, ...], bytes], list[Value]] = {}
        statements: list[Statement] = []
        tables: list[str] = []
        for partition, at in in_partition.items():
            if len(at) == 1:
                together.setdefault((partition.table, partition.values[:-1], at[0]), []).append(partition.values[-1])
                continue
            for some in _chunks(at):
                cql = _rows_cql(partition.table, columns, several="place")
                statements.append(Statement(cql, (*partition.values, entity.name, some)))
                tables.append(partition.table)
        for (table, start, place), ends in together.items():
            for some in _chunks(ends):
                several = PARTITION_COLUMNS[table][-1] if len(some) > 1 else ""
                cql = _rows_cql(table, columns, several=several)
                statements.append(Statement(cql, (*start, some if several else some[0], entity.name, place)))
                tables.append(table)
        return zip(self._session.read_each(statements), tables, strict=True)

    def find_settled(self, entity: Entity, key: Key, names: Sequence[str]) -> Values | None:
        """Return the row of a key after whatever change of it had been accepted."""
        partition, place = layout.partition_of(entity, key), layout.place_of(entity, key)
        columns = tuple(name for name in names if name not in entity.key)
        cql = _rows_cql(partition.table, columns, several="")
        rows = self._session.read(Statement(cql, (*partition.values, entity.name, place)), is_serial=True)
        return values_of(entity, key, names, rows[0]) if rows and rows[0]["is_there"] else None

    def fits(
        self, entity: Entity, names: tuple[str, ...] = (), found: dict[Key, Values] | None = None
    ) -> Callable[[Hint], bool]:
        """Tell whether the row that a hint leads to is on its path there, by a serial read. What is read of ``names``
        is added to ``found``."""

        def fit(hint: Hint) -> bool:
            wanted = tuple(dict.fromkeys((*names, *layout.fields_of(hint.path))))
            values = self.find_settled(entity, hint.target, wanted)
            if values is None:
                return False
            if found is not None:
                found[hint.target] = values
            return (hint.by, hint.place) in layout.places_on(entity, hint.path, values, has_hints=True)

        return fit


def values_of(entity: Entity, key: Key, names: Sequence[str], row: Columns) -> Values:
    at = dict(zip(entity.key, key, strict=True))
    return {name: at[name] if name in at else _value(entity, name, row[name]) for name in names}


def _value(entity: Entity, name: str, value: Value) -> Value:
    if value is None:
        return None if entity.by_name[name].is_optional else DAMAGED
    return tuple(value) if isinstance(value, list) else value


def row_of(values: Values, names: Sequence[str]) -> Row:
    return tuple([values[name] for name in names])


def _chunks(values: Sequence[Value]) -> Iterator[list[Value]]:
    for at in range(0, len(values), KEYS_PER_READ):
        yield list(values[at : at + KEYS_PER_READ])


@cache
def _rows_cql(table: str, columns: tuple[str, ...], *, several: str) -> str:
    """``several``: the column that is one of several values."""
    chosen = ", ".join((*PARTITION_COLUMNS[table], "place", "is_there", *columns))
    found_by = at_cql(table).replace(f"{several} = ?", f"{several} IN ?") if several else at_cql(table)
    return f"SELECT {chosen} FROM {table} WHERE {found_by}"
