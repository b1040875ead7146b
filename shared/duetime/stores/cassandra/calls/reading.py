"""Service calls, executions and events of one call, read by their keys."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.errors import InvalidCursor
from duetime.domain.executions import Execution
from duetime.domain.service_calls import ServiceCall
from duetime.stores.bound_cursors import read_cursor, write_cursor
from duetime.stores.cassandra.calls.documents import decode_or_salvage_execution, readable_events
from duetime.stores.cassandra.calls.keys import Keys
from duetime.stores.cassandra.calls.partition import Partitions, Stored
from duetime.stores.cassandra.calls.tables import EXECUTION
from duetime.stores.cassandra.requests import Requests, Row, Statement
from duetime.stores.port.calls import CallRef
from duetime.stores.port.pages import Page

_OF_CALL = f"FROM service_calls WHERE tenant_id = ? AND call_id = ? AND kind = '{EXECUTION}'"
_IN_REVERSE = "ORDER BY kind DESC, position DESC"
_BEHIND_ALL = "~"


class Reading:
    _requests: Requests
    _partitions: Partitions
    _keys: Keys

    def get_calls(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        wanted = list(dict.fromkeys(refs))
        read = dict(zip(wanted, self._partitions.read_whole(wanted), strict=True))
        return [_readable(read[ref], now) for ref in refs]

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        row = self._keys.holder(tenant_id, key)
        if row is None:
            return None
        stored = self._partitions.read(CallRef(tenant_id, row["call_id"]))
        return _readable(stored, now) if stored.idempotency_key == key else None

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        positions = self._requests.read(Statement(f"SELECT position {_OF_CALL}", (tenant_id, call_id)))
        for row in positions:
            if row["position"].partition("/")[2] == execution_id:
                cql = f"SELECT position, content {_OF_CALL} AND position = ?"
                found = self._requests.read(Statement(cql, (tenant_id, call_id, row["position"])))
                return decode_or_salvage_execution(tenant_id, call_id, found[0]) if found else None
        return None

    def list_executions(self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int) -> Page[Execution]:
        query = (tenant_id, call_id, "executions")
        before = _BEHIND_ALL if cursor is None else _read_position(cursor, query)
        cql = f"SELECT position, content {_OF_CALL} AND position < ? {_IN_REVERSE} LIMIT ?"
        rows: list[Row] = self._requests.read(Statement(cql, (tenant_id, call_id, before, limit + 1)))
        items = [decode_or_salvage_execution(tenant_id, call_id, row) for row in rows[:limit]]
        has_more = len(rows) > limit
        return Page(items, write_cursor([rows[limit - 1]["position"]], query) if has_more else None)

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        ref = CallRef(tenant_id, call_id)
        if self._partitions.read_state(ref).revision is None:
            return []
        rows = self._partitions.events(ref, after=after, limit=limit)
        return [stored.event for stored in readable_events(tenant_id, call_id, rows)]


def _read_position(cursor: str, query: tuple[str, ...]) -> str:
    (position,) = read_cursor(cursor, query, parts=1)
    if not position[:1].isdecimal():
        raise InvalidCursor("cursor", "the cursor does not belong to this list")
    return position


def _readable(stored: Stored, now: datetime) -> ServiceCall | None:
    """None when there is no call or it has expired. Raises ``CallUnreadable``."""
    return stored.call() if stored.is_there(now) else None
