"""Defines the metrics of a poller: their names, meanings, and how each is read from a snapshot.

All exporters use this catalogue: ``local.metrics`` for Prometheus, ``runtime.emf`` for CloudWatch.
docs/metrics.md explains every one of them; a test compares the names.

No label has values that come from clients: no timer id, URL, host or tenant, and only namespaces that the operator
names (``METRICS_NAMESPACES``). So the number of series, and their cost, is known in advance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache

from pydantic import TypeAdapter, ValidationError

from duetime.calls.relay import OutboxStats
from duetime.engine.stats import EngineSnapshot, HistogramSnapshot

PREFIX = "duetime_"


@dataclass(frozen=True, slots=True)
class Number:
    """A counter or a gauge. ``read`` gives a value for each value of ``label``; without a label the key is empty.

    ``cloudwatch`` is its name there; None: it is no metric there, since CloudWatch charges for each, but a property
    of the log line. ``is_heartbeat``: its absence there means that nobody writes.
    """

    name: str
    help: str
    read: Callable[[EngineSnapshot], Mapping[str, int]]
    label: str = ""
    cloudwatch: Callable[[str], str] | None = None
    unit: str = "Count"
    is_heartbeat: bool = False


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram of seconds. ``read``, ``label`` and ``cloudwatch`` as of ``Number``."""

    name: str
    help: str
    read: Callable[[EngineSnapshot], Mapping[str, HistogramSnapshot]]
    cloudwatch: str | None = None
    label: str = ""


_OUTCOMES = ("fired", "rescheduled", "retried", "failed", "superseded", "lease_lost")


def _counter(name: str, counter: str, help_: str, cloudwatch: str | None = None) -> Number:
    alias = None if cloudwatch is None else lambda _: cloudwatch
    return Number(name, help_, lambda snapshot: {"": snapshot.counters[counter]}, cloudwatch=alias)


def _gauge(
    name: str, help_: str, cloudwatch: str | None = None, *, unit: str = "Count", is_heartbeat: bool = False
) -> Number:
    alias = None if cloudwatch is None else lambda _: cloudwatch
    return Number(
        name,
        help_,
        lambda snapshot: {"": snapshot.gauges[name]},
        cloudwatch=alias,
        unit=unit,
        is_heartbeat=is_heartbeat,
    )


def _outbox(name: str, values: Callable[[EngineSnapshot], Mapping[str, int]], help_: str) -> Number:
    return Number(name, help_, lambda snapshot: {"": values(snapshot).get(name, 0)})


def camel_case(name: str) -> str:
    """Write ``lease_lost`` as ``LeaseLost``."""
    return "".join(part.capitalize() for part in name.split("_"))


