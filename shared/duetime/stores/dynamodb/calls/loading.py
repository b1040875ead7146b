"""Executions and events: those that come from another store, and all events for one that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

from duetime.domain.call_events import CallEvent
from duetime.domain.executions import Execution
from duetime.domain.service_calls import CALLS_PREFIX
from duetime.domain.times import format_instant, read_instant
from duetime.stores.dynamodb.calls import keys
from duetime.stores.dynamodb.calls.event_items import decode_events, encode_events, published_times
from duetime.stores.dynamodb.calls.execution_items import encode_execution
from duetime.stores.dynamodb.calls.outbox import Outbox
from duetime.stores.dynamodb.calls.transactions import Write, put, write_all
from duetime.stores.dynamodb.catalogue import next_internal_name
from duetime.stores.dynamodb.changes import Item, text
from duetime.stores.dynamodb.cursors import read_cursor, write_cursor
from duetime.stores.dynamodb.items import Unreadable, time_to_live
from duetime.stores.dynamodb.table import Table
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import EventPage, LoadStatus, UnreadableEvent

_IS_NEW = "attribute_not_exists(sort_key)"


class Loading(Outbox):
    _timers: Table
    _event_retention: timedelta

    # -- executions ------------------------------------------------------------------------------------------

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        return self._workers.map(self._load_execution, executions)

    def _load_execution(self, execution: Execution) -> LoadStatus:
        item, apart = encode_execution(execution)
        writes: list[Write] = [put(self._calls.name, item, _IS_NEW)]
        writes += [put(self._calls.name, each) for each in apart.values()]
        if write_all(self._calls.client, writes) is None:
            return LoadStatus.LOADED
        there = self.get_execution(execution.tenant_id, execution.call_id, execution.execution_id)
        return LoadStatus.PRESENT if there == execution else LoadStatus.CONFLICT

    # -- reading events --------------------------------------------------------------------------------------

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        """A tenant after the other: their calls' namespaces tell which there are."""
        tenant_id, after = ("", "") if cursor is None else read_cursor(cursor, str, str)
        if not after:
            name = next_internal_name(self._timers, after=CALLS_PREFIX + tenant_id)
            if name is None or not name.startswith(CALLS_PREFIX):
                return EventPage([])
            tenant_id = name.removeprefix(CALLS_PREFIX)
        parameters: dict[str, Any] = {"ExclusiveStartKey": keys.key(tenant_id, after)} if after else {}
        page = self._calls.query(
            "tenant_id = :tenant AND begins_with(sort_key, :prefix)",
            {":tenant": text(tenant_id), ":prefix": text(keys.EVENT)},
            ConsistentRead=True,
            Limit=limit,
            **parameters,
        )
        next_cursor = write_cursor(tenant_id, "" if page.last_key is None else page.last_key["sort_key"]["S"])
        events: list[OutboxEvent] = []
        unreadable: list[UnreadableEvent] = []
        for item in page.items:
            try:
                events += _stored_events(item)
            except Unreadable as error:
                reason = f"the stored event cannot be read: {error}"
                sort_key = item["sort_key"]["S"]
                place = keys.call_id_of_event(sort_key), keys.sequence_of(sort_key)
                unreadable.append(UnreadableEvent(tenant_id, *place, reason))
        return EventPage(events, next_cursor, tuple(unreadable))

    # -- loading events --------------------------------------------------------------------------------------

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:
        of_calls = [list(group) for _, group in groupby(events, key=_call_of)]
        loaded = self._workers.map(lambda of_call: self._load_events_of_call(of_call, now), of_calls)
        return [status for statuses in loaded for status in statuses]

    def _load_events_of_call(self, events: Sequence[OutboxEvent], now: datetime) -> list[LoadStatus]:
        """Each becomes an item of its own, unless an item has it already, alone or with others."""
        ref = _call_of(events[0])
        there = self._events_from(ref, events[0].event.sequence, events[-1].event.sequence)
        is_kept = ref in self._starred([ref])
        statuses = []
        for stored in events:
            found = there.get(stored.event.sequence)
            if found is None:
                item = self._event_item(stored, now, is_kept=is_kept)
                written = self._calls.put(item, ConditionExpression=_IS_NEW)
                # The very item in the way is this write's: the driver repeated it, since its answer was lost.
                is_loaded = written.is_applied or written.item == item
                statuses.append(LoadStatus.LOADED if is_loaded else LoadStatus.CONFLICT)
            else:
                is_same = found == (stored.event, stored.published_at)
                statuses.append(LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT)
        return statuses

    def _events_from(self, ref: CallRef, first: int, last: int) -> dict[int, tuple[CallEvent, datetime | None]]:
        """By sequence, those from ``first`` to ``last`` that are stored. Unreadable ones are left out."""
        found: dict[int, tuple[CallEvent, datetime | None]] = {}
        # An item stands under its last sequence, so the one that has ``last`` may stand behind it.
        for item in self._event_items(ref, after=first - 1, limit=last - first + 1):
            try:
                for stored in _stored_events(item):
                    found[stored.event.sequence] = stored.event, stored.published_at
            except Unreadable:
                continue
        return found

    def _event_item(self, stored: OutboxEvent, now: datetime, *, is_kept: bool) -> Item:
        item = encode_events([stored.event])
        if stored.published_at is not None:
            del item["outbox_partition"], item["outbox_key"]
            item["published_at"] = text(format_instant(stored.published_at))
            if not is_kept:
                item["expires_at"] = time_to_live(now + self._event_retention)
        return item


def _call_of(stored: OutboxEvent) -> CallRef:
    return CallRef(stored.event.tenant_id, stored.event.aggregate_id)


def _stored_events(item: Item) -> list[OutboxEvent]:
    """Raises ``Unreadable``."""
    events = decode_events(item)
    position = write_cursor(events[0].sequence, events[-1].sequence)
    times = published_times(item)
    if "published_at" in item:
        published_at = read_instant(item["published_at"]["S"])
        times = {event.sequence: times.get(event.sequence, published_at) for event in events}
    return [OutboxEvent(event, position, times.get(event.sequence)) for event in events]
