"""Reads by key and scans of access paths, each a statement that is made once.

Most drivers have all of an answer in memory before the first row of it is looked at. There the rows of a page with a
budget come with large values that are short, and with the sizes of those that are not: these are read in a second
step, as many as fit. The common page takes one step. SQLite's rows are read one by one as they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import sqlalchemy as sa

from duetime.stores.backend import Query, Scan
from duetime.stores.backends.sql.call_tables import service_call_tags
from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.mapping import MAPPINGS
from duetime.stores.backends.sql.prepared import Prepared
from duetime.stores.backends.sql.tables import constant, given, given_count, index_for
from duetime.stores.entities import TAGGED_CALLS
from duetime.stores.entity import AccessPath, Entity, Key, Kind, Place, Row, Value

_GATHERED_FROM = 100
"""From so many rows on, rows of some fields are gathered by a database that is better asked so."""
_CHUNK = 16
_RANGES = (4, 16, 64)
"""How many are asked for at once; one that is not needed is the last one again."""
INLINE_SIZE = 16 * 1024
"""Up to this size a large value comes with its row: a page of 500 of them is 8 MiB."""


class Part(NamedTuple):
    """A range of the path: behind the part of a place that has ``equal`` fields alike (None: from the beginning)."""

    equal: int | None
    has_since: bool
    has_until: bool


class Reads:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._by_keys: dict[tuple[Any, ...], _ByKey] = {}
        self._on_paths: dict[tuple[Any, ...], _OnPath] = {}
        self._firsts: dict[AccessPath, _Firsts] = {}

    def rows(
        self,
        connection: sa.Connection,
        entity: Entity,
        keys: Sequence[Key],
        *,
        fields: tuple[str, ...] | None = None,
        is_locking: bool = False,
    ) -> dict[Key, Row]:
        """Return those of the rows that there are, by their keys. Rows are locked in the order of their keys."""
        shape = (entity, fields, is_locking)
        by_key = self._by_keys.get(shape)
        if by_key is None:
            by_key = self._by_keys[shape] = _ByKey(self._database, entity, fields, is_locking=is_locking)
        return by_key.rows(connection, keys)

    def scan(self, connection: sa.Connection, query: Query) -> Scan:
        limit, budget = query.limit, query.budget
        is_gathered = query.fields is not None and limit >= _GATHERED_FROM
        shape = (query.path, query.fields, is_gathered, budget is not None)
        on_path = self._on_paths.get(shape)
        if on_path is None:
            on_path = self._on_paths[shape] = _OnPath(self._database, query, is_gathered=is_gathered)
        rows: list[Any] = []
        size, is_cut = 0, False
        for part in _parts(query):
            statement, values = on_path.statement(part), on_path.encoded(part, query)
            found = statement.one(connection, *values, limit + 1 - len(rows))
            if budget is None or on_path.large is None:
                rows += on_path.fetched(found)
                is_cut = len(rows) > limit
            else:
                size, is_cut = on_path.fitting(found, rows, size, limit=limit, budget=budget)
            if is_cut:
                break
        del rows[limit:]
        end = on_path.place(rows[-1]) if is_cut else None
        if on_path.is_light and any(row[-1] is not None for row in rows):
            return Scan(self._completed(connection, query.entity, on_path, rows), end)
        return Scan(on_path.read(rows), end)

    def firsts(self, connection: sa.Connection, query: Query, values: Sequence[Value]) -> list[Value]:
        if query.path not in self._firsts:
            self._firsts[query.path] = _Firsts(self._database, query)
        return self._firsts[query.path].of(connection, query, values)

    def _completed(self, connection: sa.Connection, entity: Entity, on_path: _OnPath, light: list[Any]) -> list[Row]:
        """Light rows with their large values. One that has left its place on the path meanwhile is left out."""
        names, rows = on_path.names, []
        key = [names.index(name) for name in entity.key]
        keys = [tuple(row[place] for place in key) for row in light]
        late = [key for key, row in zip(keys, light, strict=True) if row[-1] is not None]
        whole = self.rows(connection, entity, late, fields=names)
        for of_row, seen, row in zip(keys, light, on_path.read(light), strict=True):
            if seen[-1] is None:
                rows.append(row)
            elif (again := whole.get(of_row)) is not None and on_path.place(again) == on_path.place(seen):
                rows.append(again[: on_path.wanted])
        return rows


class _ByKey:
    """Rows of some fields of an entity, found by their keys."""

    def __init__(
        self, database: Database, entity: Entity, fields: tuple[str, ...] | None, *, is_locking: bool
    ) -> None:
        mapping = MAPPINGS[entity.name]
        names = entity.names if fields is None else (*entity.key, *fields)
        self._read = mapping.reader(names)
        self._skipped = 0 if fields is None else len(entity.key)
        self._key_of = entity.key_of if fields is None else None
        columns = mapping.table.c
        *start, last = entity.key
        select = sa.select(*map(mapping.select, names)).where(
            *mapping.is_of_entity(), *(columns[name] == given(f"key_{name}") for name in start)
        )
        if is_locking:
            select = select.order_by(columns[last]).with_for_update()
        self._statement = database.prepare_list(select, columns[last], *(f"key_{name}" for name in start))

    def rows(self, connection: sa.Connection, keys: Sequence[Key]) -> dict[Key, Row]:
        found: dict[Key, Row] = {}
        if len(keys) == 1:
            *start, end = keys[0]
            self._add(found, self._statement.rows(connection, (end,), *start))
            return found
        for beginning, together in groupby(sorted(set(keys)), key=lambda key: key[:-1]):
            self._add(found, self._statement.rows(connection, [key[-1] for key in together], *beginning))
        return found

    def _add(self, found: dict[Key, Row], rows: list[Any]) -> None:
        skipped = self._skipped
        for row in map(self._read, rows):
            if self._key_of is not None:
                found[self._key_of(row)] = row
            else:
                found[row[:skipped]] = row[skipped:]


class _OnPath:
    """Rows of some fields of an entity, in the order of a path."""

    def __init__(self, database: Database, query: Query, *, is_gathered: bool) -> None:
        entity, path = query.entity, query.path
        mapping = self._mapping = MAPPINGS[entity.name]
        self._database, self._path, self._order = database, path, path.order_names
        self.names = (*query.names, *_missing(self._order, query.names))
        self.wanted = len(query.names)
        is_bounded = query.budget is not None and entity.large in self.names
        self.large = self.names.index(entity.large) if is_bounded else None
        self.is_light = self.large is not None and not database.streams_rows
        self._is_gathered = is_gathered
        self._reader = mapping.reader(self.names)
        self._places = [self.names.index(name) for name in self._order]
        self._blobs = [at for at, name in enumerate(self.names) if mapping.by_name[name].kind is Kind.BYTES]
        self._convert = {name: convert for name, convert in mapping.writes.items() if name != "tags"}
        self._statements: dict[Part, Prepared] = {}

    def read(self, rows: Sequence[Any]) -> list[Row]:
        if self.wanted == len(self.names) and not self.is_light:
            return list(map(self._reader, rows))
        return [self._reader(row)[: self.wanted] for row in rows]

    def place(self, row: Any) -> Place:
        values = self._reader(row)
        return tuple([values[place] for place in self._places])

    def fetched(self, found: sa.CursorResult[Any]) -> Sequence[Any]:
        if not self._is_gathered:
            return found.fetchall()
        rows = self._database.gathered_rows.read(found)
        for row in rows:
            for place in self._blobs:
                if isinstance(row[place], str):
                    row[place] = bytes.fromhex(row[place])
        return rows

    def fitting(
        self, found: sa.CursorResult[Any], rows: list[Any], size: int, *, limit: int, budget: int
    ) -> tuple[int, bool]:
        """Add what is found to ``rows``, up to the limit and the budget: the size by then, and whether that is not
        all."""
        large, is_light = self.large, self.is_light
        assert large is not None
        while chunk := found.fetchmany(_CHUNK):
            for row in chunk:
                size += (is_light and row[-1]) or len(row[large] or "")
                if len(rows) == limit or (size > budget and rows):
                    found.close()
                    return size, True
                rows.append(row)
        return size, False

    # -- statements ------------------------------------------------------------------------------------------

    def statement(self, part: Part) -> Prepared:
        if part not in self._statements:
            self._statements[part] = self._prepare(part)
        return self._statements[part]

    def encoded(self, part: Part, query: Query) -> list[Any]:
        """Return the values of a statement."""
        values = list(query.by)
        names = self._path.by
        if part.equal is not None and query.after is not None:
            values += query.after[: part.equal + 1]
            names += self._order[: part.equal + 1]
        if part.has_since:
            values.append(query.since)
            names += self._order[:1]
        if part.has_until:
            values.append(query.until)
            names += self._order[:1]
        if not self._convert:
            return values
        return [
            value if value is None or name not in self._convert else self._convert[name](value)
            for name, value in zip(names, values, strict=True)
        ]

    def _prepare(self, part: Part) -> Prepared:
        mapping, path, order = self._mapping, self._path, self._order
        columns: dict[str, sa.Column[Any]] = dict(mapping.table.c)
        select = sa.select(*self._selected()).where(*mapping.is_on(path))
        table, alike = mapping.table, mapping.are_alike_on(path)
        if path is TAGGED_CALLS:
            table, alike = service_call_tags, {"tenant_id", "tag"}
            tag = service_call_tags.c
            select = select.join_from(
                service_call_tags,
                mapping.table,
                sa.and_(tag.tenant_id == columns["tenant_id"], tag.service_call_id == columns["service_call_id"]),
            )
            columns |= {"tags": tag.tag, "tenant_id": tag.tenant_id, "service_call_id": tag.service_call_id}
        select = select.where(*(columns[name] == given(f"by_{name}") for name in path.by))
        given_names = [f"by_{name}" for name in path.by]
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
        # Without what is alike in all rows, which makes MariaDB sort.
        select = select.order_by(*by_order[part.equal or 0 :]).limit(given_count("limit"))
        # MySQL and TiDB say which index has the range: statistics that are missing or old must not decide it.
        select = select.with_hint(table, f"FORCE INDEX ({index_for(table, alike, order)})", "mysql")
        if self._is_gathered:
            select = self._database.gathered_rows.select(select)
        return self._database.prepare(select, *given_names, "limit")

    def _selected(self) -> list[sa.ColumnElement[Any]]:
        """Return the columns; of light rows the large one only where it is short, and last its size where it is
        not."""
        columns = list(map(self._mapping.select, self.names))
        if not self.is_light or self.large is None:
            return columns
        large = self._mapping.by_name[self.names[self.large]].column
        size, most = self._database.size_of(large), constant(INLINE_SIZE)
        columns[self.large] = sa.case((size <= most, large)).label("inline_value")
        return [*columns, sa.case((size > most, size)).label("large_size")]


class _Firsts:
    """The first row of each of many ranges of a path: a subquery for each, for grouping would read all their rows."""

    def __init__(self, database: Database, query: Query) -> None:
        self._database = database
        self._statements = {number: self._prepare(query, number) for number in _RANGES}

    def of(self, connection: sa.Connection, query: Query, values: Sequence[Value]) -> list[Value]:
        found: list[Value] = []
        for start in range(0, len(values), _RANGES[-1]):
            part = values[start : start + _RANGES[-1]]
            number = next(number for number in _RANGES if number >= len(part))
            padding = [part[-1]] * (number - len(part))
            statement = self._statements[number]
            for row in statement.one(connection, query.since, query.until, 1, *part, *padding).fetchall():
                found += row[: len(part)]
        return found

    def _prepare(self, query: Query, number: int) -> Prepared:
        mapping, path = MAPPINGS[query.entity.name], query.path
        table, (by,), name = mapping.table, path.by, path.order_names[0]
        first = table.c[name]
        select = (
            sa.select(first)
            .where(*mapping.is_on(path), first >= given("since"), first <= given("until"))
            .order_by(*(table.c[each] for each in path.order_names))
            .limit(given_count("limit"))
            .with_hint(
                table, f"FORCE INDEX ({index_for(table, mapping.are_alike_on(path), path.order_names)})", "mysql"
            )
        )
        names = [f"of_{place}" for place in range(number)]
        each = [select.where(table.c[by] == given(of)).scalar_subquery().label(of) for of in names]
        return self._database.prepare(sa.select(*each), "since", "until", "limit", *names)


def _missing(names: Sequence[str], fields: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in fields]


def _parts(query: Query) -> Iterator[Part]:
    """Return what is behind a place, one range after the other."""
    path, after = query.path, query.after
    has_since, has_until = query.since is not None, query.until is not None
    if after is None:
        yield Part(None, has_since, has_until)
        return
    for equal in reversed(range(len(path.order))):
        if equal > 0:
            yield Part(equal, False, False)
        elif after[0] != (query.since if path.is_descending[0] else query.until):  # else nothing can be behind it
            yield Part(0, has_since, has_until)
