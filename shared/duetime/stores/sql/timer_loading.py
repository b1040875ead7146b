"""Timers that come from another store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import groupby
from operator import itemgetter
from typing import Any

import sqlalchemy as sa

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.core.timer_codec import UnreadableError, optional_milliseconds
from duetime.stores.port.transfer import LoadStatus
from duetime.stores.sql.bounded_rows import BoundedRows
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.loading import load_rows, status_of
from duetime.stores.sql.rows import (
    COLUMNS,
    KEY_NAMES,
    VALUE_NAMES,
    Row,
    decode,
    decode_or_salvage,
    encode_key,
    encode_values,
)
from duetime.stores.sql.tables import RowType, given, given_count, timers
from duetime.stores.sql.timer_rows import TimerRows

_ROW = timers.c
_TIMER_ID = [column.name for column in COLUMNS].index("timer_id")
_NAMES = (
    *KEY_NAMES,
    "timer_uuid",
    "row_type",
    "timer_created_at",
    "timer_updated_at",
    "timer_expires_at",
    *VALUE_NAMES,
)

Key = tuple[int, str, str]
"""Shard id, namespace, timer id."""


class TimerLoading:
    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._bounded = BoundedRows(database, rows)
        values = {name: given(name) for name in _NAMES}
        self._insert = database.prepare(database.insert_if_absent(timers).values(values), *_NAMES)
        key = sa.and_(*(_ROW[name] == given(f"key_{name}") for name in KEY_NAMES))
        key_names = [f"key_{name}" for name in KEY_NAMES]
        self._select = database.prepare(sa.select(*COLUMNS).where(key), *key_names)
        self._range = database.prepare(
            sa.select(*self._bounded.columns)
            .where(
                _ROW.timer_namespace == given("namespace"),
                _ROW.shard_id == given("shard"),
                _ROW.timer_id >= given("first"),
                _ROW.timer_id <= given("last"),
            )
            .order_by(_ROW.timer_id)
            .limit(given_count("limit")),
            "shard",
            "namespace",
            "first",
            "last",
            "limit",
        )
        self._delete = database.prepare(sa.delete(timers).where(key), *key_names)

    def load_timers(self, timers: Sequence[Timer], *, now: datetime) -> list[LoadStatus]:
        def insert(mutation: Mutation, absent: list[Timer]) -> int:
            return self._insert.many(
                mutation.connection, [_encode(timer) for timer in sorted(absent, key=encode_key)]
            )

        def find(connection: sa.Connection, items: Sequence[Timer]) -> list[LoadStatus | None]:
            rows = self._rows_among(connection, items)
            return [self._status(connection, timer, rows.get(encode_key(timer)), now) for timer in items]

        return load_rows(self._database, timers, insert=insert, find=find)

    def _rows_among(self, connection: sa.Connection, timers: Sequence[Timer]) -> dict[Key, Row]:
        """Rows of some of ``timers``, of most where a namespace holds little else between the first and the last.

        What is moved comes in the order of a list, so a batch that is there already takes a query and not hundreds.
        """
        found: dict[Key, Row] = {}
        for (shard_id, namespace), group in groupby(sorted(map(encode_key, timers)), key=itemgetter(0, 1)):
            ids = [timer_id for _, _, timer_id in group]
            most = 2 * len(ids)
            between = self._range.one(connection, shard_id, namespace, ids[0], ids[-1], most)
            for row in self._bounded.read(connection, between, most).rows:
                found[shard_id, namespace, row[_TIMER_ID]] = row
        return found

    def _status(self, connection: sa.Connection, timer: Timer, row: Row | None, now: datetime) -> LoadStatus | None:
        if row is None:
            row = self._select.one(connection, *encode_key(timer)).first()
        if row is None:
            return None
        if decode_or_salvage(row).is_expired(now):
            self._delete.one(connection, *encode_key(timer))
            return None
        try:
            return status_of(decode(row) == timer)
        except UnreadableError:
            return LoadStatus.CONFLICT


def _encode(timer: Timer) -> tuple[Any, ...]:
    """The values for ``_NAMES``. A finished timer's row has a place in the primary key that is never read."""
    is_finished = timer.next_attempt_at is None
    placed = replace(timer, next_attempt_at=timer.content.execute_at) if is_finished else timer
    return (
        *encode_key(timer),
        timer_uuid_bytes(timer.namespace, timer.timer_id),
        RowType.FINISHED.value if is_finished else RowType.TIMER.value,
        to_milliseconds(timer.created_at),
        to_milliseconds(timer.updated_at),
        optional_milliseconds(timer.expires_at),
        *encode_values(placed),
    )
