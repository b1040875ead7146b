"""Reading JSON without losing its text.

A payload must reach its receiver with the value that was sent: 1.0 is not 1, 1e400 is not infinity, and a big
integer keeps every digit. So JSON values that Duetime only passes on are never turned into Python numbers and
back; they are cut out of the body as the text they were. One walk over the members of an object decodes the
plain ones and slices the opaque ones; the C scanner of the standard library does the work.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from json import JSONDecodeError
from typing import Any, NamedTuple, Never

_SPACE = re.compile(r"[ \t\n\r]*")
_NAME = r'"([^"\\\x00-\x1f]*(?:\\.[^"\\\x00-\x1f]*)*)"[ \t\n\r]*:[ \t\n\r]*'
# What comes before a member's value: its name, or the end of the object in its place.
_FIRST = re.compile(rf"[ \t\n\r]*(?:{_NAME}|}})")
_MORE = re.compile(rf"[ \t\n\r]*(?:,[ \t\n\r]*{_NAME}|}})")
_NEXT_ITEM = re.compile(r"[ \t\n\r]*([,\]])[ \t\n\r]*")
# Every escape is consumed, surrogate or not: that tells the text \\ud800 from the surrogate \ud800.
_ESCAPE = re.compile(r"\\(?:u([dD][89a-fA-F][0-9a-fA-F]{2})|.)")
_MAX_INTEGER_DIGITS = 400
_MAX_SHOWN_NAME = 128


class RawObject(NamedTuple):
    """The members of a JSON object, and (name, message) for each that cannot be taken.

    ``objects``: the names of the members that are a RawObject.
    """

    members: dict[str, Any]
    faults: list[tuple[str, str]]
    objects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shape:
    """Which members are not plain: ``opaque`` ones stay the text that they were, but for null, which is None.

    ``items`` names a member that holds an array whose objects are read by the same shape, as RawObject.
    ``objects`` has the shapes of members that hold an object of their own, which becomes a RawObject too.
    """

    opaque: AbstractSet[str] = frozenset()
    items: str | None = None
    objects: Mapping[str, Shape] = field(default_factory=dict)


def _refuse_constant(name: str) -> Never:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> int | float:
    """Read a number with a point or an exponent. As in JSON Schema, 16.0 is the integer 16."""
    number = float(text)
    return int(number) if number.is_integer() else number


def _integer(digits: str) -> int | float:
    """Read an integer. An absurdly long one is out of every range and slow to convert, so it becomes a float."""
    return int(digits) if len(digits) <= _MAX_INTEGER_DIGITS else float(digits)


def _unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        ((twice, _),) = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"has the name {twice[:_MAX_SHOWN_NAME]!r} twice")
    return members


# Both give (value, index after it). ``str`` leaves digits as they are: of an opaque value only the end counts.
_scan_opaque = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse_constant).raw_decode
_scan_plain = json.JSONDecoder(parse_int=_integer, parse_float=_number, parse_constant=_refuse_constant).raw_decode
_decode_unique = json.JSONDecoder(parse_int=_integer, parse_float=_number, object_pairs_hook=_unique_members).decode


def read_object(text: str, shape: Shape) -> RawObject:
    """Return all of ``text`` as one JSON object.

    Raises ``ValueError`` when it is not JSON by RFC 8259 (NaN is not), no object, or nested too deeply. What is
    JSON but cannot be taken (a member given twice, half a surrogate pair) is a fault of the object it is in.
    """
    found: RawObject | None = None
    start = _after_space(text, 0)
    try:
        if text.startswith("{", start):
            found, end = _read_members(text, start, shape, "\\ud" in text or "\\uD" in text)
        else:
            _, end = _scan_plain(text, start)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    end = _after_space(text, end)
    if end != len(text):
        raise JSONDecodeError("Extra data", text, end)
    if found is None:
        raise ValueError("it is not an object")
    return found


def decode_unique(text: str) -> Any:
    """Return what ``text`` says. Raises ``ValueError`` when an object in it has a name twice, or it is nested too
    deeply."""
    try:
        return _decode_unique(text)
    except RecursionError:  # there was room for it where the body was read, and less of the stack is left here
        raise ValueError("is nested too deeply") from None


def _read_members(text: str, start: int, shape: Shape, has_surrogates: bool) -> tuple[RawObject, int]:
    """Return the object that begins at ``start`` and the index after it."""
    members: dict[str, Any] = {}
    faults: list[tuple[str, str]] = []
    opaque, items, objects = shape.opaque, shape.items, shape.objects
    found: tuple[str, ...] = ()
    end = start + 1
    match = _FIRST.match(text, end)
    while match is not None:
        name, index = match[1], match.end()
        if name is None:
            return RawObject(members, faults, found), index
        if "\\" in name:
            name = json.loads(f'"{name}"')
        if name in opaque:
            value, end = _scan_opaque(text, index)
            value = None if value is None else text[index:end]
        elif name == items and text.startswith("[", index):
            value, end = _read_items(text, index, shape, has_surrogates)
        elif name in objects and text.startswith("{", index):
            value, end = _read_members(text, index, objects[name], has_surrogates)
            found += (name,)
        else:
            value, end = _scan_plain(text, index)
        if has_surrogates and has_lone_surrogate(match[1]):
            faults.append((match[1], "is not a known field"))
        elif name in members:
            faults.append((name, "is given twice"))
        elif has_surrogates and not _is_read_apart(name, value, items) and has_lone_surrogate(text[index:end]):
            faults.append((name, "has half of a surrogate pair, which is not a character"))
        members[name] = value
        match = _MORE.match(text, end)
    raise JSONDecodeError("Expecting a name in double quotes and a colon, or the end of the object", text, end)


def _is_read_apart(name: str, value: Any, items: str | None) -> bool:
    """Tell whether the faults inside a member are found where its objects are read."""
    return name == items or isinstance(value, RawObject)


def _read_items(text: str, start: int, shape: Shape, has_surrogates: bool) -> tuple[list[Any], int]:
    """Return the array that begins at ``start`` and the index after it."""
    items: list[Any] = []
    index = _after_space(text, start + 1)
    if text.startswith("]", index):
        return items, index + 1
    item_shape = replace(shape, items=None)
    while True:
        if text.startswith("{", index):
            item, end = _read_members(text, index, item_shape, has_surrogates)
        else:
            item, end = _scan_plain(text, index)
        items.append(item)
        match = _NEXT_ITEM.match(text, end)
        if match is None:
            raise JSONDecodeError("Expecting ',' or ']'", text, end)
        if match[1] == "]":
            return items, match.end(1)
        index = match.end()


def _after_space(text: str, index: int) -> int:
    match = _SPACE.match(text, index)
    return index if match is None else match.end()


def has_lone_surrogate(json_text: str) -> bool:
    """Tell whether a string in ``json_text`` holds an escaped surrogate that is not one of a pair."""
    pending = -1
    for escape in _ESCAPE.finditer(json_text):
        unit = escape[1]
        is_low = unit is not None and unit[1] in "cdefCDEF"
        is_pair = is_low and pending == escape.start()
        if not is_pair and (is_low or pending != -1):
            return True
        pending = escape.end() if unit is not None and not is_low else -1
    return pending != -1
