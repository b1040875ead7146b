"""The outbox: what is still to be published, what has been, and what may go."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from bson import ObjectId

from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.fair_reading import FairReading, oldest_first
from duetime.stores.mongodb.batches import Batches, Update
from duetime.stores.mongodb.call_removal import CallRemoval
from duetime.stores.mongodb.database import OUTBOX, SERVICE_CALLS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.event_documents import (
    UNPUBLISHED,
    decode_event,
    readable_events,
    report_document,
)
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import BY_ID, CALL_EXPIRY, CALL_STARRED, EVENT_PUBLISHED, EVENT_UNPUBLISHED
from duetime.stores.mongodb.url import Document
from duetime.stores.port.calls import CallRef, EventOf
from duetime.stores.port.outbox import OutboxEvent

_MAX_REPORTED = 1000
_EVENTS_PER_READ = 500
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
        self._fair = FairReading()
        self._reported: set[ObjectId] = set()

    @translated
    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        return oldest_first(self._fair.read(self, limit=limit, skip=skip))

    # -- stores.fair_reading.UnpublishedEvents ---------------------------------------------------------------

    def tenant_from(self, tenant_id: str) -> str | None:
        return self._tenant({"$gte": tenant_id})

    def tenant_after(self, tenant_id: str) -> str | None:
        return self._tenant({"$gt": tenant_id})

    def of_call(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[Document]:
        rest = {"aggregate_id": call_id, "event_sequence": {"$gt": after}}
        return self._find({"tenant_id": tenant_id, **rest}, limit)

    def of_next_calls(self, tenant_id: str, *, after: str, limit: int) -> list[Document]:
        return self._find({"tenant_id": tenant_id, "aggregate_id": {"$gt": after}}, limit)

    def place(self, row: Document) -> tuple[str, int]:
        return row["aggregate_id"], row["event_sequence"]

    def decoded(self, row: Document) -> OutboxEvent | None:
        try:
            return decode_event(row)
        except UnreadableEventError as error:
            if row["_id"] not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(row["_id"])
                report_document(row, error)
            return None

    def _tenant(self, position: Document) -> str | None:
        found = self._find({"tenant_id": position}, 1, {"tenant_id": 1})
        return found[0]["tenant_id"] if found else None

    def _find(self, condition: Document, limit: int, fields: Document | None = None) -> list[Document]:
        """Unpublished events in the order of their index."""
        wanted = {UNPUBLISHED: True, **condition}
        return read(self._events, wanted, fields, order=_IN_ORDER, limit=limit, hint=EVENT_UNPUBLISHED)

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
    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        event_ids = self._past_retention(events_published_before, limit)
        pruned = self._events.delete_many({"_id": {"$in": event_ids}}).deleted_count if event_ids else 0
        while pruned < limit:
            removed = self._remove_expired(now, min(limit - pruned, _CALLS_PER_TRANSACTION), event_of)
            pruned += removed
            if removed < _CALLS_PER_TRANSACTION:
                break
        return pruned

    def _past_retention(self, published_before: datetime, limit: int) -> list[ObjectId]:
        """The oldest events published before that time whose calls are not starred; at most ``limit``."""
        past: list[ObjectId] = []
        published = {"published_at": {"$lt": published_before}}
        fields = {"tenant_id": 1, "aggregate_id": 1}
        order = [("published_at", 1)]
        with self._events.find(
            published, fields, sort=order, batch_size=_EVENTS_PER_READ, hint=EVENT_PUBLISHED
        ) as events:
            while len(past) < limit and (some := list(islice(events, _EVENTS_PER_READ))):
                starred = self._starred({_call_of(event) for event in some})
                past += [event["_id"] for event in some if _call_of(event) not in starred]
        return past[:limit]

    def _starred(self, calls: set[tuple[str, str]]) -> set[tuple[str, str]]:
        """Those of ``calls``, (tenant id, call id), that are starred: by the index of these, which are few."""
        by_tenant: dict[str, list[str]] = {}
        for tenant_id, call_id in calls:
            by_tenant.setdefault(tenant_id, []).append(call_id)
        starred: set[tuple[str, str]] = set()
        for tenant_id, call_ids in by_tenant.items():
            wanted = {"tenant_id": tenant_id, "is_starred": True, "service_call_id": {"$in": call_ids}}
            found = read(self._calls, wanted, {"service_call_id": 1}, limit=len(call_ids), hint=CALL_STARRED)
            starred |= {(tenant_id, call["service_call_id"]) for call in found}
        return starred

    def _remove_expired(self, now: datetime, limit: int, event_of: EventOf | None) -> int:
        expired = {"expires_at": {"$lte": now}}
        if self._calls.find_one(expired, {"_id": 1}, hint=CALL_EXPIRY) is None:
            return 0
        return self._database.transact(
            lambda session: self._removal.remove(expired, session, limit=limit, event_of=event_of, now=now)
        )


def _call_of(event: Document) -> tuple[str, str]:
    return event["tenant_id"], event["aggregate_id"]
