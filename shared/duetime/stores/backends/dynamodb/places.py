"""Places on access paths as texts that sort as the rows do: in range keys, and in the keys of indexes.

NUL stands between the values. Nothing sorts before it, so what a client chose may stand before an id: ``ab`` comes
before ``ab!``. Of an id that descends within an order that does not, the digits are inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from duetime.domain.times import read_instant, to_milliseconds
from duetime.stores.backends.dynamodb.items import Attribute, Item, instant_text, text
from duetime.stores.entity import AccessPath, Entity, Kind, Place, Value

NUL: Final = "\0"
LAST: Final = "\U0010ffff"
"""Sorts after all that stands in keys."""
_DIGITS: Final = 10
_COMPLEMENT: Final = str.maketrans("0123456789abcdef", "fedcba9876543210")


def write(entity: Entity, path: AccessPath, place: Sequence[Value]) -> str:
    """Write ``place``, or the beginning of one."""
    return NUL.join([_write(value, *part) for value, part in zip(place, _parts(entity, path), strict=False)])


def read(entity: Entity, path: AccessPath, written: str) -> Place:
    """Read what ``write`` was given, whole."""
    parts = _parts(entity, path)
    texts = written.rsplit(NUL, len(parts) - 1)  # a name may hold one
    return tuple([_read(each, *part) for each, part in zip(texts, parts, strict=True)])


def number(value: int) -> str:
    return f"{value:0{_DIGITS}}"


@cache
def _parts(entity: Entity, path: AccessPath) -> list[tuple[Kind, bool]]:
    """Of each value its kind, and whether it is inverted."""
    kinds = [entity.by_name[name].kind for name in path.order_names]
    first = path.is_descending[0]
    return [(kind, each != first) for kind, each in zip(kinds, path.is_descending, strict=True)]


def _write(value: Value, kind: Kind, is_inverted: bool) -> str:
    if kind is Kind.INSTANT:
        return instant_text(value)
    if kind is Kind.WHOLE:
        return number(value)
    return str(value).translate(_COMPLEMENT) if is_inverted else str(value)


def _read(written: str, kind: Kind, is_inverted: bool) -> Value:
    if kind is Kind.INSTANT:
        return to_milliseconds(read_instant(written))
    if kind is Kind.WHOLE:
        return int(written)
    return written.translate(_COMPLEMENT) if is_inverted else written


@dataclass(frozen=True, slots=True)
class Range:
    """Items of one hash key whose range key is between ``low`` and ``high``, both inclusive; behind ``start``."""

    hash_name: str
    hash_value: Attribute
    range_name: str
    low: str
    high: str
    start: Item | None = None

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of Query."""
        start = {} if self.start is None else {"ExclusiveStartKey": self.start}
        return {
            "KeyConditionExpression": "#hash = :hash AND #range BETWEEN :low AND :high",
            "ExpressionAttributeNames": {"#hash": self.hash_name, "#range": self.range_name},
            "ExpressionAttributeValues": {":hash": self.hash_value, ":low": text(self.low), ":high": text(self.high)},
            **start,
        }
