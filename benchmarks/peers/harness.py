"""What the measures beside others share: empty stores, workers that are killed and started again, and their lags.

PostgreSQL is that of ``DUETIME_TEST_POSTGRESQL_URL`` (``scripts/test_databases.sh``); Redis is the machine's.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import psycopg

from benchmarks.figures import show
from benchmarks.service import ROOT, cpu_seconds_of, free_port

_HERE = Path(__file__).parent
_TOOLS = ROOT / ".venv-peers"
_NODE = _TOOLS / "npm"
_PYTHON, _NODE_PROGRAM = str(_TOOLS / "bin/python"), str(_NODE / "node_modules/.bin/node")
_PROGRAMS = {
    "duetime-sqlite": ("sqlite", sys.executable, "duetime_serve.py"),
    "duetime-postgresql": ("postgresql", sys.executable, "duetime_serve.py"),
    "graphile-worker": ("postgresql", _NODE_PROGRAM, "graphile.mjs"),
    "pg-boss": ("postgresql", _NODE_PROGRAM, "pgboss.mjs"),
    "apscheduler": ("postgresql", _PYTHON, "apscheduler_postgresql.py"),
    "celery-redbeat": ("redis", _PYTHON, "celery_redbeat.py"),
}
"""Store and program. A program runs with ``create NUMBER URL``, ``worker NUMBER URL`` for schedules. Those of
``TIMER_PEERS`` also run with ``feed`` and ``fire QUEUE=CONCURRENCY ...``."""
SCHEDULE_PEERS = tuple(_PROGRAMS)
TIMER_PEERS = SCHEDULE_PEERS[:4]
_BATCH = 1000
"""Timers that a peer's program stores at once, at most."""
_PRINTED = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum")


