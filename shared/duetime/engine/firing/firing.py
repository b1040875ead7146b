"""Fires timers: takes what is due, starts attempts while there is room, and handles their responses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime

from duetime.delivery.port import Callback, CallbackResult, Sender
from duetime.domain.timers import Timer, TimerState
from duetime.engine.batching import timer_facts
from duetime.engine.context import EngineContext
from duetime.engine.delivery import Attempt, Delivery
from duetime.engine.firing.call_submission import CallSubmission
from duetime.engine.firing.execution_handler import ExecutionHandler
from duetime.engine.firing.ordering_policy import OrderingPolicy
from duetime.engine.firing.strategies import Strategies
from duetime.engine.flow.control import FlowControl
from duetime.engine.flow.queues import BreakerState, HostSignal, signal_of
from duetime.engine.in_flight import Deferrals, HeldPayloads, InFlight
from duetime.engine.keys import QueueKey, firing_key, queue_key
from duetime.engine.namespace_cache import NamespaceCache, NamespaceView
from duetime.engine.response.decide import expired, missed
from duetime.engine.response.failure_events import FailureEvents
from duetime.engine.response.record import Recorder
from duetime.engine.shards.reading import Offered, Span
from duetime.engine.shards.shard import ShardState
from duetime.engine.waiting import whole_milliseconds
from duetime.stores.core.schedules import ScheduleStore
from duetime.stores.core.store import TimerStore

log = logging.getLogger(__name__)


class Firing:
    """The attempts of one poller. Everything here runs in the event loop's thread."""

    def __init__(
        self,
        context: EngineContext,
        sender: Sender,
        timers: TimerStore,
        schedules: ScheduleStore,
        namespaces: NamespaceCache,
        *,
        on_room: Callable[[], None],
        events: FailureEvents | None = None,
        handler: ExecutionHandler | None = None,
        ordering: OrderingPolicy | None = None,
        submission: CallSubmission | None = None,
    ) -> None:
        """``on_room`` is called when waiting timers have become few enough to read more."""
        self._sender = sender
        self._namespaces = namespaces
        self._clock = context.clock
        self._settings = settings = context.settings
        self._stats = context.stats
        self._on_room = on_room
        self._payloads = HeldPayloads(settings.max_payload_bytes)
        self._in_flight = InFlight(self._payloads, slow_after_seconds=settings.slow_after_seconds)
        self._flow = FlowControl(settings, random=context.random, give_up=self._in_flight.give_up)
        self._deferrals = Deferrals(context, self._in_flight)
        self.recorder = Recorder(
            context, timers, self._in_flight, self._deferrals, on_batch=self.start_attempts, events=events
        )
        self._strategies = Strategies(
            context,
            self.recorder,
            namespaces,
            in_flight=self._in_flight,
            payloads=self._payloads,
            deferrals=self._deferrals,
            launcher=self,
            schedules=schedules,
            handler=handler,
            ordering=ordering,
            submission=submission,
        )
        self._next_look: asyncio.TimerHandle | None = None
        self._is_starting = True

    # -- life ------------------------------------------------------------------------------------------------

    def begin(self, ends_at: float | None) -> None:
        """Begin a run. ``ends_at``: the monotonic time at which attempts in flight will be given up, if known."""
        self._is_starting = True
        for delivery in self._strategies:
            delivery.begin(ends_at)

    async def run(self) -> None:
        """Store what came of attempts, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for writer in (self.recorder, *self._strategies):
                group.create_task(writer.run())

    def drain(self) -> None:
        """Start no more attempts; timers that wait are left to the next owner."""
        self._is_starting = False
        for delivery in self._strategies:
            delivery.stop_starting()
        self.drop(None)
        self.recorder.drain()

    def retry(self) -> None:
        """Go on after an outage: the store answers again."""
        for writer in (self.recorder, *self._strategies):
            writer.retry()

    def end(self) -> None:
        """Forget what is put off: the run is over."""
        self._deferrals.clear()

    # -- what there is ---------------------------------------------------------------------------------------

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    @property
    def is_idle(self) -> bool:
        """True when nothing is in flight, and there is nothing to store."""
        return not len(self._in_flight) and self.recorder.is_idle and all(each.is_idle for each in self._strategies)

    @property
    def has_nothing(self) -> bool:
        """Whether nothing is in flight or waits for its turn."""
        return not len(self._in_flight) and not len(self._flow)

    @property
    def unstored(self) -> int:
        """What came of attempts and is not stored yet."""
        return self.recorder.backlog + sum([delivery.unstored for delivery in self._strategies])

    @property
    def room(self) -> int:
        """How many more timers may wait for their turn, while what came of others is stored; none or less where they
        wait by the shares of namespaces."""
        return self._settings.max_buffered - len(self._flow) - self.unstored

    @property
    def _has_record_room(self) -> bool:
        # What is fired and not yet recorded is bounded too: a slow store slows the firing down.
        return self.unstored < self._settings.max_buffered

    def gauges(self) -> dict[str, int]:
        return {
            "in_flight": len(self._in_flight),
            "slow": self._in_flight.slow,
            "parked": self._in_flight.parked,
            "waiting": len(self._flow),
            "breakers_open": self._flow.open_breakers(self._clock.monotonic()),
            "unreadable_namespaces": self._namespaces.unreadable,
            "unrecorded": self.unstored,
        }

    # -- taking what is due ----------------------------------------------------------------------------------

    def wants(self, key: QueueKey, monotonic: float) -> bool:
        """Tell whether it pays to read more timers of a queue."""
        return (
            self._flow.wants(key, monotonic)
            and self._has_record_room
            and _is_open(self._namespaces.get(key[0]), key[0], self._strategies.strategy_of(key[0]))
            and self._payloads.wants(key[0])
        )

    def is_full(self, namespace: str) -> bool:
        """Tell whether no timer of a namespace would be taken, in whichever queue. A guess, from any thread."""
        view = self._namespaces.get(namespace)
        return self._flow.is_full(namespace) or (view is not None and not view.is_usable)

    def is_taken(self, shard: ShardState, firing_id: str, attempts: int) -> bool:
        """Tell whether there is an attempt of a timer: nobody needs to read it. A guess, from any thread."""
        return self._in_flight.is_taken(shard, firing_id, attempts)

    def configure(self, namespaces: Iterable[str], share: Callable[[NamespaceView], float]) -> None:
        """Put the limits of namespaces into force. ``share``: the part of a namespace's shards that is owned here."""
        monotonic = self._clock.monotonic()
        for name in namespaces:
            view = self._namespaces.get(name)
            if view is None or not view.has_limits:
                self._flow.configure(name, max_in_flight=None, rate_per_second=None, monotonic=monotonic)
                continue
            part = share(view)
            self._flow.configure(
                name,
                max_in_flight=None if view.max_in_flight is None else max(1, int(view.max_in_flight * part)),
                rate_per_second=None if view.rate_limit_per_second is None else view.rate_limit_per_second * part,
                monotonic=monotonic,
            )

    def offer(self, shard: ShardState, timers: list[Timer], page: Span) -> Offered:
        """Take the timers of a page that are not in flight, while there is room. Return the queues that had none."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        has_record_room = self._has_record_room
        accepted = 0
        refused: set[QueueKey] = set()
        for timer in timers:
            if self._in_flight.is_taken(shard, *firing_key(timer)):
                continue
            delivery = self._strategies.strategy_for(timer)
            if has_record_room and delivery.skips_queue(shard, timer, page, now=now):
                continue
            key = queue_key(timer)
            view = self._namespaces.get(key[0])
            if has_record_room and _is_too_late(timer, view, now):
                self._expire(self._in_flight.take(delivery, shard, timer, key, page, monotonic), now)
            elif (
                has_record_room
                and key not in refused
                and shard.reading.may_take(key, page)
                and self._flow.accepts(key, monotonic)
                and _is_open(view, key[0], delivery)
                and self._payloads.accepts(timer)
            ):
                attempt = self._in_flight.take(delivery, shard, timer, key, page, monotonic)
                self._flow.add(attempt, monotonic)
                accepted += 1
            else:
                refused.add(key)
        self._stats.deferred += len(refused)
        return Offered(accepted, refused)

    def end_poll(self, shard: ShardState) -> None:
        """Note that the page of ``shard`` has been offered, or that there is none."""
        self._in_flight.end_poll(shard)

    def drop(self, shard: ShardState | None) -> None:
        """Forget the timers of ``shard`` (None: of all) that wait. They stay due in the store."""
        for attempt in self._flow.remove(lambda waiting: shard is None or waiting.shard is shard):
            self._in_flight.settle(attempt)

    def _expire(self, attempt: Attempt, now: datetime) -> None:
        """End a timer that it is too late to fire."""
        end = expired if attempt.timer.is_too_late(now) else missed
        self.recorder.record(attempt, end(attempt.timer, now=now, settings=self._settings))

    # -- starting --------------------------------------------------------------------------------------------

    def start_attempts(self) -> None:
        """Start as many waiting timers as the bounds allow, and hand their callbacks to the sender in one batch."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if not len(self._flow) or not self._is_starting:
            return
        monotonic, now = self._clock.monotonic(), self._clock.now()
        for attempt in self._in_flight.newly_slow(monotonic):
            self._flow.slow_down(attempt)
        places = self._places()
        taken = self._flow.take(monotonic, places, lambda attempt: self._may_start(attempt, now, monotonic))
        callbacks: list[Callback] = []
        for attempt in taken:
            callback = attempt.delivery.start(attempt, now)
            if callback is not None:
                self._count_sent(attempt, now, monotonic)
                callbacks.append(callback)
        self._submit(callbacks)
        if len(self._flow) <= self._settings.max_buffered - self._settings.max_buffered // 2:
            self._on_room()
        self._look_again_later(monotonic, places - len(taken))

    def send(self, decided: Sequence[tuple[Attempt, Callback | None]]) -> None:
        """Send what a strategy has made of attempts whose turn it was, which it did not answer at once."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        callbacks: list[Callback] = []
        for attempt, callback in decided:
            if callback is not None:
                self._count_sent(attempt, now, monotonic)
                callbacks.append(callback)
            elif attempt.has_place:
                # What goes to no host, since it is submitted, need not be slow at first.
                self._flow.end(attempt, HostSignal.NEUTRAL if attempt.queue[1] else HostSignal.ANSWERED, monotonic)
        self._submit(callbacks)
        self.start_attempts()

    def _may_start(self, attempt: Attempt, now: datetime, monotonic: float) -> bool:
        """Tell whether an attempt whose turn it is may start. If not it is settled, ended, or given up."""
        shard, namespace = attempt.shard, attempt.timer.namespace
        attempt.lease = shard.lease
        is_held_up = self.recorder.is_held_up(shard.shard_id)
        # Its namespace could be used as the timer was read; it may not be usable, or not be known, any more.
        view = self._namespaces.get(namespace)
        if not shard.is_trusted(monotonic):
            self._in_flight.settle(attempt)
        elif is_held_up or not _is_too_late(attempt.timer, view, now):
            if not is_held_up and _is_open(view, namespace, attempt.delivery):
                return True
            self._in_flight.give_up(attempt)
        else:
            self._expire(attempt, now)
        return False

    def _count_sent(self, attempt: Attempt, now: datetime, monotonic: float) -> None:
        attempt.fired_at, attempt.started = now, monotonic
        if attempt.timer.attempts == 0:
            self._stats.observe_lag(attempt.timer.namespace, attempt.lag_seconds)
        self._in_flight.send(attempt)

    def _submit(self, callbacks: list[Callback]) -> None:
        if callbacks:
            self._stats.attempts_started += len(callbacks)
            self._sender.submit(callbacks)

    def _places(self) -> int:
        """Return how many attempts may be started: those that hang take none away until too many of them do."""
        fast = len(self._in_flight) - min(self._in_flight.slow, self._settings.max_slow_in_flight)
        fast += sum([delivery.starting for delivery in self._strategies])
        return min(self._settings.max_in_flight - fast, self._settings.max_buffered - self.unstored)

    def _look_again_later(self, monotonic: float, places: int) -> None:
        """Come back when time alone makes room: an attempt becomes slow, or a namespace gets a token."""
        later = [] if self._flow.next_token_at is None else [self._flow.next_token_at]
        if places <= 0 and len(self._flow) and (slow_at := self._in_flight.next_slow_at()) is not None:
            later.append(slow_at)
        if later:
            delay = whole_milliseconds(min(later) - monotonic)
            self._next_look = asyncio.get_running_loop().call_later(delay, self.start_attempts)

    # -- responses -------------------------------------------------------------------------------------------

    def take_results(self, results: list[CallbackResult]) -> None:
        """Responses that arrived, one per attempt. Those of attempts given up earlier are ignored."""
        now = self._clock.now()
        for result in results:
            attempt = self._in_flight.pop(result.key)
            if attempt is None:
                continue
            try:
                self._stats.count_response(result.status, result.duration_seconds)
                self._end(attempt, signal_of(result))
                attempt.delivery.finish(attempt, result, now)
            except Exception:  # it costs this response only
                log.exception(
                    "a response could not be taken; its timer is fired again later",
                    extra={"action": "firing.response_lost", **timer_facts(attempt.timer)},
                )
                attempt.delivery.abandon(attempt)
                self._deferrals.put_back(attempt)
        self.start_attempts()

    def _end(self, attempt: Attempt, signal: HostSignal) -> None:
        """Give the place of ``attempt`` back."""
        changed = self._flow.end(attempt, signal, self._clock.monotonic())
        if changed is None:
            return
        namespace, host = attempt.queue
        queue = {"namespace": namespace, "host": host}
        if changed is BreakerState.CLOSED:
            log.info("the host answers again", extra={"action": "breaker.closed", **queue})
            return
        self._stats.breakers_opened += 1
        log.warning(
            "the host does not answer: its callbacks are postponed", extra={"action": "breaker.opened", **queue}
        )

    # -- those that take long --------------------------------------------------------------------------------

    def tend(self) -> None:
        """Park what has been in flight for longer than ``park_after_seconds``, give up what has waited too long."""
        monotonic = self._clock.monotonic()
        self._park(started_until=monotonic - self._settings.park_after_seconds)
        self._flow.drop_stale(monotonic)

    def park_all(self) -> None:
        """Park all that is in flight, so that the next owner does not fire it again at once."""
        self._park(started_until=float("inf"))

    def _park(self, *, started_until: float) -> None:
        for attempt in self._in_flight:
            if attempt.started > started_until:
                break
            attempt.delivery.park(attempt)

    def abandon(self) -> None:
        """At the end of a drain: forget the attempts that are still in flight. They are parked in the store."""
        if len(self._in_flight):
            log.warning(
                "callbacks still in flight at the deadline: timers fire again, service calls time out",
                extra={"action": "firing.abandoned", "attempts": len(self._in_flight)},
            )
        for attempt in self._in_flight.clear():
            self._end(attempt, HostSignal.NEUTRAL)
            self._in_flight.settle(attempt)
            attempt.delivery.abandon(attempt)


def _is_open(view: NamespaceView | None, namespace: str, delivery: Delivery) -> bool:
    """Return False while a namespace's secret cannot be had: nothing is sent unsigned that should be signed."""
    return view is not None and view.is_usable and delivery.has_room(namespace)


def _is_too_late(timer: Timer, view: NamespaceView | None, now: datetime) -> bool:
    if timer.state is TimerState.WAITING:
        return False  # its attempt was made in time
    return timer.is_too_late(now) or (view is not None and view.is_usable and view.is_missed(timer))
