"""The outbox: what is still to be published, what has been, and what may go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from bson import ObjectId

from duetime.stores.calls_port import CallRef, OutboxEvent
from duetime.stores.mongodb.batches import Batches, Update
from duetime.stores.mongodb.call_removal import CallRemoval
from duetime.stores.mongodb.database import OUTBOX, SERVICE_CALLS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.event_documents import (
    UNPUBLISHED,
    UnreadableEventError,
    decode_event,
    readable_events,
    report_unreadable,
)
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import BY_ID, CALL_EXPIRY, EVENT_PUBLISHED, EVENT_UNPUBLISHED
from duetime.stores.mongodb.url import Document

_BEFORE_ALL = ""
_CHUNK = 50
_MAX_REPORTED = 1000
_CALLS_PER_TRANSACTION = 50
_IN_ORDER = [("tenant_id", 1), ("aggregate_id", 1), ("event_sequence", 1)]


class Outbox:
    """Unpublished events are an index of their own, by tenant, call and sequence: what is skipped is stepped over.

    Looking for events takes at most a step for each one found, each tenant passed and each call skipped.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._events = database[OUTBOX]
        self._calls = database[SERVICE_CALLS]
        self._batches = Batches(database)
        self._removal = CallRemoval(database)
        self._first_tenant = _BEFORE_ALL
        self._reported: set[ObjectId] = set()

    @translated
    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        skipped: dict[str, set[str]] = defaultdict(set)
        for ref in skip:
            skipped[ref.tenant_id].add(ref.call_id)
        found: list[OutboxEvent] = []
        # Beyond this many tenants there are enough events, even if all skipped calls are of tenants of their own.
        tenants = self._waiting_tenants(limit + len(skipped))
        waiting = [_Reading(tenant, set(skipped[tenant])) for tenant in tenants]
        self._first_tenant = _BEFORE_ALL
        # Every tenant gets the same share; what one leaves is shared among the others.
        while waiting and len(found) < limit:
            share = -(-(limit - len(found)) // len(waiting))
            for reading in waiting:
                if len(found) == limit:
                    self._first_tenant = reading.tenant_id
                    break
                found += self._read_on(reading, min(share, limit - len(found)))
            waiting = [reading for reading in waiting if not reading.is_at_end]
        return _oldest_first(found)

    def _waiting_tenants(self, most: int) -> list[str]:
        """Tenants with unpublished events, beginning with the one that was left out last time."""
        first = self._first_tenant
        tenants = self._tenants_from(first, most)
        if first != _BEFORE_ALL and len(tenants) < most:
            others = self._tenants_from(_BEFORE_ALL, most - len(tenants))
            tenants += [tenant for tenant in others if tenant < first]
        return tenants

    def _tenants_from(self, first: str, most: int) -> list[str]:
        """``first``, if it is one, and those behind it: one step into the index for each."""
        tenants: list[str] = []
        position = {"$gte": first}
        while len(tenants) < most:
            found = self._find({"tenant_id": position}, 1, {"tenant_id": 1})
            if not found:
                break
            tenants.append(found[0]["tenant_id"])
            position = {"$gt": tenants[-1]}
        return tenants

    def _find(self, condition: Document, limit: int, fields: Document | None = None) -> list[Document]:
        """Unpublished events in the order of their index."""
        wanted = {UNPUBLISHED: True, **condition}
        return read(self._events, wanted, fields, order=_IN_ORDER, limit=limit, hint=EVENT_UNPUBLISHED)

    def _read_on(self, reading: _Reading, limit: int) -> list[OutboxEvent]:
        """Up to ``limit`` more events of a tenant; fewer when it has no more."""
        found: list[OutboxEvent] = []
        while len(found) < limit and not reading.is_at_end:
            chunk = max(limit - len(found), _CHUNK)
            documents = self._events_behind(reading, chunk)
            reading.is_at_end = len(documents) < chunk
            for document in documents:
                if len(found) == limit:
                    reading.is_at_end = False
                    break
                reading.call_id, reading.sequence = document["aggregate_id"], document["event_sequence"]
                if document["aggregate_id"] not in reading.skipped:
                    found += self._readable(document, reading)
        return found

    def _events_behind(self, reading: _Reading, limit: int) -> list[Document]:
        tenant = {"tenant_id": reading.tenant_id}
        documents: list[Document] = []
        if reading.sequence and reading.call_id not in reading.skipped:
            rest = {"aggregate_id": reading.call_id, "event_sequence": {"$gt": reading.sequence}}
            documents += self._find({**tenant, **rest}, limit)
        if len(documents) < limit:
            following = {"aggregate_id": {"$gt": reading.call_id}}
            documents += self._find({**tenant, **following}, limit - len(documents))
        return documents

    def _readable(self, document: Document, reading: _Reading) -> list[OutboxEvent]:
        """The event of a document. Behind one that cannot be read its call's later ones wait, nobody else's."""
        try:
            return [decode_event(document)]
        except UnreadableEventError as error:
            reading.skipped.add(document["aggregate_id"])
            if document["_id"] not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(document["_id"])
                report_unreadable(document, error)
            return []

    @translated
    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        return list(readable_events(self._find({"tenant_id": ref.tenant_id, "aggregate_id": ref.call_id}, limit)))

    @translated
    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        change = {"$set": {"published_at": now}, "$unset": {UNPUBLISHED: ""}}
        marks = [
            Update(
                collection=OUTBOX,
                found_by={
                    "_id": ObjectId(stored.position),
                    "tenant_id": stored.event.tenant_id,
                    "event_id": stored.event.event_id,
                    UNPUBLISHED: True,
                },
                change=change,
                hint=BY_ID,
            )
            for stored in events
        ]
        self._batches.run(marks)

    @translated
    def prune(self, *, now: datetime, events_published_before: datetime, limit: int) -> int:
        published = {"published_at": {"$lt": events_published_before}}
        found = read(
            self._events, published, {"_id": 1}, order=[("published_at", 1)], limit=limit, hint=EVENT_PUBLISHED
        )
        event_ids = [event["_id"] for event in found]
        pruned = self._events.delete_many({"_id": {"$in": event_ids}}).deleted_count if event_ids else 0
        while pruned < limit:
            removed = self._remove_expired(now, min(limit - pruned, _CALLS_PER_TRANSACTION))
            pruned += removed
            if removed < _CALLS_PER_TRANSACTION:
                break
        return pruned

    def _remove_expired(self, now: datetime, limit: int) -> int:
        expired = {"expires_at": {"$lte": now}}
        if self._calls.find_one(expired, {"_id": 1}, hint=CALL_EXPIRY) is None:
            return 0
        return self._database.transact(lambda session: self._removal.remove(expired, session, limit=limit))


@dataclass(slots=True)
class _Reading:
    """How far a tenant's events have been read: behind ``sequence`` of ``call_id``."""

    tenant_id: str
    skipped: set[str]
    call_id: str = _BEFORE_ALL
    sequence: int = 0
    is_at_end: bool = False


def _oldest_first(found: list[OutboxEvent]) -> list[OutboxEvent]:
    """By the time of the change that each event tells of, and of one call always by sequence, whoever wrote it and
    whatever that one's clock said."""
    latest: dict[tuple[str, str], datetime] = {}
    keys: dict[str, tuple[datetime, str, str, int]] = {}
    for stored in found:
        event = stored.event
        call = (event.tenant_id, event.aggregate_id)
        latest[call] = max(latest.get(call, event.occurred_at), event.occurred_at)
        keys[event.event_id] = (latest[call], *call, event.sequence)
    return sorted(found, key=lambda stored: keys[stored.event.event_id])
