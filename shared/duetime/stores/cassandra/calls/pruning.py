"""Removal of what has had its time: published events, and calls that have expired."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable
from duetime.domain.times import to_milliseconds
from duetime.stores.cassandra.calls import places
from duetime.stores.cassandra.calls.deleting import Deleting
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.janitor import Janitor, fits
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.cassandra.calls.tables import EVENT
from duetime.stores.cassandra.requests import Requests, Statement, Unsettled
from duetime.stores.port.calls import CallRef, EventOf

_CHUNK: Final = 50
_MOST_IN: Final = 100
_FORGET: Final = (
    f"DELETE FROM service_calls WHERE tenant_id = ? AND call_id = ? AND kind = '{EVENT}' AND position IN ?"
)


class Pruning(Deleting):
    _requests: Requests
    _partitions: Partitions
    _index: Index
    _janitor: Janitor

    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        pruned = 0
        for number in range(places.SLICES):
            pruned += self._prune_slice(
                number,
                places.instant_sort(now),
                lambda entry, _: self._remove_expired(entry, now, event_of),
                limit - pruned,
            )
        for number in range(places.SLICES, 2 * places.SLICES):
            pruned += self._prune_slice(
                number,
                places.sort_before(events_published_before),
                lambda entry, most: self._forget_events(entry, now, events_published_before, most),
                limit - pruned,
            )
        return pruned

    def _prune_slice(self, number: int, until: str, act: Callable[[Entry, int], int], limit: int) -> int:
        """``act`` on entries up to ``until`` until ``limit`` rows are gone: it is told how many it may remove, and
        says how many it has."""
        pruned = 0
        after: tuple[str, ...] = ()
        while pruned < limit:
            entries = self._index.read(places.REMOVALS, (number,), after=after, until=until, limit=_CHUNK)
            for entry in entries:
                if pruned >= limit:
                    return pruned
                pruned += act(entry, limit - pruned)
            if len(entries) < _CHUNK:
                break
            last = entries[-1]
            after = (last.place.sort, last.tenant_id, last.call_id)
        return pruned

    def _forget_events(self, entry: Entry, now: datetime, before: datetime, limit: int) -> int:
        ref = CallRef(entry.tenant_id, entry.call_id)
        before_ms = to_milliseconds(before)
        gone = [
            row["position"]
            for row in self._partitions.events(ref)
            if row["published_ms"] is not None and row["published_ms"] < before_ms
        ]
        if gone and self._partitions.read_state(ref).is_starred:
            self._postpone(entry, max(now, before))
            return 0
        some = gone[:limit]
        for at in range(0, len(some), _MOST_IN):
            chunk = some[at : at + _MOST_IN]
            self._requests.write([Statement(_FORGET, (ref.tenant_id, ref.call_id, chunk))])
        if len(some) == len(gone):
            self._index.remove([entry])
        return len(some)

    def _postpone(self, entry: Entry, until: datetime) -> None:
        """A starred call is looked at once per retention, not each time; so it is found when it has lost its star."""
        place = places.published_place(entry.tenant_id, entry.call_id, until)
        self._index.put([Entry(place, entry.tenant_id, entry.call_id, 0, self._attempts.next())])
        self._index.remove([entry])

    def _remove_expired(self, entry: Entry, now: datetime, event_of: EventOf | None) -> int:
        stored = self._partitions.read_state(CallRef(entry.tenant_id, entry.call_id))
        if not fits(entry, stored):
            self._janitor.clear([(entry, stored)])
            return 0
        if stored.is_there(now):
            return 0
        try:
            return 1 if self.remove(stored, _event(stored, event_of)) else 0
        except Unsettled:
            return 0


def _event(stored: Stored, event_of: EventOf | None) -> CallEvent | None:
    """Of a call that cannot be read there is none."""
    try:
        return None if event_of is None else event_of(stored.call())
    except CallUnreadable:
        return None
