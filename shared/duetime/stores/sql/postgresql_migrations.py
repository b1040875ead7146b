"""The schema of PostgreSQL databases, step by step.

``timers`` is partitioned by shard, as the durable-timer seed has it. Ids are compared byte by byte (``"C"``), so that
lists have the same order on every store. JSON is kept as the exact text that was given, which ``jsonb`` would not be.
"""

from __future__ import annotations

from duetime.stores.sql.migrations import Migration

NUM_PARTITIONS = 32

TRACKING_TABLE = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    migration_version INTEGER NOT NULL,
    migration_name VARCHAR(63) NOT NULL,
    applied_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (migration_version)
)
"""

_TIMERS = """
CREATE TABLE timers (
    shard_id INTEGER NOT NULL,
    row_type SMALLINT NOT NULL,
    timer_execute_at BIGINT NOT NULL,
    timer_uuid BYTEA NOT NULL,
    timer_namespace VARCHAR(63) COLLATE "C",
    timer_id VARCHAR(255) COLLATE "C",
    timer_state VARCHAR(16),
    timer_due_at BIGINT,
    timer_expires_at BIGINT,
    timer_tags TEXT,
    timer_correlation_id VARCHAR(255) COLLATE "C",
    timer_revision BIGINT,
    timer_firing_id VARCHAR(64),
    timer_attempts INTEGER,
    timer_created_at BIGINT,
    timer_updated_at BIGINT,
    timer_fired_at BIGINT,
    timer_failure TEXT,
    timer_digest VARCHAR(64),
    timer_callback_timeout_seconds INTEGER,
    timer_callback_url VARCHAR(2048),
    timer_retry_policy TEXT,
    timer_headers TEXT,
    timer_payload TEXT,
    shard_version BIGINT,
    shard_owner_id VARCHAR(255),
    shard_claimed_at BIGINT,
    shard_lease_expires_at BIGINT,
    shard_metadata TEXT,
    timer_expire_after_ms BIGINT,
    timer_rearmed_at BIGINT,
    timer_attempt_log TEXT,
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
) PARTITION BY HASH (shard_id)
"""


def _partition(number: int) -> str:
    return (
        f"CREATE TABLE timers_p{number} PARTITION OF timers"
        f" FOR VALUES WITH (MODULUS {NUM_PARTITIONS}, REMAINDER {number})"
    )


_SERVICE_CALLS = (
    """
    CREATE TABLE service_calls (
        tenant_id VARCHAR(63) COLLATE "C" NOT NULL,
        service_call_id VARCHAR(63) COLLATE "C" NOT NULL,
        name VARCHAR(255) COLLATE "C" NOT NULL,
        status VARCHAR(16) NOT NULL,
        is_starred SMALLINT NOT NULL,
        submitted_at VARCHAR(24) COLLATE "C" NOT NULL,
        due_at VARCHAR(24) COLLATE "C" NOT NULL,
        started_at VARCHAR(24) COLLATE "C",
        finished_at VARCHAR(24) COLLATE "C",
        registered_at VARCHAR(24) COLLATE "C" NOT NULL,
        reached_at VARCHAR(24) COLLATE "C",
        wake_at VARCHAR(24) COLLATE "C",
        updated_at VARCHAR(24) COLLATE "C" NOT NULL,
        expires_at VARCHAR(24) COLLATE "C",
        shard_id INTEGER NOT NULL,
        call_revision BIGINT NOT NULL,
        attempts INTEGER NOT NULL,
        event_count INTEGER NOT NULL,
        timeout_seconds INTEGER NOT NULL,
        correlation_id VARCHAR(255) COLLATE "C" NOT NULL,
        idempotency_key VARCHAR(255) COLLATE "C",
        call_digest VARCHAR(64) NOT NULL,
        execution_id VARCHAR(63) COLLATE "C",
        last_event_id VARCHAR(63) COLLATE "C",
        rerun_of VARCHAR(63) COLLATE "C",
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
    )
    """,
    "CREATE INDEX idx_service_calls_status ON service_calls (tenant_id, status, service_call_id)",
    "CREATE INDEX idx_service_calls_name ON service_calls (tenant_id, name, service_call_id DESC)",
    "CREATE INDEX idx_service_calls_correlation ON service_calls (tenant_id, correlation_id, service_call_id)",
    """
    CREATE INDEX idx_service_calls_due ON service_calls (tenant_id, due_at, service_call_id)
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
        tenant_id VARCHAR(63) COLLATE "C" NOT NULL,
        service_call_id VARCHAR(63) COLLATE "C" NOT NULL,
        tag VARCHAR(255) COLLATE "C" NOT NULL,
        PRIMARY KEY (tenant_id, service_call_id, tag),
        FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX idx_service_call_tags_tag ON service_call_tags (tenant_id, tag, service_call_id)",
    """
    CREATE TABLE http_execution_log (
        tenant_id VARCHAR(63) COLLATE "C" NOT NULL,
        service_call_id VARCHAR(63) COLLATE "C" NOT NULL,
        execution_id VARCHAR(63) COLLATE "C" NOT NULL,
        execution_number INTEGER NOT NULL,
        execution_status VARCHAR(16) NOT NULL,
        started_at VARCHAR(24) COLLATE "C" NOT NULL,
        deadline_at VARCHAR(24) COLLATE "C" NOT NULL,
        finished_at VARCHAR(24) COLLATE "C",
        duration_ms BIGINT,
        response_status VARCHAR(3),
        failure_reason VARCHAR(32),
        error_message TEXT,
        request_method VARCHAR(16) NOT NULL,
        request_url VARCHAR(2048) NOT NULL,
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
    )
    """,
    """
    CREATE UNIQUE INDEX idx_http_execution_log_number
    ON http_execution_log (tenant_id, service_call_id, execution_number)
    """,
    """
    CREATE TABLE outbox (
        id BIGINT GENERATED BY DEFAULT AS IDENTITY,
        tenant_id VARCHAR(63) COLLATE "C" NOT NULL,
        aggregate_id VARCHAR(63) COLLATE "C" NOT NULL,
        event_sequence INTEGER NOT NULL,
        event_id VARCHAR(63) COLLATE "C" NOT NULL,
        event_type VARCHAR(63) NOT NULL,
        occurred_at VARCHAR(24) COLLATE "C" NOT NULL,
        created_at VARCHAR(24) COLLATE "C" NOT NULL,
        published_at VARCHAR(24) COLLATE "C",
        correlation_id VARCHAR(255) COLLATE "C" NOT NULL,
        causation_id VARCHAR(63) COLLATE "C",
        event_payload TEXT NOT NULL,
        PRIMARY KEY (id)
    )
    """,
    "CREATE UNIQUE INDEX idx_outbox_sequence ON outbox (tenant_id, aggregate_id, event_sequence)",
    """
    CREATE INDEX idx_outbox_unpublished ON outbox (tenant_id, aggregate_id, event_sequence)
    WHERE published_at IS NULL
    """,
    "CREATE INDEX idx_outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL",
)

