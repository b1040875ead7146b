"""Cassandra stores for tests, on the server of ``DUETIME_TEST_CASSANDRA_URL`` (scripts/server.sh starts one).

Each test process has a keyspace of its own there, which stays: to make one takes the server seconds.
"""

from __future__ import annotations

import os
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from urllib.parse import urlsplit, urlunsplit

from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.backends.cassandra.backend import CassandraBackend
from duetime.stores.backends.cassandra.layout import PARTITION_COLUMNS, place_of
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.backends.cassandra.schema import initialise, tables
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import CassandraUrl, parse_cassandra_url
from duetime.stores.core.store import Store
from duetime.stores.entities import TIMER
from duetime.stores.time_source import TimeSource
from duetime.testing.contract import Subject
from tests.support.cassandra_faults import FaultySession, Network
from tests.support.databases import own_name

URL_VARIABLE = "DUETIME_TEST_CASSANDRA_URL"
TABLES = PARTITION_COLUMNS | {"hints": ("path", "by_values", "slice"), "unique_values": ("path", "by_values")}
"""What their partitions are named by."""
_CORRUPT = (
    "UPDATE timers SET timer_tags = ?, timer_state = ? WHERE shard_id = ? AND row_kind = ? AND place = ? IF EXISTS"
)
_CORRUPT_CALL = (
    "UPDATE service_calls SET request_spec = ? WHERE tenant_id = ? AND service_call_id = ? AND row_kind = ? "
    "AND place = ? IF is_there = true"
)


def server_url() -> str | None:
    return os.environ.get(URL_VARIABLE)


def with_keyspace(url: str, keyspace: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{keyspace}"))


class SharedSession(CassandraSession):
    """May be closed, which ends its connections only."""

    def close(self) -> None:
        with self._lock:
            self._disconnect()


@cache
def shared_session(url: str) -> CassandraSession:
    """Opened once in this test process, in a keyspace that has the tables."""
    session = SharedSession(patient(url))
    initialise(session)
    return session


def patient(url: str) -> CassandraUrl:
    """With as much time as a machine that has other things to do may need."""
    return replace(parse_cassandra_url(url), timeout_seconds=60.0)


def store_on(session: CassandraSession) -> Store:
    return Store(CassandraBackend(session, time_source=TimeSource.CALLER))


def session_of(store: Store) -> CassandraSession:
    assert isinstance(store.backend, CassandraBackend)
    return store.backend.session


def own_url() -> str:
    """Of the process's keyspace."""
    return with_keyspace(os.environ[URL_VARIABLE], own_keyspace())


def own_keyspace() -> str:
    """Of the process, for the tables as they are now: those of an earlier version may still be there."""
    return f"{own_name()}_{zlib.crc32(''.join(tables()).encode()):08x}"


def empty_keyspace() -> str:
    """The URL of the process's keyspace, with the tables and without rows.

    To truncate takes twenty times as long as to delete the partitions that there are.
    """
    empty(shared_session(own_url()))
    return own_url()


def empty(session: CassandraSession) -> None:
    names = list(TABLES.items())
    parts = session.read_each([Statement(f"SELECT DISTINCT {', '.join(key)} FROM {table}") for table, key in names])
    session.write(
        [
            Statement(
                f"DELETE FROM {table} WHERE {' AND '.join(f'{name} = ?' for name in key)}",
                tuple(row.values()),
            )
            for (table, key), rows in zip(names, parts, strict=True)
            for row in rows
        ]
    )
    # Conditional writes have whole milliseconds for a time, deletions do not: what follows at once would be deleted.
    time.sleep(0.002)


@contextmanager
def server_subject() -> Iterator[Subject]:
    url = empty_keyspace()
    session = shared_session(url)
    store = store_on(session)
    others: list[Store] = []

    def reopen() -> Store:
        others.append(store_on(CassandraSession(patient(url))))
        return others[-1]

    def corrupt(timer: Timer) -> None:
        key = (timer.shard_id, timer.namespace, timer.timer_id)
        values = ("{broken", "nonsense", timer.shard_id, TIMER.name, place_of(TIMER, key))
        assert session.decide([Statement(_CORRUPT, values)])

    def corrupt_call(call: ServiceCall) -> None:
        values = ("{broken", call.tenant_id, call.call_id, "service_call", b"")
        assert session.decide([Statement(_CORRUPT_CALL, values)])

    try:
        yield Subject(store=store, corrupt=corrupt, corrupt_call=corrupt_call, reopen=reopen, expires_by_itself=True)
    finally:
        for each in others:
            each.close()


def new_network() -> Network:
    """Of clients of the server, whose requests can be lost one by one."""
    return Network(shared_session(own_url())._connected())


def client_of(network: Network) -> CassandraSession:
    return FaultySession(parse_cassandra_url(own_url()), network)


@contextmanager
def store_over(network: Network | None = None) -> Iterator[Store]:
    """A store in the process's keyspace, which is empty."""
    empty_keyspace()
    store = store_on(client_of(network or new_network()))
    try:
        yield store
    finally:
        store.close()
