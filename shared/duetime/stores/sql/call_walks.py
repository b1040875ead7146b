"""The ways through a tenant's service calls, each along one index in the order of its list.

A list takes the most telling of its conditions as its way and checks the others row by row (call_lists.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from duetime.domain.service_calls import CallStatus
from duetime.domain.times import to_milliseconds
from duetime.stores.bound_cursors import Position
from duetime.stores.port.calls import CallFilter, CallOrder
from duetime.stores.sql.call_rows import CALL_NAMES, LISTED_COLUMNS, Row, instant_text
from duetime.stores.sql.call_tables import IS_SCHEDULED, IS_STARRED, service_call_tags, service_calls
from duetime.stores.sql.database import Database
from duetime.stores.sql.prepared import Prepared
from duetime.stores.sql.tables import given, given_count

_CALL = service_calls.c
_TAG = service_call_tags.c
_ID, _NAME, _DUE_AT = map(CALL_NAMES.index, ("service_call_id", "name", "due_at"))
_BEFORE_ALL = ""
_AFTER_ALL = "~"
"""Sorts behind every id and every instant."""


@dataclass(frozen=True, slots=True)
class Walk:
    """``read(connection, position, limit)``: the rows behind a position, of which ``start`` is the first.

    ``covers``: the fields of the filter that need no further check. ``is_beyond(row)``: neither this row nor any
    behind it belongs to the list.
    """

    start: Position
    read: Callable[[sa.Connection, Position, int], list[Row]]
    position_of: Callable[[Row], Position]
    covers: frozenset[str]
    is_beyond: Callable[[Row], bool] = lambda _: False


class CallWalks:
    """Ids are UUIDv7s made when their call was submitted, so a walk by id is one by time, and dates bound it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        of_tenant = sa.select(*LISTED_COLUMNS).where(_CALL.tenant_id == given("tenant"))
        self._all = self._by_id(of_tenant)
        self._starred = self._by_id(of_tenant.where(IS_STARRED))
        self._with_status = self._by_id(of_tenant.where(_CALL.status == given("key")), "key")
        self._correlated = self._by_id(of_tenant.where(_CALL.correlation_id == given("key")), "key")
        self._tagged = self._prepare_tagged()
        self._prepare_names(of_tenant)
        self._prepare_due(of_tenant.where(IS_SCHEDULED))

    def walk_for(self, tenant_id: str, call_filter: CallFilter) -> Walk:
        """The way of a list; the precedence is by how much each condition is likely to leave out."""
        if call_filter.order is CallOrder.DUE:
            if call_filter.status is not CallStatus.SCHEDULED:
                raise ValueError("by due time there are only Scheduled calls")
            return self._due_walk(tenant_id, call_filter)
        if call_filter.name_prefix is not None:
            return self._name_walk(tenant_id, call_filter.name_prefix)
        if call_filter.correlation_id is not None:
            return _id_walk(self._correlated, call_filter, "correlation_id", tenant_id, call_filter.correlation_id)
        if call_filter.tags:
            is_only = len(call_filter.tags) == 1
            return _id_walk(self._tagged, call_filter, "tags" if is_only else "", tenant_id, call_filter.tags[0])
        if call_filter.starred:
            return _id_walk(self._starred, call_filter, "starred", tenant_id)
        if call_filter.status is not None:
            return _id_walk(self._with_status, call_filter, "status", tenant_id, call_filter.status.value)
        return _id_walk(self._all, call_filter, "", tenant_id)

    def _by_id(
        self, calls: sa.Select[Any], *names: str, call_id: sa.ColumnElement[str] = _CALL.service_call_id
    ) -> Prepared:
        """The newest first, from ``since`` up to but without ``before``."""
        return self._database.prepare(
            calls.where(call_id < given("before"), call_id >= given("since"))
            .order_by(call_id.desc())
            .limit(given_count("limit")),
            "tenant",
            *names,
            "before",
            "since",
            "limit",
        )

    def _prepare_tagged(self) -> Prepared:
        of_tag = (
            sa.select(*LISTED_COLUMNS)
            .select_from(service_call_tags.join(service_calls))
            .where(_TAG.tenant_id == given("tenant"), _TAG.tag == given("key"))
        )
        return self._by_id(of_tag, "key", call_id=_TAG.service_call_id)

    def _prepare_names(self, of_tenant: sa.Select[Any]) -> None:
        prepare, newest = self._database.prepare, _CALL.service_call_id.desc()
        name, limit = given("name"), given_count("limit")
        rest = of_tenant.where(_CALL.name == name, _CALL.service_call_id < given("before")).order_by(newest)
        following = of_tenant.where(_CALL.name > name).order_by(_CALL.name, newest)
        self._rest_of_name = prepare(rest.limit(limit), "tenant", "name", "before", "limit")
        self._next_names = prepare(following.limit(limit), "tenant", "name", "limit")

    def _name_walk(self, tenant_id: str, prefix: str) -> Walk:
        def read(connection: sa.Connection, position: Position, limit: int) -> list[Row]:
            name, before = position
            rows: list[Row] = [*self._rest_of_name.one(connection, tenant_id, name, before, limit).fetchall()]
            if len(rows) < limit:
                rows += self._next_names.one(connection, tenant_id, name, limit - len(rows)).fetchall()
            return rows

        return Walk(
            start=[prefix, _AFTER_ALL],
            read=read,
            position_of=lambda row: [row[_NAME], row[_ID]],
            covers=frozenset({"name_prefix"}),
            is_beyond=lambda row: not row[_NAME].startswith(prefix),
        )

    def _prepare_due(self, scheduled: sa.Select[Any]) -> None:
        prepare, call_id = self._database.prepare, _CALL.service_call_id
        at, limit = given("at"), given_count("limit")
        rest = scheduled.where(_CALL.due_at == at, call_id > given("after")).order_by(call_id)
        following = scheduled.where(_CALL.due_at > at, _CALL.due_at <= given("until"))
        self._rest_of_instant = prepare(rest.limit(limit), "tenant", "at", "after", "limit")
        self._next_instants = prepare(
            following.order_by(_CALL.due_at, call_id).limit(limit), "tenant", "at", "until", "limit"
        )

    def _due_walk(self, tenant_id: str, call_filter: CallFilter) -> Walk:
        until = _AFTER_ALL if call_filter.due_to is None else instant_text(call_filter.due_to)

        def read(connection: sa.Connection, position: Position, limit: int) -> list[Row]:
            at, after = position
            rows: list[Row] = []
            if at != _BEFORE_ALL:
                rows += self._rest_of_instant.one(connection, tenant_id, at, after, limit).fetchall()
            if len(rows) < limit:
                rows += self._next_instants.one(connection, tenant_id, at, until, limit - len(rows)).fetchall()
            return rows

        return Walk(
            start=[_BEFORE_ALL, _BEFORE_ALL],
            read=read,
            position_of=lambda row: [row[_DUE_AT], row[_ID]],
            covers=frozenset({"status", "due_to"}),
        )


def _id_walk(statement: Prepared, call_filter: CallFilter, covered: str, *key: str) -> Walk:
    """``key``: the tenant and what else the index is entered with."""
    submitted_from, submitted_to = call_filter.submitted_from, call_filter.submitted_to
    since = _BEFORE_ALL if submitted_from is None else _id_prefix(to_milliseconds(submitted_from))

    def read(connection: sa.Connection, position: Position, limit: int) -> list[Row]:
        return list(statement.one(connection, *key, position[0], since, limit).fetchall())

    return Walk(
        start=[_AFTER_ALL if submitted_to is None else _id_prefix(to_milliseconds(submitted_to))],
        read=read,
        position_of=lambda row: [row[_ID]],
        covers=frozenset({covered, "submitted_from", "submitted_to"}),
    )


def _id_prefix(milliseconds: int) -> str:
    """What the UUIDv7s of that millisecond begin with: all of them sort behind it, all earlier ones before it."""
    stamp = f"{milliseconds:012x}"
    return f"{stamp[:8]}-{stamp[8:]}"
