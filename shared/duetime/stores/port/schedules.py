"""The part of the store port with what schedules have beside timers.

A schedule is a timer (``Timer.is_schedule``): it is put, read, deleted, found due and recorded by ``TimerStore``.
``TimerStore.delete`` removes its history, too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Protocol

from duetime.domain.namespaces import Namespace
from duetime.domain.occurrences import OccurrenceRecord
from duetime.domain.timers import Timer
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import ChangeResult


class ScheduleStore(Protocol):
    def history(self, schedule: Timer, *, limit: int) -> list[OccurrenceRecord]:
        """The last lines, the latest first: up to ``limit``, of the ``KEPT_OCCURRENCES`` that are kept.

        Lines that cannot be read are left out.
        """
        ...

    def ongoing(self, schedules: Sequence[Timer], *, now: datetime) -> list[Timer | None]:
        """The timer that the occurrence at ``schedule.open_at`` goes on as, of each; None when it has ended."""
        ...

    def change(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: Callable[[Timer], Timer],
        *,
        now: datetime,
    ) -> ChangeResult:
        """Apply ``change`` to a schedule atomically; when others write in between it is called again.

        It returns the next revision (``domain.schedule_timers.standing_at``), or the schedule itself when nothing
        is to be written. Judged in this order: NOT_FOUND, UNREADABLE. Raises what ``change``
        raises.
        """
        ...

    def change_of(self, occurrence: Timer, change: Callable[[Timer], Timer], *, now: datetime) -> ChangeResult:
        """As ``change``, of the schedule that ``occurrence``, a timer, is of."""
        ...

    def beside(
        self, namespace: Namespace, prefix: str, *, cursor: str | None, limit: int, now: datetime
    ) -> Page[Timer]:
        """The timers of a schedule's triggers, or of its backfills, in any state, by their ids, which begin with
        ``prefix`` (``domain.ids.trigger_timer_id``, ``backfill_timer_id``).

        A page may be short, even empty, and not be the last.
        """
        ...

    def list(self, namespace: Namespace, *, cursor: str | None, limit: int, now: datetime) -> Page[Timer]:
        """Schedules in the order of shard, then id. One that is not changed meanwhile appears exactly once.

        The work of one call is bounded: a page may be short, even empty, and not be the last.
        """
        ...
