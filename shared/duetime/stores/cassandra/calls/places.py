"""Where a call stands in the indexes, and in what order.

``sort`` is text that sorts as the index wants it: bytes ascend everywhere, so an id that is to descend is written in
complement, and an instant as its milliseconds in sixteen digits.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.domain.times import to_milliseconds

LISTS, DUE, OUTBOX, REMOVALS = "call_lists", "call_due", "call_outbox", "call_removals"
SLICES: Final = 8
"""Partitions per list of a tenant, of the outbox and of the removals: how far each of them goes is this many times
what a partition can hold."""
_COMPLEMENT = str.maketrans("0123456789abcdef", "fedcba9876543210")
_OFFSET_MS = 10**15
"""Makes every instant's milliseconds a positive number of sixteen digits."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A row's place in an index, but for the change that put it there. ``partition`` is without the tenant."""

    table: str
    partition: tuple[str | int, ...]
    sort: str


def all_list() -> str:
    return "all"


def status_list(status: CallStatus) -> str:
    return f"status:{status.value}"


def tag_list(tag: str) -> str:
    return f"tag:{tag}"


def correlation_list(correlation_id: str) -> str:
    return f"correlation:{correlation_id}"


STARRED_LIST: Final = "starred"
NAME_LIST: Final = "name"
DUE_LIST: Final = "due"


def instant_sort(instant: datetime) -> str:
    return f"{to_milliseconds(instant) + _OFFSET_MS:016d}"


def sort_before(instant: datetime) -> str:
    """Sorts behind every earlier instant and before this one."""
    return f"{to_milliseconds(instant) + _OFFSET_MS - 1:016d}"


def instant_of_sort(sort: str) -> int:
    """Milliseconds."""
    return int(sort[:16]) - _OFFSET_MS


def newest_sort(call_id: str) -> str:
    """Also of the beginning of an id: ids from it on have it as their beginning or sort before it."""
    return call_id.translate(_COMPLEMENT)


def name_sort(name: str, call_id: str) -> str:
    return f"{name}\0{newest_sort(call_id)}"


def slice_of(*parts: str) -> int:
    digest = hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=4).digest()
    return int.from_bytes(digest, "big") % SLICES


def places_of(call: ServiceCall) -> frozenset[Place]:
    """Every index entry that leads to a call in this state, but those of its events."""
    newest = newest_sort(call.call_id)
    lists = {all_list(): newest, status_list(call.status): newest, correlation_list(call.correlation_id): newest}
    lists |= {tag_list(tag): newest for tag in call.tags}
    lists[NAME_LIST] = name_sort(call.name, call.call_id)
    if call.starred:
        lists[STARRED_LIST] = newest
    if call.status is CallStatus.SCHEDULED:
        lists[DUE_LIST] = f"{instant_sort(call.due_at)}{call.call_id}"
    slice_number = slice_of(call.call_id)
    found = {Place(LISTS, (name, slice_number), sort) for name, sort in lists.items()}
    if call.wake_at is not None:
        found.add(Place(DUE, (call.shard_id,), instant_sort(call.wake_at)))
    if call.expires_at is not None:
        found.add(removal_place(call.tenant_id, call.call_id, call.expires_at))
    return frozenset(found)


def removal_place(tenant_id: str, call_id: str, instant: datetime) -> Place:
    """Of a call that expires."""
    return Place(REMOVALS, (slice_of(tenant_id, call_id),), instant_sort(instant))


def published_place(tenant_id: str, call_id: str, published_at: datetime) -> Place:
    """Of events; in slices behind those of calls, since theirs is another time to go."""
    return Place(REMOVALS, (SLICES + slice_of(tenant_id, call_id),), instant_sort(published_at))


def outbox_place(tenant_id: str) -> Place:
    return Place(OUTBOX, (slice_of(tenant_id),), "")


def write_places(places: frozenset[Place]) -> str:
    return json.dumps([[each.table, list(each.partition), each.sort] for each in sorted(places)])


def read_places(text: str | None) -> frozenset[Place]:
    """None, and what cannot be read, is nowhere."""
    try:
        found = [
            Place(str(table), tuple(partition), str(sort)) for table, partition, sort in json.loads(text or "[]")
        ]
    except (ValueError, TypeError):
        return frozenset()
    return frozenset(found)
