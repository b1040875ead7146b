"""Large payloads live in an item of their own (decision 0018).

DynamoDB bounds an item *together with* its local index entries to 400 KB, and the due index projects
everything: a payload of 256 KiB beside its timer would be refused. The payload item's key is unique to one
write, so removing it can never take the payload of another revision.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from functools import partial
from uuid import uuid4

from duetime.domain.errors import StoreError
from duetime.domain.timers import MAX_PAYLOAD_BYTES, Timer
from duetime.stores.dynamodb.changes import Change, Item, text
from duetime.stores.dynamodb.items import item_key, key_of, time_to_live
from duetime.stores.dynamodb.table import Table
from duetime.stores.page_budget import fitting
from duetime.stores.refusals import alone

INLINE_PAYLOAD_BYTES = 32 * 1024
_RESERVE = "reserve"
_RESERVE_BYTES = 16
"""Room for ``expires_at``: a partition that is full takes no write that makes an item larger."""

_READ_TRIES = 3


def is_large(payload_json: str | None) -> bool:
    if payload_json is None or len(payload_json) * 4 <= INLINE_PAYLOAD_BYTES:
        return False
    return len(payload_json.encode()) > INLINE_PAYLOAD_BYTES


class Payloads:
    def __init__(self, table: Table) -> None:
        self._table = table

    def store(self, timer: Timer) -> str | None:
        """The key of the payload item just written; None when the payload stays in the timer's item.

        Comes before the write of the timer. A crash or an unavailable store between the two leaves an item that
        nothing refers to: whether the timer was written is then not known, and a lost payload would be worse.
        """
        payload_json = timer.content.payload_json
        if payload_json is None or not is_large(payload_json):
            return None
        key = f"PAYLOAD#{uuid4().hex}"
        item = {
            **item_key(timer.shard_id, key),
            "row_type": text("PAYLOAD"),
            "timer_uuid": text(str(timer.timer_uuid)),
            "timer_payload": text(payload_json),
        }
        if timer.expires_at is None:
            item[_RESERVE] = text("." * _RESERVE_BYTES)
        else:  # it is cancelled, or comes from another store and had ended there
            item["expires_at"] = time_to_live(timer.expires_at)
        self._table.put(item)
        return key

    def store_all(self, timers: Sequence[Timer]) -> list[str | StoreError | None]:
        """``store`` for each, or why its payload is refused. When the store becomes unavailable, all are removed."""
        keys: list[str | StoreError | None] = []
        try:
            for timer in timers:
                # One by one: the keys so far are needed when it fails.
                keys.append(alone(partial(self.store, timer), lambda error: error))  # noqa: PERF401
        except StoreError:
            with suppress(StoreError):
                for timer, key in zip(timers, keys, strict=False):
                    self.remove(timer.shard_id, key if isinstance(key, str) else None)
            raise
        return keys

    def remove(self, shard_id: int, key: str | None) -> str | None:
        """Delete the payload item ``key``, if any, and return the payload that it held."""
        if key is None:
            return None
        removed = self._table.delete(item_key(shard_id, key)).item
        return None if removed is None else removed["timer_payload"]["S"]

    def expire(self, shard_id: int, key: str, expires_at: datetime) -> None:
        """Give the payload of a finished timer the timer's own end."""
        change = Change(
            key=item_key(shard_id, key),
            sets={"expires_at": time_to_live(expires_at)},
            removes=(_RESERVE,),
            unchanged={"row_type": text("PAYLOAD")},
        )
        self._table.apply_one(change)

    def attach(self, items: Sequence[Item]) -> list[Item | None]:
        """``items`` with their payloads in place, in order.

        A payload that is gone means that its timer was changed or deleted meanwhile: then the timer is read
        again. None: the timer is gone. One whose payload stays missing comes back without it (unreadable).
        """
        result: list[Item | None] = list(items)
        for attempt in range(_READ_TRIES):
            missing = self._attach_once(result)
            if not missing or attempt == _READ_TRIES - 1:
                break
            keys = [key_of(items[at]) for at in missing]
            for at, item in zip(missing, self._table.get_many(keys, consistent=True), strict=True):
                result[at] = item
        return result

    def _attach_once(self, items: list[Item | None]) -> list[int]:
        """Attach in place; the positions whose payload was not found."""
        needed = {
            at: item_key(int(item["shard_id"]["N"]), item["timer_payload_key"]["S"])
            for at, item in enumerate(items)
            if item is not None and payload_key_of(item) is not None and "timer_payload" not in item
        }
        found = self._table.get_many(list(needed.values()), consistent=True)
        missing = []
        for at, payload in zip(needed, found, strict=True):
            item = items[at]
            if payload is None or item is None:
                missing.append(at)
            else:
                items[at] = {**item, "timer_payload": payload["timer_payload"]}
        return missing


def payload_key_of(item: Item | None) -> str | None:
    """Where the payload of ``item`` is; None when it has none of its own."""
    if item is None:
        return None
    key = item.get("timer_payload_key", {}).get("S")
    return key if isinstance(key, str) else None


def within_budget(items: Sequence[Item]) -> Sequence[Item]:
    """The first of ``items`` whose payloads make a page."""
    return items[: fitting(map(payload_size, items))]


def payload_size(item: Item) -> int:
    """The most that a payload takes which is in an item of its own, so that it need not be looked at."""
    if payload_key_of(item) is not None:
        return MAX_PAYLOAD_BYTES
    payload = item.get("timer_payload", {}).get("S")
    return len(payload) if isinstance(payload, str) else 0
