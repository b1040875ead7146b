"""Lists for clients: a namespace's timers by filter, and by correlation id."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from duetime.domain.errors import InvalidCursor
from duetime.domain.ids import sort_key
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant
from duetime.stores.dynamodb.changes import Item, text, whole
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import (
    CORRELATION_INDEX,
    decode_leniently,
    failure_text_beginning,
    item_key,
    key_of,
)
from duetime.stores.dynamodb.payloads import Payloads, payload_size, within_budget
from duetime.stores.dynamodb.table import BATCH_KEYS, Table
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter

MAX_REQUESTS = 32
"""Queries of one list call; after them the page ends where it is."""
_FILTERED_READ = 500
"""Items that one filtered query looks at (or 1 MB of them, DynamoDB's own limit)."""


class Listing:
    _table: Table
    _payloads: Payloads

    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        condition, values = _filter(timer_filter, now)
        least_read = 0 if timer_filter == TimerFilter() else _FILTERED_READ
        found: list[Item] = []
        position: tuple[int, str] | None = _list_position(namespace, cursor)
        size = 0
        for _ in range(MAX_REQUESTS):
            if position is None or len(found) >= limit or size > PAGE_BYTES:
                break
            to_read = max(limit - len(found), least_read)
            items, position = self._query_shard(namespace, position, to_read, condition, values)
            found += items
            size += sum(map(payload_size, items))
        taken = list(within_budget(found[:limit]))
        if len(taken) < len(found):
            position = (int(taken[-1]["shard_id"]["N"]), taken[-1]["sortKey"]["S"])
        return Page(self._readable(taken, now), None if position is None else write_cursor(*position))

    def _query_shard(
        self, namespace: Namespace, position: tuple[int, str], to_read: int, condition: str, values: Item
    ) -> tuple[list[Item], tuple[int, str] | None]:
        """One query, and the position after it: in the shard, at the start of the next one, or None at the end."""
        shard_id, after = position
        parameters: dict[str, Any] = {"ExclusiveStartKey": item_key(shard_id, after)} if after else {}
        page = self._table.query(
            "shard_id = :shard AND begins_with(sortKey, :prefix)",
            {":shard": whole(shard_id), ":prefix": text(sort_key(namespace.name, "")), **values},
            FilterExpression=condition,
            ConsistentRead=True,
            Limit=to_read,
            **parameters,
        )
        if page.last_key is not None:
            return page.items, (shard_id, page.last_key["sortKey"]["S"])
        if shard_id + 1 in namespace.shard_ids():
            return page.items, (shard_id + 1, "")
        return page.items, None

    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        parameters: dict[str, Any] = {}
        if cursor is not None:
            shard_id, after = _list_position(namespace, cursor)
            if not after:  # the start of a shard, which only the other list knows
                raise InvalidCursor("cursor", "is not a cursor of this list")
            parameters["ExclusiveStartKey"] = {
                "timer_correlation_id": text(correlation_id),
                **item_key(shard_id, after),
            }
        page = self._table.query(
            "timer_correlation_id = :correlation AND begins_with(sortKey, :prefix)",
            {":correlation": text(correlation_id), ":prefix": text(sort_key(namespace.name, ""))},
            IndexName=CORRELATION_INDEX,
            Limit=min(limit, BATCH_KEYS),
            **parameters,
        )
        items = self._table.get_many([key_of(item) for item in page.items], consistent=True)
        # The index lags behind the table: what it names may be gone or have another correlation id by now.
        found = [item for item in items if item and item.get("timer_correlation_id", {}).get("S") == correlation_id]
        taken = list(within_budget(found))
        last = key_of(taken[-1]) if len(taken) < len(found) else page.last_key
        timers = self._readable(taken, now)
        return Page(timers, None if last is None else write_cursor(int(last["shard_id"]["N"]), last["sortKey"]["S"]))

    def _readable(self, items: list[Item], now: datetime) -> list[Timer]:
        timers = [decode_leniently(item) for item in self._payloads.attach(items) if item is not None]
        return [timer for timer in timers if not timer.is_expired(now)]


def _list_position(namespace: Namespace, cursor: str | None) -> tuple[int, str]:
    """The shard and the sort key after which a list goes on; an empty key at the start of a shard."""
    if cursor is None:
        return namespace.first_shard, ""
    shard_id, after = read_cursor(cursor, int, str)
    if shard_id not in namespace.shard_ids() or not (after == "" or after.startswith(sort_key(namespace.name, ""))):
        raise InvalidCursor("cursor", "is not a cursor of this list")
    return shard_id, after


def _filter(timer_filter: TimerFilter, now: datetime) -> tuple[str, Item]:
    """The filter expression, which always leaves out what has expired, and its values."""
    conditions = ["(attribute_not_exists(timer_expires_at) OR timer_expires_at > :now)"]
    values: Item = {":now": text(format_instant(now))}
    if timer_filter.state is not None:
        conditions.append("timer_state = :state")
        values[":state"] = text(timer_filter.state.value)
    if timer_filter.tag is not None:
        conditions.append("contains(timer_tags, :tag)")
        values[":tag"] = text(timer_filter.tag)
    if timer_filter.failure_reason is not None:
        conditions.append("begins_with(timer_failure, :reason)")
        values[":reason"] = text(failure_text_beginning(timer_filter.failure_reason))
    for name, operator, bound in (("from", ">=", timer_filter.due_from), ("to", "<", timer_filter.due_to)):
        if bound is not None:
            # The due time is the index key unless it is stored apart (items.py).
            conditions.append(
                f"(timer_due_at {operator} :due_{name} OR "
                f"(attribute_not_exists(timer_due_at) AND timer_execute_at {operator} :due_{name}))"
            )
            values[f":due_{name}"] = text(format_instant(bound))
    for name, operator, bound in (("from", ">=", timer_filter.updated_from), ("to", "<", timer_filter.updated_to)):
        if bound is not None:
            conditions.append(f"timer_updated_at {operator} :updated_{name}")
            values[f":updated_{name}"] = text(format_instant(bound))
    return " AND ".join(conditions), values
