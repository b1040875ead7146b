"""What tests of the engine share: virtual time, and a store with namespaces of four shards."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.stores import memory_store


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(START)


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    """A file may name its ``NAMESPACES``; else there is ``default``, as tests.support.engine.make_timer has it."""
    with memory_store() as store:
        for name in getattr(request.module, "NAMESPACES", ("default",)):
            store.catalogue.create_namespace(name, num_shards=4, dedicated=False, now=START)
        yield store
