"""Access paths of events. An item holds several: what is found is cut at the limit again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby

from duetime.domain.service_calls import CALLS_PREFIX
from duetime.stores.backend import Query, Scan
from duetime.stores.backends.dynamodb import layouts
from duetime.stores.backends.dynamodb.driver import Driver, identity
from duetime.stores.backends.dynamodb.event_items import PUBLISHED_AT, unpacked
from duetime.stores.backends.dynamodb.items import Item, text, whole
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.paths import ACCESSES
from duetime.stores.backends.dynamodb.places import LAST, NUL, Range
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.backends.dynamodb.scans import Scans
from duetime.stores.entities import (
    ALL_EVENTS,
    EVENT,
    EVENTS_OF_CALL,
    NAMESPACE,
    PUBLISHED,
    UNPUBLISHED,
    UNPUBLISHED_OF_CALL,
)
from duetime.stores.entity import DAMAGED, Key, Place, Row

_LAYOUT = LAYOUTS[EVENT]
_CALLS_AT_ONCE = 16


class EventScans:
    def __init__(self, driver: Driver, reads: Reads, scans: Scans) -> None:
        self._driver = driver
        self._table_of = reads.table_of
        self._scans = scans

    def scan(self, query: Query) -> Scan:
        if query.path is ALL_EVENTS:
            return self._all(query)
        if query.path is UNPUBLISHED:
            return self._unpublished(query)
        if query.path is PUBLISHED:
            return self._published(query)
        items, end = self._scans.found(ACCESSES[query.path], query)
        return _cut(((item, ()) for item in items), query, end)

    def _all(self, query: Query) -> Scan:
        """Read a tenant after the other: their calls' namespaces tell which there are."""
        found: list[Item] = []
        after = query.after
        access = ACCESSES[EVENTS_OF_CALL]
        for tenant_id in self._tenants("" if after is None else after[0]):
            low = "EVENT#"
            if after is not None and tenant_id == after[0]:
                low = layouts.event_sort_key(after[1], after[2]) + NUL
            each = Range("tenant_id", text(tenant_id), "sort_key", low, "EVENT$")
            for _ in self._scans.pages(access, each, query, found):
                if len(found) == query.limit:  # other tenants may have more
                    return _cut(((item, ()) for item in found), query, _LAYOUT.parts_of(found[-1]))
        return _cut(((item, ()) for item in found), query, None)

    def _tenants(self, first: str) -> Iterator[str]:
        """Return those that have service calls, from ``first`` on."""
        prefix = f"{layouts.INTERNAL}#{CALLS_PREFIX}"
        catalogue = whole(layouts.CATALOGUE)
        internal = Range("shard_id", catalogue, "sortKey", prefix + first, prefix + LAST)
        pages = self._driver.pages(self._table_of(LAYOUTS[NAMESPACE]), internal, ProjectionExpression="sortKey")
        for page in pages:
            for item in page:
                yield str(item["sortKey"]["S"]).removeprefix(prefix)

    def _published(self, query: Query) -> Scan:
        """Return those that the TTL leaves alone."""
        access = ACCESSES[PUBLISHED]
        entries, end = self._scans.found(access, query)
        keys = [_LAYOUT.in_key(entry) for entry in entries]
        stored = self._driver.get(self._table_of(_LAYOUT), keys)
        found: list[tuple[Item, Place]] = []
        for entry, key in zip(entries, keys, strict=True):
            item = stored.get(identity(key, key))
            # The index lags behind the table.
            if item is not None and item.get("outbox_key") == entry["outbox_key"]:
                found.append((item, access.place_of(entry)[:1]))
        return _cut(found, query, end)

    def _unpublished(self, query: Query) -> Scan:
        """Scan unpublished events. The index lags behind the table. So it only says which calls have some; their
        events are then read from the table, strongly consistent and in order, so that none of them is overtaken by a
        later one.
        """
        entries, end = self._scans.found(ACCESSES[UNPUBLISHED], query)
        if set(query.names) <= {*EVENT.key[:-1]}:
            return Scan([row_reader(EVENT, query.names)(entry) for entry in entries], end)
        calls = [call for call, _ in groupby(_LAYOUT.parts_of(entry)[:2] for entry in entries)]
        after = query.after

        def events_of(call: Key) -> Scan:
            behind = (after[2],) if after is not None and after[:2] == call else None
            return self.scan(Query(EVENT, UNPUBLISHED_OF_CALL, query.limit, by=call, after=behind))

        rows: list[Row] = []
        for start in range(0, len(calls), _CALLS_AT_ONCE):
            together = calls[start : start + _CALLS_AT_ONCE]
            for call, found in zip(together, self._driver.workers.map(events_of, together), strict=True):
                left = query.limit - len(rows)
                rows += found.rows[:left]
                is_cut = found.end is not None or len(found.rows) > left
                if is_cut or (len(rows) == query.limit and call != calls[-1]):
                    return Scan(_of_fields(rows, query), EVENT.key_of(rows[-1]) if rows else end)
        return Scan(_of_fields(rows, query), end)


def _of_fields(rows: list[Row], query: Query) -> list[Row]:
    if query.names == EVENT.names:
        return rows
    places = [EVENT.places[name] for name in query.names]
    return [tuple([row[place] for place in places]) for row in rows]


def _cut(items: Iterable[tuple[Item, Place]], query: Query, end: Place | None) -> Scan:
    """Rows of events that are on the path; of each item, what its places begin with."""
    read, names = row_reader(EVENT, query.names), query.path.order_names
    rows: list[Row] = []
    last, after = None, query.after
    for item, begin in items:
        for event in unpacked(item).values():
            if query.path.absent and PUBLISHED_AT in event:
                continue
            place = (*begin, *row_reader(EVENT, names[len(begin) :])(event))
            if after is not None and DAMAGED not in place and place <= after:
                continue
            if len(rows) == query.limit:
                return Scan(rows, last)
            rows.append(read(event))
            last = last if DAMAGED in place else place
    return Scan(rows, end)
