"""What pollers do: read due timers, record outcomes, take unreadable rows aside, prune what has expired."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.errors import InvalidCursor
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import from_milliseconds, to_milliseconds
from duetime.stores.port import DuePage, UnreadableRow
from duetime.stores.sql.database import Database, Mutation
from duetime.stores.sql.rows import (
    COLUMNS,
    OUTCOME_NAMES,
    UnreadableError,
    decode,
    encode_failure,
    encode_outcome,
)
from duetime.stores.sql.tables import RowType, constant, given, given_count, timers

_ROW = timers.c
_TIMER = constant(RowType.TIMER)
_FINISHED = constant(RowType.FINISHED)
_SHARD = constant(RowType.SHARD)
_UUID_INDEX, _REVISION_INDEX = len(COLUMNS), [column.name for column in COLUMNS].index("timer_revision")


class Firing:
    """Due timers are a range of the primary key: (shard, TIMER, ``timer_execute_at``, uuid)."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._prepare_due()
        self._prepare_record()
        self._prepare_housekeeping()

    def _prepare_due(self) -> None:
        prepare = self._database.prepare
        waiting = sa.and_(_ROW.shard_id == given("shard"), _ROW.row_type == _TIMER)
        at, limit = given("at"), given_count("limit")
        select = sa.select(*COLUMNS, _ROW.timer_uuid).where(waiting)
        self._next = prepare(
            sa.select(_ROW.timer_execute_at)
            .where(waiting, _ROW.timer_execute_at > at)
            .order_by(_ROW.timer_execute_at)
            .limit(constant(1)),
            "shard",
            "at",
        )
        self._due = prepare(
            select.where(_ROW.timer_execute_at > at, _ROW.timer_execute_at <= given("until"))
            .order_by(_ROW.timer_execute_at, _ROW.timer_uuid)
            .limit(limit),
            "shard",
            "at",
            "until",
            "limit",
        )
        self._due_at_instant = prepare(
            select.where(_ROW.timer_execute_at == at, _ROW.timer_uuid > given("uuid"))
            .order_by(_ROW.timer_uuid)
            .limit(limit),
            "shard",
            "at",
            "uuid",
            "limit",
        )

    def _prepare_record(self) -> None:
        prepare, now = self._database.prepare, self._database.db_now.epoch_ms()
        bind = {name: given(name) for name in OUTCOME_NAMES}
        self._owner = prepare(
            sa.select(_ROW.shard_version, _ROW.shard_owner_id)
            .where(_ROW.shard_id == given("shard"), _ROW.row_type == _SHARD)
            .with_for_update(),
            "shard",
        )
        self._record = prepare(
            sa.update(timers)
            .where(
                _ROW.shard_id == bind["old_shard_id"],
                _ROW.row_type == _TIMER,
                _ROW.timer_execute_at == bind["old_execute_at"],
                _ROW.timer_uuid == bind["old_uuid"],
                _ROW.timer_revision == bind["old_revision"],
                _ROW.timer_firing_id == bind["old_firing_id"],
            )
            .values(
                row_type=bind["new_row_type"],
                timer_execute_at=bind["new_execute_at"],
                timer_state=bind["new_state"],
                timer_due_at=bind["new_due_at"],
                timer_revision=_ROW.timer_revision + constant(1),
                timer_firing_id=bind["new_firing_id"],
                timer_attempts=bind["new_attempts"],
                timer_updated_at=now,
                timer_fired_at=bind["new_fired_at"],
                timer_failure=bind["new_failure"],
                timer_expires_at=bind["new_expires_at"],
            ),
            *OUTCOME_NAMES,
        )

    def _prepare_housekeeping(self) -> None:
        prepare, now = self._database.prepare, self._database.db_now.epoch_ms()
        primary_key = sa.and_(
            _ROW.shard_id == given("shard"),
            _ROW.timer_execute_at == given("at"),
            _ROW.timer_uuid == given("uuid"),
        )
        key_names = ("shard", "at", "uuid")
        self._quarantine = prepare(
            sa.update(timers)
            .where(primary_key, _ROW.row_type == _TIMER, _ROW.timer_revision == given("revision"))
            .values(
                row_type=_FINISHED,
                timer_state=constant(TimerState.FAILED.value),
                timer_revision=_ROW.timer_revision + constant(1),
                timer_updated_at=now,
                timer_failure=given("failure"),
            ),
            *key_names,
            "revision",
            "failure",
        )
        expired = _ROW.timer_expires_at <= given("now")
        self._expired = prepare(
            sa.select(_ROW.shard_id, _ROW.timer_execute_at, _ROW.timer_uuid)
            .where(expired, _ROW.row_type == _FINISHED)
            .order_by(_ROW.timer_expires_at)
            .limit(given_count("limit")),
            "now",
            "limit",
        )
        self._prune = prepare(sa.delete(timers).where(primary_key, _ROW.row_type == _FINISHED), *key_names)

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        known_next: datetime | None = None,
    ) -> DuePage:
        until_ms = to_milliseconds(until)
        with self._database.read() as connection:
            rows = self._due_rows(connection, shard_id, until_ms, limit, cursor)
            if len(rows) == limit:
                at, uuid = rows[-1][2], rows[-1][_UUID_INDEX]
                return _page(rows, cursor=f"{at}:{uuid.hex()}")
            next_ms: int | None = self._next.one(connection, shard_id, until_ms).scalar()
        next_attempt_at = None if next_ms is None else from_milliseconds(next_ms)
        if known_next is not None and (next_attempt_at is None or known_next < next_attempt_at):
            next_attempt_at = known_next
        return _page(rows, next_attempt_at=next_attempt_at)

    def _due_rows(
        self, connection: sa.Connection, shard_id: int, until_ms: int, limit: int, cursor: str | None
    ) -> list[Any]:
        if cursor is None:
            return list(self._due.one(connection, shard_id, -1, until_ms, limit).fetchall())
        at, uuid = _read_cursor(cursor)
        rows = list(self._due_at_instant.one(connection, shard_id, at, uuid, limit).fetchall())
        if len(rows) < limit:
            rows += self._due.one(connection, shard_id, at, until_ms, limit - len(rows)).fetchall()
        return rows

    def record(
        self, outcomes: Sequence[Outcome], *, leases: Mapping[int, Lease], now: datetime
    ) -> list[RecordStatus]:
        if not outcomes:
            return []
        with self._database.write(now) as mutation:
            lost = self._lost_shards(mutation, outcomes, leases)
            kept = [outcome for outcome in outcomes if not _is_lost(outcome, lost)] if lost else outcomes
            rows = [encode_outcome(outcome) for outcome in kept]
            if self._record.many(mutation.connection, rows) == len(outcomes):
                return [RecordStatus.APPLIED] * len(outcomes)
            mutation.connection.rollback()
        return self._record_each(outcomes, leases, now)

    def _record_each(
        self, outcomes: Sequence[Outcome], leases: Mapping[int, Lease], now: datetime
    ) -> list[RecordStatus]:
        """One statement per outcome, when a batch as a whole does not say which of them were superseded."""
        statuses: list[RecordStatus] = []
        with self._database.write(now) as mutation:
            lost = self._lost_shards(mutation, outcomes, leases)
            for outcome in outcomes:
                if _is_lost(outcome, lost):
                    statuses.append(RecordStatus.LEASE_LOST)
                elif self._record.count(mutation.connection, *encode_outcome(outcome)):
                    statuses.append(RecordStatus.APPLIED)
                else:
                    statuses.append(RecordStatus.SUPERSEDED)
        return statuses

    def _lost_shards(self, mutation: Mutation, outcomes: Sequence[Outcome], leases: Mapping[int, Lease]) -> set[int]:
        """The shards whose lease is not the stored one. The others' ownership rows stay locked until the end."""
        shard_ids = {outcome.timer.shard_id for outcome in outcomes if not _is_parked(outcome)}
        return {shard_id for shard_id in shard_ids if not self._is_held(mutation, shard_id, leases)}

    def _is_held(self, mutation: Mutation, shard_id: int, leases: Mapping[int, Lease]) -> bool:
        lease = leases.get(shard_id)
        row = self._owner.one(mutation.connection, shard_id).first()
        return lease is not None and row is not None and tuple(row) == (lease.version, lease.owner_id)

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime) -> None:
        if not rows:
            return
        with self._database.write(now) as mutation:
            values = []
            for row in rows:
                at, uuid, revision = json.loads(row.key)
                failure = encode_failure(Failure(FailureReason.UNREADABLE, row.reason, mutation.now))
                values.append((row.shard_id, at, bytes.fromhex(uuid), revision, failure))
            self._quarantine.many(mutation.connection, values)

    def prune_expired(self, *, now: datetime, limit: int) -> int:
        now_ms = to_milliseconds(now)
        with self._database.read() as connection:
            if self._expired.one(connection, now_ms, 1).first() is None:
                return 0
        with self._database.write(now) as mutation:
            keys = [tuple(row) for row in self._expired.one(mutation.connection, now_ms, limit)]
            return self._prune.many(mutation.connection, keys)


def _is_parked(outcome: Outcome) -> bool:
    """Fenced by its revision alone: the row belongs to the attempt that parked it."""
    return outcome.timer.state is TimerState.FIRING


def _is_lost(outcome: Outcome, lost_shards: set[int]) -> bool:
    return outcome.timer.shard_id in lost_shards and not _is_parked(outcome)


def _page(rows: list[Any], *, cursor: str | None = None, next_attempt_at: datetime | None = None) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        *values, uuid = row
        try:
            found.append(decode(values))
        except UnreadableError as error:
            key = json.dumps([row[2], uuid.hex(), row[_REVISION_INDEX]])
            unreadable.append(UnreadableRow(row[0], key, str(error)))
    return DuePage(found, cursor, next_attempt_at, tuple(unreadable))


def _read_cursor(cursor: str) -> tuple[int, bytes]:
    at, _, uuid = cursor.partition(":")
    try:
        return int(at), bytes.fromhex(uuid)
    except ValueError:
        raise InvalidCursor("cursor", "the cursor does not belong to these timers") from None
