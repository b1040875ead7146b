"""Schedules beside timers that fire at the same instant, on SQLite; and what computing a next time takes.

    python -m benchmarks.schedules [--number 10000] [--rounds 3]

- next time: microseconds of processor for one occurrence after another, of an expression that was read before.
- at one instant: ``--number`` schedules of every minute, all at the full minute, and as many timers half a minute
  later, in turns. Each occurrence also stores a line of its history, and the schedule's next one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.firing import drain
from benchmarks.receiver import Receiver
from benchmarks.service import Client, Service, running
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import TimingSpec

_CONNECTIONS = 8
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


def create(service: Service, receiver: Receiver, number: int, start_at: float) -> None:
    """Store schedules of every minute that begin at ``start_at``. Raises ``RuntimeError`` when one is refused."""
    errors: list[Any] = []

    def put(mine: range) -> None:
        client = Client(service.port)
        for index in mine:
            body = {
                "every": "1m",
                "startAt": datetime.fromtimestamp(start_at, UTC).isoformat(),
                "callbackUrl": f"{receiver.url}hook",
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


def a_minute(service: Service, receiver: Receiver, number: int, at: float) -> tuple[dict[str, Any], float]:
    """Return what the receiver counts of the minute that begins at ``at``, and the server's seconds of processor."""
    time.sleep(max(0.0, at - 1 - time.time()))
    receiver.reset()
    cpu = service.cpu_seconds()
    time.sleep(max(0.0, at - time.time()))
    while (stats := receiver.stats())["unique"] < number and time.time() < at + _MINUTE / 2:
        time.sleep(0.1)
    time.sleep(0.5)  # the last outcomes are being recorded
    return stats, service.cpu_seconds() - cpu


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--number", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    for spec in _TIMINGS:
        words = " ".join((*spec.cron, *spec.rrule, spec.time_zone)) if not spec.every_ms else "every minute"
        print(f"next time: {next_times(spec):.0f} us, {words}", flush=True)
    used: dict[str, list[float]] = {"schedules": [], "timers": []}
    with (
        tempfile.TemporaryDirectory() as folder,
        Receiver() as receiver,
        running(f"sqlite:///{Path(folder) / 'bench.db'}") as service,
    ):
        ready = time.time() + given.number / _CREATED_PER_SECOND
        at = (ready // _MINUTE + 1) * _MINUTE
        create(service, receiver, given.number, at)
        for _ in range(given.rounds):
            stats, cpu = a_minute(service, receiver, given.number, at)
            at += _MINUTE
            used["schedules"].append(cpu / given.number * 1e6)
            late = stats["latenessMs"]
            print(
                f"schedules: {stats['unique']} of {given.number}, duplicates"
                f" {stats['requests'] - stats['unique']}, lag p50 {late['p50']:.0f} ms, p99 {late['p99']:.0f} ms,"
                f" max {late['max']:.0f} ms; {used['schedules'][-1]:.0f} us of CPU each",
                flush=True,
            )
            drained = drain(service, receiver, given.number)
            used["timers"].append(drained.cpu_seconds / given.number * 1e6)
            print(
                f"timers: {drained.arrived} of {given.number}, all within {drained.seconds * 1000:.0f} ms;"
                f" {used['timers'][-1]:.0f} us of CPU each",
                flush=True,
            )
    schedules, timers = (statistics.median(each) for each in used.values())
    print(f"CPU of an occurrence {schedules:.0f} us, of a timer {timers:.0f} us: ratio {schedules / timers:.2f}")


if __name__ == "__main__":
    main()
