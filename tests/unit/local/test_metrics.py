"""``/metrics``: Prometheus's text, and what is beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from duetime import __version__
from duetime.api.context import ServedRequest
from duetime.domain.timers import FailureReason
from duetime.local.metrics import ApiMetrics, MetricsApp, Observed, new_registry, nothing_else
from tests.support.metrics import Scrape, make_snapshot


def get(registry: CollectorRegistry, path: str = "/metrics", method: str = "GET") -> tuple[int, dict[str, str], str]:
    sent: list[Mapping[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b""}

    async def send(message: Mapping[str, Any]) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": []}
    asyncio.run(MetricsApp(registry, nothing_else)(scope, receive, send))
    headers = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], headers, sent[1]["body"].decode()


def scrape(pollers: dict[str, Observed]) -> Scrape:
    status, headers, body = get(new_registry(lambda: pollers))
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(body)


def test_counters_and_gauges_are_shown_per_worker() -> None:
    one = make_snapshot(fired=3, superseded=1, gauges={"in_flight": 7}, failed_by=[FailureReason.TIMEOUT] * 2)
    two = make_snapshot(fired=5)
    metrics = scrape({"worker-1": Observed(one, 0.0), "worker-2": Observed(two, 1.5)})
    assert metrics.value("duetime_outcomes_total", worker="worker-1", outcome="fired") == 3
    assert metrics.value("duetime_outcomes_total", worker="worker-2", outcome="fired") == 5
    assert metrics.value("duetime_outcomes_total", worker="worker-1", outcome="superseded") == 1
    assert metrics.value("duetime_dead_letters_total", worker="worker-1", reason="Timeout") == 2
    assert metrics.total("duetime_dead_letters_total") == 2
    assert metrics.value("duetime_in_flight", worker="worker-1") == 7
    assert metrics.value("duetime_worker_snapshot_age_seconds", worker="worker-2") == 1.5
    assert metrics.value("duetime_build_info", version=__version__) == 1


def test_every_series_is_there_before_anything_happened() -> None:
    """So that ``rate`` and alerts see a first failure as a rise."""
    metrics = scrape({"worker-1": Observed(make_snapshot(), 0.0)})
    reasons = {reason.value for reason in FailureReason}
    assert metrics.labels("duetime_dead_letters_total", "reason") == reasons
    assert metrics.labels("duetime_retries_total", "reason") == reasons
    assert metrics.labels("duetime_responses_total", "status") == {"none", "1xx", "2xx", "3xx", "4xx", "5xx"}


def test_histograms_count_upwards() -> None:
    metrics = scrape({"worker-1": Observed(make_snapshot(lags=(0.001, 0.3, 0.4, 2.0, 5000.0)), 0.0)})

    def bucket(bound: str) -> float | None:
        return metrics.value("duetime_first_attempt_lag_seconds_bucket", worker="worker-1", le=bound)

    assert [bucket(bound) for bound in ("0.005", "0.25", "0.5", "1.0", "2.5", "1800.0", "+Inf")] == [
        1,
        1,
        3,
        3,
        4,
        4,
        5,
    ]
    assert metrics.value("duetime_first_attempt_lag_seconds_count", worker="worker-1") == 5
    assert metrics.value("duetime_first_attempt_lag_seconds_sum", worker="worker-1") == pytest.approx(5002.701)


def test_requests_are_counted_with_bounded_labels() -> None:
    registry = CollectorRegistry()
    metrics = ApiMetrics(registry)
    metrics.count(ServedRequest("GET", "/v1/namespaces/<namespace>", 200, 0.02))
    metrics.count(ServedRequest("GET", "/v1/namespaces/<namespace>", 200, 0.2))
    metrics.count(ServedRequest("EVIL-1", None, 404, 0.001))
    metrics.count(ServedRequest("EVIL-2", None, 404, 0.001))
    seen = Scrape(get(registry)[2])
    route = "/v1/namespaces/<namespace>"
    assert seen.value("duetime_http_requests_total", method="GET", route=route, status="200") == 2
    assert seen.value("duetime_http_requests_total", method="other", route="none", status="404") == 2
    assert seen.value("duetime_http_request_duration_seconds_bucket", route=route, le="0.025") == 1


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("HEAD", "/metrics", 200), ("POST", "/metrics", 405), ("GET", "/metrics/", 404), ("GET", "/", 404)],
)
def test_what_else_can_be_asked(method: str, path: str, status: int) -> None:
    answer = get(new_registry(dict), path, method)
    assert (answer[0], answer[2]) == (status, "")


def test_nothing_of_this_process_itself_is_shown() -> None:
    families = scrape({"worker-1": Observed(make_snapshot(), 0.0)}).families
    assert {name.split("_")[0] for name in families} == {"duetime"}
