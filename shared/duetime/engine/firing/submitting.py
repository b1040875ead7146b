"""Delivery of schedules that submit service calls: an occurrence is stored as a call, and then recorded.

A crash in between repeats both; the same occurrence leads to the same call.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import compress

from duetime.delivery.port import Callback
from duetime.domain.errors import DuetimeError, NamespaceNotFound, ScheduleUnreadable
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Timer
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Launcher
from duetime.engine.firing.call_submission import CallSubmission, TenantTimer
from duetime.engine.firing.recurring import RecurringDelivery, must_look
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.decide import submitted, unreadable, unsubmitted
from duetime.engine.response.record import Recorder
from duetime.stores.core.schedules import ScheduleStore


class SubmittingDelivery(RecurringDelivery):
    """Of schedules with ``Timer.submits_call``, and of their timers."""

    def __init__(
        self,
        submission: CallSubmission,
        schedules: ScheduleStore,
        context: EngineContext,
        recorder: Recorder,
        namespaces: NamespaceCache,
        *,
        in_flight: InFlight,
        deferrals: Deferrals,
        launcher: Launcher,
    ) -> None:
        self._submission = submission
        super().__init__(
            schedules, context, recorder, namespaces, in_flight=in_flight, deferrals=deferrals, launcher=launcher
        )

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:
        attempt.fired_at = now
        self.decide_later(attempt)
        return None

    def _decide_all(self, timers: Sequence[Timer]) -> list[Timer | Outcome]:
        looks = [each.is_schedule and each.schedule is not None and must_look(each.schedule) for each in timers]
        decided = iter(super()._decide_all([*compress(timers, looks)]))
        due = [next(decided) if look else timer for timer, look in zip(timers, looks, strict=True)]
        calls = iter(self._submit([each for each in due if isinstance(each, Timer)]))
        return [next(calls) if isinstance(each, Timer) else each for each in due]

    def _submit(self, occurrences: Sequence[Timer]) -> list[Outcome]:
        now, settings = self._context.clock.now(), self._context.settings
        calls = self._submission.submit([self._owned(each) for each in occurrences], now=now)
        outcomes = []
        for timer, call in zip(occurrences, calls, strict=True):
            if isinstance(call, ScheduleUnreadable):
                outcomes.append(unreadable(timer, now=now, settings=settings))
            elif isinstance(call, DuetimeError):
                outcomes.append(unsubmitted(timer, call.message, now=now, settings=settings))
            else:
                outcomes.append(submitted(timer, call, now=now, settings=settings))
        return outcomes

    def _ongoing(self, schedules: Sequence[Timer], now: datetime) -> list[Timer | None]:
        return self._submission.ongoing([self._owned(each) for each in schedules], now=now)

    def _owned(self, timer: Timer) -> TenantTimer:
        namespace = self._namespaces.stored(timer.namespace)
        if namespace is None:  # it is tried again later
            raise NamespaceNotFound(timer.namespace)
        return TenantTimer(namespace.tenant_id, timer)
