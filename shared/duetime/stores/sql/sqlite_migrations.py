"""The schema of SQLite databases, step by step."""

from __future__ import annotations

from duetime.stores.sql.migrations import Migration

TRACKING_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    migration_version INTEGER NOT NULL,
    migration_name TEXT NOT NULL,
    applied_at TEXT NOT NULL,
    PRIMARY KEY (migration_version)
) STRICT
"""

# What is read by filters comes before what may be long: SQLite then need not follow a long payload's pages.
_TIMERS = """
CREATE TABLE timers (
    shard_id INTEGER NOT NULL,
    row_type INTEGER NOT NULL,
    timer_execute_at INTEGER NOT NULL,
    timer_uuid BLOB NOT NULL,
    timer_namespace TEXT,
    timer_id TEXT,
    timer_state TEXT,
    timer_due_at INTEGER,
    timer_expires_at INTEGER,
    timer_tags TEXT,
    timer_correlation_id TEXT,
    timer_revision INTEGER,
    timer_firing_id TEXT,
    timer_attempts INTEGER,
    timer_created_at INTEGER,
    timer_updated_at INTEGER,
    timer_fired_at INTEGER,
    timer_failure TEXT,
    timer_digest TEXT,
    timer_callback_timeout_seconds INTEGER,
    timer_callback_url TEXT,
    timer_retry_policy TEXT,
    timer_headers TEXT,
    timer_payload TEXT,
    shard_version INTEGER,
    shard_owner_id TEXT,
    shard_claimed_at INTEGER,
    shard_lease_expires_at INTEGER,
    shard_metadata TEXT,
    PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid),
    CONSTRAINT timers_row_type CHECK (
        (row_type = 1 AND shard_version IS NOT NULL)
        OR (row_type = 2 AND timer_state IN ('scheduled', 'firing') AND timer_id IS NOT NULL)
        OR (row_type = 3 AND timer_state IN ('fired', 'failed') AND timer_id IS NOT NULL)
    ),
    CONSTRAINT timers_complete CHECK (
        timer_id IS NULL OR (timer_namespace IS NOT NULL AND timer_due_at IS NOT NULL
        AND timer_revision IS NOT NULL AND timer_firing_id IS NOT NULL AND timer_attempts IS NOT NULL
        AND timer_created_at IS NOT NULL AND timer_updated_at IS NOT NULL AND timer_digest IS NOT NULL
        AND timer_callback_timeout_seconds IS NOT NULL AND timer_callback_url IS NOT NULL)
    )
) STRICT
"""

MIGRATIONS = (
    Migration(
        1,
        "timers",
        (
            _TIMERS,
            "CREATE UNIQUE INDEX idx_timer_lookup ON timers (timer_namespace, shard_id, timer_id)",
            """
            CREATE INDEX idx_timer_correlation ON timers (timer_namespace, timer_correlation_id, timer_id)
            WHERE timer_correlation_id IS NOT NULL
            """,
            "CREATE INDEX idx_timer_expiry ON timers (timer_expires_at) WHERE timer_expires_at IS NOT NULL",
            """
            CREATE TABLE namespaces (
                namespace_name TEXT NOT NULL,
                num_shards INTEGER NOT NULL,
                first_shard INTEGER NOT NULL,
                is_dedicated INTEGER NOT NULL,
                created_at INTEGER NOT NULL,
                PRIMARY KEY (namespace_name)
            ) STRICT
            """,
            """
            CREATE TABLE counters (
                counter_name TEXT NOT NULL,
                counter_value INTEGER NOT NULL,
                PRIMARY KEY (counter_name)
            ) STRICT
            """,
            """
            CREATE TABLE secrets (
                secret_name TEXT NOT NULL,
                secret_value BLOB NOT NULL,
                PRIMARY KEY (secret_name)
            ) STRICT
            """,
            """
            CREATE TABLE workers (
                worker_id TEXT NOT NULL,
                worker_expires_at INTEGER NOT NULL,
                PRIMARY KEY (worker_id)
            ) STRICT
            """,
        ),
    ),
    Migration(
        2,
        "delivery",
        (
            "ALTER TABLE timers ADD COLUMN timer_expire_after_ms INTEGER",
            "ALTER TABLE timers ADD COLUMN timer_rearmed_at INTEGER",
            "ALTER TABLE timers ADD COLUMN timer_attempt_log TEXT",
            "ALTER TABLE namespaces ADD COLUMN namespace_revision INTEGER NOT NULL DEFAULT 1",
            "ALTER TABLE namespaces ADD COLUMN namespace_settings TEXT",
            "ALTER TABLE namespaces ADD COLUMN namespace_secrets TEXT",
        ),
    ),
    Migration(
        3,
        "tenancy",
        (
            "ALTER TABLE namespaces ADD COLUMN tenant_id TEXT NOT NULL DEFAULT 'default'",
            "ALTER TABLE namespaces ADD COLUMN is_internal INTEGER NOT NULL DEFAULT 0",
            "CREATE INDEX idx_namespace_tenant ON namespaces (tenant_id, is_internal, namespace_name)",
            "CREATE INDEX idx_namespace_list ON namespaces (is_internal, namespace_name)",
            """
            CREATE TABLE api_keys (
                tenant_id TEXT NOT NULL,
                key_id TEXT NOT NULL,
                key_role TEXT NOT NULL,
                key_name TEXT NOT NULL,
                key_secret_hash BLOB NOT NULL,
                key_created_at INTEGER NOT NULL,
                key_expires_at INTEGER,
                PRIMARY KEY (tenant_id, key_id),
                CONSTRAINT api_keys_role CHECK (key_role IN ('reader', 'writer', 'admin'))
            ) STRICT
            """,
            "CREATE UNIQUE INDEX idx_api_key_id ON api_keys (key_id)",
        ),
    ),
)
