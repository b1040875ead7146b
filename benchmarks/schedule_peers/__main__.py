"""Schedules of every minute, beside APScheduler, Celery beat, pg-boss and graphile-worker.

    make schedule-peers                                       everything; up to five minutes for each
    python -m benchmarks.schedule_peers [NAME ...] [--number 10000]

Each stores ``--number`` schedules of ``* * * * *``, and its workers start before the first minute that counts:

1. lag of callbacks after the full minute; CPU time of 49 s from a second before it, of workers and database;
2. in the next minute the workers are killed (-9) when half of its callbacks have arrived, and started again at once;
3. they are killed five seconds before the last full minute, and started again five seconds after it.

Every schedule should have been called three times by the end of that minute. Fewer are missing, more were sent twice.
All are told to make up for what they missed, where they can be told. graphile-worker tries after four hours what a
killed worker had begun.

Redis is the machine's; PostgreSQL is that of ``DUETIME_TEST_POSTGRESQL_URL`` (``scripts/test_databases.sh``).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

from benchmarks.receiver import Receiver
from benchmarks.service import ROOT, cpu_seconds_of, free_port

_HERE = Path(__file__).parent
_TOOLS = ROOT / ".venv-schedule-peers"
_NODE = _TOOLS / "npm"
_MINUTE = 60.0
_STARTS_WITHIN = 40.0
"""Seconds before the first full minute: what was missed while schedules were stored is fired by then."""
_MINUTES = 3


_PYTHON = str(_TOOLS / "bin/python")
_PEERS = {
    "duetime-sqlite": ("sqlite", sys.executable, "duetime_serve.py"),
    "duetime-postgresql": ("postgresql", sys.executable, "duetime_serve.py"),
    "graphile-worker": ("postgresql", str(_NODE / "node_modules/.bin/node"), "graphile.mjs"),
    "pg-boss": ("postgresql", str(_NODE / "node_modules/.bin/node"), "pgboss.mjs"),
    "apscheduler": ("postgresql", _PYTHON, "apscheduler_postgresql.py"),
    "celery-redbeat": ("redis", _PYTHON, "celery_redbeat.py"),
}
"""Store and program, which runs with ``create|worker NUMBER URL``."""


# -- stores ---------------------------------------------------------------------------------------------------


@contextmanager
def empty_store(kind: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """The URL of an empty store, and what tells its server's seconds of CPU."""
    match kind:
        case "sqlite":
            yield f"sqlite:///{folder / 'bench.db'}", lambda: 0.0
        case "redis":
            with _redis(folder) as found:
                yield found
        case _:
            with _database() as found:
                yield found


@contextmanager
def _database() -> Iterator[tuple[str, Callable[[], float]]]:
    server = os.environ["DUETIME_TEST_POSTGRESQL_URL"]
    name = f"schedule_peers_{os.getpid()}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        own = connection.info.backend_pid
        parent = int(Path(f"/proc/{own}/stat").read_text().rsplit(")", 1)[1].split()[1])
        try:
            yield f"{server.rsplit('/', 1)[0]}/{name}", lambda: _cpu_of_tree(parent)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@contextmanager
