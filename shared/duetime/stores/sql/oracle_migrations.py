"""The schema of Oracle databases, step by step. The reasons are in decision 0130.

``timers`` is partitioned by shard, where the edition has partitions, and reads a shard's range by its primary key.
JSON is kept as the exact text that was given, in CLOBs. Widths are in characters. Rows whose columns are all NULL
are in no index, which is what other dialects say by a condition.

Definitions commit by themselves: each can be run again, and passes over what is there.
"""

from __future__ import annotations

from duetime.stores.sql.migrations import Migration

NUM_PARTITIONS = 32
_EXISTS = -955
_NO_SUCH_FEATURE = -439
_NO_SUCH_CONSTRAINT = -2443
_CONSTRAINT_EXISTS = -2264
_ID = "VARCHAR2(255 CHAR)"
_SHORT = "VARCHAR2(63 CHAR)"
_TENANT = "VARCHAR2(55 CHAR)"
_DIGEST = "VARCHAR2(64 CHAR)"
_WORD = "VARCHAR2(16 CHAR)"
_INSTANT = "VARCHAR2(24 CHAR)"
_URL = "VARCHAR2(2048 CHAR)"
_MS = _COUNT = "NUMBER(19)"
_INT = "NUMBER(10)"
_SMALL = "NUMBER(5)"


def _once(definition: str, *, otherwise: str | None = None) -> str:
    """Run ``definition`` unless it was; ``otherwise`` where the edition lacks what it needs."""
    run = _run(definition)
    if otherwise is not None:
        run = f"BEGIN {run} {_except(_NO_SUCH_FEATURE, _run(otherwise))} END;"
    return f"BEGIN {run} {_except(_EXISTS, 'NULL;')} END;"


def _rechecked(table: str, constraint: str, condition: str) -> tuple[str, str]:
    """Another condition for a check, by steps that each pass over what is done."""
    drop = _run(f"ALTER TABLE {table} DROP CONSTRAINT {constraint}")
    add = _run(f"ALTER TABLE {table} ADD CONSTRAINT {constraint} CHECK ({condition})")
    return (
        f"BEGIN {drop} {_except(_NO_SUCH_CONSTRAINT, 'NULL;')} END;",
        f"BEGIN {add} {_except(_CONSTRAINT_EXISTS, 'NULL;')} END;",
    )


def _run(definition: str) -> str:
    return f"EXECUTE IMMEDIATE q'[{definition.strip()}]';"


def _except(code: int, then: str) -> str:
    return f"EXCEPTION WHEN OTHERS THEN IF SQLCODE = {code} THEN {then} ELSE RAISE; END IF;"


TURN_TABLE = _once("CREATE TABLE schema_turn (turn_id NUMBER(1))")
"""Whoever migrates locks it."""

TRACKING_TABLE = _once(
    f"""
    CREATE TABLE schema_migrations (
        migration_version {_INT} NOT NULL,
        migration_name {_SHORT} NOT NULL,
        applied_at {_INSTANT} NOT NULL,
        CONSTRAINT schema_migrations_key PRIMARY KEY (migration_version)
    )
    """
)


def _timers(index: str, partitions: str) -> str:
    return f"""
    CREATE TABLE timers (
        shard_id {_INT} NOT NULL,
        row_type {_SMALL} NOT NULL,
        timer_execute_at {_MS} NOT NULL,
        timer_uuid RAW(16) NOT NULL,
        timer_namespace {_SHORT},
        timer_id {_ID},
        timer_state {_WORD},
        timer_due_at {_MS},
        timer_expires_at {_MS},
        timer_tags CLOB,
        timer_correlation_id {_ID},
        timer_revision {_COUNT},
        timer_firing_id {_DIGEST},
        timer_attempts {_INT},
        timer_created_at {_MS},
        timer_updated_at {_MS},
        timer_fired_at {_MS},
        timer_failure CLOB,
        timer_digest {_DIGEST},
        timer_callback_timeout_seconds {_INT},
        timer_callback_url {_URL},
        timer_retry_policy CLOB,
        timer_headers CLOB,
        timer_payload CLOB,
        shard_version {_COUNT},
        shard_owner_id {_ID},
        shard_claimed_at {_MS},
        shard_lease_expires_at {_MS},
        shard_metadata CLOB,
        timer_expire_after_ms {_MS},
        timer_rearmed_at {_MS},
        timer_attempt_log CLOB,
        CONSTRAINT timers_key PRIMARY KEY (shard_id, row_type, timer_execute_at, timer_uuid){index},
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
    ){partitions}
    """


TIMERS = _timers(" USING INDEX LOCAL", f" PARTITION BY HASH (shard_id) PARTITIONS {NUM_PARTITIONS}")
TIMERS_UNPARTITIONED = _timers("", "")

_TIMERS = (
    _once(TIMERS, otherwise=TIMERS_UNPARTITIONED),
    # Not in parts: a list walks through all shards of a namespace in order.
    _once("CREATE UNIQUE INDEX idx_timer_lookup ON timers (timer_namespace, shard_id, timer_id)"),
    _once("CREATE INDEX idx_timer_correlation ON timers (timer_namespace, timer_correlation_id, timer_id)"),
    _once("CREATE INDEX idx_timer_expiry ON timers (timer_expires_at)"),
)

