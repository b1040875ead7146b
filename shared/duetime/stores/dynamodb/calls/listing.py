"""A tenant's calls by filter.

One index gives the candidates in the order that is asked for; their items are read and compared with the whole
filter, so what is shown is current, and what the other conditions leave out costs a read. The reads of one list call
are bounded, after which the page ends where it is.
"""

from __future__ import annotations

from dataclasses import astuple
from datetime import datetime
from typing import Any

from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import Position, read_cursor, write_cursor
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.items import is_absent, without_body
from duetime.stores.dynamodb.calls.paths import Path, path_for
from duetime.stores.dynamodb.calls.reading import Reading
from duetime.stores.dynamodb.calls.salvage import decode_or_salvage_call
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.table import BATCH_KEYS
from duetime.stores.port.calls import CallFilter
from duetime.stores.port.pages import Page

MAX_QUERIES = 8
"""Of one list call, each of at most BATCH_KEYS candidates."""


class Listing(Reading):
    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        path = path_for(tenant_id, call_filter)
        is_exact = _given(call_filter) <= path.covers
        query = (tenant_id, *astuple(call_filter))
        position = None if cursor is None else _start_key(path, tenant_id, read_cursor(cursor, query, parts=2))
        if path.is_empty:
            return Page([])
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
        self, path: Path, tenant_id: str, position: Item | None, to_read: int
    ) -> tuple[list[Item], list[Item | None], Item | None]:
        """Entries of the range after ``position``, the calls' items beside them, and the position to go on from."""
        condition, values = path.condition()
        parameters: dict[str, Any] = {"ConsistentRead": True} if path.index is None else {"IndexName": path.index}
        if position is not None:
            parameters["ExclusiveStartKey"] = position
        page = self._calls.query(condition, values, ScanIndexForward=path.is_ascending, Limit=to_read, **parameters)
        if path.finds_items:
            return page.items, list(page.items), page.last_key
        call_keys = [keys.call_key(tenant_id, keys.call_id_of(each["sort_key"]["S"])) for each in page.items]
        return page.items, self._calls.get_many(call_keys, consistent=True), page.last_key


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


def _position(path: Path, entry: Item) -> Position:
    return [entry[path.range_name]["S"], entry["sort_key"]["S"]]


def _start_key(path: Path, tenant_id: str, position: Position) -> Item:
    """Where to go on. The tenant is never taken from the cursor."""
    range_value, sort_key = position
    key = keys.key(tenant_id, sort_key)
    return {**key, path.hash_name: text(path.hash_value), path.range_name: text(range_value)}
