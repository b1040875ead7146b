"""How long others wait for a neighbour's backlog after a start: the promise of docs/operations.md, measured.

    python -m benchmarks.backlog [--overdue 100000 200000] [--rounds 1] [--callback-ms 0] [--beside FOLDER]

``--overdue`` timers of the namespace ``noisy`` are overdue, and 32 of ``quiet`` behind all of them, in 16 shards. A
``duetime worker`` starts. Shown are the seconds from its line ``shard.claimed`` until the last of the 32 has arrived
(none: not within two minutes), beside what is promised (1 s, and 1 s for each 100,000), the CPU time of the worker
meanwhile, which tells more on a busy machine, and what has arrived of ``noisy`` by then.

On a file of SQLite, and on each server that ``DUETIME_TEST_<STORE>_URL`` names. ``--callback-ms``: how long the noisy
endpoint takes (30000: it hangs). ``--beside``: another checkout, whose worker takes turns with this one's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from benchmarks.figures import parser, show
from benchmarks.receiver import Receiver
from benchmarks.service import ROOT, cpu_seconds_of
from duetime.domain.timers import TimerContent, content_digest, new_timer
from duetime.runtime.ids import new_id
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode
from tests.support.server_stores import empty_store, server_names

QUIET = 32
_SHARDS = 16
_BATCH = 500
_LONGEST_SECONDS = 120.0


def store_overdue(store_url: str, noisy: int, noisy_url: str, quiet_url: str) -> datetime:
    """Put the timers straight into the store; return when those of ``quiet`` were due."""
    store = open_store(store_url)
    store.initialise()
    now = datetime.now(UTC).replace(microsecond=0)
    quiet_at = now - timedelta(seconds=1)
    for name, number, url in (("noisy", noisy, noisy_url), ("quiet", QUIET, quiet_url)):
        namespace, _ = store.catalogue.create_namespace(name, num_shards=_SHARDS, dedicated=False, now=now)
        for start in range(0, number, _BATCH):
            batch = []
            for index in range(start, min(start + _BATCH, number)):
                at = quiet_at if name == "quiet" else quiet_at - timedelta(seconds=1 + 3600 * index / number)
                content = TimerContent(
                    execute_at=at, callback_url=url, payload_json='{"order": 4711, "step": "remind"}'
                )
                digest = content_digest(content)
                batch.append(new_timer(namespace, f"{index}", content, digest=digest, firing_id=new_id(), now=now))
            store.timers.put(batch, mode=PutMode.CREATE, now=now)
    store.close()
    return quiet_at


@contextmanager
def claimed_by_worker(store_url: str, source: Path) -> Iterator[int]:
    """Yield the process id of a worker of the checkout ``source`` that has just said that it claimed the shards."""
    process = subprocess.Popen(
        [sys.executable, "-m", "duetime.cli", "worker", "--stop-on-eof"],
        env={
            **os.environ,
            "PYTHONPATH": str(source / "shared"),
            "DUETIME_STORE": store_url,
            "DUETIME_DRAIN_SECONDS": "1",
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if " shard.claimed " in line:
                yield process.pid
                return
        raise RuntimeError("the worker ended before it had claimed anything; run `duetime worker` to see why")
    finally:
        process.kill()
        process.communicate(timeout=60)


@dataclass(frozen=True)
class Wait:
    """``seconds`` until all of ``quiet`` have arrived (None: they did not); ``fired``: of ``noisy`` by then."""

    seconds: float | None
    cpu_seconds: float
    fired: int


def measure(store_url: str, noisy: int, callback_ms: float, source: Path) -> Wait:
    with Receiver() as quiet, Receiver("--delay-ms", str(callback_ms)) as other:
        due_at = store_overdue(store_url, noisy, other.url, quiet.url)
        with claimed_by_worker(store_url, source) as process_id:
            claimed_at, cpu = time.time(), cpu_seconds_of(process_id)
            end = claimed_at + _LONGEST_SECONDS
            while (stats := quiet.stats())["unique"] < QUIET and time.time() < end:
                time.sleep(0.02)
            cpu = cpu_seconds_of(process_id) - cpu
            fired = other.stats()["unique"]
    arrived_at = due_at.timestamp() + stats["latenessMs"].get("max", 0.0) / 1000
    return Wait(arrived_at - claimed_at if stats["unique"] == QUIET else None, cpu, fired)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--overdue", type=int, nargs="+", default=[100_000, 200_000])
    options.add_argument("--rounds", type=int, default=1)
    options.add_argument("--callback-ms", type=float, default=0.0)
    options.add_argument("--beside", type=Path)
    given = options.parse_args()
    sources = [ROOT] if given.beside is None else [ROOT, given.beside.resolve()]
    for noisy in given.overdue:
        for name in ["sqlite", *server_names()]:
            for _ in range(given.rounds):
                for source in sources:
                    with tempfile.TemporaryDirectory() as folder:
                        url = f"sqlite:///{folder}/backlog.db" if name == "sqlite" else empty_store(name)
                        waited = measure(url, noisy, given.callback_ms, source)
                    show(
                        f"{name}, {noisy} overdue",
                        others_waited_s=waited.seconds,
                        promised_s=1 + noisy / 100_000,
                        cpu_s=waited.cpu_seconds,
                        fired_of_neighbour=waited.fired,
                        checkout=str(source),
                        load=os.getloadavg()[0],
                    )


if __name__ == "__main__":
    main()
