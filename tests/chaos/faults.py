"""What goes wrong, each as a function that does it to a cluster for some seconds and heals it again."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pymysql
import sqlalchemy as sa

from tests.chaos.cluster import LEASE_SECONDS, Cluster, faked_clock, freeze, jumping_clock, thaw
from tests.chaos.ledger import Allowed

SQLITE = "sqlite"
SERVERS = ("postgresql", "mariadb", "mysql")


@dataclass(frozen=True, slots=True)
class Scenario:
    """``workers`` run beside the server; ``storms`` clients change timers beside the load."""

    name: str
    fault: Callable[[Cluster, float], None]
    allowed: Allowed = Allowed.NOTHING
    stores: tuple[str, ...] = (SQLITE, *SERVERS)
    workers: int = 2
    storms: int = 0


def nothing(cluster: Cluster, seconds: float) -> None:
    time.sleep(seconds)


def kills(cluster: Cluster, seconds: float) -> None:
    """kill -9 of the server or a worker, which is started again at once."""
    chance = random.Random(1)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(chance.uniform(0.5, 2.0))
        if chance.random() < 0.3 and cluster.server is not None:
            cluster.server.kill()
            cluster.start_server()
        else:
            cluster.workers.pop(0).kill()
            cluster.start_worker()


def frozen(cluster: Cluster, seconds: float) -> None:
    """SIGSTOP of a worker for longer than its lease."""
    time.sleep(1)
    freeze(cluster.workers[0])
    time.sleep(max(seconds - 1, LEASE_SECONDS + 3))
    thaw(cluster.workers[0])


def wrong_clocks(cluster: Cluster, seconds: float) -> None:
    """Workers whose clocks are ahead and behind, by less and by more than a lease."""
    workers = [cluster.start_worker(faked_clock(offset)) for offset in ("+5", "-5", "+12", "-12", "+300", "-300")]
    for worker in workers:
        worker.wait_for("worker.polling")
    time.sleep(seconds)


def jumping(cluster: Cluster, seconds: float) -> None:
    """A worker whose clock jumps while it runs."""
    file = cluster.folder / "offset"
    file.write_text("+0")
    cluster.start_worker(jumping_clock(file)).wait_for("worker.polling")
    for offset in ("+30", "-20", "+0"):
        time.sleep(seconds / 4)
        file.write_text(offset)
    time.sleep(seconds / 4)


def killed_connections(cluster: Cluster, seconds: float) -> None:
    """All connections to the database server are cut, once a second."""
    url = sa.make_url(cluster.url)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(1)
        (_cut_postgresql if url.drivername == "postgresql" else _cut_mysql)(url)


def _cut_postgresql(url: sa.URL) -> None:
    with psycopg.connect(host=url.host, port=url.port, user=url.username, dbname="postgres") as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (url.database,)
        )


def _cut_mysql(url: sa.URL) -> None:
    connection = pymysql.connect(host=url.host, port=url.port or 3306, user=url.username)
    with connection, connection.cursor() as cursor:
        cursor.execute("SELECT id FROM information_schema.processlist WHERE db = %s", (url.database,))
        for (thread_id,) in cursor.fetchall():
            with suppress(pymysql.MySQLError):  # it has ended by itself
                cursor.execute("KILL %s", (thread_id,))


def locked(cluster: Cluster, seconds: float) -> None:
    """Somebody else locks the database file for longer than a lease."""
    time.sleep(1)
    with sqlite3.connect(cluster.folder / "chaos.db", isolation_level=None, timeout=30) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        time.sleep(max(seconds - 1, LEASE_SECONDS + 2))
        connection.execute("ROLLBACK")
    connection.close()


def full_disk(cluster: Cluster, seconds: float) -> None:
    """The file system has no room left, for less than a lease: a lease that cannot be renewed is lost."""
    full_seconds = LEASE_SECONDS / 2
    time.sleep(max(1.0, (seconds - full_seconds) / 2))
    ballast = cluster.folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(65536))
    time.sleep(full_seconds)
    ballast.unlink()
    time.sleep(max(1.0, (seconds - full_seconds) / 2))


def mount_small(folder: Path) -> bool:
    """Make ``folder`` a file system of 32 MiB. False where this process may not."""
    command = ["mount", "-t", "tmpfs", "-o", "size=32m", "tmpfs", str(folder)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(folder: Path) -> None:
    subprocess.run(["umount", str(folder)], capture_output=True, check=False)


SCENARIOS = (
    Scenario("calm", nothing),
    Scenario("storm", nothing, storms=8),
    Scenario("kill -9", kills, Allowed.REPEATS),
    Scenario("SIGSTOP", frozen, Allowed.REPEATS),
    Scenario("wrong clocks", wrong_clocks, stores=SERVERS, workers=0),
    Scenario("jumping clock", jumping, stores=SERVERS, workers=1),
    Scenario("connections cut", killed_connections, stores=SERVERS),
    Scenario("locked file", locked, Allowed.REPEATS, stores=(SQLITE,)),
    Scenario("full disk", full_disk, stores=(SQLITE,)),
)
