"""New ids: timers, firings, requests and workers."""

from __future__ import annotations

import json
import os
import socket
import time

from duetime import __version__
from duetime.domain.ids import uuid7_of

_TICKS_PER_MS = 4096
_NANOSECONDS_PER_MS = 1_000_000
_RANDOM_BYTES = 4096

_last_tick = 0
_random_bits: list[int] = []
"""Asked for together: the system's random source takes longer than the rest of an id, and lets other threads run."""


def new_id() -> str:
    """A UUID version 7: unique, and sorted by the time it was made.

    The 12 bits behind the millisecond are the part of it that has passed (RFC 9562, section 6.2, method 3).
    """
    global _last_tick
    _last_tick = tick = max(time.time_ns() * _TICKS_PER_MS // _NANOSECONDS_PER_MS, _last_tick + 1)
    return uuid7_of(*divmod(tick, _TICKS_PER_MS), _random_62_bits())


def _random_62_bits() -> int:
    while True:
        try:
            return _random_bits.pop()
        except IndexError:  # of other threads, too
            pool = memoryview(os.urandom(_RANDOM_BYTES)).cast("Q")
            _random_bits.extend([each >> 2 for each in pool])


def new_worker_id() -> str:
    """Unique for ever, and telling which host and process it was: ``host:pid:random``."""
    return f"{socket.gethostname()}:{os.getpid()}:{new_id()[-12:]}"


def worker_metadata() -> str:
    """Describe this process, as JSON, for people who look at the owner of a shard."""
    facts = {"processId": os.getpid(), "serviceVersion": __version__, "host": socket.gethostname()}
    return json.dumps(facts, separators=(",", ":"))
