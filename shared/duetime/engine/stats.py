"""What a poller counts. Plain numbers, written by the event loop, read by anyone as a snapshot.

Nothing here knows how numbers are exported (``runtime.metrics`` does), and nothing is kept for a timer, a URL or a
host: what is counted has a size that is known before the first timer fires.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields

from duetime.domain.occurrences import OccurrenceRecord, OccurrenceState
from duetime.domain.outcomes import Outcome, RecordStatus
from duetime.domain.service_calls import CallStatus
from duetime.domain.timers import FailureReason, TimerState

LAG_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Seconds. Close together around the promise of one second, and far enough to tell a delay from an outage."""
LATENCY_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Seconds. A callback may take up to 900."""


class Histogram:
    """How many observations fell into each bucket. One search and one addition for each."""

    __slots__ = ("_bounds", "_counts", "_max", "_sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        """``bounds`` are the largest values of all buckets but the last, ascending."""
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0
        self._max = 0.0

    def observe(self, value: float) -> None:
        """Count ``value``; a negative one (clocks differ) counts as 0."""
        if value > self._max:
            self._max = value
        elif value < 0:
            value = 0.0
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    def snapshot(self) -> HistogramSnapshot:
        return HistogramSnapshot(self._bounds, tuple(self._counts), self._sum, self._max)


@dataclass(frozen=True, slots=True)
class HistogramSnapshot:
    """``counts[i]`` observations were at most ``bounds[i]`` and above the bound before; the last were above all."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float
    max: float


def _no_reasons() -> dict[str, int]:
    return dict.fromkeys(FailureReason, 0)


def _no_endings() -> dict[str, int]:
    return dict.fromkeys((CallStatus.SUCCEEDED, CallStatus.FAILED), 0)


@dataclass(slots=True)
class NamespaceStats:
    """Of a namespace that the operator names (``EngineSettings.metrics_namespaces``)."""

    occurrences_missed: int = 0
    occurrences_skipped: int = 0
    lag: Histogram = field(default_factory=lambda: Histogram(LAG_BOUNDS))


