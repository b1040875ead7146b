"""Nodes of Cassandra that are killed with -9, started again, frozen and let go on, while timers are created and fire:
what was accepted fires, and one firing is not made two."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from duetime.stores.backends.cassandra.session import CassandraSession
from tests.chaos.cluster import Cluster, Load
from tests.chaos.ledger import Allowed, judge
from tests.integration.cassandra.test_expiry import check_expiry
from tests.support.callbacks import CallbackReceiver
from tests.support.cassandra import patient, store_on
from tests.support.cassandra_nodes import Node, nodes, url_of
from tests.support.processes import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200)]

LIBRARY = ROOT / ".servers" / "cassandra" / "lib"
RECOVERY_SECONDS = 240.0
PER_SECOND = 20


@pytest.fixture(scope="module", autouse=True)
def _programs() -> None:
    """``scripts/server.sh start cassandra`` brings them."""
    if shutil.which("java") is None or not LIBRARY.is_dir():
        pytest.skip("no Cassandra on this machine: scripts/server.sh start cassandra brings it, where there is Java")


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """The only one of its cluster, which may keep what ends until 2106."""
    with nodes(1, storage_compatibility_mode="NONE") as (node,):
        yield node


@pytest.fixture(scope="module")
def three() -> Iterator[list[Node]]:
    with nodes(3) as cluster:
        yield cluster


@pytest.fixture
def receiver() -> Iterator[CallbackReceiver]:
    with CallbackReceiver() as receiver:
        yield receiver


class Service:
    """A server and two workers on a keyspace of their own, and a client that creates timers all the time."""

    def __init__(self, cluster: list[Node], name: str, folder: Path, receiver: CallbackReceiver) -> None:
        self.url = url_of(cluster, name)
        store = store_on(CassandraSession(patient(self.url)))
        store.initialise()
        store.close()
        self.receiver = receiver
        self.cluster = Cluster(self.url, folder, receiver)

    def __enter__(self) -> Self:
        self.cluster.__enter__()
        for _ in range(2):
            self.cluster.start_worker()
        for worker in self.cluster.workers:
            worker.wait_for("worker.polling")
        self.load = Load(self.cluster, per_second=PER_SECOND, seed=1)
        self.load.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.load.stop()
        self.cluster.__exit__(None, None, None)

    def wait_for_more(self, number: int = 2 * PER_SECOND) -> None:
        """Until that many more timers were accepted."""
        wanted = len(self.load.accepted) + number
        give_up = time.monotonic() + RECOVERY_SECONDS
        while len(self.load.accepted) < wanted:
            assert time.monotonic() < give_up, "nothing is accepted any more"
            time.sleep(0.1)

    def check(self) -> None:
        self.load.stop()
        give_up = time.monotonic() + RECOVERY_SECONDS
        while not self.receiver.counts().keys() >= self.load.accepted.keys() and time.monotonic() < give_up:
            time.sleep(0.2)
        verdict = judge(self.load.accepted, self.receiver.arrivals)
        # Whoever cannot record what a receiver was sent sends it again.
        assert verdict.breaches(Allowed.REPEATS) == [], verdict


def test_a_node_that_is_killed_has_what_was_accepted(node: Node, tmp_path: Path, receiver: CallbackReceiver) -> None:
    with Service([node], "killed", tmp_path, receiver) as service:
        service.wait_for_more()
        node.kill()
        node.start()
        service.wait_for_more()
        service.check()


def test_a_node_that_stands_still_only_makes_timers_late(
    node: Node, tmp_path: Path, receiver: CallbackReceiver
) -> None:
    with Service([node], "frozen", tmp_path, receiver) as service:
        service.wait_for_more()
        node.freeze()
        time.sleep(15)
        node.thaw()
        service.wait_for_more()
        service.check()


def test_two_of_three_nodes_carry_on(three: list[Node], tmp_path: Path, receiver: CallbackReceiver) -> None:
    """One is killed and started again; then another stands still and goes on."""
    killed, frozen = three[1], three[2]
    with Service(three, "three", tmp_path, receiver) as service:
        service.wait_for_more()
        killed.kill()
        service.wait_for_more()
        killed.start()
        service.wait_for_more()
        frozen.freeze()
        service.wait_for_more()
        frozen.thaw()
        service.wait_for_more()
        service.check()


def test_what_was_accepted_outlives_a_time_without_a_quorum(
    three: list[Node], tmp_path: Path, receiver: CallbackReceiver
) -> None:
    with Service(three, "quorum", tmp_path, receiver) as service:
        service.wait_for_more()
        three[0].kill()
        three[1].freeze()
        time.sleep(15)
        three[1].thaw()
        service.wait_for_more()
        service.check()


def test_nothing_is_to_end_later_than_2038_where_the_server_can_tell_it(node: Node) -> None:
    store = store_on(CassandraSession(patient(url_of([node], "kept"))))
    try:
        store.initialise()
        check_expiry(store, has_limit=False)
    finally:
        store.close()
