"""What the code asks AWS for: requests, units and bytes, as counted. Tests hold them against the code.

What no emulator shows, Lambda's milliseconds above all, is an option of the command, or an assumption it prints.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Final

_KILOBYTE = 1024

# -- a timer -------------------------------------------------------------------------------------------------------

TIMER_BYTES: Final = 600
"""A usual timer's item without its payload."""
FIRED_BYTES: Final = 150
"""What its end adds to it: the attempt log, less the key of the due index."""
APART_ABOVE_BYTES: Final = 32 * _KILOBYTE
"""A longer payload is an item of its own, written in a transaction with its timer."""
APART_BYTES: Final = 150
"""Such an item without the payload."""
LONE_READS: Final = 2
"""Queries for a timer that is due alone, beyond those of an idle shard, when its callback takes no time. Timers that
are due together share them."""
API_READ_UNITS: Final = 1
"""Of a request that creates."""
KEY_READ_UNITS: Final = 0.5
"""Of an API key that is not cached."""
REQUEST_BYTES: Final = 700
"""A timer in a request that creates, without its payload; headers included. Assumed: clients differ."""
HTTP_API_CHUNK_BYTES: Final = 512 * _KILOBYTE
"""What the HTTP API meters as one request."""
MAX_BATCH_BYTES: Final = 4 * 1024 * 1024
MAX_BATCH_TIMERS: Final = 500


# -- the functions -------------------------------------------------------------------------------------------------

KEY_CACHED_SECONDS: Final = 5
SHARDS_PER_POLLER: Final = 64
TICKS_PER_MINUTE: Final = 1
"""Starts of the watchdog, which looks at all shards."""
AWAKE_SECONDS_OF_A_TIMER: Final = 430.0
"""For which pollers are awake for a timer that is due alone: from about 90 s before it, until they sleep again."""
TRUST_SECONDS: Final = 30.0
"""In which a function that creates timers reads once whether the pollers sleep."""
POLLER_LIFE_SECONDS: Final = 740.0
"""Until a poller hands over, at the latest."""
HAND_OVER_SECONDS: Final = 5.0
"""For which a poller and its successor both run, when callbacks end soon. Assumed."""
OUTBOX_STARTS_PER_MINUTE: Final = 1
OUTBOX_MEMORY_MB: Final = 512
OUTBOX_READS: Final = 12.0
"""Of a start that finds nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Polling:
    """Units per second while nothing is due and nobody sleeps: for each shard, and for each poller besides."""

    reads_per_shard: float
    writes_per_shard: float
    reads: float
    writes: float


WORKER: Final = Polling(reads_per_shard=1.25, writes_per_shard=0.283, reads=4.33, writes=0.333)
"""``duetime worker``: polls and renewals; besides, it looks for new shards, and tells the others that it lives."""
WAITING_READS_PER_SHARD: Final = 10.0
"""Of a poller while another one holds its shards."""
SHARD_MAP_READS: Final = 2.0
"""Of a look for new shards: each Lambda poller looks every second, and each tick looks once."""
TICK_READS: Final = SHARD_MAP_READS + 1.0
"""Of a tick; whether the pollers sleep is a unit."""
TICK_READS_PER_SHARD: Final = 1.0
"""Whether it is owned or, while the pollers sleep, whether anything is due."""
ON_LAMBDA: Final = Polling(
    reads_per_shard=WORKER.reads_per_shard + HAND_OVER_SECONDS / POLLER_LIFE_SECONDS * WAITING_READS_PER_SHARD,
    writes_per_shard=0.1,
    reads=SHARD_MAP_READS,
    writes=0.0,
)

# -- metrics, alarms, logs -----------------------------------------------------------------------------------------

METRICS_OF_IDLE_POLLERS: Final = 1
METRICS_OF_FIRING: Final = 5
METRICS_OF_OUTBOX: Final = 1
ALARMED_METRICS: Final = 21
AUTOSCALING_ALARMS: Final = 16
"""Four for reads and for writes, of the table and of its index. AWS makes them."""
LOG_BYTES_PER_POLLER_SECOND: Final = 35
"""The metrics of an idle poller, which are a line of its log."""

# -- not counted: assumptions, which the command prints ------------------------------------------------------------

LOG_BYTES_PER_TICK: Final = 1000
"""A metric, that it is done, and the three lines of Lambda."""
LOG_BYTES_PER_REQUEST: Final = 1200
"""Our line, the gateway's, and the three of Lambda."""
OUTBOX_SECONDS: Final = 0.2
TICK_SECONDS: Final = 0.15
IDLE_CORES_PER_SHARD: Final = 0.003
"""As `python -m benchmarks.dynamodb_capacity` prints it, on a small machine."""
MB_OF_A_LAMBDA_CORE: Final = 1769
_STORED_BYTES_PER_ITEM = 100


def timers_per_batch(payload_bytes: int) -> int:
    """Return how many timers a request can create."""
    return min(MAX_BATCH_TIMERS, MAX_BATCH_BYTES // (REQUEST_BYTES + payload_bytes))


def write_units(payload_bytes: int) -> tuple[int, int]:
    """Return the units of creating a timer and of its end. Item and index entry are charged alike, by started KB."""
    if payload_bytes > APART_ABOVE_BYTES:
        apart = 2 * ceil((APART_BYTES + payload_bytes) / _KILOBYTE)
        return apart + 3, apart + 3
    size = TIMER_BYTES + payload_bytes
    pending, finished = ceil(size / _KILOBYTE), ceil((size + FIRED_BYTES) / _KILOBYTE)
    return 2 * pending, pending + finished


def read_units(payload_bytes: int) -> float:
    """Return the units of reading a due timer, beyond those of idle polls."""
    return LONE_READS + (TIMER_BYTES + payload_bytes) / (4 * _KILOBYTE)


def stored_bytes(payload_bytes: int) -> tuple[int, int]:
    """Return the bytes that are billed for a pending timer, with its index entry, and for a finished one."""
    size = TIMER_BYTES + payload_bytes + _STORED_BYTES_PER_ITEM
    return 2 * size, size + FIRED_BYTES
