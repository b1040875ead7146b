"""Engines of servers: what drivers are given, and connections that lead astray."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, Self

import oracledb
import psycopg
import pymssql
import pymysql
import pytest
import sqlalchemy as sa

from duetime.domain.errors import InvalidSettings, StoreNotReady
from duetime.stores.backends.sql.dialects.db_now import MysqlDbNow
from duetime.stores.backends.sql.dialects.dialect import SqlDialect, open_dialect
from duetime.stores.backends.sql.dialects.engines import server_engine
from duetime.stores.backends.sql.dialects.mysql import MysqlDialect
from duetime.stores.backends.sql.dialects.postgresql import _prepare_session


class Stop(Exception):
    pass


def driver_s_arguments(dialect: SqlDialect) -> dict[str, Any]:
    """What the driver would be given to connect."""
    given: dict[str, Any] = {}

    @sa.event.listens_for(dialect.engine, "do_connect")
    def note(_dialect: object, _record: object, _args: object, arguments: dict[str, Any]) -> None:
        given.update(arguments)
        raise Stop

    with pytest.raises(Stop):
        dialect.engine.connect()
    return given


def test_what_is_sent_to_postgresql_is_not_waited_for_without_end() -> None:
    """A network that drops all: keepalives do not count then, and the kernel sends again for a quarter of an hour."""
    given = driver_s_arguments(open_dialect("postgresql://db/x"))

    assert 0 < given["tcp_user_timeout"] <= 30_000
    assert driver_s_arguments(open_dialect("postgresql://db/x?tcp_user_timeout=5000"))["tcp_user_timeout"] == "5000"


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "tidb", "oracle", "sqlserver"])
def test_a_password_may_have_any_character(scheme: str) -> None:
    password = "p@ss/w:rd?#% €ü+"
    url = sa.URL.create(scheme, username="u ser", password=password, host="db", database="x")
    dialect = open_dialect(url.render_as_string(hide_password=False))

    given = driver_s_arguments(dialect)

    # PyMySQL would make Latin-1 of a text, which has no euro.
    assert given["password"] in (password, password.encode())
    assert isinstance(given["password"], bytes) == (scheme in ("mysql", "tidb"))
    assert given["user"] == "u ser"


def test_options_of_a_postgresql_url_count_more_than_ours() -> None:
    url = "postgresql://db/x?connect_timeout=30&options=-c%20search_path%3Dduetime&sslmode=require"

    given = driver_s_arguments(open_dialect(url))

    assert given["connect_timeout"] == "30"
    assert given["options"] == "-c search_path=duetime"
    assert given["sslmode"] == "require"
    assert given["application_name"] == "duetime"
    assert given["client_encoding"] == "UTF8"


def test_an_option_that_libpq_does_not_know_is_one_clear_line() -> None:
    with pytest.raises(InvalidSettings, match=r"libpq.*'pasword'") as raised:
        open_dialect("postgresql://db/x?pasword=hunter2")

    assert "hunter2" not in str(raised.value)


class PostgresqlConnection:
    """Answers what a new connection is asked with the encoding of its database."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def cursor(self) -> PostgresqlConnection:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, sql: str) -> PostgresqlConnection:
        return self

    def fetchone(self) -> tuple[str, ...]:
        return "5s", self.encoding


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "LATIN1"])
def test_a_postgresql_database_that_cannot_hold_every_text_is_not_ready(encoding: str) -> None:
    connection = PostgresqlConnection(encoding)

    with pytest.raises(StoreNotReady, match=f"UTF8, and has {encoding}"):
        _prepare_session(connection, None)  # type: ignore[arg-type]


def test_a_postgresql_session_is_not_prepared_by_options_of_the_connection() -> None:
    """Which poolers refuse."""
    assert "options" not in driver_s_arguments(open_dialect("postgresql://db/x"))


class MysqlCursor:
    """A server whose SYSDATE is that of the session or the clock's."""

    def __init__(self, *, is_now: bool) -> None:
        self.is_now = is_now

    def execute(self, sql: str) -> None:
        pass

    def fetchone(self) -> tuple[int]:
        return (1 if self.is_now else 1_790_000_000,)


def test_a_mysql_server_whose_sysdate_stands_still_is_not_ready() -> None:
    """Each connection would hold its clock at its first transaction's instant, and leases with it."""
    with pytest.raises(StoreNotReady, match="sysdate-is-now"):
        MysqlDbNow.check_clock(MysqlCursor(is_now=True))