def _redis(folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    port = free_port()
    options = ["--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--appendonly", "yes"]
    process = subprocess.Popen(["redis-server", *options], stdout=subprocess.DEVNULL)
    try:
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield f"redis://127.0.0.1:{port}/0", lambda: cpu_seconds_of(process.pid)
    finally:
        process.terminate()
        process.wait()


# -- workers --------------------------------------------------------------------------------------------------


def _cpu_of_tree(process_id: int) -> float:
    """Seconds of CPU of a process, of its descendants, and of those of them that have ended."""
    stat = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    own = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{process_id}/task").glob("*/children")
    return own + sum(_cpu_of_tree(int(child)) for found in children for child in found.read_text().split())


class Workers:
    """The processes that fire, as one group: killed and started again together."""

    def __init__(self, program: list[str], number: int, url: str, store_url: str) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_TEST_")}
        self._environment = {**inherited, "PEER_STORE": store_url, "PEER_NODE": str(_NODE), "PYTHONPATH": str(ROOT)}
        self._program, self._arguments = program, [str(number), url]

    def create_schedules(self) -> None:
        subprocess.run(
            [*self._program, "create", *self._arguments], cwd=_HERE, env=self._environment, check=True, timeout=600
        )

    def start(self) -> None:
        self._process = subprocess.Popen(
            [*self._program, "worker", *self._arguments],
            cwd=_HERE,
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def stop(self) -> None:
        """Raises ``RuntimeError`` when they have ended by themselves."""
        if self._process.poll() is not None:
            raise RuntimeError(f"the workers have ended with {self._process.returncode}")
        self._process.terminate()
        self._process.wait(timeout=60)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def cpu_seconds(self) -> float:
        return _cpu_of_tree(self._process.pid)


# -- measuring ------------------------------------------------------------------------------------------------


def _sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def _milliseconds(lags: list[float]) -> str:
    ordered = sorted(lags)
    found = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99, 1.0))
    return ", ".join(f"{name} {lag * 1000:,.0f} ms" for name, lag in zip(("p50", "p99", "max"), found, strict=True))


def measure(peer: str, number: int, folder: Path) -> None:
    """Print what came of one peer's schedules."""
    kind, *program = _PEERS[peer]
    record = folder / "arrivals"
    with empty_store(kind, folder) as (store_url, store_cpu), Receiver("--record", str(record)) as receiver:
        workers = Workers(program, number, receiver.url, store_url)
        began = time.time()
        workers.create_schedules()
        print(f"{peer}: {number} created in {time.time() - began:.1f} s", flush=True)
        first = ((time.time() + _STARTS_WITHIN) // _MINUTE + 1) * _MINUTE
        _sleep_until(first - _STARTS_WITHIN)
        workers.start()
        try:
            _sleep_until(first - 1)
            receiver.reset()
            cpu = workers.cpu_seconds() + store_cpu()
            _sleep_until(first + _MINUTE - 10)
            cpu = workers.cpu_seconds() + store_cpu() - cpu

            _sleep_until(first + _MINUTE - 1)
            receiver.reset()
            while receiver.stats()["requests"] < number / 2 and time.time() < first + _MINUTE + 30:
                time.sleep(0.01)
            workers.kill()
            workers.start()

            _sleep_until(first + 2 * _MINUTE - 5)
            workers.kill()
            _sleep_until(first + 2 * _MINUTE + 5)
            workers.start()

            _sleep_until(first + _MINUTES * _MINUTE - 10)
            workers.stop()
        finally:
            workers.kill()

    arrivals = [(float(at), path) for at, path, *_ in map(str.split, record.read_text().splitlines())]
    lags = [at - first for at, _ in arrivals if first <= at < first + _MINUTE]
    counted = Counter(path for at, path in arrivals if at >= first)
    missing = sum(max(0, _MINUTES - counted[f"/s{n}"]) for n in range(number))
    repeated = sum(max(0, counted[f"/s{n}"] - _MINUTES) for n in range(number))
    print(
        f"{peer}: {len(lags)} of {number} in the first minute, lag {_milliseconds(lags) if lags else 'unknown'},"
        f" CPU {cpu:.1f} s;\n{peer}: of {_MINUTES * number} in all, missing {missing}, sent twice {repeated}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(_PEERS)}; without one: all")
    parser.add_argument("--number", type=int, default=10_000)
    given = parser.parse_args()
    if unknown := {*given.peers} - {*_PEERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    for peer in given.peers or _PEERS:
        with tempfile.TemporaryDirectory() as folder:
            measure(peer, given.number, Path(folder))


if __name__ == "__main__":
    main()