_CATALOGUE = (
    _once(
        f"""
        CREATE TABLE namespaces (
            namespace_name {_SHORT} NOT NULL,
            num_shards {_INT} NOT NULL,
            first_shard {_INT} NOT NULL,
            is_dedicated {_SMALL} NOT NULL,
            created_at {_MS} NOT NULL,
            namespace_revision {_COUNT} DEFAULT 1 NOT NULL,
            namespace_settings CLOB,
            namespace_secrets CLOB,
            tenant_id {_TENANT} DEFAULT 'default' NOT NULL,
            is_internal {_SMALL} DEFAULT 0 NOT NULL,
            CONSTRAINT namespaces_key PRIMARY KEY (namespace_name)
        )
        """
    ),
    _once("CREATE INDEX idx_namespace_tenant ON namespaces (tenant_id, is_internal, namespace_name)"),
    _once("CREATE INDEX idx_namespace_list ON namespaces (is_internal, namespace_name)"),
    _once(
        f"""
        CREATE TABLE api_keys (
            tenant_id {_TENANT} NOT NULL,
            key_id {_DIGEST} NOT NULL,
            key_role {_WORD} NOT NULL,
            key_name {_ID} NOT NULL,
            key_secret_hash RAW(32) NOT NULL,
            key_created_at {_MS} NOT NULL,
            key_expires_at {_MS},
            CONSTRAINT api_keys_key PRIMARY KEY (tenant_id, key_id),
            CONSTRAINT api_keys_role CHECK (key_role IN ('reader', 'writer', 'admin'))
        )
        """
    ),
    _once("CREATE UNIQUE INDEX idx_api_key_id ON api_keys (key_id)"),
    _once(
        f"""
        CREATE TABLE counters (
            counter_name {_SHORT} NOT NULL,
            counter_value {_COUNT} NOT NULL,
            CONSTRAINT counters_key PRIMARY KEY (counter_name)
        )
        """
    ),
    _once(
        f"""
        CREATE TABLE secrets (
            secret_name {_SHORT} NOT NULL,
            secret_value RAW(1024) NOT NULL,
            CONSTRAINT secrets_key PRIMARY KEY (secret_name)
        )
        """
    ),
    _once(
        f"""
        CREATE TABLE workers (
            worker_id {_ID} NOT NULL,
            worker_expires_at {_MS} NOT NULL,
            CONSTRAINT workers_key PRIMARY KEY (worker_id)
        )
        """
    ),
)

_CALLS = (
    _once(
        f"""
        CREATE TABLE service_calls (
            tenant_id {_SHORT} NOT NULL,
            service_call_id {_SHORT} NOT NULL,
            name {_ID} NOT NULL,
            status {_WORD} NOT NULL,
            is_starred {_SMALL} NOT NULL,
            submitted_at {_INSTANT} NOT NULL,
            due_at {_INSTANT} NOT NULL,
            started_at {_INSTANT},
            finished_at {_INSTANT},
            registered_at {_INSTANT} NOT NULL,
            reached_at {_INSTANT},
            wake_at {_INSTANT},
            updated_at {_INSTANT} NOT NULL,
            expires_at {_INSTANT},
            shard_id {_INT} NOT NULL,
            call_revision {_COUNT} NOT NULL,
            attempts {_INT} NOT NULL,
            event_count {_INT} NOT NULL,
            timeout_seconds {_INT} NOT NULL,
            correlation_id {_ID} NOT NULL,
            idempotency_key {_ID},
            call_digest {_DIGEST} NOT NULL,
            execution_id {_SHORT},
            last_event_id {_SHORT},
            rerun_of {_SHORT},
            tags CLOB,
            retry_policy CLOB,
            outcome_meta CLOB,
            request_spec CLOB NOT NULL,
            request_body CLOB,
            CONSTRAINT service_calls_key PRIMARY KEY (tenant_id, service_call_id),
            CONSTRAINT service_calls_status CHECK (status IN ('Scheduled', 'Running', 'Succeeded', 'Failed')),
            CONSTRAINT service_calls_finished CHECK (
                (status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
                OR (status IN ('Succeeded', 'Failed') AND wake_at IS NULL AND finished_at IS NOT NULL)
            )
        )
        """
    ),
    _once("CREATE INDEX idx_service_calls_status ON service_calls (tenant_id, status, service_call_id)"),
    _once("CREATE INDEX idx_service_calls_name ON service_calls (tenant_id, name, service_call_id DESC)"),
    _once("CREATE INDEX idx_service_calls_correlation ON service_calls (tenant_id, correlation_id, service_call_id)"),
    _once("CREATE INDEX idx_service_calls_due ON service_calls (tenant_id, status, due_at, service_call_id)"),
    _once("CREATE INDEX idx_service_calls_starred ON service_calls (tenant_id, is_starred, service_call_id)"),
    # A unique index counts (tenant, NULL) as taken when another row has the same; one that is all NULL it leaves out.
    _once(
        """
        CREATE UNIQUE INDEX idx_service_calls_idempotency
        ON service_calls (idempotency_key, CASE WHEN idempotency_key IS NOT NULL THEN tenant_id END)
        """
    ),
    _once("CREATE INDEX idx_service_calls_expiry ON service_calls (expires_at)"),
    _once(
        f"""
        CREATE TABLE service_call_tags (
            tenant_id {_SHORT} NOT NULL,
            service_call_id {_SHORT} NOT NULL,
            tag {_ID} NOT NULL,
            CONSTRAINT service_call_tags_key PRIMARY KEY (tenant_id, service_call_id, tag),
            CONSTRAINT service_call_tags_call FOREIGN KEY (tenant_id, service_call_id)
                REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE
        )
        """
    ),
    _once("CREATE INDEX idx_service_call_tags_tag ON service_call_tags (tenant_id, tag, service_call_id)"),
)

