"""How much memory payloads may take: those of timers that a poller has taken up, and of pages read at once."""

from __future__ import annotations

import sys

from duetime.domain.timers import Timer
from duetime.engine.keys import FiringKey, firing_key

_SMALL_BYTES = 4096
"""The number of timers bounds those, and most have no more: they are not counted."""


def payload_bytes(timer: Timer) -> int:
    """What the payload takes in memory; 0 for a small one."""
    payload = timer.content.payload_json
    if payload is None or len(payload) <= _SMALL_BYTES // 4:
        return 0
    size = sys.getsizeof(payload)  # up to four times its characters
    return size if size > _SMALL_BYTES else 0


class HeldPayloads:
    """The large payloads of timers that wait, are in flight or are not recorded. For the event loop's thread alone.

    Up to ``max_bytes`` every timer is accepted. Beyond that, each namespace may hold its share, and always one timer.
    All together hold at most twice ``max_bytes``.
    """

    def __init__(self, max_bytes: int = sys.maxsize) -> None:
        self._max_bytes = max_bytes
        self._held: dict[FiringKey, tuple[str, int]] = {}
        self._by_namespace: dict[str, int] = {}
        self.bytes = 0

    def accepts(self, timer: Timer) -> bool:
        """Whether it may be taken. One that is not stays in the store."""
        size = payload_bytes(timer)
        if size == 0 or self.bytes == 0 or self.bytes + size <= self._max_bytes:
            return True
        if self.bytes + size > 2 * self._max_bytes:
            return False
        own = self._by_namespace.get(timer.namespace, 0)
        return own == 0 or own + size <= self._share(own)

    def wants(self, namespace: str) -> bool:
        """Whether it pays to read timers of a namespace again that were not taken."""
        if self.bytes <= self._max_bytes // 2:
            return True
        own = self._by_namespace.get(namespace, 0)
        return own <= self._share(own) // 2 and self.bytes <= self._max_bytes * 3 // 2

    def add(self, timer: Timer) -> None:
        """The timer has been taken."""
        self.hold(firing_key(timer), timer.namespace, payload_bytes(timer))

    def hold(self, key: FiringKey, namespace: str, size: int) -> None:
        """What an attempt of ``namespace`` takes from now on, in the place of what it took before."""
        self.remove(key)
        if size > _SMALL_BYTES:
            self._held[key] = (namespace, size)
            self._by_namespace[namespace] = self._by_namespace.get(namespace, 0) + size
            self.bytes += size

    def remove(self, key: FiringKey) -> None:
        """The attempt is settled. Nothing happens if it was not counted."""
        namespace, size = self._held.pop(key, ("", 0))
        if size:
            self.bytes -= size
            self._by_namespace[namespace] -= size
            if not self._by_namespace[namespace]:
                del self._by_namespace[namespace]

    def _share(self, own: int) -> int:
        return self._max_bytes // (len(self._by_namespace) + (own == 0))
