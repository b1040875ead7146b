"""The lines from which CloudWatch makes metrics, checked against the rules of the embedded metric format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from duetime.domain.timers import FailureReason
from duetime.engine.stats import EngineSnapshot
from duetime.runtime.emf import EmfReporter
from tests.support.clock import NOW, FakeClock
from tests.support.metrics import make_snapshot

UNITS = {"Count", "Milliseconds", "Seconds"}
IDLE = {"ShardsOwned": 0}
"""What is written when there is nothing to tell: its absence means that no poller runs."""


def report(*snapshots: EngineSnapshot) -> list[dict[str, Any]]:
    lines: list[str] = []
    reporter = EmfReporter(lines.append, clock=FakeClock(), stage="prod", function="duetime-poller")
    for snapshot in snapshots:
        reporter.report(snapshot, request_id="r1")
    assert not any("\n" in line for line in lines)
    return [json.loads(line) for line in lines]


def metrics_of(document: dict[str, Any]) -> dict[str, Any]:
    """The values that CloudWatch takes, after checking that it can take them."""
    (directive,) = document["_aws"]["CloudWatchMetrics"]
    assert document["_aws"]["Timestamp"] == NOW.timestamp() * 1000
    assert directive["Namespace"] == "Duetime"
    assert directive["Dimensions"] == [["Stage", "Function"]]
    assert (document["Stage"], document["Function"]) == ("prod", "duetime-poller")
    definitions = directive["Metrics"]
    assert 1 <= len(definitions) <= 100
    assert {definition["Unit"] for definition in definitions} <= UNITS
    for definition in definitions:
        value = document[definition["Name"]]
        if isinstance(value, dict):
            assert 1 <= len(value["Values"]) == len(value["Counts"]) <= 100
            assert value["Count"] == sum(value["Counts"])
            assert value["Min"] == min(value["Values"])
            assert value["Max"] == max(value["Values"])
        else:
            assert isinstance(value, int)
    return {definition["Name"]: document[definition["Name"]] for definition in definitions}


def test_the_first_report_has_all_that_was_counted() -> None:
    snapshot = make_snapshot(attempts_started=9, fired=7, superseded=1, gauges={"in_flight": 4})
    (document,) = report(snapshot)
    assert metrics_of(document) == IDLE | {"Attempts": 9, "Fired": 7, "Superseded": 1, "InFlight": 4}
    assert (document["action"], document["request_id"]) == ("poller.metrics", "r1")


def test_later_reports_have_what_was_added() -> None:
    first = make_snapshot(fired=7, failed_by=[FailureReason.TIMEOUT], gauges={"shards_owned": 3})
    second = make_snapshot(fired=9, failed_by=[FailureReason.TIMEOUT] * 3, gauges={"shards_owned": 2})
    _, later, idle = report(first, second, second)
    assert metrics_of(later) == IDLE | {"Fired": 2, "Failed": 2, "ShardsOwned": 2}
    assert later["dead_letters"] == {"Timeout": 2}
    assert metrics_of(idle) == IDLE | {"ShardsOwned": 2}
    assert "dead_letters" not in idle


def test_a_gauge_is_written_until_it_has_fallen_to_zero() -> None:
    busy, idle = make_snapshot(gauges={"waiting": 4, "clock_offset_milliseconds": -3}), make_snapshot()
    documents = report(idle, busy, idle, idle)
    assert [metrics_of(document) for document in documents] == [
        IDLE,
        IDLE | {"Waiting": 4, "ClockOffset": -3},
        IDLE | {"Waiting": 0, "ClockOffset": 0},
        IDLE,
    ]


def test_what_is_no_metric_is_a_property() -> None:
    (document,) = report(make_snapshot(polls=5, record_batches=2, latencies=[0.1, 0.2]))
    assert metrics_of(document).keys() == IDLE.keys() | {"CallbackDuration"}
    assert (document["polls"], document["record_batches"], document["responses"]) == (5, 2, {"2xx": 2})


def test_a_distribution_is_made_of_bucket_bounds_and_counts() -> None:
    (document,) = report(make_snapshot(lags=[0.004, 0.004, 0.3, 4000.0]))
    assert metrics_of(document)["Lag"] == {
        "Values": [0.005, 0.5, 4000.0],
        "Counts": [2, 1, 1],
        "Max": 4000.0,
        "Min": 0.005,
        "Count": 4,
        "Sum": pytest.approx(4000.308),
    }


def test_a_later_distribution_has_what_was_added() -> None:
    _, later, idle = report(*(make_snapshot(lags=lags) for lags in ([0.3], [0.3, 0.4, 2.0], [0.3, 0.4, 2.0])))
    assert metrics_of(later)["Lag"] == {
        "Values": [0.5, 2.5],
        "Counts": [1, 1],
        "Max": 2.5,
        "Min": 0.5,
        "Count": 2,
        "Sum": pytest.approx(2.4),
    }
    assert "Lag" not in metrics_of(idle)
