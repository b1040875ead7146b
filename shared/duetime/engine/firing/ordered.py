"""Ordered delivery: a policy decides beside the event loop whose turn it is."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duetime.delivery.port import Callback
from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.outcomes import Outcome
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.batching import Batcher, bug_in, refusal
from duetime.engine.firing.deferring import Deferrals
from duetime.engine.firing.ordering_policy import Decision, OrderingPolicy
from duetime.engine.firing.outcomes import failed_as, put_off
from duetime.engine.keys import QueueKey, firing_key
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Offload

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """A timer that asks to be decided. ``taken``: when it left its queue, monotonic."""

    shard: ShardState
    lease: Lease
    queue: QueueKey
    timer: Timer
    taken: float


Decided = tuple[Pending, Callback | None]
"""None: there is nothing to send."""


class OrderedDelivery:
    """Everything but the policy's own work runs in the event loop's thread.

    Whoever makes it sets ``on_decided``, which is told what became of candidates, batch by batch, and ``record``,
    which records an outcome of a timer that nothing is sent for and calls ``note_recorded``.
    """

    def __init__(
        self,
        ordering: OrderingPolicy,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        random: Callable[[], float],
        postponed: Deferrals,
    ) -> None:
        self.on_decided: Callable[[Sequence[Decided]], None] = lambda decided: None  # noqa: ARG005
        self.record: Callable[[ShardState, Lease, Outcome], None] = lambda shard, lease, outcome: None  # noqa: ARG005
        self._ordering = ordering
        self.takes = ordering.takes
        self.classify = ordering.classify
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._postponed = postponed
        self._is_starting = True
        self._decisions: Batcher[Pending, Decision] = Batcher(
            lambda batch: self._ordering.admit([each.timer for each in batch], now=self._clock.now()),
            offload=offload,
            settings=settings,
            random=random,
            linger_seconds=0.0,
            is_wanted=self._may_start,
            on_written=self._take_decisions,
            on_error=self._note_error,
            on_refused=self._postpone,
            on_given_up=self._take_back,
        )
        self._recorded: Batcher[Outcome, None] = Batcher(
            self._tell_recorded,
            offload=offload,
            settings=settings,
            random=random,
            linger_seconds=0.0,
            on_written=lambda batch, results: None,  # noqa: ARG005
            on_error=self._note_error,
            on_refused=lambda outcome, error: self._tell_refused(outcome.timer, error),
            on_given_up=lambda batch: None,  # noqa: ARG005 (who waits for them looks by itself after a while)
        )

    # -- life ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._is_starting = True

    def stop_starting(self) -> None:
        self._is_starting = False

    def retry(self) -> None:
        """The store answers again."""
        self._decisions.retry()
        self._recorded.retry()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decisions.run())
            group.create_task(self._recorded.run())

    @property
    def asking(self) -> int:
        """Candidates that may yet become callbacks in flight."""
        return self._decisions.backlog

    @property
    def untold(self) -> int:
        """Outcomes that the policy has not been told of."""
        return self._recorded.backlog

    # -- turns -----------------------------------------------------------------------------------------------

    def ask(self, shard: ShardState, timer: Timer, *, queue: QueueKey, monotonic: float) -> None:
        """It is the turn of ``timer``, which was taken, as far as the engine is concerned."""
        self._decisions.add(Pending(shard, shard.lease, queue, timer, monotonic))

    def note_recorded(self, outcome: Outcome) -> None:
        """``outcome``, which ends a timer or puts it off, was recorded, or something else was there in its place."""
        self._recorded.add(outcome)

    def _may_start(self, candidate: Pending) -> bool:
        return self._is_starting and candidate.shard.is_trusted(self._clock.monotonic())

    def _take_decisions(self, batch: Sequence[Pending], decisions: Sequence[Decision]) -> None:
        self.on_decided([(each, self._take(each, decision)) for each, decision in zip(batch, decisions, strict=True)])

    def _take(self, candidate: Pending, decision: Decision) -> Callback | None:
        """What is to be sent."""
        timer = candidate.timer
        if decision.callback is not None:
            if self._may_start(candidate):
                return decision.callback
            candidate.shard.settle(firing_key(timer))
        elif decision.failure is not None:
            outcome = failed_as(timer, decision.failure, now=self._clock.now(), settings=self._settings)
            self.record(candidate.shard, candidate.lease, outcome)
        else:
            assert decision.wait_until is not None
            self.record(candidate.shard, candidate.lease, put_off(timer, until=decision.wait_until))
        return None

    def _postpone(self, candidate: Pending, error: Exception) -> None:
        """Nothing was sent for it, and it stays due."""
        self._tell_refused(candidate.timer, error)
        self._postponed.put_back(candidate.shard, candidate.timer)
        self.on_decided([(candidate, None)])

    def _take_back(self, batch: Sequence[Pending]) -> None:
        """They stay due."""
        for candidate in batch:
            candidate.shard.settle(firing_key(candidate.timer))
        self.on_decided([(candidate, None) for candidate in batch])

    # -- the rest --------------------------------------------------------------------------------------------

    def _tell_recorded(self, batch: Sequence[Outcome]) -> list[None]:
        """In a thread."""
        self._ordering.recorded(batch, now=self._clock.now())
        return [None] * len(batch)

    def _tell_refused(self, timer: Timer, error: Exception) -> None:
        self._stats.record_refused += 1
        log.error(
            "the store refuses what a delivery needs; the others go on",
            exc_info=bug_in(error),
            extra={"action": "delivery.refused", **refusal(timer, error)},
        )

    def _note_error(self, error: StoreError, batch: Sequence[object]) -> None:
        self._stats.record_errors += 1
        log.warning(
            "the store did not answer about deliveries, trying again",
            extra={"action": "delivery.retried", "error": error.code, "deliveries": len(batch)},
        )
