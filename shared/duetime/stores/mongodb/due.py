"""What pollers read: the due timers of a shard. And the documents among them that cannot be read, taken aside."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from bson import ObjectId

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MAX_INSTANT, MIN_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.decoding import repaired
from duetime.stores.glances import LOOKED_AT, Glance, first_that_fit
from duetime.stores.mongodb.batches import Batches, Update
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import BoundedPage, payload_size, read, read_bounded
from duetime.stores.mongodb.schema import BY_ID, DUE, IN_DUE_ORDER
from duetime.stores.mongodb.timer_documents import RowType, UnreadableError, decode, encode_failure
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import instant, lenient, set_or_unset, text, whole
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, DuePage, IsWanted, UnreadableRow

_AT, _UUID = "timer_execute_at", "timer_uuid"
_KEY_ONLY = {_AT: 1, "_id": 0}
_GLANCE = dict.fromkeys(("shard_id", _AT, _UUID, *LOOKED_AT), 1)
_READ_TOGETHER = 32
"""Of those that are wanted, how many are read at once: 8 MiB where each has the largest payload."""


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
        is_wanted: IsWanted | None = None,
    ) -> DuePage:
        if cursor is None:
            # The usual poll finds nothing due: it costs one step into the index.
            begin = MIN_INSTANT if since is None else since
            first = self._first(shard_id, {"$gte": begin})
            if first is None or first > until:
                return DuePage([], next_attempt_at=_earlier(first, known_next))
            parts: list[Document] = [{_AT: {"$gte": begin, "$lte": until}}]
        else:
            at, uuid = _read_cursor(cursor)
            parts = [{_AT: at, _UUID: {"$gt": uuid}}, {_AT: {"$gt": at, "$lte": until}}]
        if is_wanted is None:
            documents, end = self._all(shard_id, parts, limit)
        else:
            looked_at = self._looked_at(shard_id, parts, limit * LOOKED_AT_PER_TIMER)
            documents, end = self._chosen(looked_at, limit, lambda each: _glance(each).is_for_page(is_wanted, until))
        if end is not None:
            return _page(documents, end=end)
        return _page(documents, next_attempt_at=_earlier(self._first(shard_id, {"$gt": until}), known_next))

    def _all(self, shard_id: int, parts: list[Document], limit: int) -> tuple[list[Document], Document | None]:
        """What is due there, and the last of it where there is more."""
        page = BoundedPage()
        for part in parts:
            rest, budget = limit - len(page.documents), PAGE_BYTES - page.size
            more = self._read(shard_id, part, rest, budget=budget)
            page = BoundedPage(page.documents + more.documents, page.size + more.size, more.is_cut)
            if page.is_cut:
                return page.documents, page.documents[-1]
        return page.documents, None

    def _looked_at(self, shard_id: int, parts: list[Document], most: int) -> list[Document]:
        documents: list[Document] = []
        for part in parts:
            wanted, rest = {**_waiting(shard_id), **part}, most - len(documents)
            documents += read(self._collection, wanted, _GLANCE, order=IN_DUE_ORDER, limit=rest, hint=DUE)
        return documents

    def _chosen(
        self, looked_at: list[Document], limit: int, fits: Callable[[Document], bool]
    ) -> tuple[list[Document], Document | None]:
        """Those that fit, whole, and the one behind which there may be more."""
        chosen, is_more = first_that_fit(looked_at, fits, limit)
        documents: list[Document] = []
        size = 0
        for start in range(0, len(chosen), _READ_TOGETHER):
            together = chosen[start : start + _READ_TOGETHER]
            condition = {"_id": {"$in": [each["_id"] for each in together]}, "shard_id": together[0]["shard_id"]}
            whole = {each["_id"]: each for each in read(self._collection, condition, limit=len(together), hint=BY_ID)}
            for place, each in enumerate(together, start):
                # One that was changed between the two reads is due at another time, or not at all.
                if (document := whole.get(each["_id"])) is None or document.get(_AT) != each[_AT]:
                    continue
                size += payload_size(document)
                if size > PAGE_BYTES and documents:
                    return documents, chosen[place - 1]
                documents.append(document)
        if is_more:
            return documents, chosen[-1]
        return documents, looked_at[-1] if len(looked_at) == limit * LOOKED_AT_PER_TIMER else None

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


def _glance(document: Document) -> Glance:
    return Glance(
        namespace=lenient(text, document, "timer_namespace", None),
        callback_url=lenient(text, document, "timer_callback_url", None),
        state=lenient(text, document, "timer_state", None),
        execute_at=lenient(instant, document, "timer_due_at", None),
        rearmed_at=lenient(instant, document, "timer_rearmed_at", None),
        expire_after_ms=lenient(whole, document, "timer_expire_after_ms", None),
    )


def _earlier(found: datetime | None, known: datetime | None) -> datetime | None:
    given = [instant for instant in (found, known) if instant is not None]
    return min(given, default=None)


def _page(
    documents: list[Document], *, end: Document | None = None, next_attempt_at: datetime | None = None
) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for document in documents:
        try:
            found.append(decode(document))
        except UnreadableError as error:
            unreadable.append(_unreadable_row(document, str(error)))
    if end is None:
        return DuePage(found, None, next_attempt_at, tuple(unreadable))
    return DuePage(found, _write_cursor(end), None, tuple(unreadable), end[_AT])


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
