"""Lists of a namespace's timers, and the search by correlation id."""

from __future__ import annotations

from datetime import datetime

from duetime.domain.errors import InvalidCursor
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import CORRELATION, IN_LOOKUP_ORDER, LOOKUP
from duetime.stores.mongodb.timer_documents import RowType, decode_or_salvage, readable_reason
from duetime.stores.mongodb.timers import Timers
from duetime.stores.mongodb.url import Document
from duetime.stores.mongodb.values import instant, lenient, texts
from duetime.stores.port import Page, TimerFilter

SCANNED_PER_PAGE = 1000
"""How many timers one page of a filtered list looks at."""

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
            documents = self._walk(namespace, after, limit + 1, None)
            items = _present(documents[:limit], now)
            return Page(items, _write_cursor(_position(documents[limit - 1])) if len(documents) > limit else None)
        scanned = self._walk(namespace, after, SCANNED_PER_PAGE, _SCANNED)
        positions, last = _selected(scanned, timer_filter, limit)
        keys = [(shard_id, namespace.name, timer_id) for shard_id, timer_id in positions]
        stored = self._timers.find_many(keys) if keys else {}
        items = _present([stored[key] for key in keys if key in stored], now)
        return Page(items, None if last is None else _write_cursor(last))

    def _walk(
        self, namespace: Namespace, after: Position | None, limit: int, fields: dict[str, int] | None
    ) -> list[Document]:
        shards = namespace.shard_ids()
        documents: list[Document] = []
        first = shards.start
        if after is not None:
            shard_id, timer_id = after
            first = shard_id + 1
            documents += self._read(namespace, {"shard_id": shard_id, "timer_id": {"$gt": timer_id}}, limit, fields)
        if len(documents) < limit and first < shards.stop:
            following = {"shard_id": {"$gte": first, "$lt": shards.stop}}
            documents += self._read(namespace, following, limit - len(documents), fields)
        return documents

    def _read(
        self, namespace: Namespace, condition: Document, limit: int, fields: dict[str, int] | None
    ) -> list[Document]:
        of_namespace = {"row_type": RowType.TIMER.value, "timer_namespace": namespace.name}
        wanted = {**of_namespace, **condition}
        return read(self._collection, wanted, fields, order=IN_LOOKUP_ORDER, limit=limit, hint=LOOKUP)

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
        documents = read(self._collection, wanted, order=[("timer_id", 1)], limit=limit + 1, hint=CORRELATION)
        return Page(
            _present(documents[:limit], now), documents[limit - 1]["timer_id"] if len(documents) > limit else None
        )


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
