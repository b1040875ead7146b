"""A tenant's calls by filter.

One index gives the candidates in the order that is asked for; their items are read and compared with the whole
filter, so what is shown is current, and what the other conditions leave out costs a read. The reads of one list call
are bounded, after which the page ends where it is.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from datetime import datetime
from typing import Any

from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.domain.times import format_instant
from duetime.stores.bound_cursors import Position, read_cursor, write_cursor
from duetime.stores.calls_port import CallFilter, CallOrder
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.items import is_absent, without_body
from duetime.stores.dynamodb.calls.reading import Reading
from duetime.stores.dynamodb.calls.salvage import decode_or_salvage_call
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.table import BATCH_KEYS
from duetime.stores.port import Page

MAX_QUERIES = 8
"""Of one list call, each of at most BATCH_KEYS candidates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Path:
    """A range of one index, or of the table (``index`` None), in one direction.

    ``between``: inclusive bounds of the range key. None: the range keys that begin with ``prefix``, all if it is "".
    ``covers``: conditions of the filter that hold for all of the range.
    """

    name: str
    index: str | None = None
    hash_name: str = "tenant_id"
    hash_value: str
    range_name: str
    between: tuple[str, str] | None = None
    prefix: str = ""
    is_ascending: bool = False
    covers: frozenset[str] = frozenset()

    def condition(self) -> tuple[str, Item]:
        """The key condition and its values."""
        condition, values = f"{self.hash_name} = :hash", {":hash": text(self.hash_value)}
        if self.between is not None:
            condition += f" AND {self.range_name} BETWEEN :first AND :last"
            values |= {":first": text(self.between[0]), ":last": text(self.between[1])}
        elif self.prefix:
            condition += f" AND begins_with({self.range_name}, :prefix)"
            values[":prefix"] = text(self.prefix)
        return condition, values


class Listing(Reading):
    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        path = _path(tenant_id, call_filter)
        is_exact = _given(call_filter) <= path.covers
        query = (tenant_id, *astuple(call_filter))
        position = None if cursor is None else _start_key(path, tenant_id, read_cursor(cursor, query, parts=2))
        if path.between is not None and path.between[0] > path.between[1]:
            return Page([])  # from after to, which DynamoDB would refuse
        found: list[ServiceCall] = []
        for _ in range(MAX_QUERIES):
            to_read = min(limit - len(found), BATCH_KEYS) if is_exact else BATCH_KEYS
            entries, items, position = self._candidates(path, tenant_id, position, to_read)
            for at, item in enumerate(items):
                if item is None or is_absent(item, now):
                    continue
                call = decode_or_salvage_call(item)
                if not _fits(call_filter, call):
                    continue
                found.append(without_body(call))
                if len(found) == limit:
                    is_last = position is None and at == len(items) - 1
                    return Page(found, None if is_last else write_cursor(_position(path, entries[at]), query))
            if position is None:
                return Page(found)
        return Page(found, None if position is None else write_cursor(_position(path, position), query))

    def _candidates(
        self, path: _Path, tenant_id: str, position: Item | None, to_read: int
    ) -> tuple[list[Item], list[Item | None], Item | None]:
        """Entries of the range after ``position``, the calls' items beside them, and the position to go on from."""
        condition, values = path.condition()
        parameters: dict[str, Any] = {"ConsistentRead": True} if path.index is None else {"IndexName": path.index}
        if position is not None:
            parameters["ExclusiveStartKey"] = position
        page = self._calls.query(condition, values, ScanIndexForward=path.is_ascending, Limit=to_read, **parameters)
        if path.name == "calls":
            return page.items, list(page.items), page.last_key
        call_keys = [keys.call_key(tenant_id, keys.call_id_of(each["sort_key"]["S"])) for each in page.items]
        return page.items, self._calls.get_many(call_keys, consistent=True), page.last_key


