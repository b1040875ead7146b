"""Entries that lead nowhere: of changes that were never made, or were made and cut short before cleaning up."""

from __future__ import annotations

from collections.abc import Iterable

from duetime.stores.calls_port import CallRef
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.partition import Partitions, Stored

GRACE_SECONDS = 60.0
"""How long an entry whose change is not there yet is left alone. Only courtesy: removing one earlier makes the
change begin again."""
_MOST_PER_READ = 20
"""Requests that readers spend on cleaning up, so that reading stays bounded."""


class Janitor:
    def __init__(self, partitions: Partitions, index: Index, attempts: Attempts) -> None:
        self._partitions = partitions
        self._index = index
        self._attempts = attempts

    def clear(self, entries: Iterable[tuple[Entry, Stored]]) -> None:
        """Remove those that are certainly wrong. With each its call as it was read, which it does not fit."""
        certain: list[Entry] = []
        barring = _MOST_PER_READ
        for entry, stored in entries:
            if stored.revision is not None and stored.revision >= entry.revision:
                certain.append(entry)
                continue
            if barring == 0 or self._attempts.age_seconds(entry.attempt) < GRACE_SECONDS:
                continue
            barring -= 1
            settled = self._partitions.bar(CallRef(entry.tenant_id, entry.call_id), entry.attempt)
            if not fits(entry, settled):
                certain.append(entry)
        if certain:
            self._index.remove(certain)


def fits(entry: Entry, stored: Stored) -> bool:
    """Whether the call says that the entry is right."""
    return stored.revision is not None and entry.revision <= stored.revision and entry.place in stored.places
