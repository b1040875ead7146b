"""Servers that end connections, and that take no writes for a while: one failure, and the store goes on."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa

from duetime.domain.errors import StoreUnavailable
from duetime.domain.namespaces import Namespace
from duetime.stores.port.timers import PutMode, PutStatus
from duetime.testing.contract.builders import make_timer
from tests.support.clock import NOW
from tests.support.databases import open_server_store, shared_server_store
from tests.support.sql_store import SqlStore

PATIENCE_SECONDS = 20
_OTHERS = {
    "postgresql": "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
    "mysql": "SELECT id FROM information_schema.processlist WHERE db = database() AND id <> connection_id()",
}
_END = {"postgresql": "SELECT pg_terminate_backend({})", "mysql": "KILL {}"}
_SHORT_PATIENCE = {"postgresql": "SET idle_session_timeout = '1s'", "mysql": "SET SESSION wait_timeout = 1"}


def is_stored(store: SqlStore, namespace: Namespace, timer_id: str) -> bool:
    (result,) = store.timers.put([make_timer(namespace, timer_id)], mode=PutMode.CREATE, now=NOW)
    return result.status is PutStatus.CREATED


def end_connections(server: str) -> int:
    """As a server does that stops: all that the database has. How many there were."""
    shared_server_store(server).close()  # which other tests go on with
    store = open_server_store(server)
    with store.database.engine.connect() as connection:
        found = connection.exec_driver_sql(_OTHERS[connection.dialect.name]).scalars().all()
        for number in found:
            connection.exec_driver_sql(_END[connection.dialect.name].format(number))
        wait_until_alone(connection)
    store.close()
    return len(found)


def wait_until_alone(connection: sa.Connection) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while connection.exec_driver_sql(_OTHERS[connection.dialect.name]).first() is not None:
        assert time.monotonic() < deadline, "the server does not end its connections"
        time.sleep(0.05)


def test_connections_that_the_server_ended_fail_one_operation(
    server: str, server_store: SqlStore, single: Namespace
) -> None:
    if server_store.database.engine.dialect.name not in _END:
        pytest.skip("how to end connections is written for two kinds of servers")
    together = threading.Barrier(4)

    def hold_a_connection(_: int) -> None:
        with server_store.database.read():
            together.wait(PATIENCE_SECONDS)

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(hold_a_connection, range(4)))
    assert end_connections(server) >= 4

    with pytest.raises(StoreUnavailable):
        server_store.timers.get(single, "t", now=NOW)
    for number in range(6):
        assert is_stored(server_store, single, f"t{number}")


def test_a_session_that_was_idle_for_too_long_fails_one_operation(
    server: str, server_store: SqlStore, single: Namespace
) -> None:
    """As when a machine stood still."""
    if server_store.database.engine.dialect.name not in _SHORT_PATIENCE:
        pytest.skip("how to shorten it is written for two kinds of servers")
    shared_server_store(server).close()
    operator = open_server_store(server)
    with server_store.database.read() as connection:
        connection.exec_driver_sql(_SHORT_PATIENCE[server_store.database.engine.dialect.name])
    with operator.database.engine.connect() as connection:
        wait_until_alone(connection)
    operator.close()

    with pytest.raises(StoreUnavailable):
        server_store.timers.get(single, "t", now=NOW)
    assert is_stored(server_store, single, "t")


def test_a_server_that_took_no_writes_gets_them_again(server: str, server_store: SqlStore, single: Namespace) -> None:
    """As after a failover: the sessions that there are stay read-only, new ones are not."""
    if server_store.database.engine.dialect.name != "postgresql":
        pytest.skip("only PostgreSQL lets a database's sessions be read-only")
    operator = open_server_store(server)
    with operator.database.engine.connect() as connection:
        database = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        try:
            connection.exec_driver_sql(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
            server_store.close()
            with pytest.raises(StoreUnavailable, match="ReadOnly"):
                is_stored(server_store, single, "t")
        finally:
            connection.exec_driver_sql(f"ALTER DATABASE {database} RESET default_transaction_read_only")
    operator.close()

    assert is_stored(server_store, single, "t")