COUNTERS = (
    _counter("attempts", "attempts_started", "Callbacks started.", "Attempts"),
    Number(
        "responses",
        "Callbacks that ended, by class of the HTTP status; none: no response.",
        lambda snapshot: snapshot.responses_by,
        label="status",
    ),
    Number(
        "outcomes",
        "Recorded outcomes of attempts.",
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
    _counter(
        "occurrences_missed", "occurrences_missed", "Occurrences of schedules that were missed.", "OccurrencesMissed"
    ),
    _counter("occurrences_skipped", "occurrences_skipped", "Occurrences skipped while an earlier one went on."),
    Number(
        "namespace_occurrences_missed",
        "Missed occurrences by namespace, of those in METRICS_NAMESPACES.",
        lambda snapshot: {name: each.occurrences_missed for name, each in snapshot.namespaces.items()},
        label="namespace",
    ),
    Number(
        "namespace_occurrences_skipped",
        "Skipped occurrences by namespace, of those in METRICS_NAMESPACES.",
        lambda snapshot: {name: each.occurrences_skipped for name, each in snapshot.namespaces.items()},
        label="namespace",
    ),
    _counter("parkings", "parked", "Callbacks parked because they took long.", "Parkings"),
    _counter("waits", "waiting", "Attempts whose receivers took the work with a 202."),
    _counter(
        "deferrals", "deferred", "Due timers left in the store because there was no room for their host, by page."
    ),
    _counter("breaker_openings", "breakers_opened", "Circuit breakers that opened.", "BreakerOpenings"),
    _counter("quarantined", "quarantined", "Unreadable timers that were set aside.", "Quarantined"),
    _counter(
        "quarantine_errors",
        "quarantine_errors",
        "Failures to set an unreadable timer aside.",
    ),
    _counter("events_published", "events_published", "Published events of failed timers."),
    _counter(
        "events_undelivered",
        "events_undelivered",
        "Events of failed timers that could only be logged.",
        "EventsUndelivered",
    ),
    _counter("polls", "polls", "Pages of due timers read."),
    _counter("poll_errors", "poll_errors", "Polls that failed in the store.", "PollErrors"),
    _counter("timers_read", "timers_read", "Due timers read."),
    _counter("record_batches", "record_batches", "Batches of outcomes written."),
    _counter("record_errors", "record_errors", "Batches of outcomes that the store did not accept.", "RecordErrors"),
    _counter(
        "record_refused", "record_refused", "Outcomes and steps that the store refused for good.", "RecordRefused"
    ),
    _counter("shard_claims", "claims", "Shards claimed."),
    _counter("leases_lost", "leases_lost", "Shards that another poller claimed while they were held.", "LeasesLost"),
)
GAUGES = (
    _gauge("shards_owned", "Shards that the poller owns.", "ShardsOwned", is_heartbeat=True),
    _gauge("in_flight", "Callbacks in flight, parked ones included.", "InFlight"),
    _gauge("parked", "Parked callbacks in flight."),
    _gauge("waiting", "Due timers read and not yet started.", "Waiting"),
    _gauge("slow", "Slow callbacks in flight, which have a limit of their own."),
    _gauge("breakers_open", "Hosts whose circuit breaker is open or probing.", "BreakersOpen"),
    _gauge("backlogged_shards", "Shards with more due timers than may be started.", "BackloggedShards"),
    _gauge("unrecorded", "Outcomes not yet recorded."),
    _gauge("unreadable_namespaces", "Unreadable namespaces, whose timers wait.", "UnreadableNamespaces"),
    _gauge("orphaned_shards", "Shards without an owner for longer than a lease.", "OrphanedShards"),
    _gauge("shards_given_back", "Shards that the poller released because it cannot read them."),
    _gauge(
        "clock_offset_milliseconds",
        "How far the machine's clock is ahead of the store's.",
        "ClockOffset",
        unit="Milliseconds",
    ),
)
# Of the outbox relay in the same process; 0 if there is none.
OUTBOX_COUNTERS = tuple(
    _outbox(name, lambda snapshot: snapshot.counters, help_)
    for name, help_ in (
        ("outbox_published", "Events of service calls that every publisher accepted."),
        ("outbox_failures", "Tries of a call's next event that a publisher did not accept."),
        ("outbox_store_errors", "Turns of the outbox relay that failed in the store."),
        ("outbox_pruned", "Published events and expired calls removed."),
    )
)
OUTBOX_GAUGES = tuple(
    _outbox(name, lambda snapshot: snapshot.gauges, help_)
    for name, help_ in (
        ("outbox_active", "1 in the process that publishes events of service calls."),
        ("outbox_backlog", "Pending events of service calls, as far as the outbox relay looked."),
        ("outbox_oldest_seconds", "Age of the oldest pending event."),
    )
)
DISTRIBUTIONS = (
    Distribution(
        "first_attempt_lag_seconds",
        "Time from when a timer could have fired until its first attempt started.",
        lambda snapshot: {"": snapshot.lag},
        "Lag",
    ),
    Distribution(
        "callback_duration_seconds",
        "Time from the start of a callback until its response was complete or it was given up.",
        lambda snapshot: {"": snapshot.latency},
        "CallbackDuration",
    ),
    Distribution(
        "namespace_first_attempt_lag_seconds",
        "The same by namespace, of those in METRICS_NAMESPACES.",
        lambda snapshot: {name: each.lag for name, each in snapshot.namespaces.items()},
        label="namespace",
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
    """Encode ``snapshot`` as a line of JSON, without its end."""
    return _adapter().dump_json(snapshot)


def read_snapshot(line: bytes) -> EngineSnapshot:
    """Parse what ``write_snapshot`` wrote. Raises ``ValueError`` for anything else."""
    try:
        return _adapter().validate_json(line)
    except ValidationError as error:
        raise ValueError(f"not a snapshot: {error.error_count()} faults") from None
