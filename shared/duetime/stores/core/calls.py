"""Service calls: transitions are applied, calls are read and removed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.errors import CallUnreadable, StoreError
from duetime.domain.executions import Execution
from duetime.domain.service_calls import CallStatus, ServiceCall, calls_namespace
from duetime.domain.times import to_milliseconds
from duetime.stores import backend as writes
from duetime.stores.backend import Alike, Backend, Condition, Guard, Known, Query, Write, WriteStatus, Written, rounds
from duetime.stores.core.call_codec import (
    LISTED,
    REMOVED,
    STEP,
    call_changes,
    decode_call,
    encode_call,
    encode_timer,
    timer_known,
)
from duetime.stores.core.call_lists import CallLists
from duetime.stores.core.cursors import bound_cursor_of, bound_place_of
from duetime.stores.core.event_codec import READ, encode_event, readable_events
from duetime.stores.core.execution_codec import WITHOUT_BODIES, decode_or_salvage_execution, encode_execution
from duetime.stores.core.recording import guards_of
from duetime.stores.decoding import UnreadableError
from duetime.stores.entities import (
    CALL_OF_KEY,
    EVENT,
    EVENTS_OF_CALL,
    EXECUTION,
    EXECUTIONS_OF_CALL,
    EXPIRED_CALLS,
    PUBLISHED,
    SERVICE_CALL,
    TIMER,
)
from duetime.stores.entity import DAMAGED, Key, Row, Value
from duetime.stores.port.calls import ApplyStatus, CallRef, DeleteStatus, EventOf
from duetime.stores.port.pages import Page

_REVISION, _STATUS, _EXPIRES_AT, _SHARD = "call_revision", "status", "expires_at", "shard_id"
_EXPIRES_PLACE = LISTED.index(_EXPIRES_AT)
_OF_TIMER = (
    "timer_execute_at",
    "timer_state",
    "timer_due_at",
    "timer_expires_at",
    "timer_revision",
    "timer_firing_id",
    "timer_attempts",
    "timer_created_at",
    "timer_updated_at",
    "timer_fired_at",
    "timer_failure",
    "timer_digest",
    "timer_callback_timeout_seconds",
    "timer_callback_url",
)
"""What a step may have to write of a timer. The others stand in indexes, or no timer of a call has them."""
# Two, since a due time is None in all writes that are alike, or in none.
_TIMER_STEP, _TIMER_END = Alike(TIMER, _OF_TIMER, ()), Alike(TIMER, _OF_TIMER, ())
_CALLS_PER_READ = 50
_EVENTS_PER_READ = 500


class CallStore(CallLists):
    """Every operation but ``prune`` is within one tenant, and none reads another tenant's rows, whatever its
    arguments say. The rules for all parts are in ``stores.core.store``.

    The call's row is the fence: its revision has to match, or nothing of the transition is written. ``on_events`` are
    called, by any thread, when ``apply`` or ``delete`` has written events.
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.on_events: list[Callable[[], None]] = []

    # -- changes ---------------------------------------------------------------------------------------------

    def apply(self, transitions: Sequence[Transition], *, now: datetime) -> list[ApplyStatus]:
        """Store each transition with its executions, its events and the call's timer in one transaction.

        Each succeeds or fails alone; no two are of one call. Each is judged by its own ``fence``, as in
        ``TimerStore.record``. Instants inside the transitions are stored as they are. With ``before`` None a call may
        be in any state. Two with one idempotency key of a tenant: one is APPLIED, the other EXISTS.
        """
        if not transitions:
            return []
        guards = guards_of(each.fence for each in transitions)
        groups = [_group(each, guard) for each, guard in zip(transitions, guards, strict=True)]
        batch = self._backend.atomic(groups, now=now)
        statuses = [
            ApplyStatus.APPLIED if written is writes.WRITTEN else self._status(transition, written, now)
            for transition, written in zip(transitions, batch.results, strict=True)
        ]
        if any(
            status is ApplyStatus.APPLIED and transition.events
            for status, transition in zip(statuses, transitions, strict=True)
        ):
            self._tell_of_events()
        return statuses

    def _status(self, transition: Transition, written: Written, now: datetime) -> ApplyStatus:
        if written.status is WriteStatus.NOT_WRITTEN and self._free_key(transition, now):
            (guard,) = guards_of([transition.fence])
            (written,) = self._backend.atomic([_group(transition, guard)], now=now).results
        if written.error is not None:
            raise written.error
        if written.status is not WriteStatus.NOT_WRITTEN:
            return _STATUSES[written.status]
        before = transition.before
        if before is None:
            return ApplyStatus.EXISTS
        (row,) = self._backend.read(SERVICE_CALL, [_key(before)], fields=(_REVISION,))
        if row is not None and row[0] == before.revision:
            raise StoreError("a service call's next event is already in the outbox")
        return ApplyStatus.SUPERSEDED

    def _free_key(self, transition: Transition, now: datetime) -> bool:
        """Take the idempotency key of a new call from an expired call that has it; tell whether there was one."""
        call = transition.after
        if transition.before is not None or call.idempotency_key is None:
            return False
        row = self._of_idempotency_key(call.tenant_id, call.idempotency_key)
        if row is None or not _is_expired(row[SERVICE_CALL.places[_EXPIRES_AT]], now):
            return False
        # The expired call goes when its removal is told of.
        is_same = Condition(_REVISION, row[SERVICE_CALL.places[_REVISION]])
        free = writes.update(SERVICE_CALL, SERVICE_CALL.key_of(row), {"idempotency_key": None}, is_same)
        return self._backend.write([free], now=now).results[0].is_written

    def _of_idempotency_key(self, tenant_id: str, key: str) -> Row | None:
        found = self._backend.scan(Query(SERVICE_CALL, CALL_OF_KEY, by=(tenant_id, key), limit=1)).rows
        return found[0] if found else None

    def delete(
        self,
        tenant_id: str,
        call_id: str,
        *,
        now: datetime,
        if_revision: int | None = None,
        event: CallEvent | None = None,
    ) -> DeleteStatus:
        """Remove a call that is not Running with its timer, tags, idempotency key and executions.

        ``event`` tells of it, with ``if_revision``: it is stored in the transaction that removes the call. Events of
        a call stay until they are published and pruned; ``list_events`` no longer shows them. A store that needs
        several transactions removes the call last, so that a repeat completes the work.
        """
        for _ in rounds():
            (row,) = self._backend.read(SERVICE_CALL, [(tenant_id, call_id)], fields=REMOVED)
            if row is None:
                return DeleteStatus.NOT_FOUND
            values = dict(zip(REMOVED, row, strict=True))
            if _is_expired(values[_EXPIRES_AT], now):
                return DeleteStatus.NOT_FOUND
            if if_revision not in (None, values[_REVISION]):
                return DeleteStatus.REVISION_MISMATCH
            if values[_STATUS] == CallStatus.RUNNING.value:
                return DeleteStatus.RUNNING
            (written,) = self._backend.atomic([_removal(values, event)], now=now).checked()
            if written.is_written:
                if event is not None:
                    self._tell_of_events()
                return DeleteStatus.DELETED
        raise StoreError("the service call is changed again and again")

    def _tell_of_events(self) -> None:
        for tell in self.on_events:
            tell()

    def prune(
        self, *, now: datetime, events_published_before: datetime, limit: int, event_of: EventOf | None = None
    ) -> int:
        """Remove up to ``limit`` rows: events published before that time, and expired calls with all they have.

        Events of a starred call stay, whenever they were published. When it has lost its star, or is gone, they go as
        others do; a store may find that out later, by the time from ``events_published_before`` to ``now`` at most.

        ``event_of`` makes the event of each call that can be read (without the body of its request); it is stored in
        the transaction that removes the call. How many rows of either kind went. No unpublished event is removed.
        """
        pruned = self._prune_events(events_published_before, limit, now)
        while pruned < limit:
            found = min(limit - pruned, _CALLS_PER_READ)
            removed, is_last = self._remove_expired(now, found, event_of)
            pruned += removed
            if is_last:
                break
        return pruned

    def _prune_events(self, published_before: datetime, limit: int, now: datetime) -> int:
        """Remove published events of calls that are not starred, the oldest first; return how many went."""
        fields = (*EVENT.key, "published_at")
        doomed: list[Row] = []
        after = None
        while len(doomed) < limit:
            scan = self._backend.scan(
                Query(
                    EVENT,
                    PUBLISHED,
                    fields=fields,
                    after=after,
                    until=to_milliseconds(published_before) - 1,
                    limit=_EVENTS_PER_READ,
                )
            )
            calls = list(dict.fromkeys(row[:2] for row in scan.rows))
            stars = self._backend.read(SERVICE_CALL, calls, fields=("starred",)) if calls else []
            starred = {call for call, row in zip(calls, stars, strict=True) if row is not None and row[0] is True}
            doomed += [row for row in scan.rows if row[:2] not in starred]
            if scan.end is None:
                break
            after = scan.end
        if not doomed:
            return 0
        # The arguments tell whether to look. What goes does not come back: the database's time decides.
        before_ms = to_milliseconds(published_before + (self._backend.time(now=now).at - now))
        deletes = [
            writes.delete(EVENT, row[:3], Condition("published_at", row[3]))
            for row in doomed[:limit]
            if row[3] is DAMAGED or row[3] < before_ms
        ]
        return sum(written.is_written for written in self._backend.write(deletes, now=now).results)

    def _remove_expired(self, now: datetime, limit: int, event_of: EventOf | None) -> tuple[int, bool]:
        """Remove expired calls; return how many went, and whether there are no more."""
        scan = self._backend.scan(
            Query(SERVICE_CALL, EXPIRED_CALLS, fields=LISTED, until=to_milliseconds(now), limit=limit)
        )
        if not scan.rows:
            return 0, True
        at = self._backend.time(now=now).at
        groups = [_expiry(row, event_of) for row in scan.rows if _is_over(row[_EXPIRES_PLACE], at)]
        results = self._backend.atomic(groups, now=now).results
        removed = sum(written.is_written for written in results)
        return removed, scan.end is None or not removed

    # -- reads -----------------------------------------------------------------------------------------------

    def get(self, refs: Sequence[CallRef], *, now: datetime) -> list[ServiceCall | None]:
        """Whole calls, in the order of ``refs``; strongly consistent.

        Raises ``CallUnreadable`` when one of them cannot be decoded: asking for each alone tells which.
        """
        rows = self._backend.read(SERVICE_CALL, [(ref.tenant_id, ref.call_id) for ref in refs]) if refs else []
        return [_readable(row, now) for row in rows]

    def find_by_idempotency_key(self, tenant_id: str, key: str, *, now: datetime) -> ServiceCall | None:
        """Return the call that was submitted with ``key``; strongly consistent."""
        return _readable(self._of_idempotency_key(tenant_id, key), now)

    def get_execution(self, tenant_id: str, call_id: str, execution_id: str) -> Execution | None:
        """Strongly consistent."""
        (row,) = self._backend.read(EXECUTION, [(tenant_id, call_id, execution_id)])
        return None if row is None else decode_or_salvage_execution(row)

    def list_executions(
        self, tenant_id: str, call_id: str, *, cursor: str | None, limit: int, with_bodies: bool = True
    ) -> Page[Execution]:
        """Return the newest first. A cursor of another call is an ``InvalidCursor``.

        ``with_bodies`` False: neither the bodies that were sent nor those that came back are read, only their sizes.
        One execution may have 128 KiB of them.
        """
        query = (tenant_id, call_id, "executions")
        after = None if cursor is None else bound_place_of(cursor, query, EXECUTION, EXECUTIONS_OF_CALL)
        by, fields = (tenant_id, call_id), None if with_bodies else WITHOUT_BODIES
        scan = self._backend.scan(
            Query(EXECUTION, EXECUTIONS_OF_CALL, by=by, fields=fields, after=after, limit=limit)
        )
        end = None if scan.end is None else bound_cursor_of(scan.end, query)
        return Page([decode_or_salvage_execution(row) for row in scan.rows], end)

    def list_events(self, tenant_id: str, call_id: str, *, after: int, limit: int) -> list[CallEvent]:
        """Events with ``sequence > after`` in order; strongly consistent. Empty when the call is gone."""
        if self._backend.read(SERVICE_CALL, [(tenant_id, call_id)], fields=(_REVISION,)) == [None]:
            return []
        of_call = (tenant_id, call_id)
        scan = self._backend.scan(Query(EVENT, EVENTS_OF_CALL, by=of_call, fields=READ, after=(after,), limit=limit))
        return [stored.event for stored in readable_events(scan.rows)]


