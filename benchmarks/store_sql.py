"""The SQL store on SQLite beside raw sqlite3 on the same schema, in one run.

    python -m benchmarks.store_sql [--timers 20000] [--pending 0] [--directory DIR]

``raw`` is what SQLite itself needs: ``executemany`` with values that are already encoded, reads that decode nothing.
The ratios are what to compare between machines. ``--pending`` first stores that many timers due in the far future.
To compare two checkouts run this in both, in turns, and compare the ratios.
"""

from __future__ import annotations

import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.figures import parser, show
from duetime.domain.ids import timer_uuid_bytes
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import LeasedOutcome, Outcome, RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer, TimerContent, TimerState, content_digest, new_timer
from duetime.stores.backends.sql.tables import RowType
from duetime.stores.core import timer_codec
from duetime.stores.core.instants import milliseconds
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode, PutStatus
from duetime.testing.contract.steps import claim_shard

T = TypeVar("T")
NOW = datetime(2030, 1, 1, tzinfo=UTC)
FAR = NOW + timedelta(days=365)
CREATE_BATCH = 500
RECORD_BATCH = 400
PAGE = 500
NUM_SHARDS = 16


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--timers", type=int, default=20_000)
    options.add_argument("--pending", type=int, default=0)
    options.add_argument("--directory", type=Path, help="where the databases are made; default: a temporary one")
    arguments = options.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        paths = [f"{directory}/{name}.db" for name in ("store", "raw")]
        for path in paths:
            store = open_store(f"sqlite:///{path}")
            store.initialise()
            fill(store, arguments.pending)
            store.close()
        store = open_store(f"sqlite:///{paths[0]}")
        with raw_connection(paths[1]) as raw:
            compare_rows(store, raw, arguments.timers)
            compare_calls(store, raw)
        store.close()


def compare_rows(store: Store, raw: sqlite3.Connection, number: int) -> None:
    """Compare the life of many timers that are due at one instant."""
    namespace, _ = store.catalogue.create_namespace("bench", num_shards=NUM_SHARDS, dedicated=False, now=NOW)
    timers = make_timers(namespace, number, "due", NOW)
    encoded = [encode(timer) for timer in timers]
    leases = {
        shard_id: lease
        for shard_id in namespace.shard_ids()
        if (lease := claim_shard(store, shard_id, "bench", lease_seconds=3600, now=NOW))
    }
    report_rows("create, batches of 500", number, lambda: create(store, timers), lambda: raw_create(raw, encoded))

    due: list[Timer] = []
    raw_due: list[Any] = []
    report_rows(
        "due, pages of 500", number, lambda: due.extend(read_due(store)), lambda: raw_due.extend(raw_read_due(raw))
    )
    assert len(due) == len(raw_due) == number

    outcomes = [fired(timer) for timer in due]
    encoded_outcomes = [encode_outcome(outcome) for outcome in outcomes]
    report_rows(
        "record, batches of 400",
        number,
        lambda: record(store, outcomes, leases),
        lambda: raw_record(raw, encoded_outcomes),
    )


def compare_calls(store: Store, raw: sqlite3.Connection) -> None:
    """Single calls: what an idle poller and a single request cost."""
    report_calls("idle due_timers", lambda: store.timers.due(0, until=NOW, limit=PAGE), lambda: raw_idle(raw))
    report_calls(
        "idle, known_next",
        lambda: store.timers.due(0, until=NOW, limit=PAGE, known_next=FAR),
        lambda: raw_idle(raw),
    )
    counters = "SELECT counter_name, counter_value FROM counters"
    report_calls("shard_map", store.catalogue.shard_map, lambda: raw.execute(counters).fetchall())

    namespace = store.catalogue.get_namespace("bench")
    assert namespace is not None
    key = ("bench", namespace.shard_of("due-00000001"), "due-00000001")
    lookup = "SELECT * FROM timers WHERE timer_namespace = ? AND shard_id = ? AND timer_id = ?"
    report_calls(
        "get one timer",
        lambda: store.timers.get(namespace, "due-00000001", now=NOW),
        lambda: raw.execute(lookup, key).fetchone(),
    )

    timers = make_timers(namespace, 2_001, "single", FAR)
    single, raw_single = iter(timers), iter([encode(timer) for timer in timers])
    report_calls(
        "put one timer",
        lambda: create(store, [next(single)]),
        lambda: raw_create(raw, [next(raw_single)]),
        calls=2_000,
    )


# -- the store ---------------------------------------------------------------------------------------------------


def make_timers(namespace: Namespace, number: int, prefix: str, execute_at: datetime) -> list[Timer]:
    content = TimerContent(
        execute_at=execute_at, callback_url="http://127.0.0.1:9000/callback", payload_json='{"order": 12345}'
    )
    digest = content_digest(content)
    return [
        new_timer(
            namespace,
            f"{prefix}-{index:08}",
            content,
            digest=digest,
            firing_id=f"0192f0c1-2345-7890-abcd-{index:012}",
            now=NOW,
        )
        for index in range(number)
    ]


def fill(store: Store, number: int) -> None:
    namespace, _ = store.catalogue.create_namespace("pending", num_shards=NUM_SHARDS, dedicated=False, now=NOW)
    for start in range(0, number, 5_000):
        count = min(5_000, number - start)
        create(store, make_timers(namespace, count, f"pending-{start}", FAR + timedelta(seconds=start)))


def create(store: Store, timers: Sequence[Timer]) -> None:
    for batch in batches(timers, CREATE_BATCH):
        results = store.timers.put(batch, mode=PutMode.CREATE, now=NOW)
        assert all(result.status is PutStatus.CREATED for result in results)


