"""SQL Server without a server: the statements that are sent, in their order, and what is made of the answers.

The text that goes to the server is made by pymssql's own code. What a server would do with it is not shown.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pymssql
import pytest
import sqlalchemy as sa

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.shards import Lease
from duetime.domain.times import to_milliseconds
from duetime.stores.open import open_store
from duetime.stores.port import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.restarting import MAX_TRIES
from duetime.stores.sql.rows import COLUMNS, KEY_NAMES, VALUE_NAMES, encode_key, encode_values, uuid_bytes
from duetime.stores.sql.sqlserver import QUERY_TIMEOUT_SECONDS, SCHEMA_TURN_SECONDS, SqlServerDialect
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tables import NIL_UUID, metadata
from tests.support.builders import failed, fired, leased, make_timer, make_timers
from tests.support.clock import NOW
from tests.support.leases import claim_shard
from tests.support.recorded_driver import RecordedDriver, recorded
from tests.unit.sql.statements import pymssql_texts as wire

SECRET = "hunter2"
NOW_MS = to_milliseconds(NOW)
SINGLE = Namespace("single", 1, 0, False, NOW)
BEGIN, COMMIT, ROLLBACK = "BEGIN TRANSACTION", "COMMIT TRANSACTION", "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"


@pytest.fixture
def store() -> Iterator[SqlStore]:
    store = SqlStore(open_dialect(f"sqlserver://sa:{SECRET}@db/duetime"))
    yield store
    store.close()


def answer_as_a_server(driver: RecordedDriver, *, has_versions: int = 1) -> None:
    """What SQLAlchemy and the store ask of a new connection."""
    driver.answer("@@version", ("Microsoft SQL Server 2019 - 15.0.4223.1 (X64)",))
    driver.answer("schema_name", ("dbo",))
    driver.answer("sys.system_views", ("dm_exec_sessions",))
    driver.answer("transaction_isolation_level", ("READ COMMITTED",))
    driver.answer("test max support", ("test max support",))
    driver.answer("is_read_committed_snapshot_on", (has_versions,))


@pytest.fixture
def driver(store: SqlStore) -> Iterator[RecordedDriver]:
    """Forgets what was sent to make the first connection."""
    with recorded(store.database.engine) as driver:
        answer_as_a_server(driver)
        driver.answer("sp_set_session_context", (NOW_MS,))
        store.database.engine.connect().close()
        driver.sent.clear()
        yield driver


def row_of(timer: Any) -> tuple[Any, ...]:
    """The timer as ``COLUMNS``."""
    names = [column.name for column in COLUMNS]
    values = dict.fromkeys(names)
    values |= dict(zip(KEY_NAMES, encode_key(timer), strict=True))
    values |= dict(zip(VALUE_NAMES, encode_values(timer), strict=True))
    values |= {"row_type": 2, "timer_uuid": uuid_bytes(timer.namespace, timer.timer_id)}
    values |= {"timer_created_at": NOW_MS, "timer_updated_at": NOW_MS}
    return tuple(values[name] for name in names)


def test_a_write_is_a_transaction_of_statements(store: SqlStore, driver: RecordedDriver) -> None:
    store.withdraw_worker("w")

    begin, seed, delete, commit = driver.sent
    assert (begin.sql, commit.sql) == (BEGIN, COMMIT)
    assert seed.sql.startswith("DECLARE @now_ms BIGINT = COALESCE(%(now_ms)s, DATEDIFF_BIG(")
    assert wire(delete) == ["DELETE FROM workers WHERE workers.worker_id = N'w' + NCHAR(1)"]


def test_what_fails_is_rolled_back_and_reads_take_no_transaction(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^DELETE", error=pymssql.OperationalError(1222, b"Lock request time out"))

    with pytest.raises(StoreUnavailable, match="not released in time"):
        store.withdraw_worker("w")
    assert driver.texts()[-1] == ROLLBACK

    driver.sent.clear()
    driver.answer("FROM namespaces")
    assert store.get_namespace("x") is None
    assert [sql.split()[0] for sql in driver.texts()] == ["SELECT"]


def test_what_could_not_be_committed_is_rolled_back(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^COMMIT", error=pymssql.OperationalError((3902, b"no corresponding BEGIN TRANSACTION")))

    with pytest.raises(TransactionAborted):
        store.withdraw_worker("w")
    assert driver.texts()[-2:] == [COMMIT, ROLLBACK]


def test_a_transaction_that_the_server_ends_begins_again(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^DELETE", error=pymssql.OperationalError(1205, b"deadlock victim"), times=2)
    driver.answer("^SELECT timers", row_of(make_timer(SINGLE, "t")))

    (result,) = store.delete_timers(SINGLE, [TimerRef("t")], now=NOW)

    assert result.status is ChangeStatus.APPLIED
    assert driver.texts().count(BEGIN) == 3 < MAX_TRIES
    assert driver.texts().count(ROLLBACK) == 2
    assert driver.texts().count(COMMIT) == 1


def test_a_database_without_row_versions_is_not_ready(store: SqlStore) -> None:
    with recorded(store.database.engine) as driver:
        answer_as_a_server(driver, has_versions=0)
        with pytest.raises(StoreNotReady, match="READ_COMMITTED_SNAPSHOT ON"):
            store.check()


def test_whoever_migrates_has_its_turn_first(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("sp_getapplock", (0,))
    driver.answer("max", (None,))

    store.initialise()

    texts = driver.texts()
    assert texts[0] == BEGIN
    assert "@LockOwner = 'Transaction'" in texts[2]
    assert texts[3].startswith("IF OBJECT_ID(N'schema_migrations') IS NULL CREATE TABLE schema_migrations")
    assert texts[-1] == COMMIT
    created = re.findall(r"CREATE TABLE (\w+)", " ".join(texts))
    assert sorted(created) == sorted(metadata.tables)
    assert SCHEMA_TURN_SECONDS < QUERY_TIMEOUT_SECONDS


def test_who_gets_no_turn_says_so(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("sp_getapplock", (-1,))

    with pytest.raises(StoreUnavailable, match="migrating"):
        store.initialise()
    assert driver.texts()[-1] == ROLLBACK


def test_a_batch_is_created_by_one_statement_that_counts_its_rows(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^INSERT INTO timers", rowcount=[1, 1, 1])
    batch = make_timers(SINGLE, 3)

    results = store.put_timers(batch, mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.CREATED] * 3
    assert [sql.split()[0] for sql in driver.texts()] == ["BEGIN", "DECLARE", "INSERT", "COMMIT"]
    (insert,) = [each for each in driver.sent if each.is_many]
    assert len(insert.parameters) == 3


def test_a_batch_with_a_known_timer_is_looked_at_with_locks(store: SqlStore, driver: RecordedDriver) -> None:
    known = make_timer(SINGLE, "t0001")
    driver.answer("^INSERT INTO timers", rowcount=[1, 0], times=1)
    driver.answer("^INSERT INTO timers", rowcount=[1], times=1)
    driver.answer(r"UPDLOCK, ROWLOCK\)", row_of(known), times=1)  # the other one is not there ...
    driver.answer(r"^SELECT timers.* FROM timers WHERE", times=1)  # ... and has not moved

    results = store.put_timers([known, make_timer(SINGLE, "t0000")], mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.UNCHANGED, PutStatus.CREATED]
    kinds = [sql.split()[0] for sql in driver.texts()]
    assert kinds == [
        *("BEGIN", "DECLARE", "INSERT", "IF"),
        *("BEGIN", "DECLARE", "SELECT", "SELECT", "DELETE", "INSERT", "COMMIT"),
    ]


def test_a_shard_is_made_first_and_claimed_by_an_update(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^SELECT timers.shard_id", (6, 4, "gone", NOW_MS, NOW_MS, "{}"), times=1)
    driver.answer("^INSERT INTO timers", rowcount=1)
    driver.answer("^UPDATE timers SET shard_version", rowcount=0, times=1)  # somebody else was faster
    driver.answer("^UPDATE timers SET shard_version", rowcount=1, times=1)
    driver.answer("^SELECT timers.shard_id", (7, 1, "w", NOW_MS, NOW_MS, "{}"))

    leases = store.claim_shards([7, 6], "w", lease_seconds=10, metadata="{}", now=NOW)

    assert leases == [Lease(7, 1, "w", NOW + timedelta(seconds=10)), None]
    _before, make, refused, claim, _after = driver.sent[2:-1]
    assert "timers.shard_id = 6" in wire(refused)[0]
    until = "shard_lease_expires_at=(CAST(SESSION_CONTEXT(N'duetime.now_ms') AS BIGINT) + 10000)"
    assert f"{until}, shard_metadata=" in wire(claim)[0]
    assert " WHERE timers.shard_id = 7 " in wire(claim)[0]
    assert f"CAST(0x{NIL_UUID.hex()} AS BINARY(16))" in wire(make)[0]


def test_a_shard_that_is_taken_is_not_claimed(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^SELECT timers.shard_id", (7, 4, "other", NOW_MS, NOW_MS + 1, "{}"))

    assert claim_shard(store, 7, "w", lease_seconds=10, now=NOW) is None
    assert not any(sql.startswith(("UPDATE timers", "INSERT INTO timers")) for sql in driver.texts())


def test_outcomes_are_recorded_under_the_lock_of_their_shard(store: SqlStore, driver: RecordedDriver) -> None:
    batch = make_timers(SINGLE, 2)
    driver.answer("^SELECT timers.shard_id, timers.shard_version", (0, 4, "w"))
    driver.answer("^UPDATE timers", rowcount=[1, 1])

    statuses = store.record(
        leased([fired(batch[0]), failed(batch[1])], Lease(0, 4, "w", NOW + timedelta(seconds=9))), now=NOW
    )

    assert statuses == [RecordStatus.APPLIED] * 2
    fence, update = driver.sent[2:-1]
    assert "FROM timers WITH (UPDLOCK, ROWLOCK) WHERE timers.row_type = 1 AND" in wire(fence)[0]
    assert "AND timers.shard_id IN (0) ORDER BY timers.shard_id" in wire(fence)[0]
    for timer, text in zip(batch, wire(update), strict=True):
        assert f"timers.timer_uuid = CAST(0x{uuid_bytes('single', timer.timer_id).hex()} AS BINARY(16))" in text
        assert f"timers.timer_execute_at = CAST({NOW_MS} AS BIGINT)" in text


def test_outcomes_whose_timer_has_changed_are_told_apart(store: SqlStore, driver: RecordedDriver) -> None:
    batch = make_timers(SINGLE, 2)
    driver.answer("^SELECT timers.shard_id, timers.shard_version", (0, 4, "w"))
    driver.answer("FROM timers WHERE timers.timer_namespace", row_of(replace(batch[0], firing_id="another")))
    driver.answer("^UPDATE timers", rowcount=[0, 1], times=1)
    driver.answer("^UPDATE timers", rowcount=0, times=1)
    driver.answer("^UPDATE timers", rowcount=1, times=1)

    statuses = store.record(
        leased([fired(timer) for timer in batch], Lease(0, 4, "w", NOW + timedelta(seconds=9))), now=NOW
    )

    assert statuses == [RecordStatus.SUPERSEDED, RecordStatus.APPLIED]
    assert [sql.split()[0] for sql in driver.texts()].count("UPDATE") == 3
    assert ROLLBACK in driver.texts()


def test_due_timers_are_a_range_with_a_top(store: SqlStore, driver: RecordedDriver) -> None:
    timer = make_timer(SINGLE, "blank ")
    driver.answer(r"^SELECT TOP \(1\)", (NOW_MS,), times=1)
    driver.answer(r"^SELECT TOP \(1\)")
    driver.answer(r"^SELECT TOP \(%", (*row_of(timer), None))

    page = store.due_timers(0, until=NOW, limit=5)

    assert [each.timer_id for each in page.timers] == ["blank "]
    _, due, _ = driver.sent
    assert "SELECT TOP (5) timers.shard_id" in wire(due)[0]
    assert f"timers.timer_execute_at <= CAST({NOW_MS} AS BIGINT) ORDER BY" in wire(due)[0]


def test_a_text_that_would_end_the_statement_is_refused(store: SqlStore, driver: RecordedDriver) -> None:
    with pytest.raises(StoreError, match=r"U\+0000"):
        store.withdraw_worker("w'; DROP TABLE timers --\0")
    assert not any("DROP" in sql for sql in driver.texts())


@pytest.mark.parametrize(
    "url",
    [
        "sqlserver://db.example",
        "sqlserver:///x",
        "mssql://db.example:port/x",
        f"mssql://u:{SECRET}@db.example/x?tls=perhaps",
        f"sqlserver://u:{SECRET}@db.example/x?charset=latin1",
    ],
)
def test_a_url_that_cannot_be_used_says_what_one_is_like(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"sqlserver://user:password@host:1433/database") as raised:
        open_store(url)

    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("is_listening", [False, True], ids=["closed", "silent"])
def test_a_server_that_is_down_is_one_clear_line_in_bounded_time(
    is_listening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.stores.sql.sqlserver.CONNECT_TIMEOUT_SECONDS", 1)
    started = time.monotonic()
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        if is_listening:
            reserved.listen()  # takes connections, and says nothing
        where = f"127.0.0.1:{reserved.getsockname()[1]}/duetime"
        store = open_store(f"sqlserver://user:{SECRET}@{where}")
        with pytest.raises(StoreUnavailable) as raised:
            store.check()
        store.close()

    assert raised.value.message == f"the database at {where} cannot be reached"
    assert time.monotonic() - started < 8  # what was asked for, and a machine that is busy


def test_the_connection_is_asked_for_what_the_store_relies_on() -> None:
    dialect = open_dialect("sqlserver://user:pass@db/duetime?tls=on")
    arguments: dict[str, Any] = {}

    def connect(*_: object, **__: object) -> None:
        arguments.update(_[3])  # type: ignore[call-overload]
        raise pymssql.OperationalError(18456, b"Login failed")

    sa.event.listen(dialect.engine, "do_connect", connect)
    with pytest.raises(sa.exc.OperationalError):
        dialect.engine.connect()
    session = arguments.pop("conn_properties")
    assert arguments | {"timeout": 0, "login_timeout": 0} == {
        "host": "db:1433",
        "user": "user",
        "password": "pass",
        "database": "duetime",
        "autocommit": True,
        "charset": "UTF-8",
        "tds_version": "7.4",
        "appname": "duetime",
        "encryption": "require",
        "timeout": 0,
        "login_timeout": 0,
    }
    for needed in ("QUOTED_IDENTIFIER ON", "ARITHABORT ON", "XACT_ABORT ON", "NOCOUNT OFF", "LOCK_TIMEOUT 5000"):
        assert f"SET {needed};" in session


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (1205, TransactionAborted),  # deadlock
        (3960, TransactionAborted),  # snapshot
        (3902, TransactionAborted),  # nothing to commit
        (1222, StoreUnavailable),  # lock
        (40613, StoreUnavailable),
        (40501, StoreUnavailable),
        (10928, StoreUnavailable),
        (49918, StoreUnavailable),
        (20003, StoreUnavailable),  # query timeout
        (20047, StoreUnavailable),  # dead
        (18456, StoreUnavailable),  # password
        (4060, StoreUnavailable),  # database
        (208, StoreNotReady),
        (207, StoreNotReady),
        (2627, StoreError),
        (102, StoreError),
    ],
)
def test_what_errors_mean(number: int, kind: type[StoreError]) -> None:
    dialect = open_dialect("mssql://u@db/x")
    assert isinstance(dialect, SqlServerDialect)

    assert type(dialect.classify(pymssql.OperationalError(number, b"text"))) is kind
    assert type(dialect.classify(pymssql.OperationalError((number, b"text")))) is kind


def test_a_connection_that_is_gone_may_come_back() -> None:
    error = open_dialect("mssql://u@db/x").classify(pymssql.InterfaceError("Connection is closed."))

    assert type(error) is StoreUnavailable
    assert "db:1433/x" in error.message
