"""Values as bytes that sort as the values do: where rows, entries and hints stand in their partitions.

Texts and bytes end with two zero bytes, and a zero within is followed by 255. Numbers have eight bytes. What is to
descend is written in complement.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from duetime.stores.entity import Entity, Kind, Value

Parts = Sequence[tuple[Kind, bool]]
"""The kind of each value, and whether it descends."""

BEHIND_ALL = b"\xff" * 32
_COMPLEMENT = bytes(255 - byte for byte in range(256))
_END, _ESCAPED = b"\0\0", b"\0\xff"
_OFFSET = 1 << 63
_NUMBER = struct.Struct(">Q")


def parts_of(entity: Entity, names: Iterable[str]) -> Parts:
    """Return the kind of each name, and whether it is descending, which a ``-`` before it says."""
    return [(entity.by_name[name.removeprefix("-")].kind, name.startswith("-")) for name in names]


def encode(parts: Parts, values: Sequence[Value]) -> bytes:
    """Of the first of ``parts``, if there are fewer values."""
    return b"".join(
        _encoded(kind, value).translate(_COMPLEMENT) if is_descending else _encoded(kind, value)
        for (kind, is_descending), value in zip(parts, values, strict=False)
    )


def decode(parts: Parts, place: bytes) -> tuple[tuple[Value, ...], bytes]:
    """Return the values of ``parts``, with which ``place`` begins, and the rest."""
    values: list[Value] = []
    for kind, is_descending in parts:
        value, rest = _decoded(kind, place.translate(_COMPLEMENT) if is_descending else place)
        values.append(value)
        place = rest.translate(_COMPLEMENT) if is_descending else rest
    return tuple(values), place


def behind(prefix: bytes) -> bytes:
    """Return the first place behind all that begin with ``prefix``."""
    start = prefix.rstrip(b"\xff")
    return start[:-1] + bytes([start[-1] + 1]) if start else BEHIND_ALL


def _encoded(kind: Kind, value: Value) -> bytes:
    if kind in (Kind.WHOLE, Kind.INSTANT):
        return _NUMBER.pack(value + _OFFSET)
    if kind is Kind.FLAG:
        return b"\1" if value else b"\0"
    raw: bytes = value if kind is Kind.BYTES else value.encode()
    return raw.replace(b"\0", _ESCAPED) + _END


def _decoded(kind: Kind, place: bytes) -> tuple[Value, bytes]:
    if kind in (Kind.WHOLE, Kind.INSTANT):
        return _NUMBER.unpack(place[:8])[0] - _OFFSET, place[8:]
    if kind is Kind.FLAG:
        return place[:1] == b"\1", place[1:]
    end = place.index(b"\0")
    while place[end : end + 2] == _ESCAPED:
        end = place.index(b"\0", end + 2)
    raw = place[:end].replace(_ESCAPED, b"\0")
    return raw if kind is Kind.BYTES else raw.decode(), place[end + 2 :]
