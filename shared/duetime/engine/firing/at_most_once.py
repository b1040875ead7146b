"""At-most-once delivery: store that an execution begins, send its request, store the result.

What is stored is up to a handler (``execution_handler``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from duetime.delivery.port import CallbackResult
from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.outcomes import Outcome
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.batching import Batcher, bug_in, refusal
from duetime.engine.firing.deferring import Deferrals
from duetime.engine.firing.execution_handler import (
    Answered,
    Conclusion,
    ExecutionHandler,
    Message,
    StartResult,
    StartStatus,
    Turn,
)
from duetime.engine.firing.in_flight import Attempt
from duetime.engine.firing.outcomes import ended_silently, unreadable
from duetime.engine.keys import FiringKey, QueueKey, firing_key
from duetime.engine.payloads import HeldPayloads
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Offload

log = logging.getLogger(__name__)

_MOST_OF_A_LIFE = 0.7
_LEAST_SECONDS = 1.0
_BATCH_SIZE = 25
"""A message is sent when its whole batch is begun, and how large the messages of a batch are is known only then."""
_COPIES = 4
"""Of a body: as it is stored, as it is sent, the HTTP client's own, and in the log."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A timer whose turn it is. ``taken``: when it left its queue, monotonic; ``queue`` None: it was in none."""

    shard: ShardState
    queue: QueueKey | None
    turn: Turn
    taken: float

    @property
    def lease(self) -> Lease:
        return self.turn.lease

    @property
    def timer(self) -> Timer:
        return self.turn.timer


Begun = tuple[Beginning, Message | None]
"""None: there is nothing to send."""


@dataclass(frozen=True, slots=True)
class _Ending:
    attempt: Attempt
    answered: Answered


