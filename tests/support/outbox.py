"""An outbox in memory, publishers that fail as a test says, and events for both."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from duetime.calls.publishing import EventPublisher, ref_of
from duetime.calls.relay import OutboxRelay, RelaySettings
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.clock import Clock
from duetime.domain.errors import StoreUnavailable
from duetime.domain.shards import Lease
from duetime.stores.core.calls import CallStore
from duetime.stores.core.leases import HasDied, LeaseStore, nobody_has
from duetime.stores.core.outbox import Outbox
from duetime.stores.port.calls import CallRef, EventOf
from duetime.stores.port.outbox import OutboxEvent
from duetime.testing.contract import call_builders as make
from tests.support.clock import NOW


def make_event(
    call_id: str = "call-1",
    sequence: int = 1,
    *,
    tenant_id: str = "acme",
    type_: CallEventType = CallEventType.SUBMITTED,
    payload_json: str = "{}",
    occurred_at: datetime = NOW,
) -> CallEvent:
    return CallEvent(
        event_id=str(UUID(int=abs(hash((tenant_id, call_id, sequence))))),
        type=type_,
        tenant_id=tenant_id,
        aggregate_id=call_id,
        sequence=sequence,
        occurred_at=occurred_at,
        correlation_id=f"correlation of {call_id}",
        causation_id=None,
        payload_json=payload_json,
    )


class FakeOutbox(Outbox, CallStore):
    """``Outbox``, and ``prune`` of ``CallStore``, for several threads. ``is_down`` makes every call raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: list[OutboxEvent] = []
        self.is_down = False
        self.is_marking_down = False
        self.reads = 0
        self.prunes: list[datetime] = []
        self.prunable = 0

    def append(self, *events: CallEvent) -> None:
        with self._lock:
            self._rows += [OutboxEvent(event) for event in events]

    @property
    def waiting(self) -> list[CallEvent]:
        with self._lock:
            return [row.event for row in self._rows if row.published_at is None]

    def unpublished(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        self._check()
        self.reads += 1
        with self._lock:
            rows = [row for row in self._rows if row.published_at is None and ref_of(row.event) not in skip]
        return rows[:limit]

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        self._check()
        with self._lock:
            return [row for row in self._rows if row.published_at is None and ref_of(row.event) == ref][:limit]

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        self._check()
        if self.is_marking_down:
            raise StoreUnavailable("down")
        marked = {stored.event.event_id for stored in events}
        with self._lock:
            self._rows = [
                OutboxEvent(row.event, row.published_at or now) if row.event.event_id in marked else row
                for row in self._rows
            ]

    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        del now, event_of
        self._check()
        self.prunes.append(events_published_before)
        pruned = min(limit, self.prunable)
        self.prunable -= pruned
        return pruned

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("down")


class FakeLeases(LeaseStore):
    """One lease at a time, by the time that callers pass in."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Lease | None = None
        self._version = 0
        self.is_down = False

    def claim(
        self,
        shard_ids: Sequence[int],
        owner_id: str,
        *,
        lease_seconds: float,
        metadata: str,
        has_died: HasDied = nobody_has,
        now: datetime,
    ) -> list[Lease | None]:
        del metadata
        self._check()
        (shard_id,) = shard_ids
        with self._lock:
            held = self._held
            if held is not None and held.expires_at > now and not has_died(held.owner_id):
                return [None]
            self._version += 1
            self._held = Lease(shard_id, self._version, owner_id, now + timedelta(seconds=lease_seconds))
            return [self._held]

    def renew(self, leases: Sequence[Lease], *, lease_seconds: float, now: datetime) -> list[Lease | None]:
        self._check()
        (lease,) = leases
        with self._lock:
            if self._held is None or self._held.version != lease.version:
                return [None]
            self._held = replace(self._held, expires_at=now + timedelta(seconds=lease_seconds))
            return [self._held]

    def release(self, leases: Sequence[Lease], *, now: datetime) -> None:
        del now
        self._check()
        (lease,) = leases
        with self._lock:
            if self._held is not None and self._held.version == lease.version:
                self._held = None

    def _check(self) -> None:
        if self.is_down:
            raise StoreUnavailable("down")


class RecordingPublisher:
    """Keeps what it took. ``refuse`` says why an event is not taken; None: it is."""

    name = "recording"

    def __init__(self) -> None:
        self.taken: list[CallEvent] = []
        self.batches: list[list[CallEvent]] = []
        self.broken_calls: set[str] = set()
        self.is_down = False
        self.reason = "refused"
        self.crash: Exception | None = None

    def publish(self, events: Sequence[CallEvent]) -> Mapping[str, str]:
        self.batches.append(list(events))
        if self.crash is not None:
            raise self.crash
        refused = {
            event.event_id: self.reason for event in events if self.is_down or event.aggregate_id in self.broken_calls
        }
        self.taken += [event for event in events if event.event_id not in refused]
        return refused

    def close(self) -> None: ...

    def sequences(self, call_id: str) -> list[int]:
        return [event.sequence for event in self.taken if event.aggregate_id == call_id]


def first_occurrences(numbers: Sequence[int]) -> list[int]:
    return list(dict.fromkeys(numbers))


def make_relay(
    outbox: FakeOutbox,
    publishers: Sequence[EventPublisher],
    clock: Clock,
    *,
    leases: LeaseStore | None = None,
    owner_id: str = "a",
    has_died: HasDied = nobody_has,
    random: Callable[[], float] = lambda: 0.5,
    **settings: Any,
) -> OutboxRelay:
    return OutboxRelay(
        leases or FakeLeases(),
        outbox,
        publishers,
        calls=outbox,
        clock=clock,
        settings=RelaySettings(**settings),
        owner_id=owner_id,
        has_died=has_died,
        random=random,
        new_id=lambda: make.id_at(clock.now()),
    )
