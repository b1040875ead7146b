"""The poller: owns shards, reads what is due, fires it, records the outcomes, and stops in good order.

One event loop per poller. The sender works within it; store calls run in threads beside it, in batches.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from duetime.delivery.encryption import SecretBox
from duetime.delivery.port import Sender
from duetime.domain.errors import StoreError
from duetime.domain.timers import Timer
from duetime.engine.context import EngineContext
from duetime.engine.firing.call_submission import CallSubmission
from duetime.engine.firing.execution_handler import ExecutionHandler
from duetime.engine.firing.firing import Firing
from duetime.engine.firing.ordering_policy import OrderingPolicy
from duetime.engine.namespace_cache import NamespaceCache
from duetime.engine.response.failure_events import FailureEvents
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.leases import LeaseKeeper
from duetime.engine.shards.polling import Polling
from duetime.engine.stats import EngineSnapshot, EngineStats, NamespaceStats, snapshot_of
from duetime.engine.waiting import Offload, ThreadOffload, Threads, WakeupEvent
from duetime.stores.core.leases import HasDied, nobody_has
from duetime.stores.core.store import Store
from duetime.stores.store_clock import StoreClock

log = logging.getLogger(__name__)

_READS_AHEAD = 3
"""In so many poll intervals each shard is looked at, also where its last read failed once."""
_QUICK_SECONDS = 0.1
"""A callback that takes longer does not hold up a hand-over: it is parked."""
FINAL_WRITES_SECONDS = 5.0
"""Kept back from a deadline for the last records and the release of the shards."""


class Poller:
    """Fires the timers of the shards that it owns. ``run`` may be called again after it has returned."""

    def __init__(
        self,
        store: Store,
        sender: Sender,
        *,
        clock: StoreClock,
        settings: EngineSettings,
        worker_id: str,
        metadata: str = "{}",
        has_died: HasDied = nobody_has,
        new_id: Callable[[], str],
        random: Callable[[], float],
        secret_box: SecretBox | None = None,
        make_offload: Callable[[int, str], Offload] = ThreadOffload,
        events: FailureEvents | None = None,
        handler: ExecutionHandler | None = None,
        ordering: OrderingPolicy | None = None,
        submission: CallSubmission | None = None,
    ) -> None:
        """``random`` gives floats in [0, 1); ``make_offload(threads, name)`` makes what runs store calls.

        ``metadata``: JSON that claims store of this worker. ``has_died`` as in ``LeaseStore.claim``. ``events`` is
        told of timers that failed; ``handler`` takes over the timers of internal namespaces, and those of others
        pass ``ordering``; ``submission`` stores the service calls of schedules.
        ``secret_box`` decrypts the secrets of namespaces; without one, timers of namespaces with a secret wait.
        """
        self._store = store
        self._sender = sender
        self._clock = clock
        self._settings = settings
        self._stats = EngineStats(namespaces={name: NamespaceStats() for name in settings.metrics_namespaces})
        self._wake = WakeupEvent()
        self._threads = Threads(make_offload)
        context = EngineContext(
            clock=clock,
            settings=settings,
            stats=self._stats,
            random=random,
            new_id=new_id,
            wake=self._wake,
            threads=self._threads,
        )
        self._namespaces = NamespaceCache(
            store.catalogue, clock=clock, secret_box=secret_box, public_url=settings.public_url
        )
        self._firing = Firing(
            context,
            sender,
            store.timers,
            store.schedules,
            self._namespaces,
            on_room=self._wake_for_room,
            events=events,
            handler=handler,
            ordering=ordering,
            submission=submission,
        )
        self._leases = LeaseKeeper(
            context,
            store,
            worker_id=worker_id,
            metadata=metadata,
            has_died=has_died,
            on_recovery=self._retry,
            drop=self._firing.drop,
        )
        self._polling = Polling(context, store.timers, self._leases, self._firing, self._namespaces)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tell_others: Callable[[Mapping[int, datetime]], None] = lambda _: None

    # -- for others ------------------------------------------------------------------------------------------

    def connect(self, tell_others: Callable[[Mapping[int, datetime]], None]) -> None:
        """Have ``tell_others`` told, by shard, what ``notify`` hears of shards that others own. From any thread."""
        self._tell_others = tell_others

    def notify(self, timers: Sequence[Timer]) -> None:
        """Hint from any thread that this process has just stored ``timers``: be awake when they are due.

        Those that are due later than the next reads are found by these.
        """
        if self._loop is None:
            return
        found_anyway_at = self._clock.now() + timedelta(seconds=_READS_AHEAD * self._settings.poll_interval_seconds)
        earliest: dict[int, datetime] = {}
        for timer in timers:
            at = timer.next_attempt_at
            if at is None or at > found_anyway_at:
                continue
            if timer.shard_id not in earliest or at < earliest[timer.shard_id]:
                earliest[timer.shard_id] = at
        if not earliest:
            return
        owned = self._leases.owned
        others = {shard_id: at for shard_id, at in earliest.items() if shard_id not in owned}
        if others:
            self._tell_others(others)
        if len(others) < len(earliest):
            self.note_due(earliest)

    def note_due(self, earliest: Mapping[int, datetime]) -> None:
        """Hint from any thread, by shard, when the first of what was stored is due. Ignored where others own it."""
        loop = self._loop
        if loop is None:
            return
        try:
            loop.call_soon_threadsafe(self._note_due, earliest)
        except RuntimeError:
            log.debug("a hint came after the loop had closed", extra={"action": "poller.hint_dropped"})

    def look_again(self) -> None:
        """Hint from any thread that shards or namespaces may have changed: look at all now, not when it is time."""
        loop = self._loop
        if loop is not None:
            with suppress(RuntimeError):  # the loop has closed
                loop.call_soon_threadsafe(self._look_again)

    def set_shards(self, shard_ids: Sequence[int]) -> None:
        """Change the shards of a run that was given some. What is owned and not among them is kept. In the loop."""
        self._leases.set_shards(shard_ids)

    def stats(self) -> dict[str, int]:
        """Return what a log line has: counters since the start, and what is owned and in flight now."""
        return {
            **self._stats.counters(),
            "shards_owned": len(self._leases.owned),
            "in_flight": self._firing.in_flight,
            "lag_milliseconds_max": int(self._stats.lag.snapshot().max * 1000),
        }

    def snapshot(self) -> EngineSnapshot:
        """Return what metrics have: everything that is counted. May be called from any thread."""
        shards = list(self._leases.owned.values())
        return snapshot_of(
            self._stats,
            {
                "shards_owned": len(shards),
                **self._firing.gauges(),
                "backlogged_shards": sum(shard.reading.has_backlog for shard in shards),
                "orphaned_shards": self._leases.orphans,
                "shards_given_back": self.shards_given_back,
                "clock_offset_milliseconds": round((self._clock.offset_seconds or 0.0) * 1000),
            },
        )

    @property
    def shards_given_back(self) -> int:
        """How many were given back since they cannot be read. From any thread."""
        return self._leases.unreadable

    def close(self) -> None:
        """Release the threads. The store belongs to the caller."""
        self._threads.close()

    # -- life ------------------------------------------------------------------------------------------------

    async def run(
        self, stop: asyncio.Event, *, shard_ids: Sequence[int] | None = None, deadline: float | None = None
    ) -> None:
        """Poll and fire until ``stop`` is set or ``deadline`` (``clock.monotonic()`` seconds) draws near.

        ``shard_ids`` None: all shards there are, shared fairly with the other workers. Returns when what was under
        way is recorded (or parked, where a receiver takes longer than the drain) and all shards are released.
        """
        self._loop = asyncio.get_running_loop()
        self._sender.start(self._firing.take_results)
        self._firing.begin(None if deadline is None else deadline - FINAL_WRITES_SECONDS)
        self._leases.begin(shard_ids, deadline)
        lasting = [self._loop.create_task(service.run()) for service in (self._firing, self._leases)]
        others = [
            self._loop.create_task(coroutine)
            for coroutine in (self._polling.run(), self._tend_loop(), self._polling.prune())
        ]
        tasks = [*lasting, *others]
        stop_wait = self._loop.create_task(_wait_for(stop))
        try:
            await asyncio.wait(
                {stop_wait, *tasks},
                timeout=None if deadline is None else self._seconds_to_drain(deadline),
                return_when=asyncio.FIRST_COMPLETED,
            )
            self._raise_failure(tasks)
            await _cancel(others)
            await self._drain(deadline)
            await _cancel(lasting)
            await self._hand_back()
        finally:
            await _cancel([stop_wait, *tasks, *self._polling.tasks])
            self._sender.close()
            self._firing.end()
            self._loop = None

    def _seconds_to_drain(self, deadline: float) -> float:
        left = deadline - self._clock.monotonic()
        return max(0.0, left - min(self._settings.drain_seconds + FINAL_WRITES_SECONDS, left / 2))

    @staticmethod
    def _raise_failure(tasks: Sequence[asyncio.Task[None]]) -> None:
        """Raise if a loop has ended: none does by itself, and the poller must not go on without it."""
        for task in tasks:
            if task.done():
                task.result()

    async def _drain(self, deadline: float | None) -> None:
        """Let what is in flight finish, parked if it takes long; hand shards back as soon as nothing holds them."""
        self._leases.stop_claiming()
        self._firing.drain()
        park_at = self._clock.monotonic() + _QUICK_SECONDS
        end = self._clock.monotonic() + self._settings.drain_seconds
        if deadline is not None:
            end = min(end, deadline - min(FINAL_WRITES_SECONDS, (deadline - self._clock.monotonic()) / 2))
        for shard in self._leases.owned.values():
            shard.is_releasing = True
        while self._clock.monotonic() < end and not self._firing.is_idle:
            if self._clock.monotonic() >= park_at:
                self._firing.park_all()
            self._leases.release_soon()
            await self._wake.wait(min(_QUICK_SECONDS, end - self._clock.monotonic()))
        self._firing.park_all()
        final = self._clock.monotonic() + FINAL_WRITES_SECONDS
        while self._clock.monotonic() < final and self._firing.unstored:
            await self._wake.wait(0.05)
        self._firing.abandon()

    async def _hand_back(self) -> None:
        try:
            await self._leases.release_all(FINAL_WRITES_SECONDS)
        except StoreError as error:
            log.warning(
                "shards could not be released; they are free when their leases end: %s",
                error,
                extra={"action": "shard.release_failed", "error": error.code},
            )

    # -- polling ---------------------------------------------------------------------------------------------

    def _note_due(self, earliest: Mapping[int, datetime]) -> None:
        for shard_id, at in earliest.items():
            shard = self._leases.owned.get(shard_id)
            if shard is not None:
                shard.note_due(at, self._clock.monotonic_at(at))
        self._wake.set()

    def _look_again(self) -> None:
        self._namespaces.expire()
        self._leases.look()
        for shard in self._leases.owned.values():
            shard.reading.look_again(self._clock.monotonic())
        self._wake.set()

    def _retry(self) -> None:
        """Go on after an outage: the store answers again."""
        for shard in self._leases.owned.values():
            shard.reading.retry(self._clock.monotonic())
        self._firing.retry()
        self._wake.set()

    def _wake_for_room(self) -> None:
        if self._polling.has_backlog:
            self._wake.set()

    # -- the rest --------------------------------------------------------------------------------------------

    async def _tend_loop(self) -> None:
        while True:
            # What comes while there is nothing to tend is parked no earlier than after all of this.
            seconds = self._settings.park_after_seconds
            await asyncio.sleep(seconds if self._firing.has_nothing else seconds / 4)
            self._firing.tend()


async def _wait_for(event: asyncio.Event) -> None:
    await event.wait()


async def _cancel(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
