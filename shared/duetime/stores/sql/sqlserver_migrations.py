"""The schema of SQL Server databases, step by step. The reasons are in decision 0132.

``timers`` is clustered by its primary key, which begins with the shard: the rows of a shard stand together. It is
not partitioned besides. JSON is kept as the exact text that was given, and unchecked: ISJSON knows no JSON but
objects and arrays, and a text that cannot be read is dealt with where it is read.

Texts that statements compare have a binary collation, which ignores blanks at the end all the same: columns of
``exact_text_of`` hold a character more, and two units of UTF-16 for each character that was allowed.
"""

from __future__ import annotations

from duetime.stores.sql.migrations import Migration

_BINARY = "COLLATE Latin1_General_100_BIN2"
_EXACT = f"NVARCHAR(511) {_BINARY}"
_EXACT_SHORT = f"NVARCHAR(257) {_BINARY}"
"""Of ids that we make, printable ASCII and tags: keys of clustered indexes have 900 bytes."""
_TEXT = "NVARCHAR(MAX)"
_TENANT = _ID = f"NVARCHAR(63) {_BINARY}"
_INSTANT = f"NVARCHAR(24) {_BINARY}"

TRACKING_TABLE = f"""
IF OBJECT_ID(N'schema_migrations') IS NULL
CREATE TABLE schema_migrations (
    migration_version INT NOT NULL,
    migration_name NVARCHAR(63) {_BINARY} NOT NULL,
    applied_at {_INSTANT} NOT NULL,
    CONSTRAINT schema_migrations_key PRIMARY KEY CLUSTERED (migration_version)
)
"""

_TIMERS = (
    f"""
    CREATE TABLE timers (
        shard_id INT NOT NULL,
        row_type INT NOT NULL,
        timer_execute_at BIGINT NOT NULL,
        timer_uuid BINARY(16) NOT NULL,
        timer_namespace NVARCHAR(63) {_BINARY},
        timer_id {_EXACT},
        timer_state NVARCHAR(16) {_BINARY},
        timer_due_at BIGINT,
        timer_expires_at BIGINT,
        timer_tags {_TEXT},
        timer_correlation_id {_EXACT},
        timer_revision BIGINT,
        timer_firing_id NVARCHAR(64) {_BINARY},
        timer_attempts INT,
        timer_created_at BIGINT,
        timer_updated_at BIGINT,
        timer_fired_at BIGINT,
        timer_failure {_TEXT},
        timer_digest NVARCHAR(64) {_BINARY},
        timer_callback_timeout_seconds INT,
        timer_callback_url NVARCHAR(2048) {_BINARY},
        timer_retry_policy {_TEXT},
        timer_headers {_TEXT},
        timer_payload {_TEXT},
        shard_version BIGINT,
        shard_owner_id {_EXACT_SHORT},
        shard_claimed_at BIGINT,
        shard_lease_expires_at BIGINT,
        shard_metadata {_TEXT},
        timer_expire_after_ms BIGINT,
        timer_rearmed_at BIGINT,
        timer_attempt_log {_TEXT},
        CONSTRAINT timers_key PRIMARY KEY CLUSTERED (shard_id, row_type, timer_execute_at, timer_uuid),
        CONSTRAINT timers_row_type CHECK (
            (row_type = 1 AND shard_version IS NOT NULL)
            OR (row_type = 2 AND timer_state IN (N'scheduled', N'firing') AND timer_id IS NOT NULL)
            OR (row_type = 3 AND timer_state IN (N'fired', N'failed') AND timer_id IS NOT NULL)
        ),
        CONSTRAINT timers_complete CHECK (
            timer_id IS NULL OR (timer_namespace IS NOT NULL AND timer_due_at IS NOT NULL
            AND timer_revision IS NOT NULL AND timer_firing_id IS NOT NULL AND timer_attempts IS NOT NULL
            AND timer_created_at IS NOT NULL AND timer_updated_at IS NOT NULL AND timer_digest IS NOT NULL
            AND timer_callback_timeout_seconds IS NOT NULL AND timer_callback_url IS NOT NULL)
        )
    )
    """,
    # A batch may lock thousands of rows; locks on the whole table instead would stop everybody else.
    "ALTER TABLE timers SET (LOCK_ESCALATION = DISABLE)",
    "CREATE UNIQUE INDEX idx_timer_lookup ON timers (timer_namespace, shard_id, timer_id)",
    """
    CREATE INDEX idx_timer_correlation ON timers (timer_namespace, timer_correlation_id, timer_id)
    WHERE timer_correlation_id IS NOT NULL
    """,
    "CREATE INDEX idx_timer_expiry ON timers (timer_expires_at) WHERE timer_expires_at IS NOT NULL",
)

