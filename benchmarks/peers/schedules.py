"""Schedules of every minute, beside APScheduler, Celery beat, pg-boss and graphile-worker.

    python -m benchmarks.peers.schedules [NAME ...] [--number 10000]

Each stores ``--number`` schedules of ``* * * * *``, and its workers start before the first minute that counts:

1. lag of callbacks after the full minute; CPU time of 49 s from a second before it, of workers and database;
2. in the next minute the workers are killed (-9) when half of its callbacks have arrived, and started again at once;
3. they are killed five seconds before the last full minute, and started again five seconds after it.

Every schedule should have been called three times by the end of that minute. Fewer are missing, more were sent twice.
All are told to make up for what they missed, where they can be told. graphile-worker tries after four hours what a
killed worker had begun. It takes up to five minutes for each.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

from benchmarks.figures import parser, show
from benchmarks.peers.harness import SCHEDULE_PEERS, Program, arrivals, each_peer, empty_store, lags, sleep_until
from benchmarks.receiver import Receiver

_MINUTE = 60.0
_STARTS_WITHIN = 40.0
"""Seconds before the first full minute: what was missed while schedules were stored is fired by then."""
_MINUTES = 3


def measure(peer: str, number: int, folder: Path) -> None:
    """Print what came of one peer's schedules."""
    record = folder / "arrivals"
    with (
        empty_store(peer, folder) as (store_url, store_cpu),
        Receiver("--record", str(record)) as receiver,
        Program(peer, store_url) as workers,
    ):
        given = (str(number), receiver.url)
        began = time.time()
        workers.run("create", *given)
        created_s = time.time() - began
        first = ((time.time() + _STARTS_WITHIN) // _MINUTE + 1) * _MINUTE
        sleep_until(first - _STARTS_WITHIN)
        workers.start("worker", *given)
        sleep_until(first - 1)
        receiver.reset()
        cpu = workers.cpu_seconds() + store_cpu()
        sleep_until(first + _MINUTE - 10)
        cpu = workers.cpu_seconds() + store_cpu() - cpu

        sleep_until(first + _MINUTE - 1)
        receiver.reset()
        while receiver.stats()["requests"] < number / 2 and time.time() < first + _MINUTE + 30:
            time.sleep(0.01)
        workers.kill()
        workers.start("worker", *given)

        sleep_until(first + 2 * _MINUTE - 5)
        workers.kill()
        sleep_until(first + 2 * _MINUTE + 5)
        workers.start("worker", *given)

        sleep_until(first + _MINUTES * _MINUTE - 10)
        workers.stop()

    found = arrivals(record, prefix="/s")
    counted = Counter(number for at, number in found if at >= first)
    late = [at - first for at, _ in found if first <= at < first + _MINUTE]
    show(
        peer,
        created_s=created_s,
        in_the_first_minute=len(late),
        **lags(late),
        cpu_s=cpu,
        sent=_MINUTES * number,
        missing=sum(max(0, _MINUTES - counted[n]) for n in range(number)),
        sent_twice=sum(max(0, counted[n] - _MINUTES) for n in range(number)),
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(SCHEDULE_PEERS)}; default: all")
    arguments.add_argument("--number", type=int, default=10_000)
    given = arguments.parse_args()
    for peer, folder in each_peer(given.peers, SCHEDULE_PEERS):
        measure(peer, given.number, folder)


if __name__ == "__main__":
    main()
