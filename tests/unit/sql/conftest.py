from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from duetime.domain.namespaces import Namespace
from duetime.stores.sql.dialects import open_dialect
from duetime.stores.sql.store import SqlStore
from duetime.stores.time_source import TimeSource
from tests.support.clock import NOW


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "duetime.db"


@pytest.fixture
def store(path: Path) -> Iterator[SqlStore]:
    """An initialised store in a file, with the caller's times."""
    store = SqlStore(open_dialect(f"sqlite:///{path}"), time_source=TimeSource.CALLER)
    store.initialise()
    yield store
    store.close()


@pytest.fixture
def single(store: SqlStore) -> Namespace:
    """A namespace whose timers are all on shard 0."""
    return store.create_namespace("single", num_shards=1, dedicated=False, now=NOW)[0]
