"""The session: what it asks of the driver, and servers that are not there."""

from __future__ import annotations

import socket
import time
from itertools import islice
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import ConsistencyLevel
from cassandra.cluster import EXEC_PROFILE_DEFAULT, NoHostAvailable
from cassandra.policies import RetryPolicy

from duetime.domain.errors import StoreError, StoreNotReady, StoreUnavailable
from duetime.stores.backends.cassandra import session
from duetime.stores.backends.cassandra.session import CarefulRetries
from duetime.stores.backends.cassandra.url import parse_cassandra_url
from duetime.stores.open import open_store
from tests.support.ports import reserved_port


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


def test_nothing_is_contacted_before_the_first_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "Cluster", lambda *_, **__: pytest.fail("a cluster was made"))

    open_store("cassandra://nowhere/ks").close()


def test_a_closed_store_says_so() -> None:
    store = open_store("cassandra://nowhere/ks")
    store.close()
    store.close()

    with pytest.raises(StoreError, match="closed"):
        store.check()


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


def test_a_node_that_is_away_is_tried_again_soon_and_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, Any] = {}
    monkeypatch.setattr(session, "Cluster", lambda *hosts, **settings: seen.update(settings))

    session.make_cluster(parse_cassandra_url("cassandra://h?timeout=4"), None)

    delays = list(islice(seen["reconnection_policy"].new_schedule(), 10_000))
    assert len(delays) == 10_000
    assert max(delays) <= session.RECONNECT_SECONDS
    # One that says nothing is passed over after two rounds of heartbeats and the time of a request.
    assert (seen["idle_heartbeat_interval"], seen["idle_heartbeat_timeout"]) == (5.0, 4.0)


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
