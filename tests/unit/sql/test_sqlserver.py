"""SQL Server without a server: URLs, servers that do not answer, what errors mean, and what values become in pymssql.

That its statements and definitions can be read as T-SQL is shown by test_every_statement.py.
"""

from __future__ import annotations

import re
from typing import Any

import pymssql
import pytest
import sqlglot
from pymssql import _mssql
from sqlglot import expressions as exp

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.column_types import exact_text_of
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.dialects.sqlserver_sql import _as_sent
from duetime.stores.backends.sql.errors import TransactionAborted
from duetime.stores.backends.sql.tables import metadata
from duetime.stores.open import open_store
from duetime.stores.time_source import TimeSource
from tests.support.silent_server import check_is_refused_in_time
from tests.unit.sql.test_every_statement import CASES, statements_of

SECRET = "hunter2"


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
    monkeypatch.setattr("duetime.stores.backends.sql.dialects.sqlserver.CONNECT_TIMEOUT_SECONDS", 1)
    check_is_refused_in_time("sqlserver", "duetime", is_listening=is_listening)


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

    assert type(dialect.classify(pymssql.OperationalError(number, b"text"))) is kind
    assert type(dialect.classify(pymssql.OperationalError((number, b"text")))) is kind


def test_a_connection_that_is_gone_may_come_back() -> None:
    error = open_dialect("mssql://u@db/x").classify(pymssql.InterfaceError("Connection is closed."))

    assert type(error) is StoreUnavailable
    assert "db:1433/x" in error.message


def wire(value: Any) -> str:
    """What pymssql makes of a value in the text of a statement."""
    return _mssql.substitute_params("%(a)s", _as_sent({"a": value})).decode()


@pytest.mark.parametrize("text", ["it's 100 %s \U0001f600 é", "", "a\\b", "a\nb", "\\", "\n\\"])
def test_texts_are_unicode_and_quoted(text: str) -> None:
    quoted = text.replace("'", "''")
    assert wire(text) == f"N'{quoted}'"


@pytest.mark.parametrize("value", [b"\0\1", b"0123456789abcdef", b"it's", b"", b"\xff"])
def test_bytes_are_bytes_even_if_they_look_like_a_text(value: bytes) -> None:
    assert wire(value) == f"0x{value.hex()}"


@pytest.mark.parametrize("text", ["a\\\nb", "a\\\r\nb", "\\\r", "\U0001f600\\\n'"])
def test_a_backslash_at_the_end_of_a_line_is_kept(text: str) -> None:
    """T-SQL would take it for a literal that goes on in the next line, and drop both."""
    assert wire(text) == f"0x{text.encode('utf-16-le').hex()}"


def test_a_text_that_would_end_the_statement_is_refused() -> None:
    with pytest.raises(StoreError, match=r"U\+0000"):
        wire("w'; DROP TABLE timers --\0")


EXACT = {
    f"{table.name}.{column.name}"
    for table in metadata.tables.values()
    for column in table.columns
    if type(column.type) is type(exact_text_of(1)) and "mssql" in column.type._variant_mapping
    if type(column.type._variant_mapping["mssql"]).__name__ == "_Ended"
}


def test_texts_that_may_end_in_blanks_are_told_apart() -> None:
    """SQL Server takes 'a' and 'a ' for the same, whatever the collation: a character behind them helps."""
    assert {"timers.timer_id", "timers.timer_correlation_id", "service_call_tags.tag", "service_calls.name"} <= EXACT
    compared: set[str] = set()
    for sql in statements_of(open_dialect(CASES["mssql"].url), TimeSource.DATABASE):
        text = re.sub(r"%\((\w+)\)s", r"@\1", sql)
        (statement,) = sqlglot.parse(text, dialect="tsql")
        assert statement is not None
        for comparison in statement.find_all(exp.EQ, exp.GT, exp.LT, exp.GTE, exp.LTE):
            column, value = comparison.this, comparison.expression
            if isinstance(column, exp.Column) and f"{column.table or statement.this.name}.{column.name}" in EXACT:
                compared.add(f"{column.table or statement.this.name}.{column.name}")
                if not isinstance(value, exp.Null):
                    assert value.sql("tsql").endswith(("+ NCHAR(1)", "+ CHAR(1)")), text
        for choice in statement.find_all(exp.In):
            if f"{choice.this.table}.{choice.this.name}" in EXACT:
                assert choice.expressions
                assert all(value.sql("tsql").endswith("+ NCHAR(1)") for value in choice.expressions), text
        for insert in statement.find_all(exp.Insert):
            table = insert.this.this.name
            for column, value in zip(insert.this.expressions, insert.expression.expressions, strict=True):
                if f"{table}.{column.name}" in EXACT:
                    compared.add(f"{table}.{column.name}")
                    assert value.this.sql("tsql").endswith(("+ NCHAR(1)", "+ CHAR(1)")), text
        for column in statement.find_all(exp.Column):
            if f"{column.table}.{column.name}" in EXACT and isinstance(column.parent, exp.Select):
                raise AssertionError(f"{column.name} is read with what ends it: {text}")
    assert compared == EXACT


def test_what_ends_a_text_keeps_the_order() -> None:
    ids = ["a", "a ", "a!", "a  b", "ab", "b", "~", "é", "a\u3042"]

    assert sorted(ids) == sorted(ids, key=lambda each: each + "\x01")
    assert len({(each + "\x01").rstrip(" ") for each in ids}) == len(ids)