class AtMostOnceDelivery:
    """Everything but ``_begin`` and ``_conclude`` runs in the event loop's thread.

    Whoever makes it sets ``on_begun``, which is told what became of turns, batch by batch, and ``on_room``, which is
    called when something was concluded.
    """

    def __init__(
        self,
        handler: ExecutionHandler,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        random: Callable[[], float],
        new_id: Callable[[], str],
        payloads: HeldPayloads,
        record: Callable[[ShardState, Lease, Outcome], None],
        on_due: Callable[[], None],
        postponed: Deferrals,
    ) -> None:
        """``record`` records the outcome of a timer whose handler has nothing to do with it any more; ``on_due`` is
        called when a timer has got a due time that may be near."""
        self.on_begun: Callable[[Sequence[Begun]], None] = lambda begun: None  # noqa: ARG005
        self.on_room: Callable[[], None] = lambda: None
        self._handler = handler
        self.takes = handler.takes
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._new_id = new_id
        self._payloads = payloads
        self._record = record
        self._on_due = on_due
        self._postponed = postponed
        self._open: set[str] = set()
        """Firings with an attempt that is in flight or not concluded: theirs is not to be ended by the watchdog."""
        self._is_starting = True
        self._began_at = 0.0
        self._ends_at: float | None = None
        self._beginnings: Batcher[Beginning, StartResult] = Batcher(
            self._begin,
            offload=offload,
            settings=settings,
            random=random,
            batch_size=_BATCH_SIZE,
            linger_seconds=0.0,
            is_wanted=self._may_begin,
            on_written=self._take_turns,
            on_error=self._note_begin_error,
            on_refused=self._postpone,
            on_given_up=self._take_back,
            is_put_off=lambda result: result.status is StartStatus.UNAVAILABLE,
            key_of=lambda beginning: _partition_of(beginning.timer),
        )
        self._endings: Batcher[_Ending, Conclusion] = Batcher(
            self._conclude,
            offload=offload,
            settings=settings,
            random=random,
            batch_size=_BATCH_SIZE,
            on_written=self._take_conclusions,
            on_error=self._note_conclude_error,
            on_refused=self._leave_refused,
            on_given_up=self._leave_to_watchdog,
            is_put_off=lambda conclusion: conclusion.is_put_off,
            key_of=lambda ending: _partition_of(ending.attempt.timer),
        )

    # -- life ------------------------------------------------------------------------------------------------

    def start(self, ends_at: float | None) -> None:
        """``ends_at``: the monotonic time at which what is in flight will be given up, if that is known."""
        self._is_starting = True
        self._began_at = self._clock.monotonic()
        self._ends_at = ends_at

    def stop_starting(self) -> None:
        self._is_starting = False
        self._endings.drain()

    def retry(self) -> None:
        """The store answers again."""
        self._beginnings.retry()
        self._endings.retry()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beginnings.run())
            group.create_task(self._endings.run())

    @property
    def beginning(self) -> int:
        """Turns that may yet become callbacks in flight."""
        return self._beginnings.backlog

    @property
    def unconcluded(self) -> int:
        """Answers that are not stored yet."""
        return self._endings.backlog

    # -- turns -----------------------------------------------------------------------------------------------

    def is_in_flight(self, timer: Timer) -> bool:
        """Whether an attempt of this firing, of whatever revision, is in flight here."""
        return timer.firing_id in self._open

    def is_full(self, namespace: str) -> bool:
        """Whether so much is in flight in bytes that no more of this namespace should begin."""
        return self.takes(namespace) and not self._payloads.wants(namespace)

    def has_time_for(self, timer: Timer) -> bool:
        """False when this poller will end before ``timer`` is sure to be answered, and the next one has more time.

        What takes longer than most of any poller's life is begun early in one.
        """
        if self._ends_at is None:
            return True
        needed = min(
            float(timer.content.callback_timeout_seconds), _MOST_OF_A_LIFE * (self._ends_at - self._began_at)
        )
        return self._ends_at - self._clock.monotonic() >= needed

    def begin(self, shard: ShardState, timer: Timer, *, queue: QueueKey | None, monotonic: float) -> None:
        """It is the turn of ``timer``, which was taken. ``on_begun`` will tell of it."""
        self._beginnings.add(Beginning(shard, queue, Turn(timer, shard.lease, self._new_id()), monotonic))

    def _may_begin(self, beginning: Beginning) -> bool:
        return (
            self._is_starting
            and beginning.shard.is_trusted(self._clock.monotonic())
            and (beginning.queue is None or self._payloads.wants(beginning.timer.namespace))
        )

    def _begin(self, batch: Sequence[Beginning]) -> list[StartResult]:
        """In a thread."""
        return self._handler.begin([each.turn for each in batch], now=self._clock.now())

    def _take_turns(self, batch: Sequence[Beginning], results: Sequence[StartResult]) -> None:
        now = self._clock.now()
        begun = [(each, self._take_turn(each, result, now)) for each, result in zip(batch, results, strict=True)]
        self.on_begun(begun)

    def _take_turn(self, beginning: Beginning, result: StartResult, now: datetime) -> Message | None:
        """What is to be sent."""
        shard, timer = beginning.shard, beginning.timer
        if result.status is StartStatus.GONE:
            self._record(shard, beginning.lease, ended_silently(timer, now=now))
            return None
        if result.status is StartStatus.UNREADABLE:
            self._record(shard, beginning.lease, unreadable(timer, now=now, settings=self._settings))
            return None
        shard.settle(firing_key(timer))
        self._postponed.forget(firing_key(timer))
        self._stats.lease_lost += result.status is StartStatus.LEASE_LOST
        self._stats.superseded += result.status is StartStatus.SUPERSEDED
        self._stats.executions_timed_out += result.is_timed_out
        self._stats.count_ended(result.ended_as)
        if result.message is not None:
            message = _in_time(result.message, now) if beginning.queue is not None else None
            if message is not None:
                self._open.add(timer.firing_id)
                body = message.callback.body
                self._payloads.hold(_body_key(timer), timer.namespace, 0 if body is None else _COPIES * len(body))
                return message
            log.error(
                "begun too long ago to be sent; the watchdog ends it",
                extra={"action": "call.unsent", **_names(timer)},
            )
        self._note_wake(shard, now if result.status is StartStatus.SUPERSEDED else result.wake_at)
        return None

    def _postpone(self, beginning: Beginning, error: Exception) -> None:
        """Nothing was sent for it, and it stays due."""
        self._stats.record_refused += 1
        log.error(
            "the next step of a service call cannot be taken; it is tried again later",
            exc_info=bug_in(error),
            extra={"action": "call.step_failed", **refusal(beginning.timer, error)},
        )
        self._postponed.put_back(beginning.shard, beginning.timer)
        self.on_begun([(beginning, None)])

    def _take_back(self, batch: Sequence[Beginning]) -> None:
        """They stay due."""
        for beginning in batch:
            beginning.shard.settle(firing_key(beginning.timer))
        self.on_begun([(beginning, None) for beginning in batch])

    # -- answers ---------------------------------------------------------------------------------------------

    def conclude(self, attempt: Attempt, result: CallbackResult) -> None:
        """The callback of ``attempt`` has ended."""
        self._endings.add(_Ending(attempt, Answered(attempt.token, result)))

    def abandon(self, attempt: Attempt) -> None:
        """No response will come: the watchdog will end it."""
        self._forget(attempt.timer)

    def _forget(self, timer: Timer) -> None:
        self._open.discard(timer.firing_id)
        self._payloads.remove(_body_key(timer))

    def _conclude(self, batch: Sequence[_Ending]) -> list[Conclusion]:
        """In a thread."""
        return self._handler.conclude([ending.answered for ending in batch], now=self._clock.now())

    def _take_conclusions(self, batch: Sequence[_Ending], conclusions: Sequence[Conclusion]) -> None:
        for ending, conclusion in zip(batch, conclusions, strict=True):
            self._forget(ending.attempt.timer)
            self._stats.count_ended(conclusion.ended_as)
            self._note_wake(ending.attempt.shard, conclusion.wake_at)
        self.on_room()

    def _leave_refused(self, ending: _Ending, error: Exception) -> None:
        self._stats.record_refused += 1
        log.error(
            "a response cannot be stored; the watchdog ends its execution",
            exc_info=bug_in(error),
            extra={"action": "call.answer_refused", **refusal(ending.attempt.timer, error)},
        )
        self._forget(ending.attempt.timer)
        self.on_room()

    def _leave_to_watchdog(self, batch: Sequence[_Ending]) -> None:
        for ending in batch:
            self._forget(ending.attempt.timer)
            log.error(
                "a response was not stored; the watchdog ends its execution",
                extra={"action": "call.unconcluded", **_names(ending.attempt.timer)},
            )

    # -- the rest --------------------------------------------------------------------------------------------

    def _note_wake(self, shard: ShardState, wake_at: datetime | None) -> None:
        if wake_at is not None:
            shard.note_due(wake_at, now=self._clock.now(), monotonic=self._clock.monotonic())
            self._on_due()

    def _note_begin_error(self, error: StoreError, batch: Sequence[Beginning]) -> None:
        self._stats.record_errors += 1
        log.warning(
            "the store did not take what begins, trying again",
            extra={"action": "call.begin_retried", "error": error.code, "calls": len(batch)},
        )

    def _note_conclude_error(self, error: StoreError, batch: Sequence[_Ending]) -> None:
        self._stats.record_errors += 1
        log.warning(
            "the store did not take answers, trying again",
            extra={"action": "call.conclude_retried", "error": error.code, "calls": len(batch)},
        )


def _in_time(message: Message, now: datetime) -> Message | None:
    """``message`` with what is left of its time; None when that is not worth sending it."""
    callback = message.callback
    left = (message.answer_by - now).total_seconds()
    if left >= callback.timeout_seconds:
        return message
    if left < _LEAST_SECONDS:
        return None
    return replace(message, callback=replace(callback, timeout_seconds=left))


def _partition_of(timer: Timer) -> tuple[str, int]:
    """What may be unavailable for ``timer`` and not for others."""
    return timer.namespace, timer.shard_id


def _body_key(timer: Timer) -> FiringKey:
    """What ``HeldPayloads`` knows a message by; no timer has such a number of attempts."""
    return timer.firing_id, -1


def _names(timer: Timer) -> dict[str, str | None]:
    return {
        "namespace": timer.namespace,
        "timer_id": timer.timer_id,
        "correlation_id": timer.content.correlation_id,
    }