_STATUSES = {
    WriteStatus.WRITTEN: ApplyStatus.APPLIED,
    WriteStatus.GUARD_LOST: ApplyStatus.LEASE_LOST,
    WriteStatus.UNAVAILABLE: ApplyStatus.UNAVAILABLE,
}


def _key(call: ServiceCall) -> Key:
    return call.tenant_id, call.call_id


def _group(transition: Transition, guard: Guard | None) -> list[Write]:
    """Return all that a transition writes, the call first."""
    before, after = transition.before, transition.after
    # Whatever the timer's row holds, or if it is missing, it becomes what the call says.
    timer = encode_timer(after)
    if before is None:
        group = [
            writes.insert(SERVICE_CALL, encode_call(after), guard=guard, like="call"),
            writes.put(TIMER, timer, is_new=True, like="timer of a call" if after.wake_at is not None else None),
        ]
    else:
        changes, known = call_changes(before, after), lambda: dict(zip(LISTED, encode_call(before), strict=False))
        like, timer_like = None, None
        if len(changes) == len(STEP):
            like, timer_like = "step of a call", _TIMER_STEP if after.wake_at is not None else _TIMER_END
        is_same = Condition(_REVISION, before.revision)
        group = [
            writes.update(SERVICE_CALL, _key(after), changes, is_same, guard=guard, known=known, like=like),
            writes.put(TIMER, timer, known=_timer_before(before), like=timer_like),
        ]
    for execution in transition.executions:
        is_open = execution.finished_at is None
        like = "open execution" if is_open else "execution"
        group.append(writes.put(EXECUTION, encode_execution(execution), is_new=is_open, like=like))
    return group + [writes.insert(EVENT, encode_event(event), like="event") for event in transition.events]


