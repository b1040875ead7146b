"""Access paths of events, of which an item holds several: what is found is cut at the limit again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import groupby

from duetime.domain.service_calls import CALLS_PREFIX
from duetime.stores.backend import Scan
from duetime.stores.backends.dynamodb import layouts
from duetime.stores.backends.dynamodb.derived import NUL
from duetime.stores.backends.dynamodb.driver import Driver, identity, unprocessed
from duetime.stores.backends.dynamodb.event_items import PUBLISHED_AT, unpacked
from duetime.stores.backends.dynamodb.items import Item, text, whole
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.paths import ACCESSES, Bounds, Range
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.backends.dynamodb.scans import Scans, Wanted
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

    def scan(self, wanted: Wanted) -> Scan:
        if wanted.path is ALL_EVENTS:
            return self._all(wanted)
        if wanted.path is UNPUBLISHED:
            return self._unpublished(wanted)
        if wanted.path is PUBLISHED:
            return self._published(wanted)
        items, end = self._scans.found(ACCESSES[wanted.path], wanted)
        return _cut(((item, ()) for item in items), wanted, end)

    def _all(self, wanted: Wanted) -> Scan:
        """A tenant after the other: their calls' namespaces tell which there are."""
        found: list[Item] = []
        after = wanted.bounds.after
        access = ACCESSES[EVENTS_OF_CALL]
        for tenant_id in self._tenants("" if after is None else after[0]):
            low = "EVENT#"
            if after is not None and tenant_id == after[0]:
                low = layouts.event_sort_key(after[1], after[2]) + NUL
            each = Range(
                hash_name="tenant_id", hash_value=text(tenant_id), range_name="sort_key", low=low, high="EVENT$"
            )
            for _ in self._scans.pages(access, each, wanted, found):
                if len(found) == wanted.limit:  # other tenants may have more
                    return _cut(((item, ()) for item in found), wanted, _LAYOUT.parts_of(found[-1]))
        return _cut(((item, ()) for item in found), wanted, None)

    def _tenants(self, first: str) -> Iterator[str]:
        """Those that have service calls, from ``first`` on."""
        prefix = layouts.INTERNAL + CALLS_PREFIX
        pages = self._driver.pages(
            TableName=self._table_of(LAYOUTS[NAMESPACE]),
            KeyConditionExpression="shard_id = :catalogue AND sortKey BETWEEN :low AND :high",
            ExpressionAttributeValues={
                ":catalogue": whole(layouts.CATALOGUE),
                ":low": text(prefix + first),
                ":high": text(prefix + "\U0010ffff"),
            },
            ProjectionExpression="sortKey",
            ConsistentRead=True,
        )
        for page in pages:
            for item in page:
                yield str(item["sortKey"]["S"]).removeprefix(prefix)

    def _published(self, wanted: Wanted) -> Scan:
        """Those that the TTL leaves alone."""
        access = ACCESSES[PUBLISHED]
        entries, end = self._scans.found(access, wanted)
        keys = [{name: entry[name] for name in _LAYOUT.key_names} for entry in entries]
        stored, unread = self._driver.get(self._table_of(_LAYOUT), keys)
        if unread:
            raise unprocessed()
        found: list[tuple[Item, Place]] = []
        for entry, key in zip(entries, keys, strict=True):
            item = stored.get(identity(key, key))
            # The index lags behind the table.
            if item is not None and item.get("outbox_key") == entry["outbox_key"]:
                found.append((item, access.place_of(entry)[:1]))
        return _cut(found, wanted, end)

    def _unpublished(self, wanted: Wanted) -> Scan:
        """The index lags behind the table. So it only says which calls have some; their events are then read from the
        table, strongly consistent and in order, so that none of them is overtaken by a later one."""
        entries, end = self._scans.found(ACCESSES[UNPUBLISHED], wanted)
        if set(wanted.fields) <= {*EVENT.key[:-1]}:
            return Scan([row_reader(EVENT, wanted.fields)(entry) for entry in entries], end)
        calls = [call for call, _ in groupby(_LAYOUT.parts_of(entry)[:2] for entry in entries)]
        after = wanted.bounds.after

        def events_of(call: Key) -> Scan:
            bounds = Bounds(after=(after[2],) if after is not None and after[:2] == call else None)
            return self.scan(replace(wanted, path=UNPUBLISHED_OF_CALL, by=call, fields=EVENT.names, bounds=bounds))

        rows: list[Row] = []
        for start in range(0, len(calls), _CALLS_AT_ONCE):
            together = calls[start : start + _CALLS_AT_ONCE]
            for call, found in zip(together, self._driver.workers.map(events_of, together), strict=True):
                left = wanted.limit - len(rows)
                rows += found.rows[:left]
                is_cut = found.end is not None or len(found.rows) > left
                if is_cut or (len(rows) == wanted.limit and call != calls[-1]):
                    return Scan(_of_fields(rows, wanted), EVENT.key_of(rows[-1]) if rows else end)
        return Scan(_of_fields(rows, wanted), end)


def _of_fields(rows: list[Row], wanted: Wanted) -> list[Row]:
    if wanted.fields == EVENT.names:
        return rows
    places = [EVENT.places[name] for name in wanted.fields]
    return [tuple([row[place] for place in places]) for row in rows]


def _cut(items: Iterable[tuple[Item, Place]], wanted: Wanted, end: Place | None) -> Scan:
    """Rows of events that are on the path; of each item, what its places begin with."""
    read, names = row_reader(EVENT, wanted.fields), wanted.path.order_names
    rows: list[Row] = []
    last, after = None, wanted.bounds.after
    for item, begin in items:
        for event in unpacked(item).values():
            if wanted.path.absent and PUBLISHED_AT in event:
                continue
            place = (*begin, *row_reader(EVENT, names[len(begin) :])(event))
            if after is not None and DAMAGED not in place and place <= after:
                continue
            if len(rows) == wanted.limit:
                return Scan(rows, last)
            rows.append(read(event))
            last = last if DAMAGED in place else place
    return Scan(rows, end)
