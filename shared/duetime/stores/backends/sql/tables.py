"""Declares the tables of timers, namespaces and keys; schema.py creates them.

Why the keys and indexes are as they are: docs/decisions/0016-sql-rows-keys-and-batches.md.

Every value is an integer, a text or bytes, so that no driver converts anything. Instants are whole
milliseconds since 1970 (``*_at``), ids and JSON are exact texts.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import IntEnum
from itertools import takewhile
from typing import Any

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, Index, MetaData, Table

from duetime.stores.backends.sql.column_types import BIG, BYTES_16, SMALL, exact_text_of, text_of


class RowType(IntEnum):
    """What a row of ``timers`` is. Pollers read the range of TIMER alone."""

    SHARD = 1
    TIMER = 2
    FINISHED = 3
    """A timer that has fired or failed: the same row, moved out of the pollers' range."""


NIL_UUID = bytes(16)
"""``timer_uuid`` of a shard's row, with ``timer_execute_at`` 0: parts of a primary key cannot be NULL."""

metadata = MetaData()

PARTIAL_INDEX_DIALECTS = ("sqlite", "postgresql", "mssql")
_FULL_INDEX_DIALECTS = ("mysql", "oracle")


def partial_index(
    name: str,
    *columns: sa.ColumnElement[Any],
    where: sa.ColumnElement[bool],
    full_columns: tuple[sa.ColumnElement[Any], ...] = (),
    is_unique: bool = False,
    full_on: tuple[str, ...] = _FULL_INDEX_DIALECTS,
) -> None:
    """Declare an index of the rows for which ``where`` holds.

    On the dialects ``full_on`` it has all rows, by ``full_columns`` (default: the same columns).
    """
    partial_on = tuple(dialect for dialect in PARTIAL_INDEX_DIALECTS if dialect not in full_on)
    only_on(partial_on, Index(name, *columns, unique=is_unique, info={"where": where}))
    if full_on:
        only_on(full_on, Index(name, *(full_columns or columns), unique=is_unique))


def only_on(dialects: tuple[str, ...], index: Index) -> None:
    """Create ``index`` on these dialects alone."""
    index.ddl_if(dialect=dialects)  # type: ignore[arg-type]  # documented, and not annotated


PRIMARY = "PRIMARY"


def index_for(table: Table, alike: Collection[str], order: tuple[str, ...]) -> str:
    """Where no index has a condition: the index, or ``PRIMARY``, that has the rows whose columns ``alike`` are alike
    together, in that order."""

    def fit(names: tuple[str, ...]) -> int:
        first = sum(1 for _ in takewhile(alike.__contains__, names))
        return first if names[first : first + len(order)] == order else -1

    full = [index for index in table.indexes if "where" not in index.info]
    found = {str(index.name): fit(tuple(index.columns.keys())) for index in full}
    found[PRIMARY] = fit(tuple(table.primary_key.columns.keys()))
    return max(found, key=lambda name: found[name])


def constant(value: int | str) -> sa.ColumnElement[Any]:
    """A constant of our own written into the statement, where the planner sees it."""
    return sa.literal_column(repr(int(value)) if isinstance(value, int) else f"'{value}'")


def one_of(column: str, *values: str) -> str:
    """Return a condition for a CHECK. For each row that SQLite checks it makes a table of a list with more than two
    values (``IN``)."""
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


def given(name: str) -> sa.BindParameter[Any]:
    """A value that comes with each execution."""
    return sa.bindparam(name)


def given_count(name: str) -> sa.BindParameter[int]:
    """The same for a number that SQLAlchemy must know to be one (LIMIT, sums)."""
    return sa.bindparam(name, type_=sa.Integer)


