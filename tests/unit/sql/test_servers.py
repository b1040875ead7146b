"""PostgreSQL and MySQL without a server: URLs, and what the drivers' errors mean."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import psycopg
import pymysql
import pytest
from psycopg import errors

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.errors import TransactionAborted
from duetime.stores.open import open_store
from duetime.stores.port.timers import PutMode
from duetime.testing.contract.builders import make_timer
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore

SECRET = "hunter2"


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine where nothing listens, and nothing else can meanwhile."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield reserved.getsockname()[1]


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://db.example",
        "postgresql://db.example:port/x",
        "mysql://db.example",
        "mysql://db.example/x?tls=perhaps",
        f"mysql://u:{SECRET}@db.example/x?charset=latin1",
        "mariadb://db.example:port/x",
        "mysql://db..example/x",
        "mysql://db.example:65536/x",
        "postgresql://db..example/x",
        "postgresql://db.example:65536/x",
        "sqlserver://db..example/x",
        "sqlserver://db.example:0/x",
    ],
)
def test_a_url_that_cannot_be_used_says_what_one_is_like(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"://.*database") as raised:
        open_store(url)

    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mysql", "mariadb", "tidb"])
def test_a_server_that_is_down_is_one_clear_line(scheme: str, closed_port: int) -> None:
    store = open_store(f"{scheme}://user:{SECRET}@127.0.0.1:{closed_port}/duetime")

    with pytest.raises(StoreUnavailable) as raised:
        store.check()

    message = str(raised.value)
    assert f"127.0.0.1:{closed_port}/duetime" in message
    assert SECRET not in message
    assert "\n" not in message
    store.close()


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (errors.DeadlockDetected(), TransactionAborted),
        (errors.SerializationFailure(), TransactionAborted),
        (errors.LockNotAvailable(), StoreUnavailable),
        (errors.AdminShutdown(), StoreUnavailable),
        (errors.TooManyConnections(), StoreUnavailable),
        (errors.DiskFull(), StoreUnavailable),
        (errors.InsufficientPrivilege(), StoreUnavailable),
        (errors.ReadOnlySqlTransaction(), StoreUnavailable),
        (errors.UndefinedTable(), StoreNotReady),
        (errors.UndefinedColumn(), StoreNotReady),
        (errors.CheckViolation(), StoreError),
        (errors.SyntaxError(), StoreError),
        (psycopg.OperationalError("server closed the connection"), StoreUnavailable),
    ],
)
def test_what_postgresql_errors_mean(error: psycopg.Error, kind: type[StoreError]) -> None:
    assert type(open_dialect("postgresql://db/x").classify(error)) is kind


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1213, TransactionAborted),  # deadlock
        (1020, TransactionAborted),  # changed since the snapshot
        (1205, StoreUnavailable),  # lock wait timeout
        (1040, StoreUnavailable),  # too many connections
        (1290, StoreUnavailable),  # read-only
        (1836, StoreUnavailable),  # read-only, by itself
        (1142, StoreUnavailable),  # no right to the table
        (1698, StoreUnavailable),  # access denied, by a socket's user
        (1021, StoreUnavailable),  # full disk
        (1114, StoreUnavailable),  # full table
        (1927, StoreUnavailable),  # connection killed
        (2026, StoreUnavailable),  # no encryption
        (2006, StoreUnavailable),  # gone away
        (2013, StoreUnavailable),  # lost
        (1045, StoreUnavailable),  # access denied
        (1049, StoreUnavailable),  # no such database
        (1146, StoreNotReady),  # no such table
        (1054, StoreNotReady),  # no such column
    ],
)
def test_what_mysql_errors_mean(code: int, kind: type[StoreError]) -> None:
    assert type(open_dialect("mysql://db/x").classify(pymysql.OperationalError(code, "text"))) is kind


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        (
            "postgresql://db/x",
            errors.InsufficientPrivilege(),
            "PostgreSQL at db:5432/x does not let the user do this",
        ),
        ("mysql://db/x", pymysql.OperationalError(1142, "INSERT denied"), "db:3306/x does not let the user do this"),
        ("mysql://db/x", pymysql.OperationalError(2026, "SSL is required"), "?tls=on"),
        ("tidb://db/x", pymysql.OperationalError(3159, "insecure"), "db:4000/x wants encryption: ?tls=on"),
    ],
)
def test_what_is_refused_says_what_and_where(url: str, error: Exception, said: str) -> None:
    assert said in open_dialect(url).classify(error).message


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            'connection failed: connection to server at "db", port 5432 failed: FATAL:  database "x" does not exist',
            'FATAL:  database "x" does not exist',
        ),
        (
            'connection failed: connection to server at "db", port 5432 failed: Connection refused\n\tIs it running?',
            "Connection refused",
        ),
        ("", "OperationalError"),
    ],
)
def test_a_connection_that_is_not_made_says_why(message: str, reason: str) -> None:
    error = open_dialect("postgresql://db/x").classify(psycopg.OperationalError(message))

    assert error.message == f"PostgreSQL at db:5432/x cannot be used: {reason}"


def test_other_mysql_errors_are_our_fault() -> None:
    assert type(open_dialect("mysql://db/x").classify(pymysql.DataError(1406, "too long"))) is StoreError


def test_a_row_that_the_database_passes_over_is_an_error_and_no_endless_loop() -> None:
    """MySQL, say, passes over a row that breaks a rule of the table."""
    store = SqlStore(open_dialect("sqlite://"))
    store.initialise()
    namespace, _ = store.catalogue.create_namespace("n", num_shards=1, dedicated=False, now=NOW)
    with store.database.write() as mutation:
        mutation.connection.exec_driver_sql(
            "CREATE TRIGGER pass_over BEFORE INSERT ON timers WHEN NEW.row_type = 2 BEGIN SELECT RAISE(IGNORE); END"
        )

    with pytest.raises(StoreError, match="again and again"):
        store.timers.put([make_timer(namespace)], mode=PutMode.CREATE, now=NOW)

    assert store.timers.get(namespace, "t1", now=NOW) is None
    store.close()
