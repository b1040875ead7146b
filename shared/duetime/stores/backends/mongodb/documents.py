"""Rows as documents and back. A value that a row has not is a field that its document has not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import cache
from typing import Any
from uuid import UUID

from bson import Decimal128, Int64, ObjectId
from bson.datetime_ms import DatetimeMS

from duetime.domain.times import MAX_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.backend import Now
from duetime.stores.decoding import can_be_stored
from duetime.stores.entity import DAMAGED, Entity, Key, Kind, Place, Row, Value

Document = dict[str, Any]


def key_of(entity: Entity, key: Key) -> Document:
    """Return what finds a row's document, by the parts of its key that are not damaged."""
    parts = zip(entity.key, key, strict=True)
    return {**marks(entity), **{name: value for name, value in parts if can_be_stored((value,))}}


def marks(entity: Entity) -> Document:
    """Return what tells an entity's documents from others of the same collection."""
    return {} if entity.row_type is None else {"row_type": entity.row_type}


def marker(name: str) -> str:
    """Return the field of a document that lacks another one, for paths of such: an index has no condition for
    that."""
    return f"has_no_{name}"


def to_document(entity: Entity, row: Row, now_ms: int) -> Document:
    document = marks(entity)
    for field, value in zip(entity.fields, row, strict=True):
        if value is not None:
            document[field.name] = stored(field.kind, value, now_ms)
    return document | {marker(name): True for name in _marked(entity) if name not in document}


def changed(entity: Entity, changes: dict[str, Value], now_ms: int) -> Document:
    """Return the update that gives a document these values and takes away those that are None."""
    given = {
        name: stored(entity.by_name[name].kind, value, now_ms) for name, value in changes.items() if value is not None
    }
    gone: Document = {name: "" for name, value in changes.items() if value is None}
    for name in _marked(entity) & changes.keys():
        (given if changes[name] is None else gone)[marker(name)] = True
    return ({"$set": given} if given else {}) | ({"$unset": gone} if gone else {})


@cache
def _marked(entity: Entity) -> frozenset[str]:
    """Return the fields whose absence is marked."""
    return frozenset(name for path in entity.paths for name in path.absent)


def stored(kind: Kind, value: Value, now_ms: int = 0) -> Any:
    if isinstance(value, Now):
        value = now_ms + value.plus_ms
    if kind is Kind.INSTANT:
        return from_milliseconds(value)
    return list(value) if kind is Kind.TEXTS else value


def to_row(entity: Entity, document: Document, names: Sequence[str]) -> Row:
    return tuple([_value(entity, document, name) for name in names])


def place_of(entity: Entity, document: Document, names: Sequence[str]) -> Place:
    """Return where a document stands in an index. For a value that is damaged stands the one of its field's kind that
    is next to it in MongoDB's order of types."""
    row = to_row(entity, document, names)
    return tuple(
        [
            _ENDS[entity.by_name[name].kind][_is_behind(entity.by_name[name].kind, document.get(name))]
            if value is DAMAGED
            else value
            for name, value in zip(names, row, strict=True)
        ]
    )


def _is_behind(kind: Kind, value: Any) -> bool:
    """Tell whether a value of another type sorts behind all of ``kind``."""
    in_order = [_NUMBERS, (str,), (dict,), (list,), (bytes, UUID), (ObjectId,), (bool,), (datetime, DatetimeMS)]
    if value is None:
        return False
    if kind is Kind.INSTANT and isinstance(value, DatetimeMS):
        return int(value) > 0
    rank = next((at for at, types in enumerate(in_order) if type(value) in types), len(in_order))
    return rank > next(at for at, types in enumerate(in_order) if _SAMPLES[kind] in types)


def _value(entity: Entity, document: Document, name: str) -> Value:
    field = entity.by_name[name]
    value = document.get(name)
    if value is None:
        return None if field.is_optional and name not in document else DAMAGED
    return _READ[field.kind](value)


def _text(value: Any) -> Value:
    return value if isinstance(value, str) else DAMAGED


def _whole(value: Any) -> Value:
    # A 64-bit integer is read as a type of the driver's own.
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else DAMAGED


def _instant(value: Any) -> Value:
    return to_milliseconds(value) if isinstance(value, datetime) else DAMAGED


def _flag(value: Any) -> Value:
    return value if isinstance(value, bool) else DAMAGED


def _bytes(value: Any) -> Value:
    return bytes(value) if isinstance(value, bytes) else DAMAGED


def _texts(value: Any) -> Value:
    is_list = isinstance(value, list) and all(isinstance(each, str) for each in value)
    return tuple(value) if is_list else DAMAGED


_READ: dict[Kind, Callable[[Any], Value]] = {
    Kind.TEXT: _text,
    Kind.LONG_TEXT: _text,
    Kind.WHOLE: _whole,
    Kind.INSTANT: _instant,
    Kind.FLAG: _flag,
    Kind.BYTES: _bytes,
    Kind.TEXTS: _texts,
}
TYPES: dict[Kind, list[str]] = {
    Kind.TEXT: ["string"],
    Kind.LONG_TEXT: ["string"],
    Kind.WHOLE: ["int", "long"],
    Kind.INSTANT: ["date"],
    Kind.FLAG: ["bool"],
    Kind.BYTES: ["binData"],
    Kind.TEXTS: ["array"],
}
"""The server's names of the types that a value may have."""
_SAMPLES: dict[Kind, type] = {Kind.TEXT: str, Kind.WHOLE: int, Kind.INSTANT: datetime, Kind.BYTES: bytes}
_NUMBERS = (int, Int64, float, Decimal128)
_ENDS: dict[Kind, tuple[Value, Value]] = {
    Kind.TEXT: ("", "\U0010ffff" * 256),
    Kind.WHOLE: (0, (1 << 63) - 1),
    Kind.INSTANT: (0, to_milliseconds(MAX_INSTANT)),
    Kind.BYTES: (b"", b"\xff" * 256),
}
"""The lowest and the highest value of what stands in places."""
