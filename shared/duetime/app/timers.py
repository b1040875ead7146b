"""The use cases of timers: create, put, get, list, update, cancel, delete, fire, redrive, answer; of one or of many.

Each raises what kept it from being done; those of many return it in place of a result. ``wanted`` is a condition on
the revision (``If-Match``), None when there is none: the store judges a single revision, and of a list or ``*`` the
revision that is current is read and held on to.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from duetime.app.in_parts import in_parts
from duetime.app.pages import PageOfWork
from duetime.app.redrives import (
    RedrivePage,
    in_order,
    redrive_refs,
    refusal_to_cancel,
    refusal_to_fire,
    refusal_to_redrive,
    refused,
)
from duetime.app.revisions import Revisions
from duetime.domain.answers import Answer, Refusal
from duetime.domain.clock import Clock
from duetime.domain.errors import (
    DuetimeError,
    FiringNotWaiting,
    FiringOver,
    RevisionMismatch,
    ScheduleNotFound,
    StoreUnavailable,
    TimerConflict,
    TimerFinished,
    TimerNotFound,
    or_raise,
)
from duetime.domain.ids import schedule_id_of
from duetime.domain.namespaces import Namespace
from duetime.domain.timers import Rearm, Timer, TimerChange, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.pages import Page
from duetime.stores.port.timers import (
    ChangeResult,
    ChangeStatus,
    PutMode,
    PutResult,
    PutStatus,
    TimerFilter,
    TimerRef,
)
from duetime.stores.refusals import apart

_TRIES = 5
_CHANGES = (PutStatus.CREATED, PutStatus.REPLACED)

ResultT = TypeVar("ResultT", PutResult, ChangeResult)


class Stored(NamedTuple):
    """A timer as it is stored now. ``is_new`` is false when it replaced another one, or repeats it."""

    timer: Timer
    is_new: bool


class Deleted(NamedTuple):
    attempt_in_flight: bool
    """An attempt may have been in flight at that moment."""


@dataclass(frozen=True, slots=True)
class Timers:
    """``on_stored`` is told of timers that were just stored or changed: a hint for a poller in this process.
    ``retention``: how long a cancelled timer stays readable."""

    store: Store
    clock: Clock
    on_stored: Callable[[Sequence[Timer]], None]
    retention: timedelta

    def put_many(self, timers: Sequence[Timer], *, mode: PutMode, now: datetime) -> list[Stored | DuetimeError]:
        """Create each alone, or with REPLACE put it in the place of what is there; no two have the same id.

        With CREATE another timer with the id is a ``TimerConflict``. What ``repeats`` a stored timer changes nothing.
        """
        results = apart(
            lambda some: self.store.timers.put(some, mode=mode, now=now),
            timers,
            lambda _: PutResult(PutStatus.REFUSED, None),
        )
        changed = [result.timer for result in results if result.timer is not None and result.status in _CHANGES]
        if changed:
            self.on_stored(changed)
        return [_stored(timer.timer_id, result) for timer, result in zip(timers, results, strict=True)]

    def put_known(self, timer: Timer, namespace: Namespace, *, now: datetime, wanted: Revisions) -> Stored:
        """Replace a timer in a revision that is ``wanted``. One that ``repeats`` stays as it is.

        Raises ``RevisionMismatch`` and ``StoreRefused``.
        """
        timer_id = timer.timer_id

        def put(revision: int | None) -> PutResult:
            return self.store.timers.put([timer], mode=PutMode.REPLACE, now=now, if_revision=revision)[0]

        absent = RevisionMismatch(f"timer {timer_id!r} does not exist in a revision that If-Match names")
        result = self._under(wanted, put, namespace, timer_id, now, absent=absent)
        stored = or_raise(_stored(timer_id, result))
        if result.status in _CHANGES:
            self.on_stored([stored.timer])
        return stored

    def put_new(self, timer: Timer, *, now: datetime) -> Stored:
        """Create a timer that must not exist (``If-None-Match: *``), or else raise ``RevisionMismatch``."""
        (result,) = self.store.timers.put([timer], mode=PutMode.CREATE, now=now)
        if result.status not in (PutStatus.CREATED, PutStatus.REFUSED):
            raise RevisionMismatch(f"timer {timer.timer_id!r} exists")
        if result.timer is None:
            raise refused(timer.timer_id)
        self.on_stored([result.timer])
        return Stored(result.timer, is_new=True)

    def get(self, namespace: Namespace, timer_id: str, *, now: datetime) -> Timer:
        """Return a timer. Raises ``TimerNotFound``."""
        timer = self.store.timers.get(namespace, timer_id, now=now)
        if timer is None:
            raise TimerNotFound(namespace.name, timer_id)
        return timer

    def update(
        self,
        namespace: Namespace,
        timer_id: str,
        change: TimerChange,
        *,
        firing_id: str,
        now: datetime,
        wanted: Revisions | None,
    ) -> Timer:
        """Change what is given of a timer that has not finished. An empty change leaves the revision as it is.

        Raises ``TimerNotFound``, ``TimerFinished``, ``RevisionMismatch``, ``StoreRefused``, and as ``check_message``.
        """
        timers = self.store.timers

        def apply(revision: int | None) -> ChangeResult:
            if not change.given():
                return _look(timers.get(namespace, timer_id, now=now), revision)
            return timers.update(namespace, timer_id, change, firing_id=firing_id, now=now, if_revision=revision)

        result = self._under(wanted, apply, namespace, timer_id, now)
        if result.status is ChangeStatus.REFUSED:
            raise refused(timer_id)
        if result.timer is None or result.status is ChangeStatus.NOT_FOUND:
            raise TimerNotFound(namespace.name, timer_id)
        if result.status is ChangeStatus.FINISHED:
            raise TimerFinished(f"timer {timer_id!r} is {result.timer.state}: it can be replaced, not changed")
        if change.given():
            self.on_stored([result.timer])
        return result.timer

    def delete(self, namespace: Namespace, timer_id: str, *, now: datetime, wanted: Revisions | None) -> Deleted:
        """Remove a timer in any state. Raises ``TimerNotFound``, ``RevisionMismatch`` and ``StoreRefused``."""

        def delete(revision: int | None) -> ChangeResult:
            return self.store.timers.delete(namespace, [TimerRef(timer_id, revision)], now=now)[0]

        return or_raise(_deleted(namespace, timer_id, self._under(wanted, delete, namespace, timer_id, now), now))

    def delete_many(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime
    ) -> list[Deleted | DuetimeError]:
        """Remove each alone; no two have the same id."""
        results = apart(
            lambda some: self.store.timers.delete(namespace, some, now=now),
            refs,
            lambda _: ChangeResult(ChangeStatus.REFUSED),
        )
        return [_deleted(namespace, ref.timer_id, result, now) for ref, result in zip(refs, results, strict=True)]

    def cancel(self, namespace: Namespace, timer_id: str, *, now: datetime, wanted: Revisions | None) -> Timer:
        """End a waiting timer, which stays readable. One that is Cancelled already is left as it is.

        Raises ``AttemptInFlight``, ``TimerFinished``, ``TimerNotFound`` and ``RevisionMismatch``.
        """
        result = self._rearm(namespace, timer_id, Rearm.CANCEL, now, wanted)
        return or_raise(_cancelled(namespace, timer_id, result))

    def cancel_many(
        self, namespace: Namespace, refs: Sequence[TimerRef], *, now: datetime
    ) -> list[Timer | DuetimeError]:
        """Cancel each alone; no two have the same id."""
        results = apart(
            lambda some: self.store.timers.rearm(
                namespace, some, rearm=Rearm.CANCEL, now=now, expires_at=now + self.retention
            ),
            refs,
            lambda _: ChangeResult(ChangeStatus.REFUSED),
        )
        return [_cancelled(namespace, ref.timer_id, result) for ref, result in zip(refs, results, strict=True)]

    def answer(self, namespace: Namespace, timer_ids: Sequence[str], answer: Answer, *, now: datetime) -> Timer:
        """Take an answer to a firing that waits, of one of these timers. One that is repeated changes nothing.

        Raises ``TimerNotFound`` (of a schedule's, ``ScheduleNotFound``), ``FiringNotWaiting`` and ``FiringOver``.
        """
        refusals: list[Refusal] = []
        repeated: list[Timer] = []
        for timer_id in timer_ids:
            result = self.store.timers.answer(namespace, timer_id, answer, now=now)
            if isinstance(result, Refusal):
                refusals.append(result)
            elif result is not None and result.state is TimerState.WAITING:
                self.on_stored([result])
                return result
            elif result is not None:  # a backfill has the firing of the occurrence, and may wait
                repeated.append(result)
        if repeated:
            return repeated[0]
        if Refusal.EARLY in refusals:
            raise FiringNotWaiting(f"firing {answer.firing_id} does not wait, or it is not recorded yet that it does")
        if refusals:
            raise FiringOver(f"firing {answer.firing_id}, or this attempt of it, has ended or has another answer")
        schedule_id = schedule_id_of(timer_ids[0])
        if schedule_id is not None:
            raise ScheduleNotFound(namespace.name, schedule_id)
        raise TimerNotFound(namespace.name, timer_ids[0])

    def fire(self, namespace: Namespace, timer_id: str, *, now: datetime, wanted: Revisions | None) -> Timer:
        """Make a waiting timer due now. One that is due already is left as it is."""
        result = self._rearm(namespace, timer_id, Rearm.FIRE, now, wanted)
        return self._rearmed(result, refusal_to_fire(namespace, timer_id, result))

    def redrive(self, namespace: Namespace, timer_id: str, *, now: datetime, wanted: Revisions | None) -> Timer:
        """Schedule a failed timer again, due now, as the same firing with all attempts ahead."""
        result = self._rearm(namespace, timer_id, Rearm.REDRIVE, now, wanted)
        return self._rearmed(result, refusal_to_redrive(namespace, timer_id, result))

    def redrive_page(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        work: PageOfWork,
        *,
        correlation_id: str | None,
    ) -> RedrivePage:
        """Redrive a page of the failed timers that fit, in a bounded piece of work.

        Called again with ``next_cursor`` until that is None, it meets every timer once, also one that fails again
        meanwhile. A timer is redriven only in the revision that was found failed. Of deliveries to a webhook more
        than its ``limit`` may be redriven: those that go before them.
        """
        failed = replace(timer_filter, state=TimerState.FAILED)

        def fits(timer: Timer) -> bool:
            return failed.fits(timer) and correlation_id in (None, timer.content.correlation_id)

        now = work.now
        page = self.list(
            namespace, failed, correlation_id=correlation_id, cursor=work.cursor, limit=work.limit, now=now
        )
        if work.dry_run:
            readable = tuple(timer for timer in page.items if not timer.is_unreadable)
            return RedrivePage(readable, len(page.items) - len(readable), page.next_cursor)
        refs = [TimerRef(timer.timer_id, timer.revision) for timer in page.items]
        done = redrive_refs(self.store, namespace, refs, now=now, fits=fits)
        if done.redriven:
            self.on_stored(done.redriven)
        skipped = sum(result.status is not ChangeStatus.APPLIED for result in done.results)
        return RedrivePage(done.redriven, skipped, page.next_cursor)

    def redrive_many(self, namespace: Namespace, ids: Sequence[str]) -> dict[str, DuetimeError | None]:
        """Redrive each of ``ids`` alone: what kept it from being redriven, or None, by id."""
        ordered = in_order(ids)

        def redrive(some: Sequence[str]) -> list[DuetimeError | None]:
            done = redrive_refs(self.store, namespace, [TimerRef(each) for each in some], now=self.clock.now())
            if done.redriven:
                self.on_stored(done.redriven)
            return [refusal_to_redrive(namespace, *each) for each in zip(some, done.results, strict=True)]

        return dict(zip(ordered, in_parts(ordered, redrive, clock=self.clock), strict=True))

    def _rearm(
        self, namespace: Namespace, timer_id: str, rearm: Rearm, now: datetime, wanted: Revisions | None
    ) -> ChangeResult:
        def act(revision: int | None) -> ChangeResult:
            ref, expires_at = TimerRef(timer_id, revision), now + self.retention
            return self.store.timers.rearm(namespace, [ref], rearm=rearm, now=now, expires_at=expires_at)[0]

        return self._under(wanted, act, namespace, timer_id, now)

    def _rearmed(self, result: ChangeResult, refusal: DuetimeError | None) -> Timer:
        if refusal is not None:
            raise refusal
        assert result.timer is not None  # only NOT_FOUND has none
        self.on_stored([result.timer])
        return result.timer

    def _under(
        self,
        wanted: Revisions | None,
        act: Callable[[int | None], ResultT],
        namespace: Namespace,
        timer_id: str,
        now: datetime,
        *,
        absent: DuetimeError | None = None,
    ) -> ResultT:
        """Call ``act`` with the revision that is ``wanted``, or with None when any is. Without a timer: return
        ``absent``."""
        if wanted is None:
            return act(None)
        mismatch = RevisionMismatch("the timer has another revision than If-Match names")
        single = wanted.single_revision()
        if single is not None:
            result = act(single)
            if _is_mismatch(result):
                raise mismatch
            return result
        for _ in range(_TRIES):  # whoever changes it in between makes another try necessary
            current = self.store.timers.get(namespace, timer_id, now=now)
            if current is None:
                raise absent or TimerNotFound(namespace.name, timer_id)
            if not wanted.match_strongly(current.revision):
                raise mismatch
            result = act(current.revision)
            if not _is_mismatch(result):
                return result
        raise StoreUnavailable("the timer is being changed all the time")

    def list(
        self,
        namespace: Namespace,
        timer_filter: TimerFilter,
        *,
        correlation_id: str | None,
        cursor: str | None,
        limit: int,
        now: datetime,
    ) -> Page[Timer]:
        """Return a page of the timers that fit, found by their correlation id where one is given.

        Schedules are none of them."""
        timer_filter = replace(timer_filter, is_of_schedule=False)
        if correlation_id is None:
            return self.store.timers.list(namespace, timer_filter, cursor=cursor, limit=limit, now=now)
        page = self.store.timers.find_by_correlation(namespace, correlation_id, cursor=cursor, limit=limit, now=now)
        return Page([timer for timer in page.items if timer_filter.fits(timer)], page.next_cursor)


def _is_mismatch(result: PutResult | ChangeResult) -> bool:
    return result.status in (PutStatus.REVISION_MISMATCH, ChangeStatus.REVISION_MISMATCH)


def _look(timer: Timer | None, revision: int | None) -> ChangeResult:
    """Return what an update without a change comes to."""
    if timer is None:
        return ChangeResult(ChangeStatus.NOT_FOUND)
    if revision is not None and revision != timer.revision:
        return ChangeResult(ChangeStatus.REVISION_MISMATCH, timer)
    return ChangeResult(ChangeStatus.FINISHED if timer.state.is_finished else ChangeStatus.APPLIED, timer)


def _stored(timer_id: str, result: PutResult) -> Stored | DuetimeError:
    if result.status is PutStatus.CONFLICT:
        return TimerConflict(f"timer {timer_id!r} exists and has other content")
    if result.timer is None:
        return refused(timer_id)
    return Stored(result.timer, result.status is PutStatus.CREATED)


def _cancelled(namespace: Namespace, timer_id: str, result: ChangeResult) -> Timer | DuetimeError:
    refusal = refusal_to_cancel(namespace, timer_id, result)
    if refusal is not None:
        return refusal
    assert result.timer is not None  # only NOT_FOUND has none
    return result.timer


def _deleted(namespace: Namespace, timer_id: str, result: ChangeResult, now: datetime) -> Deleted | DuetimeError:
    if result.status is ChangeStatus.REFUSED:
        return refused(timer_id)
    if result.status is ChangeStatus.REVISION_MISMATCH:
        return RevisionMismatch(f"timer {timer_id!r} has another revision")
    if result.status is ChangeStatus.NOT_FOUND:
        return TimerNotFound(namespace.name, timer_id)
    return Deleted(result.attempt_may_be_in_flight(now))
