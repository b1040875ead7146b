"""The values of documents: written only where there are any, and read with their types checked."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from duetime.stores.mongodb.url import Document

T = TypeVar("T")

DECODING_ERRORS = (KeyError, ValueError, TypeError, AttributeError)
"""What reading a damaged document may raise."""


def without_none(document: Document) -> Document:
    return {name: value for name, value in document.items() if value is not None}


def set_or_unset(values: Document) -> Document:
    """An update that gives a document these values and takes away those that are None."""
    change: Document = {"$set": without_none(values)}
    gone = {name: "" for name, value in values.items() if value is None}
    if gone:
        change["$unset"] = gone
    return change


def what_is_wrong(error: Exception) -> str:
    """One of ``DECODING_ERRORS`` in words. Any but a missing field may quote what was read, which may be a secret."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else type(error).__name__


# The readers raise ``KeyError`` for a field that is not there and ``ValueError`` for a value of another type.


def text(document: Document, name: str) -> str:
    return _typed(document[name], str, name)


def whole(document: Document, name: str) -> int:
    value = _typed(document[name], int, name)
    return int(value)  # a 64-bit integer is read as a type of the driver's own


def instant(document: Document, name: str) -> datetime:
    return _typed(document[name], datetime, name)


def flag(document: Document, name: str) -> bool:
    if not isinstance(document[name], bool):
        raise ValueError(f"{name} is of another type")
    return bool(document[name])


def texts(document: Document, name: str) -> tuple[str, ...]:
    values = _typed(document[name], list, name)
    return tuple([_typed(value, str, name) for value in values])


def optional(read: Callable[[Document, str], T], document: Document, name: str) -> T | None:
    return read(document, name) if name in document else None


def lenient(read: Callable[[Document, str], T], document: Document, name: str, default: Any) -> Any:
    """The value, or ``default`` when it is not there or cannot be read."""
    try:
        return read(document, name)
    except DECODING_ERRORS:
        return default


def _typed(value: Any, wanted: type[T], name: str) -> T:
    if not isinstance(value, wanted) or isinstance(value, bool):
        raise ValueError(f"{name} is of another type")
    return value
