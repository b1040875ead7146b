"""Counts what a DynamoDB client really sends and what each answer says it consumed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from duetime.stores.backends.dynamodb.client import make_client

_READS = frozenset({"GetItem", "BatchGetItem", "Query"})


@contextmanager
def counted_client(endpoint_url: str) -> Iterator[Any]:
    """A client that repeats nothing, and waits instead. Of a write that was made and whose answer came too late, the
    repeat is refused, and no answer would tell its units."""
    client = make_client(endpoint_url=endpoint_url, max_tries=1, read_timeout_seconds=60)
    yield client
    client.close()


class CapacityMeter:
    """Counts from its creation until ``stop``, of a ``counted_client``. Asks for ReturnConsumedCapacity=INDEXES with
    every request.

    ministack charges a flat unit for each PartiQL statement, where the service charges it like the single write that
    it stands for, and a flat unit for each query, where the service charges the size of what was read. So count
    requests with PartiQL, write units without, and the items that were read instead of read units.
    """

    def __init__(self, client: Any) -> None:
        self.requests: Counter[str] = Counter()
        self.write_units = 0.0
        self.items_read = 0
        """By queries, whether or not a filter let them through."""
        self.least_read_units = 0.0
        """What reads cost at least: a unit for a query and for a key, half of that if eventually consistent."""
        self._events = client.meta.events
        self._events.register("before-parameter-build.dynamodb", self._ask)
        self._events.register("after-call.dynamodb", self._count)

    def stop(self) -> None:
        self._events.unregister("before-parameter-build.dynamodb", self._ask)
        self._events.unregister("after-call.dynamodb", self._count)

    @property
    def total_requests(self) -> int:
        return self.requests.total()

    def reset(self) -> None:
        self.requests.clear()
        self.write_units = 0.0
        self.items_read = 0
        self.least_read_units = 0.0

    def _ask(self, params: dict[str, Any], model: Any, **_: Any) -> None:
        params["ReturnConsumedCapacity"] = "INDEXES"
        if model.name in _READS:
            tables = params.get("RequestItems", {"": params}).values()
            self.least_read_units += sum(
                len(each.get("Keys", "1")) * (1.0 if each.get("ConsistentRead") else 0.5) for each in tables
            )

    def _count(self, model: Any, parsed: dict[str, Any], **_: Any) -> None:
        self.requests[model.name] += 1
        consumed = parsed.get("ConsumedCapacity", [])
        units = sum(each["CapacityUnits"] for each in (consumed if isinstance(consumed, list) else [consumed]))
        if model.name not in _READS:
            self.write_units += units
        self.items_read += parsed.get("ScannedCount", 0)
