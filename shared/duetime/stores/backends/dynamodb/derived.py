"""What items have beside the fields of their row: keys of indexes, the end for the table's TTL, a reserve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from duetime.stores.backends.dynamodb import places
from duetime.stores.backends.dynamodb.items import Attribute, Item, Reader, instant_of, instant_text, text, whole
from duetime.stores.entities import (
    CALLS_BY_NAME,
    CALLS_BY_STATUS,
    CORRELATED_CALLS,
    DUE_CALLS,
    SERVICE_CALL,
    STARRED_CALLS,
)
from duetime.stores.entity import DAMAGED, AccessPath, Value

OUTBOX_PARTITIONS: Final = 8
"""Hash keys of the outbox index for events that are not published; as many for calls that expire, and as many for
published events."""
TIME_TO_LIVE: Final = "expires_at"
_CLAIM_BYTES: Final = 480
_OWNER_BYTES: Final = 320
"""What a shard's version and metadata, and its owner and the end of its lease, take with what fills them up.

So its item always has one size: a partition that is full takes no write that makes an item larger, and nothing of a
shard that cannot be claimed would ever fire.
"""
_END_BYTES: Final = len("shard_lease_expires_at") + 24

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Derived:
    """An attribute that follows from ``fields``; None where an item has not got it. ``read`` gives the first of the
    fields, where it stands nowhere else."""

    attribute: str
    fields: tuple[str, ...]
    make: Callable[[Values], Attribute | None]
    read: Reader | None = None


def expiry(field: str) -> Derived:
    """Return the end of a row, as the table's TTL reads it."""
    return Derived(
        TIME_TO_LIVE, (field,), lambda values: None if values[field] is None else time_to_live(values[field])
    )


def time_to_live(milliseconds: int) -> Attribute:
    """In seconds, rounded up: a row is never removed before its time."""
    return whole(-(-milliseconds // 1000))


def _claim_reserve(values: Values) -> Attribute:
    used = len(str(values["shard_version"])) + _bytes_of("shard_metadata", values)
    return text("." * max(1, _CLAIM_BYTES - used))


def _owner_reserve(values: Values) -> Attribute:
    """Fill up what an owner may take. The end of a lease is there if and only if an owner is."""
    used = _bytes_of("shard_owner_id", values)
    return text("." * max(1, _OWNER_BYTES - used - (_END_BYTES if used else 0)))


def _bytes_of(name: str, values: Values) -> int:
    value = values[name]
    return 0 if value is None else len(name) + len(value.encode())


@dataclass(frozen=True, slots=True)
class CallIndex:
    """An index of calls by ``path``. Its key is the ``attribute``, which an item has while the call is on the path.

    Where the order is that of ids, it is the hash key, and the item's own sort key the range key: values may be too
    long to stand before an id in one key. Else it is the range key, with the whole place. ``holds``: the field that
    stands nowhere else.
    """

    attribute: str
    path: AccessPath
    holds: str | None = None

    @property
    def name(self) -> str:
        return f"{self.attribute}-index"

    @property
    def is_hash(self) -> bool:
        return self.path.order_names == SERVICE_CALL.key[1:]

    @property
    def keys(self) -> tuple[str, str]:
        return (self.attribute, "sort_key") if self.is_hash else ("tenant_id", self.attribute)

    @property
    def derived(self) -> Derived:
        names = dict.fromkeys([self.holds or "", *self.path.by, *self.path.order_names, *self.path.where])
        fields = tuple(name for name in names if name and name not in SERVICE_CALL.key)
        return Derived(self.attribute, fields, self._make, None if self.holds is None else self._read)

    def _make(self, values: Values) -> Attribute | None:
        path = self.path
        if any(values[name] != value for name, value in path.where.items()):
            return None
        if self.is_hash:
            return text(hash_key([values[name] for name in path.by]))
        return text(places.write(SERVICE_CALL, path, [values[name] for name in path.order_names]))

    def _read(self, item: Item) -> Value:
        key = item.get(self.attribute, {}).get("S")
        if self.holds in self.path.where:
            return key is not None
        if not isinstance(key, str):
            return DAMAGED
        return key.partition("#")[2] if self.is_hash else places.read(SERVICE_CALL, self.path, key)[0]


def hash_key(by: Sequence[str]) -> str:
    """Join the parts of a hash key by ``#``, which no tenant's id has."""
    return "#".join(by)


CALL_INDEXES: Final = (
    CallIndex("status_key", CALLS_BY_STATUS, holds="status"),
    CallIndex("starred_key", STARRED_CALLS, holds="starred"),
    CallIndex("name_key", CALLS_BY_NAME, holds="name"),
    CallIndex("correlation_key", CORRELATED_CALLS, holds="correlation_id"),
    CallIndex("due_key", DUE_CALLS),
)


def partition_of(call_id: str) -> int:
    return crc32(call_id.encode()) % OUTBOX_PARTITIONS


def expiring(partition: int) -> int:
    return OUTBOX_PARTITIONS + partition


def published(partition: int) -> int:
    return 2 * OUTBOX_PARTITIONS + partition


OUTBOX_NAMES: Final = ("outbox_partition", "outbox_key")


def outbox_key(partition: int, place: str) -> Item:
    return dict(zip(OUTBOX_NAMES, (whole(partition), text(place)), strict=True))


RESERVES_OF_SHARD: Final = (
    Derived("shard_reserve", ("shard_version", "shard_metadata"), _claim_reserve),
    Derived("shard_owner_reserve", ("shard_owner_id",), _owner_reserve),
)
OF_CALL: Final = (
    *(index.derived for index in CALL_INDEXES),
    Derived(
        "outbox_key",
        ("expires_at",),
        lambda values: None if values["expires_at"] is None else text(instant_text(values["expires_at"])),
        lambda item: instant_of(item["outbox_key"]) if "outbox_key" in item else None,
    ),
    Derived(
        "outbox_partition",
        ("expires_at",),
        lambda values: (
            None if values["expires_at"] is None else whole(expiring(partition_of(values["service_call_id"])))
        ),
    ),
)
