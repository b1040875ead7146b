"""Starts attempts, follows them, and turns answers into outcomes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from duetime.delivery.port import Callback, CallbackResult, Sender
from duetime.delivery.request import callback_for
from duetime.domain.clock import Clock
from duetime.domain.timers import Timer, TimerState
from duetime.engine.firing.at_least_once import AtLeastOnceDelivery
from duetime.engine.firing.at_most_once import AtMostOnceDelivery, Begun
from duetime.engine.firing.deferring import Deferrals
from duetime.engine.firing.in_flight import Attempt, InFlight
from duetime.engine.firing.ordered import Decided, OrderedDelivery
from duetime.engine.flow.breaker import BreakerState
from duetime.engine.flow.control import FlowControl
from duetime.engine.flow.host_health import HostSignal, signal_of
from duetime.engine.keys import QueueKey, firing_key, queue_key
from duetime.engine.namespace_cache import NamespaceCache, NamespaceView
from duetime.engine.payloads import HeldPayloads
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.reading import Offered, Span
from duetime.engine.shards.shard import ShardState
from duetime.engine.stats import EngineStats

log = logging.getLogger(__name__)

SHORTEST_WAIT_SECONDS = 0.0002
"""A wait below the clock's resolution would end before it began, over and over."""


class Firing:
    """The attempts of one poller. Everything here runs in the event loop's thread."""

    def __init__(
        self,
        sender: Sender,
        recorded: AtLeastOnceDelivery,
        namespaces: NamespaceCache,
        payloads: HeldPayloads,
        *,
        clock: Clock,
        settings: EngineSettings,
        stats: EngineStats,
        random: Callable[[], float],
        on_room: Callable[[], None],
        postponed: Deferrals,
        at_most_once: AtMostOnceDelivery | None = None,
        ordered: OrderedDelivery | None = None,
    ) -> None:
        """``on_room`` is called when waiting timers have become few enough to read more. ``at_most_once``,
        ``ordered``: the deliveries of the timers that they take; None: there are none.

        ``start_attempts`` is to be called whenever outcomes have been recorded, since that makes room.
        """
        self._sender = sender
        self._recorded = recorded
        self._at_most_once = at_most_once
        if at_most_once is not None:
            at_most_once.on_begun = self._take_begun
            at_most_once.on_room = self.start_attempts
        self._ordered = ordered
        if ordered is not None:
            ordered.on_decided = self._take_decided
        self._namespaces = namespaces
        self._payloads = payloads
        self._clock = clock
        self._settings = settings
        self._stats = stats
        self._on_room = on_room
        self._postponed = postponed
        self._flow = FlowControl(
            settings, random=random, on_stale=lambda key, shard, timer: shard.give_up(key, timer)
        )
        self._attempts = InFlight(settings.slow_after_seconds)
        self._next_look: asyncio.TimerHandle | None = None
        self._is_starting = True

    # -- starting --------------------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """How many more timers fit into the buffer."""
        return max(0, self._settings.max_buffered - len(self._flow))

    @property
    def in_flight(self) -> int:
        return len(self._attempts)

    @property
    def is_idle(self) -> bool:
        """True when nothing is in flight, and no delivery has anything to store."""
        at_most_once, ordered = self._at_most_once, self._ordered
        return (
            not len(self._attempts)
            and (at_most_once is None or not (at_most_once.beginning or at_most_once.unconcluded))
            and (ordered is None or not (ordered.asking or ordered.untold))
        )

    @property
    def unstored(self) -> int:
        """What came of attempts and is not stored yet."""
        return self._recorded.backlog + (0 if self._at_most_once is None else self._at_most_once.unconcluded)

    @property
    def waiting(self) -> int:
        """Timers read and not yet started."""
        return len(self._flow)

    def gauges(self) -> dict[str, int]:
        return {
            "in_flight": len(self._attempts),
            "slow": self._attempts.slow,
            "waiting": len(self._flow),
            "breakers_open": self._flow.open_breakers(self._clock.monotonic()),
            "unreadable_namespaces": self._namespaces.unreadable,
        }

    def begin(self, ends_at: float | None) -> None:
        """``ends_at``: the monotonic time at which attempts in flight will be given up, if that is known."""
        self._is_starting = True
        if self._at_most_once is not None:
            self._at_most_once.start(ends_at)
        if self._ordered is not None:
            self._ordered.start()

    def stop_starting(self) -> None:
        """Start no more attempts; timers that wait are left to the next owner."""
        self._is_starting = False
        if self._at_most_once is not None:
            self._at_most_once.stop_starting()
        if self._ordered is not None:
            self._ordered.stop_starting()
        self.drop(None)

    def wants(self, key: QueueKey, monotonic: float) -> bool:
        """Whether it pays to read more timers of a queue."""
        return self._flow.wants(key, monotonic) and self._is_open(key) and self._payloads.wants(key[0])

    def is_full(self, namespace: str) -> bool:
        """Whether no timer of a namespace would be taken, in whichever queue. A guess, from any thread."""
        view = self._namespaces.get(namespace)
        return self._flow.is_full(namespace) or (view is not None and not view.is_usable)

    def offer(self, shard: ShardState, timers: list[Timer], page: Span) -> Offered:
        """Take the timers of a page that are not in flight, as far as there is room; tell which queues had none."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        accepted = 0
        refused: set[QueueKey] = set()
        for timer in timers:
            if not shard.is_new(timer):
                continue
            key = queue_key(timer)
            if (
                self._at_most_once is not None
                and self._at_most_once.takes(key[0])
                and self._is_looked_after(shard, timer, page)
            ):
                continue
            if self._is_too_late(timer, now) and self._has_record_room:
                shard.take(timer, page)
                self._recorded.expire(shard, timer, now)
            elif (
                key not in refused
                and shard.reading.may_take(key, page)
                and self._flow.accepts(key, monotonic)
                and self._is_open(key)
                and self._payloads.accepts(timer)
            ):
                shard.take(timer, page)
                self._flow.add(key, shard, timer, monotonic)
                accepted += 1
            else:
                refused.add(key)
        self._stats.deferred += len(refused)
        return Offered(accepted, refused)

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

    def drop(self, shard: ShardState | None) -> None:
        """Forget the timers of ``shard`` (None: of all) that wait. They stay due in the store."""
        for owner, timer, _ in self._flow.remove(lambda waiting: shard is None or waiting[0] is shard):
            owner.settle(firing_key(timer))

    def start_attempts(self) -> None:
        """Hand as many waiting timers to the sender as the bounds allow, in one batch."""
        if self._next_look is not None:
            self._next_look.cancel()
            self._next_look = None
        if not len(self._flow) or not self._is_starting:
            return
        monotonic, now = self._clock.monotonic(), self._clock.now()
        for attempt in self._attempts.newly_slow(monotonic):
            self._flow.slow_down(attempt.queue)
        places = self._places()
        callbacks: list[Callback] = []
        self._flow.next_token_at(monotonic)  # lets in those that have a token by now
        while len(callbacks) < places and (taken := self._flow.take(monotonic)) is not None:
            key, shard, timer = taken
            is_ours, is_too_late = shard.is_trusted(monotonic), self._is_too_late(timer, now)
            is_held_up = self._recorded.is_held_up(shard.shard_id)
            if is_ours and not is_too_late and not is_held_up and self._can_be_sent(key):
                if self._at_most_once is not None and self._at_most_once.takes(key[0]):
                    self._at_most_once.begin(shard, timer, queue=key, monotonic=monotonic)
                    places -= 1
                elif self._ordered is not None and self._ordered.takes(key[0]):
                    self._ordered.ask(shard, timer, queue=key, monotonic=monotonic)
                    places -= 1
                else:
                    callbacks.append(self._start(key, shard, timer, now, monotonic))
                continue
            self._flow.end(key, HostSignal.NEUTRAL, started=monotonic, is_slow=False, monotonic=monotonic)
            if not is_ours:
                shard.settle(firing_key(timer))
            elif is_too_late and not is_held_up:
                self._recorded.expire(shard, timer, now)
            else:
                shard.give_up(key, timer)
        self._submit(callbacks)
        if self.room >= self._settings.max_buffered // 2:
            self._on_room()
        self._look_again_later(monotonic, places - len(callbacks))

    def _submit(self, callbacks: list[Callback]) -> None:
        if callbacks:
            self._stats.attempts_started += len(callbacks)
            self._sender.submit(callbacks)

    def _start(self, key: QueueKey, shard: ShardState, timer: Timer, now: datetime, monotonic: float) -> Callback:
        view = self._namespaces.get(timer.namespace) or NamespaceView()
        number = self._add(Attempt(shard, shard.lease, key, timer, now, monotonic, view.retry_policy))
        return callback_for(timer, key=number, fired_at=now, signer=view.signer)

    def _add(self, attempt: Attempt) -> int:
        """The key for its callback."""
        if attempt.timer.attempts == 0:
            self._stats.lag.observe(attempt.lag_seconds)
        return self._attempts.add(attempt)

    @property
    def _has_record_room(self) -> bool:
        # What is fired and not yet recorded is bounded too: a slow store slows the firing down.
        return self.unstored < self._settings.max_buffered

    def _places(self) -> int:
        """How many attempts may be started: those that hang take none away until too many of them do."""
        fast = len(self._attempts) - min(self._attempts.slow, self._settings.max_slow_in_flight)
        fast += 0 if self._at_most_once is None else self._at_most_once.beginning
        fast += 0 if self._ordered is None else self._ordered.asking
        return min(self._settings.max_in_flight - fast, self._settings.max_buffered - self.unstored)

    def _look_again_later(self, monotonic: float, places: int) -> None:
        """Come back when time alone makes room: an attempt becomes slow, or a namespace gets a token."""
        token_at = self._flow.next_token_at(monotonic)
        later = [] if token_at is None else [token_at]
        if places <= 0 and len(self._flow) and (slow_at := self._attempts.next_slow_at()) is not None:
            later.append(slow_at)
        if later:
            delay = max(min(later) - monotonic, SHORTEST_WAIT_SECONDS)
            self._next_look = asyncio.get_running_loop().call_later(delay, self.start_attempts)

    def _is_open(self, key: QueueKey) -> bool:
        """False while a namespace's secret cannot be had: nothing is sent unsigned that should be signed."""
        view = self._namespaces.get(key[0])
        return (view is None or view.is_usable) and self._has_record_room and not self._is_full(key)

    def _is_too_late(self, timer: Timer, now: datetime) -> bool:
        view = self._namespaces.get(timer.namespace)
        return timer.is_too_late(now) or (view is not None and view.is_usable and view.is_missed(timer))

    def _is_full(self, key: QueueKey) -> bool:
        return self._at_most_once is not None and self._at_most_once.is_full(key[0])

    def _can_be_sent(self, key: QueueKey) -> bool:
        """False when the namespace could be used as the timer was read, and is not usable or not known any more."""
        view = self._namespaces.get(key[0])
        return view is not None and view.is_usable and not self._is_full(key)

    # -- answers ---------------------------------------------------------------------------------------------

    def take_results(self, results: list[CallbackResult]) -> None:
        """Answers that arrived, one per attempt. Those of attempts given up earlier are ignored."""
        now = self._clock.now()
        for result in results:
            attempt = self._attempts.pop(result.key)
            if attempt is None:
                continue
            try:
                self._take_result(attempt, result, now)
            except Exception:  # it costs this response only
                log.exception(
                    "a response could not be taken; its timer is fired again later",
                    extra={
                        "action": "firing.answer_lost",
                        "namespace": attempt.timer.namespace,
                        "timer_id": attempt.timer.timer_id,
                    },
                )
                if attempt.token is not None and self._at_most_once is not None:
                    self._at_most_once.abandon(attempt)
                self._postponed.put_back(attempt.shard, attempt.timer)
        self.start_attempts()

    def _take_result(self, attempt: Attempt, result: CallbackResult, now: datetime) -> None:
        self._stats.count_response(result.status, result.duration_seconds)
        self._end(attempt, signal_of(result))
        if attempt.token is None or self._at_most_once is None:
            self._recorded.take_result(attempt, result, now)
        else:
            self._at_most_once.conclude(attempt, result)

    def _end(self, attempt: Attempt, ending: HostSignal) -> None:
        changed = self._flow.end(
            attempt.queue,
            ending,
            started=attempt.started,
            is_slow=attempt.is_slow,
            monotonic=self._clock.monotonic(),
        )
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
        for shard, timer, _ in self._flow.clear(attempt.queue):
            shard.give_up(attempt.queue, timer)

    # -- timers of a handler ---------------------------------------------------------------------------------

    def _is_looked_after(self, shard: ShardState, timer: Timer, page: Span) -> bool:
        """Whether a handler's timer needs no turn in a queue: nothing is to be sent for it, or not here."""
        at_most_once = self._at_most_once
        assert at_most_once is not None
        if at_most_once.is_in_flight(timer):
            return True
        if timer.state is not TimerState.FIRING:
            if at_most_once.has_time_for(timer):
                return False
            shard.take(timer, page)  # it is not looked at again by this poller
            return True
        # Its attempt is overdue. That ends whatever its host and its namespace's limits are.
        if at_most_once.beginning < self._settings.max_in_flight:
            shard.take(timer, page)
            at_most_once.begin(shard, timer, queue=None, monotonic=self._clock.monotonic())
        return True

    def _take_begun(self, begun: Sequence[Begun]) -> None:
        """The handler has had its say about timers whose turn it was."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        callbacks: list[Callback] = []
        for beginning, message in begun:
            queue = beginning.queue
            if message is not None:
                assert queue is not None
                attempt = Attempt(beginning.shard, beginning.lease, queue, beginning.timer, now, monotonic)
                attempt.is_parked, attempt.token = True, message.token
                callbacks.append(replace(message.callback, key=self._add(attempt)))
            elif queue is not None:
                self._flow.end(queue, HostSignal.NEUTRAL, started=beginning.taken, is_slow=False, monotonic=monotonic)
        self._submit(callbacks)
        self.start_attempts()

    def _take_decided(self, decided: Sequence[Decided]) -> None:
        """The ordering policy has decided about timers whose turn it was."""
        now, monotonic = self._clock.now(), self._clock.monotonic()
        callbacks: list[Callback] = []
        for candidate, callback in decided:
            shard, queue = candidate.shard, candidate.queue
            if callback is None:
                self._flow.end(queue, HostSignal.NEUTRAL, started=candidate.taken, is_slow=False, monotonic=monotonic)
            else:
                attempt = Attempt(shard, candidate.lease, queue, candidate.timer, now, monotonic)
                callbacks.append(replace(callback, key=self._add(attempt)))
        self._submit(callbacks)
        self.start_attempts()

    # -- those that take long --------------------------------------------------------------------------------

    def tend(self) -> None:
        """Park what has been in flight for longer than ``park_after_seconds``, give up what has waited too long."""
        monotonic = self._clock.monotonic()
        self._recorded.park(self._attempts, started_before=monotonic - self._settings.park_after_seconds)
        self._flow.drop_stale(monotonic)

    def park_all(self) -> None:
        """Park all that is in flight, so that the next owner does not fire it again at once."""
        self._recorded.park(self._attempts, started_before=float("inf"))

    def abandon(self) -> None:
        """At the end of a drain: forget the attempts that are still in flight. They are parked in the store."""
        if self._attempts:
            log.warning(
                "callbacks still in flight at the deadline: timers fire again, service calls time out",
                extra={"action": "firing.abandoned", "attempts": len(self._attempts)},
            )
        for attempt in self._attempts.clear():
            self._end(attempt, HostSignal.NEUTRAL)
            attempt.shard.settle(firing_key(attempt.timer))
            if attempt.token is not None and self._at_most_once is not None:
                self._at_most_once.abandon(attempt)
