"""Starts attempts, follows them, and turns answers into outcomes."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.delivery.answers import Answer, Verdict, read_answer
from duetime.delivery.port import Callback, CallbackResult, Sender
from duetime.delivery.request import callback_for
from duetime.domain.clock import Clock
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.fair_queue import FairQueue
from duetime.engine.outcomes import outcome_of, parked
from duetime.engine.owned import FiringKey, OwnedShard, firing_key
from duetime.engine.recording import Recordable, Recorder
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Attempt:
    """A callback under way. ``timer`` is the revision that its outcome applies to.

    ``answer`` is kept while a parking write is under way: the outcome then waits for the parked revision.
    """

    shard: OwnedShard
    lease: Lease
    timer: Timer
    fired_at: datetime
    started: float
    is_parking: bool = False
    is_parked: bool = False
    answer: Answer | None = None
    result: CallbackResult | None = None
    is_superseded: bool = False


class Firing:
    """The attempts of one poller. Everything here runs in the event loop's thread."""

    def __init__(
        self,
        sender: Sender,
        recorder: Recorder,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        new_id: Callable[[], str],
        random: Callable[[], float],
        on_room: Callable[[], None],
        on_due: Callable[[], None],
    ) -> None:
        """``on_room`` is called when waiting timers have become few enough to read more, ``on_due`` when a retry or
        reschedule was recorded, whose time may be near."""
        self._sender = sender
        self._recorder = recorder
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._new_id = new_id
        self._random = random
        self._on_room = on_room
        self._on_due = on_due
        recorder.on_batch = self.start_attempts
        self._queue = FairQueue()
        self._attempts: dict[int, Attempt] = {}
        self._last_key = 0
        self._is_starting = True

    # -- starting --------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more timers may be read."""
        return self._settings.max_buffered - len(self._queue)

    @property
    def in_flight(self) -> int:
        return len(self._attempts)

    @property
    def waiting(self) -> int:
        """Timers read and not yet started."""
        return len(self._queue)

    def begin(self) -> None:
        self._is_starting = True

    def stop_starting(self) -> None:
        """Start no more attempts; timers that wait are left to the next owner."""
        self._is_starting = False
        self.drop(None)

    def offer(self, shard: OwnedShard, timers: list[Timer]) -> None:
        """Timers that are due and not under way; they are started as soon as there is a place for them."""
        for timer in timers:
            self._queue.add(shard, timer)

    def drop(self, shard: OwnedShard | None) -> None:
        """Forget the timers of ``shard`` (None: of all) that wait. They stay due in the store."""
        for owner, timer in self._queue.remove(lambda waiting: shard is None or waiting[0] is shard):
            owner.settle(firing_key(timer))

    def start_attempts(self) -> None:
        """Hand as many waiting timers to the sender as the bound on attempts allows, in one batch."""
        # What is fired and not yet recorded is bounded too: a slow store slows the firing down.
        places = min(
            self._settings.max_in_flight - len(self._attempts),
            self._settings.max_buffered - self._recorder.backlog,
        )
        if places <= 0 or not self._queue or not self._is_starting:
            return
        monotonic, now = self._clock.monotonic(), self._clock.now()
        callbacks: list[Callback] = []
        while self._queue and len(callbacks) < places:
            shard, timer = self._queue.take()
            if not shard.is_trusted(monotonic):
                shard.settle(firing_key(timer))
                continue
            self._last_key += 1
            self._attempts[self._last_key] = Attempt(shard, shard.lease, timer, now, monotonic)
            callbacks.append(callback_for(timer, key=self._last_key, fired_at=now))
            if timer.attempts == 0:
                self._stats.lag.observe((now - _due_since(timer)).total_seconds())
        if callbacks:
            self._stats.attempts_started += len(callbacks)
            self._sender.submit(callbacks)
        if len(self._queue) <= self._settings.max_buffered // 2:
            self._on_room()

    # -- answers ---------------------------------------------------------------------------------------------

    def take_results(self, results: list[CallbackResult]) -> None:
        """Answers that arrived, one per attempt. Those of attempts given up earlier are ignored."""
        now = self._clock.now()
        for result in results:
            attempt = self._attempts.pop(result.key, None)
            if attempt is None:
                continue
            self._stats.count_answer(result.status, result.duration_seconds)
            answer = read_answer(result, now=now)
            attempt.result = result
            if attempt.is_parking:
                attempt.answer = answer
            elif not attempt.is_superseded:
                self._conclude(attempt, answer, now)
        self.start_attempts()

    def _conclude(self, attempt: Attempt, answer: Answer, now: datetime) -> None:
        assert attempt.result is not None
        outcome = outcome_of(
            attempt.timer,
            answer,
            result=attempt.result,
            fired_at=attempt.fired_at,
            now=now,
            settings=self._settings,
            random=self._random(),
            new_firing_id=self._new_id() if answer.verdict is Verdict.RESCHEDULE else "",
        )
        if answer.verdict is Verdict.FIRED and answer.message:
            self._log_unfollowed(attempt.timer, answer)
        if answer.verdict is Verdict.FAILED or (answer.verdict is Verdict.RETRY and outcome.next_attempt_at is None):
            self._log_failed(attempt.timer, outcome)
        key = firing_key(attempt.timer)
        self._recorder.add(
            Recordable(outcome, attempt.lease, lambda status: self._recorded(attempt, key, outcome, status))
        )

    def _recorded(self, attempt: Attempt, key: FiringKey, outcome: Outcome, status: RecordStatus | None) -> None:
        attempt.shard.settle(key)
        self._count(outcome, status)
        if status is RecordStatus.APPLIED and outcome.next_attempt_at is not None:
            attempt.shard.note_due(outcome.next_attempt_at, now=self._clock.now(), monotonic=self._clock.monotonic())
            self._on_due()

    def _count(self, outcome: Outcome, status: RecordStatus | None) -> None:
        stats = self._stats
        if status is RecordStatus.SUPERSEDED:
            stats.superseded += 1
        elif status is RecordStatus.LEASE_LOST:
            stats.lease_lost += 1
        elif status is RecordStatus.APPLIED:
            if outcome.expires_at is None:
                if outcome.failure is None:
                    stats.rescheduled += 1
                else:
                    stats.retried += 1
                    stats.retried_by[outcome.failure.reason] += 1
            elif outcome.failure is None:
                stats.fired += 1
            else:
                stats.failed += 1
                stats.failed_by[outcome.failure.reason] += 1

    # -- parking ---------------------------------------------------------------------------------------------

    def park_slow(self) -> None:
        """Park the attempts that have been under way for longer than ``park_after_seconds``."""
        self._park(self._clock.monotonic() - self._settings.park_after_seconds)

    def park_all(self) -> None:
        """Park all that is under way, so that the next owner does not fire it again at once."""
        self._park(float("inf"))

    def _park(self, started_before: float) -> None:
        for attempt in self._attempts.values():
            if attempt.started > started_before:
                break  # attempts are in the order of their start
            if not attempt.is_parking and not attempt.is_parked:
                self._park_one(attempt)

    def _park_one(self, attempt: Attempt) -> None:
        attempt.is_parking = True
        outcome = parked(attempt.timer, fired_at=attempt.fired_at, settings=self._settings)
        self._recorder.add(Recordable(outcome, attempt.lease, lambda status: self._parked(attempt, outcome, status)))

    def _parked(self, attempt: Attempt, outcome: Outcome, status: RecordStatus | None) -> None:
        attempt.shard.settle(firing_key(attempt.timer))
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
            attempt.shard.parked.add(firing_key(attempt.timer))
            if attempt.answer is not None:
                self._conclude(attempt, attempt.answer, self._clock.now())
        else:
            attempt.is_superseded = True
            self._count(outcome, status)

    def abandon(self) -> None:
        """At the end of a drain: forget the attempts that are still under way. They are parked in the store."""
        if self._attempts:
            log.warning(
                "callbacks still under way at the deadline; they fire again unless answered by then",
                extra={"action": "firing.abandoned", "attempts": len(self._attempts)},
            )
        for attempt in self._attempts.values():
            attempt.shard.settle(firing_key(attempt.timer))
        self._attempts.clear()

    def _log_failed(self, timer: Timer, outcome: Outcome) -> None:
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

    def _log_unfollowed(self, timer: Timer, answer: Answer) -> None:
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


def _due_since(timer: Timer) -> datetime:
    """What the lag of a first attempt counts from: a timer that was stored with a time in the past is due then."""
    return max(timer.armed_at, timer.updated_at)
