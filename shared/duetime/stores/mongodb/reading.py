"""Reads of several documents, each of them one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from duetime.stores.mongodb.url import Document
from duetime.stores.page_budget import PAGE_BYTES

Order = Sequence[tuple[str, int]]


def read(
    collection: Collection[Document],
    condition: Mapping[str, Any],
    fields: Mapping[str, Any] | None = None,
    *,
    limit: int,
    order: Order | None = None,
    hint: str | None = None,
    session: ClientSession | None = None,
) -> list[Document]:
    """Up to ``limit`` documents, in one answer as far as that holds them (16 MB).

    Left to itself, a server answers with the first 101 and is asked for the rest.
    """
    if limit <= 0:  # which to the server is no limit
        return []
    found = collection.find(condition, fields, sort=order, limit=limit, batch_size=limit, hint=hint, session=session)
    return list(found)


@dataclass(slots=True)
class BoundedPage:
    """``size`` is that of the payloads. ``is_cut``: there is more."""

    documents: list[Document] = field(default_factory=list)
    size: int = 0
    is_cut: bool = False


def read_bounded(
    collection: Collection[Document],
    condition: Mapping[str, Any],
    *,
    limit: int,
    order: Order,
    hint: str,
    budget: int = PAGE_BYTES,
) -> BoundedPage:
    """Up to ``limit`` timers whose payloads are within ``budget``; a large one alone.

    What an answer has no room for (16 MB) is not asked for once the page is full.
    """
    page = BoundedPage()
    documents = page.documents
    more = limit + 1
    with collection.find(condition, sort=order, limit=more, batch_size=more, hint=hint) as found:
        for document in found:
            size = payload_size(document)
            if len(documents) == limit or (page.size + size > budget and documents):
                page.is_cut = True
                break
            documents.append(document)
            page.size += size
    return page


def payload_size(document: Document) -> int:
    payload = document.get("timer_payload")
    return len(payload) if isinstance(payload, str) else 0
