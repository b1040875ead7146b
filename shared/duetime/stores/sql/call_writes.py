"""The statements that write service calls and what hangs on them. They run inside a caller's transaction.

Each runs for a whole batch at once, so a batch takes the same few statements however large it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from duetime.domain.call_events import CallEvent
from duetime.domain.call_steps import Transition
from duetime.domain.executions import Execution, ExecutionStatus
from duetime.domain.service_calls import ServiceCall
from duetime.stores.sql.call_rows import (
    CALL_NAMES,
    LABEL_NAMES,
    REQUEST_NAMES,
    STEP_NAMES,
    encode_call,
    encode_labels,
    encode_request,
    encode_step,
    has_other_labels,
)
from duetime.stores.sql.call_tables import http_execution_log, outbox, service_call_tags, service_calls
from duetime.stores.sql.call_timers import CallTimers
from duetime.stores.sql.database import Database
from duetime.stores.sql.event_rows import EVENT_NAMES, encode_event
from duetime.stores.sql.execution_rows import EXECUTION_KEY_NAMES, EXECUTION_NAMES, encode_execution
from duetime.stores.sql.tables import given

_CALL = service_calls.c
_KEY = ("key_tenant_id", "key_call_id")


def _values(names: Iterable[str]) -> dict[str, Any]:
    return {name: given(name) for name in names}


class CallWrites:
    def __init__(self, database: Database) -> None:
        prepare, absent = database.prepare, database.insert_if_absent
        self._timers = CallTimers(database)
        is_call = sa.and_(_CALL.tenant_id == given(_KEY[0]), _CALL.service_call_id == given(_KEY[1]))
        self._insert = prepare(absent(service_calls).values(_values(CALL_NAMES)), *CALL_NAMES)
        self._step = prepare(
            sa.update(service_calls)
            .where(is_call, _CALL.call_revision == given("key_revision"))
            .values(_values(STEP_NAMES)),
            *_KEY,
            "key_revision",
            *STEP_NAMES,
        )
        self._label = prepare(
            sa.update(service_calls).where(is_call).values(_values(LABEL_NAMES)), *_KEY, *LABEL_NAMES
        )
        self._request = prepare(
            sa.update(service_calls).where(is_call).values(_values(REQUEST_NAMES)), *_KEY, *REQUEST_NAMES
        )
        self._delete = prepare(sa.delete(service_calls).where(is_call), *_KEY)
        self._unkey = prepare(sa.update(service_calls).where(is_call).values(idempotency_key=sa.null()), *_KEY)
        tag = service_call_tags.c
        tag_names = (tag.tenant_id.name, tag.service_call_id.name, tag.tag.name)
        self._tag = prepare(absent(service_call_tags).values(_values(tag_names)), *tag_names)
        self._untag = prepare(
            sa.delete(service_call_tags).where(
                tag.tenant_id == given(_KEY[0]), tag.service_call_id == given(_KEY[1])
            ),
            *_KEY,
        )
        self._prepare_logs(database)

    def _prepare_logs(self, database: Database) -> None:
        prepare, absent, log = database.prepare, database.insert_if_absent, http_execution_log
        self._log = prepare(absent(log).values(_values(EXECUTION_NAMES)), *EXECUTION_NAMES)
        is_execution = sa.and_(*(log.c[name] == given(f"key_{name}") for name in EXECUTION_KEY_NAMES))
        rest = EXECUTION_NAMES[len(EXECUTION_KEY_NAMES) :]
        key_names = [f"key_{name}" for name in EXECUTION_KEY_NAMES]
        self._relog = prepare(sa.update(log).where(is_execution).values(_values(rest)), *key_names, *rest)
        event = _values(EVENT_NAMES) | {"created_at": database.db_now.iso_text()}
        self._event = prepare(absent(outbox).values(event), *EVENT_NAMES)

    def insert(self, connection: sa.Connection, calls: Sequence[ServiceCall]) -> int:
        """Insert calls whose id and idempotency key are not taken; how many were inserted."""
        return self._insert.many(connection, [encode_call(call) for call in calls])

    def step(self, connection: sa.Connection, transitions: Sequence[Transition]) -> int:
        """Store the state of calls whose revision is that of ``before``; how many they were."""
        return self._step.many(
            connection,
            [
                (before.tenant_id, before.call_id, before.revision, *encode_step(transition.after))
                for transition in transitions
                if (before := transition.before) is not None
            ],
        )

    def complete(self, connection: sa.Connection, transitions: Sequence[Transition]) -> bool:
        """All the rest of transitions whose calls are written. False when an event's sequence number was taken."""
        new = [transition.after for transition in transitions if transition.before is None]
        known = [transition for transition in transitions if transition.before is not None]
        self._write_labels(connection, known)
        self._write_tags(connection, new, known)
        self._timers.add(connection, new)
        self._timers.change(connection, [transition.after for transition in known])
        self._write_executions(connection, [each for transition in transitions for each in transition.executions])
        events = [encode_event(event) for transition in transitions for event in transition.events]
        return self._event.many(connection, events) == len(events)

    def _write_labels(self, connection: sa.Connection, known: Sequence[Transition]) -> None:
        labelled = [each.after for each in known if has_other_labels(_before(each), each.after)]
        self._label.many(connection, [(call.tenant_id, call.call_id, *encode_labels(call)) for call in labelled])
        # The row of a call that was read from a list has a body that ``before`` and ``after`` do not tell.
        rows = [
            (after.tenant_id, after.call_id, *encode_request(after.request))
            for transition in known
            if (after := transition.after).request != _before(transition).request
        ]
        self._request.many(connection, rows)

    def _write_tags(self, connection: sa.Connection, new: Sequence[ServiceCall], known: Sequence[Transition]) -> None:
        changed = [each.after for each in known if each.after.tags != _before(each).tags]
        self._untag.many(connection, [(call.tenant_id, call.call_id) for call in changed])
        rows = [(call.tenant_id, call.call_id, tag) for call in [*new, *changed] for tag in call.tags]
        self._tag.many(connection, list(rows))

    def _write_executions(self, connection: sa.Connection, executions: Sequence[Execution]) -> None:
        """Whether they are known or new: one that is under way is most likely new, one that has ended known."""
        under_way = [encode_execution(each) for each in executions if each.status is ExecutionStatus.RUNNING]
        ended = [encode_execution(each) for each in executions if each.status is not ExecutionStatus.RUNNING]
        if self._log.many(connection, under_way) != len(under_way):
            self._relog.many(connection, under_way)
        if self._relog.many(connection, ended) != len(ended):
            self._log.many(connection, ended)

    def tell(self, connection: sa.Connection, events: Sequence[CallEvent]) -> None:
        """Events of calls that are removed. An event with the number of one is there only of a damaged call."""
        self._event.many(connection, [encode_event(event) for event in events])

    def free_key(self, connection: sa.Connection, calls: Sequence[tuple[str, str]]) -> None:
        """Take their idempotency keys from calls, given as (tenant id, call id)."""
        self._unkey.many(connection, list(calls))

    def delete(self, connection: sa.Connection, calls: Sequence[tuple[str, str, int]]) -> int:
        """Remove ``calls``, given as (tenant id, call id, shard id), with their timers; tags and executions go by
        foreign keys. How many there were."""
        # A step locks its call before its timer; so does this.
        deleted = self._delete.many(connection, [(tenant_id, call_id) for tenant_id, call_id, _ in calls])
        self._timers.remove(connection, calls)
        return deleted


def _before(transition: Transition) -> ServiceCall:
    assert transition.before is not None
    return transition.before
