"""A backend's write as writes of items: that of the row first, then those of what else is kept of it.

What finds the row by a path without an index, and a large field, are items of their own. All of them are written
together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from typing import Final

from duetime.stores.backend import Alike, Change, Comparison, Condition, Write, spelled_out
from duetime.stores.backends.dynamodb.derived import TIME_TO_LIVE, Values, time_to_live
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Attribute, Item, at, can_be_found, mark_of, text
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, timer_item_key
from duetime.stores.entities import TIMER
from duetime.stores.entity import DAMAGED, Value

_RESERVE: Final = "reserve"
_RESERVED: Final = text("." * 16)
"""Room for the end: a partition that is full takes no write that makes an item larger."""

Read = Callable[[Item], Item | None]
"""From a key to the item that is stored."""


def expanded(write: Write, table: str, now_ms: int, read: Read) -> list[ItemWrite]:
    """Return the writes of items that ``write`` stands for; none where it finds nothing to change.

    ``read`` is asked where they depend on more of what is stored than the writer knows.
    """
    key = _key_of(write)
    if key is None:
        return []
    if isinstance(write.like, Alike) and write.change is Change.UPDATE:
        prepared = _prepared(write.like)
        if prepared is not None and prepared.is_all(write):
            return [prepared.update(write, key, table, now_ms)]
        (write,) = spelled_out([write])
    try:
        return _Expansion(write, key, table, now_ms, read).items()
    except _NoRowError:
        is_removed = write.change is Change.DELETE and not write.conditions
        return [ItemWrite(table=table, key=key)] if is_removed else []


def _key_of(write: Write) -> Item | None:
    """Return the key of the row's item; None where it cannot have one."""
    if can_be_found(write.key):
        return LAYOUTS[write.entity].key_of(write.key)
    for condition in write.conditions:
        # It was read in the place of the uuid (``Layout.readers``).
        if write.entity is TIMER and condition.name == "timer_uuid" and isinstance(condition.value, bytes):
            return timer_item_key(write.key[0], condition.value.decode())
    return None


class _Prepared:
    """Updates that are alike and change nothing but the row's item, which hot paths make by the hundred."""

    def __init__(self, alike: Alike) -> None:
        layout = LAYOUTS[alike.entity]
        self._changes = [
            (place, layout.attribute(name), layout.writers[name])
            for place, name in enumerate(alike.changed)
            if name not in layout.held
        ]
        self._expected = [
            (place, layout.attribute(name), layout.writers[name])
            for place, name in enumerate(alike.expected, len(alike.changed))
            if name != "timer_uuid"
        ]
        self._changed = alike.changed
        self._derived = [each for each in layout.derived if not set(alike.changed).isdisjoint(each.fields)]
        self._layout = layout
        self._ends_large = bool(layout.large) and layout.entity.expires in alike.changed

    def is_all(self, write: Write) -> bool:
        """Tell whether ``update`` is all there is to write: no large value of its own item ends with the row."""
        if not self._ends_large:
            return True
        large = DAMAGED if write.known is None else write.known().get(self._layout.large, DAMAGED)
        return large is not DAMAGED and not self._layout.is_apart(large)

    def update(self, write: Write, key: Item, table: str, now_ms: int) -> ItemWrite:
        row = [at(value, now_ms) for value in write.row]
        sets: Item = {}
        removes: list[str] = []
        for place, attribute, make in self._changes:
            value = row[place]
            if value is None:
                removes.append(attribute)
            else:
                sets[attribute] = make(value)
        if self._derived:
            values = dict(zip(self._changed, row, strict=False))
            for each in self._derived:
                made = each.make(values)
                if made is None:
                    removes.append(each.attribute)
                else:
                    sets[each.attribute] = made
        expected = [Condition(attribute, make(row[place])) for place, attribute, make in self._expected]
        return ItemWrite(table=table, key=key, sets=sets, removes=removes, expected=expected)


