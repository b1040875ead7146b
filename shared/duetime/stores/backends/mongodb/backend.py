"""The primitives of a store on MongoDB (docs/stores/mongodb.md).

Run against a stand-in of one member: not against MongoDB, a replica set of several members or a sharded cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

from duetime.domain.errors import InvalidCursor
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.backend import (
    GUARD_LOST,
    NOT_WRITTEN,
    WRITTEN,
    Batch,
    Change,
    Guard,
    Query,
    Scan,
    Write,
    Written,
    spelled_out,
)
from duetime.stores.backends.mongodb import schema
from duetime.stores.backends.mongodb.batches import Batches, NotWrittenError
from duetime.stores.backends.mongodb.database import Database, Session
from duetime.stores.backends.mongodb.documents import Document, marks, place_of, to_row
from duetime.stores.backends.mongodb.errors import translated
from duetime.stores.backends.mongodb.indexes import condition_of, key_index, order_of, path_index
from duetime.stores.backends.mongodb.requests import Request, requests_for
from duetime.stores.backends.mongodb.url import open_client
from duetime.stores.decoding import can_be_stored
from duetime.stores.entity import Entity, Key, Kind, Row, Value
from duetime.stores.time_source import StoreTime, TimeSource


def open_mongodb(url: str, *, time_source: TimeSource) -> MongoDbBackend:
    """Nothing is contacted yet. Raises ``InvalidSettings`` for a URL that cannot be understood."""
    client, name = open_client(url)
    return MongoDbBackend(Database(client, name, time_source=time_source))


class MongoDbBackend:
    """A guard is read just before the write that depends on it, which is fenced by conditions of its own, so a claim
    in between makes it no less right."""

    has_clock = True

    def __init__(self, database: Database) -> None:
        self.database = database
        self._batches = Batches(database)

    # -- reads -----------------------------------------------------------------------------------------------

    @translated
    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        wanted = [{**marks(entity), **each} for each in _alternatives(entity, filter(can_be_stored, keys))]
        if not wanted:
            return [None] * len(keys)
        names = entity.names if fields is None else fields
        projection = None if fields is None else dict.fromkeys((*entity.key, *fields), 1)
        condition: Document = wanted[0] if len(wanted) == 1 else {"$or": wanted}
        hint = key_index(entity) if len(wanted) == 1 else None
        collection = self.database[entity.table]
        found = collection.find(condition, projection, limit=len(keys), batch_size=len(keys), hint=hint)
        rows = {tuple(each.get(name) for name in entity.key): to_row(entity, each, names) for each in found}
        return [rows.get(tuple(key)) for key in keys]

    @translated
    def scan(self, query: Query) -> Scan:
        if query.after is not None and not can_be_stored(query.after):
            raise InvalidCursor("cursor", "the cursor does not belong to this list")
        entity, path, limit, budget = query.entity, query.path, query.limit, query.budget
        condition = {**marks(entity), **condition_of(path), **dict(zip(path.by, query.by, strict=True))}
        projection = None if query.fields is None else dict.fromkeys((*query.fields, *path.order_names), 1)
        documents: list[Document] = []
        size = 0
        for part in _ranges(query):
            more = limit + 1 - len(documents)
            found = self.database[entity.table].find(
                {**condition, **part},
                projection,
                sort=order_of(path),
                limit=more,
                batch_size=more,
                hint=path_index(entity, path),
            )
            with found:
                for document in found:
                    size += _large_size(entity, document)
                    is_full = budget is not None and size > budget and bool(documents)
                    if len(documents) == limit or is_full:
                        end = place_of(entity, documents[-1], path.order_names)
                        return Scan([to_row(entity, each, query.names) for each in documents], end)
                    documents.append(document)
        return Scan([to_row(entity, each, query.names) for each in documents])

    def firsts(self, query: Query, values: Sequence[Value]) -> None:  # noqa: ARG002
        return None

    # -- writes ----------------------------------------------------------------------------------------------

    @translated
    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        writes = spelled_out(writes)
        lost = self._lost([write.guard for write in writes])
        kept = [write for write in writes if write.guard not in lost and _finds_its_row(write)]
        requests = [self._request(write, now) for write in kept]
        made = dict(zip(map(id, kept), self._batches.run(requests), strict=True))
        results = [GUARD_LOST if write.guard in lost else _written(made.get(id(write), False)) for write in writes]
        return Batch(results, self._at_ms(writes, now))

    @translated
    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        """Write groups. The usual case is that all of them can be written. Else a transaction each tells which
        cannot.
        """
        lost = self._lost([write.guard for group in groups for write in group])
        held = [group for group in groups if not any(write.guard in lost for write in group)]
        kept = [group for group in held if all(map(_finds_its_row, group))]
        results = dict.fromkeys(map(id, groups), GUARD_LOST) | dict.fromkeys(map(id, held), NOT_WRITTEN)
        results |= zip(map(id, kept), self._atomic(kept, now), strict=True)
        return Batch([results[id(group)] for group in groups], None if now is None else to_milliseconds(now))

    def _atomic(self, groups: Sequence[Sequence[Write]], now: datetime | None) -> list[Written]:
        if not groups:
            return []
        if self._is_made([write for group in groups for write in group], now):
            return [WRITTEN] * len(groups)
        if len(groups) == 1:
            return [NOT_WRITTEN]
        return [_written(self._is_made(group, now)) for group in groups]

    def _is_made(self, writes: Sequence[Write], now: datetime | None) -> bool:
        requests = [each for write in writes for each in requests_for(write, self.database, now)]

        def run(session: Session) -> None:
            self._batches.run_all(requests, session)

        try:
            self.database.transact(run)
        except NotWrittenError:
            return False
        return True

    def _request(self, write: Write, now: datetime | None) -> Request:
        (request,) = requests_for(write, self.database, now)
        return request

    def _lost(self, guards: Sequence[Guard | None]) -> set[Guard | None]:
        """Return those guards that do not hold."""
        distinct = sorted({guard for guard in guards if guard is not None}, key=lambda guard: guard.key)
        if not distinct:
            return set()
        entity = distinct[0].entity
        rows = self.read(entity, list(dict.fromkeys(guard.key for guard in distinct)))
        stored = {entity.key_of(row): row for row in rows if row is not None}
        return {guard for guard in distinct if not guard.holds(stored.get(guard.key))}

    def _at_ms(self, writes: Sequence[Write], now: datetime | None) -> int | None:
        is_of_server = any(write.entity.is_lease for write in writes) and not self.database.uses_caller_time
        return None if is_of_server or now is None else to_milliseconds(now)

    # -- the rest --------------------------------------------------------------------------------------------

    @translated
    def time(self, *, now: datetime) -> StoreTime:
        return StoreTime(self.database.clock(now), resolution_seconds=0.001)

    @translated
    def initialise(self) -> None:
        schema.initialise(self.database)

    @translated
    def check(self) -> None:
        schema.check(self.database)

    def close(self) -> None:
        self.database.close()


def _finds_its_row(write: Write) -> bool:
    return write.change is Change.UPDATE or can_be_stored(write.key)


def _large_size(entity: Entity, document: Document) -> int:
    value = document.get(entity.large or "")
    return len(value) if isinstance(value, str) else 0


def _written(is_written: bool) -> Written:
    return WRITTEN if is_written else NOT_WRITTEN


def _alternatives(entity: Entity, keys: Iterable[Key]) -> list[Document]:
    """Return what finds the keys: those that differ in their last part alone are found together."""
    last = entity.key[-1]
    together: dict[Key, list[Value]] = {}
    for key in keys:
        together.setdefault(tuple(key[:-1]), []).append(key[-1])
    return [
        {**dict(zip(entity.key[:-1], start, strict=True)), last: ends[0] if len(ends) == 1 else {"$in": ends}}
        for start, ends in together.items()
    ]


def _ranges(query: Query) -> Iterator[Document]:
    """Return what is behind a place, one range of the index after the other."""
    path, after = query.path, query.after
    names = path.order_names
    if not names:
        yield {}
        return
    kinds = [query.entity.by_name[name].kind for name in names]
    bounds = _bounds(kinds[0], query.since, query.until)
    if after is None:
        yield {names[0]: bounds} if bounds else {}
        return
    values = [_bson(kind, value) for kind, value in zip(kinds, after, strict=True)]
    for length in reversed(range(len(names))):
        behind = "$lt" if path.is_descending[length] else "$gt"
        condition: Document = dict(zip(names[:length], values[:length], strict=True))
        condition[names[length]] = {behind: values[length]} | (bounds if length == 0 else {})
        if length == 0 and after[0] == (query.since if path.is_descending[0] else query.until):
            return  # nothing can be behind it
        yield condition


def _bounds(kind: Kind, since: Value, until: Value) -> Document:
    bounds: dict[str, Any] = {}
    if since is not None:
        bounds["$gte"] = _bson(kind, since)
    if until is not None:
        bounds["$lte"] = _bson(kind, until)
    return bounds


def _bson(kind: Kind, value: Value) -> Any:
    return from_milliseconds(value) if kind is Kind.INSTANT else value
