from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.cql.driver import ModelCluster, ModelSession
from tests.support.cql.model import CassandraModel

KEYSPACE = "CREATE KEYSPACE ks WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 3}"


@pytest.fixture
def clock() -> Any:
    """``clock.now_s`` is the servers' time and can be set."""
    return SimpleNamespace(now_s=1_000_000.0)


@pytest.fixture
def model(clock: Any) -> CassandraModel:
    return CassandraModel(lambda: clock.now_s)


@pytest.fixture
def session(model: CassandraModel) -> Iterator[ModelSession]:
    cluster = ModelCluster(["model"], model=model)
    session = cluster.connect()
    session.execute(KEYSPACE)
    session.set_keyspace("ks")
    session.execute(
        "CREATE TABLE t (a text, b int, c int, v bigint, w text, s text static, PRIMARY KEY ((a), b, c)) "
        "WITH CLUSTERING ORDER BY (b ASC, c ASC)"
    )
    session.execute("CREATE TABLE kv (k text PRIMARY KEY, v bigint, w text)")
    yield session
    cluster.shutdown()


def rows(session: ModelSession, cql: str, values: Any = None) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in session.execute(session.prepare(cql), values)]
