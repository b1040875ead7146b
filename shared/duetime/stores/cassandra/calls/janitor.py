"""Entries that lead nowhere: of changes that were never made, or were made and cut short before cleaning up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.port.calls import CallRef

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

    def clear(self, entries: Sequence[tuple[Entry, Stored]]) -> None:
        """Remove those that are certainly wrong. With each its call as it was read, which it does not fit."""
        certain = [entry for entry, stored in entries if is_decided(entry, stored)]
        open_ones = [entry for entry, stored in entries if not is_decided(entry, stored)]
        certain += [entry for entry, settled in self.settle(open_ones) if not fits(entry, settled)]
        self._index.remove(certain)

    def settle(self, entries: Iterable[Entry]) -> list[tuple[Entry, Stored]]:
        """Those whose change has been made, or cannot be made any more, with their call as it is then: of old ones,
        and no more than a reader may spend requests on."""
        old = [entry for entry in entries if self._attempts.age_seconds(entry.attempt) >= GRACE_SECONDS]
        return [
            (entry, self._partitions.bar(CallRef(entry.tenant_id, entry.call_id), entry.attempt))
            for entry in old[:_MOST_PER_READ]
        ]


def is_decided(entry: Entry, stored: Stored) -> bool:
    """Whether the call has the revision that the entry was written for: its change was made, or another."""
    return stored.revision is not None and stored.revision >= entry.revision


def fits(entry: Entry, stored: Stored) -> bool:
    """Whether the call says that the entry is right."""
    return stored.revision is not None and entry.revision <= stored.revision and entry.place in stored.places
