"""What DynamoDB's documentation says and no emulator does, in front of one: an ``Intercept`` of tests/support/
dynamodb_proxy.py.

- Partitions that are throttled, each alone (``throttle``): in the words that each operation has for that.
- Item collections that are full (``fill``): what adds to them is refused, what makes them smaller is not.
- Write units by the documented rule (``units``), PartiQL and conditions that failed among them.
- TTL that comes whenever it likes (``run_time_to_live``): emulators remove nothing, the service does within days.
- A clock of its own (``DynamoDbProxy.clock_offset_seconds``).

One request at a time, since a write is looked at before and after.
"""

from __future__ import annotations

import re
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from duetime.stores.backends.dynamodb.derived import TIME_TO_LIVE
from tests.support.dynamodb_proxy import Body, Fault, Forward
from tests.support.dynamodb_units import Item, collection_size, write_units

_THROTTLED = "ProvisionedThroughputExceeded"
_FULL = "ItemCollectionSizeLimitExceeded"
_PARAMETERS = re.compile(r"""["'](\w+)["']\s*[=:]\s*\?""")
_TABLE = re.compile(r'"([^"]+)"')
_HASH_CONDITION = re.compile(r"^(#?\w+) = (:\w+)")


@dataclass
class Throttle:
    """What a partition lets through: ``units_per_second`` write units, and reads or not."""

    units_per_second: float = 0.0
    is_for_reads: bool = False
    left: float = 0.0
    seen_at: float = 0.0

    def admits_write(self, now: float) -> bool:
        """``now``: monotonic seconds."""
        self.left = min(self.units_per_second, self.left + (now - self.seen_at) * self.units_per_second)
        self.seen_at = now
        return self.left > 0


@dataclass(frozen=True)
class _Write:
    table: str
    key: Item


