"""What becomes of the attempts of plain timers: answers are turned into outcomes, and outcomes are recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from duetime.delivery.answers import Answer, Verdict, read_answer
from duetime.delivery.port import CallbackResult
from duetime.domain.clock import Clock
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer, TimerState
from duetime.engine.gated import GatedAttempts
from duetime.engine.keys import firing_key
from duetime.engine.outcomes import expired, outcome_of, parked
from duetime.engine.owned import OwnedShard
from duetime.engine.recording import Recordable, Recorder
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.under_way import Attempt

log = logging.getLogger(__name__)


class RecordedAttempts:
    """Everything here runs in the event loop's thread."""

    def __init__(
        self,
        recorder: Recorder,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        new_id: Callable[[], str],
        random: Callable[[], float],
        on_due: Callable[[], None],
        gated: GatedAttempts | None = None,
    ) -> None:
        """``on_due`` is called when a retry or reschedule was recorded, whose time may be near. ``gated``: the timers
        that pass a gate."""
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._new_id = new_id
        self._random = random
        self._on_due = on_due
        self._gated = gated
        if gated is not None:
            gated.record = self.record

    @property
    def backlog(self) -> int:
        """Outcomes that are not recorded yet."""
        return self._recorder.backlog

    # -- answers ---------------------------------------------------------------------------------------------

    def take_result(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        if attempt.is_parking:
            attempt.result = result
        elif not attempt.is_superseded:
            self._conclude(attempt, result, now)

    def expire(self, shard: OwnedShard, timer: Timer, now: datetime) -> None:
        """It is too late to fire ``timer``, which was taken."""
        self.record(shard, shard.lease, expired(timer, now=now, settings=self._settings))

    def record(self, shard: OwnedShard, lease: Lease, outcome: Outcome) -> None:
        if outcome.state is TimerState.FAILED:
            _log_failed(outcome.timer, outcome)
        self._recorder.add(Recordable(outcome, lease, lambda status: self._recorded(shard, outcome, status)))

    def _conclude(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        timer = attempt.timer
        gated = self._gate_of(timer)
        answer = read_answer(result, now=now) if gated is None else gated.read_answer(result, now=now)
        outcome = outcome_of(
            timer,
            answer,
            result=result,
            fired_at=attempt.fired_at,
            now=now,
            settings=self._settings,
            default_policy=attempt.default_policy,
            random=self._random(),
            new_firing_id=self._new_id() if answer.verdict is Verdict.RESCHEDULE else "",
        )
        if answer.verdict is Verdict.FIRED and answer.message:
            _log_unfollowed(timer, answer)
        self.record(attempt.shard, attempt.lease, outcome)

    def _recorded(self, shard: OwnedShard, outcome: Outcome, status: RecordStatus | None) -> None:
        shard.settle(firing_key(outcome.timer))
        gated = self._gate_of(outcome.timer)
        is_put_off = (
            gated is not None and outcome.state is TimerState.SCHEDULED and outcome.attempts == outcome.timer.attempts
        )
        if not is_put_off:
            self._stats.count_outcome(outcome, status)
        if gated is not None and (is_put_off or outcome.expires_at is not None):
            gated.note_recorded(outcome)
        if status is RecordStatus.APPLIED and outcome.next_attempt_at is not None:
            shard.note_due(outcome.next_attempt_at, now=self._clock.now(), monotonic=self._clock.monotonic())
            self._on_due()

    def _gate_of(self, timer: Timer) -> GatedAttempts | None:
        return self._gated if self._gated is not None and self._gated.takes(timer.namespace) else None

    # -- parking ---------------------------------------------------------------------------------------------

    def park(self, attempts: Iterable[Attempt], *, started_before: float) -> None:
        """Park those of ``attempts``, which are in the order of their start, that are not parked yet."""
        for attempt in attempts:
            if attempt.started > started_before:
                break
            if not (attempt.is_parking or attempt.is_parked or attempt.is_superseded):
                self._park_one(attempt)

    def _park_one(self, attempt: Attempt) -> None:
        attempt.is_parking = True
        outcome = parked(attempt.timer, fired_at=attempt.fired_at, settings=self._settings)
        self._recorder.add(Recordable(outcome, attempt.lease, lambda status: self._parked(attempt, outcome, status)))

    def _parked(self, attempt: Attempt, outcome: Outcome, status: RecordStatus | None) -> None:
        before = firing_key(attempt.timer)
        attempt.is_parking = False
        if status is RecordStatus.APPLIED:
            self._stats.parked += 1
            attempt.is_parked = True
            attempt.timer = replace(
                attempt.timer,
                state=outcome.state,
                revision=attempt.timer.revision + 1,
                next_attempt_at=outcome.next_attempt_at,
            )
            attempt.shard.park(before, attempt.timer)
            if attempt.result is not None:
                self._conclude(attempt, attempt.result, self._clock.now())
        else:
            attempt.shard.settle(before)
            attempt.is_superseded = True
            self._stats.count_outcome(outcome, status)


def _log_failed(timer: Timer, outcome: Outcome) -> None:
    assert outcome.failure is not None
    log.warning(
        "timer failed",
        extra={
            "action": "timer.failed",
            "namespace": timer.namespace,
            "timer_id": timer.timer_id,
            "firing_id": timer.firing_id,
            "attempts": outcome.attempts,
            "reason": outcome.failure.reason,
            "correlation_id": timer.content.correlation_id,
        },
    )


def _log_unfollowed(timer: Timer, answer: Answer) -> None:
    """The receiver was satisfied, but asked for something that cannot be done."""
    log.warning(
        answer.message,
        extra={
            "action": "timer.answer_unfollowed",
            "namespace": timer.namespace,
            "timer_id": timer.timer_id,
            "firing_id": timer.firing_id,
            "correlation_id": timer.content.correlation_id,
        },
    )
