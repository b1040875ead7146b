"""A bounded waiting line that is fair between namespaces."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator

from duetime.domain.timers import Timer
from duetime.engine.owned import OwnedShard

Waiting = tuple[OwnedShard, Timer]


class FairQueue:
    """Timers wait in the order of their arrival within a namespace; namespaces take turns.

    Adding and taking cost O(1). The bound is kept by the caller, who reads no more than there is room for.
    """

    def __init__(self) -> None:
        self._lanes: dict[str, deque[Waiting]] = {}
        self._turns: deque[str] = deque()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, shard: OwnedShard, timer: Timer) -> None:
        lane = self._lanes.get(timer.namespace)
        if lane is None:
            lane = self._lanes[timer.namespace] = deque()
            self._turns.append(timer.namespace)
        lane.append((shard, timer))
        self._length += 1

    def take(self) -> Waiting:
        """The next one. ``IndexError`` when empty."""
        namespace = self._turns.popleft()
        lane = self._lanes[namespace]
        waiting = lane.popleft()
        self._length -= 1
        if lane:
            self._turns.append(namespace)
        else:
            del self._lanes[namespace]
        return waiting

    def remove(self, is_unwanted: Callable[[Waiting], bool]) -> Iterator[Waiting]:
        """Take out and yield all that are unwanted."""
        for namespace in list(self._turns):
            lane = self._lanes[namespace]
            kept: deque[Waiting] = deque()
            for waiting in lane:
                if is_unwanted(waiting):
                    self._length -= 1
                    yield waiting
                else:
                    kept.append(waiting)
            if kept:
                self._lanes[namespace] = kept
            else:
                del self._lanes[namespace]
                self._turns.remove(namespace)
