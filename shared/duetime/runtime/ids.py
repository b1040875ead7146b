"""New ids: timers, firings, requests and workers."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Final

from duetime import __version__
from duetime.domain.ids import UUID7_RANDOM_BITS, uuid7_text

_RANDOM_BYTES: Final = 10
_DRAWN_AT_ONCE: Final = 256
_MOST_RANDOM: Final = (1 << UUID7_RANDOM_BITS) - 1
_LARGEST_STEP_BITS: Final = 32


class _Uuid7s:
    """UUIDs of version 7, each greater than the one before: within a millisecond the random bits are counted on by a
    random step (RFC 9562, section 6.2, method 2).

    Random bytes are drawn for many ids at once: each draw lets other threads run, and waits until they let go.
    """

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._drawn: list[bytes] = []
        self._last = 0
        os.register_at_fork(after_in_child=self._drawn.clear)

    def make(self) -> str:
        with self._turn:
            drawn = self._drawn or self._draw()
            random_bits = int.from_bytes(drawn.pop(), "big") & _MOST_RANDOM
            new = time.time_ns() // 1_000_000 << UUID7_RANDOM_BITS | random_bits
            if new <= self._last or new >> UUID7_RANDOM_BITS == self._last >> UUID7_RANDOM_BITS:
                new = self._last + 1 + (random_bits >> (UUID7_RANDOM_BITS - _LARGEST_STEP_BITS))
            self._last = new
        return uuid7_text(new >> UUID7_RANDOM_BITS, new & _MOST_RANDOM)

    def _draw(self) -> list[bytes]:
        drawn = os.urandom(_RANDOM_BYTES * _DRAWN_AT_ONCE)
        self._drawn += [drawn[at : at + _RANDOM_BYTES] for at in range(0, len(drawn), _RANDOM_BYTES)]
        return self._drawn


_uuid7s: Final = _Uuid7s()


def new_id() -> str:
    """A UUID version 7: unique, and sorted by the time it was made."""
    return _uuid7s.make()


def new_worker_id() -> str:
    """Unique for ever, and telling which host and process it was: ``host:pid:random``."""
    return f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}"


def worker_metadata() -> str:
    """Describe this process, as JSON, for people who look at the owner of a shard."""
    facts = {"processId": os.getpid(), "serviceVersion": __version__, "host": socket.gethostname()}
    return json.dumps(facts, separators=(",", ":"))