timers = Table(
    "timers",
    metadata,
    Column("shard_id", sa.Integer, primary_key=True, autoincrement=False),
    Column("row_type", SMALL, primary_key=True, autoincrement=False),
    Column("timer_execute_at", BIG, primary_key=True, autoincrement=False),
    Column("timer_uuid", BYTES_16, primary_key=True),
    Column("timer_namespace", text_of(63)),
    Column("timer_id", exact_text_of(255)),
    Column("timer_state", text_of(16)),
    Column("timer_due_at", BIG),
    Column("timer_expires_at", BIG),
    Column("timer_tags", sa.Text),
    Column("timer_correlation_id", exact_text_of(255)),
    Column("timer_revision", BIG),
    Column("timer_firing_id", text_of(64)),
    Column("timer_attempts", sa.Integer),
    Column("timer_created_at", BIG),
    Column("timer_updated_at", BIG),
    Column("timer_fired_at", BIG),
    Column("timer_failure", sa.Text),
    Column("timer_digest", text_of(64)),
    Column("timer_callback_timeout_seconds", sa.Integer),
    Column("timer_callback_url", text_of(2048)),
    Column("timer_retry_policy", sa.Text),
    Column("timer_headers", sa.Text),
    Column("timer_payload", sa.Text),
    Column("shard_version", BIG),
    Column("shard_owner_id", exact_text_of(255)),
    Column("shard_claimed_at", BIG),
    Column("shard_lease_expires_at", BIG),
    Column("shard_metadata", sa.Text),
    Column("timer_expire_after_ms", BIG),
    Column("timer_rearmed_at", BIG),
    Column("timer_attempt_log", sa.Text),
    CheckConstraint(
        "(row_type = 1 AND shard_version IS NOT NULL)"
        " OR (row_type = 2 AND timer_state IN ('Scheduled', 'Firing') AND timer_id IS NOT NULL)"
        f" OR (row_type = 3 AND {one_of('timer_state', 'Fired', 'Failed', 'Cancelled')} AND timer_id IS NOT NULL)",
        name="timers_row_type",
    ),
    CheckConstraint(
        "timer_id IS NULL OR (timer_namespace IS NOT NULL AND timer_due_at IS NOT NULL"
        " AND timer_revision IS NOT NULL AND timer_firing_id IS NOT NULL AND timer_attempts IS NOT NULL"
        " AND timer_created_at IS NOT NULL AND timer_updated_at IS NOT NULL AND timer_digest IS NOT NULL"
        " AND timer_callback_timeout_seconds IS NOT NULL AND timer_callback_url IS NOT NULL)",
        name="timers_complete",
    ),
)


Index("idx_timer_lookup", timers.c.timer_namespace, timers.c.shard_id, timers.c.timer_id, unique=True)
partial_index(
    "idx_timer_correlation",
    timers.c.timer_namespace,
    timers.c.timer_correlation_id,
    timers.c.timer_id,
    where=timers.c.timer_correlation_id.is_not(None),
)
partial_index("idx_timer_expiry", timers.c.timer_expires_at, where=timers.c.timer_expires_at.is_not(None))

namespaces = Table(
    "namespaces",
    metadata,
    Column("namespace_name", text_of(63), primary_key=True, nullable=False),
    Column("num_shards", sa.Integer, nullable=False),
    Column("first_shard", sa.Integer, nullable=False),
    Column("is_dedicated", SMALL, nullable=False),
    Column("created_at", BIG, nullable=False),
    Column("namespace_revision", BIG, nullable=False, server_default=sa.text("1")),
    Column("namespace_settings", sa.Text),
    Column("namespace_secrets", sa.Text),
    Column("tenant_id", text_of(55), nullable=False, server_default=sa.text("'default'")),
    Column("is_internal", SMALL, nullable=False, server_default=sa.text("0")),
)

# A list of a tenant's namespaces, and one of all, without internal ones: ranges of these.
Index("idx_namespace_tenant", namespaces.c.tenant_id, namespaces.c.is_internal, namespaces.c.namespace_name)
Index("idx_namespace_list", namespaces.c.is_internal, namespaces.c.namespace_name)

api_keys = Table(
    "api_keys",
    metadata,
    Column("tenant_id", text_of(55), primary_key=True, nullable=False),
    Column("key_id", text_of(64), primary_key=True, nullable=False),
    Column("key_role", text_of(16), nullable=False),
    Column("key_name", text_of(255), nullable=False),
    Column("key_secret_hash", sa.LargeBinary(32), nullable=False),
    Column("key_created_at", BIG, nullable=False),
    Column("key_expires_at", BIG),
    CheckConstraint(one_of("key_role", "reader", "writer", "admin"), name="api_keys_role"),
)

Index("idx_api_key_id", api_keys.c.key_id, unique=True)

idempotency_records = Table(
    "idempotency_records",
    metadata,
    Column("record_key", text_of(64), primary_key=True, nullable=False),
    Column("record_claim_id", text_of(64), nullable=False),
    Column("record_content", sa.Text, nullable=False),
    Column("record_expires_at", BIG, nullable=False),
)

Index("idx_idempotency_record_expiry", idempotency_records.c.record_expires_at)

counters = Table(
    "counters",
    metadata,
    Column("counter_name", text_of(63), primary_key=True, nullable=False),
    Column("counter_value", BIG, nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    Column("secret_name", exact_text_of(63), primary_key=True, nullable=False),
    Column("secret_value", sa.LargeBinary, nullable=False),
)

workers = Table(
    "workers",
    metadata,
    Column("worker_id", exact_text_of(255), primary_key=True, nullable=False),
    Column("worker_expires_at", BIG, nullable=False),
)

schema_migrations = Table(
    "schema_migrations",
    metadata,
    Column("migration_version", sa.Integer, primary_key=True, autoincrement=False),
    Column("migration_name", text_of(63), nullable=False),
    Column("applied_at", text_of(24), nullable=False),
)
