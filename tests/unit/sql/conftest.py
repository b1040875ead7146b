from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duetime.domain.namespaces import Namespace
from tests.support.clock import NOW
from tests.support.sql_store import SqlStore
from tests.support.stores import memory_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "duetime.db"


@pytest.fixture
def store() -> Iterator[SqlStore]:
    """An empty store in memory, with the caller's times."""
    with memory_store() as store:
        yield store


@pytest.fixture
def single(store: SqlStore) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return store.catalogue.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
