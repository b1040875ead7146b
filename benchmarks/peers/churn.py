"""Timers created and fired on PostgreSQL, while somebody holds a snapshot open.

    python -m benchmarks.peers.churn [NAME ...] [--rate 500] [--minutes 120] [--pending 0]

One process creates ``--rate`` timers/s, each due 2 to 20 seconds later; another one fires them. For the first two
thirds of ``--minutes`` a transaction holds a snapshot (REPEATABLE READ), so that no dead row can be removed; in the
last third the database may tidy up. Each peer removes what has ended for a minute; graphile-worker does at once.
Told for each minute are the lag of what was due in it, and at its end the dead and live rows, and the sizes; at last
how many rows of each table were updated, and how many of them within their page (HOT). ``--pending`` stores that many
timers of next year first.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import psycopg

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

_BATCHES_PER_SECOND = 10
_FIRST_PENDING = 1_000_000_000
_MIB = 2**20
_CHURN_PEERS = tuple(peer for peer in TIMER_PEERS if peer != "duetime-sqlite")
_TABLES = """
    SELECT regexp_replace(relname, '_p[0-9]+$', '') AS name,
        sum(n_live_tup)::bigint, sum(n_dead_tup)::bigint, sum(n_tup_upd)::bigint, sum(n_tup_hot_upd)::bigint,
        sum(n_tup_del)::bigint, sum(autovacuum_count)::bigint,
        sum(pg_table_size(relid))::bigint, sum(pg_indexes_size(relid))::bigint
    FROM pg_stat_user_tables GROUP BY name ORDER BY name
"""


def measure(peer: str, folder: Path, *, rate: int, minutes: float, pending: int) -> None:
    """Print what became of one peer's timers and tables."""
    record, number = folder / "arrivals", int(rate * minutes * 60)
    at_random = random.Random(1)
    delays = [at_random.uniform(2, 20) for _ in range(number)]
    samples: list[tuple[float, list[Any], float]] = []
    with (
        empty_store(peer, folder) as (store_url, store_cpu),
        Receiver("--record", str(record)) as receiver,
        Program(peer, store_url) as workers,
        psycopg.connect(store_url, autocommit=True) as watch,
    ):
        with workers.feeding() as put:  # which makes the tables
            next_year = time.time() + 365 * 86_400
            put([timer("quick", _FIRST_PENDING + n, next_year + n, receiver.url) for n in range(pending)])
        workers.start("fire", "quick=100")
        holder = psycopg.connect(store_url)
        holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        holder.execute("SELECT count(*) FROM pg_class")
        with workers.feeding(is_live=True) as put:
            began = time.time() + 10
            step = max(1, rate // _BATCHES_PER_SECOND)
            for start in range(0, number, step):
                sleep_until(began + start / rate)
                numbers = range(start, min(start + step, number))
                put([timer("quick", n, began + n / rate + delays[n], receiver.url) for n in numbers])
                passed = time.time() - began
                if passed > minutes * 40 and not holder.closed:
                    holder.close()
                if passed >= 60 * (len(samples) + 1):
                    samples.append((passed, watch.execute(_TABLES).fetchall(), workers.cpu_seconds() + store_cpu()))
        sleep_until(began + minutes * 60 + 30)
        samples.append((minutes * 60, watch.execute(_TABLES).fetchall(), workers.cpu_seconds() + store_cpu()))
        holder.close()

    found = arrivals(record)
    late = lateness(found, lambda n: began + n / rate + delays[n])
    cpu_before = None
    for minute, (passed, tables, cpu) in enumerate(samples, 1):
        due = range(int((minute - 1) * 60 * rate), min(int(minute * 60 * rate), number))
        show(
            f"{peer}, minute {minute}",
            snapshot="held" if passed <= minutes * 40 else "gone",
            **lags(late[n] for n in due if n in late),
            dead_rows=sum(each[2] for each in tables),
            live_rows=sum(each[1] for each in tables),
            tables_mib=sum(each[7] for each in tables) / _MIB,
            indexes_mib=sum(each[8] for each in tables) / _MIB,
            cpu_s=None if cpu_before is None else cpu - cpu_before,
        )
        cpu_before = cpu
    show(peer, timers=number, missing=number - len(late), sent_twice=len(found) - len(late))
    for name, live, dead, updated, hot, deleted, vacuums, size, indexes in samples[-1][1]:
        if updated + deleted:
            show(
                f"{peer}, table {name}",
                live_rows=live,
                dead_rows=dead,
                updates=updated,
                hot_share=hot / updated if updated else None,
                deletes=deleted,
                autovacuums=vacuums,
                table_mib=size / _MIB,
                indexes_mib=indexes / _MIB,
            )


def main() -> None:
    arguments = parser(__doc__)
    arguments.add_argument("peers", nargs="*", metavar="NAME", help=f"of {', '.join(_CHURN_PEERS)}; default: all")
    arguments.add_argument("--rate", type=int, default=500)
    arguments.add_argument("--minutes", type=float, default=120)
    arguments.add_argument("--pending", type=int, default=0)
    given = arguments.parse_args()
    for peer, folder in each_peer(given.peers, _CHURN_PEERS):
        measure(peer, folder, rate=given.rate, minutes=given.minutes, pending=given.pending)


if __name__ == "__main__":
    main()
