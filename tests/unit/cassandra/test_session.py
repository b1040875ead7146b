"""The session: what it asks of the driver, and servers that are not there."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable
from cassandra.policies import RetryPolicy

from duetime.domain.errors import StoreEmpty, StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.cassandra import schema, session
from duetime.stores.cassandra.requests import Statement, Unsettled
from duetime.stores.cassandra.session import CarefulRetries, CassandraSession
from duetime.stores.cassandra.url import parse_cassandra_url
from duetime.stores.open import open_store
from tests.support.cql.driver import driver_over
from tests.support.cql.faults import Fault
from tests.support.cql.model import CassandraModel
from tests.support.ports import reserved_port

PUT = "UPDATE duetime_schema SET schema_version = ? WHERE schema_id = ? IF schema_version = ?"
GET = "SELECT schema_version FROM duetime_schema WHERE schema_id = ?"


@pytest.fixture
def model() -> CassandraModel:
    return CassandraModel()


@pytest.fixture
def opened(model: CassandraModel) -> Iterator[CassandraSession]:
    with driver_over(model, "duetime.stores.cassandra.session"):
        made = CassandraSession(parse_cassandra_url("cassandra://model"))
        schema.initialise(made)
        yield made
        made.close()


def test_a_port_where_nobody_listens_is_one_clear_line(caplog: pytest.LogCaptureFixture) -> None:
    with reserved_port() as port:
        store = open_store(f"cassandra://127.0.0.1:{port}/ks")
        with pytest.raises(StoreUnavailable, match=r"^no Cassandra node can be reached: ConnectionRefusedError$"):
            store.check()
        with pytest.raises(StoreUnavailable):
            store.initialise()
        store.close()
    assert [record for record in caplog.records if record.exc_info] == []


class Elsewhere:
    """A cluster whose nodes are in other data centres than the one that was named."""

    def __init__(self, *names: str | None) -> None:
        self.metadata = SimpleNamespace(all_hosts=lambda: [SimpleNamespace(datacenter=name) for name in names])
        self.is_shutdown = False

    def connect(self) -> None:
        raise NoHostAvailable("Unable to connect to any servers", ["10.0.0.1"])

    def shutdown(self) -> None:
        self.is_shutdown = True


@pytest.mark.parametrize(
    ("names", "error", "reason"),
    [
        (("dc2", "dc1"), StoreNotReady, r"^the Cassandra cluster has no data centre 'dc9'; it has dc1, dc2$"),
        ((None,), StoreUnavailable, "^no Cassandra node can be reached$"),
        (("dc9",), StoreUnavailable, "^no Cassandra node can be reached$"),
    ],
)
def test_a_data_centre_that_is_not_there_is_told_as_such(
    monkeypatch: pytest.MonkeyPatch, names: tuple[str | None, ...], error: type[StoreError], reason: str
) -> None:
    cluster = Elsewhere(*names)
    monkeypatch.setattr(session, "Cluster", lambda *_, **__: cluster)
    store = open_store("cassandra://h/ks?dc=dc9")

    with pytest.raises(error, match=reason):
        store.check()
    with pytest.raises(error, match=reason):
        store.initialise()
    assert cluster.is_shutdown
    store.close()


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        store = open_store(f"cassandra://127.0.0.1:{silent.getsockname()[1]}/ks?timeout=0.3")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=r"^no Cassandra node can be reached"):
            store.check()
        assert time.monotonic() - began < 8  # what was asked for, and a machine that is busy; 10 is the default
        store.close()


def test_nothing_is_contacted_before_the_first_request(model: CassandraModel) -> None:
    with driver_over(model, "duetime.stores.cassandra.session"):
        open_store("cassandra://model/ks").close()

    assert model.requests == []


def test_a_closed_store_says_so(opened: CassandraSession) -> None:
    opened.close()
    opened.close()

    with pytest.raises(StoreError, match="closed"):
        opened.read(Statement(GET, ("duetime",)))


def test_reads_and_writes_are_by_a_quorum_of_the_data_centre(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(session, "Cluster", lambda *hosts, **settings: seen.update(settings))

    session.make_cluster(parse_cassandra_url("cassandra://h?dc=dc1&timeout=4"), None)

    profiles = seen["execution_profiles"]
    usual, serial = profiles[EXEC_PROFILE_DEFAULT], profiles["serial"]
    assert usual.consistency_level == ConsistencyLevel.LOCAL_QUORUM
    assert serial.consistency_level == ConsistencyLevel.LOCAL_SERIAL
    assert {each.serial_consistency_level for each in profiles.values()} == {ConsistencyLevel.LOCAL_SERIAL}
    assert {each.request_timeout for each in profiles.values()} == {4.0}
    assert usual.load_balancing_policy._child_policy.local_dc == "dc1"
    assert seen["connect_timeout"] == 4.0


class Query:
    def __init__(self, *, is_idempotent: bool) -> None:
        self.is_idempotent = is_idempotent


def test_only_a_read_is_sent_again_and_only_once() -> None:
    policy = CarefulRetries()

    def decision(*, is_read: bool, number: int) -> int:
        return policy.on_request_error(Query(is_idempotent=is_read), None, None, number)[0]

    assert decision(is_read=True, number=0) == RetryPolicy.RETRY_NEXT_HOST
    assert decision(is_read=True, number=1) == RetryPolicy.RETHROW
    assert decision(is_read=False, number=0) == RetryPolicy.RETHROW
    assert policy.on_write_timeout(None, None, "BATCH_LOG", 1, 0, 0) == (RetryPolicy.RETHROW, None)
    assert policy.on_unavailable(None, None, 2, 1, 0) == (RetryPolicy.RETHROW, None)


def test_only_reads_are_said_to_be_repeatable(opened: CassandraSession) -> None:
    opened.read(Statement(GET, ("duetime",)))
    opened.decide([Statement(PUT, (1, "x", None))])

    assert {cql: each.is_idempotent for cql, each in opened._prepared.items()} == {GET: True, PUT: False}


def test_a_statement_is_prepared_once(opened: CassandraSession, model: CassandraModel) -> None:
    for _ in range(3):
        opened.read(Statement(GET, ("duetime",)))

    sent = GET.replace("FROM ", "FROM duetime.")
    assert len([request for request in model.requests if request.kind == "prepare" and request.cql == sent]) == 1


def test_every_table_is_named_with_its_keyspace(opened: CassandraSession, model: CassandraModel) -> None:
    """A session that uses a keyspace is warned for what it prepares (CASSANDRA-17248)."""
    opened.read(Statement(GET, ("duetime",)))
    opened.decide([Statement(PUT, (1, "x", None))])
    opened.write([Statement("INSERT INTO workers (worker_group, worker_id) VALUES (?, ?)", ("g", "w"))])
    opened.write([Statement("DELETE FROM workers WHERE worker_group = ? AND worker_id = ?", ("g", "w"))])

    assert opened._session.keyspace is None
    of_tables = [request.cql for request in model.requests if request.tables and "system_schema" not in request.cql]
    assert {"INSERT", "UPDATE", "DELETE", "SELECT", "CREATE"} == {cql.split()[0] for cql in of_tables}
    assert [cql for cql in of_tables if " duetime." not in cql] == []


def test_each_of_several_decisions_has_its_own_answer(opened: CassandraSession, model: CassandraModel) -> None:
    model.faults = lambda request: Fault.TIMED_OUT if request.is_cas and request.number % 2 else None
    groups = [[Statement(PUT, (1, f"id{number}", None))] for number in range(4)]

    answers = opened.decide_each(groups)

    model.faults = lambda request: None
    assert sorted(type(answer).__name__ for answer in answers) == ["Unsettled", "Unsettled", "bool", "bool"]
    assert opened.decide_each(groups) == [False] * 4
    model.faults = lambda request: Fault.UNFINISHED if request.is_cas else None
    with pytest.raises(Unsettled):
        opened.decide([Statement(PUT, (1, "id9", None))])
    assert opened.read(Statement(GET, ("id9",))) == []
    assert opened.read(Statement(GET, ("id9",)), is_serial=True) == [{"schema_version": 1}]


def test_a_process_that_was_forked_connects_anew(opened: CassandraSession, monkeypatch: pytest.MonkeyPatch) -> None:
    opened.read(Statement(GET, ("duetime",)))
    parent = opened._session
    monkeypatch.setattr(session.os, "getpid", lambda: -1)

    opened.read(Statement(GET, ("duetime",)))

    assert opened._session is not parent
    assert not parent.is_shutdown


def test_pages_that_the_server_cuts_short_are_read_on(
    opened: CassandraSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    cql = "INSERT INTO workers (worker_group, worker_id, worker_expires_at) VALUES (?, ?, ?)"
    opened.write([Statement(cql, ("g", f"w{number}", number)) for number in range(10)])
    opened._connected().default_fetch_size = 3
    statement = Statement("SELECT worker_expires_at FROM workers WHERE worker_group = ?", ("g",))
    expected = [{"worker_expires_at": number} for number in range(10)]

    assert opened.read(statement) == expected
    assert opened.read_each([statement, statement]) == [expected, expected]


# -- the schema ------------------------------------------------------------------------------------------------------


def test_a_keyspace_without_tables_is_told_as_such(model: CassandraModel) -> None:
    with driver_over(model, "duetime.stores.cassandra.session"):
        store = open_store("cassandra://model/ks")
        with pytest.raises(StoreEmpty, match="`duetime init` creates them"):
            store.check()
        store.close()


@pytest.mark.parametrize(
    ("version", "reason"),
    [(0, "schema version 0; this program needs"), (99, "schema version 99, which is newer")],
)
def test_another_schema_version_is_told_as_such(opened: CassandraSession, version: int, reason: str) -> None:
    opened.decide([Statement(PUT, (version, "duetime", schema.SCHEMA_VERSION))])

    with pytest.raises(StoreNotReady, match=reason):
        schema.check(opened)


def test_a_newer_schema_is_left_alone(opened: CassandraSession) -> None:
    opened.decide([Statement(PUT, (99, "duetime", schema.SCHEMA_VERSION))])

    with pytest.raises(StoreNotReady, match="newer"):
        schema.initialise(opened)


@pytest.mark.parametrize("number", range(1, 20))
def test_an_init_that_was_cut_short_is_completed_by_another(model: CassandraModel, number: int) -> None:
    with driver_over(model, "duetime.stores.cassandra.session"):
        first, second = (CassandraSession(parse_cassandra_url("cassandra://model")) for _ in range(2))
        model.faults = lambda request: Fault.LOST_AFTER if request.number == number else None
        try:
            schema.initialise(first)
        except StoreUnavailable:
            schema.initialise(second)
        model.faults = lambda request: None
        schema.check(second)
        first.close()
        second.close()


def test_where_all_is_there_init_only_reads(opened: CassandraSession, model: CassandraModel) -> None:
    before = len(model.requests)

    schema.initialise(opened)

    assert {request.kind for request in model.requests[before:]} <= {"read", "prepare"}
