"""DbNow on servers: the SQL that each dialect's strategy makes. tests/integration/sql runs it on the servers."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa
import sqlglot
from sqlalchemy.dialects import mssql, oracle

from duetime.stores.backends.sql.database import Database
from duetime.stores.backends.sql.dialects.db_now import (
    DbNowStrategy,
    OracleDbNow,
    SqlServerDbNow,
)
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.tables import given_count, timers
from duetime.stores.time_source import TimeSource

SQLSERVER_MS = "CAST(SESSION_CONTEXT(N'duetime.now_ms') AS BIGINT)"
ORACLE_MS = "TO_NUMBER(SYS_CONTEXT('USERENV', 'CLIENT_INFO'))"

in_sqlserver = SqlServerDbNow()
in_oracle = OracleDbNow()


def sql(expression: sa.ColumnElement[Any], dialect: sa.engine.Dialect) -> str:
    compiled = expression.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return " ".join(str(compiled).split())


@pytest.mark.parametrize(
    ("strategy", "dialect", "grammar"),
    [
        (in_sqlserver, mssql.dialect(paramstyle="named"), "tsql"),  # type: ignore[no-untyped-call]
        (in_oracle, oracle.dialect(paramstyle="named"), "oracle"),  # type: ignore[no-untyped-call]
    ],
    ids=["mssql", "oracle"],
)
def test_what_no_server_has_run_is_read_by_a_grammar(
    strategy: DbNowStrategy, dialect: sa.engine.Dialect, grammar: str
) -> None:
    for expression in (strategy.epoch_ms(), strategy.epoch_ms(5), strategy.iso_text(), strategy.iso_text(1.5)):
        (read,) = sqlglot.parse(f"SELECT {sql(expression, dialect)} AS x FROM t", dialect=grammar)
        assert read is not None
        assert read.key == "select"
    (read,) = sqlglot.parse(strategy.now_statement, dialect=grammar)
    assert read is not None
    assert read.key == "select"


def test_the_batch_that_fixes_sql_server_s_instant_ends_by_telling_it() -> None:
    batch = sqlglot.parse(SqlServerDbNow.seed_statement.replace("%(now_ms)s", "NULL"), dialect="tsql")

    assert [each.key for each in batch if each is not None] == ["declare", "execute", "select"]


@pytest.mark.parametrize(
    ("url", "expression"),
    [
        ("sqlite://", "ts_epoch_ms"),
        ("postgresql://db/x", "CURRENT_TIMESTAMP"),
        ("mysql://db/x", "CURRENT_TIMESTAMP(3)"),
        ("mssql://db/x", SQLSERVER_MS),
        ("oracle://u:p@db/x", ORACLE_MS),
    ],
)
def test_conditions_and_values_of_mutations_use_it(url: str, expression: str) -> None:
    database = Database(open_dialect(url), time_source=TimeSource.DATABASE)
    now = database.db_now.epoch_ms
    statement = (
        sa.update(timers).where(timers.c.timer_expires_at <= now()).values(timer_updated_at=now(given_count("more")))
    )

    assert database.prepare(statement, "more").sql.count(expression) == 2
