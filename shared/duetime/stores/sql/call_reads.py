"""Service calls, executions and events of one call, read by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import CallUnreadable, InvalidCursor
from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.port.calls import CallRef
from duetime.stores.port.pages import Page
from duetime.stores.sql.call_rows import CALL_COLUMNS, Row, UnreadableCallError, decode_call
from duetime.stores.sql.call_tables import http_execution_log, outbox, service_calls
from duetime.stores.sql.database import Database
from duetime.stores.sql.event_rows import EVENT_COLUMNS, readable_events
from duetime.stores.sql.execution_rows import EXECUTION_COLUMNS, decode_or_salvage_execution
from duetime.stores.sql.tables import given, given_count

_CALL = service_calls.c
_LOG = http_execution_log.c
_EVENT = outbox.c
_AFTER_ALL = 2**31 - 1


class CallReads:
    def __init__(self, database: Database) -> None:
        self._database = database
        prepare = database.prepare
        # The id comes first, to tell the rows of a batch apart.
        columns = (_CALL.service_call_id, *CALL_COLUMNS)
        of_tenant = sa.select(*columns).where(_CALL.tenant_id == given("tenant"))
        self._get = database.prepare_list(of_tenant, _CALL.service_call_id, "tenant")
        self._by_key = prepare(
            sa.select(*CALL_COLUMNS).where(_CALL.tenant_id == given("tenant"), _CALL.idempotency_key == given("key")),
            "tenant",
            "key",
        )
        of_call = sa.select(*EXECUTION_COLUMNS).where(
            _LOG.tenant_id == given("tenant"), _LOG.service_call_id == given("call")
        )
        self._execution = prepare(
            of_call.where(_LOG.execution_id == given("execution")), "tenant", "call", "execution"
        )
        self._executions = prepare(
            of_call.where(_LOG.execution_number < given("before"))
            .order_by(_LOG.execution_number.desc())
            .limit(given_count("limit")),
            "tenant",
            "call",
            "before",
            "limit",
        )
        has_call = sa.select(_CALL.service_call_id).where(
            _CALL.tenant_id == given("tenant"), _CALL.service_call_id == given("call")
        )
        self._events = prepare(
            sa.select(*EVENT_COLUMNS)
            .where(
                _EVENT.tenant_id == given("tenant"),
                _EVENT.aggregate_id == given("call"),
                _EVENT.event_sequence > given("after"),
                has_call.exists(),
            )
            .order_by(_EVENT.event_sequence)
            .limit(given_count("limit")),
            "tenant",
            "call",
            "after",
            "limit",
        )

    def get_calls(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        wanted: dict[str, list[str]] = {}
        for ref in refs:
            wanted.setdefault(ref.tenant_id, []).append(ref.call_id)
        found: dict[CallRef, Row] = {}
        with self._database.read() as connection:
            for tenant_id, call_ids in wanted.items():
                for row in self._get.rows(connection, call_ids, tenant_id):
                    found[CallRef(tenant_id, row[0])] = row[1:]
        return [_readable(found.get(ref), now) for ref in refs]

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        with self._database.read() as connection:
            row = self._by_key.one(connection, tenant_id, key).first()
        return _readable(row, now)

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        with self._database.read() as connection:
            row = self._execution.one(connection, tenant_id, call_id, execution_id).first()
        return None if row is None else decode_or_salvage_execution(row)

    def list_executions(self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int) -> Page[Execution]:
        query = (tenant_id, call_id, "executions")
        before = _AFTER_ALL if cursor is None else _read_number(cursor, query)
        with self._database.read() as connection:
            rows = self._executions.one(connection, tenant_id, call_id, before, limit + 1).fetchall()
        items = [decode_or_salvage_execution(row) for row in rows[:limit]]
        has_more = len(rows) > limit
        return Page(items, write_cursor([str(items[-1].number)], query) if has_more else None)

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        with self._database.read() as connection:
            rows = self._events.one(connection, tenant_id, call_id, after, limit).fetchall()
        return [stored.event for stored in readable_events(rows)]


def _read_number(cursor: str, query: tuple[str, ...]) -> int:
    (text,) = read_cursor(cursor, query, parts=1)
    if not text.isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return int(text)


def _readable(row: Row | None, now: datetime) -> ServiceCall | None:
    """The call of a row; None when there is none or it has expired. Raises ``CallUnreadable``."""
    if row is None:
        return None
    try:
        call = decode_call(row)
    except UnreadableCallError as error:
        raise CallUnreadable(str(error)) from error
    return None if call.is_expired(now) else call
