"""SQL Server: what the statements look like when pymssql sends them, and what they take care of."""

from __future__ import annotations

import re

import pytest
import sqlalchemy as sa
import sqlglot
from sqlglot import expressions as exp

from duetime.stores.sql.call_tables import service_call_tags, service_calls
from duetime.stores.sql.column_types import exact_text_of
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.sqlserver_migrations import MIGRATIONS
from duetime.stores.sql.sqlserver_sql import InsertIfAbsent, _literal
from duetime.stores.sql.tables import metadata, timers
from duetime.stores.time_source import TimeSource
from tests.support.recorded_driver import Sent
from tests.unit.sql.statements import pymssql_texts as wire
from tests.unit.sql.test_every_statement import CASES, statements_of


def test_texts_are_unicode_and_quoted() -> None:
    sent = Sent("SELECT %(a)s, %(b)s, 7 % 5", {"a": "it's 100 %s \U0001f600 é", "b": None})

    assert wire(sent) == ["SELECT N'it''s 100 %s \U0001f600 é', NULL, 7 % 5"]


@pytest.mark.parametrize("value", [b"\0\1", b"0123456789abcdef", b"it's", b"", b"\xff"])
def test_bytes_are_bytes_even_if_they_look_like_a_text(value: bytes) -> None:
    sent = Sent("SELECT %(a)s", {"a": _literal(value)})

    assert wire(sent) == [f"SELECT 0x{value.hex()}"]


def test_pymssql_by_itself_takes_bytes_for_a_text() -> None:
    """Why ``_literal`` is there. SQL Server converts no varchar to binary by itself."""
    assert wire(Sent("SELECT %(a)s", {"a": b"0123456789abcdef"})) == ["SELECT '0123456789abcdef'"]


@pytest.mark.parametrize("text", ["a\\\nb", "a\\\r\nb", "\\\r", "\U0001f600\\\n'"])
def test_a_backslash_at_the_end_of_a_line_is_kept(text: str) -> None:
    """T-SQL would take it for a literal that goes on in the next line, and drop both."""
    sent = Sent("SELECT %(a)s", {"a": _literal(text)})

    assert wire(sent) == [f"SELECT 0x{text.encode('utf-16-le').hex()}"]


@pytest.mark.parametrize("text", ["a\\b", "a\nb", "\\", "\n\\"])
def test_other_backslashes_and_ends_of_lines_are_texts(text: str) -> None:
    assert wire(Sent("SELECT %(a)s", {"a": _literal(text)})) == [f"SELECT N'{text}'"]


EXACT = {
    f"{table.name}.{column.name}"
    for table in metadata.tables.values()
    for column in table.columns
    if type(column.type) is type(exact_text_of(1)) and "mssql" in column.type._variant_mapping
    if type(column.type._variant_mapping["mssql"]).__name__ == "_Ended"
}


def test_texts_that_may_end_in_blanks_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQL Server takes 'a' and 'a ' for the same, whatever the collation: a character behind them helps."""
    assert {"timers.timer_id", "timers.timer_correlation_id", "service_call_tags.tag", "service_calls.name"} <= EXACT
    compared: set[str] = set()
    for sql in statements_of(open_dialect(CASES["mssql"].url), monkeypatch, TimeSource.DATABASE):
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


def test_an_insert_looks_for_every_key_whose_columns_it_has() -> None:
    def keys(table: sa.Table, *names: str) -> list[str]:
        statement = InsertIfAbsent(table).values({name: sa.bindparam(name) for name in names})
        text = str(statement.compile(dialect=open_dialect("mssql://db/x").engine.dialect))
        assert text.count("WITH (UPDLOCK, ROWLOCK, HOLDLOCK)") == text.count("EXISTS")
        found = re.findall(r"WHERE (\w+\.\w+ = .*?)\)\)", text.replace("\n", " "))
        return [", ".join(re.findall(r"(\w+) =", each)) for each in found]

    assert keys(service_calls, "tenant_id", "service_call_id", "idempotency_key") == [
        "tenant_id, service_call_id",
        "tenant_id, idempotency_key",
    ]
    assert keys(service_call_tags, "tenant_id", "service_call_id", "tag") == ["tenant_id, service_call_id, tag"]
    key = ("shard_id", "row_type", "timer_execute_at", "timer_uuid")
    assert keys(timers, *key) == [", ".join(key)]
    assert keys(timers, *key, "timer_namespace", "timer_id") == ["timer_namespace, shard_id, timer_id"]
    with pytest.raises(AssertionError, match="no key"):
        InsertIfAbsent(timers).values(timer_id=sa.bindparam("x"))


def test_indexes_keep_within_their_bytes() -> None:
    """900 for a clustered key, 1,700 for others; the one exception is told in docs/stores/sqlserver.md."""
    sizes = {"INT": 4, "BIGINT": 8, "BINARY(16)": 16}
    too_large = []
    for statement in (text for migration in MIGRATIONS for text in migration.statements):
        if match := re.search(r"CREATE TABLE (\w+) \(", statement):
            table = match[1]
            columns = re.findall(r"^\s*(\w+) (INT|BIGINT|BINARY\(16\)|NVARCHAR\((\d+)\))", statement, re.M)
            sizes |= {f"{table}.{name}": sizes.get(kind) or 2 * int(length) for name, kind, length in columns}
            keys = [(table, 900, *re.search(r"PRIMARY KEY CLUSTERED \((.*?)\)", statement).groups())]  # type: ignore[union-attr]
        else:
            keys = [(table, 1700, names) for table, names in re.findall(r"INDEX \w+\s+ON (\w+) \((.*?)\)", statement)]
        for table, limit, names in keys:
            size = sum(sizes[f"{table}.{name.split()[0]}"] for name in names.split(", "))
            too_large += [(table, names)] if size > limit else []
    assert too_large == [("timers", "timer_namespace, timer_correlation_id, timer_id")]