def each_peer(given: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, Path]]:
    """Yield the peers of one run, one after the other, and a folder for each. Before them versions and durability are
    told.

    Raises ``SystemExit`` for one that is not known.
    """
    if unknown := {*given} - {*known}:
        raise SystemExit(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    lock = json.loads((_HERE / "package.json").read_text())["dependencies"]
    with _postgresql() as connection:
        settings = {name: connection.execute(f"SHOW {name}").fetchall()[0][0] for name in _PRINTED}
        show("versions", duetime=version("duetime"), postgresql=str(connection.info.server_version), **lock)
        show("durability of PostgreSQL", **settings)
    show("durability of SQLite", journal_mode="wal", synchronous="normal")
    for peer in given or known:
        with tempfile.TemporaryDirectory() as folder:
            yield peer, Path(folder)


# -- stores ---------------------------------------------------------------------------------------------------


@contextmanager
def empty_store(peer: str, folder: Path) -> Iterator[tuple[str, Callable[[], float]]]:
    """Yield the URL of an empty store for a peer, and what tells its server's seconds of CPU."""
    match _PROGRAMS[peer][0]:
        case "sqlite":
            yield f"sqlite:///{folder / 'bench.db'}", lambda: 0.0
        case "redis":
            with _redis(folder) as found:
                yield found
        case _:
            with _database() as found:
                yield found


def _postgresql() -> psycopg.Connection[Any]:
    return psycopg.connect(os.environ["DUETIME_TEST_POSTGRESQL_URL"], autocommit=True)


@contextmanager
def _database() -> Iterator[tuple[str, Callable[[], float]]]:
    name = f"peers_{os.getpid()}"
    with _postgresql() as connection:
        connection.execute(f"CREATE DATABASE {name}")
        own = connection.info.backend_pid
        parent = int(Path(f"/proc/{own}/stat").read_text().rsplit(")", 1)[1].split()[1])
        try:
            server = os.environ["DUETIME_TEST_POSTGRESQL_URL"]
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


# -- programs of peers ----------------------------------------------------------------------------------------


def _cpu_of_tree(process_id: int) -> float:
    """Seconds of CPU of a process, of its descendants, and of those of them that have ended."""
    stat = Path(f"/proc/{process_id}/stat").read_text().rsplit(")", 1)[1].split()
    own = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
    children = Path(f"/proc/{process_id}/task").glob("*/children")
    return own + sum(_cpu_of_tree(int(child)) for found in children for child in found.read_text().split())


class Program:
    """A peer's program with its store. ``processes``: how many of them its workers are."""

    def __init__(self, peer: str, store_url: str, *, processes: int = 1) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("DUETIME_TEST_")}
        own = {"PEER_STORE": store_url, "PEER_NODE": str(_NODE), "PEER_PORT": str(free_port())}
        self._environment = {**inherited, **own, "PYTHONPATH": str(ROOT)}
        self._program = _PROGRAMS[peer][1:]
        self._number = processes
        self._workers: list[subprocess.Popen[bytes]] = []

    def _start(self, *arguments: str, index: int = 0, **options: Any) -> subprocess.Popen[bytes]:
        environment = {**self._environment, "PEER_INDEX": str(index)}
        return subprocess.Popen([*self._program, *arguments], cwd=_HERE, env=environment, **options)

    def run(self, *arguments: str, timeout_seconds: float = 600) -> None:
        """Run it to its end. Raises ``RuntimeError`` when it fails."""
        if (status := self._start(*arguments).wait(timeout_seconds)) != 0:
            raise RuntimeError(f"{' '.join(arguments)} has ended with {status}")

    @contextmanager
    def feeding(self, *, is_live: bool = False) -> Iterator[Callable[[list[dict[str, Any]]], None]]:
        """Yield what stores timers, in the order in which it is given them: all are stored after the block.

        ``is_live``: the workers run, and are told of them where they are whom clients tell.
        """
        process = self._start("feed", *(["live"] if is_live else []), stdin=subprocess.PIPE)
        assert process.stdin is not None
        stdin = process.stdin

        def put(timers: list[dict[str, Any]]) -> None:
            for start in range(0, len(timers), _BATCH):
                stdin.write(json.dumps(timers[start : start + _BATCH]).encode() + b"\n")
                stdin.flush()

        try:
            yield put
        except BaseException:
            process.kill()
            raise
        finally:
            stdin.close()
        if (status := process.wait(600)) != 0:
            raise RuntimeError(f"feed has ended with {status}")

    def start(self, *arguments: str) -> Self:
        """Start the workers, each a process group, which ``kill`` kills as one."""
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "start_new_session": True}
        self._workers = [self._start(*arguments, index=index, **quiet) for index in range(self._number)]
        return self

    def stop(self) -> None:
        """Stop the workers. Raises ``RuntimeError`` when they have ended by themselves."""
        for process in self._workers:
            if process.poll() is not None:
                raise RuntimeError(f"a worker has ended with {process.returncode}")
            process.terminate()
        for process in self._workers:
            process.wait(timeout=60)

    def kill(self) -> None:
        for process in self._workers:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self._workers:
            process.wait()

    def cpu_seconds(self) -> float:
        return sum(_cpu_of_tree(process.pid) for process in self._workers)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


# -- timers and their arrivals --------------------------------------------------------------------------------


def timer(queue: str, number: int, at: float, url: str) -> dict[str, Any]:
    """Return what ``feed`` takes: ``url`` gets a POST at ``at``, in seconds since 1970, on the path ``/<number>``."""
    return {"queue": queue, "n": number, "at": round(at * 1000), "url": f"{url}{number}"}


def sleep_until(at: float) -> None:
    time.sleep(max(0.0, at - time.time()))


def arrivals(record: Path, *, prefix: str = "/") -> list[tuple[float, int]]:
    """When each POST came that a receiver has recorded, and its number."""
    lines = (line.split() for line in record.read_text().splitlines())
    return [(float(at), int(path.removeprefix(prefix))) for at, path, *_ in lines]


def lags(found: Iterable[float]) -> dict[str, float]:
    """Percentiles of seconds, in milliseconds."""
    ordered = sorted(found)
    parts = (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0))
    return {
        f"lag_{name}_ms": ordered[min(int(len(ordered) * part), len(ordered) - 1)] * 1000
        for name, part in parts
        if ordered
    }


def lateness(found: Sequence[tuple[float, int]], due: Callable[[int], float]) -> dict[int, float]:
    """How late the first arrival of each number was, in seconds."""
    late: dict[int, float] = {}
    for at, number in found:
        late.setdefault(number, at - due(number))
    return late
