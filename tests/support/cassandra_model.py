"""Cassandra stores for tests: over the model in ``tests/support/cql``, or on the server of
``DUETIME_TEST_CASSANDRA_URL``, where each store has a keyspace of its own, which goes at the end."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

from duetime.domain.errors import StoreNotReady
from duetime.domain.service_calls import ServiceCall
from duetime.domain.timers import Timer
from duetime.stores.cassandra.changes import timer_key
from duetime.stores.cassandra.requests import Statement
from duetime.stores.cassandra.session import CassandraSession
from duetime.stores.cassandra.store import CassandraStore
from duetime.stores.cassandra.timer_rows import key_of
from duetime.stores.cassandra.url import CassandraUrl, parse_cassandra_url
from duetime.stores.time_source import TimeSource
from tests.contract.subject import Subject
from tests.support.cql.driver import driver_over
from tests.support.cql.model import CassandraModel

URL_VARIABLE = "DUETIME_TEST_CASSANDRA_URL"
MODEL_URL = "cassandra://model:9042/duetime"
_SESSION_MODULE = "duetime.stores.cassandra.session"
_CORRUPT = (
    "UPDATE timers SET timer_tags = ?, timer_state = ? WHERE shard_id = ? AND row_kind = ? AND sort_at = ? "
    "AND timer_namespace = ? AND sort_text = ? AND timer_id = ? IF EXISTS"
)
_CORRUPT_CALL = "UPDATE service_calls SET document = ? WHERE tenant_id = ? AND call_id = ? IF revision > 0"


def server_url() -> str | None:
    return os.environ.get(URL_VARIABLE)


def open_at(url: CassandraUrl) -> CassandraStore:
    return CassandraStore(CassandraSession(url), time_source=TimeSource.CALLER)


@contextmanager
def model_store(model: CassandraModel | None = None) -> Iterator[CassandraStore]:
    """An initialised store over the model."""
    with driver_over(model or CassandraModel(), _SESSION_MODULE):
        store = open_at(parse_cassandra_url(MODEL_URL))
        try:
            store.initialise()
            yield store
        finally:
            store.close()


@contextmanager
def model_subject() -> Iterator[Subject]:
    with driver_over(CassandraModel(), _SESSION_MODULE):
        yield from _subject(lambda: open_at(parse_cassandra_url(MODEL_URL)))


@contextmanager
def server_subject(url: str) -> Iterator[Subject]:
    of_its_own = replace(parse_cassandra_url(url), keyspace=f"duetime_test_{uuid4().hex[:16]}", timeout_seconds=60.0)
    try:
        yield from _subject(lambda: open_at(of_its_own))
    finally:
        store = open_at(of_its_own)
        with suppress(StoreNotReady):  # it was never made
            store.session.change_schema([f"DROP KEYSPACE {of_its_own.keyspace}"])
        store.close()


def _subject(make_store: Callable[[], CassandraStore]) -> Iterator[Subject]:
    stores = [make_store()]
    store = stores[0]

    def reopen() -> CassandraStore:
        stores.append(make_store())
        return stores[-1]

    def corrupt(timer: Timer) -> None:
        values = ("{broken", "nonsense", *timer_key(key_of(timer)))
        assert store.session.decide([Statement(_CORRUPT, values)])

    def corrupt_call(call: ServiceCall) -> None:
        values = ("{broken", call.tenant_id, call.call_id)
        assert store.session.decide([Statement(_CORRUPT_CALL, values)])

    try:
        store.initialise()
        yield Subject(store=store, corrupt=corrupt, corrupt_call=corrupt_call, reopen=reopen, expires_by_itself=True)
    finally:
        for each in stores:
            each.close()
