"""A backend's writes as the driver's: each succeeds or fails alone and says so."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pymongo import DeleteMany, DeleteOne, InsertOne, ReplaceOne, UpdateOne

from duetime.domain.times import MIN_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.backend import Change, Comparison, Condition, Now, Write
from duetime.stores.backends.mongodb.database import Database
from duetime.stores.backends.mongodb.documents import TYPES, Document, changed, key_of, stored, to_document
from duetime.stores.backends.mongodb.indexes import key_index
from duetime.stores.entities import ENTITIES
from duetime.stores.entity import DAMAGED, Entity, Field, Kind, Value

Model = InsertOne[Document] | ReplaceOne[Document] | UpdateOne | DeleteOne | DeleteMany


@dataclass(frozen=True, slots=True)
class Request:
    """``needs_match``: the write is made only if it finds its document."""

    collection: str
    model: Model
    needs_match: bool = True


def requests_for(write: Write, database: Database, now: datetime | None) -> Iterator[Request]:
    """Make one request, but for a row with parts: these are removed by requests of their own."""
    if write.entity.is_lease and write.change is not Change.DELETE:
        yield _timed(write, database, now)
        return
    entity, collection = write.entity, write.entity.table
    name = f"{database.name}.{collection}"
    now_ms = 0 if now is None else to_milliseconds(now)
    found_by = {**key_of(entity, write.key), **_conditions(entity, write.conditions, now_ms)}
    # Without a hint the planner may choose another index that has some of the conditions.
    hint = key_index(entity) if found_by.keys() >= {*entity.key} else None
    match write.change:
        case Change.INSERT:
            yield Request(collection, InsertOne(to_document(entity, write.row, now_ms), namespace=name))
        case Change.PUT:
            document = to_document(entity, write.row, now_ms)
            yield Request(collection, ReplaceOne(found_by, document, upsert=True, namespace=name))
        case Change.REPLACE:
            document = to_document(entity, write.row, now_ms)
            yield Request(collection, ReplaceOne(found_by, document, hint=hint, namespace=name))
        case Change.UPDATE:
            changes = changed(entity, dict(write.changes or {}), now_ms)
            yield Request(collection, UpdateOne(found_by, changes, hint=hint, namespace=name))
        case Change.DELETE:
            yield Request(collection, DeleteOne(found_by, hint=hint, namespace=name), bool(write.conditions))
            for part in ENTITIES:
                if part.part_of == entity.name:
                    yield _removal_of_parts(part, write, database)


def _removal_of_parts(part: Entity, write: Write, database: Database) -> Request:
    of_row = dict(zip(part.key, write.key, strict=False))
    model = DeleteMany(of_row, hint=key_index(part), namespace=f"{database.name}.{part.table}")
    return Request(part.table, model, needs_match=False)


def _conditions(entity: Entity, conditions: Sequence[Condition], now_ms: int) -> Document:
    damaged = [_is_of_kind(entity.by_name[each.name]) for each in conditions if each.value is DAMAGED]
    given = [each for each in conditions if each.value is not DAMAGED]
    found_by = {each.name: _condition(entity, each, now_ms) for each in given}
    return found_by | {"$nor": damaged} if damaged else found_by


def _is_of_kind(field: Field) -> Document:
    # What holds for one of a list's values holds for the list: so it is asked for by itself.
    is_list = {"$type": "array"}
    return {field.name: is_list if field.kind is Kind.TEXTS else {"$type": TYPES[field.kind], "$not": is_list}}


def _condition(entity: Entity, condition: Condition, now_ms: int) -> Any:
    kind, value = entity.by_name[condition.name].kind, condition.value
    if condition.comparison is Comparison.IS_PAST:
        return {"$not": {"$gt": stored(kind, value, now_ms)}}
    return None if value is None else stored(kind, value, now_ms)


# -- leases: the server's time stands in the update itself, so workers whose clocks differ agree -----------------


def _timed(write: Write, database: Database, now: datetime | None) -> Request:
    entity, key = write.entity, key_of(write.entity, write.key)
    at = database.now_expression(MIN_INSTANT if now is None else now)
    is_past = [each for each in write.conditions if each.comparison is Comparison.IS_PAST]
    found_by = {**key, **_conditions(entity, [each for each in write.conditions if each not in is_past], 0)}
    for each in is_past:
        found_by["$expr"] = _is_past(each.name, _expression(each.value, at))
    is_new = write.change is not Change.UPDATE
    values = dict(zip(entity.names, write.row, strict=True)) if is_new else dict(write.changes or {})
    change = [
        {
            "$set": {
                name: "$$REMOVE" if value is None else _value(entity, name, value, at)
                for name, value in values.items()
                if name not in entity.key
            }
        }
    ]
    if write.change is Change.INSERT:
        # No document is without it: this finds none, and makes one unless the key is taken.
        found_by[next(name for name in entity.names if name not in entity.key)] = {"$exists": False}
    name = f"{database.name}.{entity.table}"
    hint = None if is_new else key_index(entity)
    return Request(entity.table, UpdateOne(found_by, change, upsert=is_new, hint=hint, namespace=name))


def _expression(value: Value, at: Any) -> Any:
    return {"$add": [at, value.plus_ms]} if isinstance(value, Now) else {"$literal": from_milliseconds(value)}


def _is_past(name: str, limit: Any) -> Document:
    # As numbers, which are the same to every server: SecantusDB cannot tell $$NOW from a stored date.
    return {"$lte": [{"$toLong": {"$ifNull": [f"${name}", MIN_INSTANT]}}, {"$toLong": limit}]}


def _value(entity: Entity, name: str, value: Value, at: Any) -> Any:
    if isinstance(value, Now):
        return _expression(value, at)
    return {"$literal": stored(entity.by_name[name].kind, value)}