class DocumentedService:
    """For one emulator, which ``client`` speaks to directly. A partition is named by its hash key's value."""

    def __init__(self, client: Any, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.units: defaultdict[str, float] = defaultdict(float)
        """Write units by operation."""
        self.throttled: defaultdict[str, int] = defaultdict(int)
        """How often each partition was throttled."""
        self._client = client
        self._monotonic = monotonic
        self._definitions: dict[str, Item] = {}
        self._throttles: dict[str, Throttle] = {}
        self._full: set[str] = set()
        self._lock = threading.Lock()

    # -- what tests do ---------------------------------------------------------------------------------------

    def throttle(self, partition: object, *, units_per_second: float = 0.0, is_for_reads: bool = False) -> None:
        """From now on."""
        self._throttles[str(partition)] = Throttle(units_per_second, is_for_reads, seen_at=self._monotonic())

    def relieve(self, partition: object) -> None:
        """Its throttling ends."""
        del self._throttles[str(partition)]

    def fill(self, partition: object) -> None:
        """Its item collection has 10 GB."""
        self._full.add(str(partition))

    def run_time_to_live(self, table: str, *, until: float) -> None:
        """Remove what has expired by ``until`` (epoch seconds)."""
        names = self._key_names(table)
        for page in self._client.get_paginator("scan").paginate(TableName=table, ConsistentRead=True):
            for item in page["Items"]:
                if TIME_TO_LIVE in item and float(item[TIME_TO_LIVE]["N"]) <= until:
                    self._client.delete_item(TableName=table, Key={name: item[name] for name in names})

    # -- the service -----------------------------------------------------------------------------------------

    def __call__(self, operation: str, body: Body, forward: Forward) -> Body:
        with self._lock:
            match operation:
                case "PutItem" | "UpdateItem" | "DeleteItem":
                    return self._write(operation, body, forward)
                case "BatchExecuteStatement":
                    return {"Responses": [self._execute(each, forward) for each in body["Statements"]]}
                case "TransactWriteItems":
                    return self._transact(body, forward)
                case "BatchGetItem":
                    return self._batch_get(body, forward)
                case "GetItem" | "Query":
                    partition = self._partition_read(body)
                    if self._is_throttled_for_reads(partition):
                        raise Fault(400, f"{_THROTTLED}Exception")
            return forward(body)

    def _write(self, operation: str, body: Body, forward: Forward) -> Body:
        write = self._write_of(body)
        if not self._admits(write):
            raise Fault(400, f"{_THROTTLED}Exception")
        before = self._stored(write)
        try:
            answer = forward(body)
        finally:
            after = self._stored(write)
            units = self._charge(operation, write, before, after)
        if self._overflows(write, before, after):
            self._restore(write, before)
            raise Fault(400, f"{_FULL}Exception")
        if "ReturnConsumedCapacity" in body:
            answer["ConsumedCapacity"] = {"TableName": write.table, "CapacityUnits": units}
        return answer

    def _execute(self, statement: Body, forward: Forward) -> Body:
        """One statement of a batch: it succeeds or fails alone."""
        table = _TABLE.search(statement["Statement"])
        assert table is not None
        values = dict(zip(_PARAMETERS.findall(statement["Statement"]), statement["Parameters"], strict=True))
        write = _Write(table[1], {name: values[name] for name in self._key_names(table[1])})
        if not self._admits(write):
            return {"TableName": table[1], "Error": {"Code": _THROTTLED, "Message": "slow down"}}
        before = self._stored(write)
        (answer,) = forward({"Statements": [statement]})["Responses"]
        after = self._stored(write)
        self._charge("BatchExecuteStatement", write, before, after)
        if self._overflows(write, before, after):
            self._restore(write, before)
            return {"TableName": table[1], "Error": {"Code": _FULL, "Message": "full"}}
        result: Body = answer
        return result

    def _transact(self, body: Body, forward: Forward) -> Body:
        writes = [self._write_of(about) for each in body["TransactItems"] for about in each.values()]
        self._cancel_if(writes, [not self._admits(write) for write in writes], _THROTTLED)
        before = [self._stored(write) for write in writes]
        answer = forward(body)
        after = [self._stored(write) for write in writes]
        seen = list(zip(writes, before, after, strict=True))
        overflows = [self._overflows(*each) for each in seen]
        if any(overflows):
            for write, old, _ in seen:
                self._restore(write, old)
        self._cancel_if(writes, overflows, _FULL)
        for each in seen:
            self._charge("TransactWriteItems", *each, times=2)
        return answer

    @staticmethod
    def _cancel_if(writes: Sequence[_Write], culprits: Sequence[bool], code: str) -> None:
        if any(culprits):
            reasons = [{"Code": code if is_culprit else "None"} for is_culprit in culprits]
            assert len(reasons) == len(writes)
            raise Fault(400, "TransactionCanceledException", CancellationReasons=reasons)

    def _batch_get(self, body: Body, forward: Forward) -> Body:
        """What is throttled is left unprocessed; where that is all there is, it is an error."""
        ((table, request),) = body["RequestItems"].items()
        left = [key for key in request["Keys"] if self._is_throttled_for_reads(self._partition(table, key))]
        taken = [key for key in request["Keys"] if key not in left]
        if not taken:
            raise Fault(400, f"{_THROTTLED}Exception")
        answer = forward({**body, "RequestItems": {table: {**request, "Keys": taken}}})
        if left:
            answer["UnprocessedKeys"] = {table: {**request, "Keys": left}}
        return answer

    # -- partitions ------------------------------------------------------------------------------------------

    def _admits(self, write: _Write) -> bool:
        partition = self._partition(write.table, write.key)
        throttle = self._throttles.get(partition)
        is_admitted = throttle is None or throttle.admits_write(self._monotonic())
        self.throttled[partition] += not is_admitted
        return is_admitted

    def _is_throttled_for_reads(self, partition: str) -> bool:
        throttle = self._throttles.get(partition)
        return throttle is not None and throttle.is_for_reads

    def _overflows(self, write: _Write, before: Item | None, after: Item | None) -> bool:
        definition = self._definition(write.table)
        grows = collection_size(definition, after) > collection_size(definition, before)
        return (
            grows and self._partition(write.table, write.key) in self._full and "LocalSecondaryIndexes" in definition
        )

    def _charge(
        self, operation: str, write: _Write, before: Item | None, after: Item | None, *, times: int = 1
    ) -> float:
        units = times * write_units(self._definition(write.table), before, after)
        self.units[operation] += units
        throttle = self._throttles.get(self._partition(write.table, write.key))
        if throttle is not None:
            throttle.left -= units
        return units

    def _partition_read(self, body: Body) -> str:
        if "Key" in body:
            return self._partition(body["TableName"], body["Key"])
        found = _HASH_CONDITION.match(body["KeyConditionExpression"])
        assert found is not None
        ((_, value),) = body["ExpressionAttributeValues"][found[2]].items()
        return str(value)

    def _partition(self, table: str, key: Item) -> str:
        ((_, value),) = key[self._key_names(table)[0]].items()
        return str(value)

    # -- the emulator ----------------------------------------------------------------------------------------

    def _definition(self, table: str) -> Item:
        if table not in self._definitions:
            self._definitions[table] = self._client.describe_table(TableName=table)["Table"]
        return self._definitions[table]

    def _key_names(self, table: str) -> list[str]:
        return [key["AttributeName"] for key in self._definition(table)["KeySchema"]]

    def _write_of(self, about: Body) -> _Write:
        found = about.get("Key") or about["Item"]
        return _Write(about["TableName"], {name: found[name] for name in self._key_names(about["TableName"])})

    def _stored(self, write: _Write) -> Item | None:
        answer = self._client.get_item(TableName=write.table, Key=write.key, ConsistentRead=True)
        item: Item | None = answer.get("Item")
        return item

    def _restore(self, write: _Write, item: Item | None) -> None:
        if item is None:
            self._client.delete_item(TableName=write.table, Key=write.key)
        else:
            self._client.put_item(TableName=write.table, Item=item)
