"""Real processes, real databases, real faults: ``make chaos``.

Each scenario runs a server and its workers on a store, creates timers all the time, and lets something go wrong. A
ledger at the receiver then says what was lost, sent twice, early or late. Prints one table, and fails on anything
lost, early, or sent twice without a fault that excuses it. Nothing leaves this machine, and every load is bounded.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.chaos.cluster import LEASE_SECONDS, Cluster, Load, has_faketime
from tests.chaos.faults import (
    SCENARIOS,
    SERVERS,
    SQLITE,
    Scenario,
    full_disk,
    jumping,
    mount_small,
    unmount,
    wrong_clocks,
)
from tests.chaos.ledger import Disposition, Expected, judge
from tests.chaos.storm import Storm
from tests.support.callbacks import CallbackReceiver
from tests.support.databases import empty_database, server_urls

_SETTLE_SECONDS = 2.0
"""For repeats to show."""
_RECOVERY_SECONDS = 4 * LEASE_SECONDS
_TOTAL_SECONDS = 600
_HEAD = ("store", "scenario", "timers", "lost", "repeated", "doubled", "early", "late", "lag p50", "lag max", "")


@contextmanager
def store_of(name: str, scenario: Scenario) -> Iterator[tuple[str, Path] | None]:
    """The URL of an empty store and a folder for files; None where the scenario cannot be had on this machine."""
    with tempfile.TemporaryDirectory(prefix="duetime-chaos-") as made:
        folder = Path(made)
        if scenario.fault is full_disk and not mount_small(folder):
            yield None
            return
        try:
            yield (f"sqlite:///{folder}/chaos.db" if name == SQLITE else empty_database(name)), folder
        finally:
            if scenario.fault is full_disk:
                unmount(folder)


def run(scenario: Scenario, url: str, folder: Path, *, seconds: float, per_second: int) -> Disposition:
    with CallbackReceiver() as receiver, Cluster(url, folder, receiver) as cluster:
        for worker in [cluster.start_worker() for _ in range(scenario.workers)]:
            worker.wait_for("worker.polling")
        load = Load(cluster, per_second=per_second, seed=1)
        storms = [
            Storm(cluster, number=number, until=time.monotonic() + seconds) for number in range(scenario.storms)
        ]
        for thread in (load, *storms):
            thread.start()
        try:
            scenario.fault(cluster, seconds)
        finally:
            load.stop()
        expected: dict[str, Expected] = dict(load.accepted)
        for storm in storms:
            storm.join()
            expected |= storm.accepted
        await_all(receiver, expected)
        return judge(expected, receiver.arrivals)


def await_all(receiver: CallbackReceiver, expected: dict[str, Expected]) -> None:
    """Until all that must arrive has, or no more can be hoped for."""
    end = time.monotonic() + _RECOVERY_SECONDS
    wanted = {timer_id for timer_id, promise in expected.items() if promise.at_least}
    while time.monotonic() < end and not receiver.counts().keys() >= wanted:
        time.sleep(0.2)
    time.sleep(_SETTLE_SECONDS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    stores = [SQLITE, *(name for name in SERVERS if name in server_urls())]
    parser.add_argument("--store", action="append", choices=stores, help="only this store (may be repeated)")
    names = [scenario.name for scenario in SCENARIOS]
    parser.add_argument("--scenario", action="append", choices=names, help="only this scenario (may be repeated)")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long a fault lasts (default: 10)")
    parser.add_argument("--per-second", type=int, default=60, help="timers created a second (default: 60)")
    given = parser.parse_args()
    end = time.monotonic() + _TOTAL_SECONDS
    failures = 0
    print(row(_HEAD), flush=True)
    for name in given.store or stores:
        for scenario in SCENARIOS:
            if name not in scenario.stores or (given.scenario and scenario.name not in given.scenario):
                continue
            if time.monotonic() > end:
                print(f"{name} {scenario.name}: not run, {_TOTAL_SECONDS} s are over")
                failures += 1
                continue
            failures += not attempt(name, scenario, seconds=given.seconds, per_second=given.per_second)
    print(f"{failures} scenarios broke a promise" if failures else "all promises were kept")
    return min(failures, 1)


def attempt(name: str, scenario: Scenario, *, seconds: float, per_second: int) -> bool:
    """Run a scenario and print its row. False when a promise was broken."""
    if scenario.fault in (wrong_clocks, jumping) and not has_faketime():
        print(f"{name} {scenario.name}: not run, there is no libfaketime (Debian's package faketime)")
        return True
    with store_of(name, scenario) as place:
        if place is None:
            print(f"{name} {scenario.name}: not run, this user may not mount a small file system")
            return True
        disposition = run(scenario, *place, seconds=seconds, per_second=per_second)
    breaches = disposition.breaches(scenario.allowed)
    counts = (
        disposition.accepted,
        disposition.lost,
        disposition.repeated,
        disposition.doubled,
        disposition.early,
        disposition.late,
    )
    lags = (f"{disposition.lag_p50:.2f} s", f"{disposition.lag_max:.2f} s")
    print(
        row((name, scenario.name, *map(str, counts), *lags, "BROKEN: " + ", ".join(breaches) if breaches else "kept"))
    )
    sys.stdout.flush()
    return not breaches


def row(cells: tuple[str, ...]) -> str:
    widths = (11, 16, 7, 6, 9, 8, 6, 6, 8, 8, 0)
    return " ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


if __name__ == "__main__":
    sys.exit(main())
