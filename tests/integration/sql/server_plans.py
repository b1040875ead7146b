"""The plans of real servers: how they find the rows of the statements that a store has run."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from xml.etree import ElementTree

import psycopg
import sqlalchemy as sa
from sqlalchemy.dialects.mysql.base import MySQLDialect

from tests.support.databases import is_tidb
from tests.support.sql_store import SqlStore
from tests.unit.sql.statements import Ran, recorded_statements


@dataclass(frozen=True)
class Step:
    """``partitions``: what is read, as far as the server tells; several are joined by commas. ``condition``: that of
    an index, on PostgreSQL."""

    is_scan: bool
    is_sort: bool
    partitions: str | None = None
    condition: str = ""


@dataclass(frozen=True)
class Plan:
    sql: str
    steps: tuple[Step, ...]

    def problems(self) -> list[str]:
        # Rows of a list of keys are locked in their order, for which those few may be sorted.
        may_sort = " IN (" in self.sql and "FOR UPDATE" in self.sql
        wrong = [step for step in self.steps if step.is_scan or (step.is_sort and not may_sort)]
        return [f"{self.sql}\n{wrong}"] if wrong else []


_ANALYSES = {
    "postgresql": "ANALYZE {}",
    "mysql": "ANALYZE TABLE {}",
    "mssql": "UPDATE STATISTICS {}",
    "oracle": "BEGIN DBMS_STATS.GATHER_TABLE_STATS(USER, UPPER('{}')); END;",
}


def analyse(store: SqlStore, tables: Sequence[str]) -> None:
    with store.database.engine.connect() as connection:
        for table in tables:
            connection.exec_driver_sql(_ANALYSES[connection.dialect.name].format(table))


def plans(store: SqlStore, tables: Sequence[str], action: Callable[[], object]) -> list[Plan]:
    """The plan of each statement on ``tables``, but plain INSERTs, that ``action`` makes the store run."""
    with recorded_statements(store) as statements:
        action()
    with store.database.engine.connect() as connection:
        explain = _explain_tidb if is_tidb(connection) else _EXPLANATIONS[connection.dialect.name]
        return [
            Plan(each.sql, tuple(explain(connection, each)))
            for each in statements
            if any(table in each.sql for table in tables) and not each.sql.startswith("INSERT")
        ]


def _explain_postgresql(connection: sa.Connection, statement: Ran) -> list[Step]:
    """Of a prepared statement: what the server plans without having seen the values.

    The plan of a statement for given rows names all partitions, of which those of the rows are read: so it is run.
    """
    places = count(1)
    text = re.sub("%s", lambda _: f"${next(places)}", statement.sql)
    values = [psycopg.sql.Literal(value).as_string() for value in statement.parameters]
    connection.exec_driver_sql(f"PREPARE planned AS {text}".replace("%", "%%"))
    executed = f"EXECUTE planned({', '.join(values)})" if values else "EXECUTE planned"
    options = "ANALYZE, FORMAT JSON" if "given_rows" in text else "FORMAT JSON"
    connection.exec_driver_sql("BEGIN")
    found = connection.exec_driver_sql(f"EXPLAIN ({options}) {executed}".replace("%", "%%")).scalar_one()
    connection.exec_driver_sql("ROLLBACK")  # psycopg then ends all that is prepared
    steps = []
    remaining = [found[0]["Plan"]]
    while remaining:
        node = remaining.pop()
        if node.get("Actual Loops") == 0:
            continue
        remaining += node.get("Plans", [])
        if node["Node Type"] == "ModifyTable":
            continue  # names the whole table; what is below it finds the rows
        is_sort = node["Node Type"] in ("Sort", "Incremental Sort")
        condition = node.get("Index Cond", "")
        steps.append(Step(node["Node Type"] == "Seq Scan", is_sort, node.get("Relation Name"), condition))
    return steps


def _explain_mysql(connection: sa.Connection, statement: Ran) -> list[Step]:
    assert isinstance(connection.dialect, MySQLDialect)
    # MySQL 8 tells the partitions in its traditional form, and knows the other no more.
    explain = "EXPLAIN PARTITIONS" if connection.dialect.is_mariadb else "EXPLAIN FORMAT=TRADITIONAL"
    rows = connection.exec_driver_sql(f"{explain} {statement.sql}", statement.parameters).mappings().all()
    return [
        Step(row["type"] in ("ALL", "index"), "filesort" in (row["Extra"] or ""), row["partitions"]) for row in rows
    ]


def _explain_tidb(connection: sa.Connection, statement: Ran) -> list[Step]:
    rows = connection.exec_driver_sql(f"EXPLAIN {statement.sql}", statement.parameters).mappings().all()
    return [
        Step(
            is_scan="FullScan" in row["id"],
            is_sort="Sort" in row["id"] or "TopN" in row["id"],
            partitions=row["access object"].partition("partition:")[2],
        )
        for row in rows
    ]


def _explain_sqlserver(connection: sa.Connection, statement: Ran) -> list[Step]:
    connection.exec_driver_sql("SET SHOWPLAN_XML ON")
    try:
        plan = connection.exec_driver_sql(statement.sql, statement.parameters).scalar_one()
    finally:
        connection.exec_driver_sql("SET SHOWPLAN_XML OFF")
    operations = [
        each.get("PhysicalOp", "") for each in ElementTree.fromstring(plan).iter() if each.tag.endswith("}RelOp")
    ]
    scans = ("Table Scan", "Clustered Index Scan", "Index Scan")
    return [Step(operation in scans, "Sort" in operation) for operation in operations]


def _explain_oracle(connection: sa.Connection, statement: Ran) -> list[Step]:
    """Without values, as the server chooses for statements whose values it has not seen."""
    connection.exec_driver_sql("DELETE FROM plan_table")
    connection.exec_driver_sql(f"EXPLAIN PLAN FOR {statement.sql}")
    rows = connection.exec_driver_sql("SELECT operation, options FROM plan_table").all()
    steps = [(operation, options or "") for operation, options in rows]
    return [
        Step(
            is_scan=options in ("FULL", "FULL SCAN", "FAST FULL SCAN"),
            is_sort="SORT" in f"{operation} {options}".split(),
        )
        for operation, options in steps
    ]


_EXPLANATIONS = {
    "postgresql": _explain_postgresql,
    "mysql": _explain_mysql,
    "mssql": _explain_sqlserver,
    "oracle": _explain_oracle,
}
