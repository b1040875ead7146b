"""Where each entity's rows are: their tables and keys, and the other items that are kept of a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final
from uuid import UUID
from zlib import crc32

from duetime.domain.tenants import is_internal
from duetime.stores.backends.dynamodb.derived import (
    HELD_OF_CALL,
    NUL,
    OF_CALL,
    RESERVES_OF_SHARD,
    SEQUENCE_DIGITS,
    Derived,
    Values,
    expiry,
)
from duetime.stores.backends.dynamodb.items import Attribute, Item, Reader, reader, text, whole, writer
from duetime.stores.entities import (
    API_KEY,
    COUNTER,
    EVENT,
    EXECUTION,
    IDEMPOTENCY_RECORD,
    NAMESPACE,
    SECRET,
    SERVICE_CALL,
    SHARD,
    TIMER,
    WORKER,
)
from duetime.stores.entity import DAMAGED, Entity, Key, Row, Value

CATALOGUE: Final = -1
NAMESPACES: Final = "NAMESPACE#"
INTERNAL: Final = "INTERNAL#"
RECORD_PARTITIONS: Final = 256
"""Idempotency records are spread: a table with a local index holds at most 10 GB and 1,000 writes a second under one
hash key."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Layout:
    """``key_of`` gives the key of a row's item, ``parts_of`` what it was made of. ``attributes``: where fields have
    other names. ``held``: fields that an index key holds, and nothing else, by what reads them of it. ``entries``:
    the items by which access paths find the row, which follow from ``entry_fields``. ``apart_above``: a ``large``
    field with more bytes is an item of its own, under ``apart_key``."""

    entity: Entity
    row_type: str
    key_of: Callable[[Key], Item]
    parts_of: Callable[[Item], Key]
    is_of_calls: bool = False
    attributes: Mapping[str, str]
    held: Mapping[str, Reader]
    derived: tuple[Derived, ...] = ()
    entry_fields: frozenset[str] = frozenset()
    entries: Callable[[Values], list[Item]]
    apart_above: int = 0
    apart_key: Callable[[Key], Item] | None = None

    @property
    def key_names(self) -> tuple[str, str]:
        return ("tenant_id", "sort_key") if self.is_of_calls else ("shard_id", "sortKey")

    def attribute(self, name: str) -> str:
        return self.attributes.get(name, name)

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
        readers |= self.held
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

    @property
    def apart_mark(self) -> str:
        """The attribute of an item whose large field is an item of its own."""
        return f"{self.entity.large}_apart"


# -- keys ---------------------------------------------------------------------------------------------------------


def timer_item_key(shard_id: int, sort_key: str) -> Item:
    return {"shard_id": whole(shard_id), "sortKey": text(sort_key)}


def call_item_key(tenant_id: str, sort_key: str) -> Item:
    return {"tenant_id": text(tenant_id), "sort_key": text(sort_key)}


def _timer_parts(item: Item) -> Key:
    kind, namespace, timer_id = item["sortKey"]["S"].split("#", 2)
    if kind != "TIMER":
        raise ValueError("not a timer's key")
    return int(item["shard_id"]["N"]), namespace, timer_id


def _namespace_key(name: str) -> Item:
    return timer_item_key(CATALOGUE, (INTERNAL if is_internal(name) else NAMESPACES) + name)


def _name_part(item: Item) -> Key:
    """Of a row of the catalogue, or of its entry under its tenant."""
    sort_key: str = item["sortKey"]["S"]
    return (sort_key.split("#", 3 if sort_key.startswith("TENANT#") else 1)[-1],)


def event_sort_key(call_id: str, sequence: int) -> str:
    return f"EVENT#{call_id}#{sequence:0{SEQUENCE_DIGITS}}"


def _event_parts(item: Item) -> Key:
    call_id, _, sequence = item["sort_key"]["S"].removeprefix("EVENT#").rpartition("#")
    return item["tenant_id"]["S"], call_id, int(sequence)


def _execution_parts(item: Item) -> Key:
    call_id, _, execution_id = item["sort_key"]["S"].removeprefix("EXEC#").partition("#")
    return item["tenant_id"]["S"], call_id, execution_id


def _call_parts(item: Item) -> Key:
    """Of a call, or of the entry of one of its tags."""
    return item["tenant_id"]["S"], item["sort_key"]["S"].rpartition(NUL)[2].removeprefix("CALL#")


def of_tenant(tenant_id: str, kind: str) -> str:
    """What the sort keys of a tenant's entries of one kind begin with: its id has no ``#``."""
    return f"TENANT#{tenant_id}#{kind}"


# -- entries --------------------------------------------------------------------------------------------------------


def tag_prefix(tag: str) -> str:
    return f"TAG#{tag}{NUL}"


def unique_key(tenant_id: str, key: str) -> Item:
    return call_item_key(tenant_id, f"KEY#{key}")


