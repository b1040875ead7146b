"""The timers that pass a gate (``engine.gating``): admitted beside the event loop, sent and recorded like others."""

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
from duetime.engine.gating import Admission, TimerGate
from duetime.engine.keys import LaneKey, firing_key
from duetime.engine.outcomes import failed_as, put_off
from duetime.engine.owned import OwnedShard
from duetime.engine.postponing import Postponements
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Offload

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A timer that asks to be admitted. ``taken``: when it left its lane, monotonic."""

    shard: OwnedShard
    lease: Lease
    lane: LaneKey
    timer: Timer
    taken: float


Admitted = tuple[Candidate, Callback | None]
"""None: there is nothing to send."""


class GatedAttempts:
    """Everything but the gate's own work runs in the event loop's thread.

    Whoever makes it sets ``on_admitted``, which is told what became of candidates, batch by batch, and ``record``,
    which records an outcome of a timer that nothing is sent for and calls ``note_recorded``.
    """

    def __init__(
        self,
        gate: TimerGate,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        random: Callable[[], float],
        postponed: Postponements,
    ) -> None:
        self.on_admitted: Callable[[Sequence[Admitted]], None] = lambda admitted: None  # noqa: ARG005
        self.record: Callable[[OwnedShard, Lease, Outcome], None] = lambda shard, lease, outcome: None  # noqa: ARG005
        self._gate = gate
        self.takes = gate.takes
        self.read_answer = gate.read_answer
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._postponed = postponed
        self._is_starting = True
        self._admissions: Batcher[Candidate, Admission] = Batcher(
            lambda batch: self._gate.admit([each.timer for each in batch], now=self._clock.now()),
            offload=offload,
            settings=settings,
            random=random,
            linger_seconds=0.0,
            is_wanted=self._may_start,
            on_written=self._take_admissions,
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
        self._admissions.retry()
        self._recorded.retry()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._admissions.run())
            group.create_task(self._recorded.run())

    @property
    def asking(self) -> int:
        """Candidates that may yet become callbacks under way."""
        return self._admissions.backlog

    @property
    def untold(self) -> int:
        """Outcomes that the gate has not been told of."""
        return self._recorded.backlog

    # -- turns -----------------------------------------------------------------------------------------------

    def ask(self, shard: OwnedShard, timer: Timer, *, lane: LaneKey, monotonic: float) -> None:
        """It is the turn of ``timer``, which was taken, as far as the engine is concerned."""
        self._admissions.add(Candidate(shard, shard.lease, lane, timer, monotonic))

    def note_recorded(self, outcome: Outcome) -> None:
        """``outcome``, which ends a timer or puts it off, was recorded, or something else was there in its place."""
        self._recorded.add(outcome)

    def _may_start(self, candidate: Candidate) -> bool:
        return self._is_starting and candidate.shard.is_trusted(self._clock.monotonic())

    def _take_admissions(self, batch: Sequence[Candidate], admissions: Sequence[Admission]) -> None:
        self.on_admitted(
            [(each, self._take(each, admission)) for each, admission in zip(batch, admissions, strict=True)]
        )

    def _take(self, candidate: Candidate, admission: Admission) -> Callback | None:
        """What is to be sent."""
        timer = candidate.timer
        if admission.callback is not None:
            if self._may_start(candidate):
                return admission.callback
            candidate.shard.settle(firing_key(timer))
        elif admission.failure is not None:
            outcome = failed_as(timer, admission.failure, now=self._clock.now(), settings=self._settings)
            self.record(candidate.shard, candidate.lease, outcome)
        else:
            assert admission.wait_until is not None
            self.record(candidate.shard, candidate.lease, put_off(timer, until=admission.wait_until))
        return None

    def _postpone(self, candidate: Candidate, error: Exception) -> None:
        """Nothing was sent for it, and it stays due."""
        self._tell_refused(candidate.timer, error)
        self._postponed.put_back(candidate.shard, candidate.timer)
        self.on_admitted([(candidate, None)])

    def _take_back(self, batch: Sequence[Candidate]) -> None:
        """They stay due."""
        for candidate in batch:
            candidate.shard.settle(firing_key(candidate.timer))
        self.on_admitted([(candidate, None) for candidate in batch])

    # -- the rest --------------------------------------------------------------------------------------------

    def _tell_recorded(self, batch: Sequence[Outcome]) -> list[None]:
        """In a thread."""
        self._gate.recorded(batch, now=self._clock.now())
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
