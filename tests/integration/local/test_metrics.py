"""``/metrics`` of real processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx

from duetime.runtime.clock import SystemClock
from duetime.stores.open import open_store
from tests.support.callbacks import CallbackReceiver
from tests.support.metrics import Scrape
from tests.support.no_tls import NO_TLS
from tests.support.ports import reserved_port
from tests.support.processes import DuetimeProcess, DuetimeServer, wait_for_exit

WAIT_SECONDS = 30.0


def wait_for(url: str, reached: Callable[[Scrape], bool]) -> Scrape:
    """Scrape until ``reached`` holds: snapshots of workers arrive every second."""
    end = time.monotonic() + WAIT_SECONDS
    while True:
        answer = httpx.get(url, verify=NO_TLS)
        assert answer.status_code == 200
        scrape = Scrape(answer.text)
        if reached(scrape):
            return scrape
        assert time.monotonic() < end, answer.text
        time.sleep(0.1)


def fired(scrape: Scrape) -> float:
    return scrape.total("duetime_outcomes_total", outcome="fired")


def test_serve_shows_what_its_poller_and_its_api_did(server: DuetimeServer, receiver: CallbackReceiver) -> None:
    for number in range(3):
        server.create(f"t{number}", delay=0, callbackUrl=receiver.url)
    receiver.wait_for_timers(3)
    scrape = wait_for(f"{server.url}/metrics", lambda scrape: fired(scrape) == 3)
    assert scrape.value("duetime_shards_owned", worker="worker-1") == 16
    assert scrape.value("duetime_first_attempt_lag_seconds_count", worker="worker-1") == 3
    assert scrape.value("duetime_callback_duration_seconds_count", worker="worker-1") == 3
    assert scrape.value("duetime_responses_total", worker="worker-1", status="2xx") == 3
    route = "/v1/namespaces/<namespace>/timers"
    assert scrape.value("duetime_http_requests_total", method="POST", route=route, status="201") == 3
    assert "/metrics" not in server.client.get("/v1/openapi.json").json()["paths"]
    assert server.client.post("/metrics").status_code == 405
    assert server.client.get("/v1/metrics").status_code == 404


def test_serve_keeps_its_workers_running_and_shows_the_figures_of_those_that_do(
    tmp_path: Path, receiver: CallbackReceiver
) -> None:
    with DuetimeServer("--workers", "3", "--lease-seconds", "4", cwd=tmp_path, DUETIME_METRICS_PORT="1") as server:
        url = f"{server.url}/metrics"

        def is_shared(scrape: Scrape) -> bool:
            shards = [scrape.value("duetime_shards_owned", worker=f"worker-{n}") or 0 for n in (1, 2, 3)]
            return sum(shards) == 16 and min(shards) >= 5

        wait_for(url, is_shared)
        server.create_many([{"id": f"t{n}", "delay": 0, "callbackUrl": receiver.url} for n in range(300)])
        receiver.wait_for_timers(300, timeout_seconds=WAIT_SECONDS)
        scrape = wait_for(url, lambda scrape: fired(scrape) == 300)
        by_worker = [scrape.total("duetime_outcomes_total", outcome="fired", worker=f"worker-{n}") for n in (1, 2, 3)]
        assert min(by_worker) > 0
        for worker in ("worker-2", "worker-3"):
            age = scrape.value("duetime_worker_snapshot_age_seconds", worker=worker)
            assert age is not None
            assert age < 10  # one comes each second, on a machine that is busy

        killed = next(event for event in server.of("worker.started") if event["worker"] == "worker-2")
        os.kill(killed["pid"], signal.SIGKILL)
        assert server.wait_for("worker.ended")["exit_code"] == -signal.SIGKILL
        wait_for(url, lambda scrape: scrape.total("duetime_outcomes_total", outcome="fired", worker="worker-2") == 0)
        wait_for(url, is_shared)  # another has its place
        pids = {event["pid"] for event in server.of("worker.started")}
        assert server.terminate() == 0
        assert (len(pids), len(server.of("worker.stopped"))) == (3, 2)
    assert all(wait_for_exit(pid) for pid in pids)


def test_a_worker_serves_its_own_on_loopback_when_asked(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/duetime.db"
    with closing(open_store(url)) as store:
        store.initialise()
        store.catalogue.create_namespace("default", num_shards=16, dedicated=False, now=SystemClock().now())
    options = ("--store", url, "--metrics-port")
    with reserved_port() as port, DuetimeProcess("worker", *options, str(port), cwd=tmp_path) as worker:
        assert worker.wait_for("metrics.served")["url"] == f"http://127.0.0.1:{port}/metrics"
        wait_for(
            f"http://127.0.0.1:{port}/metrics",
            lambda scrape: scrape.value("duetime_shards_owned", worker="worker-1") == 16,
        )
        assert httpx.get(f"http://127.0.0.1:{port}/v1/namespaces", verify=NO_TLS).status_code == 404
        assert worker.terminate() == 0
