"""Rows by their keys, strongly consistent, and large fields that are items of their own."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from duetime.stores.backends.dynamodb.driver import Driver, identity
from duetime.stores.backends.dynamodb.errors import unprocessed
from duetime.stores.backends.dynamodb.item_writes import projection
from duetime.stores.backends.dynamodb.items import Item, can_be_found, is_key, mark_of
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, Layout, row_reader
from duetime.stores.entity import DAMAGED, Entity, Key, Row

_TRIES = 4


class Reads:
    """``table_of`` gives the name of a layout's table."""

    def __init__(self, driver: Driver, table_of: Callable[[Layout], str]) -> None:
        self._driver = driver
        self.table_of = table_of

    def read(self, entity: Entity, keys: Sequence[Key], fields: tuple[str, ...]) -> list[Row | None]:
        layout = LAYOUTS[entity]
        item_keys = [layout.key_of(key) if can_be_found(key) else None for key in keys]
        asked = [key for key in item_keys if key is not None and is_key(key)]
        if not asked:
            return [None] * len(keys)
        parameters = {} if fields == entity.names else projection(self.attributes(layout, fields))
        found, unread = self._driver.get_readable(self.table_of(layout), asked, **parameters)
        items = [None if key is None else found.get(identity(key, key)) for key in item_keys]
        if layout.large in fields:
            items = self.completed(layout, items)
        read = row_reader(entity, fields)
        rows = [None if item is None else read(item) for item in items]
        if unread:
            if not entity.is_lease:
                raise unprocessed()
            # What is there cannot be told for now, as if it were damaged: others are not theirs to delay.
            for at, (key, item_key) in enumerate(zip(keys, item_keys, strict=True)):
                if item_key is not None and identity(item_key, item_key) in unread:
                    values = dict(zip(entity.key, key, strict=True))
                    rows[at] = tuple([values.get(name, DAMAGED) for name in fields])
        return rows

    def attributes(self, layout: Layout, fields: Sequence[str]) -> list[str]:
        """Return what is to be read of items for these fields."""
        names = dict.fromkeys(layout.key_names)
        names |= {layout.attribute(name): None for name in fields if name not in layout.entity.key}
        if layout.large in fields:
            names[layout.apart_mark] = None
        return list(names)

    def completed(self, layout: Layout, items: Sequence[Item | None]) -> list[Item | None]:
        """Items with their large field in place.

        One that does not fit its item means that the row was changed meanwhile: then the row is read again. None: it
        is gone. Where it never fits, the field is damaged.
        """
        large, result = layout.large, list(items)
        for _ in range(_TRIES):
            waiting = {at: item for at, item in enumerate(result) if item is not None and _waits(layout, item)}
            parts = self._found(layout, [layout.apart_key(item) for item in waiting.values()])
            changed: dict[int, Item] = {}
            for (at, item), part in zip(waiting.items(), parts, strict=True):
                if part is not None and item[layout.apart_mark] == mark_of(part.get(large, {}).get("S", "")):
                    result[at] = {**item, large: part[large]}
                else:
                    changed[at] = layout.in_key(item)
            if not changed:
                return result
            for at, item_again in zip(changed, self._found(layout, list(changed.values())), strict=True):
                result[at] = item_again
        damaged: Item = {large: {"NULL": True}}
        return [item | damaged if item is not None and _waits(layout, item) else item for item in result]

    def _found(self, layout: Layout, keys: Sequence[Item]) -> list[Item | None]:
        found = self._driver.get(self.table_of(layout), keys)
        return [found.get(identity(key, key)) for key in keys]


def _waits(layout: Layout, item: Item) -> bool:
    """Tell whether the large field of ``item`` is one of its own, which was not read yet."""
    return layout.apart_mark in item and layout.large not in item
