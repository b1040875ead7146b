"""Lists of a tenant's calls: along one list's entries, each judged by its call, the other conditions call by call."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Final

from duetime.domain.errors import CallUnreadable
from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.domain.times import to_milliseconds
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.cassandra.calls import places
from duetime.stores.cassandra.calls.documents import salvaged_call
from duetime.stores.cassandra.calls.index import Entry, Index, Look
from duetime.stores.cassandra.calls.janitor import Janitor, fits
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.port.calls import CallFilter, CallOrder, CallRef
from duetime.stores.port.pages import Page

SCANNED_PER_PAGE: Final = 1000
"""How many entries one page looks at before it is handed out as it is."""
_CHUNK: Final = 100
_BEHIND_ALL: Final = "~"
_FIELDS: Final = tuple(field.name for field in fields(CallFilter))


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """``start``: entries sort behind it. ``until``: up to and including this. ``prefix``: what each begins with."""

    name: str
    start: str = ""
    until: str | None = None
    prefix: str = ""


def walk_for(call_filter: CallFilter) -> Walk:
    """The list to walk along; the precedence is by how much each condition is likely to leave out."""
    if call_filter.order is CallOrder.DUE:
        if call_filter.status is not CallStatus.SCHEDULED:
            raise ValueError("by due time there are only Scheduled calls")
        due_to = call_filter.due_to
        until = None if due_to is None else places.instant_sort(due_to) + _BEHIND_ALL
        return Walk(name=places.DUE_LIST, until=until)
    if call_filter.name_prefix is not None:
        return Walk(name=places.NAME_LIST, start=call_filter.name_prefix, prefix=call_filter.name_prefix)
    if call_filter.correlation_id is not None:
        name = places.correlation_list(call_filter.correlation_id)
    elif call_filter.tags:
        name = places.tag_list(call_filter.tags[0])
    elif call_filter.starred:
        name = places.STARRED_LIST
    elif call_filter.status is not None:
        name = places.status_list(call_filter.status)
    else:
        name = places.all_list()
    # Ids are UUIDv7s made when their call was submitted, so a walk by id is one by time, and dates bound it.
    since, until_date = call_filter.submitted_from, call_filter.submitted_to
    return Walk(
        name=name,
        start="" if until_date is None else places.newest_sort(_id_prefix(until_date)) + _BEHIND_ALL,
        until=None if since is None else places.newest_sort(_id_prefix(since)) + _BEHIND_ALL,
    )


class Listing:
    _partitions: Partitions
    _index: Index
    _janitor: Janitor

    def list_calls(
        self, tenant_id: str, call_filter: CallFilter, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[ServiceCall]:
        walk = walk_for(call_filter)
        query = (tenant_id, "calls", *(getattr(call_filter, name) for name in _FIELDS))
        position = walk.start if cursor is None else read_cursor(cursor, query, parts=1)[0]
        found: list[ServiceCall] = []
        looked_at = 0
        chunk = min(limit + 1, _CHUNK) if call_filter == CallFilter() else _CHUNK
        while looked_at < SCANNED_PER_PAGE:
            entries, is_end = self._entries(tenant_id, walk, position, chunk)
            for sort, stored in self._judged(entries):
                if not sort.startswith(walk.prefix):
                    return Page(found)
                call = _listed(stored, call_filter, now)
                if call is not None:
                    if len(found) == limit:
                        return Page(found, write_cursor([position], query))
                    found.append(call)
                position = sort
            if is_end:
                return Page(found)
            looked_at += chunk
            position = entries[-1].place.sort
        return Page(found, write_cursor([position], query))

    def _entries(self, tenant_id: str, walk: Walk, position: str, limit: int) -> tuple[list[Entry], bool]:
        """The first entries behind a position, of all slices, of a place all or none; and whether that is all."""

        found = self._index.read_each(
            [
                Look(places.LISTS, (tenant_id, walk.name, number), (position,), walk.until, limit)
                for number in range(places.SLICES)
            ]
        )
        merged = list(heapq.merge(*found, key=lambda entry: entry.place.sort))
        if len(merged) < limit:
            return merged, True
        last = merged[limit - 1].place.sort
        whole = [entry for entry in merged[:limit] if entry.place.sort != last]
        return whole or merged[:limit], False

    def _judged(self, entries: list[Entry]) -> Iterator[tuple[str, Stored]]:
        """Each place once with its call, where the call says that it stands there; the others are cleared away."""
        read = self._partitions.read_many(CallRef(entry.tenant_id, entry.call_id) for entry in entries)
        wrong: list[tuple[Entry, Stored]] = []
        last: str | None = None
        right: list[tuple[str, Stored]] = []
        for entry in entries:
            stored = read[CallRef(entry.tenant_id, entry.call_id)]
            if not fits(entry, stored):
                wrong.append((entry, stored))
            elif entry.place.sort != last:
                last = entry.place.sort
                right.append((last, stored))
        self._janitor.clear(wrong)
        yield from right


def _listed(stored: Stored, call_filter: CallFilter, now: datetime) -> ServiceCall | None:
    """The call, if it belongs to the list; one that cannot be read does wherever its entry stands."""
    if not stored.is_there(now):
        return None
    try:
        call = stored.call()
    except CallUnreadable as error:
        return salvaged_call(stored.ref.tenant_id, stored.ref.call_id, stored.row, str(error))
    return call if all(holds(call_filter, call) for holds in _CONDITIONS) else None


Condition = Callable[[CallFilter, ServiceCall], bool]
_CONDITIONS: Final[tuple[Condition, ...]] = (
    lambda wanted, call: wanted.status is None or call.status is wanted.status,
    lambda wanted, call: set(wanted.tags) <= set(call.tags),
    lambda wanted, call: wanted.submitted_from is None or call.submitted_at >= wanted.submitted_from,
    lambda wanted, call: wanted.submitted_to is None or call.submitted_at < wanted.submitted_to,
    lambda wanted, call: wanted.due_to is None or call.due_at <= wanted.due_to,
    lambda wanted, call: wanted.name_prefix is None or call.name.startswith(wanted.name_prefix),
    lambda wanted, call: wanted.starred is None or call.starred is wanted.starred,
    lambda wanted, call: wanted.correlation_id is None or call.correlation_id == wanted.correlation_id,
)


def _id_prefix(instant: datetime) -> str:
    """What the UUIDv7s of that millisecond begin with."""
    stamp = f"{to_milliseconds(instant):012x}"
    return f"{stamp[:8]}-{stamp[8:]}"
