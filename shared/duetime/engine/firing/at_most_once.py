"""At-most-once delivery: store that an execution begins, send its request, store the result.

What is stored is up to a handler (``execution_handler``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import NamedTuple

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.service_calls import MAX_BODY_BYTES
from duetime.domain.timers import Timer, TimerState
from duetime.engine.batching import Batcher, Gathering, Partitions, Room, bug_in, refusal
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Delivery, Launcher
from duetime.engine.firing.execution_handler import (
    Conclusion,
    ExecutionHandler,
    ExecutionResponse,
    Message,
    StartResult,
    StartStatus,
    Turn,
)
from duetime.engine.in_flight import Deferrals, HeldPayloads, InFlight
from duetime.engine.keys import firing_key, queue_key
from duetime.engine.response.decide import ended_silently, unreadable
from duetime.engine.response.record import Recorder
from duetime.engine.shards.reading import Span
from duetime.engine.shards.shard import ShardState

log = logging.getLogger(__name__)

_MOST_OF_A_LIFE = 0.7
_LEAST_SECONDS = 1.0
_BATCH_SIZE = 100
"""A message is sent when its whole batch is begun, which is a transaction where the store can make one."""
_COPIES = 4
"""Of a body: as it is stored, as it is sent, the HTTP client's own, and in the log."""
_LARGEST_BYTES = _COPIES * MAX_BODY_BYTES
"""Reserved for each execution that is begun: how large its body is is known only then."""


class _Beginning(NamedTuple):
    attempt: Attempt
    turn: Turn


class _Ending(NamedTuple):
    attempt: Attempt
    response: ExecutionResponse


