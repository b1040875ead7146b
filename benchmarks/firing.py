"""Drain, precision and idle cost of the whole service, with a loopback receiver; one run, side by side.

    python -m benchmarks.firing [--timers 20000] [--rate 200] [--seconds 20] [--pending 0] [--workers 1]

- idle: CPU when nothing is due.
- precision: timers spread evenly; how late they are, and what it costs.
- drain: timers due at one instant; how fast they all fire. Compared with the same HTTP client posting as many
  callbacks without store, leases and records: the ratio is the price of durability.

``--pending`` stores that many timers of the far future first: none of the numbers should change.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import note, parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import Service, rfc3339, running
from duetime.app.tzdata_release import PASSES, TZDATA_SHARD
from duetime.delivery.curl import CurlSender
from duetime.delivery.egress import LOOPBACK, EgressPolicy
from duetime.delivery.port import Callback, CallbackResult
from duetime.delivery.sender_thread import SenderThread
from duetime.delivery.settings import SenderSettings
from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.engine.settings import EngineSettings
from duetime.recurrence import zones
from duetime.runtime.ids import new_id
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode

_BATCH = 500
_CREATES_PER_SECOND = 4000.0
"""What SQLite at least does. Nothing is due before all of it is stored."""


def store_pending(store_url: str, number: int, *, first: int = 0, payload_json: str = '{"pending": true}') -> None:
    """Put timers of the far future straight into the store until it has ``number``; ``first`` it has already."""
    store = open_store(store_url)
    store.initialise()
    now = datetime.now(UTC).replace(microsecond=0)
    namespace, _ = store.catalogue.create_namespace("default", num_shards=16, dedicated=False, now=now)
    # As if a server had run here: nothing is to be computed by new rules of time zones.
    computed = json.dumps({"release": zones.VERSION, "passes": PASSES})
    store.leases.claim([TZDATA_SHARD], "benchmark", lease_seconds=0.001, metadata=computed, now=now)
    for start in range(first, number, _BATCH):
        batch = []
        for index in range(start, min(start + _BATCH, number)):
            content = TimerContent(
                execute_at=now + timedelta(days=30, seconds=index % 86_400),
                callback_url="http://127.0.0.1:9/none",
                payload_json=payload_json,
            )
            digest = content_digest(content)
            batch.append(
                new_timer(namespace, f"pending-{index}", content, digest=digest, firing_id=new_id(), now=now)
            )
        store.timers.put(batch, mode=PutMode.CREATE, now=now)
    store.close()


def bare_rate(receiver: Receiver, number: int) -> float:
    """Callbacks a second of the HTTP client alone, with as many in flight as the poller allows."""
    sender = SenderThread(CurlSender(SenderSettings(egress=EgressPolicy(allow_cidrs=LOOPBACK))))
    done = threading.Event()
    body = b'{"namespace":"default","timerId":"x","executeAt":"2026-12-20T15:30:00.000Z","payload":{"n":1}}'
    in_flight = min(number, EngineSettings().max_in_flight)
    left_to_send, left_to_answer = number - in_flight, number

    def callbacks(count: int) -> list[Callback]:
        headers = ("content-type: application/json", "webhook-id: x")
        return [Callback(key, f"{receiver.url}hook", headers, body, 30) for key in range(count)]

    def on_results(results: list[CallbackResult]) -> None:
        nonlocal left_to_send, left_to_answer
        left_to_answer -= len(results)
        more = min(len(results), left_to_send)
        left_to_send -= more
        sender.submit(callbacks(more))
        if left_to_answer == 0:
            done.set()

    sender.start(on_results)
    began = time.perf_counter()
    sender.submit(callbacks(in_flight))
    done.wait(120)
    elapsed = time.perf_counter() - began
    sender.close()
    return number / elapsed


def wait_for(receiver: Receiver, number: int, timeout_seconds: float) -> dict[str, Any]:
    """Return the receiver's statistics once ``number`` timers have arrived, or as they are after the timeout."""
    end = time.monotonic() + timeout_seconds
    while True:
        stats = receiver.stats()
        if stats["unique"] >= number or time.monotonic() > end:
            return stats
        time.sleep(0.2)


def timer(receiver: Receiver, index: int, due: float) -> dict[str, Any]:
    return {"executeAt": rfc3339(due), "callbackUrl": f"{receiver.url}hook", "payload": {"n": index}}


