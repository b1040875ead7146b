"""What tests of the engine share: virtual time, and a store with one namespace of four shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.stores.port.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.stores import memory_store


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def store() -> Iterator[Store]:
    """The namespace is ``default``, as tests.support.engine.make_timer has it."""
    with memory_store() as store:
        store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=START)
        yield store
