"""CPU per timer of this checkout and of another one, side by side in one run.

    python -m benchmarks.lone_timers OTHER_CHECKOUT [--rate 200] [--seconds 15] [--timers 20000] [--rounds 3]
        [--stores URL URL]

- lone: ``--rate`` timers a second, evenly spread: each one wakes the service alone.
- drain: ``--timers`` at one instant.

Both servers run at once, one process each, on a store of their own (SQLite, or ``--stores``: two empty databases,
whose own CPU is not counted), and take turns: while one is measured, the other is idle. CPU time says what the wall
clock cannot on a machine that does other work, too. Lag is printed to be compared.
"""

from __future__ import annotations

import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path

from benchmarks.figures import parser, show
from benchmarks.firing import drain, precision
from benchmarks.receiver import Receiver
from benchmarks.service import ROOT, running

_CREATES_PER_SECOND = 500.0
"""On a busy machine, too: no timer may be due before all are stored."""


def main() -> None:
    options = parser(__doc__)
    options.add_argument("other", type=Path)
    options.add_argument("--rate", type=int, default=200)
    options.add_argument("--seconds", type=int, default=15)
    options.add_argument("--timers", type=int, default=20_000)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--stores", nargs=2, metavar="URL")
    given = options.parse_args()
    measured: dict[str, dict[str, list[float]]] = {name: {"lone": [], "drain": []} for name in ("this", "other")}
    with (
        tempfile.TemporaryDirectory() as folder,
        Receiver() as receiver,
        ExitStack() as servers,
    ):
        stores = given.stores or [f"sqlite:///{Path(folder) / name}.db" for name in measured]
        this, other = (
            servers.enter_context(running(store, "--workers", "1", root=root))
            for store, root in zip(stores, (ROOT, given.other.resolve()), strict=True)
        )
        for _ in range(given.rounds):
            for name, service in (("this", this), ("other", other)):
                switches = service.context_switches()
                lone = precision(service, receiver, given.rate, given.seconds, creates_per_second=_CREATES_PER_SECOND)
                switches = service.context_switches() - switches
                drained = drain(service, receiver, given.timers, creates_per_second=_CREATES_PER_SECOND)
                measured[name]["lone"].append(lone.cpu_seconds / lone.wanted * 1e6)
                measured[name]["drain"].append(drained.cpu_seconds / drained.wanted * 1e6)
                show(
                    f"{name}, lone",
                    cpu_us_each=measured[name]["lone"][-1],
                    switches_each=switches / lone.wanted,
                    lag_p50_ms=lone.late["p50"],
                    lag_p99_ms=lone.late["p99"],
                    timers=lone.wanted,
                    arrived=lone.arrived,
                )
                show(
                    f"{name}, drain",
                    cpu_us_each=measured[name]["drain"][-1],
                    per_s=drained.rate,
                    timers=drained.wanted,
                    arrived=drained.arrived,
                    duplicates=drained.duplicates,
                )
    for kind in ("lone", "drain"):
        own, others = (statistics.median(measured[name][kind]) for name in ("this", "other"))
        show(kind, cpu_us_each=own, other_cpu_us_each=others, ratio=own / others)


if __name__ == "__main__":
    main()
