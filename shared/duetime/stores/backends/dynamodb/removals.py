"""Calls with more executions than a transaction can remove: some go with the call, the rest just after.

Until all are gone an item stands for what is left. It is found like a call that has expired: whoever looks for those
completes what was cut short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from duetime.stores.backends.dynamodb.derived import expiring, outbox_key, partition_of
from duetime.stores.backends.dynamodb.driver import Driver
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.items import Item, instant_text, text
from duetime.stores.backends.dynamodb.layouts import call_item_key, executions_of
from duetime.stores.entity import Key

_LEFT: Final = "LEFT#"
_MOST_AT_ONCE: Final = 60
"""In one transaction, which holds 100 items, with the call and all else that it has."""


class Removals:
    def __init__(self, driver: Driver, calls_table: str) -> None:
        self._driver = driver
        self._table = calls_table

    def at_once(self, call: Key, items: Sequence[ItemWrite], now_ms: int) -> Sequence[ItemWrite]:
        """Return ``items``, which remove a call, and what removes its executions; where that is too much, some of
        them and an item that says so."""
        items = [*items, *self._of_executions(call)]
        if len(items) <= _MOST_AT_ONCE:
            return items
        key = call_item_key(call[0], _LEFT + call[1])
        index = outbox_key(expiring(partition_of(call[1])), instant_text(now_ms))
        item = {**key, "row_type": text("LEFT"), **index}
        return [*items[:_MOST_AT_ONCE], ItemWrite(table=self._table, key=key, item=item)]

    def _of_executions(self, call: Key) -> list[ItemWrite]:
        keys = "tenant_id, sort_key"
        pages = self._driver.pages(self._table, executions_of(call), ProjectionExpression=keys)
        return [ItemWrite(table=self._table, key=key) for page in pages for key in page]

    def leave_some(self, items: Sequence[ItemWrite]) -> bool:
        """Tell whether ``at_once`` did."""
        return any(each.item is not None and each.item["row_type"] == text("LEFT") for each in items)

    def complete(self, entries: Sequence[Item]) -> None:
        """Remove what is left of calls that are gone, by their entries among those that have expired."""
        for entry in entries:
            call_id = entry["sort_key"]["S"]
            if call_id.startswith(_LEFT):
                self.finish((entry["tenant_id"]["S"], call_id.removeprefix(_LEFT)))

    def finish(self, call: Key) -> None:
        written = self._driver.write(self._of_executions(call))
        if all(each.is_written for each in written):
            self._driver.write([ItemWrite(table=self._table, key=call_item_key(call[0], _LEFT + call[1]))])