def _path(tenant_id: str, call_filter: CallFilter) -> _Path:
    """The order decides first, then the condition that usually leaves the fewest."""
    first, last = keys.first_id(call_filter.submitted_from), keys.last_id(call_filter.submitted_to)
    if call_filter.order is CallOrder.DUE:
        if call_filter.status is not CallStatus.SCHEDULED:
            raise ValueError("only Scheduled calls are in the order of their due times")
        due_to = call_filter.due_to
        return _Path(
            name="due",
            index=keys.DUE_INDEX,
            hash_value=tenant_id,
            range_name="due_key",
            between=("0", keys.LAST if due_to is None else f"{format_instant(due_to)}#{keys.LAST}"),
            is_ascending=True,
            covers=frozenset({"status", "due_to"}),
        )
    if call_filter.name_prefix is not None:
        return _Path(
            name="name",
            index=keys.NAME_INDEX,
            hash_value=tenant_id,
            range_name="name_key",
            prefix=call_filter.name_prefix,
            is_ascending=True,
            covers=frozenset({"name_prefix"}),
        )
    if call_filter.correlation_id is not None:
        return _Path(
            name="correlation",
            index=keys.CORRELATION_INDEX,
            hash_name="correlation_key",
            hash_value=keys.correlation_index_key(tenant_id, call_filter.correlation_id),
            range_name="sort_key",
            between=(keys.CALL + first, keys.CALL + last),
            covers=_BY_ID | {"correlation_id"},
        )
    if call_filter.tags:
        prefix = keys.tag_prefix(call_filter.tags[0])
        return _Path(
            name="tag",
            hash_value=tenant_id,
            range_name="sort_key",
            between=(prefix + first, prefix + last),
            covers=_BY_ID | ({"tags"} if len(call_filter.tags) == 1 else set()),
        )
    if call_filter.starred:
        return _Path(
            name="starred",
            index=keys.STARRED_INDEX,
            hash_value=tenant_id,
            range_name="starred_key",
            between=(first, last),
            covers=_BY_ID | {"starred"},
        )
    if call_filter.status is not None:
        prefix = keys.status_prefix(call_filter.status)
        return _Path(
            name="status",
            index=keys.STATUS_INDEX,
            hash_value=tenant_id,
            range_name="status_key",
            between=(prefix + first, prefix + last),
            covers=_BY_ID | {"status"},
        )
    return _Path(
        name="calls",
        hash_value=tenant_id,
        range_name="sort_key",
        between=(keys.CALL + first, keys.CALL + last),
        covers=_BY_ID,
    )


_BY_ID = frozenset({"submitted_from", "submitted_to"})


def _given(call_filter: CallFilter) -> set[str]:
    """Names of the conditions of the filter."""
    names = set(CallFilter.__dataclass_fields__) - {"order"}
    return {name for name in names if getattr(call_filter, name) not in (None, ())}


def _fits(call_filter: CallFilter, call: ServiceCall) -> bool:
    wanted = call_filter
    return (
        (wanted.status is None or call.status is wanted.status)
        and set(wanted.tags) <= set(call.tags)
        and (wanted.submitted_from is None or call.submitted_at >= wanted.submitted_from)
        and (wanted.submitted_to is None or call.submitted_at < wanted.submitted_to)
        and (wanted.due_to is None or call.due_at <= wanted.due_to)
        and (wanted.name_prefix is None or call.name.startswith(wanted.name_prefix))
        and (wanted.starred is None or call.starred is wanted.starred)
        and (wanted.correlation_id is None or call.correlation_id == wanted.correlation_id)
    )


# -- cursors ------------------------------------------------------------------------------------------------------


def _position(path: _Path, entry: Item) -> Position:
    return [entry[path.range_name]["S"], entry["sort_key"]["S"]]


def _start_key(path: _Path, tenant_id: str, position: Position) -> Item:
    """Where to go on. The tenant is never taken from the cursor."""
    range_value, sort_key = position
    key = keys.key(tenant_id, sort_key)
    return {**key, path.hash_name: text(path.hash_value), path.range_name: text(range_value)}
