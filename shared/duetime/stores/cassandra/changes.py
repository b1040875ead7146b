"""Changes of a shard's partition: the statements of one conditional batch.

A timer is one row that holds all of it (TIMER) and, while it waits, one row that makes it due (DUE); another finds it
by its correlation id. They change together, in one batch of one partition, if the timer is still as it was read. So
there is never a time at which it is due twice or not at all, whatever is lost on the way.

Every write of ``timers`` is conditional: the times of lightweight transactions and those of plain writes must not
meet on one row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final
from uuid import UUID, uuid4

from duetime.domain.shards import Lease
from duetime.domain.times import to_milliseconds
from duetime.stores.cassandra.requests import Row, Statement
from duetime.stores.cassandra.schema import CORRELATION, DUE, SHARD, TIMER
from duetime.stores.cassandra.session import UNSET
from duetime.stores.cassandra.timer_rows import COLUMNS, Key, size_bytes

LAST_EXPIRY_MS: Final = (2**31 - 1 - 86_400) * 1000
"""A TTL that ends later, in 2038, is refused by Cassandra 4 and, as it is set up at first, 5; less a day, since its
clocks are not ours."""

TRACE_SECONDS: Final = 3600
"""How long a deletion can be told from a timer that never was: no request is under way for so long.

A creation that arrives when its timer has come and gone meanwhile finds the trace, and makes nothing.
"""

_KEY = "shard_id = ? AND row_kind = ? AND sort_at = ? AND timer_namespace = ? AND sort_text = ? AND timer_id = ?"
_KEY_COLUMNS = "shard_id, row_kind, sort_at, timer_namespace, sort_text, timer_id"
_SET = ", ".join(f"{name} = ?" for name in ("write_id", *COLUMNS))
_CHANGE = f"UPDATE timers USING TTL ? SET {_SET} WHERE {_KEY} IF "
_DELETE = f"DELETE FROM timers WHERE {_KEY}"
_AS_WRITTEN = "write_id = ?"
_AS_FIRED = "timer_revision = ? AND timer_firing_id = ?"
_PUT_DUE = f"INSERT INTO timers ({_KEY_COLUMNS}, timer_size) VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_CORRELATION = f"INSERT INTO timers ({_KEY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?) USING TTL ?"
_HOLD = f"UPDATE timers SET shard_owner_id = ? WHERE {_KEY} IF shard_version = ? AND shard_owner_id = ?"

RowKey = tuple[int, int, int, str, str, str]


def timer_key(key: Key) -> RowKey:
    shard_id, namespace, timer_id = key
    return shard_id, TIMER, 0, namespace, "", timer_id


def shard_key(shard_id: int) -> RowKey:
    return shard_id, SHARD, 0, "", "", ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """``before`` becomes ``after`` (None: no timer, but for a trace of the deletion). Both are values of ``COLUMNS``.

    ``if_write_id``: what the stored row must have been written by (None: there is none); where ``is_fired`` is true,
    the stored row must instead have the revision and the firing of ``before``. ``ttl_seconds`` 0: it stays.
    """

    key: Key
    before: Row | None
    after: Row | None
    if_write_id: UUID | None = None
    is_fired: bool = False
    ttl_seconds: int = 0
    size_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size_bytes", 0 if self.after is None else size_bytes(self.after))

    def statements(self, write_id: UUID) -> list[Statement]:
        return [self._timer_statement(write_id), *self._due_statements(), *self._correlation_statements()]

    def is_still(self, row: Row | None) -> bool:
        """Whether the stored row is the one that the change is for."""
        if not self.is_fired:
            return (None if row is None else row["write_id"]) == self.if_write_id
        names = ("timer_revision", "timer_firing_id")
        return row is not None and self.before is not None and all(row[name] == self.before[name] for name in names)

    def _timer_statement(self, write_id: UUID) -> Statement:
        before = self.before or {}
        condition: str = _AS_WRITTEN
        expected: tuple[Any, ...] = (self.if_write_id,)
        if self.is_fired:
            condition, expected = _AS_FIRED, (before["timer_revision"], before["timer_firing_id"])
        # What is to go by itself is written whole, and so is what was to go by itself.
        is_whole = self.ttl_seconds > 0 or before.get("timer_expires_at") is not None
        after: Row = dict.fromkeys(COLUMNS) if self.after is None else self.after
        ttl = TRACE_SECONDS if self.after is None else self.ttl_seconds
        values = [_written(before.get(name), after[name], is_whole=is_whole) for name in COLUMNS]
        return Statement(_CHANGE + condition, (ttl, write_id, *values, *timer_key(self.key), *expected))

    def _due_statements(self) -> list[Statement]:
        # A key is never deleted and inserted in one batch: at one time stamp the deletion would win.
        old, new = self._due_key(self.before), self._due_key(self.after)
        statements = []
        if old is not None and old != new:
            statements.append(Statement(_DELETE, old))
        if new is not None and (old != new or self._is_resized()):
            statements.append(Statement(_PUT_DUE, (*new, self.size_bytes)))
        return statements

    def _is_resized(self) -> bool:
        return self.before is None or size_bytes(self.before) != self.size_bytes

    def _correlation_statements(self) -> list[Statement]:
        old, new = self._correlation_key(self.before), self._correlation_key(self.after)
        statements = []
        if old is not None and old != new:
            statements.append(Statement(_DELETE, old))
        had_ttl = self.before is not None and self.before["timer_expires_at"] is not None
        if new is not None and (old != new or had_ttl or self.ttl_seconds > 0):
            statements.append(Statement(_PUT_CORRELATION, (*new, self.ttl_seconds)))
        return statements

    def _due_key(self, row: Row | None) -> RowKey | None:
        at = None if row is None else row["timer_execute_at"]
        shard_id, namespace, timer_id = self.key
        return None if at is None else (shard_id, DUE, at, namespace, "", timer_id)

    def _correlation_key(self, row: Row | None) -> RowKey | None:
        correlation_id = None if row is None else row["timer_correlation_id"]
        shard_id, namespace, timer_id = self.key
        return None if correlation_id is None else (shard_id, CORRELATION, 0, namespace, correlation_id, timer_id)


def hold(lease: Lease) -> Statement:
    """Holds only while the lease is the stored one; changes nothing."""
    return Statement(_HOLD, (lease.owner_id, *shard_key(lease.shard_id), lease.version, lease.owner_id))


def new_write_id() -> UUID:
    return uuid4()


def ttl_seconds(expires_at: datetime | None, now: datetime) -> int:
    """For a row that expires, at least 1: rounded up, so that it is never gone before its time. 0: it stays."""
    if expires_at is None or to_milliseconds(expires_at) > LAST_EXPIRY_MS:
        return 0
    remaining_ms = to_milliseconds(expires_at) - to_milliseconds(now)
    return max(-(-remaining_ms // 1000), 1)


def _written(old: Any, new: Any, *, is_whole: bool) -> Any:
    if new is None:
        return UNSET if old is None else None
    return UNSET if old == new and not is_whole else new
