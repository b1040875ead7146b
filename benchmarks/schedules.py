"""Schedules beside timers that fire at the same instant, on SQLite; and what computing a next time takes.

    python -m benchmarks.schedules [--number 10000] [--rounds 3] [--pending 0]

- next time: microseconds of processor for one occurrence after another, of an expression that was read before.
- at one instant: ``--number`` schedules, all at one full minute (every minute for each 10,000 of them), and as many
  timers when these are through, in turns. Each occurrence also stores a line of its history, and the schedule's next
  one.

``--pending`` stores that many schedules first, whose next time is a month ahead or more.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import parser, show
from benchmarks.firing import drain
from benchmarks.receiver import Receiver
from benchmarks.service import Client, Service, running
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import SchedulePolicy, new_schedule
from duetime.domain.timers import TimerContent
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode

_CONNECTIONS = 8
_BATCH = 1000
_MINUTE = 60.0
_CREATED_PER_SECOND = 300.0
"""On a busy machine, too: all are stored before the first minute that counts."""
_TIMINGS = (
    TimingSpec(every_ms=60_000),
    TimingSpec(cron=("*/5 * * * *",)),
    TimingSpec(cron=("30 9 * * MON-FRI",), time_zone="Europe/Berlin"),
    TimingSpec(rrule=("FREQ=MONTHLY;BYDAY=-1FR;BYHOUR=17",), time_zone="America/New_York"),
)


def next_times(spec: TimingSpec, number: int = 1000) -> float:
    """Return microseconds of processor for each occurrence."""
    found, at = recurrence(spec), datetime(2026, 12, 1, tzinfo=UTC)
    began = time.process_time()
    for _ in range(number):
        following = found.next_after(at)
        assert following is not None
        at = following
    return (time.process_time() - began) / number * 1e6


def store_pending(store_url: str, number: int) -> None:
    """Schedules of the far future, put straight into the store."""
    store = open_store(store_url)
    store.initialise()
    now = datetime.now(UTC).replace(microsecond=0)
    namespace, _ = store.catalogue.create_namespace("default", num_shards=16, dedicated=False, now=now)
    for start in range(0, number, _BATCH):
        batch = []
        for index in range(start, min(start + _BATCH, number)):
            at = now + timedelta(days=30, seconds=index % 86_400)
            spec = TimingSpec(cron=(f"{at.minute} {at.hour} * * *",), start_at=at)
            schedule = new_schedule(
                SchedulePolicy(), occurrences_by(spec, f"pending-{index}", lambda _: None), after=now
            )
            content = TimerContent(
                execute_at=at,
                callback_url="http://127.0.0.1:9/none",
                payload_json="{}",
                timing_json=timing_json(spec),
            )
            batch.append(new_schedule_timer(namespace, f"pending-{index}", content, schedule, digest="", now=now))
        store.timers.put(batch, mode=PutMode.CREATE, now=now)
    store.close()


def create(service: Service, url: str, number: int, *, start_at: float, minutes: int = 1) -> None:
    """Store schedules of every ``minutes`` from ``start_at`` (epoch seconds) on; ``url`` ends in a slash.

    Raises ``RuntimeError`` when one is refused.
    """
    errors: list[Any] = []
    start = datetime.fromtimestamp(start_at, UTC).isoformat()

    def put(mine: range) -> None:
        client = Client(service.port)
        for index in mine:
            body = {
                "every": f"{minutes}m",
                "startAt": start,
                "anchor": start,
                "callbackUrl": f"{url}s{index}",
                "payload": {"n": index},
            }
            status, answer = client.request("PUT", f"/v1/namespaces/default/schedules/s{index}", body)
            if status != 201:
                errors.append(answer)

    threads = [threading.Thread(target=put, args=(range(n, number, _CONNECTIONS),)) for n in range(_CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise RuntimeError(errors[0])


def an_instant(service: Service, receiver: Receiver, number: int, at: float) -> tuple[dict[str, Any], float]:
    """Return what the receiver counts of the occurrences at ``at``, and the server's seconds of processor."""
    time.sleep(max(0.0, at - 1 - time.time()))
    receiver.reset()
    cpu = service.cpu_seconds()
    time.sleep(max(0.0, at - time.time()))
    while (stats := receiver.stats())["unique"] < number and time.time() < at + _MINUTE / 2 * (1 + number / 10_000):
        time.sleep(0.1)
    time.sleep(0.5)  # the last outcomes are being recorded
    return stats, service.cpu_seconds() - cpu


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--number", type=int, default=10_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--pending", type=int, default=0)
    given = options.parse_args()
    for spec in _TIMINGS:
        words = " ".join((*spec.cron, *spec.rrule, spec.time_zone)) if not spec.every_ms else "every minute"
        show(f"next time, {words}", cpu_us_each=next_times(spec))
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        store_url = f"sqlite:///{Path(folder) / 'bench.db'}"
        store_pending(store_url, given.pending)
        compare(store_url, receiver, given)


def compare(store_url: str, receiver: Receiver, given: argparse.Namespace) -> None:
    used: dict[str, list[float]] = {"schedules": [], "timers": []}
    with running(store_url) as service:
        ready = time.time() + given.number / _CREATED_PER_SECOND
        at = (ready // _MINUTE + 1) * _MINUTE
        minutes = math.ceil(given.number / 10_000)
        create(service, receiver.url, given.number, start_at=at, minutes=minutes)
        for _ in range(given.rounds):
            stats, cpu = an_instant(service, receiver, given.number, at)
            at += minutes * _MINUTE
            used["schedules"].append(cpu / given.number * 1e6)
            late = stats["latenessMs"]
            show(
                "schedules",
                number=given.number,
                arrived=stats["unique"],
                duplicates=stats["requests"] - stats["unique"],
                **{f"lag_{part}_ms": late[part] for part in ("p50", "p99", "max")},
                cpu_us_each=used["schedules"][-1],
            )
            drained = drain(service, receiver, given.number)
            used["timers"].append(drained.cpu_seconds / given.number * 1e6)
            show(
                "timers",
                number=given.number,
                arrived=drained.arrived,
                seconds=drained.seconds,
                cpu_us_each=used["timers"][-1],
            )
    schedules, timers = (statistics.median(each) for each in used.values())
    show("medians", occurrence_cpu_us=schedules, timer_cpu_us=timers, ratio=schedules / timers)


if __name__ == "__main__":
    main()
