"""The schema of a database: made whole of tables.py and call_tables.py, with what its dialect wants besides.

``schema_migrations`` tells the version. There is one so far, so nothing is migrated: docs/decisions/0026.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.schema import CreateTable

from duetime.domain.errors import StoreNotReady
from duetime.stores.sql.call_tables import service_calls
from duetime.stores.sql.db_now import DbNowStrategy
from duetime.stores.sql.tables import HAVE_CONDITIONS, schema_migrations

logger = logging.getLogger(__name__)

VERSION = 1

_NUM_PARTITIONS = 32
_METADATA = service_calls.metadata
_OF_EACH_TABLE: Mapping[str, Mapping[str, Any]] = {
    "sqlite": {"strict": True},
    "mysql": {
        "engine": "InnoDB",
        "default_charset": "utf8mb4",
        # Ids are compared byte by byte, trailing blanks included. The collation for that has a name of its own on
        # each server: comments that only MySQL and TiDB, or only MariaDB, execute choose it.
        "collate": "/*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */",
    },
}
"""Options of SQLAlchemy's dialects. They are set when a schema is made: to name a dialect's loads it."""
_OF_TABLE: Mapping[tuple[str, str], Mapping[str, str]] = {
    # Partitions by shard, as the durable-timer seed has them.
    ("postgresql", "timers"): {"partition_by": "HASH (shard_id)"},
    ("mysql", "timers"): {"partition_by": "HASH (shard_id)", "partitions": str(_NUM_PARTITIONS)},
    # All servers of a TiDB cluster number events in one order.
    ("mysql", "outbox"): {"engine": "InnoDB /*T![auto_id_cache] AUTO_ID_CACHE=1 */"},
}
_BESIDES: Mapping[str, Mapping[str, str]] = {
    "postgresql": {
        f"timers_p{number}": f"CREATE TABLE timers_p{number} PARTITION OF timers"
        f" FOR VALUES WITH (MODULUS {_NUM_PARTITIONS}, REMAINDER {number})"
        for number in range(_NUM_PARTITIONS)
    },
    # A batch may lock thousands of rows; locks on the whole table instead would stop everybody else.
    "mssql": {
        f"locks of {table}": f"ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"
        for table in ("timers", "service_calls", "outbox", "idempotency_records")
    },
}
"""Definitions that are no table's or index's of tables.py, by the names of what they make."""


def _set_options(dialect: str) -> None:
    for table in _METADATA.tables.values():
        options = {**_OF_EACH_TABLE.get(dialect, {}), **_OF_TABLE.get((dialect, table.name), {})}
        table.dialect_kwargs.update({f"{dialect}_{name}": value for name, value in options.items()})
        for index in table.indexes if dialect in HAVE_CONDITIONS else ():
            if (where := index.info.get("where")) is None:
                continue
            index.dialect_kwargs[f"{dialect}_where"] = where
            if dialect == "mssql" and where.left.name not in index.columns:
                # Or each row would be looked up for the condition.
                index.dialect_kwargs["mssql_include"] = [where.left.name]


@cache
def definitions(driver_name: str) -> Mapping[str, str]:
    """The statements that make the schema, in their order, by the names of the tables and indexes that they make.

    ``driver_name`` is that of an engine's URL.
    """
    found: dict[str, str] = {}

    def note(definition: Any, *_: object, **__: object) -> None:
        found[definition.element.name] = str(definition.compile(dialect=recorder.dialect)).strip()

    recorder = sa.create_mock_engine(f"{driver_name}://", note)
    dialect = recorder.dialect.name
    _set_options(dialect)
    # The version's first: whoever finds it knows whose the other tables are.
    tables = sorted(_METADATA.sorted_tables, key=lambda table: table is not schema_migrations)
    for table in tables:
        recorder.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            index.create(recorder)
    return {**found, **_BESIDES.get(dialect, {})}


def make_schema(connection: sa.Connection, db_now: DbNowStrategy) -> None:
    """Make what is missing, in the turn and the open, seeded write transaction of ``connection``.

    Where definitions commit by themselves, a process that ended too early leaves an incomplete schema. Raises
    ``StoreNotReady`` for a newer version, and for somebody else's tables.
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
    for name, statement in definitions(connection.engine.url.drivername).items():
        if name not in present:
            connection.exec_driver_sql(statement)
    connection.execute(
        sa.insert(schema_migrations).values(
            migration_version=VERSION, migration_name="initial", applied_at=db_now.iso_text()
        )
    )
    logger.info("schema version %d made", VERSION, extra={"action": "store.migrated", "version": VERSION})


def check_schema(connection: sa.Connection) -> None:
    """Raises ``StoreNotReady`` unless the schema has this program's version."""
    if _current_version(connection) < VERSION:
        raise StoreNotReady("the schema is incomplete; `duetime init` completes it")


def _current_version(connection: sa.Connection) -> int:
    """The version of the schema; 0 for an incomplete one. Raises ``StoreNotReady`` for a newer one."""
    current = connection.execute(sa.select(sa.func.max(schema_migrations.c.migration_version))).scalar() or 0
    if current > VERSION:
        raise StoreNotReady(f"the database has schema version {current}; this program knows {VERSION}")
    return current
