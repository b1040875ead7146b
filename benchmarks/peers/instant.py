"""Many timers at one instant whose receiver takes its time, and a quiet stream beside them.

    python -m benchmarks.peers.instant [NAME ...] [--number 100000] [--concurrency 500]

``--number`` timers of the queue "slow" are due at one instant; their receiver answers after ``--delay-ms``. The queue
"quick" has 20 timers/s and a receiver of its own, which answers at once. All are stored before the workers start,
eight seconds before the instant. One worker process may have ``--concurrency`` callbacks of "slow" in flight:

- Duetime by ``MAX_IN_FLIGHT``, of which one host gets half, and one namespace three quarters of that;
- graphile-worker by a runner of its own (``concurrentJobs``): in a shared one the quick jobs would wait for all slow
  ones that were due before them;
- pg-boss by workers of its own, each with batches of 50 jobs.

Told are the time to drain, the least that it can be, and how late the quick timers were that were due meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks.figures import parser, show
from benchmarks.peers.harness import (
    TIMER_PEERS,
    Program,
    arrivals,
    each_peer,
    empty_store,
    lags,
    lateness,
    sleep_until,
    timer,
)
from benchmarks.receiver import Receiver

_QUICK_PER_SECOND = 20
_STARTS_BEFORE = 8.0


def measure(peer: str, folder: Path, *, number: int, concurrency: int, delay_ms: float, storing_s: float) -> None:
    """Print how one peer's timers were drained."""
    least = number * delay_ms / 1000 / concurrency
    records = {queue: folder / queue for queue in ("slow", "quick")}
    with (
        empty_store(peer, folder) as (store_url, store_cpu),
        Receiver("--record", str(records["slow"]), "--delay-ms", str(delay_ms)) as slow,
        Receiver("--record", str(records["quick"])) as quick,
        Program(peer, store_url) as workers,
    ):
        began = time.time()
        instant = began + storing_s + _STARTS_BEFORE
        quick_number = int(_QUICK_PER_SECOND * (2 * least + 5))
        timers = [timer("slow", n, instant, slow.url) for n in range(number)]
        timers += [timer("quick", n, instant + n / _QUICK_PER_SECOND, quick.url) for n in range(quick_number)]
        with workers.feeding() as put:
            put(timers)
        stored_seconds = time.time() - began
        if time.time() > instant - _STARTS_BEFORE:
            raise RuntimeError(f"storing took {stored_seconds:.0f} s, longer than --storing-s")
        sleep_until(instant - _STARTS_BEFORE)
        workers.start("fire", f"slow={concurrency}", "quick=24")
        sleep_until(instant - 0.5)
        cpu, cpu_of_store = workers.cpu_seconds(), store_cpu()
        end = instant + 5 * least + 60
        while (stats := slow.stats())["unique"] < number and time.time() < end:
            time.sleep(0.5)
        cpu, cpu_of_store = workers.cpu_seconds() - cpu, store_cpu() - cpu_of_store
        time.sleep(2)
    found = {queue: arrivals(record) for queue, record in records.items()}
    last = max(at for at, _ in found["slow"])
    late = lateness(found["quick"], lambda n: instant + n / _QUICK_PER_SECOND)
    meanwhile = range(min(quick_number, int(max(0.0, last - instant) * _QUICK_PER_SECOND)))
    sent = {n for _, n in found["slow"]}
    show(
        peer,
        stored_s=stored_seconds,
        drained_s=last - instant,
        least_s=least,
        missing=number - len(sent),
        sent_twice=len(found["slow"]) - len(sent),
        cpu_us_per_timer=cpu / number * 1e6,
        cpu_of_server_us_per_timer=cpu_of_store / number * 1e6,
        receiver_busy=stats["cpuSeconds"] / (last - instant),
        most_connections=stats["peakConnections"],
        quick_meanwhile=len(meanwhile),
        quick_missing=sum(n not in late for n in meanwhile),
        **lags(late[n] for n in meanwhile if n in late),
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(TIMER_PEERS)}; default: all")
    arguments.add_argument("--number", type=int, default=100_000)
    arguments.add_argument("--concurrency", type=int, default=500)
    arguments.add_argument("--delay-ms", type=float, default=200)
    arguments.add_argument("--storing-s", type=float, default=120, help="the instant comes so much later")
    given = arguments.parse_args()
    for peer, folder in each_peer(given.peers, TIMER_PEERS):
        measure(
            peer,
            folder,
            number=given.number,
            concurrency=given.concurrency,
            delay_ms=given.delay_ms,
            storing_s=given.storing_s,
        )


if __name__ == "__main__":
    main()
