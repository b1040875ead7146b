"""The whole fleet stopped and started again under load, then killed (-9) and started again.

    python -m benchmarks.peers.restart [NAME ...] [--rate 500]

``--rate`` timers/s for a minute, stored before, and a receiver that answers after ``--delay-ms``. The fleet is two
processes. After 15 s both get SIGTERM, and are started again when they have ended; after 30 s both are killed and
started again at once. What has not come two minutes after the last was due is missing: graphile-worker tries after
four hours what a killed worker had taken, pg-boss after ``expireInSeconds`` (30), when a monitor has seen it.
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

_SECONDS = 60
_WAITS_SECONDS = 120
_STARTS_BEFORE = 8.0


def measure(peer: str, folder: Path, *, rate: int, delay_ms: float, storing_s: float) -> None:
    """Print what came of one peer's timers."""
    number, record = rate * _SECONDS, folder / "arrivals"
    with (
        empty_store(peer, folder) as (store_url, _),
        Receiver("--record", str(record), "--delay-ms", str(delay_ms)) as receiver,
        Program(peer, store_url, processes=2) as workers,
    ):
        first = time.time() + storing_s + _STARTS_BEFORE
        with workers.feeding() as put:
            put([timer("slow", n, first + n / rate, receiver.url) for n in range(number)])
        if time.time() > first - _STARTS_BEFORE:
            raise RuntimeError("storing took longer than --storing-s")
        command = ("fire", f"slow={rate}")
        sleep_until(first - _STARTS_BEFORE)
        workers.start(*command)

        sleep_until(first + 15)
        stopping = time.time()
        workers.stop()
        stopped_seconds = time.time() - stopping
        workers.start(*command)

        sleep_until(first + 30)
        workers.kill()
        workers.start(*command)

        end = first + _SECONDS + _WAITS_SECONDS
        while receiver.stats()["unique"] < number and time.time() < end:
            time.sleep(1)
        time.sleep(5)  # what is sent twice
    found = arrivals(record)
    late = lateness(found, lambda n: first + n / rate)
    show(
        peer,
        timers=number,
        missing=number - len(late),
        sent_twice=len(found) - len(late),
        stopping_s=stopped_seconds,
        **lags(late.values()),
    )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(TIMER_PEERS)}; default: all")
    arguments.add_argument("--rate", type=int, default=500)
    arguments.add_argument("--delay-ms", type=float, default=200)
    arguments.add_argument("--storing-s", type=float, default=60, help="the first is due so much later")
    given = arguments.parse_args()
    for peer, folder in each_peer(given.peers, TIMER_PEERS):
        measure(peer, folder, rate=given.rate, delay_ms=given.delay_ms, storing_s=given.storing_s)


if __name__ == "__main__":
    main()
