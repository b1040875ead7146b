"""What a model of Cassandra holds of timers, looked at beside the store."""

from __future__ import annotations

from typing import Any

from duetime.stores.cassandra.schema import CORRELATION, DUE, TIMER
from tests.support.cql.driver import ModelCluster
from tests.support.cql.model import CassandraModel

_SELECT = "SELECT * FROM timers WHERE shard_id = {}"


def rows_of(model: CassandraModel, shard_id: int = 0) -> list[Any]:
    """Every row of a shard's partition, after what was accepted has been carried out."""
    cluster = ModelCluster(model=model)
    faults, model.faults = model.faults, lambda request: None
    try:
        session = cluster.connect("duetime")
        return list(session.execute(_SELECT.format(shard_id)))
    finally:
        model.faults = faults
        cluster.shutdown()


def assert_whole(model: CassandraModel, shard_id: int = 0) -> None:
    """What is due, and what is found by correlation id, is exactly what the timers say."""
    rows = rows_of(model, shard_id)
    timers = [row for row in rows if row.row_kind == TIMER]
    due = {(row.sort_at, row.timer_namespace, row.timer_id) for row in rows if row.row_kind == DUE}
    assert due == {
        (row.timer_execute_at, row.timer_namespace, row.timer_id)
        for row in timers
        if row.timer_execute_at is not None
    }
    correlated = {(row.timer_namespace, row.sort_text, row.timer_id) for row in rows if row.row_kind == CORRELATION}
    assert correlated == {
        (row.timer_namespace, row.timer_correlation_id, row.timer_id)
        for row in timers
        if row.timer_correlation_id is not None
    }
