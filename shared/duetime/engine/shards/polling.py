"""Reads what is due in the owned shards, page by page, and offers it to be fired."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from math import ceil, inf

from duetime.domain.errors import StoreError, StoreUnavailable
from duetime.engine.context import EngineContext
from duetime.engine.firing.firing import Firing
from duetime.engine.in_flight import payload_bytes
from duetime.engine.namespace_cache import NamespaceCache, NamespaceView
from duetime.engine.response.failure_events import event_of
from duetime.engine.shards.leases import LeaseKeeper
from duetime.engine.shards.reading import Offered, PageRequest
from duetime.engine.shards.shard import ShardState
from duetime.engine.waiting import whole_milliseconds
from duetime.stores.core.store import TimerStore
from duetime.stores.port.timers import DuePage, UnreadableRow

log = logging.getLogger(__name__)

_NEXT_TURN_SECONDS = 1e-6
"""The event loop does what else there is, and comes back at once."""
_NOTHING = Offered()
_PRUNE_LIMIT = 500
_SMALLEST_PAGE = 0.2
"""Of a whole one."""
_MAX_STUCK_TOLD = 1000
"""Rows that cannot be set aside are told once each, as long as they are no more."""


@dataclass(frozen=True, slots=True)
class _Read:
    """A page, or why there is none, and the seconds that it took. Of its unreadable rows: those that were set aside,
    and those that could not be."""

    page: DuePage | StoreError
    duration: float
    quarantined: tuple[UnreadableRow, ...] = ()
    stuck: tuple[UnreadableRow, ...] = ()


_Reads = list[tuple[ShardState, PageRequest]]


class Polling:
    """Everything but ``_read`` runs in the event loop's thread."""

    def __init__(
        self,
        context: EngineContext,
        timers: TimerStore,
        leases: LeaseKeeper,
        firing: Firing,
        namespaces: NamespaceCache,
    ) -> None:
        self._timers = timers
        self._leases = leases
        self._firing = firing
        self._recorder = firing.recorder
        self._namespaces = namespaces
        self._clock = context.clock
        self._settings = context.settings
        self._stats = context.stats
        self._wake = context.wake
        self._random = context.random
        self._offload = context.threads.make(context.settings.poll_concurrency, "duetime-poll")
        self._polls: set[asyncio.Task[None]] = set()
        self._promised = 0
        """How many timers the reads in flight may bring."""
        self._backlogged = 0
        self._stuck: set[tuple[int, str]] = set()
        self._trip_seconds = inf
        """What the last trip of reads took."""

    @property
    def tasks(self) -> set[asyncio.Task[None]]:
        """The reads in flight."""
        return self._polls

    @property
    def has_backlog(self) -> bool:
        """Whether more is due than may be started, in any shard (when this was last looked at)."""
        return self._backlogged > 0

    async def run(self) -> None:
        """Read until cancelled."""
        await self._wake.repeat(self._start_polls)

    async def prune(self) -> None:
        """Delete expired timers where the database does not do it itself, some at a time, until cancelled."""
        while True:
            await asyncio.sleep(self._settings.prune_interval_seconds * (0.5 + self._random() / 2))
            try:
                while await self._offload.run(self._prune_some) == _PRUNE_LIMIT:
                    pass
            except StoreError as error:
                log.warning(
                    "expired timers were not deleted: %s",
                    error,
                    extra={"action": "prune.failed", "error": error.code},
                )

    def _prune_some(self) -> int:
        """In a thread."""
        return self._timers.prune(now=self._clock.now(), limit=_PRUNE_LIMIT)

    def _start_polls(self) -> float:
        """Start reads for the shards that are ready, as far as there are threads; the seconds until the next look."""
        slots = self._settings.poll_concurrency - len(self._polls)
        if slots <= 0:
            return self._settings.poll_interval_seconds
        self._backlogged = 0
        ready, next_at = self._look(self._leases.owned.values())
        if ready and self._trip_seconds < self._settings.quick_read_seconds and not self._backlogged:
            self._read_at_once(ready)
            again, again_at = self._look([shard for shard, _ in ready])
            next_at = min(next_at, again_at)
            if again or next_at <= self._clock.monotonic():
                return _NEXT_TURN_SECONDS
        else:
            self._start_trips(ready, slots)
        return whole_milliseconds(next_at - self._clock.monotonic())

    def _start_trips(self, ready: _Reads, slots: int) -> None:
        """Share what is to be read, and the room for it, among as many threads as there is work for."""
        room = self._firing.room
        if 0 < room <= self._promised:
            return  # each read that ends wakes this
        chunks = min(slots, len(ready))
        for start in range(chunks):
            self._start_poll(ready[start::chunks], (room - self._promised) // (chunks - start))

    def _look(self, shards: Iterable[ShardState]) -> tuple[_Reads, float]:
        """Return the reads of ``shards`` that may start, the most urgent first, and when to look at the others
        (monotonic).

        Counts those with a backlog.
        """
        monotonic = self._clock.monotonic()
        until = self._clock.now()
        ready: _Reads = []
        next_at = monotonic + self._settings.poll_interval_seconds
        for shard in shards:
            reading = shard.reading
            at = reading.tail_at if reading.tail_at < reading.survey_at else reading.survey_at
            if at > monotonic and not reading.left:  # almost all, at each look, have nothing to read for anybody
                if at < next_at:
                    next_at = at
                continue
            self._backlogged += reading.has_backlog
            if shard.is_polling or shard.is_releasing or not shard.is_trusted(monotonic):
                continue
            if self._recorder.is_held_up(shard.shard_id):
                continue  # nothing of it would be fired
            request, at = reading.plan(until, monotonic, self._firing.wants, self._firing.is_full)
            if request is not None:
                ready.append((shard, request))
            elif at < next_at:
                next_at = at
        ready.sort(key=lambda read: read[1].order)
        return ready, next_at

    def _read_at_once(self, reads: _Reads) -> None:
        """Read within the event loop: the last reads were done in less time than a thread needs to take them over."""
        for shard, _ in reads:
            shard.reading.is_polling = True
        try:
            self._take(reads, self._read_all(reads, self._firing.room))
        except Exception as error:
            for shard, _ in reads:
                self._fail(shard)
            self._tell_crash(error)

    def _start_poll(self, reads: _Reads, room: int) -> None:
        for shard, _ in reads:
            shard.reading.is_polling = True
        promised = min(max(0, room), len(reads) * self._settings.page_size)
        self._promised += promised
        task = asyncio.get_running_loop().create_task(self._poll(reads, room))
        self._polls.add(task)
        task.add_done_callback(partial(self._finish_poll, promised))

    def _finish_poll(self, promised: int, task: asyncio.Task[None]) -> None:
        self._promised -= promised
        self._polls.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._tell_crash(error)
        self._wake.set()

    @staticmethod
    def _tell_crash(error: BaseException) -> None:
        log.error("polling failed", exc_info=error, extra={"action": "poll.crashed"})

    async def _poll(self, reads: _Reads, room: int) -> None:
        """Read a page of each shard in one trip to a thread. One shard's error leaves the others alone."""
        try:
            results = await self._offload.run(lambda: self._read_all(reads, room))
        except BaseException:
            for shard, _ in reads:
                self._fail(shard)
            raise
        self._take(reads, results)

    def _take(self, reads: _Reads, results: Sequence[_Read]) -> None:
        for shard, _ in reads[len(results) :]:
            self._firing.end_poll(shard)  # the others had too much: it will be among the first of the next trip
        for (shard, request), result in zip(reads, results, strict=False):
            if isinstance(result.page, StoreError):
                self._take_error(shard, result.page)
            else:
                self._tell_unreadable(result)
                self._take_page(shard, request, result.page, duration=result.duration)
        self._firing.start_attempts()

    def _read_all(self, reads: _Reads, room: int) -> list[_Read]:
        """Read, in a thread or at once, the pages of as many as memory allows, of one at least.

        ``room``: how many timers may be taken. What finds none would be read again.
        """
        started = self._clock.monotonic()
        results: list[_Read] = []
        timers = payloads = 0
        empty = self._read_empty(reads)
        for shard, request in reads:
            result = empty.get(shard.shard_id) or self._read(shard, request, room - timers)
            results.append(result)
            if not isinstance(result.page, StoreError):
                timers += len(result.page.timers)
                payloads += sum(map(payload_bytes, result.page.timers))
            if 0 < timers >= room or payloads >= self._settings.max_payload_bytes // 2:
                break
        self._trip_seconds = self._clock.monotonic() - started
        return results

    def _read_empty(self, reads: _Reads) -> dict[int, _Read]:
        """Read, in a thread or at once, the pages of shards that have nothing due, by one read for several that are
        to be read from the start."""
        whole = [request.shard_id for _, request in reads if request.is_whole]
        if len(whole) < 2:
            return {}
        started = self._clock.monotonic()
        try:
            empty = self._timers.next_due(whole, until=reads[0][1].until)
        except StoreError:  # each tells its own
            return {}
        each_seconds = (self._clock.monotonic() - started) / len(whole)
        return {shard_id: _Read(DuePage([], None, next_at), each_seconds) for shard_id, next_at in empty.items()}

    def _read(self, shard: ShardState, request: PageRequest, room: int) -> _Read:
        """Read, in a thread, a page, and whatever the engine must know of its namespaces."""
        started = self._clock.monotonic()
        quarantined: tuple[UnreadableRow, ...] = ()
        stuck: tuple[UnreadableRow, ...] = ()
        page: DuePage | StoreError
        unwanted = request.unwanted
        is_any_unwanted = unwanted.is_any()
        page_size = self._settings.page_size
        # What is passed over needs no room. Small pages cost more for each timer.
        smallest = page_size if is_any_unwanted else ceil(page_size * _SMALLEST_PAGE)
        try:
            page = self._timers.due(
                request.shard_id,
                until=request.until,
                limit=min(page_size, max(room, smallest)),
                cursor=request.cursor,
                since=request.since,
                known_next=request.known_next,
                is_wanted=unwanted.wants if is_any_unwanted else None,
                is_known=partial(self._firing.is_taken, shard),
            )
            if page.unreadable:
                quarantined, stuck = self._quarantine(page.unreadable, request.until)
            if page.timers or unwanted.met:
                self._namespaces.load_for(page.timers, unwanted.namespaces)
        except StoreError as error:
            page = error
        return _Read(page, self._clock.monotonic() - started, quarantined, stuck)

    def _quarantine(
        self, rows: tuple[UnreadableRow, ...], now: datetime
    ) -> tuple[tuple[UnreadableRow, ...], tuple[UnreadableRow, ...]]:
        """Return, in a thread, what was set aside, and what could not be: that is read again, and is in nobody's
        way."""
        expires_at = now + timedelta(seconds=self._settings.failed_retention_seconds)
        try:
            self._timers.quarantine(rows, now=now, expires_at=expires_at)
        except StoreUnavailable:
            return (), rows
        except StoreError:
            if len(rows) == 1:
                return (), rows
            each = [self._quarantine((row,), now) for row in rows]
            return sum((aside for aside, _ in each), ()), sum((stuck for _, stuck in each), ())
        return rows, ()

    def _take_error(self, shard: ShardState, error: StoreError) -> None:
        self._stats.polls += 1
        self._stats.poll_errors += 1
        self._fail(shard)
        log.warning(
            "the store did not answer a poll, backing off: %s",
            error,
            extra={"action": "poll.retried", "error": error.code, "shard_id": shard.shard_id},
        )

    def _tell_unreadable(self, read: _Read) -> None:
        self._stats.quarantined += len(read.quarantined)
        for row in read.quarantined:
            self._stuck.discard((row.shard_id, row.key))
            log.error("unreadable timer quarantined", extra={"action": "timer.quarantined", **_facts(row)})
            self._recorder.announce(event_of(row, at=self._clock.now()))
        self._stats.quarantine_errors += len(read.stuck)
        for row in read.stuck:
            if (row.shard_id, row.key) in self._stuck:
                continue
            if len(self._stuck) >= _MAX_STUCK_TOLD:
                self._stuck.clear()
            self._stuck.add((row.shard_id, row.key))
            log.error(
                "an unreadable timer cannot be set aside; it stays due, and the others go on",
                extra={"action": "timer.quarantine_failed", **_facts(row)},
            )

    def _take_page(self, shard: ShardState, request: PageRequest, page: DuePage, *, duration: float) -> None:
        self._stats.polls += 1
        self._stats.timers_read += len(page.timers)
        if self._leases.owned.get(shard.shard_id) is not shard or shard.is_releasing:
            self._firing.end_poll(shard)
            return
        offered = _NOTHING
        if page.timers or request.unwanted.met:
            namespaces = {timer.namespace for timer in page.timers} | request.unwanted.namespaces
            self._firing.configure(namespaces, self._owned_part)
            offered = self._firing.offer(shard, page.timers, request.span_of(page))
        self._firing.end_poll(shard)
        shard.reading.finish(
            request,
            page,
            offered,
            busy_seconds=duration * max(1, self._backlogged),
            monotonic=self._clock.monotonic(),
            monotonic_at=self._clock.monotonic_at,
            settings=self._settings,
        )

    def _owned_part(self, view: NamespaceView) -> float:
        """Return the part of a namespace's shards that is owned here: what this poller may use of the namespace's
        limits."""
        owned = sum(shard_id in self._leases.owned for shard_id in view.shard_ids)
        return owned / len(view.shard_ids) if owned else 1.0

    def _fail(self, shard: ShardState) -> None:
        self._firing.end_poll(shard)
        shard.reading.fail(monotonic=self._clock.monotonic(), random=self._random())


def _facts(row: UnreadableRow) -> dict[str, object]:
    return {
        "shard_id": row.shard_id,
        "namespace": row.namespace,
        "timer_id": row.timer_id,
        "reason": row.reason,
    }
