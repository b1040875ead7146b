"""The stand-in for Oracle keeps those of Oracle's rules that the store was written around."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import oracledb
import pytest

from duetime.stores.sql.oracle_migrations import MIGRATIONS
from duetime.stores.sql.oracle_sql import read_exactly
from tests.support.oracle_model import ModelCursor, OracleModel

CREATE = "BEGIN EXECUTE IMMEDIATE q'[CREATE TABLE t (a VARCHAR2(3 CHAR), b NUMBER(5), c CLOB)]'; END;"
UNIQUE = "BEGIN EXECUTE IMMEDIATE q'[CREATE UNIQUE INDEX i ON t (a, b)]'; END;"
INSERT = "INSERT INTO t (a, b, c) VALUES (:a, :b, :c)"


@pytest.fixture
def cursor(tmp_path: Path) -> Iterator[ModelCursor]:
    connection = OracleModel(tmp_path / "model.db").connect()
    connection.outputtypehandler = read_exactly
    cursor = connection.cursor()
    cursor.execute(CREATE)
    cursor.execute(UNIQUE)
    yield cursor
    cursor.close()
    connection.close()


def insert(cursor: ModelCursor, a: str | None, b: int | None, c: str | None = None) -> None:
    cursor.execute(INSERT, {"a": a, "b": b, "c": c})


def code_of(error: pytest.ExceptionInfo[oracledb.DatabaseError]) -> int:
    code: int = error.value.args[0].code
    return code


def test_an_empty_text_is_null(cursor: ModelCursor) -> None:
    insert(cursor, "", 1)
    cursor.execute("SELECT b FROM t WHERE a IS NULL")
    assert cursor.fetchall() == [(1,)]
    cursor.execute("SELECT b FROM t WHERE b > 0 AND a >= :a", {"a": ""})
    assert cursor.fetchall() == []


def test_keys_that_are_partly_null_are_equal_and_those_that_are_all_null_are_none(cursor: ModelCursor) -> None:
    insert(cursor, None, None)
    insert(cursor, None, None)
    insert(cursor, None, 1)
    with pytest.raises(oracledb.IntegrityError) as error:
        insert(cursor, None, 1)
    assert code_of(error) == 1


def test_a_batch_goes_on_behind_a_row_that_is_refused(cursor: ModelCursor) -> None:
    rows = [{"a": "x", "b": number, "c": None} for number in (1, 1, 2)]

    cursor.executemany(INSERT, rows, batcherrors=True)

    assert [(error.code, error.offset) for error in cursor.getbatcherrors()] == [(1, 1)]
    with pytest.raises(oracledb.IntegrityError):
        cursor.executemany(INSERT, rows)


def test_long_values_are_no_conditions_and_short_columns_are_short(cursor: ModelCursor) -> None:
    insert(cursor, "\U0001f600" * 3, 1, "x" * 5000)
    with pytest.raises(oracledb.DatabaseError) as long:
        cursor.execute("SELECT b FROM t WHERE a = :a", {"a": "x" * 5000})
    with pytest.raises(oracledb.DatabaseError) as wide:
        insert(cursor, "four", 1)
    assert (code_of(long), code_of(wide)) == (1461, 2290)


@pytest.mark.parametrize("given", [{}, {"b": 1, "c": 2}])
def test_each_parameter_is_given_and_no_other(given: dict[str, int], cursor: ModelCursor) -> None:
    with pytest.raises(oracledb.DatabaseError):
        cursor.execute("DELETE FROM t WHERE b = :b", given)


def test_definitions_commit(cursor: ModelCursor) -> None:
    insert(cursor, "x", 1)
    assert cursor.connection.transaction_in_progress
    cursor.execute(MIGRATIONS[0].statements[0])
    assert not cursor.connection.transaction_in_progress


def test_a_closed_cursor_counts_nothing(cursor: ModelCursor) -> None:
    other = cursor.connection.cursor()
    other.execute(INSERT, {"a": "x", "b": 1, "c": None})
    assert other.rowcount == 1
    other.close()
    assert other.rowcount == -1
    cursor.connection.rollback()
