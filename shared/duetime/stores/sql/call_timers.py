"""The timers of service calls: rows of ``timers`` that the transaction of their call writes and removes.

The call's row is what a transition is fenced by, so these statements are not: whatever the timer's row holds, or if
it is missing, it becomes what the call says.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.service_calls import ServiceCall, calls_namespace, timer_of
from duetime.domain.timers import Timer
from duetime.domain.times import to_milliseconds
from duetime.stores.core.timer_codec import optional_milliseconds
from duetime.stores.sql.database import Database
from duetime.stores.sql.tables import RowType, given, timers

_ROW = timers.c
_KEY_NAMES = ("timer_namespace", "shard_id", "timer_id")
_CHANGED_NAMES = (
    "row_type",
    "timer_execute_at",
    "timer_state",
    "timer_due_at",
    "timer_revision",
    "timer_firing_id",
    "timer_attempts",
    "timer_created_at",
    "timer_updated_at",
    "timer_fired_at",
    "timer_digest",
    "timer_callback_timeout_seconds",
    "timer_callback_url",
)
_INSERT_NAMES = (*_KEY_NAMES, "timer_uuid", "timer_correlation_id", *_CHANGED_NAMES)
_NUM_ONCE = len(_INSERT_NAMES) - len(_CHANGED_NAMES)


class CallTimers:
    """Point access through ``idx_timer_lookup``."""

    def __init__(self, database: Database) -> None:
        prepare = database.prepare
        values = {name: given(name) for name in _INSERT_NAMES}
        self._insert = prepare(database.insert_if_absent(timers).values(values), *_INSERT_NAMES)
        is_the_row = sa.and_(*(_ROW[name] == given(f"key_{name}") for name in _KEY_NAMES))
        change: dict[str, Any] = {name: given(name) for name in _CHANGED_NAMES}
        # What an unreadable row may have been given when it was taken out of the pollers' way.
        change |= {"timer_failure": sa.null(), "timer_expires_at": sa.null()}
        key_names = tuple(f"key_{name}" for name in _KEY_NAMES)
        self._update = prepare(sa.update(timers).where(is_the_row).values(change), *key_names, *_CHANGED_NAMES)
        self._delete = prepare(sa.delete(timers).where(is_the_row), *key_names)

    def add(self, connection: sa.Connection, calls: Sequence[ServiceCall]) -> None:
        """The timers of new calls."""
        rows = [_encode(timer_of(call)) for call in calls]
        if self._insert.many(connection, rows) != len(rows):
            self._update_all(connection, rows)

    def change(self, connection: sa.Connection, calls: Sequence[ServiceCall]) -> None:
        """The timers of calls that have changed: each becomes ``timer_of`` its call."""
        rows = [_encode(timer_of(call)) for call in calls]
        if self._update_all(connection, rows) != len(rows):
            self._insert.many(connection, rows)

    def _update_all(self, connection: sa.Connection, rows: list[tuple[Any, ...]]) -> int:
        return self._update.many(connection, [(*row[: len(_KEY_NAMES)], *row[_NUM_ONCE:]) for row in rows])

    def remove(self, connection: sa.Connection, calls: Sequence[tuple[str, str, int]]) -> None:
        """``calls`` as (tenant id, call id, shard id)."""
        keys = [(calls_namespace(tenant_id), shard_id, call_id) for tenant_id, call_id, shard_id in calls]
        self._delete.many(connection, list(keys))


def _encode(timer: Timer) -> tuple[Any, ...]:
    """The values for ``_INSERT_NAMES``.

    A finished timer's ``timer_execute_at`` is never read, but a part of a primary key cannot be NULL: its due time.
    """
    content, next_attempt_at = timer.content, timer.next_attempt_at
    due_ms = to_milliseconds(content.execute_at)
    return (
        timer.namespace,
        timer.shard_id,
        timer.timer_id,
        timer_uuid_bytes(timer.namespace, timer.timer_id),
        content.correlation_id,
        RowType.FINISHED.value if next_attempt_at is None else RowType.TIMER.value,
        due_ms if next_attempt_at is None else to_milliseconds(next_attempt_at),
        timer.state.value,
        due_ms,
        timer.revision,
        timer.firing_id,
        timer.attempts,
        to_milliseconds(timer.created_at),
        to_milliseconds(timer.updated_at),
        optional_milliseconds(timer.fired_at),
        timer.digest,
        content.callback_timeout_seconds,
        content.callback_url,
    )
