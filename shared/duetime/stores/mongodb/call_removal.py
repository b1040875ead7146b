"""Calls go with their timers and executions, in one transaction; their events stay."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime

from duetime.domain.errors import CallUnreadable
from duetime.domain.service_calls import calls_namespace
from duetime.stores.mongodb.call_documents import WITHOUT_BODY, call_key, decode_call
from duetime.stores.mongodb.database import EXECUTIONS, OUTBOX, SERVICE_CALLS, TIMERS, Database, Session
from duetime.stores.mongodb.event_documents import encode_event
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.timer_documents import timer_key
from duetime.stores.mongodb.url import Document
from duetime.stores.port.calls import EventOf


class CallRemoval:
    def __init__(self, database: Database) -> None:
        self._calls = database[SERVICE_CALLS]
        self._timers = database[TIMERS]
        self._executions = database[EXECUTIONS]
        self._outbox = database[OUTBOX]

    def remove(
        self, condition: Document, session: Session, *, limit: int, event_of: EventOf | None = None, now: datetime
    ) -> int:
        """Remove up to ``limit`` calls that ``condition`` finds in the transaction, with an event of each that can be
        read; how many there were."""
        found = read(self._calls, condition, WITHOUT_BODY, limit=limit, session=session)
        if not found:
            return 0
        keys = [call_key(call["tenant_id"], call["service_call_id"]) for call in found]
        timers = [
            timer_key(call["shard_id"], calls_namespace(call["tenant_id"]), call["service_call_id"]) for call in found
        ]
        self._calls.delete_many(_any_of(keys), session=session)
        self._timers.delete_many(_any_of(timers), session=session)
        self._executions.delete_many(_any_of(keys), session=session)
        if event_of is not None:
            events = []
            for call in found:
                with suppress(CallUnreadable):
                    events.append(encode_event(event_of(decode_call(call)), now=now))
            if events:
                self._outbox.insert_many(events, session=session)
        return len(found)


def _any_of(conditions: list[Document]) -> Document:
    return conditions[0] if len(conditions) == 1 else {"$or": conditions}
