"""From JSON to the models: by their annotations, passing over what a newer server adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum, StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from duetime_client.values import camel, read_duration, read_instant

T = TypeVar("T")
Reader = Callable[[Any], Any]


class OpenEnum(StrEnum):
    """An enum that knows further members when a newer server names them: they are equal to their text."""

    @classmethod
    def _missing_(cls, value: object) -> OpenEnum | None:
        if not isinstance(value, str):
            return None
        member = str.__new__(cls, value)
        member._name_ = member._value_ = value
        return member


def decode(kind: type[T], value: Any) -> T:
    """Decode ``value`` as a ``kind``. Raises ``ValueError`` that names the place."""
    read: Reader = _reader(kind)  # type: ignore[arg-type]  # a class is hashable
    result: T = read(value)
    return result


@cache
def _reader(annotation: Any) -> Reader:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        read = _reader(inner)
        return lambda value: None if value is None else read(value)
    if origin is tuple:
        return _list_reader(_reader(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _checked(dict)
    if annotation is Any:
        return lambda value: value
    if annotation is datetime:
        return read_instant
    if annotation is timedelta:
        return read_duration
    if is_dataclass(annotation):
        return _object_reader(annotation)
    if issubclass(annotation, Enum):
        return lambda value: annotation(value)
    return _checked(annotation)


def _checked(kind: type[Any]) -> Reader:
    kinds = (int, float) if kind is float else (kind,)

    def read(value: Any) -> Any:
        # True is an int to Python.
        if not isinstance(value, kinds) or (isinstance(value, bool) and kind is not bool):
            raise ValueError(f"{kind.__name__} expected, not {type(value).__name__}")
        return value

    return read


def _list_reader(read: Reader) -> Reader:
    as_list = _checked(list)

    def read_list(value: Any) -> tuple[Any, ...]:
        items = []
        for at, item in enumerate(as_list(value)):
            try:
                items.append(read(item))
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"[{at}] {error}") from None
        return tuple(items)

    return read_list


def _object_reader(kind: Any) -> Reader:
    """Make a reader. ``metadata`` of a field may have ``json``, the name, and ``unit``, a timedelta that a number
    counts."""
    hints = get_type_hints(kind)
    plan = [
        (each, json_name(each), _field_reader(each, hints[each.name]), NoneType in get_args(hints[each.name]))
        for each in fields(kind)
    ]
    as_object = _checked(dict)

    def read(value: Any) -> Any:
        given = as_object(value)
        found: dict[str, Any] = {}
        for each, json_name, read_field, is_optional in plan:
            if json_name not in given:
                if is_optional:
                    found[each.name] = None
                elif each.default is MISSING:
                    raise ValueError(f"{json_name} is missing")
                continue
            try:
                found[each.name] = read_field(given[json_name])
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"{json_name}: {error}") from None
        return kind(**found)

    return read


def json_name(each: Field[Any]) -> str:
    """Return the API's name of a field."""
    name: str = each.metadata.get("json", camel(each.name))
    return name


def _field_reader(each: Field[Any], hint: Any) -> Reader:
    unit = each.metadata.get("unit")
    if unit is None:
        return _reader(hint)
    return lambda value: None if value is None and NoneType in get_args(hint) else value * unit
