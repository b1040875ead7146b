"""The indexes of entities. Rows that have the same fields in the same order share one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from pymongo import ASCENDING, DESCENDING, IndexModel

from duetime.stores.backends.mongodb.documents import Document, marker, marks
from duetime.stores.entities import ENTITIES
from duetime.stores.entity import AccessPath, Entity

Order = list[tuple[str, int]]


def order_of(path: AccessPath) -> Order:
    """Return the order of a scan."""
    directions = [DESCENDING if is_descending else ASCENDING for is_descending in path.is_descending]
    return list(zip(path.order_names, directions, strict=True))


def condition_of(path: AccessPath) -> Document:
    """Return what the documents on a path have in common."""
    absent = {marker(name): True for name in path.absent}
    return {name: {"$exists": True} for name in path.present} | absent | dict(path.where)


@cache
def key_index(entity: Entity) -> str:
    """Return the name of the unique index that finds a row by its key.

    It begins with the key's first field, as a cluster that is sharded by that asks of unique indexes. Another entity
    of the collection whose key begins with this one's has it for both: the row without the other fields is one.
    """
    owner = _owner_of_key(entity)
    of_key = [path for path in owner.paths if _is_of_key(owner, path)]
    return of_key[0].name if of_key else f"{owner.name}_key"


@cache
def path_index(entity: Entity, path: AccessPath) -> str:
    """Return the name of the index that a scan goes along."""
    if _is_of_key(entity, path):
        return key_index(entity)
    alike = (each for each in entity.paths if _shape(each) == _shape(path))
    return next(alike).name


def _shape(path: AccessPath) -> tuple[object, ...]:
    return (*path.by, *path.order), condition_of(path)


def _owner_of_key(entity: Entity) -> Entity:
    for other in ENTITIES:
        if other.table == entity.table and other.key[: len(entity.key)] == entity.key:
            return other
    return entity


def _is_of_key(entity: Entity, path: AccessPath) -> bool:
    """Tell whether the index of the key has the path's order, as its other fields are equal there."""
    in_order = tuple(name for name in entity.key if name in path.order_names)
    return (
        not condition_of(path)
        and {*path.by, *path.order_names} == {*entity.key}
        and path.order_names == in_order
        and len(set(path.is_descending)) == 1
    )


def indexes(entity: Entity) -> Iterator[IndexModel]:
    if _owner_of_key(entity) is entity:
        descending = {name for path in entity.paths if _is_of_key(entity, path) for name in _descending(path)}
        fields = [(name, DESCENDING if name in descending else ASCENDING) for name in entity.key]
        yield IndexModel(_marked(entity, fields), name=key_index(entity), unique=True)
    ends = False
    for path in entity.paths:
        if path_index(entity, path) != path.name or _is_of_key(entity, path):
            continue
        fields = [(name, ASCENDING) for name in path.by] + order_of(path)
        condition = condition_of(path)
        partial = {"partialFilterExpression": condition} if condition else {}
        if path.order_names == (entity.expires,):
            # The server removes a document when the time in the field has come, which has to be the only one.
            ends = True
            yield IndexModel(fields, name=path.name, expireAfterSeconds=0, **partial)
        else:
            yield IndexModel(_marked(entity, fields), name=path.name, unique=path.is_unique, **partial)
    if entity.expires is not None and not ends:
        yield IndexModel([(entity.expires, ASCENDING)], name=f"{entity.name}_expiry", expireAfterSeconds=0)


def _descending(path: AccessPath) -> Iterator[str]:
    return (name for name, is_descending in zip(path.order_names, path.is_descending, strict=True) if is_descending)


def _marked(entity: Entity, fields: Order) -> Order:
    return [*fields[:1], *((name, ASCENDING) for name in marks(entity)), *fields[1:]]
