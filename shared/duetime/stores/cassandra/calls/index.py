"""Entries of the indexes: hints that lead to calls. What a call says of itself decides, never what leads to it.

An entry is written before the change that needs it, under the revision that the change makes and the attempt to make
it, and removed after the change that makes it wrong. So there is one for whatever is stored, however a process ends,
and a wrong one names the change that it stands for: once that is decided, the entry can be judged, and removing it
touches no other change's entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from duetime.stores.cassandra.calls.places import DUE, LISTS, OUTBOX, REMOVALS, Place
from duetime.stores.cassandra.requests import Requests, Row, Statement

Partition: TypeAlias = tuple[str | int, ...]

_PARTITIONS: Final = {
    LISTS: ("tenant_id", "list", "slice"),
    DUE: ("shard_id",),
    OUTBOX: ("slice",),
    REMOVALS: ("slice",),
}
_IN_PARTITION: Final = ("sort", "tenant_id", "call_id")
_KEYS: Final = {
    table: (*partition, *(column for column in _IN_PARTITION if column not in partition))
    for table, partition in _PARTITIONS.items()
}
"""The columns that find a call's entries at a place."""


@dataclass(frozen=True, slots=True)
class Entry:
    """``revision``: that of the call after the change which it was written for."""

    place: Place
    tenant_id: str
    call_id: str
    revision: int
    attempt: str


@dataclass(frozen=True, slots=True)
class Look:
    """Up to ``limit`` entries behind ``after`` (a beginning of ``sort``, tenant, call), up to ``sort`` ``until``.

    ``partition`` is with the tenant, where the table has it there.
    """

    table: str
    partition: Partition
    after: tuple[str, ...]
    until: str | None
    limit: int


class Index:
    def __init__(self, requests: Requests) -> None:
        self._requests = requests

    def put(self, entries: Sequence[Entry]) -> None:
        self._requests.write([put_statement(entry) for entry in entries])

    def remove(self, entries: Iterable[Entry]) -> None:
        """Exactly these."""
        self._requests.write([remove_statement(entry) for entry in entries])

    def remove_until(self, places: Iterable[Place], *, tenant_id: str, call_id: str, revision: int) -> None:
        """Those of a call at ``places`` that changes up to ``revision`` have put there."""
        self._requests.write(
            [Statement(_remove_until(place.table), (*_key(place, tenant_id, call_id), revision)) for place in places]
        )

    def read(
        self, table: str, partition: Partition, *, after: tuple[str, ...], until: str | None, limit: int
    ) -> list[Entry]:
        """The entries of one look."""
        (found,) = self.read_each([Look(table, partition, after, until, limit)])
        return found

    def read_each(self, looks: Sequence[Look]) -> list[list[Entry]]:
        """The entries of each look in their order, all asked for side by side."""
        answers = self._requests.read_each([_select(look) for look in looks])
        return [
            [_entry(look.table, look.partition, row) for row in rows]
            for look, rows in zip(looks, answers, strict=True)
        ]


def put_statement(entry: Entry) -> Statement:
    columns = (*_KEYS[entry.place.table], "revision", "attempt")
    marks = ", ".join("?" for _ in columns)
    cql = f"INSERT INTO {entry.place.table} ({', '.join(columns)}) VALUES ({marks})"
    return Statement(cql, _values(entry))


def remove_statement(entry: Entry) -> Statement:
    columns = (*_KEYS[entry.place.table], "revision", "attempt")
    return Statement(f"DELETE FROM {entry.place.table} WHERE {_equal(columns)}", _values(entry))


def _remove_until(table: str) -> str:
    return f"DELETE FROM {table} WHERE {_equal(_KEYS[table])} AND revision <= ?"


def _equal(columns: Sequence[str]) -> str:
    return " AND ".join(f"{column} = ?" for column in columns)


def _key(place: Place, tenant_id: str, call_id: str) -> tuple[str | int, ...]:
    if place.table == LISTS:
        return (tenant_id, *place.partition, place.sort, call_id)
    return (*place.partition, place.sort, tenant_id, call_id)


def _values(entry: Entry) -> tuple[str | int, ...]:
    return (*_key(entry.place, entry.tenant_id, entry.call_id), entry.revision, entry.attempt)


def _select(look: Look) -> Statement:
    columns = _KEYS[look.table][len(_PARTITIONS[look.table]) :]
    cql = f"SELECT {', '.join((*columns, 'revision', 'attempt'))} FROM {look.table}"
    cql += f" WHERE {_equal(_PARTITIONS[look.table])}"
    values: tuple[str | int, ...] = (*look.partition, *look.after)
    if look.after:
        marks = ", ".join("?" for _ in look.after)
        cql += f" AND ({', '.join(columns[: len(look.after)])}) > ({marks})"
    if look.until is not None:
        cql += " AND (sort) <= (?)"
        values = (*values, look.until)
    return Statement(f"{cql} LIMIT ?", (*values, look.limit))


def _entry(table: str, partition: Partition, row: Row) -> Entry:
    if table == LISTS:
        tenant_id = str(partition[0])
        return Entry(
            Place(table, partition[1:], row["sort"]), tenant_id, row["call_id"], row["revision"], row["attempt"]
        )
    place = Place(table, partition, row["sort"])
    return Entry(place, row["tenant_id"], row["call_id"], row["revision"], row["attempt"])