class AtMostOnceDelivery(Delivery):
    """Of executions. Everything but ``_begin`` and ``_conclude`` runs in the event loop's thread."""

    def __init__(
        self,
        handler: ExecutionHandler,
        context: EngineContext,
        recorder: Recorder,
        *,
        in_flight: InFlight,
        payloads: HeldPayloads,
        deferrals: Deferrals,
        launcher: Launcher,
    ) -> None:
        """Take ``recorder``, which records the end of a timer whose handler has nothing to do with it any more."""
        self._handler = handler
        self._context = context
        self._clock = context.clock
        self._stats = context.stats
        self._recorder = recorder
        self._in_flight = in_flight
        self._payloads = payloads
        self._deferrals = deferrals
        self._launcher = launcher
        self._is_starting = True
        self._began_at = 0.0
        self._ends_at: float | None = None
        offload = context.threads.make(context.settings.record_concurrency, "duetime-handler")
        self._beginnings: Batcher[_Beginning, StartResult] = Batcher(
            self._begin,
            context,
            offload,
            action="call.begin_retried",
            on_written=self._take_turns,
            on_refused=self._postpone,
            on_given_up=self._take_back,
            is_wanted=self._may_begin,
            partitions=Partitions(
                lambda result: result.status is StartStatus.UNAVAILABLE,
                lambda beginning: _partition_of(beginning.attempt.timer),
            ),
            gathering=Gathering(_BATCH_SIZE, linger_seconds=0.0, room=_room(payloads)),
        )
        self._endings: Batcher[_Ending, Conclusion] = Batcher(
            self._conclude,
            context,
            offload,
            action="call.conclude_retried",
            on_written=self._take_conclusions,
            on_refused=self._leave_refused,
            on_given_up=self._leave_to_watchdog,
            partitions=Partitions(
                lambda conclusion: conclusion.is_put_off,
                lambda ending: _partition_of(ending.attempt.timer),
            ),
        )

    def takes(self, namespace: str) -> bool:
        return self._handler.takes(namespace)

    # -- life ------------------------------------------------------------------------------------------------

    def begin(self, ends_at: float | None) -> None:
        self._is_starting = True
        self._began_at = self._clock.monotonic()
        self._ends_at = ends_at

    def stop_starting(self) -> None:
        self._is_starting = False
        self._endings.drain()

    def retry(self) -> None:
        self._beginnings.retry()
        self._endings.retry()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._beginnings.run())
            group.create_task(self._endings.run())

    @property
    def starting(self) -> int:
        return self._beginnings.backlog

    @property
    def unstored(self) -> int:
        return self._endings.backlog

    # -- before it is sent -----------------------------------------------------------------------------------

    def has_room(self, namespace: str) -> bool:
        """Return False when so much is in flight in bytes that no more of this namespace should begin."""
        return self._payloads.wants(namespace)

    def skips_queue(self, shard: ShardState, timer: Timer, page: Span, *, now: datetime) -> bool:
        if self._in_flight.is_open(timer):
            return True
        is_overdue = timer.state is TimerState.FIRING
        if not is_overdue and self._has_time_for(timer):
            return False
        if not is_overdue or self.starting < self._context.settings.max_in_flight:
            monotonic = self._clock.monotonic()
            attempt = self._in_flight.take(self, shard, timer, queue_key(timer), page, monotonic)
            # An overdue execution ends whatever its host and its namespace's limits are. Anything else is left to the
            # next poller, and not looked at again by this one.
            if is_overdue:
                self.start(attempt, now)
        return True

    def _has_time_for(self, timer: Timer) -> bool:
        """Return False when this poller may end before the response to ``timer``, and the next one has more time.

        What takes longer than most of any poller's life is begun early in one.
        """
        if self._ends_at is None:
            return True
        needed = min(
            float(timer.content.callback_timeout_seconds), _MOST_OF_A_LIFE * (self._ends_at - self._began_at)
        )
        return self._ends_at - self._clock.monotonic() >= needed

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:  # noqa: ARG002
        self._beginnings.add(_Beginning(attempt, Turn(attempt.timer, attempt.lease, self._context.new_id())))
        return None

    def _may_begin(self, beginning: _Beginning) -> bool:
        attempt = beginning.attempt
        return (
            self._is_starting
            and attempt.shard.is_trusted(self._clock.monotonic())
            and (not attempt.has_place or self._payloads.wants(attempt.timer.namespace))
        )

    def _begin(self, batch: Sequence[_Beginning]) -> list[StartResult]:
        """In a thread."""
        return self._handler.begin([each.turn for each in batch], now=self._clock.now())

    def _take_turns(self, batch: Sequence[_Beginning], results: Sequence[StartResult]) -> None:
        now = self._clock.now()
        self._launcher.send(
            [
                (each.attempt, self._take_turn(each.attempt, result, now))
                for each, result in zip(batch, results, strict=True)
            ]
        )

    def _take_turn(self, attempt: Attempt, result: StartResult, now: datetime) -> Callback | None:
        """Return what is to be sent."""
        timer = attempt.timer
        if result.status is StartStatus.GONE:
            self._recorder.record(attempt, ended_silently(timer, now=now))
            return None
        if result.status is StartStatus.UNREADABLE:
            self._recorder.record(attempt, unreadable(timer, now=now, settings=self._context.settings))
            return None
        self._in_flight.settle(attempt)
        self._deferrals.forget(firing_key(timer))
        self._stats.lease_lost += result.status is StartStatus.LEASE_LOST
        self._stats.superseded += result.status is StartStatus.SUPERSEDED
        self._stats.executions_timed_out += result.is_timed_out
        self._stats.count_ended(result.ended_as)
        if result.message is not None:
            callback = _in_time(result.message, now) if attempt.has_place else None
            if callback is not None:
                attempt.token = result.message.token
                self._in_flight.open(attempt, body_bytes=_COPIES * len(callback.body or b""))
                return replace(callback, key=attempt.number)
            log.error(
                "begun too long ago to be sent; the watchdog ends it",
                extra={"action": "call.unsent", **_names(timer)},
            )
        self._note_wake(attempt.shard, now if result.status is StartStatus.SUPERSEDED else result.wake_at)
        return None

    def _postpone(self, beginning: _Beginning, error: Exception) -> None:
        """Leave it due: nothing was sent for it."""
        attempt = beginning.attempt
        self._stats.record_refused += 1
        log.error(
            "the next step of a service call cannot be taken; it is tried again later",
            exc_info=bug_in(error),
            extra={"action": "call.step_failed", **refusal(attempt.timer, error)},
        )
        self._deferrals.put_back(attempt)
        self._launcher.send([(attempt, None)])

    def _take_back(self, batch: Sequence[_Beginning]) -> None:
        """Leave them due."""
        for beginning in batch:
            self._in_flight.settle(beginning.attempt)
        self._launcher.send([(beginning.attempt, None) for beginning in batch])

    # -- after it was sent -----------------------------------------------------------------------------------

    def finish(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:  # noqa: ARG002
        self._endings.add(_Ending(attempt, ExecutionResponse(attempt.token, result)))

    def abandon(self, attempt: Attempt) -> None:
        """Leave it to the watchdog, which will end it."""
        self._in_flight.close(attempt)

    def _conclude(self, batch: Sequence[_Ending]) -> list[Conclusion]:
        """In a thread."""
        return self._handler.conclude([ending.response for ending in batch], now=self._clock.now())

    def _take_conclusions(self, batch: Sequence[_Ending], conclusions: Sequence[Conclusion]) -> None:
        for ending, conclusion in zip(batch, conclusions, strict=True):
            self._in_flight.close(ending.attempt)
            self._stats.count_ended(conclusion.ended_as)
            self._note_wake(ending.attempt.shard, conclusion.wake_at)
        self._launcher.start_attempts()

    def _leave_refused(self, ending: _Ending, error: Exception) -> None:
        self._stats.record_refused += 1
        log.error(
            "a response cannot be stored; the watchdog ends its execution",
            exc_info=bug_in(error),
            extra={"action": "call.response_refused", **refusal(ending.attempt.timer, error)},
        )
        self._in_flight.close(ending.attempt)
        self._launcher.start_attempts()

    def _leave_to_watchdog(self, batch: Sequence[_Ending]) -> None:
        for ending in batch:
            self._in_flight.close(ending.attempt)
            log.error(
                "a response was not stored; the watchdog ends its execution",
                extra={"action": "call.unconcluded", **_names(ending.attempt.timer)},
            )

    # -- the rest --------------------------------------------------------------------------------------------

    def _note_wake(self, shard: ShardState, wake_at: datetime | None) -> None:
        if wake_at is not None:
            shard.note_due(wake_at, self._clock.monotonic_at(wake_at))
            self._context.wake.set()


def _room(payloads: HeldPayloads) -> Room:
    return Room(
        take=lambda most, on_less: payloads.reserve(most, _LARGEST_BYTES, on_less),
        give_back=lambda count: payloads.release(count * _LARGEST_BYTES),
    )


def _in_time(message: Message, now: datetime) -> Callback | None:
    """Return the callback of ``message`` with what is left of its time; None when that is not worth sending it."""
    callback = message.callback
    left = (message.respond_by - now).total_seconds()
    if left >= callback.timeout_seconds:
        return callback
    return None if left < _LEAST_SECONDS else replace(callback, timeout_seconds=left)


def _partition_of(timer: Timer) -> tuple[str, int]:
    """Return what may be unavailable for ``timer`` and not for others."""
    return timer.namespace, timer.shard_id


def _names(timer: Timer) -> dict[str, str | None]:
    return {
        "namespace": timer.namespace,
        "timer_id": timer.timer_id,
        "correlation_id": timer.content.correlation_id,
    }