_CATALOGUE = (
    f"""
    CREATE TABLE namespaces (
        namespace_name NVARCHAR(63) {_BINARY} NOT NULL,
        num_shards INT NOT NULL,
        first_shard INT NOT NULL,
        is_dedicated INT NOT NULL,
        created_at BIGINT NOT NULL,
        namespace_revision BIGINT NOT NULL CONSTRAINT namespaces_revision DEFAULT 1,
        namespace_settings {_TEXT},
        namespace_secrets {_TEXT},
        tenant_id NVARCHAR(55) {_BINARY} NOT NULL CONSTRAINT namespaces_tenant DEFAULT N'default',
        is_internal INT NOT NULL CONSTRAINT namespaces_internal DEFAULT 0,
        CONSTRAINT namespaces_key PRIMARY KEY CLUSTERED (namespace_name)
    )
    """,
    "CREATE INDEX idx_namespace_tenant ON namespaces (tenant_id, is_internal, namespace_name)",
    "CREATE INDEX idx_namespace_list ON namespaces (is_internal, namespace_name)",
    f"""
    CREATE TABLE api_keys (
        tenant_id NVARCHAR(55) {_BINARY} NOT NULL,
        key_id NVARCHAR(64) {_BINARY} NOT NULL,
        key_role NVARCHAR(16) {_BINARY} NOT NULL,
        key_name NVARCHAR(510) {_BINARY} NOT NULL,
        key_secret_hash VARBINARY(32) NOT NULL,
        key_created_at BIGINT NOT NULL,
        key_expires_at BIGINT,
        CONSTRAINT api_keys_key PRIMARY KEY CLUSTERED (tenant_id, key_id),
        CONSTRAINT api_keys_role CHECK (key_role IN (N'reader', N'writer', N'admin'))
    )
    """,
    "CREATE UNIQUE INDEX idx_api_key_id ON api_keys (key_id)",
    f"""
    CREATE TABLE counters (
        counter_name NVARCHAR(63) {_BINARY} NOT NULL,
        counter_value BIGINT NOT NULL,
        CONSTRAINT counters_key PRIMARY KEY CLUSTERED (counter_name)
    )
    """,
    f"""
    CREATE TABLE secrets (
        secret_name NVARCHAR(127) {_BINARY} NOT NULL,
        secret_value VARBINARY(1024) NOT NULL,
        CONSTRAINT secrets_key PRIMARY KEY CLUSTERED (secret_name)
    )
    """,
    f"""
    CREATE TABLE workers (
        worker_id {_EXACT_SHORT} NOT NULL,
        worker_expires_at BIGINT NOT NULL,
        CONSTRAINT workers_key PRIMARY KEY CLUSTERED (worker_id)
    )
    """,
)

