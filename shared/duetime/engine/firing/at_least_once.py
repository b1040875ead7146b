"""What becomes of the attempts of plain timers: answers are turned into outcomes, and outcomes are recorded."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime

from duetime.delivery.port import CallbackResult
from duetime.delivery.response import Classification, Disposition, classify
from duetime.domain.clock import Clock
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import FailureReason, Timer, TimerState
from duetime.engine.firing.deferring import Deferrals
from duetime.engine.firing.in_flight import Attempt
from duetime.engine.firing.ordered import OrderedDelivery
from duetime.engine.firing.outcomes import expired, missed, outcome_of, parked, unrecorded
from duetime.engine.firing.recording import Recordable, Recorder
from duetime.engine.keys import firing_key
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats

log = logging.getLogger(__name__)

_UNREAD = Classification(Disposition.RETRY, reason=FailureReason.NOT_OK, message="the response could not be read")


class AtLeastOnceDelivery:
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
        postponed: Deferrals,
        ordered: OrderedDelivery | None = None,
    ) -> None:
        """``on_due`` is called when a retry or reschedule was recorded, whose time may be near.

        ``ordered``: ordered delivery, which has a say about its own timers.
        """
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._new_id = new_id
        self._random = random
        self._on_due = on_due
        self._postponed = postponed
        self._ordered = ordered
        if ordered is not None:
            ordered.record = self.record

    @property
    def backlog(self) -> int:
        """Outcomes that are not recorded yet."""
        # Some that the store refuses may wait beside the others; more of them slow the firing down as a slow store
        # does, for every buffer has a bound.
        return self._recorder.backlog + max(0, len(self._postponed) - self._settings.max_buffered // 2)

    def is_held_up(self, shard_id: int) -> bool:
        """Whether a shard takes no outcomes for now: then nothing of it is to be fired, for what is unrecorded takes
        room from all."""
        return self._recorder.is_held_up(shard_id)

    # -- answers ---------------------------------------------------------------------------------------------

    def take_result(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        if attempt.is_parking:
            attempt.result = result
        elif not attempt.is_superseded:
            self._conclude(attempt, result, now)

    def expire(self, shard: ShardState, timer: Timer, now: datetime) -> None:
        """It is too late to fire ``timer``, which was taken."""
        end = expired if timer.is_too_late(now) else missed
        self.record(shard, shard.lease, end(timer, now=now, settings=self._settings))

    def record(self, shard: ShardState, lease: Lease, outcome: Outcome) -> None:
        self._record(shard, lease, outcome, instead_of=None)

    def _record(self, shard: ShardState, lease: Lease, outcome: Outcome, *, instead_of: Outcome | None) -> None:
        """``instead_of``: what the store has refused."""
        if outcome.state is TimerState.FAILED:
            _log_failed(outcome.timer, outcome)

        def done(status: RecordStatus | None) -> None:
            if status is RecordStatus.REFUSED:
                self._refused(shard, lease, outcome, instead_of)
            else:
                self._recorded(shard, outcome, status)

        self._recorder.add(Recordable(outcome, lease, done))

    def _refused(self, shard: ShardState, lease: Lease, outcome: Outcome, instead_of: Outcome | None) -> None:
        """The timer ends, which says less than its outcome does. Where the store refuses that as well, both are tried
        again, ever later: firing the timer again would only add to the damage."""
        if instead_of is None:
            end = unrecorded(outcome, now=self._clock.now(), settings=self._settings)
            self._record(shard, lease, end, instead_of=outcome)
            return
        key = firing_key(outcome.timer)
        self._postponed.postpone(
            key,
            lambda: self._record(shard, lease, instead_of, instead_of=None),
            give_up=lambda: shard.settle(key),
        )

    def _conclude(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        timer = attempt.timer
        try:
            ordered = self._ordered_of(timer)
            answer = classify(result, now=now) if ordered is None else ordered.classify(result, now=now)
            outcome = self._outcome_of(attempt, answer, result, now)
        except Exception:  # one answer that nobody foresaw must not cost the others, nor its timer
            log.exception(
                "a response could not be read; its timer is retried",
                extra={"action": "timer.answer_unread", **_names(timer)},
            )
            answer = _UNREAD
            outcome = self._outcome_of(attempt, answer, replace(result, body=b"", head=()), now)
        if answer.disposition is Disposition.FIRED and answer.message:
            _log_unfollowed(timer, answer)
        self.record(attempt.shard, attempt.lease, outcome)

    def _outcome_of(self, attempt: Attempt, answer: Classification, result: CallbackResult, now: datetime) -> Outcome:
        return outcome_of(
            attempt.timer,
            answer,
            result=result,
            fired_at=attempt.fired_at,
            now=now,
            settings=self._settings,
            default_policy=attempt.default_policy,
            random=self._random(),
            new_firing_id=self._new_id() if answer.disposition is Disposition.RESCHEDULE else "",
        )

    def _recorded(self, shard: ShardState, outcome: Outcome, status: RecordStatus | None) -> None:
        shard.settle(firing_key(outcome.timer))
        self._postponed.forget(firing_key(outcome.timer))
        ordered = self._ordered_of(outcome.timer)
        is_put_off = (
            ordered is not None
            and outcome.state is TimerState.SCHEDULED
            and outcome.attempts == outcome.timer.attempts
        )
        if not is_put_off:
            self._stats.count_outcome(outcome, status)
        if ordered is not None and (is_put_off or outcome.expires_at is not None):
            ordered.note_recorded(outcome)
        if status is RecordStatus.APPLIED and outcome.next_attempt_at is not None:
            shard.note_due(outcome.next_attempt_at, now=self._clock.now(), monotonic=self._clock.monotonic())
            self._on_due()

    def _ordered_of(self, timer: Timer) -> OrderedDelivery | None:
        return self._ordered if self._ordered is not None and self._ordered.takes(timer.namespace) else None

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
        elif status is RecordStatus.REFUSED:
            # It stays as it is while its callback is in flight; a crash would have it fired again sooner than else.
            attempt.is_parked = True
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
            **_names(timer),
            "attempts": outcome.attempts,
            "reason": outcome.failure.reason,
        },
    )


def _log_unfollowed(timer: Timer, answer: Classification) -> None:
    """The receiver was satisfied, but asked for something that cannot be done."""
    log.warning(
        answer.message,
        extra={"action": "timer.answer_unfollowed", **_names(timer)},
    )


def _names(timer: Timer) -> dict[str, str | None]:
    return {
        "namespace": timer.namespace,
        "timer_id": timer.timer_id,
        "firing_id": timer.firing_id,
        "correlation_id": timer.content.correlation_id,
    }
