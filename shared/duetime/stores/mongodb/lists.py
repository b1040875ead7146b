"""Lists of a namespace's timers, and the search by correlation id."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from duetime.domain.errors import InvalidCursor
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import BoundedPage, payload_size, read, read_bounded
from duetime.stores.mongodb.schema import CORRELATION, IN_LOOKUP_ORDER, LOOKUP
from duetime.stores.mongodb.timer_documents import RowType, decode_or_salvage, readable_reason
from duetime.stores.mongodb.timers import Timers
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import instant, lenient, texts
from duetime.stores.page_budget import PAGE_BYTES
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter

SCANNED_PER_PAGE = 1000
"""How many timers one page of a filtered list looks at."""
_READ_TOGETHER = 32
"""Of those that fit, how many are read at once: 8 MiB where each has the largest payload."""

Position = tuple[int, str]
"""Shard id and timer id."""

_SCANNED = dict.fromkeys(
    (
        "shard_id",
        "timer_id",
        "timer_state",
        "timer_due_at",
        "timer_tags",
        "timer_updated_at",
        "timer_failure",
    ),
    1,
)


class Lists:
    """A list walks ``timer_lookup`` in its order: first the rest of the cursor's shard, then the shards after it.

    A filtered list looks at a bounded number of timers, without their payloads, and then reads those that match.
    """

    def __init__(self, database: Database) -> None:
        self._collection = database[TIMERS]
        self._timers = Timers(database)

    @translated
    def list_timers(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        after = None if cursor is None else _read_cursor(cursor)
        if timer_filter == TimerFilter():
            page = self._walk(namespace, after, limit)
            last = _position(page.documents[-1]) if page.is_cut else None
            return Page(_present(page.documents, now), None if last is None else _write_cursor(last))
        scanned = self._scanned(namespace, after)
        positions, last = _selected(scanned, timer_filter, limit)
        documents, cut = self._found(namespace, positions)
        last = cut or last
        return Page(_present(documents, now), None if last is None else _write_cursor(last))

    def _found(self, namespace: Namespace, positions: list[Position]) -> tuple[list[Document], Position | None]:
        """The timers at these positions, and the one to go on from where not all of them fit."""
        documents: list[Document] = []
        size = 0
        for start in range(0, len(positions), _READ_TOGETHER):
            together = positions[start : start + _READ_TOGETHER]
            keys = [(shard_id, namespace.name, timer_id) for shard_id, timer_id in together]
            stored = self._timers.find_many(keys)
            for at, key in enumerate(keys, start):
                if (document := stored.get(key)) is None:
                    continue
                size += payload_size(document)
                if size > PAGE_BYTES and documents:
                    return documents, positions[at - 1]
                documents.append(document)
        return documents, None

    def _walk(self, namespace: Namespace, after: Position | None, limit: int) -> BoundedPage:
        page = BoundedPage()
        for condition in _parts(namespace, after):
            wanted = {**_of(namespace), **condition}
            rest, budget = limit - len(page.documents), PAGE_BYTES - page.size
            more = read_bounded(
                self._collection, wanted, order=IN_LOOKUP_ORDER, limit=rest, hint=LOOKUP, budget=budget
            )
            page = BoundedPage(page.documents + more.documents, page.size + more.size, more.is_cut)
            if page.is_cut:
                break
        return page

    def _scanned(self, namespace: Namespace, after: Position | None) -> list[Document]:
        """What one page of a filtered list looks at."""
        documents: list[Document] = []
        for condition in _parts(namespace, after):
            wanted = {**_of(namespace), **condition}
            rest = SCANNED_PER_PAGE - len(documents)
            documents += read(self._collection, wanted, _SCANNED, order=IN_LOOKUP_ORDER, limit=rest, hint=LOOKUP)
        return documents

    @translated
    def find_by_correlation(
        self,
        namespace: Namespace,
        correlation_id: str,
        *,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        wanted = {
            "timer_namespace": namespace.name,
            "timer_correlation_id": correlation_id,
            "timer_id": {"$gt": cursor or ""},
        }
        page = read_bounded(self._collection, wanted, order=[("timer_id", 1)], limit=limit, hint=CORRELATION)
        return Page(_present(page.documents, now), page.documents[-1]["timer_id"] if page.is_cut else None)


def _of(namespace: Namespace) -> Document:
    return {"row_type": RowType.TIMER.value, "timer_namespace": namespace.name}


def _parts(namespace: Namespace, after: Position | None) -> Iterator[Document]:
    """The rest of the position's shard, then the shards behind it."""
    shards = namespace.shard_ids()
    first = shards.start
    if after is not None:
        shard_id, timer_id = after
        first = shard_id + 1
        yield {"shard_id": shard_id, "timer_id": {"$gt": timer_id}}
    if first < shards.stop:
        yield {"shard_id": {"$gte": first, "$lt": shards.stop}}


def _present(documents: list[Document], now: datetime) -> list[Timer]:
    decoded = [decode_or_salvage(document) for document in documents]
    return [timer for timer in decoded if not timer.is_expired(now)]


def _position(document: Document) -> Position:
    return document["shard_id"], document["timer_id"]


def _selected(
    documents: list[Document], timer_filter: TimerFilter, limit: int
) -> tuple[list[Position], Position | None]:
    """The positions of up to ``limit`` that match, and the position after which to look on (None: at the end)."""
    found: list[Position] = []
    for document in documents:
        if _matches(document, timer_filter):
            found.append(_position(document))
            if len(found) == limit:
                return found, found[-1]
    return found, _position(documents[-1]) if len(documents) == SCANNED_PER_PAGE else None


def _matches(document: Document, timer_filter: TimerFilter) -> bool:
    """Whether a document of ``_SCANNED`` passes the filter."""
    state, tag, reason = timer_filter.state, timer_filter.tag, timer_filter.failure_reason
    return (
        (state is None or document.get("timer_state") == state.value)
        and (tag is None or tag in lenient(texts, document, "timer_tags", ()))
        and (reason is None or readable_reason(document) is reason)
        and _is_within(document, "timer_due_at", timer_filter.due_from, timer_filter.due_to)
        and _is_within(document, "timer_updated_at", timer_filter.updated_from, timer_filter.updated_to)
    )


def _is_within(document: Document, name: str, start: datetime | None, end: datetime | None) -> bool:
    if start is None and end is None:
        return True
    at: datetime | None = lenient(instant, document, name, None)
    return at is not None and (start is None or at >= start) and (end is None or at < end)


def _write_cursor(position: Position) -> str:
    return f"{position[0]}:{position[1]}"


def _read_cursor(cursor: str) -> Position:
    shard_id, separator, timer_id = cursor.partition(":")
    if not separator or not shard_id.isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return int(shard_id), timer_id
