"""Where each entity's rows are: their tables and keys, and the other items that are kept of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from duetime.domain.tenants import is_internal
from duetime.stores.backends.dynamodb.derived import (
    OF_CALL,
    RESERVES_OF_SHARD,
    Derived,
    Values,
    expiry,
)
from duetime.stores.backends.dynamodb.items import Attribute, Item, Reader, reader, text, whole, writer
from duetime.stores.backends.dynamodb.places import LAST, NUL, Range, number
from duetime.stores.entities import (
    API_KEY,
    COUNTER,
    EVENT,
    EXECUTION,
    IDEMPOTENCY_RECORD,
    NAMESPACE,
    OCCURRENCE,
    SECRET,
    SERVICE_CALL,
    SHARD,
    TIMER,
    WORKER,
)
from duetime.stores.entity import DAMAGED, Entity, Key, Kind, Row, Value

CATALOGUE: Final = -1
INTERNAL: Final = "INTERNAL"
RECORD_PARTITIONS: Final = 256
"""Idempotency records are spread: a table with a local index holds at most 10 GB and 1,000 writes a second under one
hash key."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """A row's item stands under the hash key that ``hash_of`` makes of its key. Its range key is ``prefix_of`` and
    the rest of its key, with ``#`` between them, which only the last part may hold.

    ``attributes``: where fields have other names. ``entries``: the items by which access paths find the row, which
    follow from ``entry_fields``. A ``large`` field of more than ``apart_above`` bytes is an item of its own: its key
    has ``apart_prefix``.
    """

    entity: Entity
    row_type: str
    prefix_of: Callable[[Key], str]
    hash_of: Callable[[Key], Attribute] = lambda _: whole(CATALOGUE)
    attributes: Mapping[str, str] = field(default_factory=dict)
    derived: tuple[Derived, ...] = ()
    entry_fields: frozenset[str] = frozenset()
    entries: Callable[[Values], list[Item]] = lambda _: []
    apart_above: int = 0
    apart_prefix: str = ""

    # -- keys ------------------------------------------------------------------------------------------------

    @cached_property
    def is_of_calls(self) -> bool:
        return self.entity.key[0] == "tenant_id"

    @cached_property
    def key_names(self) -> tuple[str, str]:
        return ("tenant_id", "sort_key") if self.is_of_calls else ("shard_id", "sortKey")

    @cached_property
    def _hashed(self) -> int:
        """How many parts of a key are the hash key as they are."""
        return int(self.entity.key[0] in self.key_names)

    def key_of(self, key: Key) -> Item:
        """Return the key of a row's item."""
        rest = [number(each) if isinstance(each, int) else each for each in key[self._hashed :]]
        hash_name, range_name = self.key_names
        return {hash_name: self.hash_of(key), range_name: text("#".join((self.prefix_of(key), *rest)))}

    def parts_of(self, item: Item) -> Key:
        """Return the key of the row that an item is of, or leads to. Raises ``ValueError`` for a damaged one."""
        hash_name, range_name = self.key_names
        prefix, *rest = item[range_name]["S"].rpartition(NUL)[2].split("#", len(self.entity.key) - self._hashed)
        texts = [*item[hash_name].values()][: self._hashed] + rest
        key = tuple([int(part) if is_whole else part for part, is_whole in zip(texts, self._wholes, strict=True)])
        if prefix != self.prefix_of(key):
            raise ValueError("not a key of this kind")
        return key

    @cached_property
    def _wholes(self) -> list[bool]:
        """Which parts of a key are whole numbers."""
        return [self.entity.by_name[name].kind is Kind.WHOLE for name in self.entity.key]

    def in_key(self, item: Item) -> Item:
        """Return the key of an item."""
        return {name: item[name] for name in self.key_names}

    def entry(self, key: Key, found_by: str, row_type: str) -> Item:
        """Make an item that leads to a row: it stands under ``found_by``, with the range key of the row behind
        that."""
        hash_name, range_name = self.key_names
        row = self.key_of(key)
        found_by += NUL + row[range_name]["S"]
        return {hash_name: row[hash_name], range_name: text(found_by), "row_type": text(row_type)}

    # -- attributes ------------------------------------------------------------------------------------------

    @cached_property
    def held(self) -> dict[str, Derived]:
        """The fields that the key of an index holds, and nothing else."""
        return {each.fields[0]: each for each in self.derived if each.read is not None}

    def attribute(self, name: str) -> str:
        return self._attribute_of[name]

    @cached_property
    def _attribute_of(self) -> dict[str, str]:
        names = {each.name: self.attributes.get(each.name, each.name) for each in self.entity.fields}
        return names | {name: each.attribute for name, each in self.held.items()}

    @cached_property
    def writers(self) -> dict[str, Callable[[Any], Attribute]]:
        """By field, what makes a value an attribute. What only an index key or the item's key holds is not there."""
        key = () if self.entity is TIMER else self.entity.key
        found = {each.name: writer(each.kind) for each in self.entity.fields if each.name not in (*key, *self.held)}
        if self.entity is TIMER:
            found["timer_uuid"] = lambda value: text(str(UUID(bytes=value)))
        return found

    @cached_property
    def row_writers(self) -> tuple[tuple[int, str, Callable[[Any], Attribute]], ...]:
        """The same for whole rows: where the field stands, its attribute, and what makes it."""
        return tuple((self.entity.places[name], self.attribute(name), write) for name, write in self.writers.items())

    @cached_property
    def readers(self) -> dict[str, Reader]:
        """By field, what gives its value of an item. Those of the key come from the item's key."""
        readers = {
            each.name: reader(each.kind, self.attribute(each.name), is_optional=each.is_optional)
            for each in self.entity.fields
        }
        readers |= {name: each.read for name, each in self.held.items() if each.read is not None}
        for place, name in enumerate(self.entity.key):
            if name not in self.key_names:
                readers[name] = self._part_reader(place)
        if self.entity is TIMER:
            # An index of DynamoDB orders rows of one instant by their keys. So that a place on the due path tells
            # where to go on, what is read in the place of the uuid is the key.
            readers["timer_uuid"] = lambda item: str(item["sortKey"]["S"]).encode()
        return readers

    def _part_reader(self, place: int) -> Reader:
        def of_item(item: Item) -> Value:
            try:
                return self.parts_of(item)[place]
            except (ValueError, IndexError, KeyError):
                return DAMAGED

        return of_item

    # -- the large field -------------------------------------------------------------------------------------

    @cached_property
    def large(self) -> str:
        """Empty where there is none."""
        return self.entity.large or ""

    def is_apart(self, large: Value) -> bool:
        if not isinstance(large, str) or len(large) * 4 <= self.apart_above:
            return False
        return len(large.encode()) > self.apart_above

    @cached_property
    def apart_mark(self) -> str:
        """The attribute that stands in the item of the row in its place."""
        return f"{self.large}_apart"

    def apart_key(self, item: Item) -> Item:
        """Return the key of the item that belongs to that of a row."""
        hash_name, range_name = self.key_names
        _, _, name = item[range_name]["S"].partition("#")
        return {hash_name: item[hash_name], range_name: text(self.apart_prefix + name)}


