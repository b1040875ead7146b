"""Rows in the order of access paths."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Final

from duetime.domain.errors import InvalidCursor
from duetime.stores.backend import Query, Scan
from duetime.stores.backends.cassandra import hints as hinted
from duetime.stores.backends.cassandra import layout, places
from duetime.stores.backends.cassandra.hints import Found, Hints
from duetime.stores.backends.cassandra.layout import PARTITION_COLUMNS, Partition, Way
from duetime.stores.backends.cassandra.reads import KEYS_PER_READ, Reads, Values, row_of, values_of
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.decoding import can_be_stored
from duetime.stores.entities import CORRELATED, DUE, OF_NAMESPACE
from duetime.stores.entity import AccessPath, Entity, Key, Place, Row, Value

_SIDE_BY_SIDE: Final = 8
_PARTITIONS_PER_PAGE: Final = 256
"""How many partitions one page looks into."""
_FIRST_TOKEN: Final = -(1 << 63)


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row that was found on a path, at ``end``. ``values``: what is known of it so far."""

    end: Place
    key: Key
    values: Values | None = None
    hint: Found | None = None


class Scans:
    def __init__(self, session: CassandraSession, reads: Reads, hints: Hints) -> None:
        self._session = session
        self._reads = reads
        self._hints = hints

    def scan(self, query: Query) -> Scan:
        entity, path, after = query.entity, query.path, query.after
        if after is not None and not can_be_stored(after):
            raise InvalidCursor("cursor", "the cursor does not belong to this list")
        if layout.way_of(entity, path) is Way.NONE or not can_be_stored(query.by):
            return Scan([])
        rows: list[Row] = []
        while True:
            rest = query._replace(after=after, limit=query.limit - len(rows))
            seen, end = self._seen(rest)
            found, full = self._judged(query, seen)
            rows += found
            after = full or end
            is_page = len(rows) == query.limit or _has_partitions(query) or (bool(rows) and query.budget is not None)
            if after is None or is_page:
                return Scan(rows, after)

    def _seen(self, query: Query) -> tuple[list[_Seen], Place | None]:
        """Return up to the limit in order, and the place to go on behind if more may follow."""
        entity, path, limit = query.entity, query.path, query.limit
        way = layout.way_of(entity, path)
        if way is Way.PARTITIONS:
            return self._partition_by_partition(query)
        if _has_partitions(query):
            return self._shard_by_shard(query)
        parts = layout.place_parts(entity, path)
        named = path.by if way is Way.HINTS else layout.partition_fields(entity)
        prefix = tuple(value for name, value in zip(path.by, query.by, strict=True) if name not in named)
        low, high = _bounds(parts, prefix, query)
        found: list[list[_Seen]] = []
        if path is CORRELATED:
            partitions = [Partition(layout.TIMERS, (each,)) for each in query.shards]
        else:
            partitions = [] if way is Way.HINTS else [layout.partition_of(entity, query.by)]
        columns = query.names if way is Way.ROWS else ()
        for at in range(0, len(partitions), _SIDE_BY_SIDE):
            looks = [(each, low, high) for each in partitions[at : at + _SIDE_BY_SIDE]]
            found = [_merged(query, [*found, *self._in_partitions(query, looks, columns, limit + 1)])]
        if way is Way.HINTS or path is DUE:
            found += self._by_hints(query, low, high)
        return _cut(_merged(query, found), limit)

    def _in_partitions(
        self, query: Query, looks: Sequence[tuple[Partition, bytes, bytes]], names: tuple[str, ...], limit: int
    ) -> list[list[_Seen]]:
        """Of each partition the rows or entries of a path from a place up to before another, side by side."""
        entity, path = query.entity, query.path
        is_of_rows = layout.way_of(entity, path) is Way.ROWS
        needed = tuple(dict.fromkeys((*names, *layout.fields_of(path)))) if names else ()
        columns = ("is_there", *(name for name in needed if name not in entity.key)) if is_of_rows else ("target",)
        kind = entity.name if is_of_rows else path.name
        statements = [
            Statement(_slice_cql(partition.table, columns), (*partition.values, kind, low, high, limit))
            for partition, low, high in looks
        ]
        parts = layout.place_parts(entity, path)
        skipped = len(layout.place_fields(entity, path)) - len(_order_in(entity, path))
        rest = layout.key_parts(entity)[len(layout.partition_fields(entity)) :]
        found: list[list[_Seen]] = []
        for (partition, _, _), rows in zip(looks, self._session.read_each(statements), strict=True):
            named = partition.values if layout.partition_fields(entity) else ()
            seen: list[_Seen] = []
            for row in rows:
                key = (*named, *places.decode(rest, row["place"] if is_of_rows else row["target"])[0])
                inner = places.decode(parts, row["place"])[0][skipped:]
                end = (*named, *inner) if _has_partitions(query) else inner
                values = None
                if is_of_rows and names:
                    values = values_of(entity, key, needed, row) if row["is_there"] else {}
                seen.append(_Seen(end, key, values))
            found.append(seen)
        return found

    def _by_hints(self, query: Query, low: bytes, high: bytes) -> list[list[_Seen]]:
        entity, path = query.entity, query.path
        by_values = layout.encode_by(entity, path, query.by)
        if path.is_unique:
            holder = self._hints.holder(path, by_values, entity)
            return [[_Seen((), holder.target, hint=(holder, ""))]] if holder is not None else []
        slices: Sequence[int] = range(layout.slices_of(path))
        if query.since is not None and query.since == query.until and layout.is_sliced_by_order(entity, path):
            slices = [hinted.slice_for(path, query.since)]
        found = self._hints.read(entity, path, by_values, slices, low=low, high=high, limit=query.limit + 1)
        parts = places.parts_of(entity, path.order)
        return [
            [_Seen(places.decode(parts, each[0].place)[0], each[0].target, hint=each) for each in of_slice]
            for of_slice in found
        ]

    # -- over partitions -------------------------------------------------------------------------------------

    def _shard_by_shard(self, query: Query) -> tuple[list[_Seen], Place | None]:
        """In the order of shard, then id."""
        entity, path, by, limit = query.entity, query.path, query.by, query.limit
        shards = range(query.since, query.until + 1)
        behind: Place = query.after or ()
        first = shards.start
        if behind:
            first, behind = max(behind[0], first), behind[1:]
        parts = layout.place_parts(entity, path)
        seen: list[_Seen] = []
        last = first + _PARTITIONS_PER_PAGE
        shard_id = first
        while shard_id < shards.stop:
            if shard_id >= last:
                return seen, (shard_id, "")
            wave = range(shard_id, min(shard_id + _SIDE_BY_SIDE, shards.stop))
            looks = []
            for each in wave:
                start = (*by, *(behind if each == first else ()))
                prefix = places.encode(parts, by)
                low = places.behind(places.encode(parts, start)) if each == first and behind else prefix
                looks.append((Partition(layout.TIMERS, (each,)), low, places.behind(prefix)))
            for found in self._in_partitions(query, looks, (), limit + 1 - len(seen)):
                seen += found
                if len(seen) > limit:
                    return _cut(seen, limit)
            shard_id = wave.stop
        return seen, None

    def _partition_by_partition(self, query: Query) -> tuple[list[_Seen], Place | None]:
        """Return all rows of an entity, by the order in which the database has their partitions."""
        entity, after, limit = query.entity, query.after, query.limit
        inside = len(layout.partition_fields(entity))
        first = None if after is None else tuple(after[:inside])
        rest = layout.key_parts(entity)[inside:]
        seen: list[_Seen] = []
        last, includes = first, True
        while True:
            partitions = self._partitions(entity, last, includes_first=includes, limit=limit)
            looks = [
                (
                    each,
                    places.behind(layout.place_of(entity, after))
                    if after is not None and each.values == first
                    else b"",
                    places.BEHIND_ALL,
                )
                for each in partitions
            ]
            for at in range(0, len(looks), _SIDE_BY_SIDE):
                statements = [
                    Statement(_slice_cql(each.table, ()), (*each.values, entity.name, low, high, limit + 1))
                    for each, low, high in looks[at : at + _SIDE_BY_SIDE]
                ]
                for (each, _, _), rows in zip(looks[at:], self._session.read_each(statements), strict=False):
                    keys = [(*each.values, *places.decode(rest, row["place"])[0]) for row in rows]
                    seen += [_Seen(key, key) for key in keys]
                    if len(seen) > limit:
                        return _cut(seen, limit)
            if len(partitions) < limit:
                return seen, None
            last, includes = partitions[-1].values, False

    def _partitions(
        self, entity: Entity, first: tuple[Value, ...] | None, *, includes_first: bool, limit: int
    ) -> list[Partition]:
        table = layout.table_of(entity)
        columns = ", ".join(PARTITION_COLUMNS[table])
        values = (_FIRST_TOKEN,) if first is None else first
        start = "?" if first is None else f"token({', '.join('?' * len(first))})"
        compared = ">=" if includes_first else ">"
        cql = f"SELECT DISTINCT {columns} FROM {table} WHERE token({columns}) {compared} {start} LIMIT ?"
        return [Partition(table, tuple(row.values())) for row in self._session.read(Statement(cql, (*values, limit)))]

    # -- what was found --------------------------------------------------------------------------------------

    def _judged(self, query: Query, seen: Sequence[_Seen]) -> tuple[list[Row], Place | None]:
        """Return the rows that are still on the path where they were seen; and where the page ends before the
        last."""
        entity, path, by, names, budget = query.entity, query.path, query.by, query.names, query.budget
        covered = {*entity.key, *path.order_names, *path.by}
        needed = tuple(dict.fromkeys((*names, *layout.fields_of(path))))
        is_covered = {*names} <= covered and layout.way_of(entity, path) is not Way.ROWS
        together = KEYS_PER_READ if budget is not None else max(len(seen), 1)
        size = 0
        rows: list[Row] = []
        taken: set[Key] = set()
        for at in range(0, len(seen), together):
            some = seen[at : at + together]
            unread = [each.key for each in some if each.values is None and (each.hint or not is_covered)]
            found = self._reads.find(entity, unread, needed)
            wrong = [each.hint for each in some if each.hint and not _stands(path, by, found.get(each.key), each)]
            if wrong and not path.is_unique:
                self._hints.settle(wrong, self._reads.fits(entity, needed, found))
            for number, each in enumerate(some, start=at):
                values = found.get(each.key) if each.values is None else each.values
                if values is None and each.hint is None and is_covered:
                    names_there = (*path.by, *path.order_names, *entity.key)
                    values = dict(zip(names_there, (*by, *each.end, *each.key), strict=True))
                elif each.key in taken or values is None or not _stands(path, by, values, each):
                    continue
                taken.add(each.key)
                large = values.get(entity.large or "")
                size += len(large) if isinstance(large, str) else 0
                if budget is not None and size > budget and rows:
                    return rows, seen[number - 1].end
                rows.append(row_of(values, names))
        return rows, None


