"""All of Duetime but its wire: a store in memory, the API's handler, a poller and the outbox, in virtual time.

One thread runs poller and outbox on a ``SteppedLoop``: time stands still, and what is due by then has been fired,
unless ``advance`` moves it. Then the loop jumps from one thing that happens to the next, in order. So a week takes as
long as the requests that are sent in it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from duetime.api.context import ApiContext
from duetime.api.http.errors import AdvanceUnfinished
from duetime.calls.publishing import EventPublisher
from duetime.calls.relay import OutboxRelay, RelaySettings
from duetime.delivery.port import Sender
from duetime.domain.clock import Clock
from duetime.domain.timers import Timer
from duetime.domain.times import format_instant, round_down
from duetime.engine.poller import Poller
from duetime.engine.settings import EngineSettings
from duetime.engine.waiting import WakeupEvent
from duetime.runtime import api_wiring, wiring
from duetime.runtime.outbox_wiring import make_publishers
from duetime.runtime.settings import LocalSettings
from duetime.runtime.wiring import Handler
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.stores.store_clock import StoreClock
from duetime.stores.time_source import TimeSource
from duetime.testing.ids import counted_ids
from duetime.testing.virtual_time import InlineOffload, SteppedLoop, VirtualClock

DEFAULT_NAMESPACE = "default"
ADVANCE_SECONDS = 60.0
"""How long, in real time, an advance may take."""
_DAY = 86_400.0
_START_SECONDS = 30.0
# What looks around at intervals does so once in a virtual day, so that an idle week is no work: all that could be
# found sooner is told by hints, since there is no other process. Nothing fails but what a test lets fail, so no
# circuit breaker is to hide at which time a retry is due. Where a limit of a namespace leaves timers in the store,
# room for them is noticed within a virtual minute.
_ENGINE: dict[str, Any] = {
    "lease_seconds": 30 * _DAY,
    "keep_interval_seconds": _DAY,
    "poll_interval_seconds": _DAY,
    "min_poll_interval_seconds": 60.0,
    "prune_interval_seconds": _DAY,
    "park_after_seconds": 4 * _DAY,
    "record_linger_seconds": 0.0,
    "breaker_failures": 2**31,
}


@dataclass(frozen=True, slots=True)
class Advanced:
    """``attempts``: how many were started, of timers, service calls and deliveries together."""

    now: datetime
    attempts: int


class VirtualService:
    """Make it with ``virtual_service``. Its methods may be called from any thread but the one of its own loop."""

    def __init__(
        self,
        calls: CallStore,
        poller: Poller,
        make_handler: Callable[[VirtualService], Handler],
        *,
        relay: OutboxRelay | None,
        clock: VirtualClock,
        is_sending: bool,
    ) -> None:
        """``is_sending``: requests go over a network, so time stands still while one is in flight."""
        self.calls = calls
        self.poller = poller
        self.clock = clock
        self._relay = relay
        self._loop = SteppedLoop(clock, self._is_busy if is_sending else lambda: False)
        self._advancing = threading.Lock()
        self._stop = asyncio.Event()
        self._started = threading.Event()
        self._thread_id: int | None = None
        self._shard_ids: frozenset[int] = frozenset()
        self.handler = make_handler(self)

    def now(self) -> datetime:
        """Return the virtual time in whole milliseconds, rounded down."""
        return round_down(self.clock.now())

    @property
    def is_own_thread(self) -> bool:
        """Tell whether this service calls the caller, for example through a receiver's function."""
        return threading.get_ident() == self._thread_id

    def note_stored(self, timers: Sequence[Timer]) -> None:
        """Note that ``timers`` were just stored, maybe in shards that are new."""
        self.poller.notify(timers)
        shard_ids = {timer.shard_id for timer in timers}
        if not shard_ids <= self._shard_ids:
            self._shard_ids |= shard_ids
            self.poller.look_again()

    def settle(self) -> None:
        """Return when all that is due now has been fired and recorded."""
        self.advance(self.now())

    def advance(self, to: datetime, *, timeout_seconds: float = ADVANCE_SECONDS) -> Advanced:
        """Move time to ``to``, when all that is due by then, inclusive, has been fired and recorded.

        Raises ``ValueError`` for a time that has gone by, and ``AdvanceUnfinished`` after ``timeout_seconds``. Time
        then stands where it got to, and another call goes on from there.
        """
        with self._advancing:
            if to < self.now():
                raise ValueError(f"must not be before now, {format_instant(self.now())}: time does not go back")
            before = self._attempts
            moving = asyncio.run_coroutine_threadsafe(self._advance(to), self._loop)
            try:
                moving.result(timeout_seconds)
            except concurrent.futures.TimeoutError:
                moving.cancel()
                raise AdvanceUnfinished(self._unfinished(timeout_seconds)) from None
            return Advanced(self.now(), self._attempts - before)

    def run(self) -> None:
        """Work in the calling thread until ``stop``."""
        self._thread_id = threading.get_ident()
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._run())

    def wait_until_started(self) -> None:
        """Wait until another thread is in ``run``, so that time can be advanced."""
        self._started.wait(_START_SECONDS)

    def stop(self) -> None:
        """Make ``run`` return when the work in progress has ended. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._request_stop)

    # -- in the loop's thread --------------------------------------------------------------------------------

    def _request_stop(self) -> None:
        self._loop.unlimit()  # a drain waits by the clock
        self._stop.set()

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            polling = group.create_task(self.poller.run(self._stop))
            publishing = group.create_task(self._publish())
            self._started.set()
            await polling
            publishing.cancel()

    async def _publish(self) -> None:
        """Run the outbox relay, in this loop in place of a thread of its own."""
        if self._relay is None:
            return
        alarm = WakeupEvent()
        self.calls.on_events.append(lambda: self._wake_up(alarm))
        while True:
            await alarm.wait(self._relay.run_once())

    def _wake_up(self, alarm: WakeupEvent) -> None:
        """Wake the loop. From any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(alarm.set)

    async def _advance(self, to: datetime) -> None:
        self.poller.look_again()  # no hint tells that a namespace was resumed, for example
        await self._loop.advance(to)

    def _is_busy(self) -> bool:
        return self.poller.stats()["in_flight"] > 0

    # -- the rest --------------------------------------------------------------------------------------------

    @property
    def _attempts(self) -> int:
        return self.poller.stats()["attempts_started"]

    def _unfinished(self, seconds: float) -> str:
        in_flight = self.poller.stats()["in_flight"]
        return (
            f"not all that is due could be fired in {seconds:g} s: the clock stands at {format_instant(self.now())},"
            f" requests in flight: {in_flight}. The same request continues from there"
        )