# ORDER: or each instance of a cluster would number events from a stock of its own, and later ones could come first.
_LOGS = (
    _once(
        f"""
        CREATE TABLE http_execution_log (
            tenant_id {_SHORT} NOT NULL,
            service_call_id {_SHORT} NOT NULL,
            execution_id {_SHORT} NOT NULL,
            execution_number {_INT} NOT NULL,
            execution_status {_WORD} NOT NULL,
            started_at {_INSTANT} NOT NULL,
            deadline_at {_INSTANT} NOT NULL,
            finished_at {_INSTANT},
            duration_ms {_MS},
            response_status VARCHAR2(3 CHAR),
            failure_reason VARCHAR2(32 CHAR),
            error_message CLOB,
            request_method {_WORD} NOT NULL,
            request_url {_URL} NOT NULL,
            request_headers CLOB NOT NULL,
            request_body_meta CLOB NOT NULL,
            response_headers CLOB,
            response_body_meta CLOB,
            request_body CLOB,
            response_body CLOB,
            CONSTRAINT http_execution_log_key PRIMARY KEY (tenant_id, service_call_id, execution_id),
            CONSTRAINT http_execution_log_call FOREIGN KEY (tenant_id, service_call_id)
                REFERENCES service_calls (tenant_id, service_call_id) ON DELETE CASCADE,
            CONSTRAINT http_execution_log_method CHECK (request_method IN ('GET', 'POST', 'PUT', 'PATCH', 'DELETE'))
        )
        """
    ),
    _once(
        """
        CREATE UNIQUE INDEX idx_http_execution_log_number
        ON http_execution_log (tenant_id, service_call_id, execution_number)
        """
    ),
    _once(
        f"""
        CREATE TABLE outbox (
            id NUMBER(19) GENERATED ALWAYS AS IDENTITY (ORDER) NOT NULL,
            tenant_id {_SHORT} NOT NULL,
            aggregate_id {_SHORT} NOT NULL,
            event_sequence {_INT} NOT NULL,
            event_id {_SHORT} NOT NULL,
            event_type {_SHORT} NOT NULL,
            occurred_at {_INSTANT} NOT NULL,
            created_at {_INSTANT} NOT NULL,
            published_at {_INSTANT},
            correlation_id {_ID} NOT NULL,
            causation_id {_SHORT},
            event_payload CLOB NOT NULL,
            CONSTRAINT outbox_key PRIMARY KEY (id)
        )
        """
    ),
    _once("CREATE UNIQUE INDEX idx_outbox_sequence ON outbox (tenant_id, aggregate_id, event_sequence)"),
    # What is unpublished has NULL as its first column, and is a range as any other value's; so is what was published.
    _once("CREATE INDEX idx_outbox_unpublished ON outbox (published_at, tenant_id, aggregate_id, event_sequence)"),
)

_CANCELLED = (
    *_rechecked(
        "service_calls",
        "service_calls_status",
        "status IN ('Scheduled', 'Running', 'Succeeded', 'Failed', 'Cancelled')",
    ),
    *_rechecked(
        "service_calls",
        "service_calls_finished",
        """
        (status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)
        OR (status IN ('Succeeded', 'Failed', 'Cancelled') AND wake_at IS NULL AND finished_at IS NOT NULL)
        """,
    ),
)

MIGRATIONS = (
    Migration(1, "timers", (*_TIMERS, *_CATALOGUE)),
    Migration(2, "service_calls", (*_CALLS, *_LOGS)),
    Migration(3, "cancelled_calls", _CANCELLED),
    Migration(
        4,
        "idempotency_records",
        (
            _once(
                f"""
                CREATE TABLE idempotency_records (
                    record_key {_DIGEST} NOT NULL,
                    record_claim_id {_DIGEST} NOT NULL,
                    record_content CLOB NOT NULL,
                    record_expires_at {_MS} NOT NULL,
                    CONSTRAINT idempotency_records_key PRIMARY KEY (record_key)
                )
                """
            ),
            _once("CREATE INDEX idx_idempotency_record_expiry ON idempotency_records (record_expires_at)"),
        ),
    ),
)