_SERVICE_CALLS = (
    f"""
    CREATE TABLE service_calls (
        tenant_id {_TENANT} NOT NULL,
        service_call_id {_ID} NOT NULL,
        name {_EXACT} NOT NULL,
        status NVARCHAR(16) {_BINARY} NOT NULL,
        is_starred INT NOT NULL,
        submitted_at {_INSTANT} NOT NULL,
        due_at {_INSTANT} NOT NULL,
        started_at {_INSTANT},
        finished_at {_INSTANT},
        registered_at {_INSTANT} NOT NULL,
        reached_at {_INSTANT},
        wake_at {_INSTANT},
        updated_at {_INSTANT} NOT NULL,
        expires_at {_INSTANT},
        shard_id INT NOT NULL,
        call_revision BIGINT NOT NULL,
        attempts INT NOT NULL,
        event_count INT NOT NULL,
        timeout_seconds INT NOT NULL,
        correlation_id {_EXACT} NOT NULL,
        idempotency_key {_EXACT_SHORT},
        call_digest NVARCHAR(64) {_BINARY} NOT NULL,
        execution_id {_ID},
        last_event_id {_ID},
        rerun_of {_ID},
        tags {_TEXT},
        retry_policy {_TEXT},
        outcome_meta {_TEXT},
        request_spec {_TEXT} NOT NULL,
        request_body {_TEXT},
        CONSTRAINT service_calls_key PRIMARY KEY CLUSTERED (tenant_id, service_call_id),
        CONSTRAINT service_calls_status CHECK (status IN (N'Scheduled', N'Running', N'Succeeded', N'Failed')),
        CONSTRAINT service_calls_finished CHECK (
            (status IN (N'Scheduled', N'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
            OR (status IN (N'Succeeded', N'Failed') AND wake_at IS NULL AND finished_at IS NOT NULL)
        )
    )
    """,
    "ALTER TABLE service_calls SET (LOCK_ESCALATION = DISABLE)",
    "CREATE INDEX idx_service_calls_status ON service_calls (tenant_id, status, service_call_id)",
    "CREATE INDEX idx_service_calls_name ON service_calls (tenant_id, name, service_call_id DESC)",
    "CREATE INDEX idx_service_calls_correlation ON service_calls (tenant_id, correlation_id, service_call_id)",
    # Of all statuses and stars: statements whose constants have become parameters enter them as well.
    "CREATE INDEX idx_service_calls_due ON service_calls (tenant_id, status, due_at, service_call_id)",
    "CREATE INDEX idx_service_calls_starred ON service_calls (tenant_id, is_starred, service_call_id)",
    # NULL is a value like others in a unique index.
    """
    CREATE UNIQUE INDEX idx_service_calls_idempotency ON service_calls (tenant_id, idempotency_key)
    WHERE idempotency_key IS NOT NULL
    """,
    "CREATE INDEX idx_service_calls_expiry ON service_calls (expires_at) WHERE expires_at IS NOT NULL",
    f"""
    CREATE TABLE service_call_tags (
        tenant_id {_TENANT} NOT NULL,
        service_call_id {_ID} NOT NULL,
        tag {_EXACT_SHORT} NOT NULL,
        CONSTRAINT service_call_tags_key PRIMARY KEY CLUSTERED (tenant_id, service_call_id, tag),
        CONSTRAINT service_call_tags_call FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE
    )
    """,
    "CREATE INDEX idx_service_call_tags_tag ON service_call_tags (tenant_id, tag, service_call_id)",
    f"""
    CREATE TABLE http_execution_log (
        tenant_id {_TENANT} NOT NULL,
        service_call_id {_ID} NOT NULL,
        execution_id {_ID} NOT NULL,
        execution_number INT NOT NULL,
        execution_status NVARCHAR(16) {_BINARY} NOT NULL,
        started_at {_INSTANT} NOT NULL,
        deadline_at {_INSTANT} NOT NULL,
        finished_at {_INSTANT},
        duration_ms BIGINT,
        response_status NVARCHAR(3) {_BINARY},
        failure_reason NVARCHAR(32) {_BINARY},
        error_message {_TEXT},
        request_method NVARCHAR(16) {_BINARY} NOT NULL,
        request_url NVARCHAR(2048) {_BINARY} NOT NULL,
        request_headers {_TEXT} NOT NULL,
        request_body_meta {_TEXT} NOT NULL,
        response_headers {_TEXT},
        response_body_meta {_TEXT},
        request_body {_TEXT},
        response_body {_TEXT},
        CONSTRAINT http_execution_log_key PRIMARY KEY CLUSTERED (tenant_id, service_call_id, execution_id),
        CONSTRAINT http_execution_log_call FOREIGN KEY (tenant_id, service_call_id)
            REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE,
        CONSTRAINT http_execution_log_method CHECK (request_method IN (N'GET', N'POST', N'PUT', N'PATCH', N'DELETE'))
    )
    """,
    """
    CREATE UNIQUE INDEX idx_http_execution_log_number
    ON http_execution_log (tenant_id, service_call_id, execution_number)
    """,
    f"""
    CREATE TABLE outbox (
        id BIGINT IDENTITY(1, 1) NOT NULL,
        tenant_id {_TENANT} NOT NULL,
        aggregate_id {_ID} NOT NULL,
        event_sequence INT NOT NULL,
        event_id {_ID} NOT NULL,
        event_type NVARCHAR(63) {_BINARY} NOT NULL,
        occurred_at {_INSTANT} NOT NULL,
        created_at {_INSTANT} NOT NULL,
        published_at {_INSTANT},
        correlation_id NVARCHAR(510) {_BINARY} NOT NULL,
        causation_id {_ID},
        event_payload {_TEXT} NOT NULL,
        CONSTRAINT outbox_key PRIMARY KEY CLUSTERED (id)
    )
    """,
    "ALTER TABLE outbox SET (LOCK_ESCALATION = DISABLE)",
    "CREATE UNIQUE INDEX idx_outbox_sequence ON outbox (tenant_id, aggregate_id, event_sequence)",
    # The column of the condition stands in it too, or each row would be looked up to see that it is NULL.
    """
    CREATE INDEX idx_outbox_unpublished ON outbox (tenant_id, aggregate_id, event_sequence) INCLUDE (published_at)
    WHERE published_at IS NULL
    """,
    "CREATE INDEX idx_outbox_published ON outbox (published_at) WHERE published_at IS NOT NULL",
)

