"""Delivery of schedules: what came of an occurrence is recorded together with the step to the next one.

An occurrence is sent as a timer is. Once it ends the schedule moves on; if it is to be retried, or takes long, it
goes on as a timer of its own (``domain.schedule_timers``). What is too late (``misfire``) or overlaps with an earlier
one (``overlap``) is recorded and not sent.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.errors import CalendarMissing, ScheduleUnreadable
from duetime.domain.events import ScheduleEvent, schedule_events
from duetime.domain.outcomes import Outcome
from duetime.domain.schedule_timers import (
    after_attempt,
    after_last_attempt,
    after_response,
    concerns_schedule,
    line_of_missed,
    line_of_skipped,
    moved,
    standing_at,
)
from duetime.domain.schedules import (
    Action,
    Occurrences,
    Overlap,
    Schedule,
    Turn,
    Unknown,
    closed,
    is_late,
    skipped,
    turn,
)
from duetime.domain.timers import Timer, TimerState
from duetime.engine.batching import Batcher
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Launcher
from duetime.engine.firing.decided import DecidedDelivery
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.keys import queue_key
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.classify import Classification, classify_occurrence
from duetime.engine.response.decide import unreadable
from duetime.engine.response.record import Recorder
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState
from duetime.recurrence.stored import occurrences_of
from duetime.stores.core.schedules import ScheduleStore

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 5.0
"""How soon an occurrence that waits for an earlier one in flight looks for it again."""
CALENDAR_SECONDS: Final = 60.0
"""How soon a schedule looks again for its calendar, which does not exist."""
_MARGIN: Final = timedelta(seconds=1)
"""From a retry of the earlier one to that look."""


class RecurringDelivery(DecidedDelivery[Timer | Outcome]):
    """Of schedules, and of their occurrences that are timers.

    The decision is the timer as it is sent, or what is recorded in its place.
    """

    def __init__(
        self,
        schedules: ScheduleStore,
        context: EngineContext,
        recorder: Recorder,
        namespaces: NamespaceCache,
        *,
        in_flight: InFlight,
        deferrals: Deferrals,
        launcher: Launcher,
    ) -> None:
        self._schedules = schedules
        offload = context.threads.make(1, "duetime-schedules")
        super().__init__(
            context,
            recorder,
            namespaces,
            in_flight=in_flight,
            deferrals=deferrals,
            launcher=launcher,
            offload=offload,
        )
        self._concerning: Batcher[tuple[Attempt, Outcome], list[ScheduleEvent]] = Batcher(
            self._change_all,
            context,
            offload,
            action="delivery.retried",
            on_written=self._record_all,
            on_refused=self._record_refused,
            on_given_up=self._settle_all,
            gathering=self._at_once,
        )

    # -- life ------------------------------------------------------------------------------------------------

    def retry(self) -> None:
        super().retry()
        self._concerning.retry()

    def _batchers(self) -> tuple[Batcher, ...]:  # type: ignore[type-arg]  # of whatever
        return (*super()._batchers(), self._concerning)

    @property
    def unstored(self) -> int:
        return self._concerning.backlog

    # -- before it is sent -----------------------------------------------------------------------------------

    def skips_queue(self, shard: ShardState, timer: Timer, page: Span, *, now: datetime) -> bool:
        """Record at once what is too late, and as of all timers what an answer means."""
        if super().skips_queue(shard, timer, page, now=now):
            return True
        schedule = timer.schedule
        view = self._namespaces.get(timer.namespace)
        if not timer.is_schedule or schedule is None or view is None or not view.is_usable:
            return False
        try:
            occurrences = self._occurrences_of(timer)
        except CalendarMissing:
            outcome = _waiting(timer, now)
        except ScheduleUnreadable:
            outcome = unreadable(timer, now=now, settings=self._context.settings)
        else:
            if must_look(schedule) or not (schedule.is_buffered or is_late(schedule, now)):
                return False
            due = turn(schedule, occurrences, now=now, is_open=False)
            if due.action is Action.FIRE and due.schedule == schedule:
                return False
            outcome = _step(timer, due, occurrences, now=now)
        attempt = self._in_flight.take(self, shard, timer, queue_key(timer), page, self._context.clock.monotonic())
        self._recorder.record(attempt, outcome)
        return True

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:
        timer = attempt.timer
        if timer.is_schedule and timer.schedule is not None and must_look(timer.schedule):
            self.decide_later(attempt)
            return None
        return super().start(attempt, now)

    def _decide_all(self, timers: Sequence[Timer]) -> list[Timer | Outcome]:
        """Decide about schedules whose earlier occurrence may go on."""
        now = self._context.clock.now()
        pairs = zip(timers, self._ongoing(timers, now), strict=True)
        return [self._to_send(timer, ongoing, now) for timer, ongoing in pairs]

    def _ongoing(self, schedules: Sequence[Timer], now: datetime) -> list[Timer | None]:
        """Return the earlier occurrence of each, if it goes on. In a thread."""
        return self._schedules.ongoing(schedules, now=now)

    def _take(self, attempt: Attempt, decision: Timer | Outcome) -> Callback | None:
        if isinstance(decision, Outcome):
            self._recorder.record(attempt, decision)
        elif self._may_start(attempt):
            attempt.timer = decision
            return super().start(attempt, self._context.clock.now())
        else:
            self._in_flight.settle(attempt)
        return None

    def _to_send(self, timer: Timer, ongoing: Timer | None, now: datetime) -> Timer | Outcome:
        """Return the schedule as its pending occurrence is sent, or else what is recorded."""
        schedule = timer.schedule
        assert schedule is not None
        assert schedule.open_at is not None
        if ongoing is None:
            schedule = closed(schedule, schedule.open_at)
        try:
            occurrences = self._occurrences_of(timer)
        except CalendarMissing:
            return _waiting(timer, now)
        due = turn(schedule, occurrences, now=now, is_open=ongoing is not None)
        if due.action is Action.FIRE and due.schedule == schedule:
            return replace(timer, schedule=due.schedule)
        return _step(timer, due, occurrences, now=now, ongoing=ongoing)

    def _occurrences_of(self, timer: Timer) -> Occurrences:
        """Return when it occurs. Raises ``ScheduleUnreadable`` and ``CalendarMissing``."""
        return occurrences_of(timer, lambda name: self._namespaces.calendar(timer.namespace, name))

    # -- after it was sent -----------------------------------------------------------------------------------

    def _classify(self, result: CallbackResult, now: datetime) -> Classification:
        return classify_occurrence(result, now=now)

    def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record. Of an occurrence that is a timer of its own, change the schedule first: a crash in between repeats
        both."""
        if concerns_schedule(outcome):
            self._concerning.add((attempt, outcome))
        else:
            super()._record(attempt, outcome)

    def _change_all(self, batch: Sequence[tuple[Attempt, Outcome]]) -> list[list[ScheduleEvent]]:
        """In a thread."""
        return [self._change(outcome) for _, outcome in batch]

    def _change(self, outcome: Outcome) -> list[ScheduleEvent]:
        now, own = self._context.clock.now(), outcome.timer
        events: list[ScheduleEvent] = []

        def change(timer: Timer) -> Timer:
            if timer.schedule is None or timer.created_at > own.created_at:  # another one with the id
                return timer
            schedule = after_response(timer.schedule, outcome, now=now)
            events[:] = schedule_events(timer, schedule, (), at=now)
            return timer if schedule == timer.schedule else standing_at(timer, schedule, now=now)

        self._schedules.change_of(own, change, now=now)
        return events

    def _record_all(self, batch: Sequence[tuple[Attempt, Outcome]], results: Sequence[list[ScheduleEvent]]) -> None:
        for (attempt, outcome), events in zip(batch, results, strict=True):
            for event in events:
                self._recorder.announce(event)
            self._recorder.record(attempt, outcome)

    def _record_refused(self, concerning: tuple[Attempt, Outcome], error: Exception) -> None:
        """Record what was refused: the occurrence has ended all the same."""
        attempt, outcome = concerning
        self._log_refused(outcome.timer, error)
        self._recorder.record(attempt, outcome)

    def _settle_all(self, batch: Sequence[tuple[Attempt, Outcome]]) -> None:
        """Their attempts will be made again by the next owner."""
        for attempt, _ in batch:
            self._in_flight.settle(attempt)

    def to_record(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        timer = outcome.timer
        if outcome.schedule is not None:
            return outcome
        now = self._context.clock.now()
        started_at = attempt.fired_at if outcome.is_of_attempt else None
        if not timer.is_schedule:
            return after_last_attempt(outcome, now=now, started_at=started_at)
        return self._moved_on(outcome, now, started_at)

    def _moved_on(self, outcome: Outcome, now: datetime, started_at: datetime | None) -> Outcome:
        """Return what is recorded of a schedule when its attempt, or its turn, has led to ``outcome``."""
        occurrences: Occurrences
        try:
            occurrences = self._occurrences_of(outcome.timer)
        except CalendarMissing:
            if not outcome.is_of_attempt:
                return _waiting(outcome.timer, now)
            occurrences = Unknown(now + timedelta(seconds=CALENDAR_SECONDS))
        except ScheduleUnreadable:
            return outcome

        def again(timer: Timer) -> Outcome:
            """Another revision: what was sent stays sent, and goes on as it was sent."""
            moved, step = self._moved_on(replace(outcome, timer=timer), now, started_at), following.schedule
            if moved.schedule is None or step is None:
                return moved
            return replace(moved, schedule=replace(moved.schedule, detached=step.detached))

        following = after_attempt(
            outcome,
            occurrences,
            now=now,
            started_at=started_at,
            again=again if outcome.is_of_attempt else None,
        )
        return following


def _waiting(timer: Timer, now: datetime) -> Outcome:
    """Return what is recorded of a schedule whose calendar is not there: nothing is sent, and it looks again."""
    assert timer.schedule is not None
    log.warning(
        "a schedule waits for its calendar, which does not exist",
        extra={"action": "schedule.calendar_missing", "namespace": timer.namespace, "timer_id": timer.timer_id},
    )
    return moved(timer, timer.schedule, due_at=now + timedelta(seconds=CALENDAR_SECONDS))


def must_look(schedule: Schedule) -> bool:
    """Tell whether an earlier occurrence, which may go on, decides what becomes of the pending one."""
    return schedule.open_at is not None and schedule.policy.overlap is not Overlap.ALLOW


def _step(
    timer: Timer, due: Turn, occurrences: Occurrences, *, now: datetime, ongoing: Timer | None = None
) -> Outcome:
    """Return what is recorded when the pending occurrence is not sent, or is not the one that was pending.

    ``ongoing``: the earlier one that goes on.
    """
    schedule = due.schedule
    lines = [] if due.missed is None else [line_of_missed(due.missed, now=now)]
    due_at = None
    if due.action is Action.SKIP:
        lines.append(line_of_skipped(schedule, now=now))
        schedule = skipped(schedule, occurrences)
    elif due.action is Action.FIRE and timer.schedule is not None:
        # It is due at once, and still the one that has waited.
        schedule = replace(schedule, is_buffered=timer.schedule.is_buffered)
    elif schedule.is_buffered:
        due_at = _next_look(ongoing, now)
    return moved(timer, schedule, *lines, due_at=due_at)


def _next_look(ongoing: Timer | None, now: datetime) -> datetime:
    """Return when to look again for the end of an occurrence: one that waits for its retry does not end before."""
    if ongoing is not None and ongoing.state is TimerState.SCHEDULED and ongoing.next_attempt_at is not None:
        return max(ongoing.next_attempt_at, now) + _MARGIN
    return now + timedelta(seconds=LOOK_SECONDS)