def _merged(query: Query, found: Sequence[Sequence[_Seen]]) -> list[_Seen]:
    """Return the first of what was found, as many as a page needs and one more."""
    parts = places.parts_of(query.entity, query.path.order)
    merged = heapq.merge(*found, key=lambda each: places.encode(parts, each.end))
    return list(islice(merged, query.limit + 1))


def _cut(seen: list[_Seen], limit: int) -> tuple[list[_Seen], Place | None]:
    return seen[:limit], seen[limit - 1].end if len(seen) > limit else None


def _stands(path: AccessPath, by: Key, values: Values | None, seen: _Seen) -> bool:
    if not values or not layout.is_on(path, values):
        return False
    of_by = all(
        value in values[name] if isinstance(values[name], tuple) else values[name] == value
        for name, value in zip(path.by, by, strict=True)
    )
    return of_by and tuple(values[name] for name in path.order_names) == tuple(seen.end)


def _bounds(parts: places.Parts, prefix: Key, query: Query) -> tuple[bytes, bytes]:
    path, after, since, until = query.path, query.after, query.since, query.until
    start = places.encode(parts, prefix)
    if path.order and path.is_descending[0]:
        since, until = until, since
    low, high = start, places.behind(start) if start else places.BEHIND_ALL
    if since is not None:
        low = places.encode(parts, (*prefix, since))
    if until is not None:
        high = places.behind(places.encode(parts, (*prefix, until)))
    if after is not None:
        low = max(low, places.behind(places.encode(parts, (*prefix, *after))))
    return low, high


def _has_partitions(query: Query) -> bool:
    """Tell whether the path goes over the partitions of several shards."""
    return query.path is OF_NAMESPACE


def _order_in(entity: Entity, path: AccessPath) -> tuple[str, ...]:
    return tuple(name for name in path.order_names if name not in layout.partition_fields(entity))


@cache
def _slice_cql(table: str, columns: tuple[str, ...]) -> str:
    of = " AND ".join(f"{name} = ?" for name in PARTITION_COLUMNS[table])
    chosen = ", ".join(("place", *columns))
    return f"SELECT {chosen} FROM {table} WHERE {of} AND row_kind = ? AND place >= ? AND place < ? LIMIT ?"
