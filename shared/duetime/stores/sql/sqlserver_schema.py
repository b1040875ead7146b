"""The schema of SQL Server databases. The reasons are in decision 0017.

JSON is kept as the exact text that was given, and unchecked: ISJSON knows no JSON but objects and arrays.
"""

from __future__ import annotations

from duetime.stores.sql import whole_schema
from duetime.stores.sql.migrations import Migration
from duetime.stores.sql.sqlserver_sql import SqlServerSql

_DIALECT = SqlServerSql()  # type: ignore[no-untyped-call]
_INDEXES = {
    # Of all statuses and stars: statements whose constants have become parameters enter them as well.
    "idx_service_calls_due": "CREATE INDEX idx_service_calls_due ON service_calls"
    " (tenant_id, status, due_at, service_call_id)",
    "idx_service_calls_starred": "CREATE INDEX idx_service_calls_starred ON service_calls"
    " (tenant_id, is_starred, service_call_id)",
}

TRACKING_TABLE = f"IF OBJECT_ID(N'schema_migrations') IS NULL {whole_schema.tracking_table(_DIALECT)}"
MIGRATIONS = (
    Migration(
        whole_schema.VERSION,
        "whole_schema",
        (
            *whole_schema.definitions(_DIALECT, _INDEXES),
            # A batch may lock thousands of rows; locks on the whole table instead would stop everybody else.
            *(
                f"ALTER TABLE {table} SET (LOCK_ESCALATION = DISABLE)"
                for table in ("timers", "service_calls", "outbox", "idempotency_records")
            ),
        ),
    ),
)
