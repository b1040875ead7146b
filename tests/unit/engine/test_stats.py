"""What a poller counts, and copies of it."""

from __future__ import annotations

from dataclasses import fields

import pytest

from duetime.domain.timers import FailureReason
from duetime.engine.stats import COUNTERS, EngineStats, Histogram, snapshot_of


@pytest.mark.parametrize(
    ("value", "bucket"), [(0.0, 0), (1.0, 0), (1.001, 1), (5.0, 1), (5.001, 2), (1e9, 2), (-3.0, 0)]
)
def test_an_observation_falls_into_the_bucket_whose_bound_it_does_not_exceed(value: float, bucket: int) -> None:
    histogram = Histogram((1.0, 5.0))
    histogram.observe(value)
    snapshot = histogram.snapshot()
    assert snapshot.counts[bucket] == sum(snapshot.counts) == 1
    assert snapshot.sum == snapshot.max == max(0.0, value)


def test_a_histogram_adds_up() -> None:
    histogram = Histogram((1.0, 5.0))
    for value in (0.5, 3.0, 4.0, 7.5):
        histogram.observe(value)
    snapshot = histogram.snapshot()
    assert (snapshot.counts, snapshot.sum, snapshot.max) == ((1, 2, 1), 15.0, 7.5)


def test_answers_are_counted_by_the_class_of_their_status() -> None:
    stats = EngineStats()
    for status in (None, 100, 200, 204, 302, 404, 500, 599, 999):
        stats.count_response(status, 0.2)
    snapshot = snapshot_of(stats, {})
    assert snapshot.responses_by == {"none": 1, "1xx": 1, "2xx": 2, "3xx": 1, "4xx": 1, "5xx": 3}
    assert snapshot.counters["responses"] == sum(snapshot.latency.counts) == 9


def test_a_snapshot_does_not_change_when_more_is_counted() -> None:
    stats, gauges = EngineStats(), {"in_flight": 1}
    before = snapshot_of(stats, gauges)
    stats.fired += 1
    stats.failed_by[FailureReason.TIMEOUT] += 1
    stats.lag.observe(1)
    stats.count_response(200, 1)
    gauges["in_flight"] = 2
    assert before.counters["fired"] == before.failed_by["Timeout"] == before.responses_by["2xx"] == 0
    assert sum(before.lag.counts) == sum(before.latency.counts) == 0
    assert before.gauges == {"in_flight": 1}


def test_every_reason_is_there_from_the_start() -> None:
    snapshot = snapshot_of(EngineStats(), {})
    assert set(snapshot.failed_by) == set(snapshot.retried_by) == {reason.value for reason in FailureReason}


def test_every_integer_is_a_counter_of_the_snapshot() -> None:
    integers = {spec.name for spec in fields(EngineStats) if isinstance(getattr(EngineStats(), spec.name), int)}
    assert set(COUNTERS) == set(snapshot_of(EngineStats(), {}).counters) == integers
