"""Access paths in their order: what ranges find, read on until a page is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from duetime.stores.backend import Query, Scan
from duetime.stores.backends.dynamodb import layouts
from duetime.stores.backends.dynamodb.driver import Driver
from duetime.stores.backends.dynamodb.item_writes import projection
from duetime.stores.backends.dynamodb.items import Item, matches, size_of_mark
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.paths import ACCESSES, Access
from duetime.stores.backends.dynamodb.places import Range
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.backends.dynamodb.removals import Removals
from duetime.stores.entities import CALL_OF_KEY, DUE, EXPIRED_CALLS
from duetime.stores.entity import DAMAGED, Place, Row, Value

_MOST_RANGES = 32
"""Queries of ranges one after the other, after which a page ends where it is."""
_READ_TOGETHER = 100
_LARGE_READ_TOGETHER = 32
"""Of rows that an index leads to, by one request; fewer where their large fields are query within a budget."""


class Scans:
    def __init__(self, driver: Driver, reads: Reads, removals: Removals) -> None:
        self._driver = driver
        self._removals = removals
        self._reads = reads

    def scan(self, query: Query) -> Scan:
        if query.path is CALL_OF_KEY:
            return self._call_of_key(query)
        access = ACCESSES.get(query.path)
        if access is None:
            return Scan([])  # the table's TTL removes what it would find
        items, end = self.found(access, query)
        if query.path is EXPIRED_CALLS:
            self._removals.complete(items)
        if access.is_row:
            return Scan(self._whole(items, query), end)
        return self._led_to(access, items, end, query)

    # -- what ranges hold ------------------------------------------------------------------------------------

    def found(self, access: Access, query: Query) -> tuple[list[Item], Place | None]:
        """Items of a page, and the place behind which there may be more."""
        ranges = [each for each in access.ranges(query) if each.low <= each.high]
        if access.first_partition is not None:
            return self._side_by_side(access, ranges, query)
        found: list[Item] = []
        for number, each in enumerate(ranges):
            is_last = each is ranges[-1]
            for is_more in self.pages(access, each, query, found):
                fit = self._fitting(found, query)
                if fit < len(found) or (len(found) == query.limit and (is_more or not is_last)):
                    return found[:fit], _place(access, found[fit - 1], query)
                if len(found) == query.limit:
                    return found, None
            if number == _MOST_RANGES - 1 and not is_last:
                return found, _end_of(each)
        return found, None

    def pages(self, access: Access, each: Range, query: Query, found: list[Item]) -> Iterator[bool]:
        """Add what a range holds to ``found``, a request at a time. Whether there may be more of it."""
        parameters = self._parameters(access, each, query)
        while True:
            page = self._driver.call("query", Limit=query.limit - len(found), **parameters)
            found += page["Items"]
            last_key = page.get("LastEvaluatedKey")
            yield last_key is not None
            if last_key is None:
                return
            parameters["ExclusiveStartKey"] = last_key

    def _side_by_side(self, access: Access, ranges: Sequence[Range], query: Query) -> tuple[list[Item], Place | None]:
        def first_page(each: Range) -> dict[str, Any]:
            return self._driver.call("query", Limit=query.limit, **self._parameters(access, each, query))

        pages = self._driver.workers.map(first_page, ranges)
        found = [item for page in pages for item in page["Items"]]
        found.sort(key=lambda item: str(item[ranges[0].range_name]["S"]))
        is_more = len(found) > query.limit or any("LastEvaluatedKey" in page for page in pages)
        taken = found[: query.limit]
        return taken, access.place_of(taken[-1]) if taken and is_more else None

    def _parameters(self, access: Access, each: Range, query: Query) -> dict[str, Any]:
        layout = LAYOUTS[query.entity]
        parameters: dict[str, Any] = {
            "TableName": self._reads.table_of(layout),
            **each.parameters(),
            "ScanIndexForward": not access.is_descending,
        }
        more: list[Mapping[str, Any]] = [access.leaves_out(query)]
        if access.is_row and query.fields is not None:
            more.append(projection(self._reads.attributes(layout, (*query.names, *query.path.order_names))))
        for given in more:
            for name, value in given.items():
                known = parameters.get(name)
                parameters[name] = known | value if isinstance(known, dict) else value
        if access.index is None or query.path is DUE:
            parameters["ConsistentRead"] = True
        if access.index is not None:
            parameters["IndexName"] = access.index
        return parameters

    def _fitting(self, items: Sequence[Item], query: Query) -> int:
        """Return how many make a page: one at least."""
        large, mark = query.entity.large, LAYOUTS[query.entity].apart_mark
        if query.budget is None or large is None:
            return len(items)
        size = 0
        for at, item in enumerate(items):
            size += size_of_mark(item[mark]) if mark in item else len(item.get(large, {}).get("S", ""))
            if size > query.budget and at:
                return at
        return len(items)

    # -- rows ------------------------------------------------------------------------------------------------

    def _whole(self, items: Sequence[Item], query: Query) -> list[Row]:
        """Return the rows of items; without those that were changed while their large field was read, if they have
        left."""
        read = row_reader(query.entity, query.names)
        if query.entity.large not in query.names:
            return [read(item) for item in items]
        completed = self._reads.completed(LAYOUTS[query.entity], items)
        access = ACCESSES[query.path]
        return [
            read(item)
            for before, item in zip(items, completed, strict=True)
            if item is not None and (item is before or access.place_of(item) == access.place_of(before))
        ]

    def _led_to(self, access: Access, items: Sequence[Item], end: Place | None, query: Query) -> Scan:
        """Return the rows that entries lead to, if they are where those stand: an index lags behind the table."""
        checked = (*query.path.by, *query.path.order_names, *query.path.where)
        fields = tuple(dict.fromkeys((*query.names, *checked)))
        kept: list[Row] = []
        size = 0
        step = _READ_TOGETHER if query.budget is None else _LARGE_READ_TOGETHER
        for start in range(0, len(items), step):
            together = items[start : start + step]
            rows = self._reads.read(query.entity, [access.key_of(item) for item in together], fields)
            for at, (item, row) in enumerate(zip(together, rows, strict=True), start):
                values = {} if row is None else dict(zip(fields, row, strict=True))
                if row is None or not _is_there(query, values, access.place_of(item)):
                    continue
                large = values.get(query.entity.large or "")
                size += len(large) if isinstance(large, str) else 0
                if query.budget is not None and size > query.budget and kept:
                    return Scan(kept, access.place_of(items[at - 1]))
                kept.append(row[: len(query.names)])
        return Scan(kept, end)

    def _call_of_key(self, query: Query) -> Scan:
        layout = LAYOUTS[query.entity]
        found = self._driver.get_one(self._reads.table_of(layout), layouts.unique_key(*query.by))
        keys = [] if found is None else [(query.by[0], found["call_id"]["S"])]
        return Scan([row for row in self._reads.read(query.entity, keys, query.names) if row is not None])


def _place(access: Access, item: Item, query: Query) -> Place:
    """For a value that is damaged stands where the scan began."""
    since = query.since if query.after is None else query.after[0]
    return tuple([since or 0 if value is DAMAGED else value for value in access.place_of(item)])


def _end_of(each: Range) -> Place:
    """Return the place behind the last row of a shard."""
    return int(each.hash_value["N"]) + 1, ""


def _is_there(query: Query, values: Mapping[str, Value], place: Place) -> bool:
    path = query.path
    for name, value in zip(path.by, query.by, strict=True):
        found = values[name]
        if not (value in found if isinstance(found, tuple) else found == value):
            return False
    if not all(matches(values[name], value) for name, value in path.where.items()):
        return False
    return all(values[name] == value for name, value in zip(path.order_names, place, strict=True))
