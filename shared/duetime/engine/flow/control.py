"""Flow control: which waiting timer may be started next, and which timers are worth reading.

Namespaces take turns, and within each its hosts. Whether a queue may start one more is one rule (``_ready_at``),
asked when a turn is given: nothing has to be woken up when a limit has room again. A look costs O(1) for each queue
with something waiting and for each timer that is started. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from math import ceil, inf

from duetime.engine.delivery import Attempt
from duetime.engine.flow.breaker import BreakerState, CircuitBreaker
from duetime.engine.flow.host_health import HostSignal
from duetime.engine.flow.limits import ConcurrencyWindow, TokenBucket
from duetime.engine.flow.queues import Host, HostQueue, NamespaceQueue
from duetime.engine.keys import QueueKey
from duetime.engine.settings import EngineSettings

_MAX_IDLE_QUEUES = 10_000
"""What was learnt about hosts is forgotten when there are more than so many."""
_QUICK_SECONDS = 0.02
"""A quick callback. Quicker ones are fired as fast as timers can be read meanwhile."""


class FlowControl:
    """The waiting timers of one poller. For the event loop's thread alone."""

    def __init__(
        self, settings: EngineSettings, *, random: Callable[[], float], on_stale: Callable[[Attempt], None]
    ) -> None:
        """``on_stale`` is told of timers that have waited too long: they are out, and must be read again."""
        self._settings = settings
        self._random = random
        self._on_stale = on_stale
        self._queues: dict[QueueKey, HostQueue] = {}
        self._namespaces: dict[str, NamespaceQueue] = {}
        self._hosts: dict[str, Host] = {}
        self._busy: OrderedDict[NamespaceQueue, None] = OrderedDict()
        """Namespaces with something waiting, the one whose last turn is longest ago first. They share the buffer."""
        self._waiting = 0
        self._max_queues = _MAX_IDLE_QUEUES
        self.next_token_at: float | None = None
        """When the next token comes that alone kept something from its turn, as of the last ``take``."""

    def __len__(self) -> int:
        return self._waiting

    # -- limits ----------------------------------------------------------------------------------------------

    def configure(
        self, name: str, *, max_in_flight: int | None, rate_per_second: float | None, monotonic: float
    ) -> None:
        """Limits of a namespace in this poller; None for those of all namespaces, or for no rate limit.

        A namespace with a ``max_in_flight`` of its own need not earn it: its windows begin with that.
        """
        namespace = self._namespace(name)
        namespace.max_in_flight = max_in_flight or self._settings.max_in_flight_per_namespace
        initial_window = max_in_flight or self._settings.initial_window
        if initial_window != namespace.initial_window:
            self._begin_with(namespace, initial_window)
        if rate_per_second is None:
            namespace.bucket = None
        elif namespace.bucket is None:
            namespace.bucket = TokenBucket(rate_per_second, monotonic=monotonic)
        elif namespace.bucket.per_second != rate_per_second:
            namespace.bucket.change(rate_per_second, monotonic=monotonic)

    def open_breakers(self, monotonic: float) -> int:
        """May be called from any thread: the copy is made in one step."""
        return sum(queue.breaker.state(monotonic) is not BreakerState.CLOSED for queue in list(self._queues.values()))

    @property
    def _max_in_flight_per_queue(self) -> int:
        # Of one host, no namespace gets all: when it hangs for one of them, another still has a way in.
        return max(1, self._settings.max_in_flight_per_host * 3 // 4)

    def _begin_with(self, namespace: NamespaceQueue, initial_window: int) -> None:
        namespace.initial_window = initial_window
        namespace.window.begin_with(max(initial_window, 4 * self._settings.initial_window))
        for queue in self._queues.values():
            if queue.namespace is namespace:
                queue.window.begin_with(min(initial_window, self._max_in_flight_per_queue))

    # -- waiting ---------------------------------------------------------------------------------------------

    def accepts(self, key: QueueKey, monotonic: float) -> bool:
        """Whether another timer may wait in this queue. One that is not accepted stays in the store."""
        queue = self._queues.get(key)
        namespace = self._namespaces.get(key[0])
        if queue is not None and len(queue.waiting) >= self._room_of(queue, monotonic):
            return False
        if namespace is None:
            return min(self._waiting, len(self._busy)) < self._settings.max_buffered
        return not self._is_full(namespace)

    def is_full(self, name: str) -> bool:
        """Whether no queue of a namespace accepts another timer. May be called from any thread: a guess, then."""
        namespace = self._namespaces.get(name)
        return namespace is not None and self._is_full(namespace)

    def _is_full(self, namespace: NamespaceQueue) -> bool:
        if namespace.waiting >= self._turns_ahead(namespace):
            return True
        if self._waiting < self._settings.max_buffered:
            return False
        # The buffer is full: each namespace may still have its share, however much the others hold.
        busy = len(self._busy) + (namespace.waiting == 0)
        return namespace.waiting >= self._settings.max_buffered // max(1, busy)

    def wants(self, key: QueueKey, monotonic: float) -> bool:
        """Whether this queue has become so short that it pays to read more for it."""
        queue = self._queues.get(key)
        if queue is not None and len(queue.waiting) > self._room_of(queue, monotonic) // 2:
            return False
        namespace = self._namespaces.get(key[0])
        if namespace is not None and namespace.waiting > self._turns_ahead(namespace) // 2:
            return False  # or a page would be read for every turn
        return self.accepts(key, monotonic)

    def add(self, attempt: Attempt, monotonic: float) -> None:
        """The timer of ``attempt`` waits for its turn. Ask ``accepts`` first."""
        queue = self._queue(attempt.queue, monotonic)
        queue.waiting.append(attempt)
        queue.namespace.waiting += 1
        queue.namespace.queues[queue] = None  # a queue or namespace that is there already keeps its place
        self._busy[queue.namespace] = None
        self._waiting += 1

    def remove(self, is_unwanted: Callable[[Attempt], bool]) -> list[Attempt]:
        """Take out all that are unwanted."""
        return [each for queue in list(self._queues.values()) for each in self._remove(queue, is_unwanted)]

    def drop_stale(self, monotonic: float) -> None:
        """Give up what has waited too long in queues that let nothing through."""
        for queue in self._queues.values():
            self._drop_stale(queue, monotonic)

    def clear(self, key: QueueKey) -> list[Attempt]:
        """Take out all that wait in one queue."""
        return self._remove(self._queues[key], lambda attempt: True)  # noqa: ARG005

    # -- starting and ending ---------------------------------------------------------------------------------

    def take(self, monotonic: float, places: int, may_start: Callable[[Attempt], bool]) -> list[Attempt]:
        """Up to ``places`` whose turn it is, in order; they count as in flight from then on.

        One that may not start is out. A queue or namespace that is passed over keeps its place before those that have
        had a turn since.
        """
        taken: list[Attempt] = []
        next_at = inf
        turns = deque((namespace, deque(namespace.queues)) for namespace in self._busy) if places > 0 else deque()
        while turns and len(taken) < places:
            namespace, queues = turns.popleft()
            while queues:
                queue = queues.popleft()
                self._drop_stale(queue, monotonic)
                if not queue.waiting:
                    continue
                ready_at = self._ready_at(queue, monotonic)
                if ready_at > monotonic:  # and so it is until something ends or time has passed
                    next_at = min(next_at, ready_at)
                    continue
                attempt = self._give_turn(queue)
                if may_start(attempt):
                    self._count_in(attempt, queue)
                    taken.append(attempt)
                if queue.waiting:
                    queues.append(queue)
                turns.append((namespace, queues))
                break
        self.next_token_at = None if next_at == inf else next_at
        return taken

    def _ready_at(self, queue: HostQueue, monotonic: float) -> float:
        """When a queue may start one more, as far as time alone decides; infinity: not before an attempt ends."""
        namespace = queue.namespace
        if (
            not namespace.has_room()
            or queue.host.in_flight >= self._settings.max_in_flight_per_host
            or not queue.has_room(monotonic)
        ):
            return inf
        return monotonic if namespace.bucket is None else monotonic + namespace.bucket.wait_seconds(monotonic)

    def _give_turn(self, queue: HostQueue) -> Attempt:
        attempt = queue.waiting.popleft()
        queue.namespace.queues.move_to_end(queue)
        self._busy.move_to_end(queue.namespace)
        self._count_out(queue, 1)
        return attempt

    def _count_in(self, attempt: Attempt, queue: HostQueue) -> None:
        attempt.has_place = True
        queue.in_flight += 1
        queue.host.in_flight += 1
        queue.namespace.in_flight += 1
        if queue.namespace.bucket is not None:
            queue.namespace.bucket.take()

    def slow_down(self, attempt: Attempt) -> None:
        """``attempt`` has been in flight for long."""
        self._queues[attempt.queue].slow += 1

    def end(self, attempt: Attempt, signal: HostSignal, monotonic: float) -> BreakerState | None:
        """``attempt`` gives its place back. Says that the breaker of its host has opened or closed through this."""
        attempt.has_place = False
        queue = self._queues[attempt.queue]
        queue.in_flight -= 1
        queue.slow -= attempt.is_slow
        queue.host.in_flight -= 1
        queue.namespace.in_flight -= 1
        if signal is HostSignal.NEUTRAL:
            return None
        if signal is HostSignal.ANSWERED:
            queue.window.answered(self._max_in_flight_per_queue)
            queue.namespace.window.answered(self._settings.max_in_flight_per_namespace)
            return BreakerState.CLOSED if queue.breaker.succeeded() else None
        queue.window.failed()
        has_opened = queue.breaker.failed(
            started=attempt.started,
            is_answered=signal is HostSignal.UNAVAILABLE,
            monotonic=monotonic,
            random=self._random(),
        )
        return BreakerState.OPEN if has_opened else None

    # -- inside ----------------------------------------------------------------------------------------------

    def _room_of(self, queue: HostQueue, monotonic: float) -> int:
        """How many may wait in a queue: many while its host answers, few while it hangs, none while it is out."""
        state = queue.breaker.state(monotonic)
        if state is BreakerState.OPEN:
            return 0
        if state is BreakerState.HALF_OPEN:
            return 1 - min(queue.in_flight, 1)
        return queue.window.size if queue.slow else self._settings.max_buffered

    def _turns_ahead(self, namespace: NamespaceQueue) -> int:
        """As many as may have their turn before they have waited too long. What is beyond would be read again."""
        ahead_seconds = self._settings.max_wait_seconds / 2
        turns = namespace.max_in_flight * ceil(ahead_seconds / _QUICK_SECONDS)
        bucket = namespace.bucket
        return turns if bucket is None else min(turns, max(1, ceil(bucket.per_second * ahead_seconds)))

    def _drop_stale(self, queue: HostQueue, monotonic: float) -> None:
        oldest = monotonic - self._settings.max_wait_seconds
        while queue.waiting and queue.waiting[0].read_at < oldest:
            attempt = queue.waiting.popleft()
            self._count_out(queue, 1)
            self._on_stale(attempt)

    def _remove(self, queue: HostQueue, is_unwanted: Callable[[Attempt], bool]) -> list[Attempt]:
        removed: list[Attempt] = []
        kept: deque[Attempt] = deque()
        for attempt in queue.waiting:
            (removed if is_unwanted(attempt) else kept).append(attempt)
        if removed:
            queue.waiting = kept
            self._count_out(queue, len(removed))
        return removed

    def _count_out(self, queue: HostQueue, number: int) -> None:
        namespace = queue.namespace
        self._waiting -= number
        namespace.waiting -= number
        if not queue.waiting:
            del namespace.queues[queue]
            if not namespace.queues:
                del self._busy[namespace]

    def _queue(self, key: QueueKey, monotonic: float) -> HostQueue:
        queue = self._queues.get(key)
        if queue is None:
            if len(self._queues) >= self._max_queues:
                self._forget_idle(monotonic)
            settings = self._settings
            breaker = CircuitBreaker(
                failures=settings.breaker_failures,
                pause_seconds=settings.breaker_pause_seconds,
                max_pause_seconds=settings.breaker_max_pause_seconds,
            )
            host = self._hosts.get(key[1])
            if host is None:
                host = self._hosts[key[1]] = Host()
            namespace = self._namespace(key[0])
            window = ConcurrencyWindow(min(namespace.initial_window, self._max_in_flight_per_queue))
            queue = self._queues[key] = HostQueue(key, namespace, host, window, breaker)
        return queue

    def _namespace(self, name: str) -> NamespaceQueue:
        namespace = self._namespaces.get(name)
        if namespace is None:
            settings = self._settings
            window = ConcurrencyWindow(4 * settings.initial_window)
            namespace = NamespaceQueue(window, settings.max_in_flight_per_namespace, settings.initial_window)
            self._namespaces[name] = namespace
        return namespace

    def _forget_idle(self, monotonic: float) -> None:
        self._queues = {key: queue for key, queue in self._queues.items() if not queue.is_idle(monotonic)}
        self._max_queues = max(_MAX_IDLE_QUEUES, 2 * len(self._queues))
        used_hosts = {key[1] for key in self._queues}
        used_namespaces = {key[0] for key in self._queues}
        self._hosts = {name: host for name, host in self._hosts.items() if name in used_hosts}
        self._namespaces = {name: each for name, each in self._namespaces.items() if name in used_namespaces}
