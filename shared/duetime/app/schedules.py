"""The use cases of schedules: create, put, get, list, delete, pause, resume, trigger, change times, occurrences.

A schedule is a timer of its own kind (``domain.schedule_timers``). Here it goes by its id, which is not that timer's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple

from duetime.app.timers import Stored
from duetime.domain.clock import Clock
from duetime.domain.errors import (
    InvalidInput,
    RevisionMismatch,
    ScheduleConflict,
    ScheduleEnded,
    ScheduleNotFound,
    ScheduleUnreadable,
    StoreRefused,
)
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import Namespace, Pause
from duetime.domain.occurrences import OccurrenceRecord
from duetime.domain.schedule_timers import new_schedule_timer, standing_at, triggered
from duetime.domain.schedules import Occurrence, SchedulePolicy, new_schedule, retimed
from duetime.domain.timers import FailureReason, Timer, TimerContent, content_digest
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import stored_occurrences, timing_json
from duetime.stores.port.pages import Page
from duetime.stores.port.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerRef

MAX_TIMING_BYTES = 4096
"""It is stored with each occurrence that is recorded, on databases that write whole rows."""
_MILLISECOND = timedelta(milliseconds=1)


class NewSchedule(NamedTuple):
    """What a client asks for. ``content`` is what is sent; its due time is of no account."""

    schedule_id: str
    timing: TimingSpec
    policy: SchedulePolicy
    content: TimerContent
    pause: Pause | None = None


@dataclass(frozen=True, slots=True)
class Schedules:
    """``on_stored`` is told of what was just stored or changed: a hint for a poller in this process."""

    store: Store
    clock: Clock
    on_stored: Callable[[Sequence[Timer]], None]

    def create(self, namespace: Namespace, wanted: NewSchedule, *, now: datetime) -> Stored:
        """Create a schedule; the same request again changes nothing.

        Raises ``ScheduleConflict`` when there is another one with the id, ``InvalidInput`` and ``StoreRefused``.
        """
        timer = _first_revision(namespace, wanted, now)
        (result,) = self.store.timers.put([timer], mode=PutMode.CREATE, now=now)
        if result.status is PutStatus.CONFLICT:
            raise ScheduleConflict(f"schedule {wanted.schedule_id!r} exists and is another one")
        return self._stored(result.timer, wanted.schedule_id, is_new=result.status is PutStatus.CREATED)

    def put(
        self, namespace: Namespace, wanted: NewSchedule, *, now: datetime, if_revision: int | None = None
    ) -> Stored:
        """Create a schedule, or put it in the place of another one, which begins anew. The same changes nothing.

        Raises ``RevisionMismatch``, ``InvalidInput`` and ``StoreRefused``.
        """
        timer = _first_revision(namespace, wanted, now)
        (result,) = self.store.timers.put([timer], mode=PutMode.REPLACE, now=now, if_revision=if_revision)
        if result.status is PutStatus.REVISION_MISMATCH:
            raise RevisionMismatch("the schedule has another revision than If-Match names")
        return self._stored(result.timer, wanted.schedule_id, is_new=result.status is PutStatus.CREATED)

    def get(self, namespace: Namespace, schedule_id: str, *, now: datetime) -> Timer:
        """Return a schedule. Raises ``ScheduleNotFound``."""
        timer = self.store.timers.get(namespace, schedule_timer_id(schedule_id), now=now)
        if timer is None:
            raise ScheduleNotFound(namespace.name, schedule_id)
        return timer

    def list(self, namespace: Namespace, *, cursor: str | None, limit: int, now: datetime) -> Page[Timer]:
        """Return a page of schedules, by shard and id. It may be short, even empty, and not be the last."""
        return self.store.schedules.list(namespace, cursor=cursor, limit=limit, now=now)

    def delete(
        self, namespace: Namespace, schedule_id: str, *, now: datetime, if_revision: int | None = None
    ) -> None:
        """Remove a schedule and its history. An occurrence that goes on as a timer of its own does go on.

        Raises ``ScheduleNotFound``, ``RevisionMismatch`` and ``StoreRefused``.
        """
        ref = TimerRef(schedule_timer_id(schedule_id), if_revision)
        (result,) = self.store.timers.delete(namespace, [ref], now=now)
        _or_raise(result, namespace, schedule_id)

    def pause(
        self,
        namespace: Namespace,
        schedule_id: str,
        *,
        reason: str | None,
        now: datetime,
        if_revision: int | None = None,
    ) -> Timer:
        """Let nothing fire until it is resumed. One that is paused stays as it is, with its reason.

        Raises ``ScheduleNotFound``, ``ScheduleEnded``, ``ScheduleUnreadable`` and ``RevisionMismatch``.
        """

        def pause(timer: Timer) -> Timer:
            schedule = timer.schedule
            assert schedule is not None
            if schedule.pending is None:
                raise ScheduleEnded(f"schedule {schedule_id!r} has ended ({schedule.end})")
            if schedule.pause is not None:
                return timer
            return standing_at(timer, replace(schedule, pause=Pause(now, reason)), now=now)

        return self._change(namespace, schedule_id, pause, now, if_revision)

    def resume(
        self, namespace: Namespace, schedule_id: str, *, now: datetime, if_revision: int | None = None
    ) -> Timer:
        """Let it fire again. What came due meanwhile is missed, and fires as ``misfire`` says."""

        def resume(timer: Timer) -> Timer:
            schedule = timer.schedule
            assert schedule is not None
            if schedule.pause is None:
                return timer
            return standing_at(timer, replace(schedule, pause=None), now=now)

        return self._change(namespace, schedule_id, resume, now, if_revision)

    def retime(
        self,
        namespace: Namespace,
        schedule_id: str,
        timing: TimingSpec,
        policy: SchedulePolicy,
        *,
        now: datetime,
        if_revision: int | None = None,
    ) -> Timer:
        """Change times and policies. The next occurrence is the first after now, if the times are others.

        Raises as ``pause``, and ``InvalidInput``.
        """
        text = _checked_timing(timing)
        occurrences = stored_occurrences(text, schedule_id)

        def retime(timer: Timer) -> Timer:
            schedule = timer.schedule
            assert schedule is not None
            changed = replace(schedule, policy=policy)
            if text != timer.content.timing_json:
                changed = retimed(changed, occurrences, after=now)
            if changed == schedule and text == timer.content.timing_json:
                return timer
            content = replace(timer.content, timing_json=text)
            digest = _digest(content, policy, is_paused=schedule.pause is not None)
            return standing_at(replace(timer, content=content, digest=digest), changed, now=now)

        return self._change(namespace, schedule_id, retime, now, if_revision)

    def trigger(self, namespace: Namespace, schedule_id: str, *, now: datetime) -> Timer:
        """Fire it now, beside its occurrences and whatever it is doing: paused or ended, too.

        Returns the timer that is sent. Raises ``ScheduleNotFound``, ``ScheduleUnreadable`` and ``StoreRefused``.
        """
        schedule = self.get(namespace, schedule_id, now=now)
        if schedule.failure is not None and schedule.failure.reason is FailureReason.UNREADABLE:
            raise _unreadable(schedule_id)
        (result,) = self.store.timers.put([triggered(schedule, now=now)], mode=PutMode.CREATE, now=now)
        return self._stored(result.timer, schedule_id, is_new=True).timer

    def past(self, schedule: Timer, *, limit: int) -> list[OccurrenceRecord]:
        """Return the last lines of the history, the latest first."""
        return self.store.schedules.history(schedule, limit=limit)

    def coming(self, schedule: Timer, *, after: datetime, limit: int) -> list[Occurrence]:
        """Return the occurrences to come, from the pending one on, that are scheduled after ``after``."""
        state = schedule.schedule
        if state is None or state.pending is None:
            return []
        occurrences = stored_occurrences(schedule.content.timing_json or "", schedule.schedule_id or "")
        left = limit if state.policy.max_firings is None else min(limit, state.policy.max_firings - state.firings)
        found: list[Occurrence] = []
        following = occurrences.after(max(after, state.pending.scheduled_at - _MILLISECOND))
        while following is not None and len(found) < left:
            found.append(following)
            following = occurrences.after(following.scheduled_at)
        return found

    def _change(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: Callable[[Timer], Timer],
        now: datetime,
        if_revision: int | None,
    ) -> Timer:
        result = self.store.schedules.change(namespace, schedule_id, change, now=now, if_revision=if_revision)
        timer = _or_raise(result, namespace, schedule_id)
        self.on_stored([timer])
        return timer

    def _stored(self, timer: Timer | None, schedule_id: str, *, is_new: bool) -> Stored:
        if timer is None:
            raise _refused(schedule_id)
        self.on_stored([timer])
        return Stored(timer, is_new)


def _first_revision(namespace: Namespace, wanted: NewSchedule, now: datetime) -> Timer:
    """Return the schedule as it is stored first. Raises ``InvalidInput``."""
    text = _checked_timing(wanted.timing)
    occurrences = stored_occurrences(text, wanted.schedule_id)
    schedule = new_schedule(wanted.policy, occurrences, after=now)
    if schedule.pending is None:
        raise InvalidInput("endAt", "must leave at least one occurrence from now on")
    content = replace(wanted.content, timing_json=text)
    digest = _digest(content, wanted.policy, is_paused=wanted.pause is not None)
    return new_schedule_timer(
        namespace,
        wanted.schedule_id,
        content,
        replace(schedule, pause=wanted.pause),
        digest=digest,
        now=now,
    )


def _digest(content: TimerContent, policy: SchedulePolicy, *, is_paused: bool) -> str:
    """Identify what was asked for: the times, and not when it is due by them."""
    text = f"{content_digest(content, delay_seconds=0.0)} {policy} {is_paused}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checked_timing(timing: TimingSpec) -> str:
    text = timing_json(timing)
    if len(text.encode()) > MAX_TIMING_BYTES:
        field = max(("cron", "rrule", "exclude"), key=lambda name: len(str(getattr(timing, name))))
        raise InvalidInput(field, f"must be shorter: the times of a schedule fit {MAX_TIMING_BYTES} bytes")
    return text


def _or_raise(result: ChangeResult, namespace: Namespace, schedule_id: str) -> Timer:
    if result.status is ChangeStatus.REVISION_MISMATCH:
        raise RevisionMismatch("the schedule has another revision than If-Match names")
    if result.status is ChangeStatus.UNREADABLE:
        raise _unreadable(schedule_id)
    if result.status is ChangeStatus.REFUSED:
        raise _refused(schedule_id)
    if result.status is ChangeStatus.NOT_FOUND or result.timer is None:
        raise ScheduleNotFound(namespace.name, schedule_id)
    return result.timer


def _unreadable(schedule_id: str) -> ScheduleUnreadable:
    return ScheduleUnreadable(f"schedule {schedule_id!r} cannot be read as it is stored: replace or delete it")


def _refused(schedule_id: str) -> StoreRefused:
    return StoreRefused(f"the database refuses to store schedule {schedule_id!r}")
