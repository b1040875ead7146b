"""The outbox: which events are published next, and which have been.

Every tenant has the same share, and no event hides another call's. Looking takes at most a step for each event found,
each tenant passed and each call skipped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import itemgetter
from typing import Final

from duetime.stores import backend as writes
from duetime.stores.backend import Backend, Condition, Query, Scan
from duetime.stores.core.event_codec import READ, decode_event, readable_events, report_row
from duetime.stores.decoding import UnreadableError
from duetime.stores.entities import EVENT, UNPUBLISHED, UNPUBLISHED_OF_CALL
from duetime.stores.entity import DAMAGED, Key, Place, Row
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent

_BEFORE_ALL = ""
_NEXT: Final = " "
"""A tenant's id with it sorts behind that tenant, and before all others that are behind it."""
_LAST_SEQUENCE = (1 << 31) - 1
_CHUNK = 50
_MAX_REPORTED = 1000
_PUBLISHED: Final = {"published_at": writes.NOW}
_IS_UNPUBLISHED: Final = Condition("published_at", None)


class Outbox:
    """Remembers which tenant did not get its turn, so that it is first the next time."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._first_tenant = _BEFORE_ALL
        self._reported: set[Key] = set()

    def unpublished(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        """Events that are not marked as published, of all tenants, the oldest first as far as the store can tell.

        Of one call: in order of ``sequence``, without gaps, beginning with its first unpublished one. ``skip``: calls
        whose events are not wanted now; however many they are, they hide nothing of others.
        """
        skipped: dict[str, set[str]] = defaultdict(set)
        for ref in skip:
            skipped[ref.tenant_id].add(ref.call_id)
        found: list[OutboxEvent] = []
        # So many have enough events, even if those with skipped calls have no others, and one is left over.
        tenants = self._waiting_tenants(limit + len(skipped) + 1)
        waiting = [_Reading(tenant, skipped[tenant]) for tenant in tenants]
        self._first_tenant = _BEFORE_ALL
        # What one tenant leaves of its share is divided among the others.
        while waiting and len(found) < limit:
            share = -(-(limit - len(found)) // len(waiting))
            for reading in waiting:
                if len(found) == limit:
                    self._first_tenant = reading.tenant_id
                    break
                found += self._read_on(reading, min(share, limit - len(found)))
            waiting = [reading for reading in waiting if not reading.is_at_end]
        return _oldest_first(found)

    def _waiting_tenants(self, most: int) -> list[str]:
        """Return the tenants with unpublished events, beginning with the one that was left out last time."""
        first = self._first_tenant
        tenants = self._tenants_from(first, most)
        if first != _BEFORE_ALL and len(tenants) < most:
            others = self._tenants_from(_BEFORE_ALL, most - len(tenants))
            tenants += [tenant for tenant in others if tenant < first]
        return tenants

    def _tenants_from(self, first: str, most: int) -> list[str]:
        """Return ``first``, if it is one, and those behind it: one step on the path for each at most."""
        tenants: list[str] = []
        since = first
        while len(tenants) < most:
            found = self._backend.scan(Query(EVENT, UNPUBLISHED, fields=("tenant_id",), since=since, limit=_CHUNK))
            tenants += dict.fromkeys(row[0] for row in found.rows if row[0] is not DAMAGED)
            if found.end is None:
                break
            since = found.end[0] + _NEXT
        return tenants[:most]

    def _read_on(self, reading: _Reading, limit: int) -> list[OutboxEvent]:
        """Return up to ``limit`` more events of a tenant; fewer when it has no more."""
        found: list[OutboxEvent] = []
        while len(found) < limit and not reading.is_at_end:
            chunk = max(limit - len(found), _CHUNK)
            scan = self._backend.scan(
                Query(
                    EVENT,
                    UNPUBLISHED,
                    fields=READ,
                    after=reading.place,
                    since=reading.tenant_id,
                    until=reading.tenant_id,
                    limit=chunk,
                )
            )
            reading.is_at_end = scan.end is None
            for row in scan.rows:
                if len(found) == limit:
                    reading.is_at_end = False
                    break
                key = EVENT.key_of(row)
                if DAMAGED not in key:  # else nothing can be read behind it
                    reading.last = key
                call_id = key[1]
                if call_id in reading.skipped:
                    continue
                event = self._decoded(row)
                if event is None:  # its call's later ones have to wait, nobody else's
                    reading.skipped.add(call_id)
                else:
                    found.append(event)
            else:
                reading.last = scan.end
                if scan.end is not None and not _has_its_end(scan):
                    reading.skipped.add(scan.end[1])
        return found

    def _decoded(self, row: Row) -> OutboxEvent | None:
        """Return the event of a row; None when it cannot be read, which is reported once."""
        try:
            return decode_event(row)
        except UnreadableError as error:
            key = EVENT.key_of(row)
            if key not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(key)
                report_row(row, error)
            return None

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        """Events of one call that are not marked as published, in order of ``sequence``, without gaps, beginning with
        its first unpublished one; strongly consistent, and also when the call is gone."""
        of_call = (ref.tenant_id, ref.call_id)
        scan = self._backend.scan(Query(EVENT, UNPUBLISHED_OF_CALL, by=of_call, fields=READ, limit=limit))
        return list(readable_events(scan.rows))

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        """Idempotent: ``published_at`` is set once.

        Where the database removes events by itself, as ``prune`` says otherwise, the event that tells of a star given
        or taken, or of a call's removal, decides when it is marked what becomes of the call's earlier ones.
        """
        if not events:
            return
        marks = [
            writes.update(
                EVENT,
                (event.tenant_id, event.aggregate_id, event.sequence),
                _PUBLISHED,
                Condition("event_id", event.event_id),
                _IS_UNPUBLISHED,
                like="published event",
            )
            for event in sorted((each.event for each in events), key=lambda each: (each.tenant_id, each.aggregate_id))
        ]
        self._backend.write(marks, now=now).checked()


@dataclass(slots=True)
class _Reading:
    """How far a tenant's events have been read: up to ``last``."""

    tenant_id: str
    skipped: set[str]
    last: Place | None = None
    is_at_end: bool = False

    @property
    def place(self) -> Place | None:
        if self.last is None or self.last[1] not in self.skipped:
            return self.last
        return *self.last[:2], _LAST_SEQUENCE


def _has_its_end(scan: Scan) -> bool:
    """Tell whether the event at the end of a page is on it. If it is not, it was just being written, and its call's
    later ones, which the next page may have, would overtake it."""
    last = EVENT.key_of(scan.rows[-1]) if scan.rows else ()
    return last == scan.end or DAMAGED in last


def _oldest_first(found: list[OutboxEvent]) -> list[OutboxEvent]:
    """Sort events by the time of the change that each tells of, and those of one call by sequence, whoever wrote
    them and whatever that one's clock said."""
    latest: dict[tuple[str, str], datetime] = {}
    moments = []
    for stored in found:
        event = stored.event
        call = (event.tenant_id, event.aggregate_id)
        latest[call] = max(latest.get(call, event.occurred_at), event.occurred_at)
        moments.append(latest[call])
    return [stored for _, stored in sorted(zip(moments, found, strict=True), key=itemgetter(0))]
