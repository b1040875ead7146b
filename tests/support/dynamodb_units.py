"""What DynamoDB charges for a write, by its documentation: sizes of items, write units of tables and their indexes.

Emulators charge a flat unit for a PartiQL statement. The service charges it like the single write that it stands for.
"""

from __future__ import annotations

from math import ceil
from typing import Any

Item = dict[str, Any]
_KILOBYTE = 1024


def item_size(item: Item) -> int:
    """Bytes ("DynamoDB item sizes and formats")."""
    return sum(len(name.encode()) + _value_size(value) for name, value in item.items())


def _value_size(value: dict[str, Any]) -> int:
    kind: str
    content: Any
    ((kind, content),) = value.items()
    match kind:
        case "S":
            return len(content.encode())
        case "N":
            digits: str = content.lstrip("-").replace(".", "").strip("0")
            return ceil(len(digits) / 2) + 1 + bool(content.startswith("-"))
        case "B":
            return len(content) * 3 // 4 if isinstance(content, str) else len(content)
        case "L":
            return 3 + sum(1 + _value_size(each) for each in content)
        case "M":
            return 3 + len(content) + item_size(content)
        case "SS":
            return sum(len(each.encode()) for each in content)
        case _:
            return 1  # BOOL, NULL


def index_entry(definition: Item, index: Item, item: Item | None) -> Item | None:
    """What ``item`` has in an index, which is sparse; ``definition`` and ``index`` as DescribeTable tells them."""
    keys = [key["AttributeName"] for key in index["KeySchema"]]
    if item is None or any(key not in item for key in keys):
        return None
    if index["Projection"]["ProjectionType"] == "ALL":
        return item
    kept = {*keys, *(key["AttributeName"] for key in definition["KeySchema"])}
    return {name: value for name, value in item.items() if name in kept}


def write_units(definition: Item, before: Item | None, after: Item | None) -> int:
    """Of a write that made ``before`` into ``after``, tables and indexes together ("Provisioned throughput")."""
    units = _units(max(item_size(before or {}), item_size(after or {})))
    for index in _indexes(definition):
        old, new = index_entry(definition, index, before), index_entry(definition, index, after)
        if old is not None and new is not None and _keys(index, old) == _keys(index, new):
            units += 0 if old == new else _units(max(item_size(old), item_size(new)))
        else:  # the old entry is removed, the new one put
            units += sum(_units(item_size(entry)) for entry in (old, new) if entry is not None)
    return units


def collection_size(definition: Item, item: Item | None) -> int:
    """Bytes that ``item`` takes of its item collection: itself, its local index entries, 100 bytes for each."""
    entries = [item] + [index_entry(definition, each, item) for each in definition.get("LocalSecondaryIndexes", [])]
    return sum(item_size(entry) + 100 for entry in entries if entry is not None)


def _indexes(definition: Item) -> list[Item]:
    return [*definition.get("LocalSecondaryIndexes", []), *definition.get("GlobalSecondaryIndexes", [])]


def _keys(index: Item, entry: Item) -> list[Any]:
    return [entry[key["AttributeName"]] for key in index["KeySchema"]]


def _units(size: int) -> int:
    return max(1, ceil(size / _KILOBYTE))
