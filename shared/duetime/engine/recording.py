"""Records outcomes in batches: callback first, record second, so delivery is at least once.

An outcome that ends a timer as failed is announced in between (``engine.announcing``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from duetime.domain.clock import Clock
from duetime.domain.errors import StoreError
from duetime.domain.events import TimerFailed, failed_event
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import TimerState
from duetime.engine.announcing import Announcer
from duetime.engine.settings import EngineSettings
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Alarm, Offload
from duetime.stores.port import Store

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recordable:
    """An outcome, the lease under which its attempt was started, and whom to tell."""

    outcome: Outcome
    lease: Lease
    done: Callable[[RecordStatus | None], None]
    """Called in the event loop's thread; None when recording was given up at the end of a drain."""


class Recorder:
    """Collects outcomes for up to ``record_linger_seconds`` and writes them with ``Store.record``.

    A store error is retried with back-off for as long as the recorder runs: an outcome is never dropped while
    there is a chance to write it. What is queued is bounded by the attempts that the poller allows.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        offload: Offload,
        random: Callable[[], float],
        announcer: Announcer | None = None,
    ) -> None:
        """Whoever adds outcomes sets ``on_batch``, which is called after each batch."""
        self.on_batch: Callable[[], None] = lambda: None
        self._store = store
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._offload = offload
        self._random = random
        self._announcer = announcer
        self._announcing: dict[int, Recordable] = {}
        self._queue: list[Recordable] = []
        self._alarm = Alarm()
        self._active: set[asyncio.Task[None]] = set()
        self.backlog = 0
        self._is_draining = False

    def add(self, item: Recordable) -> None:
        self.backlog += 1
        if self._announcer is None or item.outcome.state is not TimerState.FAILED:
            self._enqueue(item)
        else:
            self._announcing[id(item)] = item
            self._announcer.add(failed_event(item.outcome), lambda: self._enqueue(self._announcing.pop(id(item))))

    def announce(self, event: TimerFailed) -> None:
        """Publish an event that has no outcome to record."""
        if self._announcer is not None:
            self._announcer.add(event, lambda: None)

    def _enqueue(self, item: Recordable) -> None:
        self._queue.append(item)
        if len(self._queue) == 1 or len(self._queue) >= self._settings.record_batch_size:
            self._alarm.ring()

    @property
    def is_idle(self) -> bool:
        return self.backlog == 0

    def drain(self) -> None:
        """From now on write without waiting for company."""
        self._is_draining = True
        self._alarm.ring()

    async def run(self) -> None:
        """Write until cancelled."""
        announcing = None
        if self._announcer is not None:
            announcing = asyncio.get_running_loop().create_task(self._announcer.run())
        try:
            while True:
                await self._alarm.wait(3600.0)
                if self._queue and not self._is_draining and len(self._queue) < self._settings.record_batch_size:
                    await self._alarm.wait(self._settings.record_linger_seconds)
                self._start_writes()
        finally:
            self._is_draining = False
            for task in self._active:
                task.cancel()
            if self._announcer is not None and announcing is not None:
                announcing.cancel()
                self._announcer.clear()
            queue, self._queue = [*self._announcing.values(), *self._queue], []
            self._announcing.clear()
            self._give_up(queue)

    def _start_writes(self) -> None:
        size = self._settings.record_batch_size
        while self._queue and len(self._active) < self._settings.record_concurrency:
            batch, self._queue = self._queue[:size], self._queue[size:]
            task = asyncio.get_running_loop().create_task(self._write(batch))
            self._active.add(task)
            task.add_done_callback(self._finish_write)

    def _finish_write(self, task: asyncio.Task[None]) -> None:
        self._active.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("recording failed", exc_info=error, extra={"action": "record.crashed"})
        if self._queue:
            self._alarm.ring()

    async def _write(self, batch: list[Recordable]) -> None:
        """Try until the store has answered for every item."""
        errors = 0
        outcomes = [item.outcome for item in batch]
        leases = {item.lease.shard_id: item.lease for item in batch}
        try:
            while True:
                now = self._clock.now()
                try:
                    statuses = await self._offload.run(
                        lambda now=now: self._store.record(outcomes, leases=leases, now=now)  # type: ignore[misc]
                    )
                    break
                except StoreError as error:
                    errors += 1
                    self._stats.record_errors += 1
                    log.warning(
                        "the store did not record outcomes, trying again",
                        extra={"action": "record.retried", "error": error.code, "outcomes": len(batch)},
                    )
                    await asyncio.sleep(self._settings.backoff_after(errors, self._random()))
        except asyncio.CancelledError:
            self._give_up(batch)
            raise
        self._stats.record_batches += 1
        self.backlog -= len(batch)
        for item, status in zip(batch, statuses, strict=True):
            item.done(status)
        self.on_batch()

    def _give_up(self, batch: list[Recordable]) -> None:
        """The attempts will be made again by the next owner: at least once."""
        if batch:
            log.error(
                "outcomes were not recorded before the deadline; their timers will fire again",
                extra={"action": "record.abandoned", "outcomes": len(batch)},
            )
        self.backlog -= len(batch)
        for item in batch:
            item.done(None)
