"""Flow control: which waiting timer may be started next, and which timers are worth reading.

Everything costs O(1) per timer. Times are monotonic seconds.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from math import ceil

from duetime.domain.timers import Timer
from duetime.engine.flow.breaker import BreakerState, CircuitBreaker
from duetime.engine.flow.host_health import HostSignal
from duetime.engine.flow.limits import ConcurrencyWindow, TokenBucket
from duetime.engine.flow.queues import Host, HostQueue, NamespaceQueue, Waiting
from duetime.engine.keys import QueueKey
from duetime.engine.settings import EngineSettings
from duetime.engine.shards.shard import ShardState

_MAX_IDLE_LANES = 10_000
"""What was learnt about hosts is forgotten when there are more than so many."""
_QUICK_SECONDS = 0.02
"""A quick callback. Quicker ones are fired as fast as timers can be read meanwhile."""


class FlowControl:
    """The waiting timers of one poller. For the event loop's thread alone."""

    def __init__(
        self,
        settings: EngineSettings,
        *,
        random: Callable[[], float],
        on_stale: Callable[[QueueKey, ShardState, Timer], None],
    ) -> None:
        """``on_stale`` is told of timers that have waited too long: they are out, and must be read again."""
        self._settings = settings
        self._random = random
        self._on_stale = on_stale
        self._queues: dict[QueueKey, HostQueue] = {}
        self._namespaces: dict[str, NamespaceQueue] = {}
        self._hosts: dict[str, Host] = {}
        self._round: deque[NamespaceQueue] = deque()
        self._waiting = 0
        self._busy_namespaces = 0
        """Those with something waiting: they share the buffer."""
        self._tokens_due: list[tuple[float, int, NamespaceQueue]] = []
        self._crowded: dict[Host, None] = {}
        """Hosts at which queues are blocked, and perhaps some at which none is any longer."""
        self._serial = count()
        self._max_queues = _MAX_IDLE_LANES

    def __len__(self) -> int:
        return self._waiting

    # -- limits ----------------------------------------------------------------------------------------------

    def configure(
        self, namespace: str, *, max_in_flight: int | None, rate_per_second: float | None, monotonic: float
    ) -> None:
        """Limits of ``namespace`` in this poller; None for those of all namespaces, or for no rate limit.

        A namespace with a ``max_in_flight`` of its own need not earn it: its windows begin with that.
        """
        line = self._namespace(namespace)
        line.max_in_flight = max_in_flight or self._settings.max_in_flight_per_namespace
        initial_window = max_in_flight or self._settings.initial_window
        if initial_window != line.initial_window:
            self._begin_with(line, initial_window)
        if rate_per_second is None:
            line.bucket = None
        elif line.bucket is None:
            line.bucket = TokenBucket(rate_per_second, monotonic=monotonic)
        elif line.bucket.per_second != rate_per_second:
            line.bucket.change(rate_per_second, monotonic=monotonic)
            line.waits_for_token = False  # its time was reckoned with the old rate
        self._let_in(line)

    def open_breakers(self, monotonic: float) -> int:
        """May be called from any thread: the copy is made in one step."""
        return sum(queue.breaker.state(monotonic) is not BreakerState.CLOSED for queue in list(self._queues.values()))

    @property
    def _max_in_flight_per_queue(self) -> int:
        # Of one host, no namespace gets all: when it hangs for one of them, another still has a way in.
        return max(1, self._settings.max_in_flight_per_host * 3 // 4)

    def _begin_with(self, line: NamespaceQueue, initial_window: int) -> None:
        line.initial_window = initial_window
        line.window.begin_with(max(initial_window, 4 * self._settings.initial_window))
        for queue in self._queues.values():
            if queue.namespace is line:
                queue.window.begin_with(min(initial_window, self._max_in_flight_per_queue))
                self._let_queue_in(queue)

    # -- waiting ---------------------------------------------------------------------------------------------

    def accepts(self, key: QueueKey, monotonic: float) -> bool:
        """Whether another timer may wait in this queue. One that is not accepted stays in the store."""
        queue = self._queues.get(key)
        line = self._namespaces.get(key[0])
        if queue is not None and len(queue.waiting) >= self._room_of(queue, monotonic):
            return False
        if line is None:
            return self._waiting < self._settings.max_buffered or self._busy_namespaces < self._settings.max_buffered
        return not self._is_full(line)

    def is_full(self, namespace: str) -> bool:
        """Whether no queue of a namespace accepts another timer. May be called from any thread: a guess, then."""
        line = self._namespaces.get(namespace)
        return line is not None and self._is_full(line)

    def _is_full(self, line: NamespaceQueue) -> bool:
        if line.waiting >= self._turns_ahead(line):
            return True
        if self._waiting < self._settings.max_buffered:
            return False
        # The buffer is full: each namespace may still have its share, however much the others hold.
        busy = self._busy_namespaces + (line.waiting == 0)
        return line.waiting >= self._settings.max_buffered // max(1, busy)

    def wants(self, key: QueueKey, monotonic: float) -> bool:
        """Whether this queue has become so short that it pays to read more for it."""
        queue = self._queues.get(key)
        if queue is not None and len(queue.waiting) > self._room_of(queue, monotonic) // 2:
            return False
        line = self._namespaces.get(key[0])
        if line is not None and line.waiting > self._turns_ahead(line) // 2:
            return False  # or a page would be read for every turn
        return self.accepts(key, monotonic)

    def add(self, key: QueueKey, shard: ShardState, timer: Timer, monotonic: float) -> None:
        """``timer`` was read at ``monotonic`` and waits for its turn. Ask ``accepts`` first."""
        queue = self._queue(key, monotonic)
        line = queue.namespace
        queue.waiting.append((shard, timer, monotonic))
        self._busy_namespaces += line.waiting == 0
        line.waiting += 1
        self._waiting += 1
        self._let_queue_in(queue)

    def remove(self, is_unwanted: Callable[[Waiting], bool]) -> Iterator[Waiting]:
        """Take out and yield all that are unwanted."""
        for queue in list(self._queues.values()):
            if queue.waiting:
                yield from self._remove(queue, is_unwanted)

    def drop_stale(self, monotonic: float) -> None:
        """Give up what has waited too long in queues that let nothing through."""
        for queue in self._queues.values():
            if queue.waiting:
                self._drop_stale(queue, monotonic)

    def clear(self, key: QueueKey) -> Iterator[Waiting]:
        """Take out and yield all that wait in one queue."""
        return self._remove(self._queues[key], lambda waiting: True)  # noqa: ARG005

    # -- starting and ending ---------------------------------------------------------------------------------

    def take(self, monotonic: float) -> tuple[QueueKey, ShardState, Timer] | None:
        """The next timer that may be started now, which counts as in flight from then on. None when there is none."""
        while self._round or self._let_in_through_idle_hosts():
            line = self._round.popleft()
            queue = self._next_queue(line, monotonic)
            if queue is None:
                line.is_in_round = False
                continue
            if line.bucket is not None:
                line.bucket.take()
            shard, timer, _ = queue.waiting.popleft()
            self._count_out(queue)
            queue.in_flight += 1
            queue.host.in_flight += 1
            line.in_flight += 1
            if queue.waiting:
                line.round.append(queue)
            else:
                queue.is_in_round = False
            self._round.append(line)
            return queue.key, shard, timer
        return None

    def slow_down(self, key: QueueKey) -> None:
        """An attempt has been in flight for long."""
        self._queues[key].slow += 1

    def end(
        self, key: QueueKey, ending: HostSignal, *, started: float, is_slow: bool, monotonic: float
    ) -> BreakerState | None:
        """An attempt has ended. Says that the breaker of its host has opened or closed through this."""
        queue = self._queues[key]
        queue.in_flight -= 1
        queue.slow -= is_slow
        queue.host.in_flight -= 1
        queue.namespace.in_flight -= 1
        changed = None
        if ending is HostSignal.ANSWERED:
            queue.window.answered(self._max_in_flight_per_queue)
            queue.namespace.window.answered(self._settings.max_in_flight_per_namespace)
            if queue.breaker.succeeded():
                changed = BreakerState.CLOSED
        elif ending is not HostSignal.NEUTRAL:
            queue.window.failed()
            is_answered = ending is HostSignal.UNAVAILABLE
            if queue.breaker.failed(
                started=started, is_answered=is_answered, monotonic=monotonic, random=self._random()
            ):
                changed = BreakerState.OPEN
        if queue.host.blocked and queue.waiting and not queue.is_in_round:
            queue.host.blocked[queue] = None  # behind those that wait already: its own end is no privilege
            self._crowded[queue.host] = None
        self._let_queue_in(queue)
        self._let_in(queue.namespace)
        self._let_in_through_host(queue.host, monotonic)
        return changed

    def next_token_at(self, monotonic: float) -> float | None:
        """When a namespace that only waits for a token may go on; lets in those for which it is time."""
        while self._tokens_due and self._tokens_due[0][0] <= monotonic:
            line = heapq.heappop(self._tokens_due)[2]
            line.waits_for_token = False
            self._let_in(line)
        return self._tokens_due[0][0] if self._tokens_due else None

    # -- inside ----------------------------------------------------------------------------------------------

    def _room_of(self, queue: HostQueue, monotonic: float) -> int:
        """How many may wait in a queue: many while its host answers, few while it hangs, none while it is out."""
        state = queue.breaker.state(monotonic)
        if state is BreakerState.OPEN:
            return 0
        if state is BreakerState.HALF_OPEN:
            return 1 - min(queue.in_flight, 1)
        return queue.window.size if queue.slow else self._settings.max_buffered

    def _turns_ahead(self, line: NamespaceQueue) -> int:
        """As many as may have their turn before they have waited too long. What is beyond would be read again."""
        ahead_seconds = self._settings.max_wait_seconds / 2
        turns = line.max_in_flight * ceil(ahead_seconds / _QUICK_SECONDS)
        return turns if line.bucket is None else min(turns, max(1, ceil(line.bucket.per_second * ahead_seconds)))

    def _next_queue(self, line: NamespaceQueue, monotonic: float) -> HostQueue | None:
        """The namespace's next queue that may start, out of its round; None when there is none for now."""
        if not line.round or not line.has_room():
            return None
        if line.bucket is not None and (wait := line.bucket.wait_seconds(monotonic)) > 0:
            if not line.waits_for_token:
                line.waits_for_token = True
                heapq.heappush(self._tokens_due, (monotonic + wait, next(self._serial), line))
            return None
        while line.round:
            queue = line.round.popleft()
            self._drop_stale(queue, monotonic)
            if queue.waiting and queue.may_start(monotonic):
                if queue.host.in_flight < self._settings.max_in_flight_per_host:
                    return queue
                queue.host.blocked[queue] = None
                self._crowded[queue.host] = None
            queue.is_in_round = False
        return None

    def _drop_stale(self, queue: HostQueue, monotonic: float) -> None:
        oldest = monotonic - self._settings.max_wait_seconds
        while queue.waiting and queue.waiting[0][2] < oldest:
            shard, timer, _ = queue.waiting.popleft()
            self._count_out(queue)
            self._on_stale(queue.key, shard, timer)

    def _let_queue_in(self, queue: HostQueue) -> None:
        if queue.waiting and not queue.is_in_round and queue not in queue.host.blocked:
            queue.is_in_round = True
            queue.namespace.round.append(queue)
            self._let_in(queue.namespace)

    def _let_in(self, line: NamespaceQueue) -> None:
        if line.round and not line.is_in_round:
            line.is_in_round = True
            self._round.append(line)

    def _let_in_through_host(self, host: Host, monotonic: float) -> None:
        """There is room for one more: for the first that can use it."""
        while host.blocked and host.in_flight < self._settings.max_in_flight_per_host:
            queue = next(iter(host.blocked))
            del host.blocked[queue]
            self._let_queue_in(queue)
            if queue.is_in_round and queue.may_start(monotonic):
                break

    def _let_in_through_idle_hosts(self) -> bool:
        """Nobody in the round may start: those that were let in have no use for their hosts' room, so others may.

        Without this a host's room could be kept for a queue whose namespace must not start, and no end would wake the
        next. Every turn takes a queue out of those that are blocked. True when a namespace is in the round again.
        """
        for host in list(self._crowded):
            while host.blocked and host.in_flight < self._settings.max_in_flight_per_host:
                queue = next(iter(host.blocked))
                del host.blocked[queue]
                self._let_queue_in(queue)
                if self._round:
                    return True
            if not host.blocked:
                del self._crowded[host]
        return False

    def _remove(self, queue: HostQueue, is_unwanted: Callable[[Waiting], bool]) -> Iterator[Waiting]:
        kept: deque[Waiting] = deque()
        waiting, queue.waiting = queue.waiting, kept
        for each in waiting:
            if is_unwanted(each):
                self._count_out(queue)
                yield each
            else:
                kept.append(each)

    def _count_out(self, queue: HostQueue) -> None:
        self._waiting -= 1
        queue.namespace.waiting -= 1
        self._busy_namespaces -= queue.namespace.waiting == 0

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
            line = self._namespace(key[0])
            window = ConcurrencyWindow(min(line.initial_window, self._max_in_flight_per_queue))
            queue = self._queues[key] = HostQueue(key, line, host, window, breaker)
        return queue

    def _namespace(self, name: str) -> NamespaceQueue:
        line = self._namespaces.get(name)
        if line is None:
            settings = self._settings
            window = ConcurrencyWindow(4 * settings.initial_window)
            line = self._namespaces[name] = NamespaceQueue(
                name, window, settings.max_in_flight_per_namespace, settings.initial_window
            )
        return line

    def _forget_idle(self, monotonic: float) -> None:
        self._queues = {key: queue for key, queue in self._queues.items() if not queue.is_idle(monotonic)}
        self._max_queues = max(_MAX_IDLE_LANES, 2 * len(self._queues))
        used_hosts = {key[1] for key in self._queues}
        used_namespaces = {key[0] for key in self._queues}
        self._hosts = {name: host for name, host in self._hosts.items() if name in used_hosts}
        self._namespaces = {name: line for name, line in self._namespaces.items() if name in used_namespaces}
