"""Builders for engine tests."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from random import Random
from typing import Any

from duetime.delivery.encryption import SecretBox
from duetime.delivery.port import Callback, CallbackResult, Sender
from duetime.domain.clock import Clock
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.domain.times import parse_instant
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Delivery
from duetime.engine.firing.call_submission import CallSubmission
from duetime.engine.firing.execution_handler import ExecutionHandler
from duetime.engine.firing.ordering_policy import OrderingPolicy
from duetime.engine.keys import queue_key
from duetime.engine.poller import Poller
from duetime.engine.response.failure_events import FailureEvents
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.reading import START as BEGINNING
from duetime.engine.shards.reading import Position, ShardReading, Span
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats
from duetime.engine.waiting import Offload, Threads, WakeupEvent
from duetime.stores.core.leases import HasDied, nobody_has
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode
from duetime.stores.store_clock import StoreClock
from duetime.stores.time_source import StoreTime
from duetime.testing.contract import builders
from duetime.testing.virtual_time import InlineOffload, VirtualClock, run_virtually
from tests.support.clock import NOW as START


def make_timer(timer_id: str, *, namespace: str = "default", **fields: Any) -> Timer:
    """A timer of a namespace with 4 shards, due at START unless ``execute_at`` says otherwise."""
    return builders.make_timer(builders.make_namespace(namespace), timer_id, **fields)


def make_shard(shard_id: int = 0, *, trusted_until: float = float("inf")) -> ShardState:
    return ShardState(
        lease=Lease(shard_id, 1, "me", START + timedelta(seconds=10)),
        trusted_until=trusted_until,
        reading=ShardReading(shard_id=shard_id, interval_seconds=0.1, survey_at=0.0),
    )


class _OwnTime:
    """A store whose clock is this machine's."""

    def time(self, *, now: datetime) -> StoreTime:
        return StoreTime(now, resolution_seconds=0.0)


def make_context(clock: Clock, *, settings: EngineSettings, stats: EngineStats) -> EngineContext:
    """For a part of a poller that stands alone. Its random numbers are all 0.5."""
    return EngineContext(
        clock=StoreClock(_OwnTime(), clock),
        settings=settings,
        stats=stats,
        random=lambda: 0.5,
        new_id=str,
        wake=WakeupEvent(),
        threads=Threads(InlineOffload),
    )


PAGE = Span(BEGINNING, Position(START, "first"))


class NoDelivery(Delivery):
    """For attempts that are not delivered."""

    def start(self, attempt: Attempt, now: datetime) -> Callback | None:
        raise AssertionError(f"{attempt} starts")

    def finish(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        raise AssertionError(f"{attempt} has ended with {result}")


def make_attempt(timer: Timer, shard: ShardState, *, read_at: float = 0.0) -> Attempt:
    """A timer that was taken from ``PAGE``."""
    return Attempt(NoDelivery(), shard, timer, queue_key(timer), PAGE, number=0, read_at=read_at)


def make_poller(
    store: Store,
    sender: Sender,
    clock: VirtualClock,
    *,
    worker_id: str = "worker-a",
    settings: EngineSettings | None = None,
    events: FailureEvents | None = None,
    make_offload: Callable[[int, str], Offload] = InlineOffload,
    handler: ExecutionHandler | None = None,
    ordering: OrderingPolicy | None = None,
    submission: CallSubmission | None = None,
    secret_box: SecretBox | None = None,
    new_id: Callable[[], str] | None = None,
    own_clock: Clock | None = None,
    has_died: HasDied = nobody_has,
) -> Poller:
    """A poller in virtual time, with a fixed seed for jitter and counted ids.

    ``own_clock``: its machine's, where that is another one than ``clock``.
    """
    counter = itertools.count()
    return Poller(
        store,
        sender,
        clock=StoreClock(store, own_clock or clock),
        settings=settings or EngineSettings(),
        worker_id=worker_id,
        metadata="{}",
        has_died=has_died,
        new_id=new_id or (lambda: f"{worker_id}-id-{next(counter)}"),
        random=Random(7).random,
        make_offload=make_offload,
        events=events,
        handler=handler,
        ordering=ordering,
        submission=submission,
        secret_box=secret_box,
    )


Script = float | Callable[[], Awaitable[object]]
"""Seconds, or what is done meanwhile."""


async def running(pollers: Poller | Sequence[Poller], script: Script, *, deadline: float | None = None) -> None:
    """Run ``pollers`` while ``script`` runs, then stop them in good order."""
    stop = asyncio.Event()
    pollers = [pollers] if isinstance(pollers, Poller) else pollers
    tasks = [asyncio.create_task(poller.run(stop, deadline=deadline)) for poller in pollers]
    await (script() if callable(script) else asyncio.sleep(script))
    stop.set()
    await asyncio.gather(*tasks)


def run(clock: VirtualClock, pollers: Poller | Sequence[Poller], script: Script) -> None:
    """The same in virtual time."""
    run_virtually(clock, running(pollers, script))


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def stored(store: Store, timer_id: str, clock: VirtualClock, *, namespace: str = "default") -> Timer:
    timer = store.timers.get(builders.make_namespace(namespace), timer_id, now=clock.now())
    assert timer is not None
    return timer


def lag_seconds(body: dict[str, object]) -> float:
    """How much later than its timer was due a callback was sent."""
    fired, due = (parse_instant(str(body[name])) for name in ("firedAt", "executeAt"))
    return (fired - due).total_seconds()


def put(store: Store, timers: Sequence[Timer], now: datetime) -> None:
    """Store timers in batches, as a client of another process would: the poller is not told."""
    for start in range(0, len(timers), 500):
        store.timers.put(timers[start : start + 500], mode=PutMode.CREATE, now=now)
