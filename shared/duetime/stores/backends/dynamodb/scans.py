"""Access paths in their order: what ranges find, read on until a page is full."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from duetime.stores.backend import Scan
from duetime.stores.backends.dynamodb import layouts
from duetime.stores.backends.dynamodb.driver import Driver
from duetime.stores.backends.dynamodb.expansion import size_of_mark
from duetime.stores.backends.dynamodb.item_writes import projection
from duetime.stores.backends.dynamodb.items import Item, matches, text
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, row_reader
from duetime.stores.backends.dynamodb.paths import ACCESSES, Access, Bounds, Range
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.backends.dynamodb.removals import Removals
from duetime.stores.entities import CALL_OF_KEY, DUE, EXPIRED_CALLS
from duetime.stores.entity import DAMAGED, AccessPath, Entity, Key, Place, Row, Value

_MOST_RANGES = 32
"""Queries of ranges one after the other, after which a page ends where it is."""
_READ_TOGETHER = 100
_LARGE_READ_TOGETHER = 32
"""Of rows that an index leads to, by one request; fewer where their large fields are wanted within a budget."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a scan is asked for."""

    entity: Entity
    path: AccessPath
    by: Key
    fields: tuple[str, ...]
    bounds: Bounds
    limit: int
    budget: int | None = None


