"""Tables and what they hold: partitions of rows of cells, each with the time it was written.

The rules are those of https://cassandra.apache.org/doc ("Dynamo", "Storage engine", "Tombstones", CQL "DML"):
the later write of a cell wins, at one time a deletion wins over a value, a deletion hides what is not later than it.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from cassandra.metadata import Murmur3Token

from tests.support.cql.column_types import serialised, type_of

NEVER = -(2**63)
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """``kind``: partition_key, clustering, static, regular."""

    name: str
    type_name: str
    kind: str
    is_descending: bool = False

    @property
    def cql_type(self) -> Any:
        return type_of(self.type_name)


@dataclass(frozen=True, slots=True)
class Cell:
    """``data`` None: a deletion. ``expires_s``: the second at which it is gone, None: never."""

    data: bytes | None
    written_us: int
    expires_s: float | None = None

    def beats(self, other: Cell) -> bool:
        if self.written_us != other.written_us:
            return self.written_us > other.written_us
        if self.data is None or other.data is None:
            return self.data is None
        if (self.expires_s is None) != (other.expires_s is None):
            return self.expires_s is not None
        return self.data >= other.data

    def is_live(self, deleted_us: int, now_s: float) -> bool:
        return (
            self.data is not None
            and self.written_us > deleted_us
            and (self.expires_s is None or self.expires_s > now_s)
        )


@dataclass(slots=True)
class Row:
    """``marker``: what INSERT leaves, which keeps a row without values in being; UPDATE leaves none."""

    key: Key
    marker: Cell | None = None
    deleted_us: int = NEVER
    cells: dict[str, Cell] = field(default_factory=dict)

    def write(self, column: str, cell: Cell) -> None:
        stored = self.cells.get(column)
        if stored is None or cell.beats(stored):
            self.cells[column] = cell

    def write_marker(self, cell: Cell) -> None:
        if self.marker is None or cell.beats(self.marker):
            self.marker = cell


@dataclass(frozen=True, slots=True)
class RangeDeletion:
    covers: Callable[[Key], bool]
    deleted_us: int


class Top:
    """Sorts behind everything."""

    def __lt__(self, other: object) -> bool:
        return False

    def __gt__(self, other: object) -> bool:
        return True


TOP = Top()


@dataclass(frozen=True, slots=True)
class Descending:
    value: Any

    def __lt__(self, other: Any) -> bool:
        if isinstance(other, Top):
            return True
        smaller: bool = other.value < self.value
        return smaller


class Partition:
    def __init__(self, key: Key, token: int) -> None:
        self.key = key
        self.token = token
        self.deleted_us = NEVER
        self.ranges: list[RangeDeletion] = []
        self.static = Row(())
        self.rows: dict[Key, Row] = {}
        self.order: list[tuple[Key, Key]] = []
        """(sort key, clustering key) of every row, in order."""
        self.unfinished: list[Callable[[], None]] = []
        """What lightweight transactions proposed and had accepted, and has not been committed."""
        self.last_ballot_us = NEVER

    def row(self, clustering: Key, sort_key: Key) -> Row:
        found = self.rows.get(clustering)
        if found is None:
            found = self.rows[clustering] = Row(clustering)
            insort(self.order, (sort_key, clustering), key=lambda entry: entry[0])
        return found

    def deleted_us_of(self, row: Row) -> int:
        deleted = max(self.deleted_us, row.deleted_us)
        for each in self.ranges:
            if each.deleted_us > deleted and each.covers(row.key):
                deleted = each.deleted_us
        return deleted

    def live_cells(self, row: Row, now_s: float) -> dict[str, Cell] | None:
        """The cells of a row as a read sees them; None when there is no such row."""
        deleted = self.deleted_us_of(row)
        cells = {name: cell for name, cell in row.cells.items() if cell.is_live(deleted, now_s)}
        if not cells and (row.marker is None or not row.marker.is_live(deleted, now_s)):
            return None
        return cells

    def static_cells(self, now_s: float) -> dict[str, Cell]:
        return {name: cell for name, cell in self.static.cells.items() if cell.is_live(self.deleted_us, now_s)}

    def keys_between(self, start: Key, end: Key) -> Iterator[Key]:
        first = bisect_left(self.order, start, key=lambda entry: entry[0])
        last = bisect_left(self.order, end, key=lambda entry: entry[0])
        for _, clustering in self.order[first:last]:
            yield clustering


class Table:
    def __init__(self, keyspace: str, name: str, columns: dict[str, Column], default_ttl_seconds: int = 0) -> None:
        self.keyspace = keyspace
        self.name = name
        self.columns = columns
        self.default_ttl_seconds = default_ttl_seconds
        self.indexed: set[str] = set()
        self.partitions: dict[Key, Partition] = {}

    def of_kind(self, kind: str) -> list[Column]:
        return [column for column in self.columns.values() if column.kind == kind]

    @property
    def partition_key(self) -> list[Column]:
        return self.of_kind("partition_key")

    @property
    def clustering(self) -> list[Column]:
        return self.of_kind("clustering")

    def ordered_columns(self) -> list[Column]:
        """As ``SELECT *`` shows them: the key in its order, then the static and the other columns by name."""
        by_name = sorted(self.of_kind("static"), key=lambda column: column.name)
        others = sorted(self.of_kind("regular"), key=lambda column: column.name)
        return [*self.partition_key, *self.clustering, *by_name, *others]

    def token_of(self, key: Key) -> int:
        parts = [serialised(column.cql_type, value) for column, value in zip(self.partition_key, key, strict=True)]
        if len(parts) == 1:
            data = parts[0]
        else:
            data = b"".join(len(part).to_bytes(2, "big") + part + b"\0" for part in parts)
        token: int = Murmur3Token.hash_fn(data)
        return token

    def partition(self, key: Key) -> Partition:
        found = self.partitions.get(key)
        if found is None:
            found = self.partitions[key] = Partition(key, self.token_of(key))
        return found

    def sort_key(self, clustering: Key) -> Key:
        """Of a clustering key or its beginning."""
        columns = self.clustering
        return tuple(
            Descending(value) if column.is_descending else value
            for column, value in zip(columns, clustering, strict=False)
        )
