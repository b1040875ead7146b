"""DbNow on servers: the SQL that each dialect's strategy makes. tests/integration/sql runs it on the servers."""

from __future__ import annotations

from datetime import datetime

import pytest
import sqlalchemy as sa
import sqlglot
from sqlalchemy.dialects import mssql, mysql, oracle, postgresql

from duetime.stores.sql.database import Database
from duetime.stores.sql.db_now import (
    DbNowStrategy,
    MysqlDbNow,
    OracleDbNow,
    PostgresqlDbNow,
    SqlServerDbNow,
    db_now_strategy,
)
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.tables import given_count, timers
from duetime.stores.time_source import TimeSource

POSTGRESQL_MS = "CAST(floor(extract(epoch FROM CURRENT_TIMESTAMP) * 1000) AS BIGINT)"
POSTGRESQL_INSTANT = "date_trunc('milliseconds', CURRENT_TIMESTAMP)"
POSTGRESQL_FORMAT = """'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"'"""
MYSQL_MS = "CAST(UNIX_TIMESTAMP(CURRENT_TIMESTAMP(3)) * 1000 AS SIGNED)"
SQLSERVER_MS = "CAST(SESSION_CONTEXT(N'duetime.now_ms') AS BIGINT)"
ORACLE_MS = "TO_NUMBER(SYS_CONTEXT('USERENV', 'CLIENT_INFO'))"

in_postgresql = PostgresqlDbNow(TimeSource.DATABASE)
in_mysql = MysqlDbNow()
in_sqlserver = SqlServerDbNow()
in_oracle = OracleDbNow()


def sql(expression: sa.ColumnElement[object], dialect: sa.engine.Dialect) -> str:
    compiled = expression.compile(dialect=dialect, compile_kwargs={"literal_binds": True})
    return " ".join(str(compiled).split())


def test_postgresql_has_the_start_of_the_transaction() -> None:
    dialect = postgresql.dialect()

    assert sql(in_postgresql.epoch_ms(), dialect) == POSTGRESQL_MS
    assert sql(in_postgresql.epoch_ms(1500), dialect) == f"{POSTGRESQL_MS} + 1500"
    utc = f"timezone('UTC', {POSTGRESQL_INSTANT})"
    assert sql(in_postgresql.iso_text(), dialect) == f"to_char({utc}, {POSTGRESQL_FORMAT})"
    later = f"timezone('UTC', {POSTGRESQL_INSTANT} + make_interval(0, 0, 0, 0, 0, 0, 1.5))"
    assert sql(in_postgresql.iso_text(1.5), dialect) == f"to_char({later}, {POSTGRESQL_FORMAT})"


def test_the_callers_time_is_a_setting_of_the_transaction_on_postgresql() -> None:
    text = sql(PostgresqlDbNow(TimeSource.CALLER).epoch_ms(), postgresql.dialect())

    given = "CAST(nullif(current_setting('duetime.now_ms', true), '') AS BIGINT)"
    assert text == f"coalesce({given}, {POSTGRESQL_MS})"


def test_mysql_has_the_session_s_timestamp() -> None:
    dialect = mysql.dialect(paramstyle="named")

    assert sql(in_mysql.epoch_ms(), dialect) == MYSQL_MS
    assert sql(in_mysql.epoch_ms(-1), dialect) == f"{MYSQL_MS} + -1"
    base = "date_format(CURRENT_TIMESTAMP(3), '%Y-%m-%dT%H:%i:%s.%f')"
    assert sql(in_mysql.iso_text(), dialect) == f"concat(left({base}, 23), 'Z')"
    microseconds = "CAST(round(1000000 * 1.5) AS SIGNED INTEGER)"
    later = f"date_format(timestampadd(MICROSECOND, {microseconds}, CURRENT_TIMESTAMP(3)), '%Y-%m-%dT%H:%i:%s.%f')"
    assert sql(in_mysql.iso_text(1.5), dialect) == f"concat(left({later}, 23), 'Z')"


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


@pytest.mark.parametrize("name", ["mssql", "mysql", "oracle", "postgresql", "sqlite"])
def test_every_dialect_has_one_strategy_whatever_the_source(name: str) -> None:
    assert {type(db_now_strategy(name, source)) for source in TimeSource} == {type(db_now_strategy(name))}


def test_no_strategy_falls_back_to_this_process_s_clock() -> None:
    this_year = str(datetime.now().astimezone().year)
    strategies = {
        in_postgresql: postgresql.dialect(),
        in_mysql: mysql.dialect(paramstyle="named"),
        in_sqlserver: mssql.dialect(paramstyle="named"),  # type: ignore[no-untyped-call]
        in_oracle: oracle.dialect(paramstyle="named"),  # type: ignore[no-untyped-call]
    }
    for strategy, dialect in strategies.items():
        assert this_year not in sql(strategy.epoch_ms(), dialect) + sql(strategy.iso_text(), dialect)
