"""What items have beside the fields of their row: keys of indexes, the end for the table's TTL, a reserve of bytes.

Where something that a client chose stands before an id, NUL stands between them: nothing sorts before it, so ``ab``
comes before ``ab!``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final
from zlib import crc32

from duetime.stores.backends.dynamodb.items import Attribute, Item, Reader, instant_text, text, whole
from duetime.stores.entities import EVENT
from duetime.stores.entity import DAMAGED, Value

NUL: Final = "\0"
OUTBOX_PARTITIONS: Final = 8
"""Hash keys of the outbox index for events that are not published; as many for calls that expire, and as many for
published events."""
TIME_TO_LIVE: Final = "expires_at"
SEQUENCE_DIGITS: Final = 10
_LEASE_BYTES: Final = 900
"""What the variable attributes of a shard have between them: its item always has one size, since a partition that is
full takes no write that makes an item larger, and nothing of a shard that cannot be claimed would ever fire."""
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


def _reserve(values: Values) -> Sequence[Attribute | None]:
    used = len(str(values["shard_version"]))
    for name in ("shard_owner_id", "shard_lease_expires_at", "shard_metadata"):
        value = values[name]
        if value is not None:
            used += len(name) + (24 if isinstance(value, int) else len(value.encode()))
    return (text("." * max(1, _LEASE_BYTES - used)),)


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


def correlation_key(tenant_id: str, correlation_id: str) -> str:
    """The hash key of its index: a correlation id may be too long to stand before a call id in a range key."""
    return f"{tenant_id}#{correlation_id}"


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


_OUTBOX_NAMES = ("outbox_partition", "outbox_key")


def _call_expiry(values: Values) -> Sequence[Attribute | None]:
    at = values["expires_at"]
    if at is None:
        return None, None
    call_id = values["service_call_id"]
    return whole(expiring(partition_of(call_id))), text(f"{instant_text(at)}{NUL}{call_id}")


def _outbox(values: Values) -> Sequence[Attribute | None]:
    tenant_id, call_id, sequence = (values[name] for name in EVENT.key)
    place = NUL.join((tenant_id, call_id, f"{sequence:0{SEQUENCE_DIGITS}}"))
    partition, at = partition_of(call_id), values["published_at"]
    if at is None:
        return whole(partition), text(place)
    return whole(published(partition)), text(f"{instant_text(at)}{NUL}{place}")


RESERVE_OF_SHARD: Final = Derived(
    frozenset({"shard_version", "shard_owner_id", "shard_metadata"}), ("shard_reserve",), _reserve
)
OF_CALL: Final = (
    _index("status_key", {"status"}, lambda values: f"{values['status']}{NUL}{values['service_call_id']}"),
    _index(
        "starred_key",
        {"is_starred"},
        lambda values: values["service_call_id"] if values["is_starred"] else None,
    ),
    _index("name_key", {"name"}, lambda values: values["name"] + NUL + inverted(values["service_call_id"])),
    _index(
        "correlation_key",
        {"correlation_id"},
        lambda values: correlation_key(values["tenant_id"], values["correlation_id"]),
    ),
    _index("due_key", {"status", "due_at"}, _due_key),
    Derived(frozenset({"expires_at"}), _OUTBOX_NAMES, _call_expiry),
)
HELD_OF_CALL: Final[Mapping[str, Reader]] = {
    "status": _held("status_key", lambda key: key.partition(NUL)[0]),
    "name": _held("name_key", lambda key: key.rpartition(NUL)[0]),
    "correlation_id": _held("correlation_key", lambda key: key.partition("#")[2]),
    "is_starred": lambda item: "starred_key" in item,
}
OF_EVENT: Final = Derived(frozenset({"published_at"}), _OUTBOX_NAMES, _outbox)
