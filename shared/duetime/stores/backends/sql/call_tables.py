"""The tables of service calls, as tables.py has those of timers. Reasons: docs/decisions/0016.

Instants are texts of ``format_instant``: fixed width, so they sort as text in time order. Every key and every index
that serves a tenant begins with ``tenant_id``. What lists read stands before what may be long.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Index, Table

from duetime.domain.service_calls import CallStatus, Method
from duetime.stores.backends.sql.column_types import BIG, SMALL, exact_text_of, text_of
from duetime.stores.backends.sql.tables import metadata, one_of, only_on, partial_index

_TENANT = text_of(63)
_ID = text_of(63)
_INSTANT = text_of(24)


service_calls = Table(
    "service_calls",
    metadata,
    Column("tenant_id", _TENANT, primary_key=True),
    Column("service_call_id", _ID, primary_key=True),
    Column("name", exact_text_of(255), nullable=False),
    Column("status", text_of(16), nullable=False),
    Column("is_starred", SMALL, nullable=False),
    Column("submitted_at", _INSTANT, nullable=False),
    Column("due_at", _INSTANT, nullable=False),
    Column("started_at", _INSTANT),
    Column("finished_at", _INSTANT),
    Column("registered_at", _INSTANT, nullable=False),
    Column("reached_at", _INSTANT),
    Column("wake_at", _INSTANT),
    Column("updated_at", _INSTANT, nullable=False),
    Column("expires_at", _INSTANT),
    Column("shard_id", sa.Integer, nullable=False),
    Column("call_revision", BIG, nullable=False),
    Column("attempts", sa.Integer, nullable=False),
    Column("event_count", sa.Integer, nullable=False),
    Column("timeout_seconds", sa.Integer, nullable=False),
    Column("correlation_id", exact_text_of(255), nullable=False),
    Column("idempotency_key", exact_text_of(255)),
    Column("call_digest", text_of(64), nullable=False),
    Column("execution_id", _ID),
    Column("last_event_id", _ID),
    Column("rerun_of", _ID),
    Column("tags", sa.Text),
    Column("retry_policy", sa.Text),
    Column("outcome_meta", sa.Text),
    Column("request_spec", sa.Text, nullable=False),
    Column("request_body", sa.Text),
    CheckConstraint(
        "(status IN ('Scheduled', 'Running') AND wake_at IS NOT NULL AND finished_at IS NULL)"
        f" OR ({one_of('status', 'Succeeded', 'Failed', 'Cancelled')}"
        " AND wake_at IS NULL AND finished_at IS NOT NULL)",
        name="service_calls_finished",
    ),
)
"""``tags`` repeats ``service_call_tags`` in the order that was given: reading a call reads one row."""

_CALL = service_calls.c
Index("idx_service_calls_status", _CALL.tenant_id, _CALL.status, _CALL.service_call_id)
Index("idx_service_calls_name", _CALL.tenant_id, _CALL.name, _CALL.service_call_id.desc())
Index("idx_service_calls_correlation", _CALL.tenant_id, _CALL.correlation_id, _CALL.service_call_id)
IS_SCHEDULED = _CALL.status == sa.literal_column(repr(CallStatus.SCHEDULED.value))
IS_STARRED = _CALL.is_starred == sa.literal_column("1")
# ``status`` is the same in all of its entries; with it this index is never worse than the one by status alone.
_BY_DUE = (_CALL.tenant_id, _CALL.status, _CALL.due_at, _CALL.service_call_id)
# On SQL Server statements whose constants became parameters use no index with a condition on a value.
_FULL_ON_VALUES = ("mysql", "oracle", "mssql")
partial_index("idx_service_calls_due", *_BY_DUE, where=IS_SCHEDULED, full_on=_FULL_ON_VALUES)
partial_index(
    "idx_service_calls_starred",
    _CALL.tenant_id,
    _CALL.service_call_id,
    where=IS_STARRED,
    full_columns=(_CALL.tenant_id, _CALL.is_starred, _CALL.service_call_id),
    full_on=_FULL_ON_VALUES,
)
_HAS_KEY = _CALL.idempotency_key.is_not(None)
partial_index(
    "idx_service_calls_idempotency",
    _CALL.tenant_id,
    _CALL.idempotency_key,
    where=_HAS_KEY,
    is_unique=True,
    full_on=("mysql",),
)
# On Oracle a unique index leaves out only rows whose columns are all NULL.
_TENANT_WITH_KEY = sa.case((_HAS_KEY, _CALL.tenant_id))
only_on(
    ("oracle",),
    Index("idx_service_calls_idempotency", _CALL.idempotency_key, _TENANT_WITH_KEY, unique=True),
)
partial_index("idx_service_calls_expiry", _CALL.expires_at, where=_CALL.expires_at.is_not(None))


def _of_call() -> ForeignKeyConstraint:
    return ForeignKeyConstraint(
        ["tenant_id", "service_call_id"],
        ["service_calls.tenant_id", "service_calls.service_call_id"],
        ondelete="CASCADE",
    )


service_call_tags = Table(
    "service_call_tags",
    metadata,
    Column("tenant_id", _TENANT, primary_key=True),
    Column("service_call_id", _ID, primary_key=True),
    Column("tag", exact_text_of(255), primary_key=True),
    _of_call(),
)
_TAG = service_call_tags.c
Index("idx_service_call_tags_tag", _TAG.tenant_id, _TAG.tag, _TAG.service_call_id)

http_execution_log = Table(
    "http_execution_log",
    metadata,
    Column("tenant_id", _TENANT, primary_key=True),
    Column("service_call_id", _ID, primary_key=True),
    Column("execution_id", _ID, primary_key=True),
    Column("execution_number", sa.Integer, nullable=False),
    Column("execution_status", text_of(16), nullable=False),
    Column("started_at", _INSTANT, nullable=False),
    Column("deadline_at", _INSTANT, nullable=False),
    Column("finished_at", _INSTANT),
    Column("duration_ms", BIG),
    Column("response_status", text_of(3)),
    Column("failure_reason", text_of(32)),
    Column("error_message", sa.Text),
    Column("request_method", text_of(16), nullable=False),
    Column("request_url", text_of(2048), nullable=False),
    Column("request_headers", sa.Text, nullable=False),
    Column("request_body_meta", sa.Text, nullable=False),
    Column("response_headers", sa.Text),
    Column("response_body_meta", sa.Text),
    Column("request_body", sa.Text),
    Column("response_body", sa.Text),
    _of_call(),
    CheckConstraint(one_of("request_method", *Method), name="http_execution_log_method"),
)
_LOG = http_execution_log.c
Index("idx_http_execution_log_number", _LOG.tenant_id, _LOG.service_call_id, _LOG.execution_number, unique=True)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BIG, sa.Identity(), primary_key=True),
    Column("tenant_id", _TENANT, nullable=False),
    Column("aggregate_id", _ID, nullable=False),
    Column("event_sequence", sa.Integer, nullable=False),
    Column("event_id", _ID, nullable=False),
    Column("event_type", text_of(63), nullable=False),
    Column("occurred_at", _INSTANT, nullable=False),
    Column("created_at", _INSTANT, nullable=False),
    Column("published_at", _INSTANT),
    Column("correlation_id", text_of(255), nullable=False),
    Column("causation_id", _ID),
    Column("event_payload", sa.Text, nullable=False),
)
"""No foreign key: events outlive their call until they are published."""

_EVENT = outbox.c
IS_UNPUBLISHED = _EVENT.published_at.is_(None)
_IN_ORDER = (_EVENT.tenant_id, _EVENT.aggregate_id, _EVENT.event_sequence)
Index("idx_outbox_sequence", *_IN_ORDER, unique=True)
# A full index serves unpublished events, which are its NULLs, and published ones.
partial_index(
    "idx_outbox_unpublished", *_IN_ORDER, where=IS_UNPUBLISHED, full_columns=(_EVENT.published_at, *_IN_ORDER)
)
_IS_PUBLISHED = _EVENT.published_at.is_not(None)
partial_index("idx_outbox_published", _EVENT.published_at, *_IN_ORDER, where=_IS_PUBLISHED, full_on=())
