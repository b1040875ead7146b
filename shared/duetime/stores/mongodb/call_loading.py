"""Executions and events: those that come from another store, and all events for one that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.executions import Execution
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.decoding import repaired
from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.mongodb.batches import Batches, Insert
from duetime.stores.mongodb.database import EXECUTIONS, OUTBOX, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.event_documents import decode_event, encode_event
from duetime.stores.mongodb.execution_documents import (
    decode_or_salvage_execution,
    encode_execution,
    execution_key,
)
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import EVENT_SEQUENCE
from duetime.stores.mongodb.url import Document
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import EventPage, LoadStatus, UnreadableEvent

_ALL_EVENTS = ("all events",)
_IN_ORDER = [("tenant_id", 1), ("aggregate_id", 1), ("event_sequence", 1)]


class CallLoading:
    def __init__(self, database: Database) -> None:
        self._executions = database[EXECUTIONS]
        self._events = database[OUTBOX]
        self._batches = Batches(database)

    @translated
    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        written = self._batches.run([Insert(EXECUTIONS, encode_execution(each)) for each in executions])
        return [
            LoadStatus.LOADED if is_new else self._status_of_execution(execution)
            for execution, is_new in zip(executions, written, strict=True)
        ]

    def _status_of_execution(self, execution: Execution) -> LoadStatus:
        key = execution_key(execution.tenant_id, execution.call_id, execution.execution_id)
        document = self._executions.find_one(key)
        # None: its number is that of another one.
        is_same = document is not None and decode_or_salvage_execution(document) == execution
        return LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT

    @translated
    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        found: list[Document] = []
        for condition in _conditions_after(cursor):
            more = limit + 1 - len(found)
            found += read(self._events, condition, order=_IN_ORDER, limit=more, hint=EVENT_SEQUENCE)
        events: list[OutboxEvent] = []
        unreadable: list[UnreadableEvent] = []
        for document in found[:limit]:
            try:
                events.append(decode_event(document))
            except UnreadableEventError as error:
                unreadable.append(UnreadableEvent(*repaired(_place(document)), str(error)))
        next_cursor = None
        if len(found) > limit:
            tenant_id, call_id, sequence = _place(found[limit - 1])
            next_cursor = write_cursor([tenant_id, call_id, str(sequence)], _ALL_EVENTS)
        return EventPage(events, next_cursor, tuple(unreadable))

    @translated
    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:
        documents = [encode_event(each.event, now=now, published_at=each.published_at) for each in events]
        written = self._batches.run([Insert(OUTBOX, document) for document in documents])
        return [
            LoadStatus.LOADED if is_new else self._status_of_event(stored)
            for stored, is_new in zip(events, written, strict=True)
        ]

    def _status_of_event(self, stored: OutboxEvent) -> LoadStatus:
        event = stored.event
        key = {"tenant_id": event.tenant_id, "aggregate_id": event.aggregate_id, "event_sequence": event.sequence}
        document = self._events.find_one(key)
        try:
            there = None if document is None else decode_event(document)
        except UnreadableEventError:
            there = None
        is_same = there is not None and (there.event, there.published_at) == (event, stored.published_at)
        return LoadStatus.PRESENT if is_same else LoadStatus.CONFLICT


def _place(document: Document) -> tuple[str, str, int]:
    """What the unique index has of an event, which is there whatever else is wrong with it."""
    return document["tenant_id"], document["aggregate_id"], document["event_sequence"]


def _conditions_after(cursor: str | None) -> list[Document]:
    """Ranges of the index, one after the other: the rest of a call, of its tenant, and the tenants after it."""
    if cursor is None:
        return [{"tenant_id": {"$gt": ""}}]
    tenant_id, call_id, sequence = read_cursor(cursor, _ALL_EVENTS, parts=3)
    return [
        {"tenant_id": tenant_id, "aggregate_id": call_id, "event_sequence": {"$gt": int(sequence)}},
        {"tenant_id": tenant_id, "aggregate_id": {"$gt": call_id}},
        {"tenant_id": {"$gt": tenant_id}},
    ]
