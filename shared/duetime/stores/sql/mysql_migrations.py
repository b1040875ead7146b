"""The schema of MySQL, MariaDB and TiDB databases, step by step.

``timers`` is partitioned by shard and clustered by its primary key, as the durable-timer seed has it. Definitions are
committed one by one there, so each statement can be run again, and indexes are made with their table. JSON is kept as
the exact text that was given, which the JSON type would not be.

Ids are compared byte by byte, trailing blanks included. The collation for that has a name of its own on each server:
comments that only MySQL and TiDB, or only MariaDB, execute choose it.
"""

from __future__ import annotations

from duetime.stores.sql.migrations import Migration

NUM_PARTITIONS = 32
_EXACT = "CHARACTER SET utf8mb4 COLLATE /*!80000 utf8mb4_0900_bin *//*M! utf8mb4_nopad_bin */"
_CLUSTERED = "/*T![clustered_index] CLUSTERED */"
"""For TiDB, whose default is a setting of the server. ``AUTO_ID_CACHE=1`` lets all its servers count in one order."""

TRACKING_TABLE = f"""
CREATE TABLE IF NOT EXISTS schema_migrations (
    migration_version INTEGER NOT NULL,
    migration_name VARCHAR(63) NOT NULL,
    applied_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (migration_version)
) ENGINE=InnoDB DEFAULT {_EXACT}
"""

_TIMERS = f"""
CREATE TABLE IF NOT EXISTS timers (
    shard_id INTEGER NOT NULL,
    row_type SMALLINT NOT NULL,
    timer_execute_at BIGINT NOT NULL,
    timer_uuid BINARY(16) NOT NULL,
    timer_namespace VARCHAR(63),
    timer_id VARCHAR(255),
    timer_state VARCHAR(16),
    timer_due_at BIGINT,
    timer_expires_at BIGINT,
    timer_tags MEDIUMTEXT,
    timer_correlation_id VARCHAR(255),
    timer_revision BIGINT,
    timer_firing_id VARCHAR(64),
    timer_attempts INTEGER,
    timer_created_at BIGINT,
    timer_updated_at BIGINT,
    timer_fired_at BIGINT,
    timer_failure MEDIUMTEXT,
    timer_digest VARCHAR(64),
    timer_callback_timeout_seconds INTEGER,
    timer_callback_url VARCHAR(2048),
    timer_retry_policy MEDIUMTEXT,
    timer_headers MEDIUMTEXT,
    timer_payload MEDIUMTEXT,
    shard_version BIGINT,
    shard_owner_id VARCHAR(255),
    shard_claimed_at BIGINT,
    shard_lease_expires_at BIGINT,
    shard_metadata MEDIUMTEXT,
    timer_expire_after_ms BIGINT,
    timer_rearmed_at BIGINT,
    timer_attempt_log MEDIUMTEXT,
    PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid) {_CLUSTERED},
    UNIQUE KEY idx_timer_lookup (timer_namespace, shard_id, timer_id),
    KEY idx_timer_correlation (timer_namespace, timer_correlation_id, timer_id),
    KEY idx_timer_expiry (timer_expires_at),
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
) ENGINE=InnoDB DEFAULT {_EXACT}
PARTITION BY HASH (shard_id) PARTITIONS {NUM_PARTITIONS}
"""

