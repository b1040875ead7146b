"""The session on a server: what it sends, what it makes of the answers; and the schema."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace

import pytest

from duetime.domain.errors import StoreEmpty, StoreNotReady, StoreUnavailable
from duetime.stores.backends.cassandra import schema, session
from duetime.stores.backends.cassandra.requests import Statement, Unsettled
from duetime.stores.backends.cassandra.session import CassandraSession
from tests.support.cassandra import (
    client_of,
    empty_keyspace,
    new_network,
    own_keyspace,
    own_url,
    patient,
    shared_session,
    store_on,
)
from tests.support.cassandra_faults import Fault, FaultySession, Network, no_faults

PUT = "UPDATE duetime_schema SET schema_version = ? WHERE schema_id = ? IF schema_version = ?"
PUT_WORKER = "INSERT INTO workers (worker_group, row_kind, place, worker_expires_at) VALUES (?, 'worker', ?, ?)"
GET = "SELECT schema_version FROM duetime_schema WHERE schema_id = ?"


@pytest.fixture
def network() -> Network:
    return new_network()


@pytest.fixture
def opened(network: Network) -> Iterator[CassandraSession]:
    """Whose schema's row is put back to what it was."""
    empty_keyspace()
    made = client_of(network)
    yield made
    network.faults = no_faults
    network.driver.execute(f"TRUNCATE {own_keyspace()}.duetime_schema")
    made.decide([Statement(PUT, (schema.SCHEMA_VERSION, "duetime", None))])
    made.close()


@pytest.fixture
def other_keyspace() -> Iterator[str]:
    """The name of one that is not there."""
    name = f"{own_keyspace()}_other"
    driver = shared_session(own_url())._connected()
    driver.execute(f"DROP KEYSPACE IF EXISTS {name}")
    yield name
    driver.execute(f"DROP KEYSPACE IF EXISTS {name}")


def test_only_reads_are_said_to_be_repeatable(opened: CassandraSession) -> None:
    opened.read(Statement(GET, ("duetime",)))
    opened.decide([Statement(PUT, (1, "x", None))])

    assert {cql: each.is_idempotent for cql, each in opened._prepared.items()} == {GET: True, PUT: False}


def test_a_statement_is_prepared_once(opened: CassandraSession, network: Network) -> None:
    for _ in range(3):
        opened.read(Statement(GET, ("duetime",)))

    sent = GET.replace("FROM ", f"FROM {own_keyspace()}.")
    assert len([request for request in network.requests if request.kind == "prepare" and request.cql == sent]) == 1


def test_every_table_is_named_with_its_keyspace(opened: CassandraSession, network: Network) -> None:
    """A session that uses a keyspace is warned for what it prepares (CASSANDRA-17248)."""
    opened.read(Statement(GET, ("duetime",)))
    opened.decide([Statement(PUT, (1, "x", None))])
    opened.write([Statement(PUT_WORKER, ("g", b"w", 1))])
    opened.write([Statement("DELETE FROM workers WHERE worker_group = ?", ("g",))])

    assert opened._session.keyspace is None
    of_tables = [request.cql for request in network.requests if request.tables and "system_schema" not in request.cql]
    assert {"INSERT", "UPDATE", "DELETE", "SELECT"} == {cql.split()[0] for cql in of_tables}
    assert [cql for cql in of_tables if f" {own_keyspace()}." not in cql] == []


def test_each_of_several_decisions_has_its_own_answer(opened: CassandraSession, network: Network) -> None:
    network.faults = lambda request: Fault.TIMED_OUT if request.is_cas and request.number % 2 else None
    groups = [[Statement(PUT, (1, f"id{number}", None))] for number in range(4)]

    answers = opened.decide_each(groups)

    network.faults = no_faults
    assert sorted(type(answer).__name__ for answer in answers) == ["Unsettled", "Unsettled", "bool", "bool"]
    assert opened.decide_each(groups) == [False] * 4
    network.faults = lambda request: Fault.UNFINISHED if request.is_cas else None
    with pytest.raises(Unsettled):
        opened.decide([Statement(PUT, (1, "id9", None))])
    assert opened.read(Statement(GET, ("id9",))) == []
    assert opened.read(Statement(GET, ("id9",)), is_serial=True) == [{"schema_version": 1}]


def test_a_process_that_was_forked_connects_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = CassandraSession(patient(empty_keyspace()))
    opened.read(Statement(GET, ("duetime",)))
    parent = opened._session
    monkeypatch.setattr(session, "os", SimpleNamespace(getpid=lambda: -1))

    opened.read(Statement(GET, ("duetime",)))

    assert opened._session is not parent
    assert not parent.is_shutdown
    opened.close()
    parent.cluster.shutdown()


def test_pages_that_the_server_cuts_short_are_read_on() -> None:
    opened = CassandraSession(patient(empty_keyspace()))
    opened.write([Statement(PUT_WORKER, ("g", bytes([number]), number)) for number in range(10)])
    opened._connected().default_fetch_size = 3
    statement = Statement("SELECT worker_expires_at FROM workers WHERE worker_group = ?", ("g",))
    expected = [{"worker_expires_at": number} for number in range(10)]

    assert opened.read(statement) == expected
    assert opened.read_each([statement, statement]) == [expected, expected]
    opened.close()


# -- the schema ------------------------------------------------------------------------------------------------------


def test_a_keyspace_without_tables_is_told_as_such(other_keyspace: str) -> None:
    store = store_on(CassandraSession(replace(patient(own_url()), keyspace=other_keyspace)))
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


@pytest.mark.parametrize("number", [2, 10])
def test_an_init_that_was_cut_short_is_completed_by_another(
    network: Network, other_keyspace: str, number: int
) -> None:
    url = replace(patient(own_url()), keyspace=other_keyspace)
    first, second = (FaultySession(url, network) for _ in range(2))
    network.faults = lambda request: Fault.LOST_AFTER if request.number == number else None
    with suppress(StoreUnavailable):
        schema.initialise(first)
    assert len(network.requests) == number
    network.faults = no_faults
    schema.initialise(second)
    schema.check(second)


def test_where_all_is_there_init_only_reads(opened: CassandraSession, network: Network) -> None:
    before = len(network.requests)

    schema.initialise(opened)

    assert {request.kind for request in network.requests[before:]} <= {"read", "prepare"}
