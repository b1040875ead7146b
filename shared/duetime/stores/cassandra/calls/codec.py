"""Values of the domain as JSON text and back: each by the fields and the types of its dataclass."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from duetime.domain.times import from_milliseconds, to_milliseconds

T = TypeVar("T")

DECODING_ERRORS = (KeyError, ValueError, TypeError, AttributeError, OverflowError, RecursionError)
"""What reading a damaged text may raise."""


def encode(value: Any, **replaced: Any) -> str:
    """``value``: a dataclass; what is None is left out. ``replaced``: fields to write otherwise."""
    return json.dumps({**_plain(value), **replaced}, separators=(",", ":"))


def decode(kind: type[T], text: str, **given: Any) -> T:
    """Raises one of ``DECODING_ERRORS``. ``given``: fields that the text does not have."""
    return _read_fields(kind, json.loads(text), given)


def lenient(kind: type[Any], text: str) -> dict[str, Any]:
    """The fields that can be read."""
    try:
        values = json.loads(text)
    except DECODING_ERRORS:
        return {}
    found: dict[str, Any] = {}
    for name, hint in _hints(kind).items():
        try:
            found[name] = _read(hint, values[name])
        except DECODING_ERRORS:
            continue
    return found


def what_is_wrong(error: Exception) -> str:
    """One of ``DECODING_ERRORS`` in words. Any but a missing field may quote what was read, which may be a secret."""
    return f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else type(error).__name__


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        found = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {name: each for name, each in found.items() if each is not None}
    if isinstance(value, datetime):
        return to_milliseconds(value)
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return value


_HINTS: dict[Any, dict[str, Any]] = {}


def _hints(kind: Any) -> dict[str, Any]:
    """The fields of a dataclass with their types."""
    found = _HINTS.get(kind)
    if found is None:
        hints = get_type_hints(kind)
        found = _HINTS[kind] = {field.name: hints[field.name] for field in fields(kind)}
    return found


def _read_fields(kind: type[T], values: Mapping[str, Any], given: Mapping[str, Any]) -> T:
    found = dict(given)
    for name, hint in _hints(kind).items():
        if name in values:
            found[name] = _read(hint, values[name])
        elif name not in found and _is_optional(hint):
            found[name] = None
    return kind(**found)


def _is_optional(hint: Any) -> bool:
    return get_origin(hint) in (Union, UnionType) and type(None) in get_args(hint)


def _read(hint: Any, value: Any) -> Any:
    if _is_optional(hint):
        if value is None:
            return None
        (hint,) = [each for each in get_args(hint) if each is not type(None)]
    if get_origin(hint) is tuple:
        return _read_tuple(get_args(hint), value)
    if isinstance(hint, type) and is_dataclass(hint):
        return _read_fields(hint, _typed(value, dict), {})
    if hint is datetime:
        return from_milliseconds(_typed(value, int))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return hint(value)
    return _typed(value, hint)


def _read_tuple(members: tuple[Any, ...], value: Any) -> tuple[Any, ...]:
    values = _typed(value, list)
    if len(members) == 2 and members[1] is Ellipsis:
        return tuple([_read(members[0], each) for each in values])
    return tuple([_read(hint, each) for hint, each in zip(members, values, strict=True)])


def _typed(value: Any, wanted: Any) -> Any:
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise ValueError("a value is of another type")
    return value
