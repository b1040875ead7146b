"""Snapshots of pollers that never ran, and Prometheus's text as values."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client.parser import text_string_to_metric_families

from duetime.domain.timers import FailureReason
from duetime.engine.stats import EngineSnapshot, EngineStats, snapshot_of

GAUGES = (
    "shards_owned",
    "in_flight",
    "slow",
    "parked",
    "waiting",
    "breakers_open",
    "backlogged_shards",
    "unrecorded",
    "unreadable_namespaces",
    "orphaned_shards",
    "shards_given_back",
    "clock_offset_milliseconds",
)

Series = tuple[str, frozenset[tuple[str, str]]]


def make_snapshot(
    *,
    lags: Sequence[float] = (),
    latencies: Sequence[float] = (),
    failed_by: Sequence[FailureReason] = (),
    gauges: dict[str, int] | None = None,
    **counters: int,
) -> EngineSnapshot:
    """A snapshot with these counters and observations; the rest is 0. Each latency is that of an answer 200."""
    stats = EngineStats()
    for name, value in counters.items():
        assert isinstance(getattr(stats, name), int)
        setattr(stats, name, value)
    for lag in lags:
        stats.lag.observe(lag)
    for latency in latencies:
        stats.count_response(200, latency)
    for reason in failed_by:
        stats.failed += 1
        stats.failed_by[reason] += 1
    return snapshot_of(stats, dict.fromkeys(GAUGES, 0) | (gauges or {}))


class Scrape:
    """The text of ``/metrics``, read by Prometheus's own parser."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}
        self._values: dict[Series, float] = {}
        for family in self.families.values():
            for sample in family.samples:
                self._values[(sample.name, frozenset(sample.labels.items()))] = sample.value

    def value(self, name: str, **labels: str) -> float | None:
        """The sample with exactly these labels."""
        return self._values.get((name, frozenset(labels.items())))

    def total(self, name: str, **labels: str) -> float:
        """The sum of all samples with at least these labels."""
        return sum(
            value
            for (known, all_labels), value in self._values.items()
            if known == name and labels.items() <= all_labels
        )

    def labels(self, name: str, label: str) -> set[str]:
        """The values that ``label`` has."""
        return {dict(labels)[label] for known, labels in self._values if known == name and label in dict(labels)}
