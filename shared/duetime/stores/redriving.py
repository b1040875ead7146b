"""Redriving failed timers, one by one and by filter: the rules that the API and the command line share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.domain.errors import (
    AttemptUnderWay,
    DuetimeError,
    RevisionMismatch,
    StoreRefused,
    TimerFinished,
    TimerNotFailed,
    TimerNotFound,
    TimerUnreadable,
)
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import FailureReason, Rearm, Timer, TimerState
from duetime.stores.port import ChangeResult, ChangeStatus, Page, Store, TimerFilter, TimerRef
from duetime.stores.refusals import apart


@dataclass(frozen=True, slots=True)
class RedrivePage:
    """What one bounded piece of a redrive did.

    ``skipped`` counts the failed timers that fit the filter and were not redriven: unreadable, refused by the
    database, or changed meanwhile. ``next_cursor`` is None when there is nothing left to look at.
    """

    redriven: tuple[Timer, ...]
    skipped: int
    next_cursor: str | None

    @property
    def examined(self) -> int:
        return len(self.redriven) + self.skipped


def find_timers(
    store: Store,
    namespace: Namespace,
    timer_filter: TimerFilter,
    *,
    correlation_id: str | None,
    cursor: str | None,
    limit: int,
    now: datetime,
) -> Page[Timer]:
    """A page of the timers that fit, found by their correlation id where one is given."""
    if correlation_id is None:
        return store.list_timers(namespace, timer_filter, cursor=cursor, limit=limit, now=now)
    page = store.find_by_correlation(namespace, correlation_id, cursor=cursor, limit=limit, now=now)
    return Page([timer for timer in page.items if timer_filter.fits(timer)], page.next_cursor)


def redrive_page(
    store: Store,
    namespace: Namespace,
    timer_filter: TimerFilter,
    *,
    correlation_id: str | None = None,
    cursor: str | None,
    limit: int,
    now: datetime,
    dry_run: bool = False,
) -> RedrivePage:
    """Redrive a page of the failed timers that fit: at most ``limit`` of them, in a bounded piece of work.

    Called again with ``next_cursor`` until that is None, it meets every timer once, also one that fails again
    meanwhile. A timer is redriven only in the revision that was found failed. With ``dry_run`` nothing is changed.
    """
    page = find_timers(
        store,
        namespace,
        replace(timer_filter, state=TimerState.FAILED),
        correlation_id=correlation_id,
        cursor=cursor,
        limit=limit,
        now=now,
    )
    if dry_run:
        redriven = tuple(timer for timer in page.items if not _is_unreadable(timer))
    else:
        refs = [TimerRef(timer.timer_id, timer.revision) for timer in page.items]
        results = redrive(store, namespace, refs, now=now)
        redriven = tuple(
            result.timer for result in results if result.status is ChangeStatus.APPLIED and result.timer is not None
        )
    return RedrivePage(redriven, len(page.items) - len(redriven), page.next_cursor)


def redrive(store: Store, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime) -> list[ChangeResult]:
    """Redrive each of the timers that can be, whatever the database refuses of the others."""
    return apart(
        lambda some: store.rearm_timers(namespace, some, rearm=Rearm.REDRIVE, now=now),
        refs,
        lambda _: ChangeResult(ChangeStatus.REFUSED),
    )


def refused(timer_id: str) -> StoreRefused:
    return StoreRefused(f"the store refuses timer {timer_id!r}: it is too large, or its shard is full")


def refusal_to_redrive(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Why a timer was not redriven; None when it was."""
    if result.status is ChangeStatus.WRONG_STATE and result.timer is not None:
        return TimerNotFailed(f"timer {timer_id!r} is {result.timer.state}: only a failed timer can be redriven")
    return _refusal(namespace, timer_id, result)


def refusal_to_fire(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """Why a timer was not made due; None when it was, or was due already."""
    if result.status is not ChangeStatus.WRONG_STATE or result.timer is None:
        return _refusal(namespace, timer_id, result)
    if result.timer.state is TimerState.FIRING:
        return AttemptUnderWay(f"an attempt of timer {timer_id!r} is under way")
    way_on = "redrive it" if result.timer.state is TimerState.FAILED else "replace it"
    return TimerFinished(f"timer {timer_id!r} is {result.timer.state}: {way_on} to have it fired again")


def _refusal(namespace: Namespace, timer_id: str, result: ChangeResult) -> DuetimeError | None:
    """What both ways to rearm have in common."""
    if result.status is ChangeStatus.APPLIED:
        return None
    if result.status is ChangeStatus.REVISION_MISMATCH:
        return RevisionMismatch(f"timer {timer_id!r} has another revision")
    if result.status is ChangeStatus.REFUSED:
        return refused(timer_id)
    if result.status is ChangeStatus.NOT_FOUND or result.timer is None:
        return TimerNotFound(namespace.name, timer_id)
    if result.status is ChangeStatus.UNREADABLE:
        return TimerUnreadable(f"timer {timer_id!r} cannot be read as it is stored: replace or delete it")
    return None


def _is_unreadable(timer: Timer) -> bool:
    return timer.failure is not None and timer.failure.reason is FailureReason.UNREADABLE
