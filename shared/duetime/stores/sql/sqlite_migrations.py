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

_SERVICE_CALLS = """
CREATE TABLE service_calls (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    name TEXT NOT NULL,
    status TEXT NOT NULL,
    is_starred INTEGER NOT NULL,
    submitted_at TEXT NOT NULL,
    due_at TEXT NOT NULL,
    started_at TEXT,
    finished_at TEXT,
    registered_at TEXT NOT NULL,
    reached_at TEXT,
    wake_at TEXT,
    updated_at TEXT NOT NULL,
    expires_at TEXT,
    shard_id INTEGER NOT NULL,
    call_revision INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    event_count INTEGER NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    correlation_id TEXT NOT NULL,
    idempotency_key TEXT,
    call_digest TEXT NOT NULL,
    execution_id TEXT,
    last_event_id TEXT,
    rerun_of TEXT,
    tags TEXT,
    retry_policy TEXT,
    outcome_meta TEXT,
    request_spec TEXT NOT NULL,
    request_body TEXT,
    PRIMARY KEY (tenant_id, service_call_id),
    CONSTRAINT service_calls_status CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed')),
    CONSTRAINT service_calls_finished CHECK (
        (status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
        OR (status IN ('Succeeded', 'Failed') AND wake_at IS NULL AND finished_at IS NOT NULL)
    )
) STRICT
"""

_EXECUTION_LOG = """
CREATE TABLE http_execution_log (
    tenant_id TEXT NOT NULL,
    service_call_id TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    execution_number INTEGER NOT NULL,
    execution_status TEXT NOT NULL,
    started_at TEXT NOT NULL,
    deadline_at TEXT NOT NULL,
    finished_at TEXT,
    duration_ms INTEGER,
    response_status TEXT,
    failure_reason TEXT,
    error_message TEXT,
    request_method TEXT NOT NULL,
    request_url TEXT NOT NULL,
    request_headers TEXT NOT NULL,
    request_body_meta TEXT NOT NULL,
    response_headers TEXT,
    response_body_meta TEXT,
    request_body TEXT,
    response_body TEXT,
    PRIMARY KEY (tenant_id, service_call_id, execution_id),
    FOREIGN KEY (tenant_id, service_call_id)
        REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE,
    CONSTRAINT http_execution_log_method CHECK (request_method IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE'))
) STRICT
"""

_CALLS = (
    _SERVICE_CALLS,
    "CREATE INDEX idx_service_calls_status ON service_calls (tenant_id, status, service_call_id)",
    "CREATE INDEX idx_service_calls_name ON service_calls (tenant_id, name, service_call_id DESC)",
    "CREATE INDEX idx_service_calls_correlation ON service_calls (tenant_id, correlation_id, service_call_id)",
    """
    CREATE INDEX idx_service_calls_due ON service_calls (tenant_id, status, due_at, service_call_id)
    WHERE status = 'Scheduled'
    """,
    "CREATE INDEX idx_service_calls_starred ON service_calls (tenant_id, service_call_id) WHERE is_starred = 1",
    """
    CREATE UNIQUE INDEX idx_service_calls_idempotency ON service_calls (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL
    """,
    "CREATE INDEX idx_service_calls_expiry ON service_calls (expires_at) WHERE expires_at IS NOT NULL",
    """
    CREATE TABLE service_call_tags (
        tenant_id TEXT NOT NULL,
        service_call_id TEXT NOT NULL,
        tag TEXT NOT NULL,
        PRIMARY KEY (tenant_id, service_call_id, tag),
        FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE
    ) STRICT
    """,
    "CREATE INDEX idx_service_call_tags_tag ON service_call_tags (tenant_id, tag, service_call_id)",
    _EXECUTION_LOG,
    """
    CREATE UNIQUE INDEX idx_http_execution_log_number
    ON http_execution_log (tenant_id, service_call_id, execution_number)
    """,
)
"""Service calls and what goes with them."""

_OUTBOX = (
    """
    CREATE TABLE outbox (
        id INTEGER NOT NULL,
        tenant_id TEXT NOT NULL,
        aggregate_id TEXT NOT NULL,
        event_sequence INTEGER NOT NULL,
        event_id TEXT NOT NULL,
        event_type TEXT NOT NULL,
        occurred_at TEXT NOT NULL,
        created_at TEXT NOT NULL,
        published_at TEXT,
        correlation_id TEXT NOT NULL,
        causation_id TEXT,
        event_payload TEXT NOT NULL,
        PRIMARY KEY (id)
    ) STRICT
    """,
    "CREATE UNIQUE INDEX idx_outbox_sequence ON outbox (tenant_id, aggregate_id, event_sequence)",
    """
    CREATE INDEX idx_outbox_unpublished ON outbox (tenant_id, aggregate_id, event_sequence)
    WHERE published_at IS NULL
    """,
    "CREATE INDEX idx_outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL",
)

_WITH_CANCELLED = (
    ("'Running', 'Succeeded', 'Failed')", "'Running', 'Succeeded', 'Failed', 'Cancelled')"),
    ("('Succeeded', 'Failed') AND", "('Succeeded', 'Failed', 'Cancelled') AND"),
)


def _with_cancelled(definition: str) -> str:
    for old, new in _WITH_CANCELLED:
        definition = definition.replace(old, new)
    return definition


_CALL_TABLES = ("service_calls", "service_call_tags", "http_execution_log")
_CANCELLED = (
    # A check cannot be changed: the tables are made anew. Renamed first, so that no foreign key cascades.
    *(f"ALTER TABLE {name} RENAME TO old_{name}" for name in _CALL_TABLES),
    *(_with_cancelled(each) for each in _CALLS if each.strip().startswith("CREATE TABLE")),
    "INSERT INTO service_calls SELECT * FROM old_service_calls",
    "INSERT INTO service_call_tags SELECT * FROM old_service_call_tags",
    "INSERT INTO http_execution_log SELECT * FROM old_http_execution_log",
    *(f"DROP TABLE old_{name}" for name in reversed(_CALL_TABLES)),
    *(each for each in _CALLS if not each.strip().startswith("CREATE TABLE")),
)

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
    Migration(4, "service_calls", (*_CALLS, *_OUTBOX)),
    Migration(5, "cancelled_calls", _CANCELLED),
    Migration(
        6,
        "idempotency_records",
        (
            """
            CREATE TABLE idempotency_records (
                record_key TEXT NOT NULL,
                record_claim_id TEXT NOT NULL,
                record_content TEXT NOT NULL,
                record_expires_at INTEGER NOT NULL,
                PRIMARY KEY (record_key)
            ) STRICT
            """,
            "CREATE INDEX idx_idempotency_record_expiry ON idempotency_records (record_expires_at)",
        ),
    ),
)
