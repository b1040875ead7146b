"""The outbox: what is still to be published, what has been, and what may go."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.stores.calls_port import CallRef, OutboxEvent
from duetime.stores.sql.call_rows import instant_text
from duetime.stores.sql.call_tables import IS_UNPUBLISHED, outbox, service_calls
from duetime.stores.sql.call_writes import CallWrites
from duetime.stores.sql.database import Database
from duetime.stores.sql.event_rows import (
    AGGREGATE,
    EVENT_COLUMNS,
    EVENT_ID,
    SEQUENCE,
    Row,
    UnreadableEventError,
    decode_event,
    readable_events,
    report_unreadable,
)
from duetime.stores.sql.tables import constant, given, given_count

_EVENT = outbox.c
_CALL = service_calls.c
_BEFORE_ALL = ""
_CHUNK = 50
_MAX_REPORTED = 1000


class Outbox:
    """Unpublished events are an index of their own, by tenant, call and sequence: what is skipped is stepped over.

    Looking for events takes at most a step for each one found, each tenant passed and each call skipped.
    """

    def __init__(self, database: Database, writes: CallWrites) -> None:
        self._database = database
        self._writes = writes
        self._first_tenant = _BEFORE_ALL
        self._reported: set[str] = set()
        self._prepare_reads()
        self._prepare_writes()

    def _prepare_reads(self) -> None:
        prepare = self._database.prepare
        tenant, call, sequence = given("tenant"), given("call"), given("sequence")
        tenants = sa.select(_EVENT.tenant_id).where(IS_UNPUBLISHED).order_by(_EVENT.tenant_id).limit(constant(1))
        self._tenant_from = prepare(tenants.where(_EVENT.tenant_id >= tenant), "tenant")
        self._tenant_after = prepare(tenants.where(_EVENT.tenant_id > tenant), "tenant")
        waiting = sa.select(*EVENT_COLUMNS).where(IS_UNPUBLISHED, _EVENT.tenant_id == tenant)
        self._of_call = prepare(
            waiting.where(_EVENT.aggregate_id == call, _EVENT.event_sequence > sequence)
            .order_by(_EVENT.event_sequence)
            .limit(given_count("limit")),
            "tenant",
            "call",
            "sequence",
            "limit",
        )
        self._of_next_calls = prepare(
            waiting.where(_EVENT.aggregate_id > call)
            .order_by(_EVENT.aggregate_id, _EVENT.event_sequence)
            .limit(given_count("limit")),
            "tenant",
            "call",
            "limit",
        )

    def _prepare_writes(self) -> None:
        prepare = self._database.prepare
        self._mark = prepare(
            sa.update(outbox)
            .where(_EVENT.id == given("key_id"), _EVENT.event_id == given("key_event"), IS_UNPUBLISHED)
            .values(published_at=self._database.db_now.iso_text()),
            "key_id",
            "key_event",
        )
        self._published = prepare(
            sa.select(_EVENT.id)
            .where(_EVENT.published_at < given("before"))
            .order_by(_EVENT.published_at)
            .limit(given_count("limit")),
            "before",
            "limit",
        )
        self._delete = prepare(sa.delete(outbox).where(_EVENT.id == given("key_id")), "key_id")
        expired = (
            sa.select(_CALL.tenant_id, _CALL.service_call_id, _CALL.shard_id)
            .where(_CALL.expires_at <= given("now"))
            .order_by(_CALL.expires_at)
            .limit(given_count("limit"))
        )
        self._expired = prepare(expired, "now", "limit")
        self._expired_locked = prepare(expired.with_for_update(), "now", "limit")

    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        skipped: dict[str, set[str]] = defaultdict(set)
        for ref in skip:
            skipped[ref.tenant_id].add(ref.call_id)
        found: list[OutboxEvent] = []
        with self._database.read() as connection:
            # So many have enough events, even if those with skipped calls have no others, and one is left over.
            tenants = self._waiting_tenants(connection, limit + len(skipped) + 1)
            waiting = [_Reading(tenant, skipped[tenant]) for tenant in tenants]
            self._first_tenant = _BEFORE_ALL
            # Every tenant gets the same share; what one leaves is shared among the others.
            while waiting and len(found) < limit:
                share = -(-(limit - len(found)) // len(waiting))
                for reading in waiting:
                    if len(found) == limit:
                        self._first_tenant = reading.tenant_id
                        break
                    found += self._read_on(connection, reading, min(share, limit - len(found)))
                waiting = [reading for reading in waiting if not reading.is_at_end]
        return sorted(found, key=_position)

    def _waiting_tenants(self, connection: sa.Connection, most: int) -> list[str]:
        """Tenants with unpublished events, beginning with the one that was left out last time."""
        first = self._first_tenant
        tenants = self._tenants_from(connection, first, most)
        if first != _BEFORE_ALL and len(tenants) < most:
            others = self._tenants_from(connection, _BEFORE_ALL, most - len(tenants))
            tenants += [tenant for tenant in others if tenant < first]
        return tenants

    def _tenants_from(self, connection: sa.Connection, first: str, most: int) -> list[str]:
        """``first``, if it is one, and those behind it: one step into the index for each."""
        tenants: list[str] = []
        tenant: str | None = self._tenant_from.one(connection, first).scalar()
        while tenant is not None and len(tenants) < most:
            tenants.append(tenant)
            tenant = self._tenant_after.one(connection, tenant).scalar()
        return tenants

    def _read_on(self, connection: sa.Connection, reading: _Reading, limit: int) -> list[OutboxEvent]:
        """Up to ``limit`` more events of a tenant; fewer when it has no more."""
        found: list[OutboxEvent] = []
        while len(found) < limit and not reading.is_at_end:
            chunk = max(limit - len(found), _CHUNK)
            rows = self._rows_behind(connection, reading, chunk)
            reading.is_at_end = len(rows) < chunk
            for row in rows:
                if len(found) == limit:
                    reading.is_at_end = False
                    break
                reading.call_id, reading.sequence = row[AGGREGATE], row[SEQUENCE]
                if row[AGGREGATE] not in reading.skipped:
                    found += self._readable(row, reading)
        return found

    def _rows_behind(self, connection: sa.Connection, reading: _Reading, limit: int) -> list[Row]:
        rows: list[Row] = []
        if reading.sequence and reading.call_id not in reading.skipped:
            key = (reading.tenant_id, reading.call_id, reading.sequence)
            rows += self._of_call.one(connection, *key, limit).fetchall()
        if len(rows) < limit:
            key_of_next = (reading.tenant_id, reading.call_id)
            rows += self._of_next_calls.one(connection, *key_of_next, limit - len(rows)).fetchall()
        return rows

    def _readable(self, row: Row, reading: _Reading) -> list[OutboxEvent]:
        """The event of a row. Behind one that cannot be read its call's later ones have to wait, nobody else's."""
        try:
            return [decode_event(row)]
        except UnreadableEventError as error:
            reading.skipped.add(row[AGGREGATE])
            if row[EVENT_ID] not in self._reported and len(self._reported) < _MAX_REPORTED:
                self._reported.add(row[EVENT_ID])
                report_unreadable(row, error)
            return []

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        with self._database.read() as connection:
            rows = self._of_call.one(connection, ref.tenant_id, ref.call_id, 0, limit).fetchall()
        return list(readable_events(rows))

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        if not events:
            return
        with self._database.write(now) as mutation:
            rows = [(int(stored.position), stored.event.event_id) for stored in events]
            self._mark.many(mutation.connection, sorted(rows))

    def prune(self, *, now: datetime, events_published_before: datetime, limit: int) -> int:
        before, now_text = instant_text(events_published_before), instant_text(now)
        with self._database.read() as connection:
            event = self._published.one(connection, before, 1).first()
            call = self._expired.one(connection, now_text, 1).first()
        if event is None and call is None:
            return 0
        with self._database.write(now) as mutation:
            connection = mutation.connection
            events = [tuple(row) for row in self._published.one(connection, before, limit)]
            pruned = self._delete.many(connection, events)
            # Locked: nobody has starred one of them meanwhile.
            calls: list[Any] = [*self._expired_locked.one(connection, now_text, limit - pruned)]
            return pruned + self._writes.delete(connection, [tuple(row) for row in calls])


@dataclass(slots=True)
class _Reading:
    """How far a tenant's events have been read: behind ``sequence`` of ``call_id``."""

    tenant_id: str
    skipped: set[str]
    call_id: str = _BEFORE_ALL
    sequence: int = 0
    is_at_end: bool = False


def _position(stored: OutboxEvent) -> int:
    return int(stored.position)
