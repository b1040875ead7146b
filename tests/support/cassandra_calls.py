"""Call stores over a model of Cassandra, whose requests can be lost one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from duetime.stores.calls_port import CallRef
from duetime.stores.cassandra.calls.store import CassandraCallStore
from duetime.stores.cassandra.schema import initialise
from duetime.stores.cassandra.session import CassandraSession
from duetime.stores.cassandra.url import parse_cassandra_url
from tests.support.clock import NOW
from tests.support.cql.driver import ModelCluster, ModelSession, driver_over
from tests.support.cql.faults import Fault, Request
from tests.support.cql.model import CassandraModel

INDEXES = ("call_lists", "call_due", "call_outbox", "call_removals")
KEYSPACE = "duetime"
SESSION_MODULE = "duetime.stores.cassandra.session"


class World:
    """A model with the tables of service calls. ``now_s``: the clock of all processes and of the cluster."""

    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0
        self.model = CassandraModel(lambda: self.now_s)
        self._opened: list[tuple[CassandraCallStore, CassandraSession]] = []
        session = self._connect()
        with driver_over(self.model, SESSION_MODULE):
            initialise(session)
        session.close()
        self.session: ModelSession = ModelCluster(model=self.model).connect(KEYSPACE)

    def _connect(self) -> CassandraSession:
        return CassandraSession(parse_cassandra_url(f"cassandra://model/{KEYSPACE}"))

    def open(self, *, settle_seconds: float = 2.0, ahead_s: float = 0.0) -> CassandraCallStore:
        """A call store as another process has it, whose clock is ahead of the others'."""
        session = self._connect()
        store = CassandraCallStore(
            session,
            lost_leases=lambda leases: set(),
            now_s=lambda: self.now_s + ahead_s,
            settle_seconds=settle_seconds,
            max_parallel=1,
        )
        self._opened.append((store, session))
        with driver_over(self.model, SESSION_MODULE):
            store.get_calls([CallRef("nobody", "nothing")], now=NOW)  # it connects
        return store

    def rows(self, table: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.session.execute(f"SELECT * FROM {table}")]

    def close(self) -> None:
        for store, session in self._opened:
            store.close()
            session.close()


@contextmanager
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.close()


class FailAt:
    """From the ``number``-th request on, counted from now and without preparations, things go wrong.

    ``is_dead``: whoever asks gets no further answer; else only that one request fails.
    """

    def __init__(self, number: int, fault: Fault, *, is_dead: bool) -> None:
        self._number = number
        self._fault = fault
        self._is_dead = is_dead
        self.count = 0

    def __call__(self, request: Request) -> Fault | None:
        if request.kind == "prepare":
            return None
        self.count += 1
        if self.count == self._number:
            is_possible = self._fault is not Fault.UNFINISHED or request.is_cas
            return self._fault if is_possible else Fault.LOST_AFTER
        return Fault.NO_HOST if self._is_dead and self.count > self._number else None

    @property
    def has_failed(self) -> bool:
        return self.count >= self._number


def count_requests(model: CassandraModel, act: Callable[[], object]) -> list[Request]:
    """What ``act`` asks of the cluster, but for preparations."""
    before = len(model.requests)
    act()
    return [request for request in model.requests[before:] if request.kind != "prepare"]
