"""Events as items and back. Those of one transition are one item: they are written, and published, together.

It stands under the sequence of the last of them. What all of them have alike stands once, beside ``events``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from duetime.stores.backends.dynamodb.items import Item, at, text
from duetime.stores.backends.dynamodb.layouts import LAYOUTS
from duetime.stores.entities import EVENT
from duetime.stores.entity import Row

EVENTS: Final = "events"
PUBLISHED_AT: Final = "published_at"
REMOVED: Final[Item] = {"NULL": True}  # type: ignore[dict-item]
"""Stands in the place of an event that was removed alone."""
_LAYOUT = LAYOUTS[EVENT]


def packed(rows: Sequence[Row], now_ms: int) -> Item:
    """Return the item of events of one call, whose sequences follow each other."""
    apart = [
        {name: make(at(row[place], now_ms)) for place, name, make in _LAYOUT.row_writers if row[place] is not None}
        for row in rows
    ]
    alike = {name: value for name, value in apart[0].items() if all(each.get(name) == value for each in apart)}
    return {
        **_LAYOUT.key_of(EVENT.key_of(rows[-1])),
        "row_type": text(_LAYOUT.row_type),
        **alike,
        EVENTS: {"L": [{"M": {name: each[name] for name in each if name not in alike}} for each in apart]},
    }


def unpacked(item: Item) -> dict[int, Item]:
    """By sequence, each event as an item of its own. Of an item that is damaged there is one, without attributes."""
    key = _LAYOUT.in_key(item)
    try:
        tenant_id, call_id, last = _LAYOUT.parts_of(item)
    except ValueError:
        return {0: key}
    events = item.get(EVENTS, {}).get("L")
    if not isinstance(events, list) or not all(each.keys() <= {"M", "NULL"} for each in events):
        return {last: key}
    alike = {name: value for name, value in item.items() if name != EVENTS}
    return {
        sequence: {**alike, **_LAYOUT.key_of((tenant_id, call_id, sequence)), **each["M"]}
        for sequence, each in enumerate(events, last - len(events) + 1)
        if "M" in each
    }