def read_due(store: Store) -> list[Timer]:
    found: list[Timer] = []
    for shard_id in range(NUM_SHARDS):
        cursor = None
        while True:
            page = store.timers.due(shard_id, until=NOW, limit=PAGE, cursor=cursor)
            found += page.timers
            cursor = page.cursor
            if cursor is None:
                break
    return found


def fired(timer: Timer) -> Outcome:
    return Outcome(
        timer=timer,
        state=TimerState.FIRED,
        attempts=1,
        execute_at=timer.content.execute_at,
        next_attempt_at=None,
        firing_id=timer.firing_id,
        fired_at=NOW,
        expires_at=FAR,
    )


def record(store: Store, outcomes: Sequence[Outcome], leases: dict[int, Lease]) -> None:
    for batch in batches(outcomes, RECORD_BATCH):
        leased = [LeasedOutcome(outcome, leases[outcome.timer.shard_id]) for outcome in batch]
        assert set(store.timers.record(leased, now=NOW)) == {RecordStatus.APPLIED}


# -- raw sqlite3 -------------------------------------------------------------------------------------------------

_INSERT_NAMES = (*TIMER.names, "row_type")
_INSERT = f"INSERT INTO timers ({', '.join(_INSERT_NAMES)}) VALUES ({', '.join('?' * len(_INSERT_NAMES))})"
_UPDATE = (
    "UPDATE timers SET row_type = ?, timer_execute_at = ?, timer_state = ?, timer_due_at = ?, timer_firing_id = ?,"
    " timer_attempts = ?, timer_fired_at = ?, timer_failure = ?, timer_expires_at = ?, timer_attempt_log = ?,"
    " timer_revision = timer_revision + 1, timer_updated_at = 0 WHERE shard_id = ? AND row_type = 2"
    " AND timer_execute_at = ? AND timer_uuid = ? AND timer_revision = ? AND timer_firing_id = ?"
)


@contextmanager
def raw_connection(path: str) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    for pragma in ("synchronous=NORMAL", "wal_autocheckpoint=4000", "cache_size=-16384"):
        connection.execute(f"PRAGMA {pragma}")
    yield connection
    connection.close()


def encode(timer: Timer) -> tuple[Any, ...]:
    return (*timer_codec.encode(timer), RowType.TIMER.value)


def encode_outcome(outcome: Outcome) -> tuple[Any, ...]:
    """Return the values of ``_UPDATE`` for a timer that has fired."""
    timer = outcome.timer
    assert timer.next_attempt_at is not None
    assert outcome.fired_at is not None
    assert outcome.expires_at is not None
    at = milliseconds(timer.next_attempt_at)
    new = (
        RowType.FINISHED.value,
        at,
        outcome.state.value,
        milliseconds(outcome.execute_at),
        outcome.firing_id,
        outcome.attempts,
        milliseconds(outcome.fired_at),
        None,
        milliseconds(outcome.expires_at),
        timer.attempt_log,
    )
    uuid = timer_uuid_bytes(timer.namespace, timer.timer_id)
    return (*new, timer.shard_id, at, uuid, timer.revision, timer.firing_id)


def raw_create(raw: sqlite3.Connection, encoded: Sequence[Any]) -> None:
    for batch in batches(encoded, CREATE_BATCH):
        raw.execute("BEGIN IMMEDIATE")
        raw.executemany(_INSERT, batch)
        raw.execute("COMMIT")


def raw_read_due(raw: sqlite3.Connection) -> list[Any]:
    found: list[Any] = []
    now_ms = int(NOW.timestamp() * 1000)
    for shard_id in range(NUM_SHARDS):
        after = b""
        while True:
            page = raw.execute(
                "SELECT * FROM timers WHERE shard_id = ? AND row_type = 2 AND timer_execute_at = ? AND timer_uuid > ?"
                " ORDER BY timer_uuid LIMIT ?",
                (shard_id, now_ms, after, PAGE),
            ).fetchall()
            found += page
            if len(page) < PAGE:
                break
            after = page[-1][3]
    return found


def raw_record(raw: sqlite3.Connection, encoded: Sequence[Any]) -> None:
    for batch in batches(encoded, RECORD_BATCH):
        raw.execute("BEGIN IMMEDIATE")
        assert raw.executemany(_UPDATE, batch).rowcount == len(batch)
        raw.execute("COMMIT")


def raw_idle(raw: sqlite3.Connection) -> None:
    raw.execute(
        "SELECT timer_execute_at FROM timers WHERE shard_id = ? AND row_type = 2 ORDER BY timer_execute_at LIMIT 1",
        (0,),
    ).fetchone()


# -- measuring ---------------------------------------------------------------------------------------------------


def batches(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


def timed(action: Callable[[], object]) -> float:
    """Seconds."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def report_rows(label: str, number: int, store: Callable[[], object], raw: Callable[[], object]) -> None:
    store_seconds, raw_seconds = timed(store), timed(raw)
    ratio = store_seconds / raw_seconds
    show(label, store_per_s=number / store_seconds, raw_per_s=number / raw_seconds, ratio=ratio)


def report_calls(label: str, store: Callable[[], object], raw: Callable[[], object], *, calls: int = 5_000) -> None:
    microseconds = []
    for action in (store, raw):
        action()
        start = time.perf_counter()
        for _ in range(calls):
            action()
        microseconds.append((time.perf_counter() - start) * 1e6 / calls)
    store_us, raw_us = microseconds
    show(label, store_us=store_us, raw_us=raw_us, ratio=store_us / raw_us)


if __name__ == "__main__":
    main()
