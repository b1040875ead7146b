"""Reads of several documents, each of them one request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pymongo.client_session import ClientSession
from pymongo.collection import Collection

from duetime.stores.mongodb.url import Document

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
