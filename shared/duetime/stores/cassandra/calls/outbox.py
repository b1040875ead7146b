"""The outbox: entries lead to the calls that have unpublished events, which are read from their partitions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from duetime.domain.times import to_milliseconds
from duetime.stores.cassandra.calls import places
from duetime.stores.cassandra.calls.attempts import Attempts
from duetime.stores.cassandra.calls.documents import (
    decode_event,
    event_position,
    readable_events,
    sequence_of,
)
from duetime.stores.cassandra.calls.index import Entry, Index
from duetime.stores.cassandra.calls.janitor import Janitor, is_decided
from duetime.stores.cassandra.calls.partition import Partitions
from duetime.stores.cassandra.calls.tables import EVENT
from duetime.stores.cassandra.requests import Requests, Row, Statement
from duetime.stores.event_reading import UnreadableEventError, report_unreadable
from duetime.stores.fair_reading import FairReading, oldest_first
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

_CHUNK: Final = 50
_CALLS_AT_ONCE: Final = 16
_MAX_REPORTED: Final = 1000
_SLICE_CHARACTERS: Final = 2
_MARK: Final = (
    "UPDATE service_calls SET published_ms = ? "
    f"WHERE tenant_id = ? AND call_id = ? AND kind = '{EVENT}' AND position IN ?"
)
_MOST_IN: Final = 100
_BEHIND_ALL_IDS: Final = "~"


@dataclass(frozen=True, slots=True)
class Found:
    """A row of an unpublished event with its call."""

    ref: CallRef
    row: Row


class OutboxIndex:
    """``fair_reading.UnpublishedEvents`` over the entries; a tenant is named with its slice before it."""

    def __init__(self, partitions: Partitions, index: Index, janitor: Janitor) -> None:
        self._partitions = partitions
        self._index = index
        self._janitor = janitor
        self._reported: set[tuple[CallRef, str]] = set()

    def tenant_from(self, tenant_id: str) -> str | None:
        number, name = _split(tenant_id)
        return self._next_tenant(number, ("", name, ""))

    def tenant_after(self, tenant_id: str) -> str | None:
        number, name = _split(tenant_id)
        return self._next_tenant(number, ("", name, _BEHIND_ALL_IDS))

    def _next_tenant(self, number: int, after: tuple[str, ...]) -> str | None:
        """The first tenant behind a position of a slice, else of the slices after it, that has events waiting."""
        while number < places.SLICES:
            entries = self._index.read(places.OUTBOX, (number,), after=after, until=None, limit=1)
            if not entries:
                number, after = number + 1, ()
                continue
            name = entries[0].tenant_id
            if self.of_next_calls(_join(number, name), after="", limit=1):
                return _join(number, name)
            after = ("", name, _BEHIND_ALL_IDS)
        return None

    def of_call(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[Found]:
        ref = CallRef(_split(tenant_id)[1], call_id)
        return self.unpublished(ref, after=after)[:limit]

    def of_next_calls(self, tenant_id: str, *, after: str, limit: int) -> list[Found]:
        number, name = _split(tenant_id)
        found: list[Found] = []
        position = ("", name, after)
        while len(found) < limit:
            entries = self._index.read(places.OUTBOX, (number,), after=position, until=None, limit=_CHUNK)
            mine = [entry for entry in entries if entry.tenant_id == name and entry.call_id > after]
            by_call: dict[str, list[Entry]] = defaultdict(list)
            for entry in mine:
                by_call[entry.call_id].append(entry)
            for refs in _in_groups([CallRef(name, call_id) for call_id in by_call], limit - len(found)):
                if len(found) >= limit:
                    break
                for ref, rows in zip(refs, self._partitions.events_of(refs), strict=True):
                    events = _unpublished(ref, rows)
                    if not events:
                        self._clear(ref, by_call[ref.call_id])
                    found += events
            if len(entries) < _CHUNK or len(mine) < len(entries):
                break
            last = mine[-1].call_id
            position = ("", name, last)
        return found[:limit]

    def place(self, row: Found) -> tuple[str, int]:
        return row.ref.call_id, sequence_of(row.row)

    def decoded(self, row: Found) -> OutboxEvent | None:
        try:
            return decode_event(row.row)
        except UnreadableEventError as error:
            key = (row.ref, row.row["position"])
            if key not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(key)
                where = {"tenant_id": row.ref.tenant_id, "call_id": row.ref.call_id}
                report_unreadable(error, **where, sequence=sequence_of(row.row))
            return None

    def unpublished(self, ref: CallRef, *, after: int = 0) -> list[Found]:
        """In order."""
        return _unpublished(ref, self._partitions.events(ref, after=after))

    def _clear(self, ref: CallRef, entries: Sequence[Entry]) -> None:
        """Remove entries of a call that seemed to have no unpublished events.

        The order matters: an entry is done with if its change was decided first and there are no such events then.
        """
        stored = self._partitions.read_state(ref)
        decided = [entry for entry in entries if is_decided(entry, stored)]
        open_ones = [entry for entry in entries if not is_decided(entry, stored)]
        decided += [entry for entry, _ in self._janitor.settle(open_ones)]
        if decided and not self.unpublished(ref):
            self._index.remove(decided)


class Outbox:
    _requests: Requests
    _partitions: Partitions
    _index: Index
    _attempts: Attempts
    _outbox_index: OutboxIndex
    _fair: FairReading

    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        skipped = frozenset(
            CallRef(_join(places.slice_of(ref.tenant_id), ref.tenant_id), ref.call_id) for ref in skip
        )
        return oldest_first(self._fair.read(self._outbox_index, limit=limit, skip=skipped))

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        rows = [found.row for found in self._outbox_index.unpublished(ref)][:limit]
        return list(readable_events(ref.tenant_id, ref.call_id, rows))

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        by_call: dict[CallRef, list[OutboxEvent]] = defaultdict(list)
        for stored in events:
            by_call[CallRef(stored.event.tenant_id, stored.event.aggregate_id)].append(stored)
        for ref, of_call in by_call.items():
            self._mark(ref, of_call, now)

    def _mark(self, ref: CallRef, events: Sequence[OutboxEvent], now: datetime) -> None:
        """The entry for pruning first, then the marks, then the outbox's entries that are done with."""
        waiting = {row.row["position"]: row.row for row in self._outbox_index.unpublished(ref)}
        wanted = {event_position(stored.event.sequence): stored.event.event_id for stored in events}
        marked = [
            position
            for position, event_id in sorted(wanted.items())
            if position in waiting and waiting[position]["event_id"] == event_id
        ]
        if marked:
            place = places.published_place(ref.tenant_id, ref.call_id, now)
            self._index.put([Entry(place, ref.tenant_id, ref.call_id, 0, self._attempts.next())])
            for at in range(0, len(marked), _MOST_IN):
                # One statement of one partition is carried out as one: no event is marked before an earlier one.
                some = marked[at : at + _MOST_IN]
                self._requests.write([Statement(_MARK, (to_milliseconds(now), ref.tenant_id, ref.call_id, some))])
        left = [row for position, row in waiting.items() if position not in marked]
        if left:
            done = min(int(row["of_revision"] or 0) for row in left) - 1
        else:
            done = max((int(stored.position) for stored in events), default=0)
        self._index.remove_until(
            [places.outbox_place(ref.tenant_id)], tenant_id=ref.tenant_id, call_id=ref.call_id, revision=done
        )


def _unpublished(ref: CallRef, rows: Sequence[Row]) -> list[Found]:
    return [Found(ref, row) for row in rows if row["published_ms"] is None]


def _in_groups(refs: Sequence[CallRef], wanted: int) -> list[Sequence[CallRef]]:
    """No larger than what is wanted: every call may have an event."""
    size = max(1, min(wanted, _CALLS_AT_ONCE))
    return [refs[at : at + size] for at in range(0, len(refs), size)]


def _join(number: int, tenant_id: str) -> str:
    return f"{number:0{_SLICE_CHARACTERS}d}{tenant_id}"


def _split(name: str) -> tuple[int, str]:
    return int(name[:_SLICE_CHARACTERS] or 0), name[_SLICE_CHARACTERS:]
