"""The tables of timers, namespaces and keys, made of what ``entities`` declares; schema.py creates them.

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
from sqlalchemy.schema import SchemaItem

from duetime.stores.backends.sql.column_types import BIG, BYTES_16, SMALL, exact_text_of, text_of
from duetime.stores.entities import (
    API_KEY,
    COUNTER,
    IDEMPOTENCY_RECORD,
    NAMESPACE,
    OCCURRENCE,
    SECRET,
    SHARD,
    TIMER,
    WORKER,
)
from duetime.stores.entity import LONG, Entity, Field, Kind


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
    """Return a constant of our own written into the statement, where the planner sees it."""
    return sa.literal_column(repr(int(value)) if isinstance(value, int) else f"'{value}'")


def one_of(column: str, *values: str) -> str:
    """Return a condition for a CHECK. For each row that SQLite checks it makes a table of a list with more than two
    values (``IN``)."""
    return "(" + " OR ".join(f"{column} = '{value}'" for value in values) + ")"


def given(name: str, type_: sa.types.TypeEngine[Any] | None = None) -> sa.BindParameter[Any]:
    """Return a value that comes with each execution. ``type_``: where nothing that it is compared with tells its
    type."""
    return sa.bindparam(name, type_=type_)


def given_count(name: str) -> sa.BindParameter[int]:
    """Return the same for a number that SQLAlchemy must know to be one (LIMIT, sums)."""
    return sa.bindparam(name, type_=sa.Integer)


def column_of(entity: Entity, name: str, **options: Any) -> Column[Any]:
    """Return the column of a field."""
    field = entity.by_name[name]
    return Column(name, _type_of(entity, field), **{"nullable": field.is_optional, **options})


def _type_of(entity: Entity, field: Field) -> sa.types.TypeEngine[Any]:
    if field.kind is Kind.TEXT:
        return exact_text_of(field.length) if field.is_free else text_of(field.length)
    if field.kind is Kind.INSTANT:
        return text_of(24) if entity.has_iso_times else BIG
    if field.kind is Kind.WHOLE:
        return BIG if field.length == LONG else sa.Integer()
    if field.kind is Kind.BYTES:
        return BYTES_16 if field.length == len(NIL_UUID) else sa.LargeBinary(field.length)
    return SMALL if field.kind is Kind.FLAG else sa.Text()


def table_of(entity: Entity, *others: SchemaItem) -> Table:
    """Declare the table that an entity has for itself."""
    columns = [column_of(entity, name, primary_key=name in entity.key) for name in entity.names]
    return Table(entity.table, metadata, *columns, *others)


_TIMER_KEY = ("shard_id", "timer_execute_at", "timer_uuid")
_ROW_KEY = [column_of(TIMER, name, primary_key=True, nullable=False, autoincrement=False) for name in _TIMER_KEY]
_ROW_KEY.insert(1, Column("row_type", SMALL, primary_key=True, autoincrement=False))
_CHECKED = {*_TIMER_KEY, "timer_id", "timer_state"}
_IN_EVERY_TIMER = [each.name for each in TIMER.fields if not each.is_optional and each.name not in _CHECKED]

timers = Table(
    "timers",
    metadata,
    *_ROW_KEY,
    *(
        column_of(entity, name, nullable=True)
        for entity in (TIMER, SHARD)
        for name in entity.names
        if name not in _TIMER_KEY
    ),
    CheckConstraint(
        "(row_type = 1 AND shard_version IS NOT NULL)"
        f" OR (row_type = 2 AND {one_of('timer_state', 'Scheduled', 'Firing', 'Waiting')} AND timer_id IS NOT NULL)"
        f" OR (row_type = 3 AND {one_of('timer_state', 'Fired', 'Failed', 'Cancelled')} AND timer_id IS NOT NULL)",
        name="timers_row_type",
    ),
    CheckConstraint(
        f"timer_id IS NULL OR ({' AND '.join(f'{name} IS NOT NULL' for name in _IN_EVERY_TIMER)})",
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

namespaces = table_of(NAMESPACE)
# A list of a tenant's namespaces, and one of all, without internal ones: ranges of these.
Index("idx_namespace_tenant", namespaces.c.tenant_id, namespaces.c.is_internal, namespaces.c.namespace_name)
Index("idx_namespace_list", namespaces.c.is_internal, namespaces.c.namespace_name)

api_keys = table_of(API_KEY, CheckConstraint(one_of("key_role", "reader", "writer", "admin"), name="api_keys_role"))
Index("idx_api_key_tenant", api_keys.c.tenant_id, api_keys.c.key_id)

idempotency_records = table_of(IDEMPOTENCY_RECORD)
Index("idx_idempotency_record_expiry", idempotency_records.c.record_expires_at)

counters, secrets, workers = table_of(COUNTER), table_of(SECRET), table_of(WORKER)
occurrences = table_of(OCCURRENCE)

schema_migrations = Table(
    "schema_migrations",
    metadata,
    Column("migration_version", sa.Integer, primary_key=True, autoincrement=False),
    Column("migration_name", text_of(63), nullable=False),
    Column("applied_at", text_of(24), nullable=False),
)
