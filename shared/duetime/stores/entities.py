"""What is stored: each entity's fields, its key and its access paths, declared once.

Codecs, SQL tables, MongoDB's indexes and the index entries of stores without indexes come from here.
"""

from __future__ import annotations

from typing import Final

from duetime.stores.entity import LONG, AccessPath, Entity, Field, Kind


def _text(name: str, length: int = 255, *, is_free: bool = False) -> Field:
    return Field(name, Kind.TEXT, length=length, is_free=is_free)


def _maybe_text(name: str, length: int = 255, *, is_free: bool = False) -> Field:
    return Field(name, Kind.TEXT, is_optional=True, length=length, is_free=is_free)


def _long(name: str) -> Field:
    return Field(name, Kind.LONG_TEXT)


def _maybe_long(name: str) -> Field:
    return Field(name, Kind.LONG_TEXT, is_optional=True)


def _whole(name: str, length: int = 4) -> Field:
    return Field(name, Kind.WHOLE, length=length)


def _maybe_whole(name: str, length: int = 4) -> Field:
    return Field(name, Kind.WHOLE, is_optional=True, length=length)


def _at(name: str) -> Field:
    return Field(name, Kind.INSTANT)


def _maybe_at(name: str) -> Field:
    return Field(name, Kind.INSTANT, is_optional=True)


# -- timers and shards -----------------------------------------------------------------------------------------

DUE: Final = AccessPath(
    name="timer_due", by=("shard_id",), order=("timer_execute_at", "timer_uuid"), present=("timer_execute_at",)
)
"""A finished timer has no ``timer_execute_at``."""
OF_NAMESPACE: Final = AccessPath(name="timer_lookup", by=("timer_namespace",), order=("shard_id", "timer_id"))
CORRELATED: Final = AccessPath(
    name="timer_correlation",
    by=("timer_namespace", "timer_correlation_id"),
    order=("timer_id",),
    present=("timer_correlation_id",),
)
EXPIRED_TIMERS: Final = AccessPath(name="timer_expiry", order=("timer_expires_at",), present=("timer_expires_at",))

TIMER: Final = Entity(
    name="timer",
    table="timers",
    key=("shard_id", "timer_namespace", "timer_id"),
    fields=(
        _whole("shard_id"),
        _text("timer_namespace", 63),
        _text("timer_id", is_free=True),
        Field("timer_uuid", Kind.BYTES, length=16),
        _maybe_at("timer_execute_at"),
        _text("timer_state", 16),
        _at("timer_due_at"),
        _maybe_at("timer_expires_at"),
        _maybe_long("timer_tags"),
        _maybe_text("timer_correlation_id", is_free=True),
        _whole("timer_revision", LONG),
        _text("timer_firing_id", 64),
        _whole("timer_attempts"),
        _at("timer_created_at"),
        _at("timer_updated_at"),
        _maybe_at("timer_fired_at"),
        _maybe_long("timer_failure"),
        _text("timer_digest", 64),
        _whole("timer_callback_timeout_seconds"),
        _text("timer_callback_url", 2048),
        _maybe_long("timer_retry_policy"),
        _maybe_long("timer_headers"),
        _maybe_long("timer_payload"),
        _maybe_whole("timer_expire_after_ms", LONG),
        _maybe_at("timer_rearmed_at"),
        _maybe_long("timer_attempt_log"),
        _maybe_long("timer_timing"),
        _maybe_long("timer_schedule"),
    ),
    paths=(DUE, OF_NAMESPACE, CORRELATED, EXPIRED_TIMERS),
    expires="timer_expires_at",
    large="timer_payload",
    row_type=2,
)

OCCURRENCE: Final = Entity(
    name="occurrence",
    table="occurrences",
    key=("shard_id", "timer_namespace", "timer_id", "occurrence_slot"),
    fields=(
        _whole("shard_id"),
        _text("timer_namespace", 63),
        _text("timer_id", is_free=True),
        _whole("occurrence_slot"),
        _whole("occurrence_number", LONG),
        _text("occurrence_state", 16),
        _at("occurrence_scheduled_at"),
        _at("occurrence_recorded_at"),
        _maybe_at("occurrence_last_scheduled_at"),
        _whole("occurrence_count"),
        _maybe_at("occurrence_started_at"),
        _whole("occurrence_attempts"),
        _maybe_long("occurrence_failure"),
        _maybe_long("occurrence_attempt_log"),
        _maybe_text("occurrence_call_id", 63),
    ),
)
"""The last ones of each schedule, in a ring of slots: whoever knows the number of the last one knows all keys, and
nothing needs to be removed when another one comes. ``timer_id`` is that of the schedule's timer."""