# -- keys ---------------------------------------------------------------------------------------------------------


def timer_item_key(shard_id: int, sort_key: str) -> Item:
    return {"shard_id": whole(shard_id), "sortKey": text(sort_key)}


def call_item_key(tenant_id: str, sort_key: str) -> Item:
    return {"tenant_id": text(tenant_id), "sort_key": text(sort_key)}


def event_sort_key(call_id: str, sequence: int) -> str:
    return f"EVENT#{call_id}#{number(sequence)}"


def executions_of(call: Key) -> Range:
    low = f"EXEC#{call[1]}#"
    return Range("tenant_id", text(call[0]), "sort_key", low, low + LAST)


# -- entries --------------------------------------------------------------------------------------------------------


def of_tag(tag: str) -> str:
    return f"TAG#{tag}"


def of_tenant(tenant_id: str) -> str:
    return f"TENANT#{tenant_id}"


def unique_key(tenant_id: str, key: str) -> Item:
    return call_item_key(tenant_id, f"KEY#{key}")


def _call_entries(values: Values) -> list[Item]:
    tenant_id, call_id, tags, given = (
        values[name] for name in ("tenant_id", "service_call_id", "tags", "idempotency_key")
    )
    known = tags if isinstance(tags, tuple) else ()
    found = [LAYOUTS[SERVICE_CALL].entry((tenant_id, call_id), of_tag(tag), "TAG") for tag in sorted(set(known))]
    if isinstance(given, str):
        found.append(unique_key(tenant_id, given) | {"row_type": text("KEY"), "call_id": text(call_id)})
    return found


