"""The end of attempts: outcomes are recorded, and finished timers whose time is up are removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import sqlalchemy as sa

from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.recording import record
from duetime.stores.sql.database import Database
from duetime.stores.sql.fencing import ShardFence
from duetime.stores.sql.rows import OUTCOME_NAMES, decode_or_salvage, encode_outcome
from duetime.stores.sql.tables import RowType, constant, given, given_count, timers
from duetime.stores.sql.timer_rows import Key, TimerRows

_ROW = timers.c


class Recording:
    """One transaction per batch: the leases are checked in it, and every row is fenced by revision and firing.

    What was refused is read, and written again where the attempt is still the row's.
    """

    def __init__(self, database: Database, rows: TimerRows) -> None:
        self._database = database
        self._rows = rows
        self._fence = ShardFence(database)
        self._prepare_record()
        self._prepare_prune()

    def _prepare_record(self) -> None:
        prepare, now = self._database.prepare, self._database.db_now.epoch_ms()
        self._record = prepare(
            sa.update(timers)
            .where(
                _ROW.shard_id == given("old_shard_id"),
                _ROW.row_type == constant(RowType.TIMER),
                _ROW.timer_execute_at == given("old_execute_at"),
                _ROW.timer_uuid == given("old_uuid"),
                _ROW.timer_revision == given("old_revision"),
                _ROW.timer_firing_id == given("old_firing_id"),
            )
            .values(
                row_type=given("new_row_type"),
                timer_execute_at=given("new_execute_at"),
                timer_state=given("new_state"),
                timer_due_at=given("new_due_at"),
                timer_revision=_ROW.timer_revision + constant(1),
                timer_firing_id=given("new_firing_id"),
                timer_attempts=given("new_attempts"),
                timer_updated_at=now,
                timer_fired_at=given("new_fired_at"),
                timer_failure=given("new_failure"),
                timer_expires_at=given("new_expires_at"),
                timer_attempt_log=given("new_attempt_log"),
            ),
            *OUTCOME_NAMES,
        )

    def _prepare_prune(self) -> None:
        prepare = self._database.prepare
        # A waiting timer does not expire, whatever damage has put into its row.
        is_expired = sa.and_(_ROW.row_type == constant(RowType.FINISHED), _ROW.timer_expires_at <= given("now"))
        self._expired = prepare(
            sa.select(_ROW.shard_id, _ROW.timer_execute_at, _ROW.timer_uuid)
            .where(is_expired)
            .order_by(_ROW.timer_expires_at)
            .limit(given_count("limit")),
            "now",
            "limit",
        )
        self._prune = prepare(
            sa.delete(timers).where(
                _ROW.shard_id == given("shard"),
                _ROW.row_type == constant(RowType.FINISHED),
                _ROW.timer_execute_at == given("at"),
                _ROW.timer_uuid == given("uuid"),
                # Again: it may have been replaced meanwhile, and have ended anew at the same instant.
                _ROW.timer_expires_at <= self._database.db_now.epoch_ms(),
            ),
            "shard",
            "at",
            "uuid",
        )

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        return record(outcomes, write=lambda some: self._write(some, now), read=self._read)

    def _read(self, timers: Sequence[Timer]) -> list[Timer | None]:
        keys = [_key(timer) for timer in timers]
        with self._database.read() as connection:
            found = {key: decode_or_salvage(row) for key, row in self._rows.some(connection, keys).items()}
        return [found.get(key) for key in keys]

    def _write(self, outcomes: Sequence[LeasedOutcome], now: datetime) -> list[RecordStatus]:
        if not outcomes:
            return []
        with self._database.write(now) as mutation:
            lost = self._fence.lost(mutation, (each.fence for each in outcomes))
            kept = [each for each in outcomes if each.fence not in lost] if lost else outcomes
            rows = [encode_outcome(each.outcome) for each in sorted(kept, key=_lock_order)]
            if self._record.many(mutation.connection, rows) == len(outcomes):
                return [RecordStatus.APPLIED] * len(outcomes)
            mutation.connection.rollback()
        return self._write_each(outcomes, now)

    def _write_each(self, outcomes: Sequence[LeasedOutcome], now: datetime) -> list[RecordStatus]:
        """One statement per outcome, when a batch as a whole does not say which of them were superseded."""
        statuses = [RecordStatus.SUPERSEDED] * len(outcomes)
        with self._database.write(now) as mutation:
            lost = self._fence.lost(mutation, (each.fence for each in outcomes))
            for index in sorted(range(len(outcomes)), key=lambda index: _lock_order(outcomes[index])):
                each = outcomes[index]
                if each.fence in lost:
                    statuses[index] = RecordStatus.LEASE_LOST
                elif self._record.count(mutation.connection, *encode_outcome(each.outcome)):
                    statuses[index] = RecordStatus.APPLIED
        return statuses

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        """``now`` tells whether to look; what goes, and does not come back, the database's time decides."""
        with self._database.read() as connection:
            if self._expired.one(connection, to_milliseconds(now), 1).first() is None:
                return 0
        with self._database.write(now) as mutation:
            now_ms = to_milliseconds(mutation.now)
            keys = [tuple(row) for row in self._expired.one(mutation.connection, now_ms, limit).fetchall()]
            return self._prune.many(mutation.connection, keys)


def _lock_order(each: LeasedOutcome) -> Key:
    """That of the clients' batches: transactions that meet on several rows must not wait for each other."""
    return _key(each.outcome.timer)


def _key(timer: Timer) -> Key:
    return timer.shard_id, timer.namespace, timer.timer_id
