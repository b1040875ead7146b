"""The statements on single timer rows that the clients' operations share. They run inside a caller's transaction."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from operator import itemgetter

import sqlalchemy as sa

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.core.timer_codec import optional_milliseconds
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.rows import COLUMNS, KEY_NAMES, VALUE_NAMES, Row, decode_or_salvage, encode_key, encode_values
from duetime.stores.sql.tables import RowType, constant, given, timers

Key = tuple[int, str, str]
"""Shard id, namespace, timer id."""
_TIMER = constant(RowType.TIMER)
SHARD_ID, _NAMESPACE, TIMER_ID = map(
    [column.name for column in COLUMNS].index, ("shard_id", "timer_namespace", "timer_id")
)
_END_NAMES = ("timer_state", "timer_revision", "timer_expires_at")
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
        some = sa.select(*COLUMNS).where(
            row.timer_namespace == given("key_namespace"), row.shard_id == given("key_shard_id")
        )
        self._select_some = database.prepare_list(some, row.timer_id, *key_names[:2])
        locked = some.order_by(row.timer_id).with_for_update()
        self._select_locked = database.prepare_list(locked, row.timer_id, *key_names[:2])
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
        end = {
            "row_type": constant(RowType.FINISHED),
            "timer_updated_at": now,
            **{name: given(name) for name in _END_NAMES},
        }
        self._end = prepare(sa.update(timers).where(key).values(end), *key_names, *_END_NAMES)
        self._delete = prepare(sa.delete(timers).where(key), *key_names)

    def find(
        self, connection: sa.Connection, shard_id: int, namespace: str, timer_id: str, *, now: datetime
    ) -> Timer | None:
        """The timer; None when there is none or it has expired."""
        return present(self.find_row(connection, shard_id, namespace, timer_id), now)

    def find_row(self, connection: sa.Connection, shard_id: int, namespace: str, timer_id: str) -> Row | None:
        """The row, readable or not, expired or not."""
        return self._select.one(connection, shard_id, namespace, timer_id).first()

    def lock(self, mutation: Mutation, keys: Iterable[Key], *, now: datetime) -> dict[Key, Timer | None]:
        """``find`` for each of ``keys``, and nobody else changes the rows before the transaction ends."""
        rows = self.lock_rows(mutation, keys)
        return {key: present(row, now) for key, row in rows.items()}

    def lock_rows(self, mutation: Mutation, keys: Iterable[Key]) -> dict[Key, Row | None]:
        """The rows as they are, readable or not, expired or not; nobody else changes them before the transaction
        ends. They are locked in the order of their keys, so that two batches never wait for each other."""
        wanted = sorted(set(keys))
        found: dict[Key, Row | None] = dict.fromkeys(wanted)
        for (shard_id, namespace), group in groupby(wanted, key=itemgetter(0, 1)):
            rows = self._lock_ids(mutation, shard_id, namespace, [timer_id for _, _, timer_id in group])
            found |= {(shard_id, namespace, timer_id): row for timer_id, row in rows.items()}
        return found

    def _lock_ids(self, mutation: Mutation, shard_id: int, namespace: str, timer_ids: list[str]) -> dict[str, Row]:
        found: dict[str, Row] = {}
        missing = timer_ids
        for _ in range(_MAX_MOVES):
            rows = self._select_locked.rows(mutation.connection, missing, shard_id, namespace)
            found |= {row[TIMER_ID]: row for row in rows}
            missing = [timer_id for timer_id in timer_ids if timer_id not in found]
            if not missing or not self._locking_reads_miss_moved_rows:
                return found
            seen = self._select_some.rows(mutation.connection, missing, shard_id, namespace)
            if not seen:
                return found
            missing = [row[TIMER_ID] for row in seen]
        raise TransactionAborted("the timer is changed all the time")

    def some(self, connection: sa.Connection, keys: Iterable[Key]) -> dict[Key, Row]:
        """The rows of those of ``keys`` that there are, expired or not."""
        found: dict[Key, Row] = {}
        for (shard_id, namespace), group in groupby(sorted(keys), key=itemgetter(0, 1)):
            timer_ids = [timer_id for _, _, timer_id in group]
            for row in self._select_some.rows(connection, timer_ids, shard_id, namespace):
                found[shard_id, namespace, row[TIMER_ID]] = row
        return found

    def insert(self, mutation: Mutation, timers: list[Timer]) -> int:
        """Insert first revisions whose ids are not taken; how many were inserted. Created and updated now."""
        return self._insert.many(
            mutation.connection,
            [
                (*encode_key(timer), timer_uuid_bytes(timer.namespace, timer.timer_id), *encode_values(timer))
                for timer in timers
            ],
        )

    def update(self, mutation: Mutation, timers: list[Timer]) -> None:
        """Overwrite rows with timers that wait for an attempt. Updated now."""
        self._update.many(
            mutation.connection,
            [(*encode_key(timer), to_milliseconds(timer.created_at), *encode_values(timer)) for timer in timers],
        )

    def end(self, mutation: Mutation, timers: list[Timer]) -> None:
        """Make rows those of finished timers. Updated now."""
        self._end.many(
            mutation.connection,
            [
                (*encode_key(timer), timer.state.value, timer.revision, optional_milliseconds(timer.expires_at))
                for timer in timers
            ],
        )

    def delete(self, mutation: Mutation, keys: list[Key]) -> None:
        self._delete.many(mutation.connection, list(keys))


def key_of_row(row: Row) -> Key:
    return row[SHARD_ID], row[_NAMESPACE], row[TIMER_ID]


def present(row: Row | None, now: datetime) -> Timer | None:
    """The timer, readable or not; None when there is none or it has expired."""
    timer = None if row is None else decode_or_salvage(row)
    return None if timer is None or timer.is_expired(now) else timer
