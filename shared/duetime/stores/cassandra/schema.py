"""Keyspace and tables. Why they are as they are: docs/decisions/0020-cassandra.md."""

from __future__ import annotations

from typing import Final

from duetime.domain.errors import StoreEmpty, StoreNotReady
from duetime.stores.cassandra.calls.tables import CALL_TABLES
from duetime.stores.cassandra.errors import NoTables
from duetime.stores.cassandra.requests import Statement
from duetime.stores.cassandra.session import CassandraSession
from duetime.stores.cassandra.url import CassandraUrl

_SCHEMA_ID: Final = "duetime"

SHARD: Final = 0
DUE: Final = 1
TIMER: Final = 2
CORRELATION: Final = 3
"""``row_kind`` of the rows of a shard's partition, in their order: who owns it, when what is due, what there is, and
by which correlation id it is found."""

TIMER_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS timers (
        shard_id int, row_kind tinyint, sort_at bigint, timer_namespace text, sort_text text, timer_id text,
        shard_version bigint, shard_owner_id text, shard_claimed_at bigint, shard_lease_expires_at bigint,
        shard_metadata text,
        write_id uuid, timer_size int,
        timer_execute_at bigint, timer_due_at bigint, timer_state text, timer_revision bigint,
        timer_firing_id text, timer_attempts int, timer_callback_url text, timer_callback_timeout_seconds int,
        timer_payload text, timer_headers text, timer_retry_policy text, timer_correlation_id text, timer_tags text,
        timer_expire_after_ms bigint, timer_digest text, timer_created_at bigint, timer_updated_at bigint,
        timer_fired_at bigint, timer_failure text, timer_expires_at bigint, timer_rearmed_at bigint,
        timer_attempt_log text,
        PRIMARY KEY ((shard_id), row_kind, sort_at, timer_namespace, sort_text, timer_id)
    ) WITH gc_grace_seconds = 10800 AND compaction = {'class': 'LeveledCompactionStrategy'}
    """,
    """
    CREATE TABLE IF NOT EXISTS catalogue (
        catalogue_part text, row_kind tinyint, tenant_id text, entry_name text,
        entry_body text, entry_bytes blob, write_id uuid,
        PRIMARY KEY ((catalogue_part), row_kind, tenant_id, entry_name)
    )
    """,
    """
    CREATE TABLE IF NOT EXISTS workers (
        worker_group text, worker_id text, worker_expires_at bigint,
        PRIMARY KEY ((worker_group), worker_id)
    ) WITH gc_grace_seconds = 600
    """,
)
IDEMPOTENCY_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS idempotency_records (
        record_key text, record_claim_id text, record_content text, record_expires_at bigint,
        PRIMARY KEY ((record_key))
    ) WITH gc_grace_seconds = 10800 AND compaction = {'class': 'LeveledCompactionStrategy'}
    """,
)
_VERSION_TABLE = "CREATE TABLE IF NOT EXISTS duetime_schema (schema_id text PRIMARY KEY, schema_version int)"

MIGRATIONS: Final[tuple[tuple[str, ...], ...]] = (TIMER_TABLES, CALL_TABLES, IDEMPOTENCY_TABLES)
"""``MIGRATIONS[n]`` leads from version n to n + 1. Each of its statements can be carried out again."""
SCHEMA_VERSION: Final = len(MIGRATIONS)


def make_keyspace_cql(url: CassandraUrl) -> str:
    """Copies in the data centre that the URL names; a URL without one says that there is only one."""
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
    if stored is None:
        session.change_schema([_VERSION_TABLE])
    for version in range(stored or 0, SCHEMA_VERSION):
        session.change_schema(MIGRATIONS[version])
        cql = "UPDATE duetime_schema SET schema_version = ? WHERE schema_id = ? IF schema_version = ?"
        session.decide([Statement(cql, (version + 1, _SCHEMA_ID, version or None))])


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
