"""A model of DynamoDB's limits: pollers of the engine, in virtual time, on a store that takes no more.

The engine decides by its own code. The model adds what emulators leave out: write units per second of a shard, which
is a partition, and of the table; the time that a request takes; and that a poller has one processor.

It leaves out the burst capacity of DynamoDB, its growth with the load, and reads: it is about what holds for long.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count
from math import inf
from typing import TypeVar

from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.timers import Timer
from duetime.domain.times import parse_instant
from duetime.engine.flow.queues import TokenBucket
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from duetime.testing.receiver import VirtualSender
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.support.clock import NOW
from tests.support.engine import make_poller
from tests.support.parts import Overlay
from tests.support.stores import memory_store

T = TypeVar("T")

_WRITE_UNITS = 2
"""Of a create and of an end each (``python -m benchmarks.dynamodb_capacity``)."""
_LEAD_SECONDS = 2.0
"""Between a create and its due time: longer than a poll interval."""
_TICK_SECONDS = 0.02
_START_SECONDS = 1.0
_AFTERWARDS_SECONDS = 60.0
_ON_LAMBDA = EngineSettings(max_in_flight=400, lease_seconds=30.0)


@dataclass(frozen=True)
class Limits:
    """Write units per second of each shard and of the table; seconds of a request, of a callback's processor time in
    its poller, and until the receiver answers."""

    shard_units: float = 1000.0
    table_units: float = inf
    request_seconds: float = 0.01
    callback_cpu_seconds: float = 0.00035
    receiver_seconds: float = 0.02


@dataclass
class Found:
    """``refused``: creates that got a 429. ``put_off``: ends that had to be recorded later. ``lags``: seconds from
    due time to callback. ``ended_seconds``: from the last due time until all was recorded."""

    created: int = 0
    refused: int = 0
    put_off: int = 0
    lags: list[float] = field(default_factory=list)
    ended_seconds: float = inf


class _Table:
    """A store that refuses the writes for which its shard or the table has no units."""

    def __init__(self, store: Store, clock: VirtualClock, limits: Limits, shards: int, found: Found) -> None:
        self._store = store
        self._found = found
        self._clock = clock
        self._table = _writes(limits.table_units)
        self._shards = [_writes(limits.shard_units) for _ in range(shards)]

    def put(self, timers: Sequence[Timer], now: datetime) -> None:
        taken = [timer for timer in timers if self._takes(timer.shard_id)]
        self._store.timers.put(taken, mode=PutMode.CREATE, now=now)
        self._found.created += len(taken)
        self._found.refused += len(timers) - len(taken)

    def record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        is_taken = [self._takes(each.outcome.timer.shard_id) for each in outcomes]
        taken = [each for each, is_one in zip(outcomes, is_taken, strict=True) if is_one]
        statuses = iter(self._store.timers.record(taken, now=now))
        self._found.put_off += len(outcomes) - len(taken)
        return [next(statuses) if is_one else RecordStatus.UNAVAILABLE for is_one in is_taken]

    def _takes(self, shard_id: int) -> bool:
        buckets, monotonic = (self._shards[shard_id], self._table), self._clock.monotonic()
        if any(each.wait_seconds(monotonic) for each in buckets):
            return False
        for each in buckets:
            each.take()
        return True


def _writes(units: float) -> TokenBucket:
    """A token for each write that the units of a second allow."""
    return TokenBucket(units / _WRITE_UNITS, monotonic=0.0)


class _Threads:
    """As many calls at once as there are threads, ``seconds`` each."""

    def __init__(self, threads: int, seconds: float) -> None:
        self._free = asyncio.Semaphore(threads)
        self._seconds = seconds

    def run(self, function: Callable[[], T]) -> Awaitable[T]:
        return self._run(function)

    async def _run(self, function: Callable[[], T]) -> T:
        async with self._free:
            answer = function()
            await asyncio.sleep(self._seconds)
            return answer

    def close(self) -> None:
        pass


class _Callbacks(VirtualSender):
    """Sends one callback after the other, as the processor of a poller gets to it."""

    def __init__(self, clock: VirtualClock, limits: Limits, found: Found) -> None:
        super().__init__()
        self._clock = clock
        self._limits = limits
        self._found = found
        self._busy_until = 0.0

    def result_of(self, callback: Callback) -> CallbackResult:
        now = self._clock.elapsed_seconds
        self._busy_until = max(now, self._busy_until) + self._limits.callback_cpu_seconds
        waits = self._busy_until - now
        assert callback.body is not None
        due = parse_instant(json.loads(callback.body)["executeAt"])
        self._found.lags.append((self._clock.now() - due).total_seconds() + waits)
        duration = waits + self._limits.receiver_seconds
        return CallbackResult(callback.key, 200, b"", None, None, "", duration_seconds=duration)


class _Model:
    """One run: pollers that share the shards of a namespace, and a client that creates timers."""

    def __init__(self, store: Store, *, shards: int, pollers: int, limits: Limits) -> None:
        self.found = Found()
        self._clock = VirtualClock(NOW)
        self._namespace, _ = store.catalogue.create_namespace("default", num_shards=shards, dedicated=False, now=NOW)
        self._table = _Table(store, self._clock, limits, shards, self.found)
        limited = Overlay(store, timers=Overlay(store.timers, record=self._table.record))
        self._pollers = {
            make_poller(
                limited,
                _Callbacks(self._clock, limits, self.found),
                self._clock,
                worker_id=f"poller-{number}",
                settings=_ON_LAMBDA,
                make_offload=lambda threads, _: _Threads(threads, limits.request_seconds),
            ): range(number, shards, pollers)
            for number in range(pollers)
        }

    def run(self, rate: float, seconds: float) -> None:
        run_virtually(self._clock, self._run(rate, seconds))

    async def _run(self, rate: float, seconds: float) -> None:
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for poller, shard_ids in self._pollers.items():
                group.create_task(poller.run(stop, shard_ids=shard_ids))
            await asyncio.sleep(_START_SECONDS)
            await self._create(rate, seconds)
            await asyncio.sleep(_LEAD_SECONDS)
            last_due = self._clock.elapsed_seconds
            while self._clock.elapsed_seconds < last_due + _AFTERWARDS_SECONDS:
                if sum(poller.stats()["fired"] for poller in self._pollers) == self.found.created:
                    self.found.ended_seconds = self._clock.elapsed_seconds - last_due
                    break
                await asyncio.sleep(_TICK_SECONDS)
            stop.set()

    async def _create(self, rate: float, seconds: float) -> None:
        numbers, owed = count(), 0.0
        for _ in range(round(seconds / _TICK_SECONDS)):
            owed += rate * _TICK_SECONDS
            number, owed = int(owed), owed % 1
            now = self._clock.now()
            timers = [
                make_timer(
                    self._namespace,
                    f"t{next(numbers)}",
                    execute_at=now + timedelta(seconds=_LEAD_SECONDS, milliseconds=index % (_TICK_SECONDS * 1000)),
                    now=now,
                )
                for index in range(number)
            ]
            self._table.put(timers, now)
            await asyncio.sleep(_TICK_SECONDS)


def simulate(*, rate: float, seconds: float, shards: int, pollers: int, limits: Limits | None = None) -> Found:
    """What comes of ``rate`` creates a second for ``seconds``, each due soon after, on ``shards`` that ``pollers``
    share. Refused creates are not repeated."""
    with memory_store() as store:
        model = _Model(store, shards=shards, pollers=pollers, limits=limits or Limits())
        model.run(rate, seconds)
        return model.found
