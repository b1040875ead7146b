"""What pollers read: the due timers of a shard. And the rows among them that cannot be read, taken aside.

A DUE row fires nothing by itself: it says which timer to look at, and counts only while that timer is still due at
the instant of its key.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final
from uuid import UUID

from duetime.domain.errors import InvalidCursor
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.domain.times import MIN_INSTANT, from_milliseconds, to_milliseconds
from duetime.stores.cassandra.changes import Change, ttl_seconds
from duetime.stores.cassandra.requests import Requests, Row, Statement
from duetime.stores.cassandra.schema import DUE
from duetime.stores.cassandra.timer_rows import (
    COLUMNS,
    Key,
    UnreadableError,
    decode,
    failure_text,
    key_of_row,
)
from duetime.stores.cassandra.timers import Own, Timers
from duetime.stores.page_budget import fitting
from duetime.stores.port.timers import DuePage, UnreadableRow

_READ = (
    "SELECT shard_id, sort_at, timer_namespace, timer_id, timer_size FROM timers "
    f"WHERE shard_id = ? AND row_kind = {DUE}"
)
_FIRST_PAGE = f"{_READ} AND sort_at >= ? AND sort_at <= ? LIMIT ?"
_NEXT_PAGE = (
    f"{_READ} AND (sort_at, timer_namespace, sort_text, timer_id) > (?, ?, ?, ?) AND (sort_at) <= (?) LIMIT ?"
)
_BEYOND = f"SELECT sort_at FROM timers WHERE shard_id = ? AND row_kind = {DUE} AND sort_at > ? LIMIT 1"


_FINISHED: Final = frozenset(state.value for state in TimerState if state.is_finished)
"""These have no next attempt. A node that was away for longer than ``gc_grace_seconds`` brings a deleted value back,
not one that was written over: the state."""


class Due:
    def __init__(self, requests: Requests, timers: Timers) -> None:
        self._requests = requests
        self._timers = timers

    def due_timers(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
    ) -> DuePage:
        until_ms = to_milliseconds(until)
        if cursor is None:
            since_ms = to_milliseconds(MIN_INSTANT if since is None else since)
            page = Statement(_FIRST_PAGE, (shard_id, since_ms, until_ms, limit))
        else:
            at, namespace, timer_id = _read_cursor(cursor)
            page = Statement(_NEXT_PAGE, (shard_id, at, namespace, "", timer_id, until_ms, limit))
        pointers, beyond = self._requests.read_each([page, Statement(_BEYOND, (shard_id, until_ms))])
        taken = _within_budget(pointers)
        timers, unreadable = self._read(taken)
        if len(taken) < len(pointers) or len(pointers) == limit:
            return DuePage(timers, cursor=_write_cursor(taken[-1]), unreadable=tuple(unreadable))
        found = from_milliseconds(beyond[0]["sort_at"]) if beyond else None
        return DuePage(timers, next_attempt_at=_earlier(found, known_next), unreadable=tuple(unreadable))

    def _read(self, pointers: Sequence[Row]) -> tuple[list[Timer], list[UnreadableRow]]:
        rows = self._timers.find_many([key_of_row(pointer) for pointer in pointers])
        timers: list[Timer] = []
        unreadable: list[UnreadableRow] = []
        for pointer in pointers:
            row = rows.get(key_of_row(pointer))
            # A timer that was changed between the two reads is due at another time, or not at all.
            if row is None or row["timer_execute_at"] != pointer["sort_at"] or row["timer_state"] in _FINISHED:
                continue
            try:
                timers.append(decode(row))
            except UnreadableError as error:
                unreadable.append(_unreadable_row(row, str(error)))
        return timers, unreadable

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        seen: dict[Key, tuple[str, str | None]] = {}
        for each in rows:
            namespace, timer_id, write_id = json.loads(each.key)
            seen[each.shard_id, namespace, timer_id] = (each.reason, write_id)
        stored = self._timers.find_many(list(seen))
        changes: dict[int, Change] = {}
        for place, (key, (reason, write_id)) in enumerate(seen.items()):
            row = stored.get(key)
            if row is not None and row["write_id"] == (None if write_id is None else UUID(write_id)):
                changes[place] = _taken_aside(key, row, reason, now=now, expires_at=expires_at)
        own = Own()
        for place in changes.keys() - self._timers.make(changes, own):
            # One that was changed meanwhile held up those that were to be taken aside with it.
            self._timers.make({place: changes[place]}, own)


def _taken_aside(key: Key, row: Row, reason: str, *, now: datetime, expires_at: datetime) -> Change:
    """All that the row has, as it is, but for what makes it a failed timer."""
    failure = Failure(FailureReason.UNREADABLE, reason, now)
    after = {name: row[name] for name in COLUMNS} | {
        "timer_execute_at": None,
        "timer_state": TimerState.FAILED.value,
        "timer_revision": (row["timer_revision"] or 0) + 1,
        "timer_updated_at": to_milliseconds(now),
        "timer_failure": failure_text(failure),
        "timer_expires_at": to_milliseconds(expires_at),
    }
    return Change(
        key=key,
        before=row,
        after=after,
        if_write_id=row["write_id"],
        ttl_seconds=ttl_seconds(expires_at, now),
    )


def _unreadable_row(row: Row, reason: str) -> UnreadableRow:
    shard_id, namespace, timer_id = key_of_row(row)
    write_id = row["write_id"]
    key = json.dumps([namespace, timer_id, None if write_id is None else str(write_id)])
    return UnreadableRow(shard_id, key, reason, namespace, timer_id)


def _within_budget(pointers: Sequence[Row]) -> Sequence[Row]:
    """The first of them that together are no larger than a page may be."""
    return pointers[: fitting(pointer["timer_size"] or 0 for pointer in pointers)]


def _earlier(found: datetime | None, known: datetime | None) -> datetime | None:
    return min((instant for instant in (found, known) if instant is not None), default=None)


def _write_cursor(pointer: Row) -> str:
    return json.dumps([pointer["sort_at"], pointer["timer_namespace"], pointer["timer_id"]])


def _read_cursor(cursor: str) -> tuple[int, str, str]:
    try:
        at, namespace, timer_id = json.loads(cursor)
    except (ValueError, TypeError):
        at = namespace = timer_id = None
    if not (isinstance(at, int) and isinstance(namespace, str) and isinstance(timer_id, str)):
        raise InvalidCursor("cursor", "the cursor does not belong to these timers")
    return at, namespace, timer_id
