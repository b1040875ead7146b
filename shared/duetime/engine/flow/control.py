"""Flow control: which waiting timer may be started next, and which timers are worth reading.

Namespaces take turns, and within each its hosts. Those that may have a turn are kept apart (``_place``). What is
found without a token, or at a host without room, is put aside until there is one: each look finds that out anew. So
a look costs O(1) for each timer that it starts, however many wait. Times are monotonic seconds.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice
from math import ceil, inf

from duetime.engine.delivery import Attempt
from duetime.engine.flow.queues import (
    BreakerState,
    CircuitBreaker,
    ConcurrencyWindow,
    Host,
    HostQueue,
    HostSignal,
    NamespaceQueue,
    TokenBucket,
)
from duetime.engine.keys import QueueKey
from duetime.engine.settings import EngineSettings

_MAX_IDLE_QUEUES = 10_000
"""What was learnt about hosts is forgotten when there are more than so many."""
_QUICK_SECONDS = 0.02
"""A quick callback. Quicker ones are fired as fast as timers can be read meanwhile."""


class FlowControl:
    """The waiting timers of one poller. For the event loop's thread alone."""

    def __init__(
        self, settings: EngineSettings, *, random: Callable[[], float], give_up: Callable[[Attempt], None]
    ) -> None:
        """``give_up`` gets attempts that have waited too long, or whose host is out: they must be read again."""
        self._settings = settings
        # Of one host, no namespace gets all: when it hangs for one of them, another still has a way in.
        self._max_in_flight_per_queue = max(1, settings.max_in_flight_per_host * 3 // 4)
        self._random = random
        self._give_up = give_up
        self._queues: dict[QueueKey, HostQueue] = {}
        self._namespaces: dict[str, NamespaceQueue] = {}
        self._hosts: dict[str, Host] = {}
        self._ready: OrderedDict[NamespaceQueue, None] = OrderedDict()
        """Namespaces that may have a turn; the one at the front has waited for it the longest."""
        self._without_token: dict[NamespaceQueue, float] = {}
        """Namespaces that may have a turn but for their rates, and when they have a token."""
        self._crowded: dict[Host, None] = {}
        """Hosts that have, or had, no room for a queue whose turn it was."""
        self._arrivals: deque[tuple[float, HostQueue]] = deque()
        """When timers were read, and where each began to wait."""
        self._waiting = 0
        self._busy_namespaces = 0
        """Those with something waiting: they share the buffer."""
        self._max_queues = _MAX_IDLE_QUEUES

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
        self._without_token.pop(namespace, None)  # its time was reckoned with the rate that it had
        self._place_namespace(namespace)

    def open_breakers(self, monotonic: float) -> int:
        """May be called from any thread: the copy is made in one step."""
        return sum(queue.breaker.state(monotonic) is not BreakerState.CLOSED for queue in list(self._queues.values()))

    def _begin_with(self, namespace: NamespaceQueue, initial_window: int) -> None:
        namespace.initial_window = initial_window
        namespace.window.begin_with(max(initial_window, 4 * self._settings.initial_window))
        for queue in self._queues.values():
            if queue.namespace is namespace:
                queue.window.begin_with(min(initial_window, self._max_in_flight_per_queue))
                self._place(queue)

    # -- waiting ---------------------------------------------------------------------------------------------

    def accepts(self, key: QueueKey, monotonic: float) -> bool:
        """Tell whether another timer may wait in this queue. One that is not accepted stays in the store."""
        queue = self._queues.get(key)
        namespace = self._namespaces.get(key[0])
        if queue is not None and len(queue.waiting) >= self._room_of(queue, monotonic):
            return False
        if namespace is None:
            return min(self._waiting, self._busy_namespaces) < self._settings.max_buffered
        return not self._is_full(namespace)

    def is_full(self, name: str) -> bool:
        """Tell whether no queue of a namespace accepts another timer. May be called from any thread: a guess,
        then."""
        namespace = self._namespaces.get(name)
        return namespace is not None and self._is_full(namespace)

    def _is_full(self, namespace: NamespaceQueue) -> bool:
        if namespace.waiting >= self._turns_ahead(namespace):
            return True
        if self._waiting < self._settings.max_buffered:
            return False
        # The buffer is full: each namespace may still have its share, however much the others hold.
        busy = self._busy_namespaces + (namespace.waiting == 0)
        return namespace.waiting >= self._settings.max_buffered // max(1, busy)

    def wants(self, key: QueueKey, monotonic: float) -> bool:
        """Tell whether this queue has become so short that it pays to read more for it."""
        queue = self._queues.get(key)
        if queue is not None and len(queue.waiting) > self._room_of(queue, monotonic) // 2:
            return False
        namespace = self._namespaces.get(key[0])
        if namespace is not None and namespace.waiting > self._turns_ahead(namespace) // 2:
            return False  # or a page would be read for every turn
        return self.accepts(key, monotonic)

    def add(self, attempt: Attempt, monotonic: float) -> None:
        """Let the timer of ``attempt`` wait for its turn. Ask ``accepts`` first."""
        queue = self._queue(attempt.queue, monotonic)
        queue.waiting.append(attempt)
        self._arrivals.append((attempt.read_at, queue))
        self._busy_namespaces += queue.namespace.waiting == 0
        queue.namespace.waiting += 1
        self._waiting += 1
        if len(queue.waiting) == 1:  # else it is where it belongs
            self._place(queue)

    def remove(self, is_unwanted: Callable[[Attempt], bool]) -> list[Attempt]:
        """Take out all that are unwanted."""
        removed: list[Attempt] = []
        for queue in self._queues.values():
            unwanted = [attempt for attempt in queue.waiting if is_unwanted(attempt)]
            if unwanted:
                queue.waiting = deque(attempt for attempt in queue.waiting if not is_unwanted(attempt))
                self._count_out(queue, len(unwanted))
                self._place(queue)
                removed += unwanted
        return removed

    def drop_stale(self, monotonic: float) -> None:
        """Give up what has waited too long."""
        read_before = monotonic - self._settings.max_wait_seconds
        while self._arrivals and self._arrivals[0][0] < read_before:
            _, queue = self._arrivals.popleft()
            if queue.waiting and queue.waiting[0].read_at < read_before:
                self._drop(queue, read_before=read_before)

    # -- starting and ending ---------------------------------------------------------------------------------

    def take(self, monotonic: float, places: int, may_start: Callable[[Attempt], bool]) -> list[Attempt]:
        """Return up to ``places`` whose turn it is, in order; they count as in flight from then on.

        One that may not start is out.
        """
        self.drop_stale(monotonic)
        self._readmit_for_tokens(monotonic)
        self._readmit_for_hosts()
        taken: list[Attempt] = []
        while len(taken) < places and (self._ready or self._readmit_for_hosts()):
            queue = self._next(monotonic)
            if queue is None:
                continue
            attempt = queue.waiting.popleft()
            self._count_out(queue, 1)
            if may_start(attempt):
                self._count_in(attempt, queue)
                taken.append(attempt)
            queue.namespace.ready.move_to_end(queue)
            self._ready.move_to_end(queue.namespace)
            self._place(queue)
        return taken

    @property
    def next_token_at(self) -> float | None:
        """When the next token comes that alone keeps something from its turn."""
        return min(self._without_token.values(), default=None)

    def _next(self, monotonic: float) -> HostQueue | None:
        """Return the queue whose turn it is; None: it was put aside."""
        namespace = next(iter(self._ready))
        wait_seconds = 0.0 if namespace.bucket is None else namespace.bucket.wait_seconds(monotonic)
        if wait_seconds > 0:
            del self._ready[namespace]
            self._without_token[namespace] = monotonic + wait_seconds
            return None
        queue = next(iter(namespace.ready))
        if queue.host.in_flight < self._settings.max_in_flight_per_host:
            return queue
        del namespace.ready[queue]
        queue.host.crowd[queue] = None
        self._crowded[queue.host] = None
        self._place_namespace(namespace)
        return None

    def _readmit_for_tokens(self, monotonic: float) -> None:
        """Readmit namespaces that have a token by now. Once in a look, for within one no time passes."""
        for namespace in [each for each, at in self._without_token.items() if at <= monotonic]:
            del self._without_token[namespace]
            self._place_namespace(namespace)

    def _readmit_for_hosts(self) -> bool:
        """Readmit as many queues as have room at their hosts. Whether anything may have a turn now."""
        for host in list(self._crowded):
            room = max(0, self._settings.max_in_flight_per_host - host.in_flight)
            usable = (queue for queue in host.crowd if self._may_start(queue.namespace))
            for queue in list(islice(usable, room)):
                del host.crowd[queue]
                queue.namespace.ready[queue] = None
                self._place_namespace(queue.namespace)
            if not host.crowd:
                del self._crowded[host]
        return bool(self._ready)

    def _place(self, queue: HostQueue) -> None:
        """Have ``queue`` and its namespace among those that may have a turn exactly while they may.

        One that is there keeps its place. One that comes in goes to the end: that it has room again is no privilege
        over those that wait already, also for its host. Call this after whatever may matter.
        """
        host, namespace = queue.host, queue.namespace
        if not (queue.waiting and queue.has_room()):
            namespace.ready.pop(queue, None)
            host.crowd.pop(queue, None)
        elif queue not in namespace.ready:
            (host.crowd or namespace.ready)[queue] = None
        self._place_namespace(namespace)

    def _place_namespace(self, namespace: NamespaceQueue) -> None:
        if not (namespace.ready and namespace.has_room()):
            self._ready.pop(namespace, None)
            self._without_token.pop(namespace, None)
        elif namespace not in self._without_token:
            self._ready[namespace] = None

    def _may_start(self, namespace: NamespaceQueue) -> bool:
        return namespace.has_room() and namespace not in self._without_token

    def _count_in(self, attempt: Attempt, queue: HostQueue) -> None:
        attempt.has_place = True
        queue.in_flight += 1
        queue.host.in_flight += 1
        queue.namespace.in_flight += 1
        if queue.namespace.bucket is not None:
            queue.namespace.bucket.take()

    def slow_down(self, attempt: Attempt) -> None:
        """Note that ``attempt`` has been in flight for long."""
        self._queues[attempt.queue].slow += 1

    def end(self, attempt: Attempt, signal: HostSignal, monotonic: float) -> BreakerState | None:
        """Take the place of ``attempt`` back. Logs that the breaker of its host has opened or closed through this."""
        attempt.has_place = False
        queue = self._queues[attempt.queue]
        queue.in_flight -= 1
        queue.slow -= attempt.is_slow
        queue.host.in_flight -= 1
        queue.namespace.in_flight -= 1
        changed = self._learn(queue, attempt, signal, monotonic)
        if changed is BreakerState.OPEN:
            self._drop(queue, read_before=inf)
        self._place(queue)
        return changed

    def _learn(self, queue: HostQueue, attempt: Attempt, signal: HostSignal, monotonic: float) -> BreakerState | None:
        """Learn what ``signal`` says about the host. Return the state to which its breaker has changed."""
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
        """Return how many may wait in a queue: many while its host answers, few while it hangs, none while it is
        out."""
        state = queue.breaker.state(monotonic)
        if state is BreakerState.OPEN:
            return 0
        if state is BreakerState.HALF_OPEN:
            return 1 - min(queue.in_flight, 1)
        return queue.window.size if queue.slow else self._settings.max_buffered

    def _turns_ahead(self, namespace: NamespaceQueue) -> int:
        """Return how many may have their turn before they have waited too long. What is beyond would be read
        again."""
        ahead_seconds = self._settings.max_wait_seconds / 2
        turns = namespace.max_in_flight * ceil(ahead_seconds / _QUICK_SECONDS)
        bucket = namespace.bucket
        return turns if bucket is None else min(turns, max(1, ceil(bucket.per_second * ahead_seconds)))

    def _drop(self, queue: HostQueue, *, read_before: float) -> None:
        """Give up what waits in a queue and was read before a time."""
        while queue.waiting and queue.waiting[0].read_at < read_before:
            attempt = queue.waiting.popleft()
            self._count_out(queue, 1)
            self._give_up(attempt)
        self._place(queue)

    def _count_out(self, queue: HostQueue, number: int) -> None:
        namespace = queue.namespace
        self._waiting -= number
        namespace.waiting -= number
        self._busy_namespaces -= namespace.waiting == 0

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
