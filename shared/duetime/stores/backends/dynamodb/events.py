"""Events, several to an item: read by their keys, inserted, published and removed.

Published events are removed by the table's TTL after the retention, without an index entry. Those of a call that is
starred have an entry in its place, by which they are found and removed once the call is starred no more.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from duetime.domain.errors import StoreUnavailable
from duetime.stores.backend import NOT_WRITTEN, Batch, Change, Condition, Write, WriteStatus, Written
from duetime.stores.backends.dynamodb import layouts, places
from duetime.stores.backends.dynamodb.derived import (
    OUTBOX_NAMES,
    TIME_TO_LIVE,
    outbox_key,
    partition_of,
    published,
    time_to_live,
)
from duetime.stores.backends.dynamodb.driver import Driver, back_offs
from duetime.stores.backends.dynamodb.event_items import EVENTS, PUBLISHED_AT, REMOVED, packed, unpacked
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Item, can_be_found, instant_of, instant_text, matches, text
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.places import LAST, Range
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.entities import EVENT, PUBLISHED, SERVICE_CALL, UNPUBLISHED
from duetime.stores.entity import Entity, Key, Row

EVENT_RETENTION: Final = timedelta(days=7)
_LAYOUT = LAYOUTS[EVENT]
_TRIES = 10
_Changes = list[tuple[ItemWrite, list[int]]]
"""Writes of items, and which of the writes of events each stands for."""


class Events:
    def __init__(self, driver: Driver, reads: Reads, retention: timedelta) -> None:
        self._driver = driver
        self._reads = reads
        self._table = reads.table_of(_LAYOUT)
        self._retention_ms = int(retention / timedelta(milliseconds=1))

    def read(self, entity: Entity, keys: Sequence[Key], fields: tuple[str, ...]) -> list[Row | None]:
        found: dict[Key, Item] = {}
        for call, items in self._items(filter(can_be_found, keys)).items():
            found |= {(*call, sequence): event for item in items for sequence, event in unpacked(item).items()}
        read = row_reader(entity, fields)
        return [None if (event := found.get(key)) is None else read(event) for key in keys]

    def _items(self, keys: Iterable[Key], whole_calls: Collection[Key] = ()) -> dict[Key, list[Item]]:
        """By call, the items that may hold ``keys``; all that it has of ``whole_calls``."""
        sequences: defaultdict[Key, list[int]] = defaultdict(list)
        for *call, sequence in keys:
            sequences[tuple(call)].append(sequence)
        calls = list(sequences)

        def of_call(call: Key) -> list[Item]:
            wanted = sequences[call]
            if call in whole_calls:
                return self._of_call(call, 0, None)
            return self._of_call(call, min(wanted), max(wanted) - min(wanted) + 1)

        return dict(zip(calls, self._driver.workers.map(of_call, calls), strict=True))

    def _of_call(self, call: Key, first: int, most: int | None) -> list[Item]:
        """From the item with ``first`` on. ``most`` items have as many events, or more."""
        parameters: dict[str, Any] = {} if most is None else {"Limit": most}
        low = layouts.event_sort_key(call[1], first)
        events = Range("tenant_id", text(call[0]), "sort_key", low, f"EVENT#{call[1]}#{LAST}")
        pages = self._driver.pages(self._table, events, **parameters)
        found: list[Item] = []
        for page in pages:
            found += page
            if most is not None and len(found) >= most:
                break
        return found

    # -- writes ----------------------------------------------------------------------------------------------

    def insertion(self, writes: Sequence[Write], now_ms: int, *, is_kept: bool = False) -> ItemWrite:
        """Insert one item of all of them, which are new."""
        item = packed([write.row for write in writes], now_ms)
        item |= self._standing(item, item.get(PUBLISHED_AT), now_ms, is_kept=is_kept)
        key = _LAYOUT.in_key(item)
        return ItemWrite(table=self._table, key=key, item=item, is_there=False)

    def write(self, writes: Sequence[Write], now_ms: int) -> list[Written]:
        """Write each alone. An item that is changed meanwhile is looked at again."""
        results = [NOT_WRITTEN] * len(writes)
        pending = [place for place, write in enumerate(writes) if can_be_found(write.key)]
        for back_off in back_offs(_TRIES):
            changes = self._changes({place: writes[place] for place in pending}, now_ms)
            pending = []
            for (_, of_item), written in zip(changes, self._driver.write([each for each, _ in changes]), strict=True):
                for place in of_item:
                    results[place] = written
                pending += of_item if written.status is WriteStatus.NOT_WRITTEN else []
            if not pending:
                return results
            time.sleep(back_off)
        raise StoreUnavailable("events are changed again and again")

    def _changes(self, writes: Mapping[int, Write], now_ms: int) -> _Changes:
        starred = self._starred({write.key[:2] for write in writes.values() if _publishes(write)})
        items = self._items([write.key for write in writes.values()], starred)
        self._keep([item for call in starred for item in items[call] if TIME_TO_LIVE in item])
        changes: _Changes = []
        for call, of_call in items.items():
            mine = {place: write for place, write in writes.items() if write.key[:2] == call}
            changes += self._changes_of_call(of_call, mine, now_ms, is_kept=call in starred)
        return changes

    def _changes_of_call(
        self, items: Sequence[Item], writes: Mapping[int, Write], now_ms: int, *, is_kept: bool
    ) -> _Changes:
        holders = {
            sequence: (number, event)
            for number, item in enumerate(items)
            for sequence, event in unpacked(item).items()
        }
        changes: _Changes = []
        touched: defaultdict[int, list[int]] = defaultdict(list)
        for place, write in writes.items():
            number, event = holders.get(write.key[2], (None, None))
            if write.change is Change.INSERT:
                if number is None:
                    changes.append((self.insertion([write], now_ms, is_kept=is_kept), [place]))
            elif number is not None and event is not None and _hold(write.conditions, event):
                touched[number].append(place)
        for number, of_item in touched.items():
            some = [writes[place] for place in of_item]
            changes.append((self._change(items[number], some, now_ms, is_kept=is_kept), of_item))
        return changes

    def _change(self, item: Item, writes: Sequence[Write], now_ms: int, *, is_kept: bool) -> ItemWrite:
        """Return what becomes of an item when ``writes`` publish or remove some of its events."""
        *_, last = _LAYOUT.parts_of(item)
        old: list[Any] = item.get(EVENTS, {}).get("L", [])
        new = dict(enumerate(old, last - len(old) + 1))
        for write in writes:
            if write.change is Change.DELETE:
                new[write.key[2]] = REMOVED
            else:
                new[write.key[2]] = {"M": {**new[write.key[2]]["M"], PUBLISHED_AT: text(instant_text(now_ms))}}
        left = [each["M"] for each in new.values() if "M" in each]
        key = _LAYOUT.in_key(item)
        expected = [
            Condition(EVENTS, item.get(EVENTS)),
            Condition(PUBLISHED_AT, item.get(PUBLISHED_AT)),
        ]
        if not left:
            return ItemWrite(table=self._table, key=key, expected=expected)
        events = {EVENTS: {"L": list(new.values())}}
        if PUBLISHED_AT in item or not all(PUBLISHED_AT in each for each in left):
            return ItemWrite(table=self._table, key=key, sets=events, expected=expected)
        times = {each[PUBLISHED_AT]["S"] for each in left}
        at_once = len(times) == 1 and len(left) == len(old)
        sets = self._standing(item, text(max(times)), now_ms, is_kept=is_kept)
        return ItemWrite(
            table=self._table,
            key=key,
            sets={PUBLISHED_AT: text(max(times)), **sets, **({} if at_once else events)},
            removes=[name for name in OUTBOX_NAMES if name not in sets],
            # That all are published holds whatever else is marked meanwhile.
            expected=expected[1:] if at_once else expected,
        )

    def _standing(self, item: Item, published_at: Any, now_ms: int, *, is_kept: bool) -> Item:
        """Return what an item has in the outbox index, or for the TTL."""
        key = _LAYOUT.parts_of(item)
        partition = partition_of(key[1])
        if published_at is None:
            return outbox_key(partition, places.write(EVENT, UNPUBLISHED, key))
        if is_kept:
            place = (instant_of(published_at), *key)
            return outbox_key(published(partition), places.write(EVENT, PUBLISHED, place))
        # Not in the past: TTL leaves alone what it should have removed five years ago.
        return {TIME_TO_LIVE: time_to_live(now_ms + self._retention_ms)}

    # -- stars -----------------------------------------------------------------------------------------------

    def _starred(self, calls: Collection[Key]) -> set[Key]:
        asked = list(calls)
        rows = self._reads.read(SERVICE_CALL, asked, ("starred",)) if asked else []
        return {call for call, row in zip(asked, rows, strict=True) if row is not None and row[0] is True}

    def _keep(self, items: Sequence[Item]) -> None:
        """Take the TTL from published events of calls that were starred after that.

        Before others are published: the event that tells of the star is one of those. If this is cut short they are
        published once more, and this is done once more.
        """
        changes = [
            ItemWrite(
                table=self._table,
                key=_LAYOUT.in_key(item),
                sets=self._standing(item, item[PUBLISHED_AT], 0, is_kept=True),
                removes=[TIME_TO_LIVE],
                expected=[Condition(PUBLISHED_AT, item[PUBLISHED_AT])],
            )
            for item in items
        ]
        if changes:
            Batch(self._driver.write(changes), None).checked()


def _publishes(write: Write) -> bool:
    if write.change is Change.INSERT:
        return write.row[EVENT.places[PUBLISHED_AT]] is not None
    return write.change is not Change.DELETE


def _hold(conditions: Iterable[Condition], event: Item) -> bool:
    return all(matches(_LAYOUT.readers[each.name](event), each.value) for each in conditions)
