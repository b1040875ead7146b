"""The poller's metrics on AWS: lines in CloudWatch's embedded metric format, written to the function's log.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
CloudWatch takes the metrics out of the log by itself: no request, no permission, no client. Why these lines are not
made by Powertools: docs/decisions/0009.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, TypeVar

from duetime.domain.clock import Clock
from duetime.domain.times import to_milliseconds
from duetime.engine.stats import EngineSnapshot, HistogramSnapshot
from duetime.runtime.metrics import COUNTERS, DISTRIBUTIONS, GAUGES

T = TypeVar("T")

NAMESPACE = "Duetime"


class EmfReporter:
    """Writes what has happened since the last report. For one poller and one thread."""

    def __init__(self, write: Callable[[str], None], *, clock: Clock, stage: str, function: str) -> None:
        """``write`` gets one line without its end. ``stage`` and ``function`` are the metrics' dimensions."""
        self._write = write
        self._clock = clock
        self._dimensions = {"Stage": stage, "Function": function}
        self._last: EngineSnapshot | None = None

    def report(self, snapshot: EngineSnapshot, **properties: object) -> None:
        """Write one line: counters and histograms as they rose since the last report, gauges as they are.

        A counter that did not move and a gauge that stays 0 are left out: CloudWatch charges by the metric and hour.
        A heartbeat is always there. ``properties`` are written beside the metrics.
        """
        last, self._last = self._last, snapshot
        details = {"action": "poller.metrics", **properties, **dict(_details(snapshot, last))}
        self._write(metrics_line(_metrics(snapshot, last), self._dimensions, details, at=self._clock.now()))


def metrics_line(
    metrics: Iterable[tuple[str, str, Any]],
    dimensions: Mapping[str, str],
    details: Mapping[str, object],
    *,
    at: datetime,
) -> str:
    """Return one line, without its end. ``metrics``: name, unit and value of each; ``details`` stand beside them."""
    metrics = list(metrics)
    directive = {
        "Namespace": NAMESPACE,
        "Dimensions": [list(dimensions)],
        "Metrics": [{"Name": name, "Unit": unit} for name, unit, _ in metrics],
    }
    document = {
        "_aws": {"Timestamp": to_milliseconds(at), "CloudWatchMetrics": [directive]},
        **dimensions,
        **details,
        **{name: value for name, _, value in metrics},
    }
    return json.dumps(document, separators=(",", ":"))


def _metrics(snapshot: EngineSnapshot, last: EngineSnapshot | None) -> Iterator[tuple[str, str, Any]]:
    """Return name, unit and value of each metric."""
    for number in COUNTERS:
        if number.cloudwatch is not None:
            for key, rise in _rises(number.read(snapshot), _before(number.read, last)):
                yield number.cloudwatch(key), number.unit, rise
    for number in GAUGES:
        if number.cloudwatch is not None:
            before = _before(number.read, last) or {}
            for key, value in number.read(snapshot).items():
                if value or before.get(key) or number.is_heartbeat:
                    yield number.cloudwatch(key), number.unit, value
    for distribution in DISTRIBUTIONS:
        if distribution.cloudwatch is not None:
            earlier = _before(distribution.read, last) or {}
            for key, now in distribution.read(snapshot).items():
                values = _distribution(now, earlier.get(key))
                if values is not None:
                    yield distribution.cloudwatch, "Seconds", values


def _details(snapshot: EngineSnapshot, last: EngineSnapshot | None) -> Iterator[tuple[str, Any]]:
    """Yield counters that are no metrics, such as ``retries`` by reason, for queries of the log."""
    for number in COUNTERS:
        if number.cloudwatch is None and (rises := dict(_rises(number.read(snapshot), _before(number.read, last)))):
            yield number.name, rises if number.label else rises[""]


def _before(read: Callable[[EngineSnapshot], T], last: EngineSnapshot | None) -> T | None:
    return None if last is None else read(last)


def _rises(now: Mapping[str, int], before: Mapping[str, int] | None) -> Iterable[tuple[str, int]]:
    for key, value in now.items():
        rise = value - (0 if before is None else before[key])
        if rise:
            yield key, rise


def _distribution(now: HistogramSnapshot, before: HistogramSnapshot | None) -> dict[str, Any] | None:
    """Return the observations since ``before`` as values and how often each occurred; None when there were none.

    An observation counts as the upper bound of its bucket, so a percentile is never better than the truth. Those
    above all bounds count as the largest one ever, which may be older.
    """
    values: list[float] = []
    counts: list[int] = []
    for index, total in enumerate(now.counts):
        count = total - (0 if before is None else before.counts[index])
        if count:
            values.append(now.bounds[index] if index < len(now.bounds) else now.max)
            counts.append(count)
    if not counts:
        return None
    return {
        "Values": values,
        "Counts": counts,
        "Max": values[-1],
        "Min": values[0],
        "Count": sum(counts),
        "Sum": round(now.sum - (0.0 if before is None else before.sum), 6),
    }
