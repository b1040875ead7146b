"""The use cases of schedules: create, put, get, update, list, delete, pause, resume, trigger, occurrences.

A schedule is a timer of its own kind (``domain.schedule_timers``). Here it goes by its id, which is not that timer's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from duetime.app.announcing import Publish, announce
from duetime.app.calendars import finder
from duetime.app.revisions import Revisions
from duetime.app.timers import Stored
from duetime.domain.errors import (
    InvalidInput,
    RevisionMismatch,
    ScheduleConflict,
    ScheduleEnded,
    ScheduleNotFound,
    ScheduleUnreadable,
    StoreRefused,
    StoreUnavailable,
)
from duetime.domain.events import ScheduleEvent, schedule_events
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import Namespace, Pause
from duetime.domain.schedule_timers import new_schedule_timer, standing_at, triggered
from duetime.domain.schedules import (
    Occurrences,
    SchedulePolicy,
    check_interval,
    limited,
    new_schedule,
    paused,
    resumed,
    retimed,
)
from duetime.domain.timers import SERVICE_CALLS, Timer, TimerContent, check_message, content_digest
from duetime.domain.times import MILLISECOND
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json, timing_of
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeResult, ChangeStatus, PutMode, PutStatus, TimerRef

_TRIES = 5
_MAX_AT_ONCE = 100
"""Each trigger has a millisecond of its own."""
_OF_CALLBACKS = (
    *("callback_url", "payload_json", "headers_json", "retry_policy_json"),
    *("callback_timeout_seconds", "correlation_id"),
)
"""The content that a schedule with a service call does not have."""
MAX_TIMING_BYTES = 4096
"""It is stored with each occurrence that is recorded, on databases that write whole rows."""


class NewSchedule(NamedTuple):
    """What a client asks for. ``content`` is what is sent; its due time is ignored."""

    schedule_id: str
    timing: TimingSpec
    policy: SchedulePolicy
    content: TimerContent
    is_paused: bool | None = None
    """None: as it is, or not."""


class ScheduleChange(NamedTuple):
    """What is given of each part, by the names of its fields; the rest stays."""

    timing: Mapping[str, Any]
    policy: Mapping[str, Any]
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Schedules:
    """``on_stored`` is told of what was just stored or changed: a hint for a poller in this process. ``publish`` is
    given the events of changes, after these."""

    store: Store
    on_stored: Callable[[Sequence[Timer]], None]
    publish: Publish

    def create(self, namespace: Namespace, wanted: NewSchedule, *, now: datetime) -> Stored:
        """Create a schedule; the same request again changes nothing.

        Raises ``ScheduleConflict`` when there is another one with the id, ``InvalidInput`` and ``StoreRefused``.
        """
        timer = _first_revision(namespace, wanted, self._times(namespace, wanted, now), now)
        (result,) = self.store.timers.put([timer], mode=PutMode.CREATE, now=now)
        if result.status is PutStatus.CONFLICT:
            raise ScheduleConflict(f"schedule {wanted.schedule_id!r} exists and is another one")
        return self._stored(result.timer, wanted.schedule_id, is_new=result.status is PutStatus.CREATED)

    def put(
        self, namespace: Namespace, asked: NewSchedule, *, now: datetime, wanted: Revisions | None = None
    ) -> Stored:
        """Create a schedule, or make the stored one what is asked for. The same changes nothing.

        Its history and its number stay. With other times, or when it had ended, it fires next at the first after now.
        Raises ``RevisionMismatch``, ``InvalidInput`` and ``StoreRefused``.
        """
        schedule_id, times = asked.schedule_id, self._times(namespace, asked, now)
        for _ in range(_TRIES):  # whoever creates or removes it in between makes another try necessary
            result = self._apply(
                namespace, schedule_id, lambda timer: _replaced(timer, asked, times, now), now=now, wanted=wanted
            )
            if result.status not in (ChangeStatus.NOT_FOUND, ChangeStatus.UNREADABLE):
                return self._stored(_or_raise(result, namespace, schedule_id), schedule_id, is_new=False)
            revision = None if result.timer is None else result.timer.revision
            if wanted is not None and (revision is None or not wanted.match_strongly(revision)):
                raise _mismatch()
            first = _first_revision(namespace, asked, times, now)
            mode = PutMode.CREATE if revision is None else PutMode.REPLACE
            (put,) = self.store.timers.put([first], mode=mode, now=now, if_revision=revision)
            if put.status in (PutStatus.CREATED, PutStatus.REPLACED, PutStatus.REFUSED):
                return self._stored(put.timer, schedule_id, is_new=put.status is PutStatus.CREATED)
        raise _changed_all_the_time()

    def rehearse_put(
        self, namespace: Namespace, asked: NewSchedule, *, now: datetime, wanted: Revisions | None = None
    ) -> Stored:
        """Return what ``put`` would. Store nothing. Raises as ``put`` does."""
        stored = self.store.timers.get(namespace, schedule_timer_id(asked.schedule_id), now=now)
        if wanted is not None and (stored is None or not wanted.match_strongly(stored.revision)):
            raise _mismatch()
        times = self._times(namespace, asked, now)
        if stored is None or stored.is_unreadable:
            return Stored(_first_revision(namespace, asked, times, now), is_new=stored is None)
        return Stored(_replaced(stored, asked, times, now), is_new=False)

    def get(self, namespace: Namespace, schedule_id: str, *, now: datetime) -> Timer:
        """Return a schedule. Raises ``ScheduleNotFound``."""
        timer = self.store.timers.get(namespace, schedule_timer_id(schedule_id), now=now)
        if timer is None:
            raise ScheduleNotFound(namespace.name, schedule_id)
        return timer

    def readable(self, namespace: Namespace, schedule_id: str, *, now: datetime) -> Timer:
        """Return a schedule that can be fired. Raises ``ScheduleNotFound`` and ``ScheduleUnreadable``."""
        schedule = self.get(namespace, schedule_id, now=now)
        if schedule.is_unreadable:
            raise ScheduleUnreadable(schedule_id)
        return schedule

    def delete(
        self, namespace: Namespace, schedule_id: str, *, now: datetime, wanted: Revisions | None = None
    ) -> None:
        """Remove a schedule and its history. An occurrence that goes on as a timer of its own does go on.

        Raises ``ScheduleNotFound``, ``RevisionMismatch`` and ``StoreRefused``.
        """

        timer_id = schedule_timer_id(schedule_id)
        for _ in range(_TRIES):  # whoever changes it in between, as each occurrence does, makes another try necessary
            revision = self.revision_that_matches(namespace, timer_id, wanted, now=now)
            (result,) = self.store.timers.delete(namespace, [TimerRef(timer_id, revision)], now=now)
            if result.status is not ChangeStatus.REVISION_MISMATCH:
                _or_raise(result, namespace, schedule_id)
                return
        raise _changed_all_the_time()

    def revision_that_matches(
        self, namespace: Namespace, timer_id: str, wanted: Revisions | None, *, now: datetime
    ) -> int | None:
        """Return the stored revision of the schedule's timer; None: any will do. Raises ``RevisionMismatch``."""
        if wanted is None:
            return None
        current = self.store.timers.get(namespace, timer_id, now=now)
        if current is None or not wanted.match_strongly(current.revision):
            raise _mismatch()
        return current.revision

    def update(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: ScheduleChange,
        *,
        now: datetime,
        wanted: Revisions | None = None,
    ) -> Timer:
        """Change what is given. With other times the next occurrence is the first after now; else it stays.

        Raises as ``pause``, and ``InvalidInput``.
        """

        def update(timer: Timer) -> Timer:
            schedule = timer.schedule
            assert schedule is not None
            if schedule.is_over:
                raise ScheduleEnded(f"schedule {schedule_id!r} has ended ({schedule.end})")
            timing = replace(timing_of(timer), **change.timing)
            text = _checked_timing(timing)
            changed = replace(schedule, policy=replace(schedule.policy, **change.policy))
            if text != timer.content.timing_json:
                changed = retimed(changed, self._checked(namespace, timing, schedule_id, now), after=now)
                if changed.pending is None:
                    raise _nothing_left(timing)
            changed = limited(changed)
            _check_target(timer, change.content)
            content = replace(timer.content, **change.content, timing_json=text)
            check_message(content)
            _check_policy(content, changed.policy)
            if (content, changed) == (timer.content, schedule):
                return timer
            digest = _digest(content, changed.policy, is_paused=changed.pause is not None)
            return standing_at(replace(timer, content=content, digest=digest), changed, now=now)

        return self._change(namespace, schedule_id, update, now=now, wanted=wanted)

    def pause(
        self,
        namespace: Namespace,
        schedule_id: str,
        *,
        reason: str | None,
        now: datetime,
        wanted: Revisions | None = None,
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
            return standing_at(timer, paused(schedule, Pause(now, reason)), now=now)

        return self._change(namespace, schedule_id, pause, now=now, wanted=wanted)

    def resume(
        self, namespace: Namespace, schedule_id: str, *, now: datetime, wanted: Revisions | None = None
    ) -> Timer:
        """Let it fire again. What came due meanwhile is missed, and fires as ``misfire`` says."""

        def resume(timer: Timer) -> Timer:
            schedule = timer.schedule
            assert schedule is not None
            if schedule.pause is None:
                return timer
            return standing_at(timer, resumed(schedule), now=now)

        return self._change(namespace, schedule_id, resume, now=now, wanted=wanted)

    def trigger(
        self, namespace: Namespace, schedule_id: str, *, trigger_id: str, at: datetime, now: datetime
    ) -> tuple[Timer, datetime]:
        """Fire it now, beside its occurrences and whatever it is doing: paused or ended, too.

        ``trigger_id`` and ``at`` name the trigger: with the same ones nothing more is sent. Returns the timer that is
        sent, and for when it is scheduled. Raises ``ScheduleNotFound``, ``ScheduleUnreadable`` and ``StoreRefused``.
        """
        schedule = self.readable(namespace, schedule_id, now=now)
        for number in range(_MAX_AT_ONCE):
            scheduled_at = at + number * MILLISECOND
            timer = triggered(schedule, scheduled_at, trigger_id=trigger_id, now=now)
            (result,) = self.store.timers.put([timer], mode=PutMode.CREATE, now=now)
            if result.status is not PutStatus.CONFLICT:
                return self._stored(result.timer, schedule_id, is_new=True).timer, scheduled_at
        raise StoreUnavailable("the schedule is being triggered all the time")

    def _change(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: Callable[[Timer], Timer],
        *,
        now: datetime,
        wanted: Revisions | None,
    ) -> Timer:
        result = self._apply(namespace, schedule_id, change, now=now, wanted=wanted)
        timer = _or_raise(result, namespace, schedule_id)
        self.on_stored([timer])
        return timer

    def _apply(
        self,
        namespace: Namespace,
        schedule_id: str,
        change: Callable[[Timer], Timer],
        *,
        now: datetime,
        wanted: Revisions | None,
    ) -> ChangeResult:
        """Change a revision that is ``wanted``; another one raises ``RevisionMismatch``. Tell what came of it."""
        events: list[ScheduleEvent] = []

        def judged(timer: Timer) -> Timer:
            if wanted is not None and not wanted.match_strongly(timer.revision):
                raise _mismatch()
            changed = change(timer)
            events[:] = [] if changed.schedule is None else schedule_events(timer, changed.schedule, (), at=now)
            return changed

        result = self.store.schedules.change(namespace, schedule_id, judged, now=now)
        if result.status is ChangeStatus.APPLIED:
            announce(self.publish, events)
        return result

    def _times(self, namespace: Namespace, asked: NewSchedule, now: datetime) -> Callable[[], Occurrences]:
        """Return what computes the occurrences that are asked for, checked, when they are needed."""
        return lambda: self._checked(namespace, asked.timing, asked.schedule_id, now)

    def _checked(self, namespace: Namespace, timing: TimingSpec, schedule_id: str, now: datetime) -> Occurrences:
        """Return the occurrences of a schedule that is to be stored. Raises ``InvalidInput``."""
        least_ms = namespace.settings.min_schedule_interval_ms
        occurrences = occurrences_by(timing, schedule_id, finder(self.store, namespace.tenant_id))
        if least_ms is not None:
            field = "every" if timing.every_ms is not None else "cron" if timing.cron else "rrule"
            check_interval(occurrences, least_ms, field=field, after=now)
        return occurrences

    def _stored(self, timer: Timer | None, schedule_id: str, *, is_new: bool) -> Stored:
        if timer is None:
            raise refused(schedule_id)
        self.on_stored([timer])
        return Stored(timer, is_new)


def _first_revision(
    namespace: Namespace, wanted: NewSchedule, times: Callable[[], Occurrences], now: datetime
) -> Timer:
    """Return the schedule as it is stored first. Raises ``InvalidInput``."""
    text = _checked_timing(wanted.timing)
    schedule = new_schedule(wanted.policy, times(), after=now)
    if schedule.pending is None:
        raise _nothing_left(wanted.timing)
    content = replace(wanted.content, timing_json=text)
    _check_policy(content, wanted.policy)
    return new_schedule_timer(
        namespace,
        wanted.schedule_id,
        content,
        paused(schedule, Pause(now)) if wanted.is_paused else schedule,
        digest=_digest(content, wanted.policy, is_paused=bool(wanted.is_paused)),
        now=now,
    )


def _replaced(timer: Timer, asked: NewSchedule, times: Callable[[], Occurrences], now: datetime) -> Timer:
    """Return the next revision of ``timer``, which is as ``asked``, or itself. Raises ``InvalidInput``."""
    schedule = timer.schedule
    assert schedule is not None
    text = _checked_timing(asked.timing)
    content = replace(asked.content, timing_json=text)
    _check_policy(content, asked.policy)
    digest = _digest(content, asked.policy, is_paused=bool(asked.is_paused))
    is_same_pause = asked.is_paused in (None, schedule.pause is not None)
    if digest == timer.digest and (is_same_pause or schedule.pending is None):
        return timer
    changed = replace(schedule, policy=asked.policy)
    if schedule.pending is None:
        changed = replace(changed, end=None, firings=0, failures=None)
    if schedule.pending is None or text != timer.content.timing_json:
        changed = retimed(changed, times(), after=now)
        if changed.pending is None:
            raise _nothing_left(asked.timing)
    if asked.is_paused is not None:
        changed = paused(changed, Pause(now)) if asked.is_paused else resumed(changed)
    return standing_at(replace(timer, content=content, digest=digest), limited(changed), now=now)


def _check_target(timer: Timer, content: Mapping[str, Any]) -> None:
    """Check that a change of ``content`` leaves a schedule with what it does: a callback or a service call."""
    if content.keys().isdisjoint(_OF_CALLBACKS):
        return
    is_of_call = content.get("callback_url") == SERVICE_CALLS
    if timer.submits_call and not is_of_call:
        raise InvalidInput("serviceCall", "is what the schedule has in place of a callback: PUT replaces it")
    if is_of_call and not timer.submits_call:
        raise InvalidInput("serviceCall", "cannot be given, since the schedule sends a callback: PUT replaces it")


def _check_policy(content: TimerContent, policy: SchedulePolicy) -> None:
    if content.callback_url == SERVICE_CALLS and policy.pause_after is not None:
        raise InvalidInput("pauseAfter", "cannot be given with serviceCall: it counts callbacks that fail")


def _digest(content: TimerContent, policy: SchedulePolicy, *, is_paused: bool) -> str:
    """Identify what was asked for: the times, and not when it is due by them."""
    text = f"{content_digest(content)} {policy} {is_paused}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _checked_timing(timing: TimingSpec) -> str:
    text = timing_json(timing)
    if len(text.encode()) > MAX_TIMING_BYTES:
        field = max(("cron", "rrule", "exclude"), key=lambda name: len(str(getattr(timing, name))))
        raise InvalidInput(field, f"must be shorter: the times of a schedule fit {MAX_TIMING_BYTES} bytes")
    return text


def _or_raise(result: ChangeResult, namespace: Namespace, schedule_id: str) -> Timer:
    if result.status is ChangeStatus.UNREADABLE:
        raise ScheduleUnreadable(schedule_id)
    if result.status is ChangeStatus.REFUSED:
        raise refused(schedule_id)
    if result.status is ChangeStatus.NOT_FOUND or result.timer is None:
        raise ScheduleNotFound(namespace.name, schedule_id)
    return result.timer


def _nothing_left(timing: TimingSpec) -> InvalidInput:
    given = {"endAt": timing.end_at, "cron": timing.cron, "rrule": timing.rrule, "every": timing.every_ms}
    field = next(name for name, value in given.items() if value)
    return InvalidInput(field, "must leave at least one occurrence from now on")


def _changed_all_the_time() -> StoreUnavailable:
    return StoreUnavailable("the schedule is being changed all the time")


def _mismatch() -> RevisionMismatch:
    return RevisionMismatch("the schedule does not exist in a revision that If-Match names")


def refused(schedule_id: str) -> StoreRefused:
    return StoreRefused(f"the database refuses to store schedule {schedule_id!r}")