def _timer_before(call: ServiceCall | None) -> Known | None:
    return None if call is None else lambda: dict(zip(TIMER.names, encode_timer(call), strict=True))


def _removal(values: Mapping[str, Value], event: CallEvent | None) -> list[Write]:
    """Return the writes that remove a call. ``values``: of ``REMOVED``, or more of its fields."""
    call, shard_id, revision = (values["tenant_id"], values["service_call_id"]), values[_SHARD], values[_REVISION]
    timer = (0 if shard_id is DAMAGED else shard_id, calls_namespace(call[0]), call[1])
    like = None if revision is DAMAGED else "removed call"
    group = [
        writes.delete(SERVICE_CALL, call, Condition(_REVISION, revision), known=lambda: values, like=like),
        writes.delete(TIMER, timer, known=lambda: timer_known(values), like="timer of a removed call"),
    ]
    return group if event is None else [*group, writes.insert(EVENT, encode_event(event), like="event")]


def _expiry(row: Row, event_of: EventOf | None) -> list[Write]:
    """Return the writes that remove an expired call, a row of ``LISTED``, with the event of one that can be
    read."""
    event = None
    if event_of is not None:
        with suppress(CallUnreadable, UnreadableError):
            event = event_of(decode_call(row))
    return _removal(dict(zip(LISTED, row, strict=True)), event)


def _is_over(expires_at: Value, at: datetime) -> bool:
    """Tell whether a call on the path of those that expire may go; one whose end cannot be read goes too."""
    return expires_at is DAMAGED or _is_expired(expires_at, at)


def _is_expired(expires_at: Value, now: datetime) -> bool:
    return expires_at is not None and expires_at is not DAMAGED and expires_at <= to_milliseconds(now)


def _readable(row: Row | None, now: datetime) -> ServiceCall | None:
    """Return the call of a row; None when there is none or it has expired. Raises ``CallUnreadable``."""
    if row is None:
        return None
    try:
        call = decode_call(row)
    except UnreadableError as error:
        raise CallUnreadable(str(error)) from error
    return None if call.is_expired(now) else call