_SERVICE_CALLS = (
    f"""
    CREATE TABLE IF NOT EXISTS service_calls (
        tenant_id VARCHAR(63) NOT NULL,
        service_call_id VARCHAR(63) NOT NULL,
        name VARCHAR(255) NOT NULL,
        status VARCHAR(16) NOT NULL,
        is_starred SMALLINT NOT NULL,
        submitted_at VARCHAR(24) NOT NULL,
        due_at VARCHAR(24) NOT NULL,
        started_at VARCHAR(24),
        finished_at VARCHAR(24),
        registered_at VARCHAR(24) NOT NULL,
        reached_at VARCHAR(24),
        wake_at VARCHAR(24),
        updated_at VARCHAR(24) NOT NULL,
        expires_at VARCHAR(24),
        shard_id INTEGER NOT NULL,
        call_revision BIGINT NOT NULL,
        attempts INTEGER NOT NULL,
        event_count INTEGER NOT NULL,
        timeout_seconds INTEGER NOT NULL,
        correlation_id VARCHAR(255) NOT NULL,
        idempotency_key VARCHAR(255),
        call_digest VARCHAR(64) NOT NULL,
        execution_id VARCHAR(63),
        last_event_id VARCHAR(63),
        rerun_of VARCHAR(63),
        tags MEDIUMTEXT,
        retry_policy MEDIUMTEXT,
        outcome_meta MEDIUMTEXT,
        request_spec MEDIUMTEXT NOT NULL,
        request_body MEDIUMTEXT,
        PRIMARY KEY (tenant_id, service_call_id) {_CLUSTERED},
        CONSTRAINT service_calls_status CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed')),
        CONSTRAINT service_calls_finished CHECK (
            (status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
            OR (status IN ('Succeeded', 'Failed') AND wake_at IS NULL AND finished_at IS NOT NULL)
        ),
        KEY idx_service_calls_status (tenant_id, status, service_call_id),
        KEY idx_service_calls_name (tenant_id, name, service_call_id DESC),
        KEY idx_service_calls_correlation (tenant_id, correlation_id, service_call_id),
        KEY idx_service_calls_due (tenant_id, status, due_at, service_call_id),
        KEY idx_service_calls_starred (tenant_id, is_starred, service_call_id),
        UNIQUE KEY idx_service_calls_idempotency (tenant_id, idempotency_key),
        KEY idx_service_calls_expiry (expires_at)
    ) ENGINE=InnoDB DEFAULT {_EXACT}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS service_call_tags (
        tenant_id VARCHAR(63) NOT NULL,
        service_call_id VARCHAR(63) NOT NULL,
        tag VARCHAR(255) NOT NULL,
        PRIMARY KEY (tenant_id, service_call_id, tag) {_CLUSTERED},
        FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE,
        KEY idx_service_call_tags_tag (tenant_id, tag, service_call_id)
    ) ENGINE=InnoDB DEFAULT {_EXACT}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS http_execution_log (
        tenant_id VARCHAR(63) NOT NULL,
        service_call_id VARCHAR(63) NOT NULL,
        execution_id VARCHAR(63) NOT NULL,
        execution_number INTEGER NOT NULL,
        execution_status VARCHAR(16) NOT NULL,
        started_at VARCHAR(24) NOT NULL,
        deadline_at VARCHAR(24) NOT NULL,
        finished_at VARCHAR(24),
        duration_ms BIGINT,
        response_status VARCHAR(3),
        failure_reason VARCHAR(32),
        error_message MEDIUMTEXT,
        request_method VARCHAR(16) NOT NULL,
        request_url VARCHAR(2048) NOT NULL,
        request_headers MEDIUMTEXT NOT NULL,
        request_body_meta MEDIUMTEXT NOT NULL,
        response_headers MEDIUMTEXT,
        response_body_meta MEDIUMTEXT,
        request_body MEDIUMTEXT,
        response_body MEDIUMTEXT,
        PRIMARY KEY (tenant_id, service_call_id, execution_id) {_CLUSTERED},
        FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE,
        CONSTRAINT http_execution_log_method CHECK (request_method IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE')),
        UNIQUE KEY idx_http_execution_log_number (tenant_id, service_call_id, execution_number)
    ) ENGINE=InnoDB DEFAULT {_EXACT}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS outbox (
        id BIGINT NOT NULL AUTO_INCREMENT,
        tenant_id VARCHAR(63) NOT NULL,
        aggregate_id VARCHAR(63) NOT NULL,
        event_sequence INTEGER NOT NULL,
        event_id VARCHAR(63) NOT NULL,
        event_type VARCHAR(63) NOT NULL,
        occurred_at VARCHAR(24) NOT NULL,
        created_at VARCHAR(24) NOT NULL,
        published_at VARCHAR(24),
        correlation_id VARCHAR(255) NOT NULL,
        causation_id VARCHAR(63),
        event_payload MEDIUMTEXT NOT NULL,
        PRIMARY KEY (id) {_CLUSTERED},
        UNIQUE KEY idx_outbox_sequence (tenant_id, aggregate_id, event_sequence),
        KEY idx_outbox_unpublished (published_at, tenant_id, aggregate_id, event_sequence)
    ) ENGINE=InnoDB /*T![auto_id_cache] AUTO_ID_CACHE=1 */ DEFAULT {_EXACT}
    """,
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
"""One statement, which commits by itself: it can be run again."""

MIGRATIONS = (
    Migration(
        1,
        "timers",
        (
            _TIMERS,
            f"""
            CREATE TABLE IF NOT EXISTS namespaces (
                namespace_name VARCHAR(63) NOT NULL,
                num_shards INTEGER NOT NULL,
                first_shard INTEGER NOT NULL,
                is_dedicated SMALLINT NOT NULL,
                created_at BIGINT NOT NULL,
                namespace_revision BIGINT NOT NULL DEFAULT 1,
                namespace_settings MEDIUMTEXT,
                namespace_secrets MEDIUMTEXT,
                tenant_id VARCHAR(55) NOT NULL DEFAULT 'default',
                is_internal SMALLINT NOT NULL DEFAULT 0,
                PRIMARY KEY (namespace_name),
                KEY idx_namespace_tenant (tenant_id, is_internal, namespace_name),
                KEY idx_namespace_list (is_internal, namespace_name)
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
            f"""
            CREATE TABLE IF NOT EXISTS api_keys (
                tenant_id VARCHAR(55) NOT NULL,
                key_id VARCHAR(64) NOT NULL,
                key_role VARCHAR(16) NOT NULL,
                key_name VARCHAR(255) NOT NULL,
                key_secret_hash VARBINARY(32) NOT NULL,
                key_created_at BIGINT NOT NULL,
                key_expires_at BIGINT,
                PRIMARY KEY (tenant_id, key_id),
                UNIQUE KEY idx_api_key_id (key_id),
                CONSTRAINT api_keys_role CHECK (key_role IN ('reader', 'writer', 'admin'))
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
            f"""
            CREATE TABLE IF NOT EXISTS counters (
                counter_name VARCHAR(63) NOT NULL,
                counter_value BIGINT NOT NULL,
                PRIMARY KEY (counter_name)
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
            f"""
            CREATE TABLE IF NOT EXISTS secrets (
                secret_name VARCHAR(63) NOT NULL,
                secret_value VARBINARY(1024) NOT NULL,
                PRIMARY KEY (secret_name)
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
            f"""
            CREATE TABLE IF NOT EXISTS workers (
                worker_id VARCHAR(255) NOT NULL,
                worker_expires_at BIGINT NOT NULL,
                PRIMARY KEY (worker_id)
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
        ),
    ),
    Migration(2, "service_calls", _SERVICE_CALLS),
    Migration(3, "cancelled_calls", (_CANCELLED,)),
    Migration(
        4,
        "idempotency_records",
        (
            f"""
            CREATE TABLE IF NOT EXISTS idempotency_records (
                record_key VARCHAR(64) NOT NULL,
                record_claim_id VARCHAR(64) NOT NULL,
                record_content MEDIUMTEXT NOT NULL,
                record_expires_at BIGINT NOT NULL,
                PRIMARY KEY (record_key),
                KEY idx_idempotency_record_expiry (record_expires_at)
            ) ENGINE=InnoDB DEFAULT {_EXACT}
            """,
        ),
    ),
)
