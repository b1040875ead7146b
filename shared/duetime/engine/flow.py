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
from duetime.engine.breaker import BreakerState, CircuitBreaker
from duetime.engine.endings import Ending
from duetime.engine.keys import LaneKey
from duetime.engine.lanes import Host, Lane, NamespaceLine, Waiting
from duetime.engine.limits import ConcurrencyWindow, TokenBucket
from duetime.engine.owned import OwnedShard
from duetime.engine.settings import EngineSettings

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
        on_stale: Callable[[LaneKey, OwnedShard, Timer], None],
    ) -> None:
        """``on_stale`` is told of timers that have waited too long: they are out, and must be read again."""
        self._settings = settings
        self._random = random
        self._on_stale = on_stale
        self._lanes: dict[LaneKey, Lane] = {}
        self._namespaces: dict[str, NamespaceLine] = {}
        self._hosts: dict[str, Host] = {}
        self._round: deque[NamespaceLine] = deque()
        self._waiting = 0
        self._busy_namespaces = 0
        """Those with something waiting: they share the buffer."""
        self._tokens_due: list[tuple[float, int, NamespaceLine]] = []
        self._crowded: dict[Host, None] = {}
        """Hosts at which lanes are blocked, and perhaps some at which none is any longer."""
        self._serial = count()
        self._max_lanes = _MAX_IDLE_LANES

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
        return sum(lane.breaker.state(monotonic) is not BreakerState.CLOSED for lane in list(self._lanes.values()))

    @property
    def _max_in_flight_per_lane(self) -> int:
        # Of one host, no namespace gets all: when it hangs for one of them, another still has a way in.
        return max(1, self._settings.max_in_flight_per_host * 3 // 4)

    def _begin_with(self, line: NamespaceLine, initial_window: int) -> None:
        line.initial_window = initial_window
        line.window.begin_with(max(initial_window, 4 * self._settings.initial_window))
        for lane in self._lanes.values():
            if lane.namespace is line:
                lane.window.begin_with(min(initial_window, self._max_in_flight_per_lane))
                self._let_lane_in(lane)

    # -- waiting ---------------------------------------------------------------------------------------------

    def accepts(self, key: LaneKey, monotonic: float) -> bool:
        """Whether another timer may wait in this lane. One that is not accepted stays in the store."""
        lane = self._lanes.get(key)
        line = self._namespaces.get(key[0])
        if lane is not None and len(lane.waiting) >= self._room_of(lane, monotonic):
            return False
        if line is None:
            return self._waiting < self._settings.max_buffered or self._busy_namespaces < self._settings.max_buffered
        return not self._is_full(line)

    def is_full(self, namespace: str) -> bool:
        """Whether no lane of a namespace accepts another timer. May be called from any thread: a guess, then."""
        line = self._namespaces.get(namespace)
        return line is not None and self._is_full(line)

    def _is_full(self, line: NamespaceLine) -> bool:
        if line.waiting >= self._turns_ahead(line):
            return True
        if self._waiting < self._settings.max_buffered:
            return False
        # The buffer is full: each namespace may still have its share, however much the others hold.
        busy = self._busy_namespaces + (line.waiting == 0)
        return line.waiting >= self._settings.max_buffered // max(1, busy)

    def wants(self, key: LaneKey, monotonic: float) -> bool:
        """Whether this lane has become so short that it pays to read more for it."""
        lane = self._lanes.get(key)
        if lane is not None and len(lane.waiting) > self._room_of(lane, monotonic) // 2:
            return False
        line = self._namespaces.get(key[0])
        if line is not None and line.waiting > self._turns_ahead(line) // 2:
            return False  # or a page would be read for every turn
        return self.accepts(key, monotonic)

    def add(self, key: LaneKey, shard: OwnedShard, timer: Timer, monotonic: float) -> None:
        """``timer`` was read at ``monotonic`` and waits for its turn. Ask ``accepts`` first."""
        lane = self._lane(key, monotonic)
        line = lane.namespace
        lane.waiting.append((shard, timer, monotonic))
        self._busy_namespaces += line.waiting == 0
        line.waiting += 1
        self._waiting += 1
        self._let_lane_in(lane)

    def remove(self, is_unwanted: Callable[[Waiting], bool]) -> Iterator[Waiting]:
        """Take out and yield all that are unwanted."""
        for lane in list(self._lanes.values()):
            if lane.waiting:
                yield from self._remove(lane, is_unwanted)

    def drop_stale(self, monotonic: float) -> None:
        """Give up what has waited too long in lanes that let nothing through."""
        for lane in self._lanes.values():
            if lane.waiting:
                self._drop_stale(lane, monotonic)

    def clear(self, key: LaneKey) -> Iterator[Waiting]:
        """Take out and yield all that wait in one lane."""
        return self._remove(self._lanes[key], lambda waiting: True)  # noqa: ARG005

    # -- starting and ending ---------------------------------------------------------------------------------

    def take(self, monotonic: float) -> tuple[LaneKey, OwnedShard, Timer] | None:
        """The next timer that may be started now, which counts as under way from then on. None when there is none."""
        while self._round or self._let_in_through_idle_hosts():
            line = self._round.popleft()
            lane = self._next_lane(line, monotonic)
            if lane is None:
                line.is_in_round = False
                continue
            if line.bucket is not None:
                line.bucket.take()
            shard, timer, _ = lane.waiting.popleft()
            self._count_out(lane)
            lane.in_flight += 1
            lane.host.in_flight += 1
            line.in_flight += 1
            if lane.waiting:
                line.round.append(lane)
            else:
                lane.is_in_round = False
            self._round.append(line)
            return lane.key, shard, timer
        return None

    def slow_down(self, key: LaneKey) -> None:
        """An attempt has been under way for long."""
        self._lanes[key].slow += 1

    def end(
        self, key: LaneKey, ending: Ending, *, started: float, is_slow: bool, monotonic: float
    ) -> BreakerState | None:
        """An attempt has ended. Says that the breaker of its host has opened or closed through this."""
        lane = self._lanes[key]
        lane.in_flight -= 1
        lane.slow -= is_slow
        lane.host.in_flight -= 1
        lane.namespace.in_flight -= 1
        changed = None
        if ending is Ending.ANSWERED:
            lane.window.answered(self._max_in_flight_per_lane)
            lane.namespace.window.answered(self._settings.max_in_flight_per_namespace)
            if lane.breaker.succeeded():
                changed = BreakerState.CLOSED
        elif ending is not Ending.NEUTRAL:
            lane.window.failed()
            is_answered = ending is Ending.UNAVAILABLE
            if lane.breaker.failed(
                started=started, is_answered=is_answered, monotonic=monotonic, random=self._random()
            ):
                changed = BreakerState.OPEN
        if lane.host.blocked and lane.waiting and not lane.is_in_round:
            lane.host.blocked[lane] = None  # behind those that wait already: its own end is no privilege
            self._crowded[lane.host] = None
        self._let_lane_in(lane)
        self._let_in(lane.namespace)
        self._let_in_through_host(lane.host, monotonic)
        return changed

    def next_token_at(self, monotonic: float) -> float | None:
        """When a namespace that only waits for a token may go on; lets in those for which it is time."""
        while self._tokens_due and self._tokens_due[0][0] <= monotonic:
            line = heapq.heappop(self._tokens_due)[2]
            line.waits_for_token = False
            self._let_in(line)
        return self._tokens_due[0][0] if self._tokens_due else None

    # -- inside ----------------------------------------------------------------------------------------------

    def _room_of(self, lane: Lane, monotonic: float) -> int:
        """How many may wait in a lane: plenty while its host answers, little while it hangs, none while it is out."""
        state = lane.breaker.state(monotonic)
        if state is BreakerState.OPEN:
            return 0
        if state is BreakerState.HALF_OPEN:
            return 1 - min(lane.in_flight, 1)
        return lane.window.size if lane.slow else self._settings.max_buffered

    def _turns_ahead(self, line: NamespaceLine) -> int:
        """As many as may have their turn before they have waited too long. What is beyond would be read again."""
        ahead_seconds = self._settings.max_wait_seconds / 2
        turns = line.max_in_flight * ceil(ahead_seconds / _QUICK_SECONDS)
        return turns if line.bucket is None else min(turns, max(1, ceil(line.bucket.per_second * ahead_seconds)))

    def _next_lane(self, line: NamespaceLine, monotonic: float) -> Lane | None:
        """The namespace's next lane that may start, out of its round; None when there is none for now."""
        if not line.round or not line.has_room():
            return None
        if line.bucket is not None and (wait := line.bucket.wait_seconds(monotonic)) > 0:
            if not line.waits_for_token:
                line.waits_for_token = True
                heapq.heappush(self._tokens_due, (monotonic + wait, next(self._serial), line))
            return None
        while line.round:
            lane = line.round.popleft()
            self._drop_stale(lane, monotonic)
            if lane.waiting and lane.may_start(monotonic):
                if lane.host.in_flight < self._settings.max_in_flight_per_host:
                    return lane
                lane.host.blocked[lane] = None
                self._crowded[lane.host] = None
            lane.is_in_round = False
        return None

    def _drop_stale(self, lane: Lane, monotonic: float) -> None:
        oldest = monotonic - self._settings.max_wait_seconds
        while lane.waiting and lane.waiting[0][2] < oldest:
            shard, timer, _ = lane.waiting.popleft()
            self._count_out(lane)
            self._on_stale(lane.key, shard, timer)

    def _let_lane_in(self, lane: Lane) -> None:
        if lane.waiting and not lane.is_in_round and lane not in lane.host.blocked:
            lane.is_in_round = True
            lane.namespace.round.append(lane)
            self._let_in(lane.namespace)

    def _let_in(self, line: NamespaceLine) -> None:
        if line.round and not line.is_in_round:
            line.is_in_round = True
            self._round.append(line)

    def _let_in_through_host(self, host: Host, monotonic: float) -> None:
        """There is room for one more: for the first that can use it."""
        while host.blocked and host.in_flight < self._settings.max_in_flight_per_host:
            lane = next(iter(host.blocked))
            del host.blocked[lane]
            self._let_lane_in(lane)
            if lane.is_in_round and lane.may_start(monotonic):
                break

    def _let_in_through_idle_hosts(self) -> bool:
        """Nobody in the round may start: those that were let in have no use for their hosts' room, so others may.

        Without this a host's room could be kept for a lane whose namespace must not start, and no end would wake the
        next. Every turn takes a lane out of those that are blocked. True when a namespace is in the round again.
        """
        for host in list(self._crowded):
            while host.blocked and host.in_flight < self._settings.max_in_flight_per_host:
                lane = next(iter(host.blocked))
                del host.blocked[lane]
                self._let_lane_in(lane)
                if self._round:
                    return True
            if not host.blocked:
                del self._crowded[host]
        return False

    def _remove(self, lane: Lane, is_unwanted: Callable[[Waiting], bool]) -> Iterator[Waiting]:
        kept: deque[Waiting] = deque()
        waiting, lane.waiting = lane.waiting, kept
        for each in waiting:
            if is_unwanted(each):
                self._count_out(lane)
                yield each
            else:
                kept.append(each)

    def _count_out(self, lane: Lane) -> None:
        self._waiting -= 1
        lane.namespace.waiting -= 1
        self._busy_namespaces -= lane.namespace.waiting == 0

    def _lane(self, key: LaneKey, monotonic: float) -> Lane:
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= self._max_lanes:
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
            window = ConcurrencyWindow(min(line.initial_window, self._max_in_flight_per_lane))
            lane = self._lanes[key] = Lane(key, line, host, window, breaker)
        return lane

    def _namespace(self, name: str) -> NamespaceLine:
        line = self._namespaces.get(name)
        if line is None:
            settings = self._settings
            window = ConcurrencyWindow(4 * settings.initial_window)
            line = self._namespaces[name] = NamespaceLine(
                name, window, settings.max_in_flight_per_namespace, settings.initial_window
            )
        return line

    def _forget_idle(self, monotonic: float) -> None:
        self._lanes = {key: lane for key, lane in self._lanes.items() if not lane.is_idle(monotonic)}
        self._max_lanes = max(_MAX_IDLE_LANES, 2 * len(self._lanes))
        used_hosts = {key[1] for key in self._lanes}
        used_namespaces = {key[0] for key in self._lanes}
        self._hosts = {name: host for name, host in self._hosts.items() if name in used_hosts}
        self._namespaces = {name: line for name, line in self._namespaces.items() if name in used_namespaces}
