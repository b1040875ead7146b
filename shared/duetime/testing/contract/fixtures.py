"""What the tests ask for: the parts of the store under test, namespaces in it, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import pytest

from duetime.domain.namespaces import Namespace
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.core.transfer import TransferStore
from duetime.testing.contract.builders import NOW
from duetime.testing.contract.subject import Subject

T = TypeVar("T")
THREADS = 8
_START_TIMEOUT_SECONDS = 30
_TIMEOUT_SECONDS = 60


@pytest.fixture
def store(subject: Subject) -> Store:
    return subject.store


@pytest.fixture
def fencing(subject: Subject) -> Store:
    """Return the store; the test is skipped where ``record`` does not check leases."""
    if not subject.checks_leases:
        pytest.skip("this store fences by revision alone")
    return subject.store


@pytest.fixture
def reopen(subject: Subject) -> Callable[[], Store]:
    """``Subject.reopen``; the test is skipped where there is none."""
    if subject.reopen is None:
        pytest.skip("this store lives in one object only")
    return subject.reopen


@pytest.fixture
def calls(store: Store) -> CallStore:
    return store.calls


@pytest.fixture
def outbox(store: Store) -> Outbox:
    return store.outbox


@pytest.fixture
def transfer(store: Store) -> TransferStore:
    return store.transfer


@pytest.fixture
def orders(store: Store) -> Namespace:
    """Make a namespace with several shards."""
    return store.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=NOW)[0]


@pytest.fixture
def single(store: Store) -> Namespace:
    """Make a namespace whose timers are all on shard 0."""
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]


class AtOnce(Protocol):
    def __call__(self, action: Callable[[int], T], *, threads: int = THREADS) -> list[T]:
        """Return the results of ``action(0)``, ``action(1)``..., which all begin at the same moment."""
        ...


@pytest.fixture
def at_once(subject: Subject) -> AtOnce:
    """Threads that act at once; the test is skipped where the subject is not safe under them."""
    if not subject.is_thread_safe:
        pytest.skip("this emulator is not safe under threads")
    return _at_once


def _at_once(action: Callable[[int], T], *, threads: int = THREADS) -> list[T]:
    barrier = threading.Barrier(threads, timeout=_START_TIMEOUT_SECONDS)

    def run(index: int) -> T:
        barrier.wait()
        return action(index)

    with ThreadPoolExecutor(threads) as executor:
        return list(executor.map(run, range(threads), timeout=_TIMEOUT_SECONDS))
