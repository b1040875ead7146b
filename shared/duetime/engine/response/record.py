"""Records outcomes in batches, and applies what came of that to their attempts.

The callback comes first and the record second, so delivery is at least once. An outcome that ends a timer as failed
is announced in between (``engine.response.failure_events``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace

from duetime.domain.escalations import escalated
from duetime.domain.events import Event, ScheduleEvent, ScheduleEventType, failed_event, schedule_events
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus
from duetime.domain.timers import TimerState
from duetime.engine.batching import Batcher, Partitions, bug_in, refusal, timer_facts
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, AttemptState
from duetime.engine.in_flight import Deferrals, InFlight
from duetime.engine.keys import firing_key
from duetime.engine.response.decide import parked, unrecorded
from duetime.engine.response.failure_events import FailureEventPublisher, FailureEvents
from duetime.stores.core.store import TimerStore

log = logging.getLogger(__name__)


@hot_dataclass(frozen=True, slots=True)
class _Item(LeasedOutcome):
    """``instead_of``: what the store has refused."""

    attempt: Attempt
    instead_of: Outcome | None = None


class Recorder:
    """Collects outcomes for up to ``record_linger_seconds`` and writes them with ``TimerStore.record``.

    While the store cannot be used it is asked again, with back-off, for as long as the recorder runs: an outcome is
    never dropped while there is a chance to write it. One that the store refuses for good harms no other, and a shard
    that takes nothing for now holds up none but itself.
    What is queued is bounded by the attempts that the poller allows.
    """

    def __init__(
        self,
        context: EngineContext,
        timers: TimerStore,
        in_flight: InFlight,
        deferrals: Deferrals,
        *,
        on_batch: Callable[[], None],
        events: FailureEvents | None = None,
    ) -> None:
        """``on_batch`` is called after each batch: it made room. ``events`` None: nobody is told of failures."""
        self._timers = timers
        self._in_flight = in_flight
        self._deferrals = deferrals
        self._on_batch = on_batch
        self._clock = context.clock
        self._settings = context.settings
        self._stats = context.stats
        self._wake = context.wake
        self._publisher = None if events is None else FailureEventPublisher(events, context)
        self._announcing: dict[int, _Item] = {}
        self._batcher: Batcher[_Item, RecordStatus] = Batcher(
            self._write,
            context,
            context.threads.make(context.settings.record_concurrency, "duetime-record"),
            action="record.retried",
            on_written=self._apply_batch,
            on_refused=self._refuse,
            on_given_up=self._give_up,
            partitions=Partitions(
                lambda status: status is RecordStatus.UNAVAILABLE, lambda item: item.outcome.timer.shard_id
            ),
        )

    # -- life ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Write until cancelled."""
        announcing = None
        if self._publisher is not None:
            announcing = asyncio.get_running_loop().create_task(self._publisher.run())
        try:
            await self._batcher.run()
        finally:
            if self._publisher is not None and announcing is not None:
                announcing.cancel()
                self._publisher.clear()
            unannounced = list(self._announcing.values())
            self._announcing.clear()
            self._give_up(unannounced)

    def drain(self) -> None:
        """Write without waiting for company from now on."""
        self._batcher.drain()

    def retry(self) -> None:
        """Go on after an outage: the store answers again."""
        self._batcher.retry()

    def is_held_up(self, shard_id: int) -> bool:
        """Tell whether a shard takes no outcomes for now, unlike others: then nothing of it is to be fired, for what
        is not recorded takes room from all."""
        return self._batcher.is_held_up(shard_id)

    @property
    def is_idle(self) -> bool:
        return not (self._batcher.backlog or self._announcing)

    @property
    def backlog(self) -> int:
        """Outcomes that are not recorded yet, as far as they are to slow down the firing."""
        # Some that the store refuses may wait beside the others; more of them slow the firing down as a slow store
        # does, for every buffer has a bound.
        deferred = max(0, len(self._deferrals) - self._settings.max_buffered // 2)
        return self._batcher.backlog + len(self._announcing) + deferred

    # -- recording -------------------------------------------------------------------------------------------

    def record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Record ``outcome``: what ``attempt``, or the turn of its timer, has led to."""
        if outcome.state is TimerState.FAILED:
            outcome = escalated(outcome)
        self._add(_Item(attempt.delivery.to_record(attempt, outcome), attempt.lease, attempt))

    def park(self, attempt: Attempt) -> None:
        """Store when its timer may be fired again, if nothing has come of ``attempt`` by then."""
        attempt.state = AttemptState.PARKING
        outcome = attempt.delivery.to_record(attempt, parked(attempt.timer, fired_at=attempt.fired_at))
        self._add(_Item(outcome, attempt.lease, attempt))

    def announce(self, event: Event) -> None:
        """Publish an event that has no outcome to record."""
        if isinstance(event, ScheduleEvent):
            _log_event(event)
        if self._publisher is not None:
            self._publisher.add(event, lambda: None)

    def _add(self, item: _Item) -> None:
        outcome = item.outcome.of_attempt
        events: list[Event] = []
        if outcome.state is TimerState.FAILED:
            _log_failed(outcome)
            events.append(failed_event(outcome))
        for change in self._of_schedule(item.outcome):
            _log_event(change)
            events.append(change)
        if self._publisher is None or not events:
            self._batcher.add(item)
            return
        self._announcing[id(item)] = item
        left = len(events)

        def announced() -> None:
            nonlocal left
            left -= 1
            if not left:
                self._batcher.add(self._announcing.pop(id(item)))

        for event in events:
            self._publisher.add(event, announced)

    def _of_schedule(self, outcome: Outcome) -> list[ScheduleEvent]:
        step = outcome.schedule
        if step is None or not outcome.timer.is_schedule:
            return []
        at = step.occurrences[0].recorded_at if step.occurrences else self._clock.now()
        return schedule_events(outcome.timer, step.schedule, step.occurrences, at=at)

    def _write(self, batch: Sequence[_Item]) -> list[RecordStatus]:
        """In a thread."""
        return self._timers.record(batch, now=self._clock.now())

    # -- applying --------------------------------------------------------------------------------------------

    def _apply_batch(self, batch: Sequence[_Item], statuses: Sequence[RecordStatus]) -> None:
        self._stats.record_batches += 1
        for item, status in zip(batch, statuses, strict=True):
            if status is RecordStatus.REFUSED:
                self._log_refused(item, None)
            self._apply(item, status)
        self._on_batch()

    def _refuse(self, item: _Item, error: Exception) -> None:
        self._log_refused(item, error)
        self._apply(item, RecordStatus.REFUSED)
        self._on_batch()

    def _give_up(self, batch: Sequence[_Item]) -> None:
        """Give up: the attempts will be made again by the next owner, at least once."""
        if batch:
            log.error(
                "outcomes were not recorded before the deadline; their timers will fire again",
                extra={"action": "record.abandoned", "outcomes": len(batch)},
            )
        for item in batch:
            self._apply(item, None)

    def _apply(self, item: _Item, status: RecordStatus | None) -> None:
        """Apply ``status``; None: recording was given up. What goes wrong for one is nobody else's fault."""
        try:
            if item.outcome.of_attempt.state is TimerState.FIRING:
                self._apply_parking(item.attempt, item.outcome, status)
            elif status is RecordStatus.REFUSED:
                self._end_otherwise(item)
            else:
                self._apply_outcome(item.attempt, item.outcome, status)
        except Exception:
            timer = item.outcome.timer
            log.exception(
                "what follows from a recorded outcome failed",
                extra={"action": "record.crashed", "namespace": timer.namespace, "timer_id": timer.timer_id},
            )

    def _apply_outcome(self, attempt: Attempt, outcome: Outcome, status: RecordStatus | None) -> None:
        self._in_flight.settle(attempt)
        self._deferrals.forget(firing_key(outcome.timer))
        of_attempt = outcome.of_attempt
        if not of_attempt.is_put_off:
            self._stats.count_outcome(of_attempt, status)
        attempt.delivery.recorded(outcome)
        if status is RecordStatus.APPLIED:
            self._note_due(attempt, outcome)
            if outcome.schedule is not None:
                self._stats.count_occurrences(outcome.timer.namespace, outcome.schedule.occurrences)

    def _note_due(self, attempt: Attempt, outcome: Outcome) -> None:
        beside = outcome.beside
        for at in (outcome.next_attempt_at, None if beside is None else beside.next_attempt_at):
            if at is not None:
                attempt.shard.note_due(at, self._clock.monotonic_at(at))
                self._wake.set()

    def _end_otherwise(self, refused: _Item) -> None:
        """End the timer, which says less than its outcome does.

        Where the store refuses that as well, both are tried again, ever later: firing the timer again would only add
        to the damage.
        """
        attempt, instead_of = refused.attempt, refused.instead_of
        if instead_of is None:
            end = unrecorded(refused.outcome.of_attempt, now=self._clock.now(), settings=self._settings)
            end = attempt.delivery.to_record(attempt, escalated(end))
            self._add(_Item(end, refused.lease, attempt, instead_of=refused.outcome))
            return
        self._deferrals.postpone(
            firing_key(refused.outcome.timer),
            lambda: self._add(_Item(instead_of, refused.lease, attempt)),
            give_up=lambda: self._in_flight.settle(attempt),
        )

    def _apply_parking(self, attempt: Attempt, outcome: Outcome, status: RecordStatus | None) -> None:
        if status is RecordStatus.APPLIED:
            self._stats.parked += 1
            timer = attempt.timer
            becomes = replace(
                timer, state=outcome.state, revision=timer.revision + 1, next_attempt_at=outcome.next_attempt_at
            )
            if outcome.schedule is not None and outcome.schedule.detached is not None:
                becomes = outcome.schedule.detached
                self._note_due(attempt, outcome)
            self._in_flight.park(attempt, becomes)
        elif status is RecordStatus.REFUSED:
            # It stays as it is while its callback is in flight; a crash would have it fired again sooner than else.
            attempt.state = AttemptState.PARKED
        else:
            self._in_flight.settle(attempt)
            attempt.state = AttemptState.SUPERSEDED
            self._stats.count_outcome(outcome.of_attempt, status)
        if attempt.result is not None and attempt.state is AttemptState.PARKED:
            attempt.delivery.finish(attempt, attempt.result, self._clock.now())

    # -- log lines -------------------------------------------------------------------------------------------

    def _log_refused(self, item: _Item, error: Exception | None) -> None:
        """Log what was refused. ``error`` None: the store knows it, and has told."""
        self._stats.record_refused += 1
        outcome = item.outcome
        log.error(
            "the store refuses an outcome; the others are recorded",
            exc_info=bug_in(error),
            extra={"action": "record.refused", "state": outcome.state, **refusal(outcome.timer, error)},
        )


def _log_event(event: ScheduleEvent) -> None:
    facts: dict[str, object] = {"namespace": event.namespace, "schedule_id": event.schedule_id}
    if event.type is ScheduleEventType.MISFIRED and event.missed is not None:
        action, line = {"action": "schedule.misfired", "count": event.missed.count}, "occurrences were missed"
    elif event.type is ScheduleEventType.PAUSED:
        action, line = {"action": "schedule.paused", "reason": event.reason}, "schedule paused"
    else:
        log.info("schedule ended", extra={"action": "schedule.ended", "reason": event.reason, **facts})
        return
    log.warning(line, extra={**action, **facts})


def _log_failed(outcome: Outcome) -> None:
    assert outcome.failure is not None
    log.warning(
        "timer failed",
        extra={
            "action": "timer.failed",
            **timer_facts(outcome.timer),
            "attempts": outcome.attempts,
            "reason": outcome.failure.reason,
        },
    )