@pytest.mark.parametrize("code", [1227, 1290])
def test_a_mysql_server_whose_sessions_may_not_set_their_clock_is_not_ready(code: int) -> None:
    dialect = open_dialect("mariadb://db/x")
    assert isinstance(dialect, MysqlDialect)

    class Strict(MysqlCursor):
        def execute(self, sql: str) -> None:
            if sql == "SET timestamp = 1":
                raise pymysql.OperationalError(code, "--secure-timestamp")

    connection = SimpleNamespace(cursor=lambda: nullcontext(Strict(is_now=False)))

    with pytest.raises(StoreNotReady, match="secure_timestamp"):
        dialect._prepare_session(connection, None)


def test_an_attempt_to_connect_to_mysql_reads_no_certificates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are compared with: the driver does it for each attempt, while a server is down too."""
    read: list[object] = []
    monkeypatch.setattr(ssl, "create_default_context", lambda *_, **__: read.append(1))
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        dialect = open_dialect(f"mysql://u@127.0.0.1:{reserved.getsockname()[1]}/x")

        for _ in range(2):
            with pytest.raises(sa.exc.OperationalError, match="2003"):
                dialect.engine.connect()

    assert read == []


def of_oracle(number: int) -> oracledb.DatabaseError:
    return oracledb.DatabaseError(SimpleNamespace(code=number, full_code=f"ORA-{number:05}"))


@pytest.mark.parametrize(
    ("url", "error", "leads_astray"),
    [
        ("postgresql://db/x", psycopg.errors.ReadOnlySqlTransaction(), True),
        ("postgresql://db/x", psycopg.errors.LockNotAvailable(), False),
        ("mysql://db/x", pymysql.OperationalError(1290, "--read-only"), True),
        ("mysql://db/x", pymysql.OperationalError(1836, "read-only mode"), True),
        ("mysql://db/x", pymysql.OperationalError(1205, "lock"), False),
        ("oracle://u:p@db/x", of_oracle(16000), True),
        ("oracle://u:p@db/x", of_oracle(54), False),
        ("sqlserver://u:p@db/x", pymssql.OperationalError(3906, b"read-only"), True),
        ("sqlserver://u:p@db/x", pymssql.OperationalError(1222, b"lock"), False),
    ],
)
def test_a_server_that_takes_no_writes_any_more_loses_its_connections(
    url: str, error: Exception, leads_astray: bool
) -> None:
    """It was demoted: its name leads to another one by now, and a connection that is kept never finds out."""
    context = SimpleNamespace(original_exception=error, is_disconnect=False)

    for listener in open_dialect(url).engine.dialect.dispatch.handle_error:
        listener(context)

    assert context.is_disconnect is leads_astray


def test_connections_that_lead_astray_are_made_anew() -> None:
    engine = server_engine(
        sa.make_url("sqlite://"), {}, is_astray=lambda error: "astray" in str(error), poolclass=sa.QueuePool
    )
    made: list[object] = []
    sa.event.listen(engine, "connect", lambda connection, _: made.append(connection))

    def fail(table: str) -> None:
        with engine.connect() as connection, pytest.raises(sa.exc.OperationalError):
            connection.exec_driver_sql(f"SELECT * FROM {table}")

    fail("other")
    fail("other")
    assert len(made) == 1
    fail("astray")
    fail("other")
    assert len(made) == 2
    engine.dispose()


def caused_by(cause: BaseException) -> Exception:
    """As python-oracledb tells what its socket raised."""
    error = oracledb.OperationalError(SimpleNamespace(code=0, full_code="DPY-6005"))
    error.__cause__ = cause
    return error


def holding(original: BaseException) -> Exception:
    """As PyMySQL does."""
    error = pymysql.OperationalError(2003, "Can't connect to MySQL server")
    error.original_exception = original  # type: ignore[attr-defined]
    return error


@pytest.mark.parametrize(("url", "wrap"), [("mysql://db/x", holding), ("oracle://u:p@db/x", caused_by)])
def test_a_certificate_that_is_not_accepted_is_told(url: str, wrap: Callable[[BaseException], Exception]) -> None:
    dialect = open_dialect(url)
    refused = ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED]")
    refused.verify_message = "self-signed certificate"

    assert "not accepted: self-signed certificate" in dialect.classify(wrap(refused)).message
    assert "no encryption" in dialect.classify(wrap(ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER]"))).message
    assert "cannot be reached" in dialect.classify(wrap(ConnectionRefusedError())).message
