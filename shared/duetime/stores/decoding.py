"""What reading a stored row may raise, when the row is damaged or another version has written it; and texts of bytes
that are no UTF-8.

A driver that is asked to go on at such bytes keeps them as halves of surrogate pairs, so the stores know them for
damage: ``is_whole`` tells, and ``repaired`` gives what can be shown. None leaves a store.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import fields, is_dataclass, replace
from functools import cache
from operator import attrgetter
from typing import Any, TypeVar

from duetime.stores.entity import DAMAGED, Row, Value

T = TypeVar("T")

_HALVES = re.compile("[\ud800-\udfff]")

DECODING_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)


class UnreadableError(Exception):
    """A row that does not decode. The message names the field or the kind of fault, never the value."""


class DamagedRow(ValueError):
    """What a row holds cannot be sent or shown. The message names a field, and quotes nothing of it."""


def what_is_wrong(error: Exception) -> str:
    """Return one of ``DECODING_ERRORS`` in words. Any but a missing field may quote what was read, which may be a
    secret."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else type(error).__name__


def is_text(text: str) -> bool:
    """Tell whether ``text`` is Unicode, which can be sent and shown. An ASCII text is told by a flag of the
    string."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def text_of_bytes(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def bytes_of_text(text: str) -> bytes:
    """Return what ``text_of_bytes`` made ``text`` of."""
    return text.encode("utf-8", "surrogateescape")


def can_be_stored(values: Iterable[Any]) -> bool:
    """Tell whether a row can stand at these values, which damage may have made of another type or no Unicode."""
    return all(value is not None and value is not DAMAGED and is_whole(value) for value in values)


def is_whole(value: Any) -> bool:
    """Tell whether all texts in ``value`` are: a dataclass or a tuple, with those that are in it."""
    whole: Any = type(value)
    parts = _parts(whole)
    for part in parts(value) if parts is not None else (value,):
        kind: Any = type(part)
        if kind is str:
            if not (part.isascii() or is_text(part)):
                return False
        elif _parts(kind) is not None and not is_whole(part):
            return False
    return True


def whole(value: T) -> T:
    """Return ``value``; raise ``ValueError`` where a text in it is none."""
    if not is_whole(value):
        raise ValueError("a text is damaged")
    return value


def sound(row: Row) -> Row:
    """Return ``row``; raise ``ValueError`` where a value in it is damaged."""
    if DAMAGED in row:
        raise ValueError("a value is of another type")
    return row


def text_or_empty(value: Value) -> str:
    """Return ``value``, or "" where it is no text, which is the id of no tenant."""
    return value if isinstance(value, str) and is_text(value) else ""


def repaired(value: T) -> T:
    """Return ``value`` with U+FFFD in the place of what is damaged in its texts, and "" for a text of another
    type."""
    found: Any = value
    if found is DAMAGED:
        found = ""
    elif isinstance(found, str):
        found = found if is_text(found) else _HALVES.sub("\N{REPLACEMENT CHARACTER}", found)
    elif isinstance(found, tuple):
        found = tuple(map(repaired, found))
    elif is_dataclass(found) and not isinstance(found, type):
        found = replace(found, **{field.name: repaired(getattr(found, field.name)) for field in fields(found)})
    shown: T = found
    return shown


@cache
def _parts(kind: Any) -> Callable[[Any], tuple[Any, ...]] | None:
    """Return what gives the values that one of this type is made of; None where it is made of none."""
    if kind is tuple:
        return tuple
    return attrgetter(*(field.name for field in fields(kind))) if is_dataclass(kind) else None