def _namespace_entries(values: Values) -> list[Item]:
    return [] if values["is_internal"] is True else _tenant_entries(NAMESPACE, values)


def _tenant_entries(entity: Entity, values: Values) -> list[Item]:
    layout, tenant_id = LAYOUTS[entity], values["tenant_id"]
    if not isinstance(tenant_id, str):
        return []
    return [layout.entry((values[entity.key[0]],), of_tenant(tenant_id), f"{layout.row_type}_OF_TENANT")]


# -- all of them ----------------------------------------------------------------------------------------------------


def _layout(entity: Entity, row_type: str, *, prefix: str | None = None, **others: Any) -> Layout:
    ends = () if entity.expires is None else (expiry(entity.expires),)
    others = {"prefix_of": lambda _: prefix or row_type, **others}
    return Layout(entity=entity, row_type=row_type, derived=(*ends, *others.pop("derived", ())), **others)


def _of_shard(entity: Entity, row_type: str, **others: Any) -> Layout:
    return _layout(entity, row_type, hash_of=lambda key: whole(key[0]), **others)


def _of_tenant(entity: Entity, row_type: str, **others: Any) -> Layout:
    return _layout(entity, row_type, hash_of=lambda key: text(key[0]), **others)


LAYOUTS: Final[dict[Entity, Layout]] = {
    each.entity: each
    for each in (
        _of_shard(TIMER, "TIMER", apart_above=32 * 1024, apart_prefix="LARGE#"),
        _of_shard(OCCURRENCE, "OCCURRENCE"),
        _of_shard(SHARD, "SHARD", prefix="SHARD#OWNERSHIP", derived=RESERVES_OF_SHARD),
        _layout(WORKER, "WORKER"),
        _layout(
            NAMESPACE,
            "NAMESPACE",
            prefix_of=lambda key: INTERNAL if is_internal(key[0]) else "NAMESPACE",
            entry_fields=frozenset({"tenant_id", "is_internal"}),
            entries=_namespace_entries,
        ),
        _layout(COUNTER, "COUNTER"),
        _layout(SECRET, "SECRET"),
        _layout(
            API_KEY,
            "APIKEY",
            entry_fields=frozenset({"tenant_id"}),
            entries=lambda values: _tenant_entries(API_KEY, values),
        ),
        _layout(
            IDEMPOTENCY_RECORD,
            "IDEMPOTENCY",
            hash_of=lambda key: whole(CATALOGUE - 1 - crc32(key[0].encode()) % RECORD_PARTITIONS),
        ),
        _of_tenant(
            SERVICE_CALL,
            "CALL",
            # Short where it tells as much: what a usual call holds at its end should fit 1 KB.
            attributes={
                "call_revision": "revision",
                "call_digest": "digest",
                "event_count": "events",
                "last_event_id": "last_event",
                "outcome_meta": "outcome",
                "request_spec": "request",
                "timeout_seconds": "timeout",
            },
            derived=OF_CALL,
            entry_fields=frozenset({"tags", "idempotency_key"}),
            entries=_call_entries,
            apart_above=1024,
            apart_prefix="BODY#",
        ),
        _of_tenant(EXECUTION, "EXECUTION", prefix="EXEC"),
        _of_tenant(
            EVENT,
            "EVENT",
            # Short: most of an event is what it says, and those of a transition should fit 1 KB.
            attributes={
                "event_id": "id",
                "event_type": "type",
                "occurred_at": "at",
                "causation_id": "cause",
                "event_payload": "payload",
            },
        ),
    )
}


@cache
def row_reader(entity: Entity, fields: tuple[str, ...]) -> Callable[[Item], Row]:
    """Return what makes a row of ``fields`` of an item."""
    layout, length = LAYOUTS[entity], len(entity.key)
    readers = [layout.readers[name] for name in fields]
    if fields[:length] != entity.key:
        return lambda item: tuple([read(item) for read in readers])
    of_others = readers[length:]

    def of_item(item: Item) -> Row:
        try:
            key = layout.parts_of(item)
        except (ValueError, IndexError, KeyError):
            key = tuple([read(item) for read in readers[:length]])
        return (*key, *[read(item) for read in of_others])

    return of_item
