"""Service calls, executions and events of one call, read by their keys."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable, InvalidCursor
from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.mongodb.call_documents import UnreadableCallError, call_key, decode_call
from duetime.stores.mongodb.database import EXECUTIONS, OUTBOX, SERVICE_CALLS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.event_documents import readable_events
from duetime.stores.mongodb.execution_documents import decode_or_salvage_execution, execution_key
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import CALL_IDEMPOTENCY, CALL_KEY
from duetime.stores.mongodb.url import Document
from duetime.stores.port.calls import CallRef
from duetime.stores.port.pages import Page


class CallReads:
    def __init__(self, database: Database) -> None:
        self._calls = database[SERVICE_CALLS]
        self._executions = database[EXECUTIONS]
        self._events = database[OUTBOX]

    @translated
    def get_calls(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        ids_of: dict[str, list[str]] = defaultdict(list)
        for ref in refs:
            ids_of[ref.tenant_id].append(ref.call_id)
        found: dict[CallRef, Document] = {}
        for tenant_id, call_ids in ids_of.items():
            wanted = call_key(tenant_id, call_ids[0]) if len(call_ids) == 1 else _any_id(tenant_id, call_ids)
            for document in read(self._calls, wanted, limit=len(call_ids), hint=CALL_KEY):
                found[CallRef(tenant_id, document["service_call_id"])] = document
        return [_readable(found.get(ref), now) for ref in refs]

    @translated
    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        wanted = {"tenant_id": tenant_id, "idempotency_key": key}
        return _readable(self._calls.find_one(wanted, hint=CALL_IDEMPOTENCY), now)

    @translated
    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        document = self._executions.find_one(execution_key(tenant_id, call_id, execution_id))
        return None if document is None else decode_or_salvage_execution(document)

    @translated
    def list_executions(self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int) -> Page[Execution]:
        query = (tenant_id, call_id, "executions")
        wanted: Document = call_key(tenant_id, call_id)
        if cursor is not None:
            wanted["execution_number"] = {"$lt": _read_number(cursor, query)}
        documents = read(self._executions, wanted, order=[("execution_number", -1)], limit=limit + 1)
        items = [decode_or_salvage_execution(document) for document in documents[:limit]]
        has_more = len(documents) > limit
        return Page(items, write_cursor([str(items[-1].number)], query) if has_more else None)

    @translated
    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        if self._calls.find_one(call_key(tenant_id, call_id), {"_id": 1}) is None:
            return []
        wanted = {"tenant_id": tenant_id, "aggregate_id": call_id, "event_sequence": {"$gt": after}}
        found = read(self._events, wanted, order=[("event_sequence", 1)], limit=limit)
        return [stored.event for stored in readable_events(found)]


def _any_id(tenant_id: str, call_ids: list[str]) -> Document:
    return {"tenant_id": tenant_id, "service_call_id": {"$in": call_ids}}


def _read_number(cursor: str, query: tuple[str, ...]) -> int:
    (number,) = read_cursor(cursor, query, parts=1)
    if not number.isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return int(number)


def _readable(document: Document | None, now: datetime) -> ServiceCall | None:
    """The call of a document; None when there is none or it has expired. Raises ``CallUnreadable``."""
    if document is None:
        return None
    try:
        call = decode_call(document)
    except UnreadableCallError as error:
        raise CallUnreadable(str(error)) from error
    return None if call.is_expired(now) else call
