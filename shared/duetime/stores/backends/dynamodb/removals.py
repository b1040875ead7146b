"""Calls with more executions than a transaction can remove: some go with the call, the rest just after.

Until all are gone an item stands for what is left. It is found like a call that has expired: whoever looks for those
completes what was cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from duetime.stores.backends.dynamodb.derived import OUTBOX_NAMES, expiring, partition_of
from duetime.stores.backends.dynamodb.driver import Driver
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Item, instant_text, text, whole
from duetime.stores.backends.dynamodb.layouts import call_item_key
from duetime.stores.entity import Key

_LEFT: Final = "LEFT#"
_MOST_AT_ONCE: Final = 60
"""In one transaction, which holds 100 items, with the call and all else that it has."""


class Removals:
    def __init__(self, driver: Driver, calls_table: str) -> None:
        self._driver = driver
        self._table = calls_table

    def parts(self, call: Key) -> list[Item]:
        """The keys of the executions of a call."""
        pages = self._driver.pages(
            TableName=self._table,
            KeyConditionExpression="tenant_id = :tenant AND begins_with(sort_key, :prefix)",
            ExpressionAttributeValues={":tenant": text(call[0]), ":prefix": text(f"EXEC#{call[1]}#")},
            ProjectionExpression="tenant_id, sort_key",
            ConsistentRead=True,
        )
        return [key for page in pages for key in page]

    def at_once(self, call: Key, items: Sequence[ItemWrite], now_ms: int) -> Sequence[ItemWrite]:
        """What is removed together with the call; where that is not all, with an item that says so."""
        if len(items) <= _MOST_AT_ONCE:
            return items
        key = call_item_key(call[0], _LEFT + call[1])
        index = (whole(expiring(partition_of(call[1]))), text(instant_text(now_ms)))
        item = {**key, "row_type": text("LEFT"), **dict(zip(OUTBOX_NAMES, index, strict=True))}
        mark = ItemWrite(table=self._table, key=key, item=item)
        return [*items[:_MOST_AT_ONCE], mark]

    def leave_some(self, items: Sequence[ItemWrite]) -> bool:
        """Whether ``at_once`` did."""
        return any(each.item is not None and each.item["row_type"] == text("LEFT") for each in items)

    def complete(self, entries: Sequence[Item]) -> None:
        """Remove what is left of calls that are gone, by their entries among those that have expired."""
        for entry in entries:
            call_id = entry["sort_key"]["S"]
            if call_id.startswith(_LEFT):
                self.finish((entry["tenant_id"]["S"], call_id.removeprefix(_LEFT)))

    def finish(self, call: Key) -> None:
        keys = self.parts(call)
        written = self._driver.write([ItemWrite(table=self._table, key=key) for key in keys])
        if all(each.is_written for each in written):
            self._driver.write([ItemWrite(table=self._table, key=call_item_key(call[0], _LEFT + call[1]))])