def engine_settings(settings: LocalSettings) -> EngineSettings:
    """Return the engine settings of ``settings``, with intervals for virtual time."""
    return settings.engine_settings(**_ENGINE)


@contextmanager
def virtual_service(
    settings: LocalSettings,
    clock: VirtualClock,
    sender: Sender,
    *,
    is_sending: bool,
    make_handler: Callable[[VirtualService, ApiContext], Handler] | None = None,
) -> Iterator[VirtualService]:
    """Make a service over an empty store in memory, which somebody has to ``run``.

    ``is_sending`` as for ``VirtualService``. ``make_handler`` puts the handler together; None: as ``duetime serve``.
    """
    with ExitStack() as stack:
        store = open_store("sqlite://", time_source=TimeSource.CALLER)
        stack.callback(store.close)
        store.initialise()
        store_clock = StoreClock(store, clock)
        store_clock.measure()
        store.catalogue.create_namespace(
            DEFAULT_NAMESPACE, num_shards=settings.default_num_shards, dedicated=False, now=clock.now()
        )
        hook = wiring.make_hook(settings.failed_hook_url) if settings.failed_hook_url else None
        if hook is not None:
            stack.callback(hook.close)
        secret_box = wiring.make_secret_box(settings)
        new_id = counted_ids(clock)
        poller = wiring.poller_with(
            sender,
            store,
            settings,
            store_clock,
            engine_settings(settings),
            events=hook,
            secret_box=secret_box,
            new_id=new_id,
            random=_middle,
            make_offload=InlineOffload,
        )
        stack.callback(poller.close)
        publishers = make_publishers(settings, store, store_clock, on_stored=poller.notify)
        for publisher in publishers:
            stack.callback(publisher.close)
        relay = _relay(store, publishers, settings, clock=store_clock, new_id=new_id) if publishers else None

        def handler_of(service: VirtualService) -> Handler:
            context = replace(
                api_wiring.api_context(
                    store,
                    settings,
                    store_clock,
                    secret_box=secret_box,
                    authenticate=None,
                    on_stored=service.note_stored,
                    shards_given_back=lambda: poller.shards_given_back,
                ),
                new_id=new_id,
            )
            if make_handler is not None:
                return make_handler(service, context)
            return api_wiring.whole_api(context, settings)

        yield VirtualService(
            store.calls,
            poller,
            handler_of,
            relay=relay if publishers else None,
            clock=clock,
            is_sending=is_sending,
        )


def _relay(
    store: Store,
    publishers: Sequence[EventPublisher],
    settings: LocalSettings,
    *,
    clock: Clock,
    new_id: Callable[[], str],
) -> OutboxRelay:
    return OutboxRelay(
        store.leases,
        store.outbox,
        publishers,
        calls=store.calls,
        clock=clock,
        settings=RelaySettings(
            lease_seconds=30 * _DAY,
            poll_interval_seconds=_DAY,
            prune_interval_seconds=_DAY,
            retention_seconds=settings.event_retention_seconds,
        ),
        owner_id="virtual",
        random=_middle,
        new_id=new_id,
    )


def _middle() -> float:
    """Replace a random number in [0, 1): retries come exactly after their interval."""
    return 0.5