_CANCELLED = (
    "ALTER TABLE service_calls DROP CONSTRAINT service_calls_status",
    "ALTER TABLE service_calls DROP CONSTRAINT service_calls_finished",
    """
    ALTER TABLE service_calls ADD CONSTRAINT service_calls_status CHECK (
            status IN (N'Scheduled', N'Running', N'Succeeded', N'Failed', N'Cancelled')
    )
    """,
    """
    ALTER TABLE service_calls ADD CONSTRAINT service_calls_finished CHECK (
            (status IN (N'Scheduled', N'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
            OR (status IN (N'Succeeded', N'Failed', N'Cancelled') AND wake_at IS NULL AND finished_at IS NOT NULL)
        )
    """,
)

MIGRATIONS = (
    Migration(1, "timers", (*_TIMERS, *_CATALOGUE)),
    Migration(2, "service_calls", _SERVICE_CALLS),
    Migration(3, "cancelled_calls", _CANCELLED),
    Migration(
        4,
        "idempotency_records",
        (
            f"""
            CREATE TABLE idempotency_records (
                record_key NVARCHAR(64) {_BINARY} NOT NULL,
                record_claim_id NVARCHAR(64) {_BINARY} NOT NULL,
                record_content {_TEXT} NOT NULL,
                record_expires_at BIGINT NOT NULL,
                CONSTRAINT idempotency_records_key PRIMARY KEY CLUSTERED (record_key)
            )
            """,
            "ALTER TABLE idempotency_records SET (LOCK_ESCALATION = DISABLE)",
            "CREATE INDEX idx_idempotency_record_expiry ON idempotency_records (record_expires_at)",
        ),
    ),
)
