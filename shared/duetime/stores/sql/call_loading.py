"""Executions and events: those that come from another store, and all events for one that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.executions import Execution
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.decoding import repaired
from duetime.stores.event_reading import UnreadableEventError
from duetime.stores.port.outbox import OutboxEvent
from duetime.stores.port.transfer import EventPage, LoadStatus, UnreadableEvent
from duetime.stores.sql.call_rows import optional_text
from duetime.stores.sql.call_tables import http_execution_log, outbox
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.event_rows import (
    AGGREGATE,
    EVENT_COLUMNS,
    EVENT_NAMES,
    SEQUENCE,
    TENANT,
    Row,
    decode_event,
    encode_event,
)
from duetime.stores.sql.execution_rows import (
    EXECUTION_COLUMNS,
    EXECUTION_KEY_NAMES,
    EXECUTION_NAMES,
    decode_or_salvage_execution,
    encode_execution,
)
from duetime.stores.sql.loading import load_rows, one_by_one, status_of
from duetime.stores.sql.tables import given, given_count

_EVENT = outbox.c
_ALL_EVENTS = ("all events",)


class CallLoading:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepare_executions()
        self._prepare_events()

    def _prepare_executions(self) -> None:
        prepare, log = self._database.prepare, http_execution_log
        values = {name: given(name) for name in EXECUTION_NAMES}
        self._insert_execution = prepare(self._database.insert_if_absent(log).values(values), *EXECUTION_NAMES)
        # By id, or by number, which is unique within the call too.
        of_call = (log.c.tenant_id == given("tenant"), log.c.service_call_id == given("call"))
        select = sa.select(*EXECUTION_COLUMNS)
        self._execution = prepare(select.where(*of_call, log.c.execution_id == given("id")), "tenant", "call", "id")
        self._numbered = prepare(
            select.where(*of_call, log.c.execution_number == given("number")), "tenant", "call", "number"
        )

    def _prepare_events(self) -> None:
        prepare, db_now = self._database.prepare, self._database.db_now
        names = (*EVENT_NAMES, "published_at")
        values = {name: given(name) for name in names} | {"created_at": db_now.iso_text()}
        self._insert_event = prepare(self._database.insert_if_absent(outbox).values(values), *names)
        select = sa.select(*EVENT_COLUMNS)
        tenant, call, sequence = given("tenant"), given("call"), given("sequence")
        of_call = (_EVENT.tenant_id == tenant, _EVENT.aggregate_id == call)
        self._event = prepare(select.where(*of_call, _EVENT.event_sequence == sequence), "tenant", "call", "sequence")
        order, limit = (_EVENT.tenant_id, _EVENT.aggregate_id, _EVENT.event_sequence), given_count("limit")

        def walk(*conditions: sa.ColumnElement[bool]) -> sa.Select[Any]:
            return select.where(*conditions).order_by(*order).limit(limit)

        # A range of the one index each: the rest of a call, the rest of its tenant, the tenants after it.
        self._rest_of_call = prepare(
            walk(*of_call, _EVENT.event_sequence > sequence), "tenant", "call", "sequence", "limit"
        )
        self._rest_of_tenant = prepare(
            walk(_EVENT.tenant_id == tenant, _EVENT.aggregate_id > call), "tenant", "call", "limit"
        )
        self._rest = prepare(walk(_EVENT.tenant_id > tenant), "tenant", "limit")

    def load_executions(self, executions: Sequence[Execution]) -> list[LoadStatus]:
        def insert(mutation: Mutation, absent: list[Execution]) -> int:
            return self._insert_execution.many(mutation.connection, [encode_execution(each) for each in absent])

        def find(connection: sa.Connection, execution: Execution) -> LoadStatus | None:
            values = encode_execution(execution)
            key = values[: len(EXECUTION_KEY_NAMES)]
            row = self._execution.one(connection, *key).first()
            if row is None:
                row = self._numbered.one(connection, *key[:2], execution.number).first()
            return None if row is None else status_of(decode_or_salvage_execution(row) == execution)

        return load_rows(self._database, executions, insert=insert, find=one_by_one(find))

    def all_events(self, *, cursor: str | None, limit: int) -> EventPage:
        after: tuple[str, str, int] | None = None
        if cursor is not None:
            tenant_id, call_id, sequence = read_cursor(cursor, _ALL_EVENTS, parts=3)
            after = tenant_id, call_id, int(sequence)
        with self._database.read() as connection:
            rows = self._rows_after(connection, after, limit + 1)
        events: list[OutboxEvent] = []
        unreadable: list[UnreadableEvent] = []
        for row in rows[:limit]:
            try:
                events.append(decode_event(row))
            except UnreadableEventError as error:
                tenant_id, call_id = repaired((row[TENANT], row[AGGREGATE]))
                unreadable.append(UnreadableEvent(tenant_id, call_id, row[SEQUENCE], str(error)))
        last = rows[limit - 1] if len(rows) > limit else None
        next_cursor = None
        if last is not None:
            next_cursor = write_cursor([last[TENANT], last[AGGREGATE], str(last[SEQUENCE])], _ALL_EVENTS)
        return EventPage(events, next_cursor, tuple(unreadable))

    def _rows_after(self, connection: sa.Connection, after: tuple[str, str, int] | None, limit: int) -> list[Row]:
        if after is None:
            return list(self._rest.one(connection, "", limit).fetchall())
        tenant_id, call_id, sequence = after
        rows: list[Row] = list(self._rest_of_call.one(connection, tenant_id, call_id, sequence, limit).fetchall())
        if len(rows) < limit:
            rows += self._rest_of_tenant.one(connection, tenant_id, call_id, limit - len(rows)).fetchall()
        if len(rows) < limit:
            rows += self._rest.one(connection, tenant_id, limit - len(rows)).fetchall()
        return rows

    def load_events(self, events: Sequence[OutboxEvent], *, now: datetime) -> list[LoadStatus]:  # noqa: ARG002
        def insert(mutation: Mutation, absent: list[OutboxEvent]) -> int:
            rows = [(*encode_event(each.event), optional_text(each.published_at)) for each in absent]
            return self._insert_event.many(mutation.connection, rows)

        def find(connection: sa.Connection, stored: OutboxEvent) -> LoadStatus | None:
            event = stored.event
            row = self._event.one(connection, event.tenant_id, event.aggregate_id, event.sequence).first()
            if row is None:
                return None
            try:
                there = decode_event(row)
            except UnreadableEventError:
                return LoadStatus.CONFLICT
            return status_of((there.event, there.published_at) == (event, stored.published_at))

        return load_rows(self._database, events, insert=insert, find=one_by_one(find))
