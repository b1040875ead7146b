"""Single timers: found by their keys, and changed only if they are still as they were read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from duetime.domain.errors import StoreUnavailable
from duetime.stores.mongodb.batches import Batches, Delete, Insert, Replace, Write
from duetime.stores.mongodb.database import TIMERS, Database
from duetime.stores.mongodb.reading import read
from duetime.stores.mongodb.schema import BY_ID
from duetime.stores.mongodb.timer_documents import timer_key
from duetime.stores.mongodb.url import Document
from duetime.stores.rounds import rounds

R = TypeVar("R")

Key = tuple[int, str, str]
"""Shard id, namespace, timer id."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[R]):
    """What becomes of a timer: the ``result`` holds once ``write``, if there is one, was written."""

    result: R
    write: Write | None = None


class Timers:
    """Point access through ``timer_lookup``."""

    def __init__(self, database: Database) -> None:
        self._collection = database[TIMERS]
        self._batches = Batches(database)

    def find(self, key: Key) -> Document | None:
        return self._collection.find_one(timer_key(*key))

    def find_many(self, keys: Sequence[Key]) -> dict[Key, Document]:
        """Those that there are."""
        if len(keys) == 1:
            document = self.find(keys[0])
            return {} if document is None else {keys[0]: document}
        ids_of: dict[tuple[int, str], list[str]] = defaultdict(list)
        for shard_id, namespace, timer_id in keys:
            ids_of[shard_id, namespace].append(timer_id)
        branches = [
            {**timer_key(shard_id, namespace, ""), "timer_id": {"$in": timer_ids}}
            for (shard_id, namespace), timer_ids in ids_of.items()
        ]
        found = read(self._collection, branches[0] if len(branches) == 1 else {"$or": branches}, limit=len(keys))
        return {(each["shard_id"], each["timer_namespace"], each["timer_id"]): each for each in found}

    def decide(self, keys: Sequence[Key], judge: Callable[[int, Document | None], Decision[R]]) -> list[R]:
        """The result of each key: what ``judge`` makes of its place in ``keys`` and its document.

        Whoever is overtaken by another writer judges again what that one left.
        """
        results: dict[int, R] = {}
        waiting = list(range(len(keys)))
        if not waiting:
            return []
        for _ in rounds():
            stored = self.find_many([keys[place] for place in waiting])
            decisions = {place: judge(place, stored.get(keys[place])) for place in waiting}
            results |= {place: each.result for place, each in decisions.items() if each.write is None}
            attempted = [(place, each) for place, each in decisions.items() if each.write is not None]
            written = self._batches.run([each.write for _, each in attempted if each.write is not None])
            waiting = []
            for (place, decision), is_written in zip(attempted, written, strict=True):
                if is_written:
                    results[place] = decision.result
                else:
                    waiting.append(place)
            if not waiting:
                return [results[place] for place in range(len(keys))]
        raise StoreUnavailable("other writers changed the timer again and again")


def insertion(document: Document) -> Insert:
    return Insert(TIMERS, document)


def replacement(stored: Document, document: Document) -> Replace:
    """``document`` in the place of ``stored``, if that is still as it was read."""
    return Replace(collection=TIMERS, found_by=as_read(stored), document=document, hint=BY_ID)


def removal(stored: Document) -> Delete:
    return Delete(collection=TIMERS, found_by=as_read(stored), hint=BY_ID)


def as_read(stored: Document) -> Document:
    """Finds the document only in its revision. By the shard a cluster knows where to look (not run against one)."""
    revision = stored.get("timer_revision")
    return {"_id": stored["_id"], "shard_id": stored["shard_id"], "timer_revision": revision}