_CANCELLED = """
ALTER TABLE service_calls
    DROP CONSTRAINT service_calls_status,
    DROP CONSTRAINT service_calls_finished,
    ADD CONSTRAINT service_calls_status CHECK (
        status IN ('Scheduled', 'Running', 'Succeeded', 'Failed', 'Cancelled')
    ),
    ADD CONSTRAINT service_calls_finished CHECK (
        (status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
        OR (status IN ('Succeeded', 'Failed', 'Cancelled') AND wake_at IS NULL AND finished_at IS NOT NULL)
    )
"""

MIGRATIONS = (
    Migration(
        1,
        "timers",
        (
            _TIMERS,
            *(_partition(number) for number in range(NUM_PARTITIONS)),
            "CREATE UNIQUE INDEX idx_timer_lookup ON timers (timer_namespace, shard_id, timer_id)",
            """
            CREATE INDEX idx_timer_correlation ON timers (timer_namespace, timer_correlation_id, timer_id)
            WHERE timer_correlation_id IS NOT NULL
            """,
            "CREATE INDEX idx_timer_expiry ON timers (timer_expires_at) WHERE timer_expires_at IS NOT NULL",
            """
            CREATE TABLE namespaces (
                namespace_name VARCHAR(63) COLLATE "C" NOT NULL,
                num_shards INTEGER NOT NULL,
                first_shard INTEGER NOT NULL,
                is_dedicated SMALLINT NOT NULL,
                created_at BIGINT NOT NULL,
                namespace_revision BIGINT NOT NULL DEFAULT 1,
                namespace_settings TEXT,
                namespace_secrets TEXT,
                tenant_id VARCHAR(55) COLLATE "C" NOT NULL DEFAULT 'default',
                is_internal SMALLINT NOT NULL DEFAULT 0,
                PRIMARY KEY (namespace_name)
            )
            """,
            "CREATE INDEX idx_namespace_tenant ON namespaces (tenant_id, is_internal, namespace_name)",
            "CREATE INDEX idx_namespace_list ON namespaces (is_internal, namespace_name)",
            """
            CREATE TABLE api_keys (
                tenant_id VARCHAR(55) COLLATE "C" NOT NULL,
                key_id VARCHAR(64) COLLATE "C" NOT NULL,
                key_role VARCHAR(16) NOT NULL,
                key_name VARCHAR(255) NOT NULL,
                key_secret_hash BYTEA NOT NULL,
                key_created_at BIGINT NOT NULL,
                key_expires_at BIGINT,
                PRIMARY KEY (tenant_id, key_id),
                CONSTRAINT api_keys_role CHECK (key_role IN ('reader', 'writer', 'admin'))
            )
            """,
            "CREATE UNIQUE INDEX idx_api_key_id ON api_keys (key_id)",
            """
            CREATE TABLE counters (
                counter_name VARCHAR(63) NOT NULL,
                counter_value BIGINT NOT NULL,
                PRIMARY KEY (counter_name)
            )
            """,
            """
            CREATE TABLE secrets (
                secret_name VARCHAR(63) NOT NULL,
                secret_value BYTEA NOT NULL,
                PRIMARY KEY (secret_name)
            )
            """,
            """
            CREATE TABLE workers (
                worker_id VARCHAR(255) COLLATE "C" NOT NULL,
                worker_expires_at BIGINT NOT NULL,
                PRIMARY KEY (worker_id)
            )
            """,
        ),
    ),
    Migration(2, "service_calls", _SERVICE_CALLS),
    Migration(3, "cancelled_calls", (_CANCELLED,)),
    Migration(
        4,
        "idempotency_records",
        (
            """
            CREATE TABLE idempotency_records (
                record_key VARCHAR(64) COLLATE "C" NOT NULL,
                record_claim_id VARCHAR(64) NOT NULL,
                record_content TEXT NOT NULL,
                record_expires_at BIGINT NOT NULL,
                PRIMARY KEY (record_key)
            )
            """,
            "CREATE INDEX idx_idempotency_record_expiry ON idempotency_records (record_expires_at)",
        ),
    ),
)
