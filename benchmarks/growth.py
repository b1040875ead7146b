"""What a growing number of pending timers changes, in one store that grows. The chart of docs/performance.md.

    python -m benchmarks.growth [--sizes 10000 100000 1000000] [--store URL]
    python -m benchmarks.growth --sizes 10000 100000 1000000 3000000 --json > docs/performance/growth.jsonl
    python -m benchmarks.growth --draw docs/performance/growth.jsonl > docs/performance/growth.svg

At each size timers of the far future are put into the store, in batches of 500 by one process, until there are that
many. They have a payload of 206 bytes. Then a server with one poller starts: the CPU of idling, how late 200 timers a
second are, the drain of 20,000 that are due at one instant, and its memory after that.

``bytes_per_timer``: by how much the file has grown for each of the new ones; of SQLite alone. ``--store``: an empty
one; default: a file of SQLite, which is removed afterwards.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from itertools import pairwise
from pathlib import Path

from benchmarks.figures import note, parser, show
from benchmarks.firing import drain, idle_share, precision, store_pending
from benchmarks.growth_chart import draw
from benchmarks.receiver import Receiver
from benchmarks.service import running

_SIZES = [10_000, 100_000, 1_000_000]
_PAYLOAD = json.dumps({"order": 4711, "kind": "invoice.reminder", "note": "x" * 151})
_DRAINED = 20_000
_RATE = 200
_SECONDS = 20
_CREATES_PER_SECOND = 1500.0
"""On a busy machine, too: nothing is due before all of it is stored."""


def measure(store_url: str, file: Path | None, before: int, size: int, receiver: Receiver) -> None:
    bytes_before = file.stat().st_size if file else 0
    began, cpu = time.perf_counter(), time.process_time()
    store_pending(store_url, size, first=before, payload_json=_PAYLOAD)
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    bytes_each = (file.stat().st_size - bytes_before) / (size - before) if file else None
    with running(store_url, "--workers", "1") as service:
        idle = idle_share(service, _SECONDS)
        late = precision(service, receiver, _RATE, _SECONDS, creates_per_second=_CREATES_PER_SECOND)
        drained = drain(service, receiver, _DRAINED, creates_per_second=_CREATES_PER_SECOND)
        memory = service.memory_mib()
    if late.arrived + drained.arrived < late.wanted + drained.wanted:
        raise RuntimeError(f"of {late.wanted} and {drained.wanted} only {late.arrived} and {drained.arrived} arrived")
    show(
        f"{size:,} pending",
        pending=size,
        created_per_s=(size - before) / seconds,
        create_cpu_us=cpu / (size - before) * 1e6,
        bytes_per_timer=bytes_each,
        memory_mib=memory,
        idle_percent_of_core=idle * 100,
        lag_p50_ms=late.late["p50"],
        lag_p99_ms=late.late["p99"],
        drained_per_s=drained.rate,
        drain_cpu_us=drained.cpu_seconds / drained.wanted * 1e6,
        load=os.getloadavg()[0],
    )


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sizes", type=int, nargs="+", default=_SIZES)
    options.add_argument("--store", metavar="URL")
    options.add_argument("--draw", type=Path, metavar="FILE", help="print the chart of what --json printed")
    given = options.parse_args()
    if given.sizes != sorted({*given.sizes}) or given.sizes[0] < 1:
        options.error("--sizes: each must be larger than the one before it, and the first more than 0")
    if given.draw is not None:
        print(draw([json.loads(line) for line in given.draw.read_text().splitlines()]))
        return
    with tempfile.TemporaryDirectory() as folder, Receiver() as receiver:
        file = Path(folder) / "growth.db" if given.store is None else None
        store_url = given.store or f"sqlite:///{file}"
        store_pending(store_url, 0)  # a store without timers
        for before, size in pairwise([0, *given.sizes]):
            note(f"{size:,} ...")
            measure(store_url, file, before, size, receiver)


if __name__ == "__main__":
    main()