def _call_entries(values: Values) -> list[Item]:
    tenant_id, call_id, tags, given = (
        values[name] for name in ("tenant_id", "service_call_id", "tags", "idempotency_key")
    )
    known = () if tags is None or tags is DAMAGED else tags
    found = [
        call_item_key(tenant_id, tag_prefix(tag) + call_id) | {"row_type": text("TAG")} for tag in sorted(set(known))
    ]
    if isinstance(given, str):
        found.append(unique_key(tenant_id, given) | {"row_type": text("KEY"), "call_id": text(call_id)})
    return found


def _namespace_entries(values: Values) -> list[Item]:
    name, tenant_id = values["namespace_name"], values["tenant_id"]
    if values["is_internal"] is True or not isinstance(tenant_id, str):
        return []
    key = timer_item_key(CATALOGUE, of_tenant(tenant_id, NAMESPACES) + name)
    return [key | {"row_type": text("NAMESPACE_OF_TENANT")}]


def _api_key_entries(values: Values) -> list[Item]:
    if not isinstance(values["tenant_id"], str):
        return []
    key = timer_item_key(CATALOGUE, of_tenant(values["tenant_id"], "APIKEY#") + values["key_id"])
    return [key | {"row_type": text("APIKEY_OF_TENANT")}]


# -- all of them ----------------------------------------------------------------------------------------------------


def _layout(
    entity: Entity,
    row_type: str,
    key_of: Callable[[Key], Item],
    parts_of: Callable[[Item], Key],
    **others: Any,
) -> Layout:
    ends = () if entity.expires is None else (expiry(entity.expires),)
    derived = (*ends, *others.pop("derived", ()))
    defaults: dict[str, Any] = {"attributes": {}, "held": {}, "entries": lambda _: []}
    return Layout(
        entity=entity, row_type=row_type, key_of=key_of, parts_of=parts_of, derived=derived, **defaults | others
    )


def _in_catalogue(entity: Entity, row_type: str, **others: Any) -> Layout:
    return _layout(
        entity, row_type, lambda key: timer_item_key(CATALOGUE, f"{row_type}#{key[0]}"), _name_part, **others
    )


LAYOUTS: Final[dict[Entity, Layout]] = {
    each.entity: each
    for each in (
        _layout(
            TIMER,
            "TIMER",
            lambda key: timer_item_key(key[0], f"TIMER#{key[1]}#{key[2]}"),
            _timer_parts,
            apart_above=32 * 1024,
            apart_key=lambda key: timer_item_key(key[0], f"LARGE#{key[1]}#{key[2]}"),
        ),
        _layout(
            SHARD,
            "SHARD",
            lambda key: timer_item_key(key[0], "SHARD#OWNERSHIP"),
            lambda item: (int(item["shard_id"]["N"]),),
            derived=RESERVES_OF_SHARD,
        ),
        _in_catalogue(WORKER, "WORKER"),
        _layout(
            NAMESPACE,
            "NAMESPACE",
            lambda key: _namespace_key(key[0]),
            _name_part,
            entry_fields=frozenset({"tenant_id", "is_internal"}),
            entries=_namespace_entries,
        ),
        _in_catalogue(COUNTER, "COUNTER"),
        _in_catalogue(SECRET, "SECRET"),
        _in_catalogue(API_KEY, "APIKEY", entry_fields=frozenset({"tenant_id"}), entries=_api_key_entries),
        _layout(
            IDEMPOTENCY_RECORD,
            "IDEMPOTENCY",
            lambda key: timer_item_key(
                CATALOGUE - 1 - crc32(key[0].encode()) % RECORD_PARTITIONS, f"IDEMPOTENCY#{key[0]}"
            ),
            _name_part,
        ),
        _layout(
            SERVICE_CALL,
            "CALL",
            lambda key: call_item_key(key[0], f"CALL#{key[1]}"),
            _call_parts,
            is_of_calls=True,
            # Short where it tells as much: what a usual call holds at its end should fit 1 KB.
            attributes={
                "call_revision": "revision",
                "call_digest": "digest",
                "event_count": "events",
                "last_event_id": "last_event",
                "outcome_meta": "outcome",
                "request_spec": "request",
                "timeout_seconds": "timeout",
                "expires_at": "outbox_key",
                "status": "status_key",
                "name": "name_key",
                "correlation_id": "correlation_key",
                "is_starred": "starred_key",
            },
            held=HELD_OF_CALL,
            derived=OF_CALL,
            entry_fields=frozenset({"tags", "idempotency_key"}),
            entries=_call_entries,
            apart_above=1024,
            apart_key=lambda key: call_item_key(key[0], f"BODY#{key[1]}"),
        ),
        _layout(
            EXECUTION,
            "EXECUTION",
            lambda key: call_item_key(key[0], f"EXEC#{key[1]}#{key[2]}"),
            _execution_parts,
            is_of_calls=True,
        ),
        _layout(
            EVENT,
            "EVENT",
            lambda key: call_item_key(key[0], event_sort_key(key[1], key[2])),
            _event_parts,
            is_of_calls=True,
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
    """What makes a row of ``fields`` of an item."""
    readers = [LAYOUTS[entity].readers[name] for name in fields]
    return lambda item: tuple([read(item) for read in readers])
