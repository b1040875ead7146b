"""The schema of Oracle databases. The reasons are in decision 0017.

Definitions commit by themselves: each can be run again, and passes over what is there.
"""

from __future__ import annotations

from duetime.stores.sql import whole_schema
from duetime.stores.sql.migrations import Migration
from duetime.stores.sql.oracle_sql import OracleSql

_DIALECT = OracleSql()  # type: ignore[no-untyped-call]
_INDEXES = {
    # An index has no condition, but leaves out rows whose columns are all NULL; a unique one takes (tenant, NULL) as
    # taken by another such row.
    "idx_service_calls_idempotency": "CREATE UNIQUE INDEX idx_service_calls_idempotency ON service_calls"
    " (idempotency_key, CASE WHEN idempotency_key IS NOT NULL THEN tenant_id END)",
    "idx_service_calls_starred": "CREATE INDEX idx_service_calls_starred ON service_calls"
    " (tenant_id, is_starred, service_call_id)",
    # What is unpublished is a range of it as any other value's is; so is what was published.
    "idx_outbox_unpublished": "CREATE INDEX idx_outbox_unpublished ON outbox"
    " (published_at, tenant_id, aggregate_id, event_sequence)",
    "idx_outbox_published": None,
}


def _once(definition: str) -> str:
    return (
        f"BEGIN EXECUTE IMMEDIATE q'[{definition}]';"
        " EXCEPTION WHEN OTHERS THEN IF SQLCODE = -955 THEN NULL; ELSE RAISE; END IF; END;"
    )


TURN_TABLE = _once("CREATE TABLE schema_turn (turn_id NUMBER(1))")
"""Whoever migrates locks it."""
TRACKING_TABLE = _once(whole_schema.tracking_table(_DIALECT))
MIGRATIONS = (
    Migration(whole_schema.VERSION, "whole_schema", tuple(map(_once, whole_schema.definitions(_DIALECT, _INDEXES)))),
)
