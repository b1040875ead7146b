"""Changes of service calls: transitions are applied, calls are removed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.errors import StoreError
from duetime.domain.service_calls import CallStatus, ServiceCall, timer_of
from duetime.stores.mongodb.batches import Batches, Insert, NotWrittenError, Replace, Update, Write
from duetime.stores.mongodb.call_documents import call_key, encode_call, step_change
from duetime.stores.mongodb.call_removal import CallRemoval
from duetime.stores.mongodb.database import EXECUTIONS, OUTBOX, SERVICE_CALLS, TIMERS, Database, Session
from duetime.stores.mongodb.errors import translated
from duetime.stores.mongodb.event_documents import encode_event
from duetime.stores.mongodb.execution_documents import encode_execution, execution_key
from duetime.stores.mongodb.fencing import ShardFence
from duetime.stores.mongodb.schema import CALL_KEY
from duetime.stores.mongodb.timer_documents import encode, key_of
from duetime.stores.mongodb.values import instant, lenient
from duetime.stores.port.calls import ApplyStatus, DeleteStatus


class Calls:
    """One transaction per batch: all writes in one request, then the commit.

    The call's document is the fence: its revision has to match, or nothing of the transition is written.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._calls = database[SERVICE_CALLS]
        self._batches = Batches(database)
        self._fence = ShardFence(database)
        self._removal = CallRemoval(database)

    @translated
    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        lost = self._fence.lost(each.fence for each in transitions)
        kept = [transition for transition in transitions if transition.fence not in lost]
        applied = iter(self._apply_kept(kept, now))
        return [ApplyStatus.LEASE_LOST if each.fence in lost else next(applied) for each in transitions]

    def _apply_kept(self, transitions: Sequence[Transition], now: datetime) -> list[ApplyStatus]:
        """The usual case is that all of them can be written. Else a transaction each tells which cannot."""
        if not transitions:
            return []
        writes = [write for transition in transitions for write in _writes(transition, now)]
        try:
            self._database.transact(lambda session: self._batches.run_all(writes, session))
        except NotWrittenError:
            return [self._apply_alone(transition, now) for transition in transitions]
        return [ApplyStatus.APPLIED] * len(transitions)

    def _apply_alone(self, transition: Transition, now: datetime) -> ApplyStatus:
        before, after = transition.before, transition.after

        def write(session: Session) -> None:
            if before is None and after.idempotency_key is not None:
                # The key of a call that has expired is free.
                expired = {"expires_at": {"$lte": now}}
                key = {"tenant_id": after.tenant_id, "idempotency_key": after.idempotency_key}
                free = {"$unset": {"idempotency_key": ""}}  # the call goes when the dispatcher tells of it
                self._calls.update_one({**key, **expired}, free, session=session)
            self._batches.run_all(_writes(transition, now), session)

        try:
            self._database.transact(write)
        except NotWrittenError:
            if before is None:
                return ApplyStatus.EXISTS
            stored = self._calls.find_one(call_key(after.tenant_id, after.call_id), {"call_revision": 1})
            if stored is not None and stored.get("call_revision") == before.revision:
                raise StoreError("a service call's next event is already in the outbox") from None
            return ApplyStatus.SUPERSEDED
        return ApplyStatus.APPLIED

    @translated
    def delete_call(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        key = call_key(tenant_id, call_id)
        fields = {"call_revision": 1, "status": 1, "expires_at": 1}

        def delete(session: Session) -> DeleteStatus:
            stored = self._calls.find_one(key, fields, session=session)
            expires_at = None if stored is None else lenient(instant, stored, "expires_at", None)
            if stored is None or (expires_at is not None and expires_at <= now):
                return DeleteStatus.NOT_FOUND
            if if_revision not in (None, stored.get("call_revision")):
                return DeleteStatus.REVISION_MISMATCH
            if stored.get("status") == CallStatus.RUNNING.value:
                return DeleteStatus.RUNNING
            event_of = None if event is None else lambda _: event
            self._removal.remove(key, session, limit=1, event_of=event_of, now=now)
            return DeleteStatus.DELETED

        return self._database.transact(delete)


def _writes(transition: Transition, now: datetime) -> list[Write]:
    """All that a transition writes, the call first."""
    before, after = transition.before, transition.after
    timer = timer_of(after)
    writes: list[Write] = [
        Insert(SERVICE_CALLS, encode_call(after)) if before is None else _step(before, after),
        # Whatever the timer's document holds, or if it is missing, it becomes what the call says.
        Replace(collection=TIMERS, found_by=key_of(timer), document=encode(timer), upsert=True),
    ]
    for execution in transition.executions:
        key = execution_key(execution.tenant_id, execution.call_id, execution.execution_id)
        document = encode_execution(execution)
        writes.append(Replace(collection=EXECUTIONS, found_by=key, document=document, upsert=True))
    writes += [Insert(OUTBOX, encode_event(event, now=now)) for event in transition.events]
    return writes


def _step(before: ServiceCall, after: ServiceCall) -> Update:
    found_by = {**call_key(before.tenant_id, before.call_id), "call_revision": before.revision}
    change = step_change(before, after)
    return Update(collection=SERVICE_CALLS, found_by=found_by, change=change, hint=CALL_KEY)
