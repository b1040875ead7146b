"""Stores with service calls on Cassandra, whose requests can be lost one by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from duetime.stores.backends.cassandra import hints
from duetime.stores.backends.cassandra.backend import CassandraBackend
from duetime.stores.backends.cassandra.hints import Attempts
from duetime.stores.core.calls import CallStore
from duetime.stores.core.store import Store
from duetime.stores.time_source import TimeSource
from tests.support.cassandra import client_of, empty_keyspace, new_network, own_keyspace
from tests.support.cassandra_faults import Fault, Network, Request


class OpenedCalls(CallStore):
    """A call store with its outbox and its timers."""

    def __init__(self, store: Store) -> None:
        super().__init__(store.backend)
        self.outbox = store.outbox
        self.timers = store.timers
        self.store = store


class World:
    """``now_s``: the clock of all processes; that of the server, by which values end, is the machine's."""

    def __init__(self) -> None:
        empty_keyspace()
        self.now_s = 1_800_000_000.0
        self.network = new_network()
        self._opened: list[Store] = []

    def open(self, *, ahead_s: float = 0.0) -> OpenedCalls:
        """A call store as another process has it, whose clock is ahead of the others'."""
        attempts = Attempts(lambda: self.now_s + ahead_s)
        backend = CassandraBackend(client_of(self.network), time_source=TimeSource.CALLER, attempts=attempts)
        store = Store(backend)
        self._opened.append(store)
        return OpenedCalls(store)

    def execute(self, cql: str) -> list[dict[str, Any]]:
        """Beside the network; tables are those of the keyspace ``ks``."""
        return list(self.network.driver.execute(cql.replace(" ks.", f" {own_keyspace()}.")))

    def rows(self, table: str) -> list[dict[str, Any]]:
        return self.execute(f"SELECT * FROM ks.{table}")

    def close(self) -> None:
        for store in self._opened:
            store.close()


@contextmanager
def world() -> Iterator[World]:
    made = World()
    try:
        yield made
    finally:
        made.close()


@contextmanager
def nobody_waits() -> Iterator[None]:
    """A key whose holder does not come to its end is taken over at once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(hints, "SETTLE_SECONDS", 0.0)
        yield


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


def count_requests(network: Network, act: Callable[[], object]) -> list[Request]:
    """What ``act`` asks of the server, but for preparations."""
    before = len(network.requests)
    act()
    return [request for request in network.requests[before:] if request.kind != "prepare"]
