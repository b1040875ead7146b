"""Executions and events: those that come from another store, and all events for one that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from duetime.domain.executions import Execution
from duetime.domain.times import to_milliseconds
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.cassandra.calls import codec, places
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.documents import (
    decode_event,
    decode_or_salvage_execution,
    event_position,
    execution_position,
    unreadable_event,
)
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.partition import Partitions
from duetime.stores.cassandra.calls.tables import EVENT, EXECUTION
from duetime.stores.cassandra.requests import Requests, Statement
from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import EventPage, LoadStatus, UnreadableEvent
from duetime.stores.side_by_side import Workers

_ALL_EVENTS: Final = ("all events",)
_FIRST_TOKEN: Final = str(-(2**63))
_KEY: Final = "tenant_id = ? AND call_id = ?"
_CALLS: Final = (
    "SELECT DISTINCT tenant_id, call_id, token(tenant_id, call_id) AS place FROM service_calls "
    "WHERE token(tenant_id, call_id) >= ? LIMIT ?"
)
_READ_EXECUTION: Final = (
    f"SELECT position, content FROM service_calls WHERE {_KEY} AND kind = '{EXECUTION}' AND position = ?"
)
_WRITE_EXECUTION: Final = (
    f"UPDATE service_calls SET content = ? WHERE {_KEY} AND kind = '{EXECUTION}' AND position = ? IF content = ?"
)
_READ_EVENT: Final = (
    "SELECT position, content, event_id, published_ms, of_revision FROM service_calls "
    f"WHERE {_KEY} AND kind = '{EVENT}' AND position = ?"
)
_PUBLISHED: Final = "published_ms = ?, "
_WRITE_EVENT: Final = (
    f"UPDATE service_calls SET {_PUBLISHED}content = ?, event_id = ?, of_revision = ? "
    f"WHERE {_KEY} AND kind = '{EVENT}' AND position = ? IF content = ?"
)


class Loading:
    _requests: Requests
    _partitions: Partitions
    _index: Index
    _attempts: Attempts
    _workers: Workers

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        return self._workers.map(self._load_execution, executions)

    def _load_execution(self, execution: Execution) -> LoadStatus:
        position = execution_position(execution.number, execution.execution_id)
        key = (execution.tenant_id, execution.call_id, position)
        found = self._requests.read(Statement(_READ_EXECUTION, key), is_serial=True)
        if found:
            there = decode_or_salvage_execution(execution.tenant_id, execution.call_id, found[0])
            return LoadStatus.PRESENT if there == execution else LoadStatus.CONFLICT
        is_new = self._requests.decide([Statement(_WRITE_EXECUTION, (codec.encode(execution), *key, None))])
        return LoadStatus.LOADED if is_new else self._load_execution(execution)

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        token, position = _FIRST_TOKEN, ""
        if cursor is not None:
            token, position = read_cursor(cursor, _ALL_EVENTS, parts=2)
        events: list[OutboxEvent] = []
        unreadable: list[UnreadableEvent] = []
        calls = self._requests.read(Statement(_CALLS, (int(token), limit + 1)))
        for at, call in enumerate(calls):
            if at == limit:
                return EventPage(events, write_cursor([str(call["place"]), ""], _ALL_EVENTS), tuple(unreadable))
            ref = CallRef(call["tenant_id"], call["call_id"])
            is_first = str(call["place"]) == token
            for row in self._partitions.events(ref, after=int(position or 0) if is_first else 0):
                if len(events) + len(unreadable) == limit:
                    mark = [str(call["place"]), position]
                    return EventPage(events, write_cursor(mark, _ALL_EVENTS), tuple(unreadable))
                position = row["position"]
                try:
                    events.append(decode_event(row))
                except UnreadableEventError as error:
                    unreadable.append(unreadable_event(ref.tenant_id, ref.call_id, row, error))
            position = ""
        return EventPage(events, None, tuple(unreadable))

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:
        del now  # published events are kept by when they were published
        return [self._load_event(stored) for stored in events]

    def _load_event(self, stored: OutboxEvent) -> LoadStatus:
        event = stored.event
        ref = CallRef(event.tenant_id, event.aggregate_id)
        key = (*(ref.tenant_id, ref.call_id), event_position(event.sequence))
        found = self._requests.read(Statement(_READ_EVENT, key), is_serial=True)
        if found:
            try:
                there = decode_event(found[0])
            except UnreadableEventError:
                return LoadStatus.CONFLICT
            is_same = (there.event, there.published_at) == (event, stored.published_at)
            return LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT
        # Its call was loaded before, in one change: that change's revision stands for all of its events.
        revision = self._partitions.read_state(ref).revision or 0
        if stored.published_at is None:
            place = places.outbox_place(ref.tenant_id)
        else:
            place = places.published_place(ref.tenant_id, ref.call_id, stored.published_at)
        self._index.put([Entry(place, ref.tenant_id, ref.call_id, revision, self._attempts.next())])
        values: tuple[object, ...] = (codec.encode(event), event.event_id, revision, *key, None)
        if stored.published_at is None:
            # A null would be a deletion, by the clock of a node, which could hide the mark that a client sets.
            write = Statement(_WRITE_EVENT.replace(_PUBLISHED, ""), values)
        else:
            write = Statement(_WRITE_EVENT, (to_milliseconds(stored.published_at), *values))
        is_new = self._requests.decide([write])
        return LoadStatus.LOADED if is_new else self._load_event(stored)
