"""What pollers read: the due timers of a shard. And the rows among them that cannot be read, taken aside."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from itertools import islice

from duetime.domain.timers import Failure, FailureReason, Timer, TimerState, is_too_late
from duetime.domain.times import MAX_INSTANT, to_milliseconds
from duetime.stores import backend as writes
from duetime.stores.backend import Backend, Condition, Query, Scan
from duetime.stores.core.cursors import cursor_of, place_of
from duetime.stores.core.failure_codec import encode_failure
from duetime.stores.core.instants import instant, milliseconds
from duetime.stores.core.timer_codec import decode, readable_instant
from duetime.stores.decoding import UnreadableError, can_be_stored, repaired
from duetime.stores.entities import DUE, TIMER
from duetime.stores.entity import DAMAGED, Place, Row, Value
from duetime.stores.port.pages import PAGE_BYTES
from duetime.stores.port.timers import LOOKED_AT_PER_TIMER, DuePage, IsKnown, IsWanted, UnreadableRow

_KEY = TIMER.key
_LOOKED_AT = (
    *_KEY,
    *DUE.order_names,
    "timer_revision",
    "timer_callback_url",
    "timer_state",
    "timer_due_at",
    "timer_rearmed_at",
    "timer_expire_after_ms",
)
"""What is looked at of many due timers. Some are then read whole."""
_READ_TOGETHER = 64
"""Of those that are wanted, how many are read at once."""
_LONE_AND_NEXT = 3
"""With the one before it, which is there until its outcome is recorded."""
_PLACES = TIMER.places
_LAST_MS = to_milliseconds(MAX_INSTANT)
_PAYLOAD = _PLACES["timer_payload"]
_FIRING_ID, _ATTEMPTS = _PLACES["timer_firing_id"], _PLACES["timer_attempts"]


class Due:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def due(
        self,
        shard_id: int,
        *,
        until: datetime,
        limit: int,
        cursor: str | None = None,
        since: datetime | None = None,
        known_next: datetime | None = None,
        is_wanted: IsWanted | None = None,
        is_known: IsKnown | None = None,
    ) -> DuePage:
        """Timers with ``next_attempt_at <= until``, in order, at most ``limit``; strongly consistent.

        More timers at one instant than a page holds are all returned over the pages, once each. Where payloads are
        large, a page holds no more than ``pages.PAGE_BYTES`` of them, in memory too.
        ``since`` (not after ``until``) leaves out what has ``next_attempt_at < since``; a ``cursor`` goes
        before it.
        ``known_next``: the caller knows of none before it, so the store may skip looking beyond it; then
        ``DuePage.next_attempt_at`` is the earliest that it found before ``known_next``, else ``known_next``.
        ``is_wanted``: others need not be read whole, and may be left out, so a page may be short and not the last.
        Timers that are parked, or too late by ``until`` (``Timer.is_too_late``), are never left out. It is asked at
        most ``LOOKED_AT_PER_TIMER`` times ``limit``, and by some stores never: they leave nothing out.
        ``is_known``: these are left out, and counted in ``known`` and for the limit.
        Rows that cannot be decoded are reported in ``unreadable`` and never hide the others.
        """
        until_ms = to_milliseconds(until)
        # What is known to come next need not be read: its payload would cost every idle poll.
        horizon_ms = _LAST_MS if known_next is None else max(until_ms, to_milliseconds(known_next) - 1)
        since_ms = 0 if since is None else to_milliseconds(since)
        if cursor is None:
            # The usual poll finds nothing due, or a lone timer: it takes one step, which tells what comes next, too.
            first = self._backend.scan(
                Query(TIMER, DUE, _LONE_AND_NEXT, (shard_id,), since=since_ms, until=horizon_ms, budget=PAGE_BYTES)
            )
            due = [row for row in first.rows if _due_ms(row) <= until_ms]
            is_all = len(due) <= limit and (first.end is None or len(due) < len(first.rows))
            if not due or (is_all and is_wanted is None):
                next_ms = next((_due_ms(row) for row in first.rows[len(due) :]), None)
                return _page(due, is_known, next_attempt_at=_earlier(next_ms, known_next))
        query = Query(TIMER, DUE, limit, (shard_id,), since=since_ms, until=until_ms, budget=PAGE_BYTES)
        if cursor is not None:
            query = query._replace(after=place_of(cursor, TIMER, DUE), since=None)
        if is_wanted is None:
            page = self._backend.scan(query)
        else:
            most = limit * LOOKED_AT_PER_TIMER
            looked_at = self._backend.scan(query._replace(fields=_LOOKED_AT, limit=most, budget=None))
            page = self._chosen(looked_at, limit, is_wanted, until)
        if page.end is not None:
            return _page(page.rows, is_known, end=page.end)
        next_ms = self._first(shard_id, until_ms + 1, horizon_ms)
        return _page(page.rows, is_known, next_attempt_at=_earlier(next_ms, known_next))

    def next_due(self, shard_ids: Sequence[int], *, until: datetime) -> dict[int, datetime | None]:
        """Return those of the shards that have nothing due ``until`` then, each with when its first timer is due.

        Strongly consistent. Empty where the database would be asked for each shard: ``due`` tells as much.
        """
        query = Query(TIMER, DUE, limit=1, since=0, until=_LAST_MS)
        found = self._backend.firsts(query, shard_ids)
        if found is None:
            return {}
        until_ms = to_milliseconds(until)
        return {
            shard_id: None if first is None else instant(first)
            for shard_id, first in zip(shard_ids, found, strict=True)
            if first is None or first > until_ms
        }

    def _first(self, shard_id: int, since_ms: int, horizon_ms: int) -> int | None:
        """Return the earliest key of the shard between these, both inclusive."""
        if since_ms > horizon_ms:
            return None
        found = self._backend.scan(
            Query(TIMER, DUE, by=(shard_id,), fields=("timer_execute_at",), since=since_ms, until=horizon_ms, limit=1)
        )
        return found.rows[0][0] if found.rows else None

    def _chosen(self, looked_at: Scan, limit: int, is_wanted: IsWanted, until: datetime) -> Scan:
        """Return the rows that are wanted, whole."""
        fitting = (row for row in looked_at.rows if _is_for_page(row, is_wanted, until))
        chosen = list(islice(fitting, limit))
        is_more = len(chosen) == limit and next(fitting, None) is not None
        rows: list[Row] = []
        size = 0
        for start in range(0, len(chosen), _READ_TOGETHER):
            together = chosen[start : start + _READ_TOGETHER]
            whole = self._backend.read(TIMER, [row[: len(_KEY)] for row in together])
            for at, (seen, row) in enumerate(zip(together, map(_found, together, whole), strict=True), start):
                # One that was changed between the two reads is due at another time, or not at all.
                if row is None or TIMER.place_of(DUE, row) != _place(seen):
                    continue
                size += len(row[_PAYLOAD]) if isinstance(row[_PAYLOAD], str) else 0
                if size > PAGE_BYTES and rows:
                    return Scan(rows, _place(chosen[at - 1]))
                rows.append(row)
        return Scan(rows, _place(chosen[-1]) if is_more else looked_at.end)

    def quarantine(self, rows: Sequence[UnreadableRow], *, now: datetime, expires_at: datetime) -> None:
        """Take unreadable rows out of the due index: they read as FAILED timers with reason UNREADABLE.

        They expire at ``expires_at`` as other failed timers do. Values that cannot be read are shown empty. A row
        that was changed meanwhile stays as it is.
        """
        updates = []
        for row in rows:
            key, place, revision, next_revision = json.loads(row.key)
            changes = {
                "timer_state": TimerState.FAILED.value,
                "timer_revision": next_revision,
                "timer_updated_at": writes.NOW,
                "timer_failure": encode_failure(Failure(FailureReason.UNREADABLE, row.reason, now)),
                "timer_expires_at": milliseconds(expires_at),
                "timer_execute_at": None,
            }
            is_same = [Condition("timer_revision", _or_damaged(revision))]
            if not can_be_stored(key):  # where it stands tells it from others
                execute_at, uuid = place
                is_same.append(Condition("timer_execute_at", execute_at))
                is_same.append(Condition("timer_uuid", DAMAGED if uuid is None else bytes.fromhex(uuid)))
            updates.append(writes.update(TIMER, tuple(map(_or_damaged, key)), changes, *is_same))
        self._backend.write(updates, now=now).checked()


def _found(looked_at: Row, whole: Row | None) -> Row | None:
    """Return the whole row; of one whose key is damaged, by which it cannot be read, what was looked at."""
    if whole is not None or can_be_stored(looked_at[: len(_KEY)]):
        return whole
    values = dict(zip(_LOOKED_AT, looked_at, strict=True))
    return tuple(values.get(name, DAMAGED) for name in TIMER.names)


def _or_damaged(value: Value) -> Value:
    return DAMAGED if value is None else value


def _place(looked_at: Row) -> Place:
    return looked_at[len(_KEY) : len(_KEY) + len(DUE.order)]


def _is_for_page(row: Row, is_wanted: IsWanted, until: datetime) -> bool:
    """Tell whether a page must have the timer: whoever cannot tell reads it whole."""
    values = {name: _readable(value) for name, value in zip(_LOOKED_AT, row, strict=True)}
    namespace, url, ttl_ms = (
        values[name] for name in ("timer_namespace", "timer_callback_url", "timer_expire_after_ms")
    )
    if namespace is None or url is None or values["timer_state"] != TimerState.SCHEDULED:
        return True
    if ttl_ms is not None:
        armed = [readable_instant(values[name]) for name in ("timer_due_at", "timer_rearmed_at")]
        armed_at = max((at for at in armed if at is not None), default=None)
        if armed_at is None or is_too_late(armed_at, ttl_ms, until):
            return True
    return is_wanted(namespace, url)


def _readable(value: Value) -> Value:
    return None if value is DAMAGED else value


def _due_ms(row: Row) -> int:
    return row[_PLACES["timer_execute_at"]]  # type: ignore[no-any-return]  # a number, or no range would have it


def _earlier(found_ms: int | None, known: datetime | None) -> datetime | None:
    found = None if found_ms is None else instant(found_ms)
    return min((at for at in (found, known) if at is not None), default=None)


def _page(
    rows: list[Row], is_known: IsKnown | None, *, end: Place | None = None, next_attempt_at: datetime | None = None
) -> DuePage:
    found: list[Timer] = []
    unreadable: list[UnreadableRow] = []
    for row in rows:
        if is_known is not None and is_known(row[_FIRING_ID], row[_ATTEMPTS]):
            continue
        try:
            found.append(decode(row))
        except UnreadableError as error:
            unreadable.append(_unreadable(row, str(error)))
    known = len(rows) - len(found) - len(unreadable)
    if end is None:
        return DuePage(found, None, next_attempt_at, tuple(unreadable), known=known)
    return DuePage(found, cursor_of(end), None, tuple(unreadable), instant(end[0]), known)


def _unreadable(row: Row, reason: str) -> UnreadableRow:
    shard_id, namespace, timer_id = map(_readable, TIMER.key_of(row))
    execute_at, uuid = map(_readable, TIMER.place_of(DUE, row))
    revision = _readable(row[_PLACES["timer_revision"]])
    place = [execute_at, None if uuid is None else uuid.hex()]
    key = json.dumps([[shard_id, namespace, timer_id], place, revision, (revision or 0) + 1])
    return UnreadableRow(shard_id, key, reason, repaired(namespace), repaired(timer_id))
