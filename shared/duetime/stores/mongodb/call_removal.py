"""Calls go with their timers and executions, in one transaction; their events stay."""

from __future__ import annotations

from duetime.domain.service_calls import calls_namespace
from duetime.stores.mongodb.call_documents import call_key
from duetime.stores.mongodb.database import EXECUTIONS, SERVICE_CALLS, TIMERS, Database, Session
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.timer_documents import timer_key
from duetime.stores.mongodb.url import Document

_KEY_FIELDS = {"tenant_id": 1, "service_call_id": 1, "shard_id": 1}


class CallRemoval:
    def __init__(self, database: Database) -> None:
        self._calls = database[SERVICE_CALLS]
        self._timers = database[TIMERS]
        self._executions = database[EXECUTIONS]

    def remove(self, condition: Document, session: Session, *, limit: int) -> int:
        """Remove up to ``limit`` calls that ``condition`` finds in the transaction; how many there were."""
        found = read(self._calls, condition, _KEY_FIELDS, limit=limit, session=session)
        if not found:
            return 0
        keys = [call_key(call["tenant_id"], call["service_call_id"]) for call in found]
        timers = [
            timer_key(call["shard_id"], calls_namespace(call["tenant_id"]), call["service_call_id"]) for call in found
        ]
        self._calls.delete_many(_any_of(keys), session=session)
        self._timers.delete_many(_any_of(timers), session=session)
        self._executions.delete_many(_any_of(keys), session=session)
        return len(found)


def _any_of(conditions: list[Document]) -> Document:
    return conditions[0] if len(conditions) == 1 else {"$or": conditions}
