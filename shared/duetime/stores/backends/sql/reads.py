"""Reads by key and scans of access paths, each a statement that is made once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from duetime.stores.backend import Scan
from duetime.stores.backends.sql.mapping import MAPPINGS, Mapping
from duetime.stores.entities import TAGGED_CALLS
from duetime.stores.entity import AccessPath, Entity, Key, Kind, Place, Row, Value
from duetime.stores.sql.call_tables import service_call_tags
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared, PreparedList
from duetime.stores.sql.tables import given, given_count

_GATHERED_FROM = 100
"""From so many rows on, rows of some fields are gathered by a database that is better asked so."""
_CHUNK = 16


class Part(NamedTuple):
    """A range of the path: behind the part of a place that has ``equal`` fields alike (None: from the beginning)."""

    equal: int | None
    has_since: bool
    has_until: bool


class Reads:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._lists: dict[tuple[Any, ...], PreparedList] = {}
        self._scans: dict[tuple[Any, ...], Prepared] = {}

    # -- by key ----------------------------------------------------------------------------------------------

    def rows(
        self,
        connection: sa.Connection,
        entity: Entity,
        keys: Sequence[Key],
        *,
        fields: tuple[str, ...] | None = None,
        is_locking: bool = False,
    ) -> dict[Key, Row]:
        """Those of the rows that there are, by their keys. Rows are locked in the order of their keys."""
        mapping = MAPPINGS[entity.name]
        names = entity.names if fields is None else (*entity.key, *fields)
        read = mapping.reader(names)
        statement = self._by_key(mapping, names, is_locking=is_locking)
        found: dict[Key, Row] = {}
        skipped = 0 if fields is None else len(entity.key)
        for start, together in groupby(sorted(set(keys)), key=lambda key: key[:-1]):
            ends = [key[-1] for key in together]
            for each in statement.rows(connection, ends, *start):
                row = read(each)
                key = entity.key_of(row) if fields is None else row[:skipped]
                found[key] = row[skipped:]
        return found

    def _by_key(self, mapping: Mapping, names: tuple[str, ...], *, is_locking: bool) -> PreparedList:
        shape = (mapping.entity.name, names, is_locking)
        if shape not in self._lists:
            entity, columns = mapping.entity, mapping.table.c
            *start, last = entity.key
            select = sa.select(*map(mapping.select, names)).where(
                *mapping.is_of_entity(), *(columns[name] == given(f"key_{name}") for name in start)
            )
            if is_locking:
                select = select.order_by(columns[last]).with_for_update()
            names_of_start = [f"key_{name}" for name in start]
            self._lists[shape] = self._database.prepare_list(select, columns[last], *names_of_start)
        return self._lists[shape]

    # -- scans -----------------------------------------------------------------------------------------------

    def scan(
        self,
        connection: sa.Connection,
        entity: Entity,
        path: AccessPath,
        by: Key,
        *,
        fields: tuple[str, ...] | None,
        after: Place | None,
        since: Value,
        until: Value,
        limit: int,
        budget: int | None,
    ) -> Scan:
        mapping = MAPPINGS[entity.name]
        order = path.order_names
        names = entity.names if fields is None else (*fields, *(name for name in order if name not in fields))
        read = mapping.reader(names)
        places = [names.index(name) for name in order]
        large = names.index(entity.large) if budget is not None and entity.large in names else None
        wanted = len(fields) if fields is not None else len(names)
        is_gathered = fields is not None and limit >= _GATHERED_FROM
        rows: list[Row] = []
        size = 0
        for part in _parts(path, after, since, until):
            statement = self._scan(mapping, path, names, part, is_gathered=is_gathered)
            values = _encoded(mapping, path, by, part, after, since, until)
            found = statement.one(connection, *values, limit + 1 - len(rows))
            for each in self._found(found, mapping, names, is_gathered=is_gathered):
                size += 0 if large is None else len(each[large] or "")
                is_full = budget is not None and size > budget and bool(rows)
                if len(rows) == limit or is_full:
                    found.close()
                    end = tuple(read(rows[-1])[place] for place in places)
                    return Scan([read(row)[:wanted] for row in rows], end)
                rows.append(each)
        return Scan([read(row)[:wanted] for row in rows])

    def _found(
        self, found: sa.CursorResult[Any], mapping: Mapping, names: tuple[str, ...], *, is_gathered: bool
    ) -> Iterator[Any]:
        if not is_gathered:
            while chunk := found.fetchmany(_CHUNK):
                yield from chunk
            return
        blobs = [place for place, name in enumerate(names) if mapping.by_name[name].kind is Kind.BYTES]
        for row in self._database.gathered_rows.read(found):
            for place in blobs:
                if isinstance(row[place], str):
                    row[place] = bytes.fromhex(row[place])
            yield row

    def _scan(
        self, mapping: Mapping, path: AccessPath, names: tuple[str, ...], part: Part, *, is_gathered: bool
    ) -> Prepared:
        shape = (mapping.entity.name, path.name, names, part, is_gathered)
        if shape not in self._scans:
            self._scans[shape] = self._prepare(mapping, path, names, part, is_gathered=is_gathered)
        return self._scans[shape]

    def _prepare(
        self, mapping: Mapping, path: AccessPath, names: tuple[str, ...], part: Part, *, is_gathered: bool
    ) -> Prepared:
        columns: dict[str, sa.Column[Any]] = dict(mapping.table.c)
        select = sa.select(*map(mapping.select, names)).where(*mapping.is_on(path))
        if path is TAGGED_CALLS:
            tag = service_call_tags.c
            select = select.join_from(
                service_call_tags,
                mapping.table,
                sa.and_(tag.tenant_id == columns["tenant_id"], tag.service_call_id == columns["service_call_id"]),
            )
            columns |= {"tags": tag.tag, "tenant_id": tag.tenant_id, "service_call_id": tag.service_call_id}
        select = select.where(*(columns[name] == given(f"by_{name}") for name in path.by))
        given_names = [f"by_{name}" for name in path.by]
        order = path.order_names
        if part.equal is not None:
            for name in order[: part.equal]:
                select = select.where(columns[name] == given(f"at_{name}"))
            name = order[part.equal]
            place, column = given(f"at_{name}"), columns[name]
            select = select.where(column < place if path.is_descending[part.equal] else column > place)
            given_names += [f"at_{name}" for name in order[: part.equal + 1]]
        if part.has_since:
            select = select.where(columns[order[0]] >= given("since"))
            given_names.append("since")
        if part.has_until:
            select = select.where(columns[order[0]] <= given("until"))
            given_names.append("until")
        by_order = [
            columns[name].desc() if is_descending else columns[name].asc()
            for name, is_descending in zip(order, path.is_descending, strict=True)
        ]
        select = select.order_by(*by_order).limit(given_count("limit"))
        if is_gathered:
            select = self._database.gathered_rows.select(select)
        return self._database.prepare(select, *given_names, "limit")


def _parts(path: AccessPath, after: Place | None, since: Value, until: Value) -> Iterator[Part]:
    """What is behind a place, one range after the other."""
    if after is None:
        yield Part(None, since is not None, until is not None)
        return
    for equal in reversed(range(len(path.order))):
        if equal > 0:
            yield Part(equal, False, False)
        elif after[0] != (since if path.is_descending[0] else until):  # else nothing can be behind it
            yield Part(0, since is not None, until is not None)


def _encoded(
    mapping: Mapping, path: AccessPath, by: Key, part: Part, after: Place | None, since: Value, until: Value
) -> list[Any]:
    convert = mapping.writes
    order = path.order_names

    def encode(name: str, value: Value) -> Any:
        is_plain = value is None or name not in convert or name == "tags"
        return value if is_plain else convert[name](value)

    values = [encode(name, value) for name, value in zip(path.by, by, strict=True)]
    if part.equal is not None and after is not None:
        values += [encode(name, value) for name, value in zip(order[: part.equal + 1], after, strict=False)]
    values += [encode(order[0], since)] if part.has_since else []
    return values + ([encode(order[0], until)] if part.has_until else [])
