"""Scans all that a store holds, page by page, from any position.

Namespaces, API keys and secrets are read first and sorted, so that their order is the same in every store; they are
held in memory as a whole. Of timers, calls and events one page is held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import TypeVar

from duetime.domain.api_keys import ApiKey
from duetime.domain.errors import CallUnreadable
from duetime.domain.executions import Execution
from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import KEPT_OCCURRENCES, PastOccurrence
from duetime.domain.service_calls import CALLS_PREFIX, CallFailure, ServiceCall, tenant_of
from duetime.domain.timers import Timer
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallFilter, CallRef
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import TimerFilter
from duetime.transfer.errors import TransferRefused
from duetime.transfer.lines import Position
from duetime.transfer.records import CatalogueSecret, Kind, Record, Unreadable, Value, record_of

T = TypeVar("T")

_CATALOGUE_PAGE = 200
_EXECUTIONS = 20
_MAX_TIMERS, _MAX_CALLS, _MAX_EVENTS = 500, 50, 1000
_LARGE_PAGE_BYTES = 4 * 1024 * 1024
"""After a page of more bytes the next one has half as many items; after one of a quarter, twice as many."""

END = Position(section="end")


@dataclass(frozen=True, slots=True)
class ScannedPage:
    """``next``: the position after ``records``; ``END`` after the last page."""

    records: list[Record]
    next: Position


class StoreScan:
    """Reads a store in a fixed order. ``now``: what has expired by then is left out."""

    def __init__(self, store: Store, *, now: datetime) -> None:
        self._store = store
        self._now = now
        self._keys: list[ApiKey] | None = None
        self._namespaces = sorted(read_all(store.transfer.all_namespaces), key=attrgetter("name"))

    def pages(self, start: Position | None = None) -> Iterator[ScannedPage]:
        stages = self._stages()
        first, cursor = 0, None
        if start is not None:
            places = [(stage.section, stage.of) for stage in stages]
            if (start.section, start.of) not in places:
                raise TransferRefused("the store has changed since the export began: start again")
            first, cursor = places.index((start.section, start.of)), start.cursor
        for at, stage in enumerate(stages[first:], first):
            after = stages[at + 1].start if at + 1 < len(stages) else END
            yield from _pages_of(stage, cursor, after)
            cursor = None

    def _stages(self) -> list[_Stage]:
        # Nothing can be loaded without its namespace: an unreadable one is reported, and left out with its contents.
        readable = [each for each in self._namespaces if each.unreadable is None]
        tenants = [tenant for each in readable if (tenant := tenant_of(each.name)) is not None]
        # The timers of calls are not transferred: they follow from the calls.
        holders = [each for each in readable if not each.name.startswith(CALLS_PREFIX)]
        return [
            _Stage("secrets", "", self._secrets, 1),
            _Stage("namespaces", "", self._namespace_page, _CATALOGUE_PAGE),
            _Stage("apiKeys", "", self._api_key_page, _CATALOGUE_PAGE),
            *(_Stage("timers", each.name, self._timer_reader(each), _MAX_TIMERS) for each in holders),
            *(_Stage("serviceCalls", tenant, self._call_reader(tenant), _MAX_CALLS) for tenant in tenants),
            _Stage("events", "", self._event_page, _MAX_EVENTS),
        ]

    # -- the catalogue ---------------------------------------------------------------------------------------

    def _secrets(self, cursor: str | None, limit: int) -> Page[Record]:
        del cursor, limit
        secrets = self._store.transfer.secrets()
        return Page([record_of(_as_secret(name, secrets[name])) for name in sorted(secrets)])

    def _namespace_page(self, cursor: str | None, limit: int) -> Page[Record]:
        return _page_of(self._namespaces, lambda each: each.name, cursor, limit)

    def _api_key_page(self, cursor: str | None, limit: int) -> Page[Record]:
        if self._keys is None:
            self._keys = sorted(read_all(self._store.transfer.all_api_keys), key=attrgetter("key_id"))
        return _page_of(self._keys, lambda each: each.key_id, cursor, limit)

    # -- timers ----------------------------------------------------------------------------------------------

    def _timer_reader(self, namespace: Namespace) -> _Read:
        def read(cursor: str | None, limit: int) -> Page[Record]:
            page = self._store.timers.list(namespace, TimerFilter(), cursor=cursor, limit=limit, now=self._now)
            records: list[Record] = []
            for timer in page.items:
                records.append(record_of(_readable_timer(timer)))
                if timer.is_schedule:
                    records += self._history_of(timer)
            return Page(records, page.next_cursor)

        return read

    def _history_of(self, schedule: Timer) -> Iterator[Record]:
        for line in self._store.schedules.history(schedule, limit=KEPT_OCCURRENCES):
            past = PastOccurrence(
                namespace=schedule.namespace,
                schedule_id=schedule.schedule_id or "",
                shard_id=schedule.shard_id,
                line=line,
            )
            yield record_of(past)

    # -- service calls ---------------------------------------------------------------------------------------

    def _call_reader(self, tenant_id: str) -> _Read:
        calls = self._store.calls

        def read(cursor: str | None, limit: int) -> Page[Record]:
            page = calls.list(tenant_id, CallFilter(), cursor=cursor, limit=limit, now=self._now)
            records: list[Record] = []
            for listed, whole in zip(page.items, self._whole_calls(page.items), strict=True):
                if isinstance(whole, ServiceCall):
                    records.append(record_of(whole))
                    records += self._executions_of(whole)
                elif (reason := whole or _why_unreadable(listed)) is not None:
                    place = (listed.tenant_id, listed.call_id)
                    records.append(record_of(Unreadable(Kind.SERVICE_CALL, place, reason)))
            return Page(records, page.next_cursor)

        return read

    def _whole_calls(self, listed: list[ServiceCall]) -> list[ServiceCall | str | None]:
        """Read calls with their bodies. A text: why one cannot be read. None: it is gone."""
        refs = [CallRef(call.tenant_id, call.call_id) for call in listed]
        if not refs:
            return []
        try:
            return list(self._store.calls.get(refs, now=self._now))
        except CallUnreadable:
            return [self._whole_call(ref) for ref in refs]

    def _whole_call(self, ref: CallRef) -> ServiceCall | str | None:
        try:
            return self._store.calls.get([ref], now=self._now)[0]
        except CallUnreadable as error:
            return error.message

    def _executions_of(self, call: ServiceCall) -> Iterator[Record]:
        if not call.attempts:
            return
        for execution in read_all(
            lambda *, cursor, limit: self._store.calls.list_executions(
                call.tenant_id, call.call_id, cursor=cursor, limit=limit
            ),
            limit=_EXECUTIONS,
        ):
            yield record_of(_readable_execution(execution), expires_at=call.expires_at)

    # -- events ----------------------------------------------------------------------------------------------

    def _event_page(self, cursor: str | None, limit: int) -> Page[Record]:
        page = self._store.transfer.all_events(cursor=cursor, limit=limit)
        records = [record_of(event) for event in page.events]
        for event in page.unreadable:
            place = (event.tenant_id, event.call_id, str(event.sequence))
            records.append(record_of(Unreadable(Kind.EVENT, place, event.reason)))
        return Page(records, page.next_cursor)


_Read = Callable[[str | None, int], Page[Record]]


@dataclass(frozen=True, slots=True)
class _Stage:
    """One list of the store. ``read`` takes a cursor and a limit, which is at most ``max_limit``."""

    section: str
    of: str
    read: _Read
    max_limit: int

    @property
    def start(self) -> Position:
        return self.at(None)

    def at(self, cursor: str | None) -> Position:
        return Position.model_validate({"section": self.section, "of": self.of, "cursor": cursor})


def _pages_of(stage: _Stage, cursor: str | None, after: Position) -> Iterator[ScannedPage]:
    limit = stage.max_limit
    while True:
        page = stage.read(cursor, limit)
        cursor = page.next_cursor
        yield ScannedPage(page.items, after if cursor is None else stage.at(cursor))
        if cursor is None:
            return
        size = sum(len(record.line) for record in page.items)
        if size > _LARGE_PAGE_BYTES:
            limit = max(1, limit // 2)
        elif size < _LARGE_PAGE_BYTES // 4:
            limit = min(stage.max_limit, limit * 2)


def _why_unreadable(listed: ServiceCall) -> str | None:
    """Tell why a listed call is not found by its id: the id may be damaged."""
    outcome = listed.outcome
    return outcome.message if outcome is not None and outcome.reason is CallFailure.UNREADABLE else None


def _page_of(items: list[T], key: Callable[[T], str], cursor: str | None, limit: int) -> Page[Record]:
    """Return a page of a sorted list: the items after the one whose key is ``cursor``."""
    rest = [item for item in items if cursor is None or key(item) > cursor]
    records = [record_of(_as_value(item)) for item in rest[:limit]]
    return Page(records, key(rest[limit - 1]) if len(rest) > limit else None)


def _as_secret(name: str, value: bytes | None) -> Value:
    if value is None:
        return Unreadable(Kind.SECRET, (name,), "the stored secret cannot be read")
    return CatalogueSecret(name, value)


def _as_value(item: object) -> Value:
    assert isinstance(item, Namespace | ApiKey)
    if item.unreadable is None:
        return item
    if isinstance(item, Namespace):
        return Unreadable(Kind.NAMESPACE, (item.name,), f"{item.unreadable}; its contents are not transferred")
    return Unreadable(Kind.API_KEY, (item.tenant_id, item.key_id), item.unreadable)


def read_all(read: Callable[..., Page[T]], *, limit: int = _CATALOGUE_PAGE) -> Iterator[T]:
    """Yield the items of all pages of ``read(cursor=, limit=)``."""
    cursor: str | None = None
    while True:
        page = read(cursor=cursor, limit=limit)
        yield from page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _readable_timer(timer: Timer) -> Value:
    if timer.failure is None or not timer.is_unreadable:
        return timer
    return Unreadable(Kind.TIMER, (timer.namespace, timer.timer_id), timer.failure.message)


def _readable_execution(execution: Execution) -> Value:
    if execution.failure is not CallFailure.UNREADABLE:
        return execution
    place = (execution.tenant_id, execution.call_id, execution.execution_id)
    return Unreadable(Kind.EXECUTION, place, execution.message)
