"""The catalogue of metrics: nothing is counted that is not shown, and snapshots survive their trip."""

from __future__ import annotations

import pytest

from duetime.engine.stats import COUNTERS as COUNTED
from duetime.engine.stats import EngineSnapshot
from duetime.runtime.metrics import COUNTERS, DISTRIBUTIONS, GAUGES, read_snapshot, write_snapshot
from tests.support.metrics import make_snapshot


class Noting(dict[str, int]):
    """Remembers which keys were asked for."""

    def __init__(self, values: dict[str, int]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, key: str) -> int:
        self.asked.add(key)
        return super().__getitem__(key)


def test_everything_that_a_poller_counts_is_a_metric() -> None:
    snapshot = make_snapshot()
    counters = Noting(dict(snapshot.counters))
    noting = EngineSnapshot(
        counters=counters,
        gauges=snapshot.gauges,
        retried_by=snapshot.retried_by,
        failed_by=snapshot.failed_by,
        calls_by=snapshot.calls_by,
        responses_by=snapshot.responses_by,
        lag=snapshot.lag,
        latency=snapshot.latency,
        namespaces={},
    )
    for number in COUNTERS:
        number.read(noting)
    assert counters.asked == set(COUNTED) - {"responses"}  # the sum of the answers by class


def test_every_gauge_of_a_snapshot_is_a_metric() -> None:
    assert {number.name for number in GAUGES} == set(make_snapshot().gauges)


def test_names_are_unique_everywhere() -> None:
    snapshot = make_snapshot()
    names = [metric.name for metric in (*COUNTERS, *GAUGES, *DISTRIBUTIONS)]
    aliases = [
        number.cloudwatch(value)
        for number in (*COUNTERS, *GAUGES)
        if number.cloudwatch is not None
        for value in number.read(snapshot)
    ] + [distribution.cloudwatch for distribution in DISTRIBUTIONS]
    assert len(set(names)) == len(names)
    assert len(set(aliases)) == len(aliases)


def test_a_snapshot_survives_its_trip_over_a_pipe() -> None:
    snapshot = make_snapshot(fired=3, lags=(0.1, 4.0, 1e6))
    line = write_snapshot(snapshot)
    assert b"\n" not in line
    assert len(line) < 4096  # what a pipe takes in one piece
    assert read_snapshot(line + b"\n") == snapshot


@pytest.mark.parametrize("line", [b"", b"\n", b"hello\n", b"{}", b"[1]", b"\xff", b'{"counters": {"fired": "x"}}'])
def test_anything_else_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a snapshot"):
        read_snapshot(line)
