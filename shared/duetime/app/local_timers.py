"""Timers that are due at a local time: when that is has changed, since the rules of their time zone have."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from duetime.app.announcing import Publish, announce
from duetime.app.pages import ChangedPage, PageOfWork
from duetime.app.schedule_lists import READS_PER_PAGE
from duetime.domain.errors import InvalidInput
from duetime.domain.events import moved_event
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Timer, TimerChange, TimerState
from duetime.recurrence.local_due import LocalDue, due_at, read_local_due
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerFilter

_log = logging.getLogger(__name__)
_SCHEDULED = TimerFilter(state=TimerState.SCHEDULED, is_of_schedule=False)


class _Move(NamedTuple):
    timer: Timer
    local: LocalDue
    execute_at: datetime


@dataclass(frozen=True, slots=True)
class LocalTimers:
    store: Store
    on_stored: Callable[[Sequence[Timer]], None]
    publish: Publish

    def recompute_page(self, namespace: Namespace, work: PageOfWork) -> ChangedPage:
        """Compute again when the timers of a page are due: those that wait for their first attempt.

        What comes out the same is not written. Each change is logged and published first: what others change at that
        very moment is announced and skipped.
        """
        moves: list[_Move] = []
        cursor, now = work.cursor, work.now
        for _ in range(READS_PER_PAGE):
            page = self.store.timers.list(namespace, _SCHEDULED, cursor=cursor, limit=work.limit, now=now)
            moves = [move for timer in page.items if (move := _move(timer, now)) is not None]
            cursor = page.next_cursor
            if moves or cursor is None:
                break
        if work.dry_run or not moves:
            return ChangedPage(len(moves), 0, cursor)
        self._announce(moves, now)
        affected = sum(self._apply(namespace, move, now) for move in moves)
        return ChangedPage(affected, len(moves) - affected, cursor)

    def _announce(self, moves: Sequence[_Move], now: datetime) -> None:
        from duetime.recurrence import zones

        events = [
            moved_event(
                timer, at, local_time=local.text, time_zone=local.time_zone, tzdata_version=zones.VERSION, at=now
            )
            for timer, local, at in moves
        ]
        for event in events:
            _log.info("timer moved", extra={"action": "timer.moved", "event": event.document()})
        announce(self.publish, events)

    def _apply(self, namespace: Namespace, move: _Move, now: datetime) -> bool:
        timer = move.timer
        result = self.store.timers.update(
            namespace,
            timer.timer_id,
            TimerChange(execute_at=move.execute_at),
            firing_id=timer.firing_id,  # it is the same message, at the time that was meant
            now=now,
            if_revision=timer.revision,
        )
        if result.status is not ChangeStatus.APPLIED or result.timer is None:
            return False
        self.on_stored([result.timer])
        return True


def _move(timer: Timer, now: datetime) -> _Move | None:
    """Return how ``timer`` is to be moved; None when it stays: also when its zone is not known any more."""
    if timer.content.timing_json is None or not _waits(timer, now):
        return None
    local = read_local_due(timer.content.timing_json)
    try:
        execute_at = None if local is None else due_at(local)
    except InvalidInput:
        return None
    if local is None or execute_at is None or execute_at == timer.content.execute_at:
        return None
    return _Move(timer, local, execute_at)


def _waits(timer: Timer, now: datetime) -> bool:
    """Tell whether it is due at its due time, later than ``now``: it was not tried, put off or fired by hand, nor
    has its receiver rescheduled it."""
    is_first = timer.attempts == 0 and timer.fired_at is None
    return is_first and timer.next_attempt_at == timer.content.execute_at and timer.content.execute_at > now
