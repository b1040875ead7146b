"""What items have beside the fields of their row: keys of indexes, the end for the table's TTL, a reserve of bytes.

Where something that a client chose stands before an id, NUL stands between them: nothing sorts before it, so ``ab``
comes before ``ab!``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from duetime.stores.backends.dynamodb.items import Attribute, Item, Reader, instant_of, instant_text, text, whole
from duetime.stores.entity import DAMAGED, Value

NUL: Final = "\0"
OUTBOX_PARTITIONS: Final = 8
"""Hash keys of the outbox index for events that are not published; as many for calls that expire, and as many for
published events."""
TIME_TO_LIVE: Final = "expires_at"
SEQUENCE_DIGITS: Final = 10
_CLAIM_BYTES: Final = 480
_OWNER_BYTES: Final = 320
"""What a shard's version and metadata, and its owner and the end of its lease, take with what fills them up.

So its item always has one size: a partition that is full takes no write that makes an item larger, and nothing of a
shard that cannot be claimed would ever fire.
"""
_END_BYTES: Final = len("shard_lease_expires_at") + 24
_COMPLEMENT = str.maketrans("0123456789abcdef", "fedcba9876543210")

Values = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Derived:
    """Attributes that follow from ``fields``, None for those that an item has not got. ``make`` raises ``KeyError``
    where it needs a field that it is not given."""

    fields: frozenset[str]
    names: tuple[str, ...]
    make: Callable[[Values], Sequence[Attribute | None]]


def expiry(field: str) -> Derived:
    """Epoch seconds for the table's TTL, rounded up: a row is never removed before its time."""

    def make(values: Values) -> Sequence[Attribute | None]:
        at = values[field]
        return (None if at is None else time_to_live(at),)

    return Derived(frozenset({field}), (TIME_TO_LIVE,), make)


def time_to_live(milliseconds: int) -> Attribute:
    return whole(-(-milliseconds // 1000))


def _claim_reserve(values: Values) -> Sequence[Attribute | None]:
    used = len(str(values["shard_version"])) + _bytes_of("shard_metadata", values)
    return (text("." * max(1, _CLAIM_BYTES - used)),)


def _owner_reserve(values: Values) -> Sequence[Attribute | None]:
    """The end of a lease is there if and only if an owner is."""
    used = _bytes_of("shard_owner_id", values)
    return (text("." * max(1, _OWNER_BYTES - used - (_END_BYTES if used else 0))),)


def _bytes_of(name: str, values: Values) -> int:
    value = values[name]
    return 0 if value is None else len(name) + len(value.encode())


def _index(name: str, fields: set[str], make: Callable[[Values], str | None]) -> Derived:
    def made(values: Values) -> Sequence[Attribute | None]:
        value = make(values)
        return (None if value is None else text(value),)

    return Derived(frozenset(fields), (name,), made)


def _held(attribute: str, read: Callable[[str], str]) -> Reader:
    def of_item(item: Item) -> Value:
        key = item.get(attribute, {}).get("S")
        return read(key) if isinstance(key, str) else DAMAGED

    return of_item


def inverted(call_id: str) -> str:
    """So that within a name the newest come first."""
    return call_id.translate(_COMPLEMENT)


def of_tenant(tenant_id: str, value: str) -> str:
    """The hash key of an index of calls by a value: it may be too long to stand before a call id in a range key."""
    return f"{tenant_id}#{value}"


def _due_key(values: Values) -> str | None:
    if values["status"] != "Scheduled":
        return None
    return f"{instant_text(values['due_at'])}{NUL}{values['service_call_id']}"


def partition_of(call_id: str) -> int:
    return crc32(call_id.encode()) % OUTBOX_PARTITIONS


def expiring(partition: int) -> int:
    return OUTBOX_PARTITIONS + partition


def published(partition: int) -> int:
    return 2 * OUTBOX_PARTITIONS + partition


OUTBOX_NAMES = ("outbox_partition", "outbox_key")


def _call_expiry(values: Values) -> Sequence[Attribute | None]:
    at = values["expires_at"]
    if at is None:
        return None, None
    return whole(expiring(partition_of(values["service_call_id"]))), text(instant_text(at))


def outbox_place(tenant_id: str, call_id: str, sequence: int) -> str:
    return NUL.join((tenant_id, call_id, f"{sequence:0{SEQUENCE_DIGITS}}"))


RESERVES_OF_SHARD: Final = (
    Derived(frozenset({"shard_version", "shard_metadata"}), ("shard_reserve",), _claim_reserve),
    Derived(frozenset({"shard_owner_id"}), ("shard_owner_reserve",), _owner_reserve),
)
OF_CALL: Final = (
    _index("status_key", {"status"}, lambda values: of_tenant(values["tenant_id"], values["status"])),
    _index("starred_key", {"is_starred"}, lambda values: values["tenant_id"] if values["is_starred"] else None),
    _index("name_key", {"name"}, lambda values: values["name"] + NUL + inverted(values["service_call_id"])),
    _index(
        "correlation_key",
        {"correlation_id"},
        lambda values: of_tenant(values["tenant_id"], values["correlation_id"]),
    ),
    _index("due_key", {"status", "due_at"}, _due_key),
    Derived(frozenset({"expires_at"}), OUTBOX_NAMES, _call_expiry),
)
HELD_OF_CALL: Final[Mapping[str, Reader]] = {
    "status": _held("status_key", lambda key: key.partition("#")[2]),
    "name": _held("name_key", lambda key: key.rpartition(NUL)[0]),
    "correlation_id": _held("correlation_key", lambda key: key.partition("#")[2]),
    "is_starred": lambda item: "starred_key" in item,
    "expires_at": lambda item: instant_of(item["outbox_key"]) if "outbox_key" in item else None,
}