@dataclass(slots=True)
class EngineStats:
    """Integers only grow. ``retried_by`` and ``failed_by`` count the same as ``retried`` and ``failed``, by reason.
    ``calls_by`` counts service calls that ended here, by status, ``executions_timed_out`` what the watchdog
    ended.

    ``responses_by[n]`` counts the responses with a status of n hundred and something, ``responses_by[0]`` attempts
    without a response. ``lag`` is of first attempts only: a retry is late on purpose.
    """

    polls: int = 0
    poll_errors: int = 0
    timers_read: int = 0
    attempts_started: int = 0
    responses: int = 0
    fired: int = 0
    retried: int = 0
    rescheduled: int = 0
    failed: int = 0
    parked: int = 0
    waiting: int = 0
    superseded: int = 0
    lease_lost: int = 0
    record_batches: int = 0
    record_errors: int = 0
    record_refused: int = 0
    quarantined: int = 0
    quarantine_errors: int = 0
    claims: int = 0
    leases_lost: int = 0
    events_published: int = 0
    events_undelivered: int = 0
    deferred: int = 0
    breakers_opened: int = 0
    executions_timed_out: int = 0
    occurrences_missed: int = 0
    occurrences_skipped: int = 0
    retried_by: dict[str, int] = field(default_factory=_no_reasons)
    failed_by: dict[str, int] = field(default_factory=_no_reasons)
    calls_by: dict[str, int] = field(default_factory=_no_endings)
    responses_by: list[int] = field(default_factory=lambda: [0] * 6)
    lag: Histogram = field(default_factory=lambda: Histogram(LAG_BOUNDS))
    latency: Histogram = field(default_factory=lambda: Histogram(LATENCY_BOUNDS))
    namespaces: dict[str, NamespaceStats] = field(default_factory=dict)

    def observe_lag(self, namespace: str, seconds: float) -> None:
        self.lag.observe(seconds)
        if self.namespaces and (of_namespace := self.namespaces.get(namespace)) is not None:
            of_namespace.lag.observe(seconds)

    def count_response(self, status: int | None, duration_seconds: float) -> None:
        """Count a response. ``status`` None: none came."""
        self.responses += 1
        self.responses_by[0 if status is None else min(status // 100, 5)] += 1
        self.latency.observe(duration_seconds)

    def count_outcome(self, outcome: Outcome, status: RecordStatus | None) -> None:
        """Count ``outcome``. ``status``: what came of recording it; None when that was given up."""
        if status is RecordStatus.SUPERSEDED:
            self.superseded += 1
        elif status is RecordStatus.LEASE_LOST:
            self.lease_lost += 1
        elif status is RecordStatus.APPLIED:
            if outcome.state is TimerState.WAITING:
                self.waiting += 1
            elif outcome.expires_at is None:
                if outcome.failure is None:
                    self.rescheduled += 1
                else:
                    self.retried += 1
                    self.retried_by[outcome.failure.reason] += 1
            elif outcome.failure is None:
                self.fired += 1
            else:
                self.failed += 1
                self.failed_by[outcome.failure.reason] += 1

    def count_occurrences(self, namespace: str, lines: Iterable[OccurrenceRecord]) -> None:
        """Count those of schedules that nothing was sent for."""
        of_namespace = self.namespaces.get(namespace)
        for each in (self,) if of_namespace is None else (self, of_namespace):
            for line in lines:
                if line.state is OccurrenceState.MISSED:
                    each.occurrences_missed += line.count
                elif line.state is OccurrenceState.SKIPPED:
                    each.occurrences_skipped += 1

    def count_ended(self, status: CallStatus | None) -> None:
        """Count an end. ``status``: of a service call that ended; None when none did."""
        if status is not None:
            self.calls_by[status] += 1

    def counters(self) -> dict[str, int]:
        """Return the integers, by name."""
        return {name: getattr(self, name) for name in COUNTERS}


COUNTERS = tuple(spec.name for spec in fields(EngineStats) if spec.type == "int")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceSnapshot:
    occurrences_missed: int
    occurrences_skipped: int
    lag: HistogramSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSnapshot:
    """What a poller has counted since it was made (all but ``gauges``), and what it has now (``gauges``).

    Keys: of ``retried_by`` and ``failed_by`` failure reasons, of ``responses_by`` ``none``, ``1xx``, ..., of
    ``calls_by`` the statuses in which service calls end.
    """

    counters: Mapping[str, int]
    gauges: Mapping[str, int]
    retried_by: Mapping[str, int]
    failed_by: Mapping[str, int]
    calls_by: Mapping[str, int]
    responses_by: Mapping[str, int]
    lag: HistogramSnapshot
    latency: HistogramSnapshot
    namespaces: Mapping[str, NamespaceSnapshot]


def snapshot_of(stats: EngineStats, gauges: Mapping[str, int]) -> EngineSnapshot:
    """Copy the counters; safe from any thread while the event loop counts on."""
    classes = ("none", *(f"{hundreds}xx" for hundreds in range(1, 6)))
    return EngineSnapshot(
        counters=stats.counters(),
        gauges=dict(gauges),
        retried_by={str(reason): count for reason, count in stats.retried_by.items()},
        failed_by={str(reason): count for reason, count in stats.failed_by.items()},
        calls_by={str(status): count for status, count in stats.calls_by.items()},
        responses_by=dict(zip(classes, tuple(stats.responses_by), strict=True)),
        lag=stats.lag.snapshot(),
        latency=stats.latency.snapshot(),
        namespaces={
            name: NamespaceSnapshot(
                occurrences_missed=each.occurrences_missed,
                occurrences_skipped=each.occurrences_skipped,
                lag=each.lag.snapshot(),
            )
            for name, each in stats.namespaces.items()
        },
    )
