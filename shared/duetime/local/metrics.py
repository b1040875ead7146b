"""Prometheus's view of this machine: ``GET /metrics`` of ``duetime serve``, and of a worker that is asked for it.

Snapshots are read when Prometheus asks. Those of workers in processes of their own arrive every second
(``local.workers``); how old each one is, is a metric too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from duetime import __version__
from duetime.api.context import ServedRequest
from duetime.api.http.authentication import KeyAuthenticator
from duetime.api.http.problems import problem_reply
from duetime.api.http.route import authorise
from duetime.domain.errors import DuetimeError
from duetime.domain.principals import Role
from duetime.engine.stats import EngineSnapshot, HistogramSnapshot
from duetime.local.asgi import Asgi, Receive, Scope, Send, send_response, to_response
from duetime.local.gateway import HttpResponse
from duetime.runtime.metrics import (
    COUNTERS,
    DISTRIBUTIONS,
    GAUGES,
    OUTBOX_COUNTERS,
    OUTBOX_GAUGES,
    PREFIX,
    Distribution,
    Number,
)

PATH = "/metrics"
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_API_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 30.0)


@dataclass(frozen=True, slots=True)
class Observed:
    """The last snapshot of a poller, received ``age_seconds`` ago."""

    snapshot: EngineSnapshot
    age_seconds: float


Observe = Callable[[], Mapping[str, Observed]]
"""The pollers of this machine that are heard of, by name."""


class PollerCollector(Collector):
    """The catalogue's metrics, each with a label ``worker``."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe

    def collect(self) -> Iterator[Metric]:
        pollers = self._observe()
        yield InfoMetricFamily(f"{PREFIX}build", "The version that runs.", {"version": __version__})
        age = GaugeMetricFamily(
            f"{PREFIX}worker_snapshot_age_seconds", "How old a worker's figures are.", labels=["worker"]
        )
        for worker, observed in pollers.items():
            age.add_metric([worker], observed.age_seconds)
        yield age
        for number in (*COUNTERS, *OUTBOX_COUNTERS):
            yield _numbers(CounterMetricFamily, number, pollers)
        for number in (*GAUGES, *OUTBOX_GAUGES):
            yield _numbers(GaugeMetricFamily, number, pollers)
        for distribution in DISTRIBUTIONS:
            yield _histogram(distribution, pollers)


def _numbers(
    family: type[CounterMetricFamily | GaugeMetricFamily], number: Number, pollers: Mapping[str, Observed]
) -> Metric:
    labels = ["worker", number.label] if number.label else ["worker"]
    metric = family(f"{PREFIX}{number.name}", number.help, labels=labels)
    for worker, observed in pollers.items():
        for value_of_label, value in number.read(observed.snapshot).items():
            metric.add_metric([worker, value_of_label][: len(labels)], value)
    return metric


def _histogram(distribution: Distribution, pollers: Mapping[str, Observed]) -> Metric:
    labels = ["worker", distribution.label] if distribution.label else ["worker"]
    metric = HistogramMetricFamily(f"{PREFIX}{distribution.name}", distribution.help, labels=labels)
    for worker, observed in pollers.items():
        for value_of_label, snapshot in distribution.read(observed.snapshot).items():
            values = [worker, value_of_label][: len(labels)]
            metric.add_metric(values, buckets=_buckets(snapshot), sum_value=snapshot.sum)
    return metric


def _buckets(snapshot: HistogramSnapshot) -> list[tuple[str, float]]:
    """Return the buckets as Prometheus wants them: each holds all that is in the ones before."""
    bounds = [*map(str, snapshot.bounds), "+Inf"]
    return list(zip(bounds, accumulate(snapshot.counts), strict=True))


class ApiMetrics:
    """Requests to the API. Labels are bounded: routes are those of the API, and odd methods count as one."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            f"{PREFIX}http_requests",
            "Requests that the API responded to.",
            ["method", "route", "status"],
            registry=registry,
        )
        self._durations = Histogram(
            f"{PREFIX}http_request_duration_seconds",
            "From the whole request until the response was ready.",
            ["route"],
            registry=registry,
            buckets=_API_BOUNDS,
        )
        self._counted = cache(self._with_labels)

    def count(self, served: ServedRequest) -> None:
        """Count a request. Safe to call from several threads."""
        method = served.method if served.method in _METHODS else "other"
        requests, durations = self._counted(method, served.route or "none", str(served.status))
        requests.inc()
        durations.observe(served.duration_seconds)

    def _with_labels(self, method: str, route: str, status: str) -> tuple[Counter, Histogram]:
        return self._requests.labels(method, route, status), self._durations.labels(route)


class MetricsApp:
    """Serves ``/metrics`` and leaves every other path to ``app``.

    With an ``authenticator`` the page needs an admin's API key of any tenant: it shows no tenant's data.
    """

    def __init__(
        self, registry: CollectorRegistry, app: Asgi, *, authenticator: KeyAuthenticator | None = None
    ) -> None:
        self._registry = registry
        self._app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == PATH:
            # In a thread: a key may have to be read from the store.
            await send_response(await asyncio.to_thread(self._respond, scope), send)
        else:
            await self._app(scope, receive, send)

    def _respond(self, scope: Scope) -> HttpResponse:
        if self._authenticator is not None:
            try:
                authorise(Role.ADMIN, self._authenticator.authenticate(_authorization(scope)), {})
            except DuetimeError as error:
                return to_response(problem_reply(error, request_id=""))
        if scope["method"] not in ("GET", "HEAD"):
            return HttpResponse(405, (("allow", "GET, HEAD"),), b"")
        body = generate_latest(self._registry) if scope["method"] == "GET" else b""
        headers = (("content-type", CONTENT_TYPE_PLAIN_0_0_4), ("cache-control", "no-store"))
        return HttpResponse(200, headers, body)


def _authorization(scope: Scope) -> str | None:
    """Return the header; several of them are one that nothing fits."""
    values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"authorization"]
    return ", ".join(values) or None


async def nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer beside ``/metrics`` where there is no API."""
    if scope["type"] == "lifespan":
        for event in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{event}.complete"})
    elif scope["type"] == "http":
        await send_response(HttpResponse(404, (), b""), send)


def new_registry(observe: Observe) -> CollectorRegistry:
    """Return a registry of its own: nothing that other libraries count in this process gets in."""
    registry = CollectorRegistry()
    registry.register(PollerCollector(observe))
    return registry