SHARD: Final = Entity(
    name="shard",
    table="timers",
    key=("shard_id",),
    fields=(
        _whole("shard_id"),
        _whole("shard_version", LONG),
        _maybe_text("shard_owner_id", is_free=True),
        _maybe_at("shard_claimed_at"),
        _maybe_at("shard_lease_expires_at"),
        _maybe_long("shard_metadata"),
    ),
    is_lease=True,
    row_type=1,
)

ALL_WORKERS: Final = AccessPath(name="worker_list", order=("worker_id",))
WORKER: Final = Entity(
    name="worker",
    table="workers",
    key=("worker_id",),
    fields=(_text("worker_id", is_free=True), _at("worker_expires_at")),
    paths=(ALL_WORKERS,),
    expires="worker_expires_at",
    is_lease=True,
)

# -- the catalogue ---------------------------------------------------------------------------------------------

ALL_NAMESPACES: Final = AccessPath(name="namespace_all", order=("namespace_name",))
LISTED_NAMESPACES: Final = AccessPath(name="namespace_list", by=("is_internal",), order=("namespace_name",))
OF_TENANT: Final = AccessPath(name="namespace_tenant", by=("tenant_id", "is_internal"), order=("namespace_name",))
NAMESPACE: Final = Entity(
    name="namespace",
    table="namespaces",
    key=("namespace_name",),
    fields=(
        _text("namespace_name", 63),
        _whole("num_shards"),
        _whole("first_shard"),
        _maybe_long("earlier_shards"),
        Field("is_dedicated", Kind.FLAG),
        _at("created_at"),
        _whole("namespace_revision", LONG),
        _maybe_long("namespace_settings"),
        _maybe_long("namespace_secrets"),
        _text("tenant_id", 55),
        Field("is_internal", Kind.FLAG),
    ),
    paths=(ALL_NAMESPACES, LISTED_NAMESPACES, OF_TENANT),
)

COUNTER: Final = Entity(
    name="counter",
    table="counters",
    key=("counter_name",),
    fields=(_text("counter_name", 63), _whole("counter_value", LONG)),
)

ALL_SECRETS: Final = AccessPath(name="secret_list", order=("secret_name",))
SECRET: Final = Entity(
    name="secret",
    table="secrets",
    key=("secret_name",),
    fields=(_text("secret_name", 63, is_free=True), Field("secret_value", Kind.BYTES)),
    paths=(ALL_SECRETS,),
)

ALL_API_KEYS: Final = AccessPath(name="api_key_all", order=("key_id",))
API_KEYS_OF_TENANT: Final = AccessPath(name="api_key_tenant", by=("tenant_id",), order=("key_id",))
API_KEY: Final = Entity(
    name="api_key",
    table="api_keys",
    key=("key_id",),
    fields=(
        _text("key_id", 64),
        _text("tenant_id", 55),
        _text("key_role", 16),
        _text("key_name"),
        Field("key_secret_hash", Kind.BYTES, length=32),
        _at("key_created_at"),
        _maybe_at("key_expires_at"),
    ),
    paths=(ALL_API_KEYS, API_KEYS_OF_TENANT),
)

EXPIRED_RECORDS: Final = AccessPath(name="idempotency_record_expiry", order=("record_expires_at",))
IDEMPOTENCY_RECORD: Final = Entity(
    name="idempotency_record",
    table="idempotency_records",
    key=("record_key",),
    fields=(
        _text("record_key", 64),
        _text("record_claim_id", 64),
        _long("record_content"),
        _at("record_expires_at"),
    ),
    paths=(EXPIRED_RECORDS,),
    expires="record_expires_at",
)

# -- service calls ---------------------------------------------------------------------------------------------

_NEWEST = ("-service_call_id",)
CALLS: Final = AccessPath(name="call_key", by=("tenant_id",), order=_NEWEST)
CALLS_BY_STATUS: Final = AccessPath(name="call_status", by=("tenant_id", "status"), order=_NEWEST)
CALLS_BY_NAME: Final = AccessPath(name="call_name", by=("tenant_id",), order=("name", "-service_call_id"))
CORRELATED_CALLS: Final = AccessPath(name="call_correlation", by=("tenant_id", "correlation_id"), order=_NEWEST)
TAGGED_CALLS: Final = AccessPath(name="call_tag", by=("tenant_id", "tags"), order=_NEWEST, present=("tags",))
STARRED_CALLS: Final = AccessPath(name="call_starred", by=("tenant_id",), order=_NEWEST, where={"starred": True})
DUE_CALLS: Final = AccessPath(
    name="call_due", by=("tenant_id",), order=("due_at", "service_call_id"), where={"status": "Scheduled"}
)
CALL_OF_KEY: Final = AccessPath(
    name="call_idempotency", by=("tenant_id", "idempotency_key"), present=("idempotency_key",), is_unique=True
)
EXPIRED_CALLS: Final = AccessPath(name="call_expiry", order=("expires_at",), present=("expires_at",))

