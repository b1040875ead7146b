"""The metrics of a poller: names, meaning, and how each is read from a snapshot of what it has counted.

One catalogue for all exporters: ``local.metrics`` makes Prometheus's text of it, ``runtime.emf`` CloudWatch's.
docs/metrics.md explains every one of them; a test compares the names.

No metric has a label whose values come from clients: no timer id, URL, host, namespace or tenant. What a metric
costs, here and in whatever stores it, is known before the first timer is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from duetime.calls.dispatch import OutboxStats
from duetime.engine.stats import EngineSnapshot, HistogramSnapshot

PREFIX = "duetime_"


@dataclass(frozen=True, slots=True)
class Number:
    """A counter or a gauge. ``read`` gives a value for each value of ``label``; without a label the key is empty.

    ``cloudwatch`` is its name there; None: it is not worth a metric of its own, which CloudWatch charges for, and is
    written beside the metrics, where queries of the log find it.
    """

    name: str
    help: str
    read: Callable[[EngineSnapshot], Mapping[str, int]]
    label: str = ""
    cloudwatch: Callable[[str], str] | None = None


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of seconds."""

    name: str
    help: str
    read: Callable[[EngineSnapshot], HistogramSnapshot]
    cloudwatch: str


_OUTCOMES = ("fired", "rescheduled", "retried", "failed", "superseded", "lease_lost")


def _counter(name: str, counter: str, help_: str, cloudwatch: str | None = None) -> Number:
    alias = None if cloudwatch is None else lambda _: cloudwatch
    return Number(name, help_, lambda snapshot: {"": snapshot.counters[counter]}, cloudwatch=alias)


def _gauge(name: str, help_: str, cloudwatch: str | None = None) -> Number:
    alias = None if cloudwatch is None else lambda _: cloudwatch
    return Number(name, help_, lambda snapshot: {"": snapshot.gauges[name]}, cloudwatch=alias)


def _outbox(name: str, values: Callable[[EngineSnapshot], Mapping[str, int]], help_: str) -> Number:
    return Number(name, help_, lambda snapshot: {"": values(snapshot).get(name, 0)})


def camel_case(name: str) -> str:
    """``lease_lost`` -> ``LeaseLost``."""
    return "".join(part.capitalize() for part in name.split("_"))


