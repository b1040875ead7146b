"""The statements on single timer rows that the clients' operations share. They run inside a caller's transaction."""

from __future__ import annotations

from datetime import datetime

import sqlalchemy as sa

from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.rows import (
    COLUMNS,
    KEY_NAMES,
    VALUE_NAMES,
    Row,
    decode_or_salvage,
    encode_key,
    encode_values,
    uuid_bytes,
)
from duetime.stores.sql.tables import RowType, constant, given, timers

_TIMER = constant(RowType.TIMER)
_MAX_MOVES = 10
"""How often others may move a row, one after the other, while it is to be locked."""


class TimerRows:
    """Point access through ``idx_timer_lookup``."""

    def __init__(self, database: Database) -> None:
        self._locking_reads_miss_moved_rows = database.locking_reads_miss_moved_rows
        prepare, now = database.prepare, database.db_now.epoch_ms()
        row = timers.c
        key = sa.and_(
            row.timer_namespace == given("key_namespace"),
            row.shard_id == given("key_shard_id"),
            row.timer_id == given("key_timer_id"),
        )
        key_names = ("key_shard_id", "key_namespace", "key_timer_id")
        select = sa.select(*COLUMNS).where(key)
        self._select = prepare(select, *key_names)
        self._select_locked = prepare(select.with_for_update(), *key_names)
        values = {name: given(name) for name in (*KEY_NAMES, "timer_uuid", *VALUE_NAMES)}
        insert = {"row_type": _TIMER, "timer_created_at": now, "timer_updated_at": now, **values}
        self._insert = prepare(database.insert_if_absent(timers).values(insert), *values)
        change = {
            "row_type": _TIMER,
            "timer_created_at": given("timer_created_at"),
            "timer_updated_at": now,
            "timer_expires_at": sa.null(),
            **{name: given(name) for name in VALUE_NAMES},
        }
        self._update = prepare(
            sa.update(timers).where(key).values(change), *key_names, "timer_created_at", *VALUE_NAMES
        )
        self._delete = prepare(sa.delete(timers).where(key), *key_names)

    def find(
        self, connection: sa.Connection, shard_id: int, namespace: str, timer_id: str, *, now: datetime
    ) -> Timer | None:
        """The timer; None when there is none or it has expired."""
        return _present(self._select.one(connection, shard_id, namespace, timer_id).first(), now)

    def lock(
        self, mutation: Mutation, shard_id: int, namespace: str, timer_id: str, *, now: datetime
    ) -> Timer | None:
        """``find``, and nobody else changes the row before the transaction ends."""
        return _present(self.lock_row(mutation, shard_id, namespace, timer_id), now)

    def lock_row(self, mutation: Mutation, shard_id: int, namespace: str, timer_id: str) -> Row | None:
        """The row as it is, readable or not, expired or not; nobody else changes it before the transaction ends."""
        key = (shard_id, namespace, timer_id)
        for _ in range(_MAX_MOVES):
            row = self._select_locked.one(mutation.connection, *key).first()
            if row is not None or not self._locking_reads_miss_moved_rows:
                return row
            if self._select.one(mutation.connection, *key).first() is None:
                return None
        raise TransactionAborted("the timer is changed all the time")

    def insert(self, mutation: Mutation, timers: list[Timer]) -> int:
        """Insert first revisions whose ids are not taken; how many were inserted. Created and updated now."""
        return self._insert.many(
            mutation.connection,
            [
                (*encode_key(timer), uuid_bytes(timer.namespace, timer.timer_id), *encode_values(timer))
                for timer in timers
            ],
        )

    def update(self, mutation: Mutation, timers: list[Timer]) -> None:
        """Overwrite rows with timers that wait for an attempt. Updated now."""
        self._update.many(
            mutation.connection,
            [(*encode_key(timer), to_milliseconds(timer.created_at), *encode_values(timer)) for timer in timers],
        )

    def delete(self, mutation: Mutation, keys: list[tuple[int, str, str]]) -> None:
        """``keys`` of (shard id, namespace, timer id)."""
        self._delete.many(mutation.connection, list(keys))


def _present(row: Row | None, now: datetime) -> Timer | None:
    """The timer, readable or not; None when there is none or it has expired."""
    timer = None if row is None else decode_or_salvage(row)
    return None if timer is None or timer.is_expired(now) else timer
