"""Records outcomes in batches: callback first, record second, so delivery is at least once.

An outcome that ends a timer as failed is announced in between (``engine.firing.failure_events``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.events import TimerFailed, failed_event
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import TimerState
from duetime.engine.batching import Batcher, bug_in, refusal
from duetime.engine.firing.failure_events import FailureEventPublisher
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Offload
from duetime.stores.port.timers import TimerStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recordable(LeasedOutcome):
    """An outcome with its lease, and whom to tell."""

    done: Callable[[RecordStatus | None], None]
    """Called in the event loop's thread; None when recording was given up at the end of a drain. Of REFUSED has been
    told: what is done about it is up to whoever is called."""


class Recorder:
    """Collects outcomes for up to ``record_linger_seconds`` and writes them with ``TimerStore.record``.

    While the store cannot be used it is asked again, with back-off, for as long as the recorder runs: an outcome is
    never dropped while there is a chance to write it. One that the store refuses for good harms no other, and a shard
    that takes nothing for now holds up none but itself.
    What is queued is bounded by the attempts that the poller allows.
    """

    def __init__(
        self,
        timers: TimerStore,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        random: Callable[[], float],
        publisher: FailureEventPublisher | None = None,
    ) -> None:
        """Whoever adds outcomes sets ``on_batch``, which is called after each batch."""
        self.on_batch: Callable[[], None] = lambda: None
        self._timers = timers
        self._clock = clock
        self._stats = stats
        self._publisher = publisher
        self._announcing: dict[int, Recordable] = {}
        self._batcher = Batcher(
            self._write,
            offload=offload,
            settings=settings,
            random=random,
            on_written=self._finish,
            on_error=self._note_error,
            on_refused=self._refuse,
            on_given_up=_give_up,
            is_put_off=lambda status: status is RecordStatus.UNAVAILABLE,
            key_of=lambda item: item.outcome.timer.shard_id,
        )

    def is_held_up(self, shard_id: int) -> bool:
        """Whether outcomes of a shard wait because it takes none for now, unlike others."""
        return self._batcher.is_held_up(shard_id)

    @property
    def backlog(self) -> int:
        """Outcomes that are not recorded yet."""
        return self._batcher.backlog + len(self._announcing)

    def add(self, item: Recordable) -> None:
        if self._publisher is None or item.outcome.state is not TimerState.FAILED:
            self._batcher.add(item)
        else:
            self._announcing[id(item)] = item
            self._publisher.add(failed_event(item.outcome), lambda: self._batcher.add(self._announcing.pop(id(item))))

    def announce(self, event: TimerFailed) -> None:
        """Publish an event that has no outcome to record."""
        if self._publisher is not None:
            self._publisher.add(event, lambda: None)

    @property
    def is_idle(self) -> bool:
        return self.backlog == 0

    def drain(self) -> None:
        """From now on write without waiting for company."""
        self._batcher.drain()

    def retry(self) -> None:
        """The store answers again."""
        self._batcher.retry()

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
            _give_up(unannounced)

    def _write(self, batch: Sequence[Recordable]) -> list[RecordStatus]:
        """In a thread."""
        return self._timers.record(batch, now=self._clock.now())

    def _finish(self, batch: Sequence[Recordable], statuses: Sequence[RecordStatus]) -> None:
        self._stats.record_batches += 1
        for item, status in zip(batch, statuses, strict=True):
            if status is RecordStatus.REFUSED:
                self._tell_refused(item, None)
            _tell(item, status)
        self.on_batch()

    def _refuse(self, item: Recordable, error: Exception) -> None:
        self._tell_refused(item, error)
        _tell(item, RecordStatus.REFUSED)
        self.on_batch()

    def _tell_refused(self, item: Recordable, error: Exception | None) -> None:
        """``error`` None: the store knows it, and has told."""
        self._stats.record_refused += 1
        outcome = item.outcome
        log.error(
            "the store refuses an outcome; the others are recorded",
            exc_info=bug_in(error),
            extra={"action": "record.refused", "state": outcome.state, **refusal(outcome.timer, error)},
        )

    def _note_error(self, error: StoreError, batch: Sequence[Recordable]) -> None:
        self._stats.record_errors += 1
        log.warning(
            "the store did not record outcomes, trying again",
            extra={"action": "record.retried", "error": error.code, "outcomes": len(batch)},
        )


def _tell(item: Recordable, status: RecordStatus | None) -> None:
    """What goes wrong for one is nobody else's fault."""
    try:
        item.done(status)
    except Exception:
        timer = item.outcome.timer
        log.exception(
            "what follows from a recorded outcome failed",
            extra={"action": "record.crashed", "namespace": timer.namespace, "timer_id": timer.timer_id},
        )


def _give_up(batch: Sequence[Recordable]) -> None:
    """The attempts will be made again by the next owner: at least once."""
    if batch:
        log.error(
            "outcomes were not recorded before the deadline; their timers will fire again",
            extra={"action": "record.abandoned", "outcomes": len(batch)},
        )
    for item in batch:
        _tell(item, None)
