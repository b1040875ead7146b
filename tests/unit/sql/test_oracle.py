"""Oracle without a server: the statements that are sent, in their order, and what is made of the answers.

What a server would do with them is not shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import oracledb
import pytest
import sqlalchemy as sa
from hypothesis import given as for_all
from hypothesis import strategies as st

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.shards import Lease
from duetime.stores.port import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.errors import TransactionAborted
from duetime.stores.sql.oracle import SCHEMA_TURN_SECONDS
from duetime.stores.sql.oracle_migrations import MIGRATIONS, TIMERS, TIMERS_UNPARTITIONED
from duetime.stores.sql.oracle_sql import (
    CALL_TIMEOUT_SECONDS,
    read_exactly,
    read_text,
    stored_text,
)
from duetime.stores.sql.rows import COLUMNS, KEY_NAMES, VALUE_NAMES, encode_key, encode_values, uuid_bytes
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tables import metadata
from duetime.stores.time_source import TimeSource
from tests.support.builders import fired, leased, make_timer, make_timers
from tests.support.clock import NOW
from tests.support.recorded_driver import RecordedDriver, recorded
from tests.support.recorded_oracle import CHARACTERS, NOW_MS, OracleConnection, error_of

SECRET = "hunter2"
URL = f"oracle://duetime:{SECRET}@db/service"
SINGLE = Namespace("single", 1, 0, False, NOW)
LEASE = Lease(0, 4, "w", NOW + timedelta(seconds=9))
BEGIN, COMMIT, ROLLBACK = "DECLARE", "<commit>", "<rollback>"


@pytest.fixture
def store() -> Iterator[SqlStore]:
    store = SqlStore(open_dialect(URL))
    yield store
    store.close()


@pytest.fixture
def driver(store: SqlStore) -> Iterator[RecordedDriver]:
    """Forgets what was sent to make the first connection."""
    with recorded(store.database.engine, OracleConnection) as driver:
        driver.answer("current_schema", ("DUETIME",))
        store.database.engine.connect().close()
        driver.sent.clear()
        yield driver


def kinds(driver: RecordedDriver) -> list[str]:
    return [text.split()[0] for text in driver.texts()]


def row_of(timer: Any) -> tuple[Any, ...]:
    """The timer as ``COLUMNS``."""
    names = [column.name for column in COLUMNS]
    values = dict.fromkeys(names)
    values |= dict(zip(KEY_NAMES, encode_key(timer), strict=True))
    values |= dict(zip(VALUE_NAMES, encode_values(timer), strict=True))
    values |= {"row_type": 2, "timer_uuid": uuid_bytes(timer.namespace, timer.timer_id)}
    values |= {"timer_created_at": NOW_MS, "timer_updated_at": NOW_MS}
    return tuple(values[name] for name in names)


def test_a_connection_is_made_exact_by_one_request(store: SqlStore) -> None:
    with recorded(store.database.engine, OracleConnection) as driver:
        driver.answer("current_schema", ("DUETIME",))
        with store.database.engine.connect() as connection:
            made: Any = connection.connection.dbapi_connection

    session, schema, *_ = driver.sent
    for setting in (
        "NLS_COMP = BINARY",
        "NLS_SORT = BINARY",
        "TIME_ZONE = ''+00:00''",
        "READ COMMITTED",
        "FIRST_ROWS_100",
    ):
        assert setting in session.sql
    assert schema.sql.lower().startswith("select sys_context")
    assert made.call_timeout == CALL_TIMEOUT_SECONDS * 1000
    assert made.outputtypehandler is read_exactly


def test_a_database_that_cannot_hold_all_texts_is_not_ready(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CHARACTERS, "language", "x")
    monkeypatch.setattr(OracleConnection, "outs", {"language": "AMERICAN_AMERICA.WE8MSWIN1252"})
    with (
        recorded(store.database.engine, OracleConnection),
        pytest.raises(StoreNotReady, match="character set AL32UTF8"),
    ):
        store.check()


def test_a_write_is_a_transaction_that_is_committed(store: SqlStore, driver: RecordedDriver) -> None:
    store.withdraw_worker("w")

    seed, delete, commit = driver.sent
    assert seed.sql.startswith("DECLARE age INTERVAL DAY(9) TO SECOND(9) := SYS_EXTRACT_UTC(SYSTIMESTAMP)")
    assert (delete.sql, delete.parameters) == (
        "DELETE FROM workers WHERE workers.worker_id = :p_worker",
        {"p_worker": "w"},
    )
    assert commit.sql == COMMIT


def test_the_callers_time_is_sent_as_it_is() -> None:
    store = SqlStore(open_dialect(URL), time_source=TimeSource.CALLER)
    with recorded(store.database.engine, OracleConnection) as driver:
        driver.answer("current_schema", ("DUETIME",))
        driver.answer("^SELECT timers", row_of(make_timer(SINGLE, "t")))
        store.delete_timers(SINGLE, [TimerRef("t")], now=NOW)

    (seed,) = [each for each in driver.sent if "SET_CLIENT_INFO" in each.sql]
    assert seed.sql == "BEGIN DBMS_APPLICATION_INFO.SET_CLIENT_INFO(:now_ms); END;"
    assert seed.parameters == {"now_ms": str(NOW_MS)}


def test_a_read_is_one_request(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("FROM namespaces")

    assert store.get_namespace("x") is None
    assert kinds(driver) == ["SELECT"]


def test_what_fails_is_rolled_back(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^DELETE", error=error_of(54))

    with pytest.raises(StoreUnavailable, match="not released in time"):
        store.withdraw_worker("w")
    assert driver.texts()[-1] == ROLLBACK
    assert COMMIT not in driver.texts()


def test_a_deadlock_begins_the_transaction_again(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^DELETE", error=error_of(60), times=2)
    driver.answer("^SELECT timers", row_of(make_timer(SINGLE, "t")))

    (result,) = store.delete_timers(SINGLE, [TimerRef("t")], now=NOW)

    assert result.status is ChangeStatus.APPLIED
    assert (kinds(driver).count(BEGIN), kinds(driver).count(COMMIT)) == (3, 1)


def test_whoever_migrates_holds_a_lock_by_another_connection(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("max", (None,))

    store.initialise()

    texts = [text for text in driver.texts() if "current_schema" not in text and "ALTER SESSION" not in text]
    assert "CREATE TABLE schema_turn" in texts[1]
    assert texts[2] == f"LOCK TABLE schema_turn IN EXCLUSIVE MODE WAIT {SCHEMA_TURN_SECONDS}"
    assert SCHEMA_TURN_SECONDS < CALL_TIMEOUT_SECONDS
    assert "CREATE TABLE schema_migrations" in texts[3]
    assert [text.split()[0] for text in texts].count("INSERT") == len(MIGRATIONS)
    created = set(re.findall(r"CREATE TABLE (\w+)", " ".join(texts)))
    assert created == {*metadata.tables, "schema_turn"}


def test_a_definition_that_was_made_is_passed_over_and_others_fail() -> None:
    for statement in (sql for migration in MIGRATIONS for sql in migration.statements):
        assert statement.startswith("BEGIN ")
        code = -2443 if " DROP CONSTRAINT " in statement else -2264 if " ADD CONSTRAINT " in statement else -955
        assert statement.endswith(
            f"EXCEPTION WHEN OTHERS THEN IF SQLCODE = {code} THEN NULL; ELSE RAISE; END IF; END;"
        )


def test_an_edition_without_partitions_has_the_table_in_one_piece() -> None:
    (first, *_) = MIGRATIONS[0].statements

    assert first.index(TIMERS.strip()) < first.index("SQLCODE = -439") < first.index(TIMERS_UNPARTITIONED.strip())
    assert "LOCAL" not in TIMERS_UNPARTITIONED
    plain = TIMERS.replace(" USING INDEX LOCAL", "").replace(" PARTITION BY HASH (shard_id) PARTITIONS 32", "")
    assert plain == TIMERS_UNPARTITIONED


def test_the_tables_have_the_columns_that_statements_name() -> None:
    definitions = " ".join(sql for migration in MIGRATIONS for sql in migration.statements)
    for table in metadata.sorted_tables:
        if table.name == "schema_migrations":
            continue
        match = re.search(
            rf"CREATE TABLE {table.name} \((.*?)\n\s*\)(?: PARTITION.*?)?\s*\]'", definitions, re.DOTALL
        )
        assert match is not None, table.name
        found = dict(re.findall(r"^\s*([a-z_]+) ((?:VARCHAR2|NUMBER|CLOB|RAW)[^\n]*?),?$", match[1], re.MULTILINE))
        assert list(found) == [column.name for column in table.columns]
        for column in table.columns:
            assert ("NOT NULL" in found[column.name]) is not column.nullable, column
            length = getattr(column.type, "length", None)
            if isinstance(column.type, sa.String) and length is not None:
                assert found[column.name].startswith(f"VARCHAR2({length} CHAR)"), column


def test_a_batch_is_created_by_one_request(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^INSERT", rowcount=[1, 1, 1])

    results = store.put_timers(make_timers(SINGLE, 3), mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.CREATED] * 3
    insert = driver.sent[1]
    assert insert.sql.startswith("INSERT /* if absent */ INTO timers (")
    assert insert.is_many
    assert len(insert.parameters) == 3


def test_rows_whose_keys_are_taken_are_not_counted(store: SqlStore, driver: RecordedDriver) -> None:
    known = make_timer(SINGLE, "t0001")
    driver.answer("^INSERT", rowcount=[1, 0], times=1)
    driver.answer("^INSERT", rowcount=[1], times=1)
    driver.answer("FOR UPDATE WAIT 5$", row_of(known), times=1)  # the other one is not there ...
    driver.answer("^SELECT timers(?!.*FOR UPDATE)", times=1)  # ... and has not moved

    results = store.put_timers([known, make_timer(SINGLE, "t0000")], mode=PutMode.CREATE, now=NOW)

    assert [result.status for result in results] == [PutStatus.UNCHANGED, PutStatus.CREATED]
    assert kinds(driver)[:4] == [BEGIN, "INSERT", ROLLBACK, BEGIN]
    assert COMMIT in kinds(driver)


@pytest.mark.parametrize(("number", "kind"), [(60, TransactionAborted), (2290, StoreError)])
def test_rows_that_are_refused_otherwise_are_errors(
    number: int, kind: type[StoreError], store: SqlStore, driver: RecordedDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OracleConnection, "refused_with", number)
    driver.answer("^INSERT", rowcount=[1, 0])

    with pytest.raises(kind):
        store.put_timers(make_timers(SINGLE, 2), mode=PutMode.CREATE, now=NOW)


def test_a_shard_is_made_first_and_claimed_by_an_update(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("^SELECT timers.shard_id", (6, 4, "gone", NOW_MS, NOW_MS, "{}"), times=1)
    driver.answer("^INSERT", rowcount=[1])
    driver.answer("^UPDATE timers SET shard_version", rowcount=0, times=1)  # somebody else was faster
    driver.answer("^UPDATE timers SET shard_version", rowcount=1, times=1)
    driver.answer("^SELECT timers.shard_id", (7, 1, "w", NOW_MS, NOW_MS, "{}"))

    leases = store.claim_shards([7, 6], "w", lease_seconds=10, metadata="{}", now=NOW)

    assert leases == [Lease(7, 1, "w", NOW + timedelta(seconds=10)), None]
    _before, make, refused, claim, _after = driver.sent[1:6]
    assert refused.sql == claim.sql
    assert claim.parameters == {"p_shard": 7, "p_owner": "w", "p_lease_ms": 10_000, "p_metadata": "{}"}
    now = "TO_NUMBER(SYS_CONTEXT('USERENV', 'CLIENT_INFO'))"
    assert f"shard_lease_expires_at=({now} + :p_lease_ms), shard_metadata=:p_metadata WHERE" in claim.sql
    assert " WHERE timers.shard_id = :p_shard AND" in claim.sql
    assert make.parameters == [{"p_shard": 7, "p_nil": bytes(16)}]


def test_outcomes_are_recorded_under_the_lock_of_their_shard(store: SqlStore, driver: RecordedDriver) -> None:
    batch = make_timers(SINGLE, 2)
    driver.answer("^SELECT timers.shard_id, timers.shard_version", (0, 4, "w"))
    driver.answer("FROM timers WHERE timers.timer_namespace", row_of(replace(batch[0], firing_id="another")))
    driver.answer("^UPDATE timers", rowcount=[0, 1], times=1)
    driver.answer("^UPDATE timers", rowcount=0, times=1)
    driver.answer("^UPDATE timers", rowcount=1, times=1)

    statuses = store.record(leased([fired(timer) for timer in batch], LEASE), now=NOW)

    assert statuses == [RecordStatus.SUPERSEDED, RecordStatus.APPLIED]
    fence, update = driver.sent[1:3]
    assert "FROM timers WHERE timers.row_type = 1 AND timers.timer_execute_at = 0 AND" in fence.sql
    assert fence.sql.endswith("AND timers.shard_id IN (:p_list_key_0) ORDER BY timers.shard_id FOR UPDATE WAIT 5")
    assert [row["p_old_uuid"] for row in update.parameters] == [uuid_bytes("single", each.timer_id) for each in batch]
    assert kinds(driver).count("UPDATE") == 3


def test_expired_calls_are_locked_without_a_limit_of_oracles(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("FROM service_calls", ("t", "c", 3), times=1)
    driver.answer("FROM (outbox|service_calls)")

    store.calls.prune(now=NOW, events_published_before=NOW, limit=5)

    (locking,) = [each for each in driver.sent if "FOR UPDATE" in each.sql]
    assert "FETCH" not in locking.sql
    assert locking.sql.endswith("AND ROWNUM <= :p_limit ORDER BY service_calls.expires_at FOR UPDATE WAIT 5")
    assert locking.parameters["p_limit"] == 5


def test_an_empty_text_is_never_sent(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("FROM (namespaces|api_keys|outbox)")

    store.list_namespaces(cursor=None, limit=5)
    store.all_api_keys(cursor=None, limit=5)
    store.calls.all_events(cursor=None, limit=5)

    sent = [each.parameters for each in driver.sent if each.sql.startswith("SELECT")]
    assert [parameters.get("p_after", parameters.get("p_tenant")) for parameters in sent] == ["\x01"] * 3


@for_all(st.text("\x00\x01\x02a\u00e9"))
def test_every_text_comes_back_as_it_was(text: str) -> None:
    stored = stored_text(text)

    assert stored != ""
    assert read_text(stored) == text


@for_all(st.text("!~a\u00e9\U0001f600"), st.text("!~a\u00e9\U0001f600"))
def test_texts_keep_their_order(one: str, other: str) -> None:
    assert (stored_text(one) < stored_text(other)) is (one < other)


def test_no_statement_has_an_empty_text_in_it(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.unit.sql.test_every_statement import statements_of

    for sql in statements_of(open_dialect(URL), monkeypatch, TimeSource.CALLER):
        assert "''" not in sql


@pytest.mark.parametrize(
    ("kind", "precision", "expected"),
    [
        (oracledb.DB_TYPE_VARCHAR, 0, oracledb.DB_TYPE_VARCHAR),
        (oracledb.DB_TYPE_CLOB, 0, oracledb.DB_TYPE_LONG),
        (oracledb.DB_TYPE_NUMBER, 19, None),
        (oracledb.DB_TYPE_NUMBER, 0, oracledb.DB_TYPE_VARCHAR),
        (oracledb.DB_TYPE_RAW, 0, None),
    ],
)
def test_columns_are_read_as_texts_and_whole_numbers(kind: Any, precision: int, expected: Any) -> None:
    asked: list[Any] = []
    cursor = SimpleNamespace(arraysize=100, var=lambda *args, **kwargs: asked.append((args[0], kwargs)) or "variable")
    column = SimpleNamespace(type_code=kind, precision=precision, scale=0, internal_size=255)

    made = read_exactly(cursor, column)

    assert (made, [each[0] for each in asked]) == ((None, []) if expected is None else ("variable", [expected]))
    if asked:
        assert asked[0][1]["outconverter"] is (int if kind is oracledb.DB_TYPE_NUMBER else read_text)


def test_what_a_socket_raises_does_not_leave_the_store(store: SqlStore, driver: RecordedDriver) -> None:
    driver.answer("FROM namespaces", error=ConnectionResetError(104, "Connection reset by peer"))

    with pytest.raises(StoreUnavailable, match="ConnectionResetError"):
        store.get_namespace("x")
