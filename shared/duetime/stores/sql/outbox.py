"""The outbox: what is still to be published, what has been, and what may go."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable
from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.fair_reading import FairReading
from duetime.stores.port.calls import CallRef, EventOf
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.sql.call_rows import LISTED_COLUMNS, decode_call, instant_text
from duetime.stores.sql.call_tables import IS_UNPUBLISHED, outbox, service_calls
from duetime.stores.sql.call_writes import CallWrites
from duetime.stores.sql.database import Database
from duetime.stores.sql.event_rows import (
    AGGREGATE,
    EVENT_COLUMNS,
    EVENT_ID,
    SEQUENCE,
    Row,
    decode_event,
    readable_events,
    report_row,
)
from duetime.stores.sql.tables import constant, given, given_count

_EVENT = outbox.c
_CALL = service_calls.c
_MAX_REPORTED = 1000


class Outbox:
    """Unpublished events are an index of their own, by tenant, call and sequence: what is skipped is stepped over.

    Looking for events takes at most a step for each one found, each tenant passed and each call skipped.
    """

    def __init__(self, database: Database, writes: CallWrites) -> None:
        self._database = database
        self._writes = writes
        self._fair = FairReading()
        self.reported: set[str] = set()
        self._prepare_reads()
        self._prepare_writes()

    def _prepare_reads(self) -> None:
        prepare = self._database.prepare
        tenant, call, sequence = given("tenant"), given("call"), given("sequence")
        tenants = sa.select(_EVENT.tenant_id).where(IS_UNPUBLISHED).order_by(_EVENT.tenant_id).limit(constant(1))
        self.tenant_from = prepare(tenants.where(_EVENT.tenant_id >= tenant), "tenant")
        self.tenant_after = prepare(tenants.where(_EVENT.tenant_id > tenant), "tenant")
        waiting = sa.select(*EVENT_COLUMNS).where(IS_UNPUBLISHED, _EVENT.tenant_id == tenant)
        self.of_call = prepare(
            waiting.where(_EVENT.aggregate_id == call, _EVENT.event_sequence > sequence)
            .order_by(_EVENT.event_sequence)
            .limit(given_count("limit")),
            "tenant",
            "call",
            "sequence",
            "limit",
        )
        self.of_next_calls = prepare(
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
        # By the key of the call of each event, if it is there: NOT EXISTS lets a server read all calls for it.
        with_call = outbox.outerjoin(
            service_calls,
            sa.and_(_CALL.tenant_id == _EVENT.tenant_id, _CALL.service_call_id == _EVENT.aggregate_id),
        )
        is_of_no_star = sa.or_(_CALL.is_starred.is_(None), _CALL.is_starred == constant(0))
        self._published = prepare(
            sa.select(_EVENT.id)
            .select_from(with_call)
            .where(_EVENT.published_at < given("before"), is_of_no_star)
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
        is_call = sa.and_(_CALL.tenant_id == given("tenant"), _CALL.service_call_id == given("call"))
        self._listed = prepare(sa.select(*LISTED_COLUMNS).where(is_call), "tenant", "call")
        self._expired = prepare(expired, "now", "limit")
        self._expired_locked = prepare(expired.with_for_update(), "now", "limit")

    def unpublished_events(self, *, limit: int, skip: frozenset[CallRef] = frozenset()) -> list[OutboxEvent]:
        with self._database.read() as connection:
            found = self._fair.read(_Unpublished(self, connection), limit=limit, skip=skip)
        return sorted(found, key=_position)

    def unpublished_of(self, ref: CallRef, *, limit: int) -> list[OutboxEvent]:
        with self._database.read() as connection:
            rows = self.of_call.one(connection, ref.tenant_id, ref.call_id, 0, limit).fetchall()
        return list(readable_events(rows))

    def mark_published(self, events: Sequence[OutboxEvent], *, now: datetime) -> None:
        if not events:
            return
        with self._database.write(now) as mutation:
            rows = [(int(stored.position), stored.event.event_id) for stored in events]
            self._mark.many(mutation.connection, sorted(rows))

    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        with self._database.read() as connection:
            event = self._published.one(connection, instant_text(events_published_before), 1).first()
            call = self._expired.one(connection, instant_text(now), 1).first()
        if event is None and call is None:
            return 0
        with self._database.write(now) as mutation:
            # Whether to look was the caller's to say; what goes, and does not come back, the database's time decides.
            before = instant_text(mutation.now - (now - events_published_before))
            now_text, connection = instant_text(mutation.now), mutation.connection
            events = [tuple(row) for row in self._published.one(connection, before, limit).fetchall()]
            pruned = self._delete.many(connection, events)
            # Locked: nobody has starred one of them meanwhile.
            calls: list[Any] = list(self._expired_locked.one(connection, now_text, limit - pruned).fetchall())
            told = [] if event_of is None else self._told(connection, calls, event_of)
            pruned += self._writes.delete(connection, [tuple(row) for row in calls])
            self._writes.tell(connection, told)
            return pruned

    def _told(self, connection: sa.Connection, calls: Sequence[Any], event_of: EventOf) -> list[CallEvent]:
        """The events of the removal of ``calls``; of one that cannot be read there is none."""
        events = []
        for tenant_id, call_id, _ in calls:
            row: Any = self._listed.one(connection, tenant_id, call_id).first()
            with suppress(CallUnreadable):
                events.append(event_of(decode_call(row)))
        return events


@dataclass(frozen=True, slots=True)
class _Unpublished:
    """``stores.fair_reading.UnpublishedEvents`` on one connection."""

    outbox: Outbox
    connection: sa.Connection

    def tenant_from(self, tenant_id: str) -> str | None:
        tenant: str | None = self.outbox.tenant_from.one(self.connection, tenant_id).scalar()
        return tenant

    def tenant_after(self, tenant_id: str) -> str | None:
        tenant: str | None = self.outbox.tenant_after.one(self.connection, tenant_id).scalar()
        return tenant

    def of_call(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[Row]:
        return list(self.outbox.of_call.one(self.connection, tenant_id, call_id, after, limit).fetchall())

    def of_next_calls(self, tenant_id: str, *, after: str, limit: int) -> list[Row]:
        return list(self.outbox.of_next_calls.one(self.connection, tenant_id, after, limit).fetchall())

    def place(self, row: Row) -> tuple[str, int]:
        return row[AGGREGATE], row[SEQUENCE]

    def decoded(self, row: Row) -> OutboxEvent | None:
        try:
            return decode_event(row)
        except UnreadableEventError as error:
            reported = self.outbox.reported
            if row[EVENT_ID] not in reported and len(reported) < _MAX_REPORTED:
                reported.add(row[EVENT_ID])
                report_row(row, error)
            return None


def _position(stored: OutboxEvent) -> int:
    return int(stored.position)