COUNTERS = (
    _counter("attempts", "attempts_started", "Callbacks begun.", "Attempts"),
    Number(
        "answers",
        "Callbacks that ended, by class of the HTTP status; none: no answer came.",
        lambda snapshot: snapshot.answers_by,
        label="status",
    ),
    Number(
        "outcomes",
        "What attempts led to, as recorded.",
        lambda snapshot: {name: snapshot.counters[name] for name in _OUTCOMES},
        label="outcome",
        cloudwatch=camel_case,
    ),
    Number("retries", "Outcomes that are retries, by reason.", lambda snapshot: snapshot.retried_by, label="reason"),
    Number("dead_letters", "Timers that failed, by reason.", lambda snapshot: snapshot.failed_by, label="reason"),
    Number(
        "service_calls", "Service calls that ended, by status.", lambda snapshot: snapshot.calls_by, label="status"
    ),
    _counter(
        "executions_timed_out",
        "executions_timed_out",
        "Unreported executions of service calls that the watchdog ended.",
        "ExecutionsTimedOut",
    ),
    _counter("parkings", "parked", "Callbacks that were parked because they took long.", "Parkings"),
    _counter(
        "deferrals", "deferred", "Due timers left in the store since there was no room for their host, by page."
    ),
    _counter(
        "breaker_openings", "breakers_opened", "Hosts whose callbacks were stopped for a while.", "BreakerOpenings"
    ),
    _counter("quarantined", "quarantined", "Stored timers that could not be read and were set aside.", "Quarantined"),
    _counter(
        "quarantine_errors",
        "quarantine_errors",
        "Times that a stored timer that could not be read could not be set aside either.",
    ),
    _counter("events_published", "events_published", "Events of failed timers that were published."),
    _counter(
        "events_undelivered",
        "events_undelivered",
        "Events of failed timers that could only be logged.",
        "EventsUndelivered",
    ),
    _counter("polls", "polls", "Pages of due timers asked for."),
    _counter("poll_errors", "poll_errors", "Polls that the store did not answer.", "PollErrors"),
    _counter("timers_read", "timers_read", "Due timers read."),
    _counter("record_batches", "record_batches", "Batches of outcomes written."),
    _counter("record_errors", "record_errors", "Batches of outcomes that the store did not take.", "RecordErrors"),
    _counter(
        "record_refused", "record_refused", "Outcomes and steps that the store refuses for good.", "RecordRefused"
    ),
    _counter("shard_claims", "claims", "Shards claimed."),
    _counter("leases_lost", "leases_lost", "Shards that another owner claimed while they were held.", "LeasesLost"),
)
GAUGES = (
    _gauge("shards_owned", "Shards that the poller owns.", "ShardsOwned"),
    _gauge("in_flight", "Callbacks in flight, parked ones included.", "InFlight"),
    _gauge("parked", "Parked callbacks in flight."),
    _gauge("waiting", "Due timers read and not yet started.", "Waiting"),
    _gauge("slow", "Slow callbacks in flight, which have a limit of their own."),
    _gauge("breakers_open", "Hosts that are left alone or probed.", "BreakersOpen"),
    _gauge("backlogged_shards", "Shards with more due than may be started.", "BackloggedShards"),
    _gauge("unrecorded", "Outcomes not yet recorded."),
    _gauge("unreadable_namespaces", "Namespaces that cannot be read: their timers wait.", "UnreadableNamespaces"),
    _gauge("orphaned_shards", "Shards that nobody has held for longer than a lease."),
    _gauge("shards_given_back", "Shards that the poller gave back since it cannot read them."),
    _gauge(
        "clock_offset_milliseconds",
        "How far the machine's clock is ahead of the store's, by which timers fire.",
    ),
)
# Of the dispatcher that shares a process with the poller; 0 where there is none.
OUTBOX_COUNTERS = tuple(
    _outbox(name, lambda snapshot: snapshot.counters, help_)
    for name, help_ in (
        ("outbox_published", "Events of service calls that every publisher took."),
        ("outbox_failures", "Tries of a call's next event that a publisher did not take."),
        ("outbox_store_errors", "Turns of the dispatcher that the store did not answer."),
        ("outbox_pruned", "Published events and expired calls that were removed."),
    )
)
OUTBOX_GAUGES = tuple(
    _outbox(name, lambda snapshot: snapshot.gauges, help_)
    for name, help_ in (
        ("outbox_active", "1 in the process that publishes events of service calls."),
        ("outbox_backlog", "Events of service calls that wait, as far as the dispatcher looked."),
        ("outbox_oldest_seconds", "Age of the oldest of them."),
    )
)
DISTRIBUTIONS = (
    Distribution(
        "first_attempt_lag_seconds",
        "From when a timer could have fired until its first attempt began.",
        lambda snapshot: snapshot.lag,
        "Lag",
    ),
    Distribution(
        "callback_duration_seconds",
        "From the start of a callback until its answer was complete or it was given up.",
        lambda snapshot: snapshot.latency,
        "CallbackDuration",
    ),
)


def with_outbox(snapshot: EngineSnapshot, outbox: OutboxStats | None) -> EngineSnapshot:
    """Add the counters of the outbox to a snapshot; None: this process has no outbox."""
    if outbox is None:
        return snapshot
    return replace(
        snapshot,
        counters={**snapshot.counters, **outbox.counters()},
        gauges={**snapshot.gauges, **outbox.gauges()},
    )


@cache
def _adapter() -> TypeAdapter[EngineSnapshot]:
    return TypeAdapter(EngineSnapshot)


def write_snapshot(snapshot: EngineSnapshot) -> bytes:
    """``snapshot`` as one line of JSON, without its end."""
    return _adapter().dump_json(snapshot)


def read_snapshot(line: bytes) -> EngineSnapshot:
    """Parse what ``write_snapshot`` wrote. Raises ``ValueError`` for anything else."""
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        raise ValueError(f"not a snapshot: {error.error_count()} faults") from None
