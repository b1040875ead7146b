"""Creates the schema from the declarations of tables.py and call_tables.py, with the options of each dialect.

``schema_migrations`` holds the version. There is one so far, so nothing is migrated: docs/decisions/0026.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.stores.backends.sql.call_tables import service_calls
from duetime.stores.backends.sql.dialects.db_now import DbNowStrategy
from duetime.stores.backends.sql.tables import PARTIAL_INDEX_DIALECTS, schema_migrations

logger = logging.getLogger(__name__)

VERSION = 1

_PARTITIONS = {"postgresql": 4, "mysql": 32}
"""Of the table of timers. PostgreSQL's backends plan each statement for all of them, and lock them all to run it."""
_METADATA = service_calls.metadata
_COMMON_OPTIONS: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"strict": True},
    "mysql": {
        "engine": "InnoDB",
        "default_charset": "utf8mb4",
        # Ids are compared byte by byte, trailing blanks included. The collation for that has a name of its own on
        # each server: comments that only MySQL and TiDB, or only MariaDB, execute choose it.
        "collate": "/*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */",
    },
}
"""Options of SQLAlchemy's dialects, for every table. Set late, because naming an option loads its dialect."""
_TABLE_OPTIONS: Mapping[tuple[str, str], Mapping[str, str]] = {
    # Partitions by shard, as the durable-timer seed has them.
    ("postgresql", "timers"): {"partition_by": "HASH (shard_id)"},
    ("mysql", "timers"): {"partition_by": "HASH (shard_id)", "partitions": str(_PARTITIONS["mysql"])},
    # All servers of a TiDB cluster number events in one sequence.
    ("mysql", "outbox"): {"engine": "InnoDB /*T![auto_id_cache] AUTO_ID_CACHE=1 */"},
}
_EXTRA_STATEMENTS: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        f"timers_p{number}": f"CREATE TABLE timers_p{number} PARTITION OF timers"
        f" FOR VALUES WITH (MODULUS {_PARTITIONS['postgresql']}, REMAINDER {number})"
        for number in range(_PARTITIONS["postgresql"])
    },
    # A batch may lock thousands of rows; locks on the whole table instead would stop everybody else.
    "mssql": {
        f"locks of {table}": f"ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"
        for table in ("timers", "service_calls", "outbox", "idempotency_records")
    },
}
"""DDL statements beside those of the declared tables and indexes, by the names of what they create."""


def _set_options(dialect: str) -> None:
    for table in _METADATA.tables.values():
        options = {**_COMMON_OPTIONS.get(dialect, {}), **_TABLE_OPTIONS.get((dialect, table.name), {})}
        table.dialect_kwargs.update({f"{dialect}_{name}": value for name, value in options.items()})
        for index in table.indexes if dialect in PARTIAL_INDEX_DIALECTS else ():
            if (where := index.info.get("where")) is None:
                continue
            index.dialect_kwargs[f"{dialect}_where"] = where
            if dialect == "mssql" and where.left.name not in index.columns:
                # Or each row would be looked up for the condition.
                index.dialect_kwargs["mssql_include"] = [where.left.name]


@cache
def ddl_statements(driver_name: str) -> Mapping[str, str]:
    """Return the DDL statements in their order, by the names of the tables and indexes that they create.

    ``driver_name`` is that of an engine's URL.
    """
    found: dict[str, str] = {}

    def note(ddl: Any, *_: object, **__: object) -> None:
        found[ddl.element.name] = str(ddl.compile(dialect=recorder.dialect)).strip()

    recorder = sa.create_mock_engine(f"{driver_name}://", note)
    dialect = recorder.dialect.name
    _set_options(dialect)
    # The version's table comes first: where it is, the other tables are Duetime's.
    tables = sorted(_METADATA.sorted_tables, key=lambda table: table is not schema_migrations)
    for table in tables:
        recorder.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            index.create(recorder)
    return {**found, **_EXTRA_STATEMENTS.get(dialect, {})}


def create_schema(connection: sa.Connection, db_now: DbNowStrategy) -> None:
    """Create what is missing, in the open, seeded write transaction of ``connection``, which holds the schema lock.

    Where DDL commits by itself, a process that died may have left an incomplete schema. Raises ``StoreNotReady`` for
    a newer version, and for tables of another application.
    """
    inspector = sa.inspect(connection)
    schema = inspector.default_schema_name
    present = set(inspector.get_table_names(schema))
    ours = sorted(present & set(_METADATA.tables))
    if schema_migrations.name in ours:
        if _current_version(connection) == VERSION:
            return
    elif ours:
        raise StoreNotReady(
            f"the database has a table {ours[0]!r} that Duetime did not make: give it a database of its own"
        )
    for table in ours:
        present |= {str(index["name"]) for index in inspector.get_indexes(table, schema)}
    for name, statement in ddl_statements(connection.engine.url.drivername).items():
        if name not in present:
            connection.exec_driver_sql(statement)
    connection.execute(
        sa.insert(schema_migrations).values(
            migration_version=VERSION, migration_name="initial", applied_at=db_now.iso_text()
        )
    )
    logger.info("schema version %d created", VERSION, extra={"action": "store.migrated", "version": VERSION})


def check_schema(connection: sa.Connection) -> None:
    """Raise ``StoreNotReady`` unless the schema has this program's version, ``StoreEmpty`` for an incomplete one."""
    if _current_version(connection) < VERSION:
        raise StoreEmpty("the schema is incomplete; `duetime init` completes it")


def _current_version(connection: sa.Connection) -> int:
    """Read the version of the schema; 0 for an incomplete one. Raises ``StoreNotReady`` for a newer one."""
    current = connection.execute(sa.select(sa.func.max(schema_migrations.c.migration_version))).scalar() or 0
    if current > VERSION:
        raise StoreNotReady(f"the database has schema version {current}; this program knows {VERSION}")
    return current
