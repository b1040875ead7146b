"""How real servers run the hot statements: by index, in one partition where the shard is known, without a sort."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree

import pytest
import sqlalchemy as sa

from duetime.domain.namespaces import Namespace
from duetime.domain.timers import TimerChange
from duetime.stores.port import PutMode, TimerFilter, TimerRef
from duetime.stores.sql.store import SqlStore
from duetime.stores.sql.tidb import TidbSql
from tests.support.builders import failed, fired, make_timer, make_timers, seconds
from tests.support.clock import NOW
from tests.unit.sql.statements import Ran, recorded_statements

Action = Callable[[SqlStore, Namespace], object]
_ANALYSES = {
    "postgresql": "ANALYZE timers",
    "mysql": "ANALYZE TABLE timers",
    "mssql": "UPDATE STATISTICS timers",
}


def record(store: SqlStore, single: Namespace) -> None:
    lease = store.claim_shard(0, "w2", lease_seconds=10, now=NOW + seconds(3600))
    assert lease is not None
    due = store.due_timers(0, until=NOW, limit=2).timers
    assert len(due) == 2
    store.record([fired(due[0]), failed(due[1])], leases={0: lease}, now=NOW)
    store.renew_leases([lease], lease_seconds=10, now=NOW)
    store.release_leases([lease], now=NOW)


ACTIONS: dict[str, Action] = {
    "nothing due": lambda store, _: store.due_timers(0, until=NOW - seconds(60), limit=5),
    "due": lambda store, _: store.due_timers(0, until=NOW, limit=5),
    "due, next page": lambda store, _: store.due_timers(
        0, until=NOW, limit=5, cursor=store.due_timers(0, until=NOW, limit=5).cursor
    ),
    "leases and recording": record,
    "get": lambda store, single: store.get_timer(single, "t0001", now=NOW),
    "create": lambda store, single: store.put_timers([make_timer(single, "new")], mode=PutMode.CREATE, now=NOW),
    "replace": lambda store, single: store.put_timers([make_timer(single, "t0001")], mode=PutMode.REPLACE, now=NOW),
    "update": lambda store, single: store.update_timer(
        single, "t0002", TimerChange(correlation_id="x"), firing_id="f", now=NOW
    ),
    "delete": lambda store, single: store.delete_timers(single, [TimerRef("t0003")], now=NOW),
    "list": lambda store, single: store.list_timers(single, TimerFilter(), cursor="0:t0003", limit=10, now=NOW),
}


@pytest.fixture
def filled(server_store: SqlStore, single: Namespace) -> SqlStore:
    """Thousands of timers in two namespaces and on several shards, so that a scan would cost more than an index."""
    others = server_store.create_namespace("others", num_shards=8, dedicated=False, now=NOW)[0]
    for start in range(0, 2000, 500):
        later = make_timers(others, 500, prefix=f"o{start}-", execute_at=NOW + seconds(60))
        server_store.put_timers(later, mode=PutMode.CREATE, now=NOW)
        more = make_timers(single, 500, prefix=f"later{start}-", execute_at=NOW + seconds(60))
        server_store.put_timers(more, mode=PutMode.CREATE, now=NOW)
    server_store.put_timers(make_timers(single, 40), mode=PutMode.CREATE, now=NOW)
    server_store.claim_shard(0, "w", lease_seconds=10, now=NOW)
    with server_store.database.engine.connect() as connection:
        connection.exec_driver_sql(_ANALYSES[connection.dialect.name])
    return server_store


def plans(store: SqlStore, single: Namespace, action: Action) -> list[tuple[Ran, list[dict[str, Any]]]]:
    """The steps of the plan of each statement that the action runs on ``timers``."""
    with recorded_statements(store) as statements:
        action(store, single)
    with store.database.engine.connect() as connection:
        is_tidb = isinstance(connection.dialect, TidbSql)
        explain = _explain_tidb if is_tidb else _EXPLANATIONS[connection.dialect.name]
        return [
            (each, explain(connection, each))
            for each in statements
            if "timers" in each.sql and not each.sql.startswith("INSERT")
        ]


def _explain_postgresql(connection: sa.Connection, statement: Ran) -> list[dict[str, Any]]:
    found = connection.exec_driver_sql(f"EXPLAIN (FORMAT JSON) {statement.sql}", statement.parameters).scalar_one()
    steps = []
    remaining = [found[0]["Plan"]]
    while remaining:
        node = remaining.pop()
        remaining += node.get("Plans", [])
        if node["Node Type"] == "ModifyTable":
            continue  # names the whole table; what is below it finds the rows
        steps.append(
            {
                "is_scan": node["Node Type"] == "Seq Scan",
                "is_sort": node["Node Type"] in ("Sort", "Incremental Sort"),
                "table": node.get("Relation Name"),
            }
        )
    return steps


def _explain_mysql(connection: sa.Connection, statement: Ran) -> list[dict[str, Any]]:
    rows = connection.exec_driver_sql(f"EXPLAIN PARTITIONS {statement.sql}", statement.parameters).mappings().all()
    return [
        {
            "is_scan": row["type"] in ("ALL", "index"),
            "is_sort": "filesort" in (row["Extra"] or ""),
            "table": row["partitions"],
        }
        for row in rows
    ]


def _explain_sqlserver(connection: sa.Connection, statement: Ran) -> list[dict[str, Any]]:
    connection.exec_driver_sql("SET SHOWPLAN_XML ON")
    try:
        plan = connection.exec_driver_sql(statement.sql, statement.parameters).scalar_one()
    finally:
        connection.exec_driver_sql("SET SHOWPLAN_XML OFF")
    steps = [
        each.get("PhysicalOp", "") for each in ElementTree.fromstring(plan).iter() if each.tag.endswith("}RelOp")
    ]
    tables = ("Table Scan", "Clustered Index Scan", "Index Scan")
    return [{"is_scan": step in tables, "is_sort": "Sort" in step, "table": None} for step in steps]


def _explain_tidb(connection: sa.Connection, statement: Ran) -> list[dict[str, Any]]:
    rows = connection.exec_driver_sql(f"EXPLAIN {statement.sql}", statement.parameters).mappings().all()
    return [
        {
            "is_scan": "FullScan" in row["id"],
            "is_sort": "Sort" in row["id"] or "TopN" in row["id"],
            "table": row["access object"].partition("partition:")[2],
        }
        for row in rows
    ]


_EXPLANATIONS = {"postgresql": _explain_postgresql, "mysql": _explain_mysql, "mssql": _explain_sqlserver}


@pytest.mark.parametrize("name", ACTIONS)
def test_hot_statements_search_by_index_in_one_partition(filled: SqlStore, single: Namespace, name: str) -> None:
    for statement, steps in plans(filled, single, ACTIONS[name]):
        described = f"{statement.sql}\n{json.dumps(steps, default=str)}"
        assert not any(step["is_scan"] for step in steps), described
        assert not any(step["is_sort"] for step in steps), described
        if name != "list":  # which goes on to the shards after the cursor's
            tables = {step["table"] for step in steps if step["table"]}
            assert len(tables) <= 1, described  # none where the server has looked, and the row is gone
            assert all("," not in table for table in tables), described