SERVICE_CALL: Final = Entity(
    name="service_call",
    table="service_calls",
    key=("tenant_id", "service_call_id"),
    fields=(
        _text("tenant_id", 63),
        _text("service_call_id", 63),
        _text("name", is_free=True),
        _text("status", 16),
        Field("starred", Kind.FLAG),
        _at("submitted_at"),
        _at("due_at"),
        _maybe_at("started_at"),
        _maybe_at("finished_at"),
        _at("registered_at"),
        _maybe_at("reached_at"),
        _maybe_at("wake_at"),
        _at("updated_at"),
        _maybe_at("expires_at"),
        _whole("shard_id"),
        _whole("call_revision", LONG),
        _whole("attempts"),
        _whole("event_count"),
        _whole("timeout_seconds"),
        _text("correlation_id", is_free=True),
        _maybe_text("idempotency_key", is_free=True),
        _text("call_digest", 64),
        _maybe_text("execution_id", 63),
        _maybe_text("last_event_id", 63),
        _maybe_text("rerun_of", 63),
        Field("tags", Kind.TEXTS, is_optional=True),
        _maybe_long("retry_policy"),
        _maybe_long("outcome_meta"),
        _long("request_spec"),
        _maybe_long("request_body"),
    ),
    paths=(
        CALLS,
        CALLS_BY_STATUS,
        CALLS_BY_NAME,
        CORRELATED_CALLS,
        TAGGED_CALLS,
        STARRED_CALLS,
        DUE_CALLS,
        CALL_OF_KEY,
        EXPIRED_CALLS,
    ),
    large="request_body",
    has_iso_times=True,
)

EXECUTIONS_OF_CALL: Final = AccessPath(
    name="execution_number", by=("tenant_id", "service_call_id"), order=("-execution_number",), is_unique=True
)
EXECUTION: Final = Entity(
    name="execution",
    table="http_execution_log",
    key=("tenant_id", "service_call_id", "execution_id"),
    fields=(
        _text("tenant_id", 63),
        _text("service_call_id", 63),
        _text("execution_id", 63),
        _whole("execution_number"),
        _text("execution_status", 16),
        _at("started_at"),
        _at("deadline_at"),
        _maybe_at("finished_at"),
        _maybe_whole("duration_ms", LONG),
        _maybe_text("response_status", 3),
        _maybe_text("failure_reason", 32),
        _maybe_long("error_message"),
        _text("request_method", 16),
        _text("request_url", 2048),
        _long("request_headers"),
        _long("request_body_meta"),
        _maybe_long("response_headers"),
        _maybe_long("response_body_meta"),
        _maybe_long("request_body"),
        _maybe_long("response_body"),
    ),
    paths=(EXECUTIONS_OF_CALL,),
    part_of="service_call",
    has_iso_times=True,
)

_OF_EVENT = ("tenant_id", "aggregate_id", "event_sequence")
ALL_EVENTS: Final = AccessPath(name="event_sequence", order=_OF_EVENT)
EVENTS_OF_CALL: Final = AccessPath(name="event_of_call", by=("tenant_id", "aggregate_id"), order=("event_sequence",))
UNPUBLISHED: Final = AccessPath(name="event_unpublished", order=_OF_EVENT, absent=("published_at",))
UNPUBLISHED_OF_CALL: Final = AccessPath(
    name="event_unpublished_of_call",
    by=("tenant_id", "aggregate_id"),
    order=("event_sequence",),
    absent=("published_at",),
)
PUBLISHED: Final = AccessPath(name="event_published", order=("published_at", *_OF_EVENT), present=("published_at",))
EVENT: Final = Entity(
    name="event",
    table="outbox",
    key=_OF_EVENT,
    fields=(
        _text("tenant_id", 63),
        _text("aggregate_id", 63),
        _whole("event_sequence"),
        _text("event_id", 63),
        _text("event_type", 63),
        _at("occurred_at"),
        _at("created_at"),
        _maybe_at("published_at"),
        _text("correlation_id", is_free=True),
        _maybe_text("causation_id", 63),
        _long("event_payload"),
    ),
    paths=(ALL_EVENTS, EVENTS_OF_CALL, UNPUBLISHED, UNPUBLISHED_OF_CALL, PUBLISHED),
    has_iso_times=True,
)

ENTITIES: Final = (
    TIMER,
    OCCURRENCE,
    SHARD,
    WORKER,
    NAMESPACE,
    COUNTER,
    SECRET,
    API_KEY,
    IDEMPOTENCY_RECORD,
    SERVICE_CALL,
    EXECUTION,
    EVENT,
)