class Scans:
    def __init__(self, driver: Driver, reads: Reads, removals: Removals) -> None:
        self._driver = driver
        self._removals = removals
        self._reads = reads

    def scan(self, wanted: Wanted) -> Scan:
        if wanted.path is CALL_OF_KEY:
            return self._call_of_key(wanted)
        access = ACCESSES.get(wanted.path)
        if access is None:
            return Scan([])  # the table's TTL removes what it would find
        items, end = self.found(access, wanted)
        if wanted.path is EXPIRED_CALLS:
            self._removals.complete(items)
        if access.is_row:
            return Scan(self._whole(items, wanted), end)
        return self._led_to(access, items, end, wanted)

    # -- what ranges hold ------------------------------------------------------------------------------------

    def found(self, access: Access, wanted: Wanted) -> tuple[list[Item], Place | None]:
        """Items of a page, and the place behind which there may be more."""
        ranges = [each for each in access.ranges(wanted.by, wanted.bounds) if each.low <= each.high]
        if access.first_partition is not None:
            return self._side_by_side(access, ranges, wanted)
        found: list[Item] = []
        for number, each in enumerate(ranges):
            is_last = each is ranges[-1]
            for is_more in self.pages(access, each, wanted, found):
                fit = self._fitting(found, wanted)
                if fit < len(found) or (len(found) == wanted.limit and (is_more or not is_last)):
                    return found[:fit], _place(access, found[fit - 1], wanted)
                if len(found) == wanted.limit:
                    return found, None
            if number == _MOST_RANGES - 1 and not is_last:
                return found, _end_of(each)
        return found, None

    def pages(self, access: Access, each: Range, wanted: Wanted, found: list[Item]) -> Iterator[bool]:
        """Add what a range holds to ``found``, a request at a time. Whether there may be more of it."""
        parameters = self._parameters(access, each, wanted)
        while True:
            page = self._driver.query(Limit=wanted.limit - len(found), **parameters)
            found += page["Items"]
            last_key = page.get("LastEvaluatedKey")
            yield last_key is not None
            if last_key is None:
                return
            parameters["ExclusiveStartKey"] = last_key

    def _side_by_side(
        self, access: Access, ranges: Sequence[Range], wanted: Wanted
    ) -> tuple[list[Item], Place | None]:
        def first_page(each: Range) -> dict[str, Any]:
            return self._driver.query(Limit=wanted.limit, **self._parameters(access, each, wanted))

        pages = self._driver.workers.map(first_page, ranges)
        found = [item for page in pages for item in page["Items"]]
        found.sort(key=lambda item: str(item[ranges[0].range_name]["S"]))
        is_more = len(found) > wanted.limit or any("LastEvaluatedKey" in page for page in pages)
        taken = found[: wanted.limit]
        return taken, access.place_of(taken[-1]) if taken and is_more else None

    def _parameters(self, access: Access, each: Range, wanted: Wanted) -> dict[str, Any]:
        layout = LAYOUTS[wanted.entity]
        parameters: dict[str, Any] = {
            "TableName": self._reads.table_of(layout),
            "KeyConditionExpression": "#hash = :hash AND #range BETWEEN :low AND :high",
            "ExpressionAttributeNames": {"#hash": each.hash_name, "#range": each.range_name},
            "ExpressionAttributeValues": {
                ":hash": each.hash_value,
                ":low": text(each.low),
                ":high": text(each.high),
            },
            "ScanIndexForward": not access.is_descending,
        }
        more: list[Mapping[str, Any]] = [access.leaves_out(wanted.bounds)]
        if access.is_row and wanted.fields != wanted.entity.names:
            more.append(projection(self._reads.attributes(layout, (*wanted.fields, *wanted.path.order_names))))
        for given in more:
            for name, value in given.items():
                known = parameters.get(name)
                parameters[name] = known | value if isinstance(known, dict) else value
        if access.index is None or wanted.path is DUE:
            parameters["ConsistentRead"] = True
        if access.index is not None:
            parameters["IndexName"] = access.index
        if each.start is not None:
            parameters["ExclusiveStartKey"] = each.start
        return parameters

    def _fitting(self, items: Sequence[Item], wanted: Wanted) -> int:
        """How many make a page: one at least."""
        large, mark = wanted.entity.large, LAYOUTS[wanted.entity].apart_mark
        if wanted.budget is None or large is None:
            return len(items)
        size = 0
        for at, item in enumerate(items):
            size += size_of_mark(item[mark]) if mark in item else len(item.get(large, {}).get("S", ""))
            if size > wanted.budget and at:
                return at
        return len(items)

    # -- rows ------------------------------------------------------------------------------------------------

    def _whole(self, items: Sequence[Item], wanted: Wanted) -> list[Row]:
        """The rows of items; without those that were changed while their large field was read, if they have left."""
        read = row_reader(wanted.entity, wanted.fields)
        if wanted.entity.large not in wanted.fields:
            return [read(item) for item in items]
        completed = self._reads.completed(LAYOUTS[wanted.entity], items)
        access = ACCESSES[wanted.path]
        return [
            read(item)
            for before, item in zip(items, completed, strict=True)
            if item is not None and (item is before or access.place_of(item) == access.place_of(before))
        ]

    def _led_to(self, access: Access, items: Sequence[Item], end: Place | None, wanted: Wanted) -> Scan:
        """The rows that entries lead to, if they are where those stand: an index lags behind the table."""
        checked = (*wanted.path.by, *wanted.path.order_names, *wanted.path.where)
        fields = tuple(dict.fromkeys((*wanted.fields, *checked)))
        kept: list[Row] = []
        size = 0
        step = _READ_TOGETHER if wanted.budget is None else _LARGE_READ_TOGETHER
        for start in range(0, len(items), step):
            together = items[start : start + step]
            rows = self._reads.read(wanted.entity, [access.key_of(item) for item in together], fields)
            for at, (item, row) in enumerate(zip(together, rows, strict=True), start):
                values = {} if row is None else dict(zip(fields, row, strict=True))
                if row is None or not _is_there(wanted, values, access.place_of(item)):
                    continue
                large = values.get(wanted.entity.large or "")
                size += len(large) if isinstance(large, str) else 0
                if wanted.budget is not None and size > wanted.budget and kept:
                    return Scan(kept, access.place_of(items[at - 1]))
                kept.append(row[: len(wanted.fields)])
        return Scan(kept, end)

    def _call_of_key(self, wanted: Wanted) -> Scan:
        layout = LAYOUTS[wanted.entity]
        key = layouts.unique_key(*wanted.by)
        found, _ = self._driver.get(self._reads.table_of(layout), [key])
        for item in found.values():
            rows = self._reads.read(wanted.entity, [(wanted.by[0], item["call_id"]["S"])], wanted.fields)
            return Scan([row for row in rows if row is not None])
        return Scan([])


def _place(access: Access, item: Item, wanted: Wanted) -> Place:
    """For a value that is damaged stands where the scan began."""
    since = wanted.bounds.since if wanted.bounds.after is None else wanted.bounds.after[0]
    return tuple([since or 0 if value is DAMAGED else value for value in access.place_of(item)])


def _end_of(each: Range) -> Place:
    """That of the last row of a shard."""
    return int(each.hash_value["N"]) + 1, ""


def _is_there(wanted: Wanted, values: Mapping[str, Value], place: Place) -> bool:
    path = wanted.path
    for name, value in zip(path.by, wanted.by, strict=True):
        found = values[name]
        if not (value in found if isinstance(found, tuple) else found == value):
            return False
    if not all(matches(values[name], value) for name, value in path.where.items()):
        return False
    return all(values[name] == value for name, value in zip(path.order_names, place, strict=True))