@cache
def _prepared(alike: Alike) -> _Prepared | None:
    """None where more than that of the row follows from what is changed or expected."""
    layout, changed = LAYOUTS[alike.entity], set(alike.changed)
    follows = [each for each in layout.derived if not changed.isdisjoint(each.fields)]
    is_alone = layout.entry_fields.isdisjoint(changed) and layout.large not in changed
    if not alike.expected or not is_alone or not all(changed.issuperset(each.fields) for each in follows):
        return None
    return _Prepared(alike)


class _NoRowError(Exception):
    """Nothing is stored."""


class _Expansion:
    def __init__(self, write: Write, key: Item, table: str, now_ms: int, read: Read) -> None:
        self._write = write
        self._layout = LAYOUTS[write.entity]
        self._key = key
        self._table = table
        self._now_ms = now_ms
        self._read = read

    def items(self) -> list[ItemWrite]:
        if self._write.change is Change.UPDATE:
            return self._update()
        if self._write.change is Change.DELETE:
            return self._delete()
        return self._put()

    # -- what is stored --------------------------------------------------------------------------------------

    @cached_property
    def _stored(self) -> Item:
        found = self._read(self._key)
        if found is None:
            raise _NoRowError
        return found

    @cached_property
    def _before(self) -> _Completed:
        """What the row holds: what the writer knows of it, and what has to be read."""
        known = {} if self._write.known is None else self._write.known()
        return _Completed(known, self._stored_value)

    def _stored_value(self, name: str) -> Value:
        return self._layout.readers[name](self._stored)

    # -- one kind of write after the other -------------------------------------------------------------------

    def _put(self) -> list[ItemWrite]:
        layout, entity = self._layout, self._layout.entity
        row = [at(value, self._now_ms) for value in self._write.row]
        values = dict(zip(entity.names, row, strict=True))
        item = {**self._key, "row_type": text(layout.row_type)}
        for place, attribute, make in layout.row_writers:
            if row[place] is not None:
                item[attribute] = make(row[place])
        for each in layout.derived:
            made = each.make(values)
            if made is not None:
                item[each.attribute] = made
        others: list[ItemWrite] = []
        large = layout.large
        if large and layout.is_apart(values[large]):
            del item[large]
            item[layout.apart_mark] = mark_of(values[large])
            others.append(self._put_apart(values))
        elif large and self._write.change is Change.REPLACE and self._was_apart:
            others.append(self._removed(layout.apart_key(self._key)))
        others += [self._entry(each) for each in layout.entries(values)]
        is_there = {Change.INSERT: False, Change.REPLACE: True}.get(self._write.change)
        expected = self._expected()
        return [ItemWrite(table=self._table, key=self._key, item=item, is_there=is_there, expected=expected), *others]

    def _update(self) -> list[ItemWrite]:
        layout, entity, expected = self._layout, self._layout.entity, self._expected()
        changes = {name: at(value, self._now_ms) for name, value in (self._write.changes or {}).items()}
        after = _Completed(
            {**dict(zip(entity.key, self._write.key, strict=True)), **changes}, lambda name: self._before[name]
        )
        changed: dict[str, Attribute | None] = {}
        for name, value in changes.items():
            if name not in layout.held:
                changed[layout.attribute(name)] = None if value is None else layout.writers[name](value)
        for each in layout.derived:
            if any(name in changes for name in each.fields):
                changed[each.attribute] = each.make(after)
        others = self._large_changes(changes, changed)
        if not layout.entry_fields.isdisjoint(changes):
            old, new = layout.entries(self._before), layout.entries(after)
            others += [self._entry(each) for each in new if each not in old]
            kept = [self._layout.in_key(each) for each in new]
            others += [self._removed(key) for key in map(self._layout.in_key, old) if key not in kept]
        return [self._changed(changed, expected), *others]

    def _delete(self) -> list[ItemWrite]:
        layout = self._layout
        main = ItemWrite(table=self._table, key=self._key, expected=self._expected())
        gone = [self._layout.in_key(each) for each in layout.entries(self._before)] if layout.entry_fields else []
        if layout.large and self._was_apart:
            gone.append(layout.apart_key(self._key))
        return [main, *map(self._removed, gone)]

    def _changed(self, changed: Mapping[str, Attribute | None], expected: Sequence[Condition]) -> ItemWrite:
        """Return an update of the row's item, which has to be there. A condition of a value says so too."""
        says_so = any(each.value is not None and each.comparison is Comparison.IS for each in expected)
        return ItemWrite(
            table=self._table,
            key=self._key,
            sets={name: value for name, value in changed.items() if value is not None},
            removes=[name for name, value in changed.items() if value is None],
            is_there=None if says_so else True,
            expected=expected,
        )

    def _removed(self, key: Item) -> ItemWrite:
        return ItemWrite(table=self._table, key=key)

    def _entry(self, item: Item) -> ItemWrite:
        """Return the write of an index entry. What is unique is so by its own item."""
        is_there = False if item["row_type"] == text("KEY") else None
        return ItemWrite(table=self._table, key=self._layout.in_key(item), item=item, is_there=is_there)

    # -- the large field -------------------------------------------------------------------------------------

    @property
    def _was_apart(self) -> bool:
        """Whether the stored row's large field is an item of its own."""
        large = self._before.get(self._layout.large, DAMAGED)  # None, or what its writer knows
        return self._layout.apart_mark in self._stored if large is DAMAGED else self._layout.is_apart(large)

    def _put_apart(self, values: Values) -> ItemWrite:
        layout, expires = self._layout, self._layout.entity.expires
        key, large = layout.apart_key(self._key), layout.large
        item = {**key, "row_type": text("LARGE"), large: text(values[large])}
        if expires is not None:
            end = values.get(expires)
            item |= {_RESERVE: _RESERVED} if end is None else {TIME_TO_LIVE: time_to_live(end)}
        return ItemWrite(table=self._table, key=key, item=item)

    def _large_changes(self, changes: Values, changed: dict[str, Attribute | None]) -> list[ItemWrite]:
        """Return what becomes of the item of the large field: it changes, or it ends when its row does. What that
        makes of the row's item goes into ``changed``."""
        layout, large, expires = self._layout, self._layout.large, self._layout.entity.expires
        if large in changes:
            if layout.is_apart(changes[large]):
                changed |= {large: None, layout.apart_mark: mark_of(changes[large])}
                return [self._put_apart(changes)]
            if self._was_apart:
                changed[layout.apart_mark] = None
                return [self._removed(layout.apart_key(self._key))]
        elif (
            large
            and expires is not None
            and expires in changes
            and self._was_apart
            and self._before[expires] != changes[expires]
        ):
            end = changes[expires]
            return [
                ItemWrite(
                    table=self._table,
                    key=layout.apart_key(self._key),
                    sets={_RESERVE: _RESERVED} if end is None else {TIME_TO_LIVE: time_to_live(end)},
                    removes=(TIME_TO_LIVE,) if end is None else (_RESERVE,),
                    # An item that is gone keeps no row from its end: what is made of it then is removed with the row.
                    is_there=True if end is None else None,
                )
            ]
        return []

    # -- conditions ------------------------------------------------------------------------------------------

    def _expected(self) -> list[Condition]:
        """Return the conditions of attributes."""
        layout = self._layout
        expected = []
        for name, value, comparison in self._write.conditions:
            attribute = layout.attribute(name)
            if name == "timer_uuid":
                continue
            if value is DAMAGED:
                # What it has cannot be said in a condition: it has to be what is there now, if that is damaged.
                is_damaged = layout.readers[name](self._stored) is DAMAGED
                expected.append(Condition(attribute, self._stored.get(attribute) if is_damaged else text("damaged")))
            elif value is None:
                expected.append(Condition(attribute, None))
            else:
                expected.append(Condition(attribute, layout.writers[name](at(value, self._now_ms)), comparison))
        return expected


class _Completed(dict[str, Value]):
    """Values by field, and those that are not among them when they are asked for."""

    def __init__(self, values: Mapping[str, Value], find: Callable[[str], Value]) -> None:
        super().__init__(values)
        self._find = find

    def __missing__(self, name: str) -> Value:
        return self._find(name)
