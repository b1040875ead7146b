"""Forward-only schema migrations, tracked in ``schema_migrations`` and applied in one transaction.

A migration that has been released never changes: a later one does. Each dialect lists its own (the statements
differ in types and partitioning); their sum is the schema of tables.py, which a test proves.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import sqlalchemy as sa

from duetime.domain.errors import StoreNotReady
from duetime.stores.sql.db_now import DbNowStrategy
from duetime.stores.sql.tables import schema_migrations

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Migration:
    version: int
    """Counted from 1 without gaps; a schema that is made in one piece (whole_schema.py) has its last one only."""
    name: str
    statements: tuple[str, ...]


def migrate(
    connection: sa.Connection, migrations: Sequence[Migration], db_now: DbNowStrategy, tracking_table: str
) -> list[int]:
    """Apply what is missing inside the open, seeded write transaction of ``connection``; the versions applied.

    ``tracking_table`` creates ``schema_migrations`` if it is absent. Raises ``StoreNotReady``.
    """
    connection.exec_driver_sql(tracking_table)
    current = current_version(connection)
    check_version(current, migrations)
    missing = [migration for migration in migrations if migration.version > current]
    for migration in missing:
        for statement in migration.statements:
            connection.exec_driver_sql(statement)
        connection.execute(
            sa.insert(schema_migrations).values(
                migration_version=migration.version, migration_name=migration.name, applied_at=db_now.iso_text()
            )
        )
        logger.info(
            "schema migrated to version %d (%s)",
            migration.version,
            migration.name,
            extra={"action": "store.migrated", "version": migration.version},
        )
    return [migration.version for migration in missing]


def current_version(connection: sa.Connection) -> int:
    """The last applied migration; 0 for none."""
    return connection.execute(sa.select(sa.func.max(schema_migrations.c.migration_version))).scalar() or 0


def check_version(current: int, migrations: Sequence[Migration]) -> None:
    """Raises ``StoreNotReady`` for a schema from which ``migrations`` do not go on."""
    latest = migrations[-1].version
    if 0 < current < migrations[0].version:
        raise StoreNotReady(
            f"the database has schema version {current}, and no migration leads to {latest}: export what it holds"
            " with the program that made it, and import that into a new database"
        )
    if current > latest:
        raise StoreNotReady(f"the database has schema version {current}; this program knows {latest}")
