"""A backend's write as writes of items: that of the row first, then those of what else is kept of it.

What finds the row by a path without an index, and a large field, are items of their own. All of them are written
together or not at all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from zlib import crc32

from duetime.stores.backend import Change, Comparison, Condition, Now, Write
from duetime.stores.backends.dynamodb.derived import TIME_TO_LIVE, Derived, time_to_live
from duetime.stores.backends.dynamodb.item_writes import Expected, ItemWrite, Test
from duetime.stores.backends.dynamodb.items import Attribute, Item, at, can_be_stored, text
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, Layout, timer_item_key
from duetime.stores.entities import TIMER
from duetime.stores.entity import DAMAGED, Key, Value

_RESERVE = "reserve"
_RESERVED = text("." * 16)
"""Room for the end: a partition that is full takes no write that makes an item larger."""


class NeedsStoredError(Exception):
    """What is to be written depends on what is stored, which has to be read first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """What is stored of a row: its item, None if there is none, and the keys of the items of its parts."""

    item: Item | None
    parts: Sequence[Item] = ()


class Expansion:
    """``table_of`` gives the name of a layout's table."""

    def __init__(self, table_of: Callable[[Layout], str]) -> None:
        self._table_of = table_of

    def key_of(self, write: Write) -> Item | None:
        """The key of the row's item; None where it cannot have one."""
        if can_be_stored(write.key):
            return LAYOUTS[write.entity].key_of(write.key)
        for condition in write.conditions:
            # It was read in the place of the uuid (``Layout.readers``).
            if write.entity is TIMER and condition.name == "timer_uuid" and isinstance(condition.value, bytes):
                return timer_item_key(write.key[0], condition.value.decode())
        return None

    def items(self, write: Write, now_ms: int, stored: Stored | None = None) -> list[ItemWrite]:
        """Those of a write; none where it finds nothing to change. Raises ``NeedsStoredError`` where it has to be
        told what is stored."""
        layout = LAYOUTS[write.entity]
        key = self.key_of(write)
        if key is None:
            return []
        expected = self._expected(layout, write.conditions, now_ms, stored)
        if write.change is Change.UPDATE:
            return self._update(layout, write, key, expected, now_ms=now_ms, stored=stored)
        if write.change is Change.DELETE:
            return self._delete(layout, write, key, expected, stored)
        return self._put(layout, write, key, expected, now_ms=now_ms, stored=stored)

    # -- one kind of write after the other -------------------------------------------------------------------

    def _put(
        self,
        layout: Layout,
        write: Write,
        key: Item,
        expected: Sequence[Expected],
        *,
        now_ms: int,
        stored: Stored | None,
    ) -> list[ItemWrite]:
        entity, table = layout.entity, self._table_of(layout)
        row: list[Value] = [now_ms + value.plus_ms if isinstance(value, Now) else value for value in write.row]
        values = dict(zip(entity.names, row, strict=True))
        item = {**key, "row_type": text(layout.row_type)}
        for place, attribute, make in layout.row_writers:
            if row[place] is not None:
                item[attribute] = make(row[place])
        for each in layout.derived:
            made = zip(each.names, each.make(values), strict=True)
            item.update((name, value) for name, value in made if value is not None)
        is_there = {Change.INSERT: False, Change.REPLACE: True}.get(write.change)
        others: list[ItemWrite] = []
        if layout.apart_key is not None and entity.large is not None:
            large = values[entity.large]
            if _is_apart(layout, large):
                del item[entity.large]
                item[layout.apart_mark] = _mark(large)
                others.append(self._put_apart(layout, write.key, large, values))
            elif write.change is Change.REPLACE and self._was_apart(layout, write, stored):
                others.append(ItemWrite(table=table, key=layout.apart_key(write.key)))
        if layout.entry_fields:
            others += [self._entry(layout, each) for each in layout.entries(values)]
        main = ItemWrite(table=table, key=key, item=item, is_there=is_there, expected=expected)
        return [main, *others]

    def _entry(self, layout: Layout, item: Item) -> ItemWrite:
        """What is unique is so by its own item."""
        key = {name: item[name] for name in layout.key_names}
        is_there = False if item["row_type"] == text("KEY") else None
        return ItemWrite(table=self._table_of(layout), key=key, item=item, is_there=is_there)

    def _update(
        self,
        layout: Layout,
        write: Write,
        key: Item,
        expected: Sequence[Expected],
        *,
        now_ms: int,
        stored: Stored | None,
    ) -> list[ItemWrite]:
        entity, table = layout.entity, self._table_of(layout)
        given = write.changes or {}
        changes = {name: at(value, now_ms) for name, value in given.items()}
        writers = layout.writers
        if stored is not None and stored.item is None:
            return []
        sets: Item = {}
        removes: list[str] = []
        for name, value in changes.items():
            if name not in layout.held:
                _assign(layout.attribute(name), None if value is None else writers[name](value), sets, removes)
        values: Mapping[str, Value] = {**dict(zip(entity.key, write.key, strict=True)), **changes}
        for each in layout.derived:
            if not each.fields.isdisjoint(changes):
                for name, made in zip(each.names, _made(layout, each, write, values, stored), strict=True):
                    _assign(name, made, sets, removes)
        others: list[ItemWrite] = []
        if layout.apart_key is not None:
            others += self._large_changes(layout, write, changes, sets, removes, stored)
        if not layout.entry_fields.isdisjoint(changes):
            before = _before(layout, write, stored)
            old, new = layout.entries(before), layout.entries({**before, **changes})
            others += [self._entry(layout, each) for each in new if each not in old]
            kept = [{name: each[name] for name in layout.key_names} for each in new]
            gone = [{name: each[name] for name in layout.key_names} for each in old]
            others += [ItemWrite(table=table, key=each) for each in gone if each not in kept]
        is_there = None if any(each.test is Test.EQUALS for each in expected) else True
        main = ItemWrite(table=table, key=key, sets=sets, removes=removes, is_there=is_there, expected=expected)
        return [main, *others]

    def _large_changes(
        self,
        layout: Layout,
        write: Write,
        changes: Mapping[str, Value],
        sets: Item,
        removes: list[str],
        stored: Stored | None,
    ) -> list[ItemWrite]:
        """What becomes of the item of the large field: it changes, or it ends when its row does."""
        large, expires = layout.entity.large, layout.entity.expires
        assert large is not None
        assert layout.apart_key is not None
        table = self._table_of(layout)
        if large in changes:
            was_apart = self._was_apart(layout, write, stored)
            if _is_apart(layout, changes[large]):
                sets.pop(large)
                removes.append(large)
                sets[layout.apart_mark] = _mark(changes[large])
                return [self._put_apart(layout, write.key, changes[large], changes)]
            if was_apart:
                removes.append(layout.apart_mark)
                return [ItemWrite(table=table, key=layout.apart_key(write.key))]
            return []
        if expires is None or expires not in changes or not self._was_apart(layout, write, stored):
            return []
        end = changes[expires]
        if _before(layout, write, stored).get(expires, DAMAGED) == end:
            return []
        part_sets = {_RESERVE: _RESERVED} if end is None else {TIME_TO_LIVE: time_to_live(end)}
        part_removes = (TIME_TO_LIVE,) if end is None else (_RESERVE,)
        key = layout.apart_key(write.key)
        # An item that is gone keeps no row from its end: what is made of it then is removed with the row.
        is_there = True if end is None else None
        return [ItemWrite(table=table, key=key, sets=part_sets, removes=part_removes, is_there=is_there)]

    def _delete(
        self, layout: Layout, write: Write, key: Item, expected: Sequence[Expected], stored: Stored | None
    ) -> list[ItemWrite]:
        table = self._table_of(layout)
        main = ItemWrite(table=table, key=key, expected=expected)
        gone: list[Item] = []
        if layout.entry_fields:
            if stored is None or stored.item is not None:
                entries = layout.entries(_before(layout, write, stored))
                gone += [{name: each[name] for name in layout.key_names} for each in entries]
            gone += [] if stored is None else stored.parts
        if layout.apart_key is not None and self._was_apart(layout, write, stored):
            gone.append(layout.apart_key(write.key))
        return [main, *(ItemWrite(table=table, key=each) for each in gone)]

    # -- the large field -------------------------------------------------------------------------------------

    def _put_apart(self, layout: Layout, key: Key, large: str, values: Mapping[str, Value]) -> ItemWrite:
        assert layout.apart_key is not None
        assert layout.entity.large is not None
        part_key = layout.apart_key(key)
        item = {**part_key, "row_type": text("LARGE"), layout.entity.large: text(large)}
        if layout.entity.expires is not None:
            end = values.get(layout.entity.expires)
            item |= {_RESERVE: _RESERVED} if end is None else {TIME_TO_LIVE: time_to_live(end)}
        return ItemWrite(table=self._table_of(layout), key=part_key, item=item)

    def _was_apart(self, layout: Layout, write: Write, stored: Stored | None) -> bool:
        """Whether the stored row's large field is an item of its own."""
        if stored is not None:
            return stored.item is not None and layout.apart_mark in stored.item
        large = {} if write.known is None else write.known().get(layout.entity.large or "", DAMAGED)
        if large is None or isinstance(large, str):
            return _is_apart(layout, large)
        raise NeedsStoredError

    # -- conditions ------------------------------------------------------------------------------------------

    def _expected(
        self, layout: Layout, conditions: Iterable[Condition], now_ms: int, stored: Stored | None
    ) -> list[Expected]:
        expected = []
        for each in conditions:
            name = layout.attribute(each.name)
            if each.name == "timer_uuid":
                continue
            if each.value is DAMAGED:
                # What it has cannot be said in a condition: it has to be what is there now, if that is damaged.
                if stored is None:
                    raise NeedsStoredError
                item = stored.item or {}
                is_damaged = layout.readers[each.name](item) is DAMAGED
                expected.append(Expected(name, Test.EQUALS, item.get(name) if is_damaged else text("damaged")))
            elif each.value is None:
                expected.append(Expected(name, Test.IS_MISSING))
            else:
                test = Test.IS_PAST if each.comparison is Comparison.IS_PAST else Test.EQUALS
                expected.append(Expected(name, test, layout.writers[each.name](at(each.value, now_ms))))
        return expected


