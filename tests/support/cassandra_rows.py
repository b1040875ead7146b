"""What Cassandra holds of timers, looked at beside the store."""

from __future__ import annotations

from typing import Any

from duetime.stores.backends.cassandra import layout, places
from duetime.stores.backends.cassandra.layout import place_fields, place_of
from duetime.stores.entities import CORRELATED, DUE, TIMER
from duetime.stores.entity import AccessPath
from tests.support.cassandra import own_keyspace
from tests.support.cassandra_faults import Network


def rows_of(network: Network, shard_id: int = 0) -> list[dict[str, Any]]:
    """Every row of a shard's partition, after what was accepted has been carried out."""
    network.finish()
    return list(network.driver.execute(f"SELECT * FROM {own_keyspace()}.timers WHERE shard_id = {shard_id}"))


def assert_whole(network: Network, shard_id: int = 0) -> None:
    """What is due, and what is found by correlation id, is exactly what the timers say."""
    rows = rows_of(network, shard_id)
    timers = [row for row in rows if row["row_kind"] == TIMER.name and row["is_there"]]
    for path in (DUE, CORRELATED):
        entries = {(row["place"], row["target"]) for row in rows if row["row_kind"] == path.name}
        assert entries == {entry_of(path, row) for row in timers if row[path.present[0]] is not None}


def entry_of(path: AccessPath, row: dict[str, Any]) -> tuple[bytes, bytes]:
    """Where the entry of a timer's row stands, and what it leads to."""
    target = place_of(TIMER, tuple(row[name] for name in TIMER.key))
    at = places.encode(layout.place_parts(TIMER, path), [row[name] for name in place_fields(TIMER, path)])
    return at + target, target
