"""What the stack of template.yaml is charged for: with its pollers on Lambda, or with workers in their place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil

from duetime.cli.cost import counts
from duetime.cli.cost.bill import Charge, Charges
from duetime.cli.cost.counts import Polling
from duetime.cli.cost.workload import GB, HOURS, MILLION, SECONDS, Workload

_TICKS = counts.TICKS_PER_MINUTE * HOURS * 60
_UTILISATION = 0.7
"""Of provisioned capacity and of processors."""
TARGETS = {
    "eventbridge": ("busEvents", 64),
    "lambda": ("lambdaRequests", 256),
    "sns": ("snsPublishes", 64),
    "sqs": ("sqsRequests", 64),
    "step-functions": ("stateTransitions", 256),
}
"""The price of a message, and the kilobytes that are charged as one. Of an execution it is the first step."""
_VOLUMES = (0, *(step * 10**exponent for exponent in range(3, 11) for step in (1, 2, 5)))
"""Timers a month at which workers are compared with Lambda."""


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that runs ``duetime worker``: the part of a processor that it has all the time, and its charges.

    ``hourly`` and ``monthly`` are quantities by price.
    """

    name: str
    cores: float
    hourly: dict[str, float]
    monthly: dict[str, float]


HOSTS = (
    Host("Fargate task", 0.25, {"fargateCpu": 0.25, "fargateMemory": 0.5, "publicAddresses": 1}, {}),
    # It has two processors, and may use a tenth of each all the time.
    Host("t4g.micro", 0.2, {"instances": 1, "publicAddresses": 1}, {"volumes": 8}),
)


def cores(workload: Workload) -> float:
    """Return how many processors it takes to poll and fire, with room to spare."""
    per_second = workload.timers_per_month / workload.active_seconds
    busy = per_second * workload.cpu_microseconds / MILLION + workload.shards * counts.IDLE_CORES_PER_SHARD
    return busy / _UTILISATION


def lambda_pollers(workload: Workload) -> int:
    """Return how many pollers run on Lambda."""
    each = workload.poller_memory_mb / counts.MB_OF_A_LAMBDA_CORE
    return max(ceil(workload.shards / counts.SHARDS_PER_POLLER), ceil(cores(workload) / each))


def stack(workload: Workload, host: Host | None = None) -> Charges:
    """Yield the charges. ``host``: workers there poll, and no Lambda function."""
    yield from _api(workload)
    if host is None:
        yield from _lambda_pollers(workload)
        yield from _units(workload, counts.ON_LAMBDA, lambda_pollers(workload), workload.awake_seconds)
    else:
        number = max(1, ceil(cores(workload) / host.cores))
        yield from (Charge("worker", price, number * each * HOURS) for price, each in host.hourly.items())
        yield from (Charge("worker", price, number * each) for price, each in host.monthly.items())
        yield from _units(workload, counts.WORKER, number, SECONDS)
    if workload.target is not None:
        price, kilobytes = TARGETS[workload.target]
        messages = workload.timers_per_month * workload.chunks(kilobytes, beside_bytes=counts.REQUEST_BYTES)
        yield Charge("target: messages", price, messages / MILLION)
    starts = counts.OUTBOX_STARTS_PER_MINUTE * HOURS * 60
    yield from _function("outbox", starts, starts * counts.OUTBOX_SECONDS, counts.OUTBOX_MEMORY_MB)
    yield Charge("outbox: read", "readUnits", starts * counts.OUTBOX_READS / MILLION)
    yield from _storage(workload)
    yield from _watching(workload, 0 if host else lambda_pollers(workload))


def cheaper_at(workload: Workload, host: Host, total: Callable[[Charges], float]) -> list[tuple[int, int | None]]:
    """Return at how many timers a month workers cost less than Lambda: from, to, in round numbers; None: no end."""
    found: list[tuple[int, int | None]] = []
    was_cheaper = False
    for volume, following in pairwise((*_VOLUMES, None)):
        at = replace(workload, timers_per_month=volume)
        is_cheaper = total(stack(at, host)) < total(stack(at))
        if is_cheaper:
            start = found.pop()[0] if was_cheaper else volume
            found.append((start, volume if following else None))
        was_cheaper = is_cheaper
    return found