@dataclass(frozen=True)
class Drained:
    """``seconds``: from the due time to the last arrival; ``cpu_seconds``: of the server."""

    wanted: int
    arrived: int
    duplicates: int
    seconds: float
    cpu_seconds: float

    @property
    def rate(self) -> float:
        return self.arrived / self.seconds


def drain(
    service: Service, receiver: Receiver, number: int, *, creates_per_second: float = _CREATES_PER_SECOND
) -> Drained:
    """Timers that are due at one instant."""
    receiver.reset()
    due = time.time() + max(3.0, number / creates_per_second)
    service.client().create([timer(receiver, index, due) for index in range(number)])
    if time.time() > due:
        note("creating took longer than planned: the first were due before the last was stored")
    time.sleep(max(0.0, due - time.time()))
    cpu = service.cpu_seconds()
    stats = wait_for(receiver, number, 120)
    time.sleep(0.5)  # the last outcomes are being recorded
    return Drained(
        wanted=number,
        arrived=stats["unique"],
        duplicates=stats["requests"] - stats["unique"],
        seconds=stats["latenessMs"]["max"] / 1000,
        cpu_seconds=service.cpu_seconds() - cpu,
    )


@dataclass(frozen=True)
class Precision:
    """``late``: milliseconds after the due time (p50, p99, min, max); ``cpu_share``: of one core."""

    wanted: int
    arrived: int
    late: Mapping[str, float]
    cpu_share: float
    cpu_seconds: float


def precision(
    service: Service,
    receiver: Receiver,
    rate: int,
    seconds: int,
    *,
    creates_per_second: float = _CREATES_PER_SECOND,
) -> Precision:
    """Timers that are due one after the other, ``rate`` a second."""
    receiver.reset()
    number = rate * seconds
    start = time.time() + max(3.0, number / creates_per_second)
    service.client().create([timer(receiver, index, start + index / rate) for index in range(number)])
    time.sleep(max(0.0, start - time.time()))
    cpu, began = service.cpu_seconds(), time.perf_counter()
    stats = wait_for(receiver, number, seconds + 30)
    used = service.cpu_seconds() - cpu
    return Precision(
        wanted=number,
        arrived=stats["unique"],
        late=stats["latenessMs"],
        cpu_share=used / (time.perf_counter() - began),
        cpu_seconds=used,
    )


def show_drain(drained: Drained, bare: float) -> None:
    show(
        "drain",
        timers=drained.wanted,
        arrived=drained.arrived,
        duplicates=drained.duplicates,
        seconds=drained.seconds,
        per_s=drained.rate,
        cpu_us_each=drained.cpu_seconds / drained.wanted * 1e6,
        http_client_alone_per_s=bare,
        ratio=drained.rate / bare,
    )


def show_precision(measured: Precision, rate: int) -> None:
    show(
        "precision",
        rate_per_s=rate,
        timers=measured.wanted,
        arrived=measured.arrived,
        **{f"lag_{name}_ms": late for name, late in measured.late.items()},
        cpu_percent_of_core=measured.cpu_share * 100,
    )


def idle_share(service: Service, seconds: float) -> float:
    """CPU of a server that has just started, as a share of one core."""
    time.sleep(3)
    cpu = service.cpu_seconds()
    time.sleep(seconds)
    return (service.cpu_seconds() - cpu) / seconds


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=20_000)
    options.add_argument("--rate", type=int, default=200)
    options.add_argument("--seconds", type=int, default=20)
    options.add_argument("--pending", type=int, default=0)
    options.add_argument("--workers", type=int, default=1)
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        store_url = f"sqlite:///{Path(folder) / 'bench.db'}"
        if given.pending:
            began = time.perf_counter()
            store_pending(store_url, given.pending)
            show("pending", timers=given.pending, seconds=time.perf_counter() - began)
        with running(store_url, "--workers", str(given.workers)) as service:
            show("idle", cpu_percent_of_core=idle_share(service, given.seconds) * 100)
            show_precision(precision(service, receiver, given.rate, given.seconds), given.rate)
            drained = drain(service, receiver, given.timers)
            show_drain(drained, bare_rate(receiver, given.timers))


if __name__ == "__main__":
    main()
