"""The primitives of a store on DynamoDB (docs/stores/dynamodb.md, decision 0018).

Run against emulators: never against the service.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError

from duetime.domain.errors import InvalidSettings, StoreEmpty, StoreNotReady, StoreUnavailable
from duetime.domain.times import to_milliseconds
from duetime.stores.backend import NOT_WRITTEN, Batch, Change, Query, Scan, Write, Written
from duetime.stores.backends.dynamodb import layouts, schema
from duetime.stores.backends.dynamodb.client import make_client
from duetime.stores.backends.dynamodb.driver import DEFAULT_PARALLEL, UNAVAILABLE, Driver
from duetime.stores.backends.dynamodb.event_scans import EventScans
from duetime.stores.backends.dynamodb.events import EVENT_RETENTION, Events
from duetime.stores.backends.dynamodb.expansion import expanded
from duetime.stores.backends.dynamodb.item_writes import ItemWrite
from duetime.stores.backends.dynamodb.layouts import LAYOUTS, Layout
from duetime.stores.backends.dynamodb.reads import Reads
from duetime.stores.backends.dynamodb.removals import Removals
from duetime.stores.backends.dynamodb.scans import Scans
from duetime.stores.backends.dynamodb.url import default_calls_table_name, parse_dynamodb_url
from duetime.stores.entities import EVENT, SERVICE_CALL
from duetime.stores.entity import Entity, Key, Row, Value
from duetime.stores.time_source import StoreTime, TimeSource

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient


class DynamoDbBackend:
    """Conditions have no clock here: what is past is judged by the ``now`` that is passed, which callers correct by
    ``time``. A guard is not checked: its row is one item, for which all writes of a shard would contend; the
    conditions of what is written are the fence."""

    has_clock = False

    def __init__(
        self,
        client: DynamoDBClient,
        table_name: str,
        *,
        calls_table_name: str | None = None,
        batch_statements: bool = True,
        max_parallel: int = DEFAULT_PARALLEL,
        time_source: TimeSource = TimeSource.DATABASE,
        event_retention: timedelta = EVENT_RETENTION,
    ) -> None:
        """``event_retention``: how long published events stay readable."""
        self._driver = Driver(client, batch_statements=batch_statements, max_parallel=max_parallel)
        self._table = table_name
        self._calls_table = calls_table_name or default_calls_table_name(table_name)
        self._time_source = time_source
        self._reads = Reads(self._driver, self._table_of)
        self._removals = Removals(self._driver, self._calls_table)
        self._scans = Scans(self._driver, self._reads, self._removals)
        self._events = Events(self._driver, self._reads, event_retention)
        self._event_scans = EventScans(self._driver, self._reads, self._scans)

    def _table_of(self, layout: Layout) -> str:
        return self._calls_table if layout.is_of_calls else self._table

    # -- reads -----------------------------------------------------------------------------------------------

    def read(self, entity: Entity, keys: Sequence[Key], *, fields: tuple[str, ...] | None = None) -> list[Row | None]:
        reads = self._events if entity is EVENT else self._reads
        return reads.read(entity, keys, fields or entity.names)

    def scan(self, query: Query) -> Scan:
        return (self._event_scans if query.entity is EVENT else self._scans).scan(query)

    def firsts(self, query: Query, values: Sequence[Value]) -> None:  # noqa: ARG002
        return None

    # -- writes ----------------------------------------------------------------------------------------------

    def write(self, writes: Sequence[Write], *, now: datetime | None = None) -> Batch:
        if writes and writes[0].entity is EVENT:
            return _batch(self._events.write(writes, _milliseconds(now)), now)
        return self.atomic([[write] for write in writes], now=now)

    def atomic(self, groups: Sequence[Sequence[Write]], *, now: datetime | None = None) -> Batch:
        """Write what is one item with others of the kind in one request; what is several, as a transaction."""
        items_of = [self._expanded(group, _milliseconds(now)) for group in groups]
        singles = {at: items[0] for at, items in enumerate(items_of) if len(items) == 1}
        several = {at: items for at, items in enumerate(items_of) if len(items) > 1}
        results = [NOT_WRITTEN] * len(groups)
        self._run(singles, lambda: self._driver.write(list(singles.values())), results)
        self._run(several, lambda: self._driver.transact(list(several.values())), results)
        for at, items in several.items():
            if results[at].is_written and self._removals.leave_some(items):
                with suppress(StoreUnavailable):  # else by whoever looks for what has expired
                    self._removals.finish(groups[at][0].key)
        return _batch(results, now)

    def _run(self, places: dict[int, Any], run: Callable[[], list[Written]], results: list[Written]) -> None:
        """Put what ``run`` returns into place. Raises ``StoreUnavailable`` only if nothing was written before."""
        if not places:
            return
        try:
            made = run()
        except StoreUnavailable:
            if not any(written.is_written for written in results):
                raise
            made = [UNAVAILABLE] * len(places)
        for at, written in zip(places, made, strict=True):
            results[at] = written

    def _expanded(self, group: Sequence[Write], now_ms: int) -> list[ItemWrite]:
        """Return the items of a group that are written; none: it cannot be."""
        items: list[ItemWrite] = []
        for write in group:
            if write.entity is EVENT:
                continue
            table = self._table_of(LAYOUTS[write.entity])
            found: Sequence[ItemWrite] = expanded(write, table, now_ms, partial(self._driver.get_one, table))
            if not found:
                return []
            if write.change is Change.DELETE and write.entity is SERVICE_CALL:
                found = self._removals.at_once(write.key, found, now_ms)
            items += found
        events = [write for write in group if write.entity is EVENT]
        return [*items, self._events.insertion(events, now_ms)] if events else items

    # -- the rest --------------------------------------------------------------------------------------------

    def time(self, *, now: datetime) -> StoreTime:
        at = None
        if self._time_source is TimeSource.DATABASE:
            at = self._driver.service_time(self._table, layouts.timer_item_key(0, "?"))
        return StoreTime(now, resolution_seconds=0.001) if at is None else StoreTime(at, resolution_seconds=1.0)

    def initialise(self) -> None:
        schema.create_table(self._driver.client, self._table)
        schema.create_table(self._driver.client, self._calls_table, schema.calls_table_definition)
        self.check()

    def check(self) -> None:
        """Raise ``StoreNotReady`` unless both tables are there."""
        try:
            self._driver.get_one(self._table, layouts.timer_item_key(layouts.CATALOGUE, "CHECK"))
        except StoreEmpty as error:
            try:
                self._check_calls()
            except StoreNotReady:
                raise error from None
            raise StoreNotReady("there is a DynamoDB table of service calls and none of timers") from None
        self._check_calls()

    def _check_calls(self) -> None:
        try:
            self._driver.get_one(self._calls_table, layouts.call_item_key("@", "CHECK"))
        except StoreNotReady:
            raise StoreNotReady(
                f"the DynamoDB table {self._calls_table!r} of service calls does not exist; `duetime init` creates it"
            ) from None

    def close(self) -> None:
        self._driver.close()


def _batch(results: list[Written], now: datetime | None) -> Batch:
    return Batch(results, None if now is None else to_milliseconds(now))


def _milliseconds(now: datetime | None) -> int:
    return 0 if now is None else to_milliseconds(now)


def open_dynamodb(url: str, *, time_source: TimeSource = TimeSource.DATABASE) -> DynamoDbBackend:
    """Return the tables at ``dynamodb://<table>?...`` (url.py). Contacts nothing yet; raises ``InvalidSettings``."""
    parsed = parse_dynamodb_url(url)
    try:
        client = make_client(endpoint_url=parsed.endpoint_url, region=parsed.region)
    except (BotoCoreError, ValueError) as error:  # no region, a malformed endpoint, an unknown profile
        raise InvalidSettings(f"the DynamoDB store cannot be used: {error}") from error
    return DynamoDbBackend(
        client,
        parsed.table_name,
        calls_table_name=parsed.calls_table_name,
        batch_statements=parsed.batch_statements,
        time_source=time_source,
        event_retention=parsed.event_retention or EVENT_RETENTION,
    )