def _assign(name: str, value: Attribute | None, sets: Item, removes: list[str]) -> None:
    if value is None:
        removes.append(name)
    else:
        sets[name] = value


def _before(layout: Layout, write: Write, stored: Stored | None) -> dict[str, Value]:
    """What the row holds before the write, field by field."""
    if stored is not None:
        item = stored.item or {}
        return {name: read(item) for name, read in layout.readers.items()}
    if write.known is None:
        raise NeedsStoredError
    return dict(write.known())


def _made(
    layout: Layout, derived: Derived, write: Write, values: Mapping[str, Value], stored: Stored | None
) -> Sequence[Attribute | None]:
    try:
        return derived.make(values)
    except KeyError:
        return derived.make({**_before(layout, write, stored), **values})


def _is_apart(layout: Layout, large: Value) -> bool:
    if not isinstance(large, str) or len(large) * 4 <= layout.apart_above:
        return False
    return len(large.encode()) > layout.apart_above


def _mark(large: str) -> Attribute:
    """How large it is, for pages, and what tells it from what was there before or will be."""
    raw = large.encode()
    return text(f"{len(raw)} {crc32(raw):08x}")


def is_marked_by(mark: Attribute, large: Attribute) -> bool:
    return mark == _mark(large.get("S", ""))


def size_of_mark(mark: Attribute) -> int:
    size = mark.get("S", "").partition(" ")[0]
    return int(size) if size.isdecimal() else 0
