"""The tables of service calls, as tables.py has those of timers. Reasons: docs/decisions/0016.

Instants are texts of ``format_instant``: fixed width, so they sort as text in time order. Every key and every index
that serves a tenant begins with ``tenant_id``. What lists read stands before what may be long.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import CheckConstraint, Column, ForeignKeyConstraint, Index, Table

from duetime.domain.service_calls import CallStatus, Method
from duetime.stores.backends.sql.column_types import BIG, exact_text_of
from duetime.stores.backends.sql.tables import column_of, metadata, one_of, only_on, partial_index, table_of
from duetime.stores.entities import EVENT, EXECUTION, SERVICE_CALL

service_calls = table_of(
    SERVICE_CALL,
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
IS_STARRED = _CALL.starred == sa.literal_column("1")
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
    full_columns=(_CALL.tenant_id, _CALL.starred, _CALL.service_call_id),
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
    *(column_of(SERVICE_CALL, name, primary_key=True) for name in SERVICE_CALL.key),
    Column("tag", exact_text_of(255), primary_key=True),
    _of_call(),
)
_TAG = service_call_tags.c
Index("idx_service_call_tags_tag", _TAG.tenant_id, _TAG.tag, _TAG.service_call_id)

http_execution_log = table_of(
    EXECUTION,
    _of_call(),
    CheckConstraint(one_of("request_method", *Method), name="http_execution_log_method"),
)
_LOG = http_execution_log.c
Index("idx_http_execution_log_number", _LOG.tenant_id, _LOG.service_call_id, _LOG.execution_number, unique=True)

outbox = Table(
    "outbox",
    metadata,
    Column("id", BIG, sa.Identity(), primary_key=True),
    *(column_of(EVENT, name) for name in EVENT.names),
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
