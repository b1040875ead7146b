"""Keys of the table of service calls, and of its indexes. docs/stores/dynamodb.md has them as a table.

The tenant is the hash key, or begins it, so no request can reach another tenant's items; but for the outbox index,
which is read for all of them. Call ids and execution ids are UUIDv7s: their order as text is the order in which they
were made. Where something that a client chose stands before an id, NUL stands between them: nothing sorts before it,
so ``ab`` comes before ``ab!``, and what is found is compared again, so it need not be unambiguous.
"""

from __future__ import annotations

import zlib
from datetime import datetime
from typing import Final

from duetime.domain.call_events import CallEvent
from duetime.domain.service_calls import CallStatus
from duetime.domain.times import format_instant, to_milliseconds
from duetime.stores.dynamodb.changes import Item, text

KEY_NAMES = ("tenant_id", "sort_key")

STATUS_INDEX = "status_key-index"
STARRED_INDEX = "starred_key-index"
NAME_INDEX = "name_key-index"
CORRELATION_INDEX = "correlation_key-index"
DUE_INDEX = "due_key-index"
OUTBOX_INDEX = "outbox_key-index"

OUTBOX_PARTITIONS = 8
"""Hash keys of the outbox index: its writes are shared among so many partitions, and a sweep is so many queries. As
many after those have the finished calls that expire."""

CALL = "CALL#"
_BODY = "BODY#"
_EXECUTION = "EXEC#"
_MESSAGE = "MESSAGE#"
_TAG = "TAG#"
_IDEMPOTENCY = "KEY#"
EVENT = "EVENT#"
_NUL = "\0"
LAST: Final = "~"
"""Sorts after every id and every number."""

_SEQUENCE_DIGITS = 8
_COMPLEMENT = str.maketrans("0123456789abcdef", "fedcba9876543210")


def key(tenant_id: str, sort_key: str) -> Item:
    return {"tenant_id": text(tenant_id), "sort_key": text(sort_key)}


def key_of(item: Item) -> Item:
    return {name: item[name] for name in KEY_NAMES}


def call_key(tenant_id: str, call_id: str) -> Item:
    return key(tenant_id, CALL + call_id)


def call_id_of(sort_key: str) -> str:
    """The call that the key of a call, or of one of its tags, is about."""
    return sort_key.rpartition(_NUL)[2].removeprefix(CALL)


def body_key(tenant_id: str, call_id: str) -> Item:
    return key(tenant_id, _BODY + call_id)


def execution_prefix(call_id: str) -> str:
    return f"{_EXECUTION}{call_id}#"


def execution_key(tenant_id: str, call_id: str, execution_id: str) -> Item:
    return key(tenant_id, execution_prefix(call_id) + execution_id)


def ids_of_execution(sort_key: str) -> tuple[str, str]:
    """The call and the execution that the key of an execution names."""
    call_id, _, execution_id = sort_key.removeprefix(_EXECUTION).partition("#")
    return call_id, execution_id


def message_prefix(call_id: str) -> str:
    return f"{_MESSAGE}{call_id}#"


def message_sort_key(call_id: str, execution_id: str, part: str) -> str:
    """Of a large request or response (``part``) of the execution log."""
    return f"{message_prefix(call_id)}{execution_id}#{part}"


def tag_prefix(tag: str) -> str:
    return f"{_TAG}{tag}{_NUL}"


def tag_key(tenant_id: str, tag: str, call_id: str) -> Item:
    return key(tenant_id, tag_prefix(tag) + call_id)


def idempotency_key(tenant_id: str, given: str) -> Item:
    return key(tenant_id, _IDEMPOTENCY + given)


def event_sort_key(call_id: str, sequence: int) -> str:
    """Events written together are one item under the ``sequence`` of the last of them."""
    return f"{EVENT}{call_id}#{sequence:0{_SEQUENCE_DIGITS}}"


def call_id_of_event(sort_key: str) -> str:
    return sort_key.removeprefix(EVENT).rpartition("#")[0]


def sequence_of(sort_key: str) -> int:
    """That of the last event in the item."""
    return int(sort_key.rpartition("#")[2])


def events_end(call_id: str) -> str:
    return f"{EVENT}{call_id}#{LAST}"


# -- index keys ---------------------------------------------------------------------------------------------------


def status_prefix(status: CallStatus) -> str:
    return f"{status.value}#"


def name_index_key(name: str, call_id: str) -> str:
    """By name, and within a name the newest first: the digits of the id are inverted."""
    return f"{name}{_NUL}{call_id.translate(_COMPLEMENT)}"


def name_of_name_key(name_key: str) -> str:
    return name_key.rpartition(_NUL)[0]


def correlation_index_key(tenant_id: str, correlation_id: str) -> str:
    """The hash key of its index: a correlation id may be too long to stand before a call id in a range key."""
    return f"{tenant_id}#{correlation_id}"


def correlation_id_of(correlation_key: str) -> str:
    return correlation_key.partition("#")[2]


def due_index_key(due_at: datetime, call_id: str) -> str:
    return f"{format_instant(due_at)}#{call_id}"


def outbox_partition(call_id: str) -> int:
    return zlib.crc32(call_id.encode()) % OUTBOX_PARTITIONS


def expiry_partition(call_id: str) -> int:
    return OUTBOX_PARTITIONS + outbox_partition(call_id)


def outbox_index_key(event: CallEvent) -> str:
    """``event``: the last of those written together."""
    return f"{format_instant(event.occurred_at)}#{event.aggregate_id}#{event.sequence:0{_SEQUENCE_DIGITS}}"


# -- times as ids -------------------------------------------------------------------------------------------------


def first_id(submitted_from: datetime | None) -> str:
    """No call submitted at that time or later has an id below this. "0" for None: below every id."""
    return "0" if submitted_from is None else _id_prefix(submitted_from)


def last_id(submitted_to: datetime | None) -> str:
    """No call submitted before that time has an id above this."""
    return LAST if submitted_to is None else _id_prefix(submitted_to)


def _id_prefix(instant: datetime) -> str:
    """The beginning of the UUIDv7s made at ``instant``: 48 bits of milliseconds in hexadecimal."""
    digits = f"{to_milliseconds(instant):012x}"
    return f"{digits[:8]}-{digits[8:]}"
