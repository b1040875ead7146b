"""Rows as items and back: numbers are whole, times are UTC text of fixed width, JSON is the exact text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeAlias
from zlib import crc32

from duetime.domain.ids import MAX_KEY_BYTES
from duetime.domain.times import format_instant, from_milliseconds, read_instant, to_milliseconds
from duetime.stores.backend import Now
from duetime.stores.decoding import can_be_stored
from duetime.stores.entity import DAMAGED, Kind, Value

Attribute: TypeAlias = dict[str, Any]
"""A low-level attribute value, e.g. ``{"N": "7"}``."""
Item: TypeAlias = dict[str, Attribute]
Reader = Callable[[Item], Value]


def text(value: str) -> Attribute:
    return {"S": value}


def whole(value: int) -> Attribute:
    return {"N": str(value)}


@lru_cache(maxsize=4096)
def instant_text(milliseconds: int) -> str:
    return format_instant(from_milliseconds(milliseconds))


@lru_cache(maxsize=4096)
def _milliseconds(instant: str) -> Value:
    try:
        return to_milliseconds(read_instant(instant))
    except ValueError:
        return DAMAGED


def is_key(item: Item) -> bool:
    """Tell whether DynamoDB looks for it. It refuses a request with one that is too long, whatever else is asked
    for."""
    return all(len(value["S"].encode()) <= MAX_KEY_BYTES for value in item.values() if "S" in value)


def can_be_found(values: Sequence[Value]) -> bool:
    """Tell whether a row can stand at these values: no part of a key may be an empty text."""
    return "" not in values and can_be_stored(values)


# -- values -------------------------------------------------------------------------------------------------------

_WRITE: dict[Kind, Callable[[Any], Attribute]] = {
    Kind.TEXT: text,
    Kind.LONG_TEXT: text,
    Kind.WHOLE: whole,
    Kind.INSTANT: lambda value: {"S": instant_text(value)},
    Kind.FLAG: lambda value: {"BOOL": value},
    Kind.BYTES: lambda value: {"B": value},
    Kind.TEXTS: lambda value: {"L": [text(each) for each in value]},
}


def writer(kind: Kind) -> Callable[[Any], Attribute]:
    return _WRITE[kind]


def at(value: Value, now_ms: int) -> Value:
    return now_ms + value.plus_ms if isinstance(value, Now) else value


# -- a large text that is an item of its own: its mark stands in its place ---------------------------------------


def mark_of(large: str) -> Attribute:
    """Return how large it is, for pages, and what tells it from what was there before or will be."""
    raw = large.encode()
    return text(f"{len(raw)} {crc32(raw):08x}")


def size_of_mark(mark: Attribute) -> int:
    size = mark.get("S", "").partition(" ")[0]
    return int(size) if size.isdecimal() else 0


# -- reading ------------------------------------------------------------------------------------------------------


def _text(value: Attribute) -> Value:
    found = value.get("S")
    return found if isinstance(found, str) else DAMAGED


def _whole(value: Attribute) -> Value:
    try:
        return int(value["N"])
    except (KeyError, ValueError):
        return DAMAGED


def instant_of(value: Attribute) -> Value:
    found = value.get("S")
    return _milliseconds(found) if isinstance(found, str) else DAMAGED


def _flag(value: Attribute) -> Value:
    return value.get("BOOL", DAMAGED)


def _bytes(value: Attribute) -> Value:
    return bytes(value["B"]) if "B" in value else DAMAGED


def _texts(value: Attribute) -> Value:
    found = value.get("L")
    if found is None or not all("S" in each for each in found):
        return DAMAGED
    return tuple([each["S"] for each in found])


_READ: dict[Kind, Callable[[Attribute], Value]] = {
    Kind.TEXT: _text,
    Kind.LONG_TEXT: _text,
    Kind.WHOLE: _whole,
    Kind.INSTANT: instant_of,
    Kind.FLAG: _flag,
    Kind.BYTES: _bytes,
    Kind.TEXTS: _texts,
}


def reader(kind: Kind, attribute: str, *, is_optional: bool) -> Reader:
    """Return what gives the value of an item's attribute."""
    read, missing = _READ[kind], None if is_optional else DAMAGED

    def of_item(item: Item) -> Value:
        value = item.get(attribute)
        return missing if value is None else read(value)

    def of_text(item: Item) -> Value:
        """Return the same in one call: most fields are texts."""
        value = item.get(attribute)
        if value is None:
            return missing
        found = value.get("S")
        return found if isinstance(found, str) else DAMAGED

    return of_text if read is _text else of_item


def matches(value: Value, wanted: Value) -> bool:
    """Tell whether what was read fulfils a condition."""
    return value is wanted if wanted is DAMAGED or wanted is None else bool(value == wanted)
