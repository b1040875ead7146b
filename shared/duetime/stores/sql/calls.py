"""Changes of service calls: transitions are applied, calls are removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreError
from duetime.domain.service_calls import CallStatus, ServiceCall
from duetime.stores.port.calls import ApplyStatus, CallRef, DeleteStatus
from duetime.stores.sql.call_rows import instant_text
from duetime.stores.sql.call_tables import outbox, service_calls
from duetime.stores.sql.call_writes import CallWrites
from duetime.stores.sql.database import Database
from duetime.stores.sql.fencing import ShardFence
from duetime.stores.sql.tables import constant, given

_CALL = service_calls.c


class Calls:
    """One transaction per batch. The call's row is the fence: nothing else is written unless its statement was."""

    def __init__(self, database: Database, writes: CallWrites) -> None:
        self._database = database
        self._writes = writes
        self._fence = ShardFence(database)
        prepare = database.prepare
        self._lock = prepare(
            sa.select(_CALL.call_revision, _CALL.status, _CALL.expires_at, _CALL.shard_id)
            .where(_CALL.tenant_id == given("tenant"), _CALL.service_call_id == given("call"))
            .with_for_update(),
            "tenant",
            "call",
        )
        self._expired_key = prepare(
            sa.select(_CALL.tenant_id, _CALL.service_call_id, _CALL.shard_id)
            .where(
                _CALL.tenant_id == given("tenant"),
                _CALL.idempotency_key == given("key"),
                _CALL.expires_at <= given("now"),
            )
            .with_for_update(),
            "tenant",
            "key",
            "now",
        )
        self._has_events = prepare(
            sa.select(outbox.c.id)
            .where(outbox.c.tenant_id == given("tenant"), outbox.c.aggregate_id == given("call"))
            .limit(constant(1)),
            "tenant",
            "call",
        )

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        if not transitions:
            return []
        with self._database.write(now) as mutation:
            lost = self._fence.lost(mutation, (each.fence for each in transitions))
            kept = [transition for transition in _in_lock_order(transitions) if transition.fence not in lost]
            if self._write_all(mutation.connection, kept):
                return [
                    ApplyStatus.LEASE_LOST if transition.fence in lost else ApplyStatus.APPLIED
                    for transition in transitions
                ]
            mutation.connection.rollback()
        return self._apply_each(transitions, now)

    def _write_all(self, connection: sa.Connection, transitions: Sequence[Transition]) -> bool:
        """The usual case: all of them can be written. False, and to be rolled back, when one cannot."""
        new = [transition.after for transition in transitions if transition.before is None]
        known = [transition for transition in transitions if transition.before is not None]
        return (
            self._writes.insert(connection, new) == len(new)
            and self._writes.step(connection, known) == len(known)
            and self._writes.complete(connection, transitions)
        )

    def _apply_each(self, transitions: Sequence[Transition], now: datetime) -> list[ApplyStatus]:
        """A statement per call, when a batch as a whole does not say which of them cannot be written."""
        statuses: dict[CallRef, ApplyStatus] = {}
        applied: list[Transition] = []
        with self._database.write(now) as mutation:
            lost = self._fence.lost(mutation, (each.fence for each in transitions))
            for transition in _in_lock_order(transitions):
                status = ApplyStatus.LEASE_LOST
                if transition.fence not in lost:
                    status = self._apply_one(mutation.connection, transition, now)
                statuses[_ref(transition)] = status
                if status is ApplyStatus.APPLIED:
                    applied.append(transition)
            if not self._writes.complete(mutation.connection, applied):
                raise StoreError("a service call's next event is already in the outbox")
        return [statuses[_ref(transition)] for transition in transitions]

    def _apply_one(self, connection: sa.Connection, transition: Transition, now: datetime) -> ApplyStatus:
        """Write the call alone, if it can be written."""
        if transition.before is None:
            is_new = self._insert_one(connection, transition.after, now)
            return ApplyStatus.APPLIED if is_new else ApplyStatus.EXISTS
        is_stored = self._writes.step(connection, [transition]) == 1
        return ApplyStatus.APPLIED if is_stored else ApplyStatus.SUPERSEDED

    def _insert_one(self, connection: sa.Connection, call: ServiceCall, now: datetime) -> bool:
        """False when its id or its key is taken; that of a call that has expired is free."""
        if self._has_events.one(connection, call.tenant_id, call.call_id).first() is not None:
            return False  # a removed call had this id, and not all of its events are pruned
        if call.idempotency_key is not None:
            values = (call.tenant_id, call.idempotency_key, instant_text(now))
            rows: list[Any] = list(self._expired_key.one(connection, *values).fetchall())
            expired = [(tenant_id, call_id) for tenant_id, call_id, _ in rows]
            self._writes.free_key(connection, expired)  # the call goes when the relay tells of it
        return self._writes.insert(connection, [call]) == 1

    def delete_call(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        with self._database.write(now) as mutation:
            row: Any = self._lock.one(mutation.connection, tenant_id, call_id).first()
            if row is None:
                return DeleteStatus.NOT_FOUND
            revision, status, expires_at, shard_id = row
            if expires_at is not None and expires_at <= instant_text(now):
                return DeleteStatus.NOT_FOUND
            if if_revision not in (None, revision):
                return DeleteStatus.REVISION_MISMATCH
            if status == CallStatus.RUNNING.value:
                return DeleteStatus.RUNNING
            self._writes.delete(mutation.connection, [(tenant_id, call_id, shard_id)])
            self._writes.tell(mutation.connection, [] if event is None else [event])
            return DeleteStatus.DELETED


def _in_lock_order(transitions: Sequence[Transition]) -> list[Transition]:
    """That of the timers' batches: transactions that meet on several rows must not wait for each other."""
    return sorted(transitions, key=lambda each: (each.after.shard_id, each.after.tenant_id, each.after.call_id))


def _ref(transition: Transition) -> CallRef:
    return CallRef(transition.after.tenant_id, transition.after.call_id)
