"""What pollers read: the due timers of a shard. And the documents among them that cannot be read, taken aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from bson import ObjectId

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.decoding import repaired
from duetime.stores.mongodb.batches import Batches, Update
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import BoundedPage, read_bounded
from duetime.stores.mongodb.schema import BY_ID, DUE, IN_DUE_ORDER
from duetime.stores.mongodb.timer_documents import RowType, UnreadableError, decode, encode_failure
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import lenient, set_or_unset, text, whole
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port import DuePage, UnreadableRow

_AT, _UUID = "timer_execute_at", "timer_uuid"
_KEY_ONLY = {_AT: 1, "_id": 0}


class Due:
    """Due timers are a range of ``timer_due``: (shard, TIMER, ``timer_execute_at``, uuid), in its own order."""

    def __init__(self, database: Database) -> None:
        self._collection = database[TIMERS]
        self._batches = Batches(database)

    @translated
    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
    ) -> DuePage:
        if cursor is None:
            # The usual poll finds nothing due: it costs one step into the index.
            begin = MIN_INSTANT if since is None else since
            first = self._first(shard_id, {"$gte": begin})
            if first is None or first > until:
                return DuePage([], next_attempt_at=_earlier(first, known_next))
            page = self._read(shard_id, {_AT: {"$gte": begin, "$lte": until}}, limit)
            documents = page.documents
        else:
            at, uuid = _read_cursor(cursor)
            page = self._read(shard_id, {_AT: at, _UUID: {"$gt": uuid}}, limit)
            documents = page.documents
            if not page.is_cut:
                rest, later = limit - len(documents), {_AT: {"$gt": at, "$lte": until}}
                page = self._read(shard_id, later, rest, budget=PAGE_BYTES - page.size)
                documents = documents + page.documents
        if page.is_cut:
            return _page(documents, cursor=_write_cursor(documents[-1]))
        return _page(documents, next_attempt_at=_earlier(self._first(shard_id, {"$gt": until}), known_next))

    def _read(self, shard_id: int, condition: Document, limit: int, *, budget: int = PAGE_BYTES) -> BoundedPage:
        wanted = {**_waiting(shard_id), **condition}
        return read_bounded(self._collection, wanted, order=IN_DUE_ORDER, limit=limit, hint=DUE, budget=budget)

    def _first(self, shard_id: int, position: Document) -> datetime | None:
        """The earliest key of the shard there: an instant, whatever else damage may have put into the index."""
        condition = {_AT: {**position, "$lte": MAX_INSTANT}}
        found = self._collection.find_one({**_waiting(shard_id), **condition}, _KEY_ONLY, sort=IN_DUE_ORDER, hint=DUE)
        return None if found is None else found[_AT]

    @translated
    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        updates = []
        for row in rows:
            document_id, revision, next_revision = json.loads(row.key)
            values = {
                "timer_state": TimerState.FAILED.value,
                "timer_revision": next_revision,
                "timer_updated_at": now,
                "timer_failure": encode_failure(Failure(FailureReason.UNREADABLE, row.reason, now)),
                "timer_expires_at": expires_at,
                _AT: None,
            }
            found_by = {"_id": ObjectId(document_id), "shard_id": row.shard_id, "timer_revision": revision}
            updates.append(Update(collection=TIMERS, found_by=found_by, change=set_or_unset(values), hint=BY_ID))
        self._batches.run(updates)


def _waiting(shard_id: int) -> Document:
    return {"shard_id": shard_id, "row_type": RowType.TIMER.value}


def _earlier(found: datetime | None, known: datetime | None) -> datetime | None:
    given = [instant for instant in (found, known) if instant is not None]
    return min(given, default=None)


def _page(
    documents: list[Document], *, cursor: str | None = None, next_attempt_at: datetime | None = None
) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for document in documents:
        try:
            found.append(decode(document))
        except UnreadableError as error:
            unreadable.append(_unreadable_row(document, str(error)))
    return DuePage(found, cursor, next_attempt_at, tuple(unreadable))


def _unreadable_row(document: Document, reason: str) -> UnreadableRow:
    revision = lenient(whole, document, "timer_revision", None)
    return UnreadableRow(
        document["shard_id"],
        json.dumps([str(document["_id"]), revision, (revision or 0) + 1]),
        reason,
        repaired(lenient(text, document, "timer_namespace", None)),
        repaired(lenient(text, document, "timer_id", None)),
    )


def _write_cursor(document: Document) -> str:
    at: datetime = document[_AT]
    uuid = document.get(_UUID)
    # Where damage has taken the uuid away, the page goes on with those that have one.
    return f"{to_milliseconds(at)}:{(uuid if isinstance(uuid, UUID) else UUID(int=0)).hex}"


def _read_cursor(cursor: str) -> tuple[datetime, UUID]:
    milliseconds, _, uuid = cursor.partition(":")
    try:
        return from_milliseconds(int(milliseconds)), UUID(uuid)
    except (ValueError, OverflowError):
        raise InvalidCursor("cursor", "the cursor does not belong to these timers") from None