def _function(name: str, requests: float, seconds: float, memory_mb: int) -> Charges:
    yield Charge(f"{name}: requests", "lambdaRequests", requests / MILLION)
    yield Charge(f"{name}: time", "lambdaDuration", seconds * memory_mb / 1024 / MILLION)


def _api(workload: Workload) -> Charges:
    requests = workload.requests
    body = workload.timers_per_request * (counts.REQUEST_BYTES + workload.payload_bytes)
    yield Charge(
        "HTTP API: creates", "httpApiRequests", requests * ceil(body / counts.HTTP_API_CHUNK_BYTES) / MILLION
    )
    seconds = requests * workload.api_milliseconds / 1000
    yield from _function("API", requests, seconds, workload.api_memory_mb)


def _lambda_pollers(workload: Workload) -> Charges:
    starts = lambda_pollers(workload) * workload.awake_seconds / counts.POLLER_LIFE_SECONDS
    seconds = _TICKS * counts.TICK_SECONDS + starts * (counts.POLLER_LIFE_SECONDS + counts.HAND_OVER_SECONDS)
    yield from _function("poller", _TICKS + starts, seconds, workload.poller_memory_mb)
    reads = _TICKS * (counts.TICK_READS + workload.shards * counts.TICK_READS_PER_SHARD)
    if workload.may_sleep:
        reads += min(workload.requests, workload.active_seconds / counts.TRUST_SECONDS)
    yield Charge("watchdog and sleep: read", "readUnits", reads / MILLION)


def _units(workload: Workload, polling: Polling, pollers: int, seconds: float) -> Charges:
    """``seconds``: for which pollers run."""
    writes = workload.timers_per_month * sum(counts.write_units(workload.payload_bytes))
    reads = workload.timers_per_month * counts.read_units(workload.payload_bytes)
    reads += workload.requests * counts.API_READ_UNITS
    # One key, in one execution environment.
    reads += min(workload.requests, workload.active_seconds / counts.KEY_CACHED_SECONDS) * counts.KEY_READ_UNITS
    idle_writes = workload.shards * polling.writes_per_shard + pollers * polling.writes
    idle_reads = workload.shards * polling.reads_per_shard + pollers * polling.reads
    if workload.is_provisioned:
        # Capacity follows the load, by autoscaling, and has room to spare.
        pairs = (writes, idle_writes), (reads, idle_reads)
        written, read = ((units + idle * seconds) / 3600 for units, idle in pairs)
        yield Charge("timers and leases: written", "writeCapacity", written / _UTILISATION)
        yield Charge("timers and polls: read", "readCapacity", read / _UTILISATION)
    else:
        yield Charge("timers: written", "writeUnits", writes / MILLION)
        yield Charge("leases: written", "writeUnits", idle_writes * seconds / MILLION)
        yield Charge("timers: read", "readUnits", reads / MILLION)
        yield Charge("polls: read", "readUnits", idle_reads * seconds / MILLION)


def _storage(workload: Workload) -> Charges:
    pending, finished = counts.stored_bytes(workload.payload_bytes)
    each = pending * workload.pending_months + finished * workload.retention_months
    stored = workload.timers_per_month * each / GB
    yield Charge("tables: storage", "tableStorage", stored)
    yield Charge("tables: point-in-time recovery", "tableBackup", stored)


def _watching(workload: Workload, pollers: int) -> Charges:
    logged = workload.requests * counts.LOG_BYTES_PER_REQUEST
    if pollers:
        logged += pollers * counts.LOG_BYTES_PER_POLLER_SECOND * workload.awake_seconds
        logged += _TICKS * counts.LOG_BYTES_PER_TICK
    yield Charge("logs", "logs", logged / GB)
    active = workload.active_hours / HOURS if workload.timers_per_month else 0.0
    of_pollers = counts.METRICS_OF_IDLE_POLLERS + active * counts.METRICS_OF_FIRING if pollers else 0.0
    yield Charge("metrics", "metrics", counts.METRICS_OF_OUTBOX + of_pollers)
    yield Charge("alarms", "alarms", counts.ALARMED_METRICS)
    if workload.is_provisioned:
        yield Charge("alarms of autoscaling", "alarms", counts.AUTOSCALING_ALARMS)
    if workload.has_dashboard:
        yield Charge("dashboard", "dashboards", 1)
    yield Charge("key of signing secrets", "kmsKeys", 1)
