"""Schedules beside timers that fire at the same instant, on SQLite; and what computing a next time takes.

    python -m benchmarks.schedules [--number 10000] [--rounds 3] [--stored 10000]
    python -m benchmarks.schedules --stored 1000000 --number 100000 --rounds 1

- next time: microseconds of processor for one occurrence after another, of an expression that was read before.
- at one instant: ``--number`` schedules, all at one full minute (every minute for each 10,000 of them), and as many
  timers when these are through, in turns. Each occurrence also stores a line of its history, and the schedule's next
  one.

All are put into the store in batches, in place of requests. Of ``--stored`` schedules the others occur once a day, at
any minute of it, from a month ahead on.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from benchmarks.figures import parser, show
from benchmarks.firing import drain
from benchmarks.receiver import Receiver
from benchmarks.service import Service, running
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import SchedulePolicy, new_schedule
from duetime.domain.timers import Timer, TimerContent
from duetime.recurrence.occurrences import recurrence
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode

_BATCH = 1000
_MINUTE = 60.0
_STORED_PER_SECOND = 1000.0
"""On a busy machine, too: all are stored before the first minute that counts."""
_CREATED_PER_SECOND = 500.0
"""Timers, by requests."""
_STARTS_WITHIN = 15.0
_MONTH_AHEAD = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) + timedelta(days=30)
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


def store_schedules(store_url: str, name: str, number: int, timing: Callable[[int], TimingSpec], url: str) -> None:
    """Put that many schedules with the times of ``timing`` straight into the store; ``url`` ends in a slash."""
    store = open_store(store_url)
    store.initialise()
    now = datetime.now(UTC).replace(microsecond=0)
    namespace, _ = store.catalogue.create_namespace("default", num_shards=16, dedicated=False, now=now)

    def made(index: int) -> Timer:
        spec, schedule_id = timing(index), f"{name}{index}"
        schedule = new_schedule(SchedulePolicy(), occurrences_by(spec, schedule_id, lambda _: None), after=now)
        content = TimerContent(
            execute_at=now,
            callback_url=f"{url}{schedule_id}",
            payload_json=f'{{"n":{index}}}',
            timing_json=timing_json(spec),
        )
        return new_schedule_timer(namespace, schedule_id, content, schedule, digest="", now=now)

    for start in range(0, number, _BATCH):
        batch = [made(index) for index in range(start, min(start + _BATCH, number))]
        store.timers.put(batch, mode=PutMode.CREATE, now=now)
    store.close()


def daily(index: int) -> TimingSpec:
    minute = index % 1440
    return TimingSpec(cron=(f"{minute % 60} {minute // 60} * * *",), start_at=_MONTH_AHEAD)


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
    options.add_argument("--stored", type=int, default=0, help="schedules in all; default: those of --number")
    given = options.parse_args()
    for spec in _TIMINGS:
        words = " ".join((*spec.cron, *spec.rrule, spec.time_zone)) if not spec.every_ms else "every minute"
        show(f"next time, {words}", cpu_us_each=next_times(spec))
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        store_url = f"sqlite:///{Path(folder) / 'bench.db'}"
        others = max(0, given.stored - given.number)
        began = time.perf_counter()
        store_schedules(store_url, "later", others, daily, receiver.url)
        if others:
            show("stored", schedules=others, seconds=time.perf_counter() - began)
        compare(store_url, receiver, given)


def compare(store_url: str, receiver: Receiver, given: argparse.Namespace) -> None:
    used: dict[str, list[float]] = {"schedules": [], "timers": []}
    ready = time.time() + given.number / _STORED_PER_SECOND + _STARTS_WITHIN
    at = (ready // _MINUTE + 1) * _MINUTE
    minutes = math.ceil(given.number / 10_000)
    start = datetime.fromtimestamp(at, UTC)
    every = TimingSpec(every_ms=minutes * 60_000, anchor=start, start_at=start)
    store_schedules(store_url, "s", given.number, lambda _: every, receiver.url)
    with running(store_url) as service:
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
            drained = drain(service, receiver, given.number, creates_per_second=_CREATED_PER_SECOND)
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
