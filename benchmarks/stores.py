"""SQLite, PostgreSQL, MariaDB, MySQL and Cassandra side by side in one run: create, drain, precision, requests.

    eval "$(scripts/test_databases.sh)"
    python -m benchmarks.stores [--rounds 3] [--timers 5000] [--rate 200] [--seconds 8]

- store: timers created in batches of 500, read when due, recorded in batches of 400, by one thread that does nothing
  else, and the requests to the database that it took.
- service: ``duetime serve`` with one poller and a loopback receiver: timers created over HTTP, drained when all are
  due at one instant, and fired when they are due one after the other (precision).

The stores take turns, round by round; the medians of the rounds are compared with SQLite's of the same run. Servers
are those that ``DUETIME_TEST_<STORE>_URL`` names: their database for tests is emptied.
How the statements are run (by index, without a sort, in one partition) is asserted by the tests of query plans.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import sqlalchemy as sa

from benchmarks.creating import over_http
from benchmarks.figures import note, parser, show
from benchmarks.firing import drain, precision
from benchmarks.receiver import Receiver
from benchmarks.service import running
from benchmarks.store_sql import NOW, NUM_SHARDS, create, fired, make_timers, read_due, record
from duetime.stores.backends.cassandra.backend import CassandraBackend
from duetime.stores.backends.sql.backend import SqlBackend
from duetime.stores.backends.sql.dialects.driver_connection import DriverConnection
from duetime.stores.core.store import Store
from duetime.stores.open import open_store
from duetime.testing.contract.steps import claim_shard
from tests.support.server_stores import empty_store, server_names

Figures = dict[str, float]


@dataclass(frozen=True)
class Load:
    timers: int
    rate: int
    seconds: int


@contextmanager
def requests_sent(store: Store) -> Iterator[Callable[[], int]]:
    """Count what goes to the database: a statement, or a batch of one statement, is one request."""
    sent = 0

    def note(*_: Any) -> None:
        nonlocal sent
        sent += 1

    if isinstance(store, Store) and isinstance(store.backend, SqlBackend):
        engine = store.backend.database.engine
        if engine.name in ("sqlite", "postgresql"):
            run = DriverConnection.exec_driver_sql

            def noted_run(*given: Any) -> Any:
                note()
                return run(*given)

            noted = patch.object(DriverConnection, "exec_driver_sql", noted_run)
            noted.start()
            forget = noted.stop
        else:
            listened = (engine, "before_cursor_execute", note)
            sa.event.listen(*listened)
            forget = partial(sa.event.remove, *listened)
    else:
        assert isinstance(store, Store)
        assert isinstance(store.backend, CassandraBackend)
        session = store.backend.session._connected()
        session.add_request_init_listener(note)
        forget = partial(session.remove_request_init_listener, note)
    try:
        yield lambda: sent
    finally:
        forget()


def measure_store(url: str, round_number: int, load: Load) -> Figures:
    store = open_store(url)
    store.initialise()
    namespace, _ = store.catalogue.create_namespace("bench", num_shards=NUM_SHARDS, dedicated=False, now=NOW)
    claimed = (
        claim_shard(store, shard, f"bench-{round_number}", lease_seconds=600, now=NOW) for shard in range(NUM_SHARDS)
    )
    leases = {lease.shard_id: lease for lease in claimed if lease}
    timers = make_timers(namespace, load.timers, f"round-{round_number}", NOW)
    figures: Figures = {}

    def step(name: str, action: Callable[[], Any]) -> Any:
        with requests_sent(store) as sent:
            began = time.perf_counter()
            result = action()
            figures[f"{name}, timers/s"] = load.timers / (time.perf_counter() - began)
            figures[f"{name}, requests per 1,000 timers"] = sent() / load.timers * 1000
        return result

    step("store: create", lambda: create(store, timers))
    due = step("store: read due", lambda: read_due(store))
    step("store: record", lambda: record(store, [fired(timer) for timer in due], leases))
    store.leases.release(list(leases.values()), now=NOW)
    store.close()
    return figures


def measure_service(url: str, load: Load, receiver: Receiver) -> Figures:
    with running(url) as service:
        time.sleep(1.0)  # the poller claims its shards
        created = over_http(service, load.timers, connections=2, is_single=False)
        # By one connection, and at a worse moment.
        slowest = created / 4
        late = precision(service, receiver, load.rate, load.seconds, creates_per_second=slowest)
        drained = drain(service, receiver, load.timers, creates_per_second=slowest)
    for measured in (late, drained):
        if measured.arrived != measured.wanted:
            raise RuntimeError(f"{measured.wanted - measured.arrived} timers did not arrive")
    return {
        "service: create over HTTP, timers/s": created,
        "service: drain, timers/s": drained.rate,
        "service: lag p50, ms": late.late["p50"],
        "service: lag p99, ms": late.late["p99"],
        "service: % of a core": late.cpu_share * 100,
    }


def measure(urls: Mapping[str, str], rounds: int, load: Load) -> dict[str, Figures]:
    """Return the medians of each store's figures."""
    measured: dict[str, list[Figures]] = {name: [] for name in urls}
    with Receiver() as receiver:
        for number in range(rounds):
            for name, url in urls.items():
                figures = measure_store(url, number, load) | measure_service(url, load, receiver)
                measured[name].append(figures)
                note(f"round {number + 1}, {name}: drain {figures['service: drain, timers/s']:.0f}/s")
    return {
        name: {figure: statistics.median(each[figure] for each in runs) for figure in runs[0]}
        for name, runs in measured.items()
    }


def compare(medians: Mapping[str, Figures]) -> None:
    """Each figure of each store, and its ratio to the first store's."""
    first = next(iter(medians.values()))
    for figure, base in first.items():
        ratios = {
            f"{name}_ratio": each[figure] / base for name, each in medians.items() if base and each is not first
        }
        show(figure, **{name: each[figure] for name, each in medians.items()}, **ratios)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=3)
    options.add_argument("--timers", type=int, default=5_000)
    options.add_argument("--rate", type=int, default=200)
    options.add_argument("--seconds", type=int, default=8)
    given = options.parse_args()
    names = sorted(server_names(), reverse=True)
    if not names:
        note("no server is named by DUETIME_TEST_<STORE>_URL: SQLite alone (scripts/test_databases.sh finds them)")
    with tempfile.TemporaryDirectory() as folder:
        urls = {"sqlite": f"sqlite:///{Path(folder) / 'bench.db'}"} | {name: empty_store(name) for name in names}
        compare(measure(urls, given.rounds, Load(given.timers, given.rate, given.seconds)))


if __name__ == "__main__":
    main()
