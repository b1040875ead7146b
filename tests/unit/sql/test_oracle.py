"""Oracle without a server: URLs, servers that do not answer, what errors mean, and texts that would be NULL.

That its statements and definitions can be read as Oracle's is shown by test_every_statement.py.
"""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace
from typing import Any

import oracledb
import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st
from oracledb.errors import _Error

from duetime.domain.errors import InvalidSettings, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.backends.sql.dialects.oracle_sql import NoAnswer, connect_in_time, read_text, stored_text
from duetime.stores.backends.sql.errors import TransactionAborted
from duetime.stores.open import open_store
from duetime.stores.time_source import TimeSource
from tests.support.silent_server import check_is_refused_in_time
from tests.unit.sql.test_every_statement import statements_of

SECRET = "hunter2"
URL = f"oracle://duetime:{SECRET}@db/service"


@pytest.mark.parametrize(
    "url",
    [
        "oracle://db.example",
        f"oracle://u:{SECRET}@db.example",
        "oracle://u@db.example/x",
        f"oracle://u:{SECRET}@db.example:port/x",
        f"oracle://u:{SECRET}@db.example/x?tls=perhaps",
        f"oracle://u:{SECRET}@db.example/x?encoding=latin1",
    ],
)
def test_a_url_that_cannot_be_used_says_what_one_is_like(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"oracle://user:password@host:1521/service") as raised:
        open_store(url)

    assert SECRET not in str(raised.value)
    assert "\n" not in str(raised.value)


# The driver leaves the socket of an attempt that fails late to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("is_listening", [False, True], ids=["closed", "silent"])
def test_a_server_that_is_down_is_one_clear_line_in_bounded_time(
    is_listening: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("duetime.stores.backends.sql.dialects.oracle_sql.CONNECT_TIMEOUT_SECONDS", 0.25)
    check_is_refused_in_time("oracle", "service", is_listening=is_listening)
    wait_for_attempts()
    gc.collect()


def wait_for_attempts() -> None:
    """Attempts that were given up end when their socket does."""
    for thread in threading.enumerate():
        if thread.name == "oracle-connect":
            thread.join(10)
            assert not thread.is_alive()


def test_a_connection_that_comes_too_late_is_closed() -> None:
    is_late, is_closed = threading.Event(), threading.Event()

    def connect() -> Any:
        is_late.wait(10)
        return SimpleNamespace(close=is_closed.set)

    with pytest.raises(NoAnswer):
        connect_in_time(connect, seconds=0.01)
    is_late.set()

    assert is_closed.wait(10)
    wait_for_attempts()


def error_of(number: int) -> oracledb.DatabaseError:
    """As the driver makes it of the server's."""
    detail = _Error(f"ORA-{number:05}: text", code=number)
    made: oracledb.DatabaseError = detail.exc_type(detail)
    return made


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (60, TransactionAborted),  # deadlock
        (8177, TransactionAborted),  # serialisation
        (1555, TransactionAborted),  # snapshot too old
        (54, StoreUnavailable),  # NOWAIT
        (30006, StoreUnavailable),  # WAIT
        (1013, StoreUnavailable),  # cancelled
        (3113, StoreUnavailable),  # end of file
        (12541, StoreUnavailable),  # no listener
        (12514, StoreUnavailable),  # no service
        (1033, StoreUnavailable),  # starting
        (1017, StoreUnavailable),  # password
        (28000, StoreUnavailable),  # locked
        (1653, StoreUnavailable),  # tablespace
        (942, StoreNotReady),  # table
        (904, StoreNotReady),  # column
        (1, StoreError),  # unique
        (1461, StoreError),  # LONG
        (12899, StoreError),  # too long: beyond the numbers of the network
    ],
)
def test_what_errors_of_the_server_mean(number: int, kind: type[StoreError]) -> None:
    assert type(open_dialect(URL).classify(error_of(number))) is kind


@pytest.mark.parametrize("code", ["DPY-1001", "DPY-4011", "DPY-4024", "DPY-6000", "DPY-6001", "DPY-6005"])
def test_what_errors_of_the_driver_mean(code: str) -> None:
    error = open_dialect(URL).classify(oracledb.OperationalError(SimpleNamespace(code=0, full_code=code)))

    assert type(error) is StoreUnavailable
    assert "db:1521/service" in error.message


@for_all(st.text("\x00\x01\x02a\u00e9"))
def test_every_text_comes_back_as_it_was(text: str) -> None:
    stored = stored_text(text)

    assert stored != ""
    assert read_text(stored) == text


@for_all(st.text("!~a\u00e9\U0001f600"), st.text("!~a\u00e9\U0001f600"))
def test_texts_keep_their_order(one: str, other: str) -> None:
    assert (stored_text(one) < stored_text(other)) is (one < other)


def test_no_statement_has_an_empty_text_in_it() -> None:
    for sql in statements_of(open_dialect(URL), TimeSource.CALLER):
        assert "''" not in sql
