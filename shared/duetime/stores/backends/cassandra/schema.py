"""Keyspace and tables, made of the declared entities (decision 0020)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.stores.backends.cassandra.errors import NoTables
from duetime.stores.backends.cassandra.layout import (
    CALLS,
    ENTITIES_OF,
    PARTITION_COLUMNS,
    TIMERS,
    WORKERS,
    columns_of,
)
from duetime.stores.backends.cassandra.requests import Statement
from duetime.stores.backends.cassandra.session import CassandraSession
from duetime.stores.backends.cassandra.url import CassandraUrl
from duetime.stores.entities import TIMER
from duetime.stores.entity import Kind

SCHEMA_VERSION: Final = 1
_SCHEMA_ID: Final = "duetime"
_TYPES: Final = {
    Kind.TEXT: "text",
    Kind.LONG_TEXT: "text",
    Kind.WHOLE: "bigint",
    Kind.INSTANT: "bigint",
    Kind.FLAG: "boolean",
    Kind.BYTES: "blob",
    Kind.TEXTS: "frozen<list<text>>",
}
"""Instants are milliseconds since 1970: the driver reads a ``timestamp`` by way of a float, and one out of range
would spoil a whole page."""
_LEVELED: Final = "compaction = {'class': 'LeveledCompactionStrategy'}"
_OPTIONS: Final = {
    TIMERS: f"gc_grace_seconds = 10800 AND {_LEVELED}",
    "idempotency_records": f"gc_grace_seconds = 10800 AND {_LEVELED}",
    WORKERS: f"gc_grace_seconds = 600 AND {_LEVELED}",
}
_HINTS: Final = f"""
CREATE TABLE IF NOT EXISTS hints (
    path text, by_values blob, slice int, place blob, target blob, attempt text,
    PRIMARY KEY ((path, by_values, slice), place, target, attempt)
) WITH gc_grace_seconds = 600 AND {_LEVELED}
"""
"""Their tombstones may go early: a hint that comes back is found to be wrong once more."""
_UNIQUE: Final = """
CREATE TABLE IF NOT EXISTS unique_values (
    path text, by_values blob, target blob, attempt text, PRIMARY KEY ((path, by_values))
)
"""
_VERSION: Final = "CREATE TABLE IF NOT EXISTS duetime_schema (schema_id text PRIMARY KEY, schema_version int)"


def tables() -> Iterator[str]:
    """Return the statements that make them. Each can be carried out again."""
    for table, partition in PARTITION_COLUMNS.items():
        columns = {name: "int" if name == "shard_id" else "text" for name in partition}
        columns |= {"row_kind": "text", "place": "blob", "write_id": "uuid", "is_there": "boolean", "target": "blob"}
        if table == CALLS:
            columns |= {"last_attempt": "text static", "is_checked": "boolean static"}
        for entity in (*ENTITIES_OF[table], *([TIMER] if table == CALLS else [])):
            columns |= {name: _TYPES[entity.by_name[name].kind] for name in columns_of(entity, table)}
        defined = ", ".join(f"{name} {kind}" for name, kind in columns.items())
        options = _OPTIONS.get(table, _LEVELED)
        yield (
            f"CREATE TABLE IF NOT EXISTS {table} ({defined}, "
            f"PRIMARY KEY (({', '.join(partition)}), row_kind, place)) WITH {options}"
        )
    yield _HINTS
    yield _UNIQUE


def make_keyspace_cql(url: CassandraUrl) -> str:
    """Return the statement: copies in the data centre that the URL names; a URL without one says that there is only
    one.
    """
    if url.datacenter is None:
        replication = f"'class': 'SimpleStrategy', 'replication_factor': {url.replication}"
    else:
        replication = f"'class': 'NetworkTopologyStrategy', '{url.datacenter}': {url.replication}"
    return f"CREATE KEYSPACE IF NOT EXISTS {url.keyspace} WITH replication = {{{replication}}}"


def initialise(session: CassandraSession) -> None:
    """Make what is missing. Where all is there, nothing but the version is read.

    Cassandra does not order changes of the schema by several clients: a first ``duetime init`` is run by one.
    """
    is_new = session.make_keyspace(make_keyspace_cql(session.url))
    stored = None if is_new else _stored_version(session)
    if stored is not None and stored > SCHEMA_VERSION:
        raise _newer(stored)
    if stored == SCHEMA_VERSION:
        return
    session.change_schema([_VERSION, *tables()])
    cql = "UPDATE duetime_schema SET schema_version = ? WHERE schema_id = ? IF schema_version = ?"
    session.decide([Statement(cql, (SCHEMA_VERSION, _SCHEMA_ID, stored))])


def check(session: CassandraSession) -> None:
    """One read. Raises ``StoreNotReady`` unless the tables are there and this program's."""
    stored = _stored_version(session)
    if stored is None and session.is_empty():
        raise StoreEmpty("the Cassandra keyspace has no tables; `duetime init` creates them")
    if stored is None:
        raise NoTables
    if stored > SCHEMA_VERSION:
        raise _newer(stored)
    if stored < SCHEMA_VERSION:
        raise StoreNotReady(
            f"the keyspace has schema version {stored}; this program needs {SCHEMA_VERSION}, to which `duetime init`"
            " migrates it"
        )


def _stored_version(session: CassandraSession) -> int | None:
    """None where there are no tables."""
    cql = "SELECT schema_version FROM duetime_schema WHERE schema_id = ?"
    try:
        rows = session.read(Statement(cql, (_SCHEMA_ID,)))
    except NoTables:
        return None
    return int(rows[0]["schema_version"]) if rows else None


def _newer(stored: int) -> StoreNotReady:
    return StoreNotReady(
        f"the keyspace has schema version {stored}, which is newer than this program's {SCHEMA_VERSION}"
    )
