"""Which unpublished events are read next: the same share for every tenant, and no event hides another call's.

What the stores have alike who keep unpublished events in an index by tenant, call and sequence. Looking takes at most
a step for each event found, each tenant passed and each call skipped.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, TypeVar

from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

R = TypeVar("R")
_BEFORE_ALL = ""
_CHUNK = 50


class UnpublishedEvents(Protocol[R]):
    """The index, read in its order; ``R`` is a stored event as the database gives it."""

    def tenant_from(self, tenant_id: str) -> str | None:
        """``tenant_id``, if it has events, else the next one that has."""
        ...

    def tenant_after(self, tenant_id: str) -> str | None: ...

    def of_call(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[R]:
        """Of one call, with a sequence above ``after``."""
        ...

    def of_next_calls(self, tenant_id: str, *, after: str, limit: int) -> list[R]:
        """Of the calls whose id is above ``after``."""
        ...

    def place(self, row: R) -> tuple[str, int]:
        """The call and the sequence of a row, which can always be read."""
        ...

    def decoded(self, row: R) -> OutboxEvent | None:
        """None for one that cannot be read; it has been reported."""
        ...


class FairReading:
    """Remembers which tenant did not get its turn, so that it is first the next time."""

    def __init__(self) -> None:
        self._first_tenant = _BEFORE_ALL

    def read(self, events: UnpublishedEvents[R], *, limit: int, skip: frozenset[CallRef]) -> list[OutboxEvent]:
        """Up to ``limit`` events, those of one call in order and without gaps; none of the calls in ``skip``."""
        skipped: dict[str, set[str]] = defaultdict(set)
        for ref in skip:
            skipped[ref.tenant_id].add(ref.call_id)
        found: list[OutboxEvent] = []
        # So many have enough events, even if those with skipped calls have no others, and one is left over.
        tenants = self._waiting_tenants(events, limit + len(skipped) + 1)
        waiting = [_Reading(tenant, skipped[tenant]) for tenant in tenants]
        self._first_tenant = _BEFORE_ALL
        # Every tenant gets the same share; what one leaves is shared among the others.
        while waiting and len(found) < limit:
            share = -(-(limit - len(found)) // len(waiting))
            for reading in waiting:
                if len(found) == limit:
                    self._first_tenant = reading.tenant_id
                    break
                found += _read_on(events, reading, min(share, limit - len(found)))
            waiting = [reading for reading in waiting if not reading.is_at_end]
        return found

    def _waiting_tenants(self, events: UnpublishedEvents[R], most: int) -> list[str]:
        """Tenants with unpublished events, beginning with the one that was left out last time."""
        first = self._first_tenant
        tenants = _tenants_from(events, first, most)
        if first != _BEFORE_ALL and len(tenants) < most:
            others = _tenants_from(events, _BEFORE_ALL, most - len(tenants))
            tenants += [tenant for tenant in others if tenant < first]
        return tenants


@dataclass(slots=True)
class _Reading:
    """How far a tenant's events have been read: behind ``sequence`` of ``call_id``."""

    tenant_id: str
    skipped: set[str]
    call_id: str = _BEFORE_ALL
    sequence: int = 0
    is_at_end: bool = False


def _tenants_from(events: UnpublishedEvents[R], first: str, most: int) -> list[str]:
    """``first``, if it is one, and those behind it: one step into the index for each."""
    tenants: list[str] = []
    tenant = events.tenant_from(first)
    while tenant is not None and len(tenants) < most:
        tenants.append(tenant)
        tenant = events.tenant_after(tenant)
    return tenants


def _read_on(events: UnpublishedEvents[R], reading: _Reading, limit: int) -> list[OutboxEvent]:
    """Up to ``limit`` more events of a tenant; fewer when it has no more."""
    found: list[OutboxEvent] = []
    while len(found) < limit and not reading.is_at_end:
        chunk = max(limit - len(found), _CHUNK)
        rows = _rows_behind(events, reading, chunk)
        reading.is_at_end = len(rows) < chunk
        for row in rows:
            if len(found) == limit:
                reading.is_at_end = False
                break
            reading.call_id, reading.sequence = events.place(row)
            if reading.call_id in reading.skipped:
                continue
            event = events.decoded(row)
            if event is None:  # its call's later ones have to wait, nobody else's
                reading.skipped.add(reading.call_id)
            else:
                found.append(event)
    return found


def _rows_behind(events: UnpublishedEvents[R], reading: _Reading, limit: int) -> list[R]:
    tenant, call = reading.tenant_id, reading.call_id
    rows: list[R] = []
    if reading.sequence and call not in reading.skipped:
        rows += events.of_call(tenant, call, after=reading.sequence, limit=limit)
    if len(rows) < limit:
        rows += events.of_next_calls(tenant, after=call, limit=limit - len(rows))
    return rows


def oldest_first(found: list[OutboxEvent]) -> list[OutboxEvent]:
    """By the time of the change that each event tells of, and of one call always by sequence, whoever wrote it and
    whatever that one's clock said."""
    latest: dict[tuple[str, str], datetime] = {}
    keys: dict[str, tuple[datetime, str, str, int]] = {}
    for stored in found:
        event = stored.event
        call = (event.tenant_id, event.aggregate_id)
        latest[call] = max(latest.get(call, event.occurred_at), event.occurred_at)
        keys[event.event_id] = (latest[call], *call, event.sequence)
    return sorted(found, key=lambda stored: keys[stored.event.event_id])
