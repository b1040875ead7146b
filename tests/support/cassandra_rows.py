"""What Cassandra holds of timers, looked at beside the store."""

from __future__ import annotations

from typing import Any

from duetime.stores.cassandra.schema import CORRELATION, DUE, TIMER
from tests.support.cassandra_faults import Network
from tests.support.databases import own_name


def rows_of(network: Network, shard_id: int = 0) -> list[dict[str, Any]]:
    """Every row of a shard's partition, after what was accepted has been carried out."""
    network.finish()
    return list(network.driver.execute(f"SELECT * FROM {own_name()}.timers WHERE shard_id = {shard_id}"))


def assert_whole(network: Network, shard_id: int = 0) -> None:
    """What is due, and what is found by correlation id, is exactly what the timers say."""
    rows = rows_of(network, shard_id)
    timers = [row for row in rows if row["row_kind"] == TIMER]

    def keys(kind: int, name: str) -> set[tuple[Any, ...]]:
        return {(row[name], row["timer_namespace"], row["timer_id"]) for row in rows if row["row_kind"] == kind}

    def values(name: str) -> set[tuple[Any, ...]]:
        return {(row[name], row["timer_namespace"], row["timer_id"]) for row in timers if row[name] is not None}

    assert keys(DUE, "sort_at") == values("timer_execute_at")
    assert keys(CORRELATION, "sort_text") == values("timer_correlation_id")
