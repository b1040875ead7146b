"""The tables of service calls: one that holds the truth, a partition per call, and indexes that lead to it.

``service_calls``: the call itself is in static columns, its events and executions are rows. A conditional batch
changes all of it at once. What is in the indexes is a hint (``index.py``), so their tombstones may go early: an entry
that comes back is found to be wrong once more.
"""

from __future__ import annotations

from typing import Final

EVENT, EXECUTION = "event", "execution"
"""The kinds of rows of a call's partition."""
_HINTS: Final = "gc_grace_seconds = 600 AND compaction = {'class': 'LeveledCompactionStrategy'}"

CALL_TABLES: Final = (
    """
    CREATE TABLE IF NOT EXISTS service_calls (
        tenant_id text, call_id text, kind text, position text,
        revision bigint static, attempt text static, barred text static, shard_id int static, status text static,
        expires_ms bigint static, idempotency_key text static, places text static, timer text static,
        document text static, body text static,
        content text, event_id text, published_ms bigint, of_revision bigint,
        PRIMARY KEY ((tenant_id, call_id), kind, position)
    ) WITH compaction = {'class': 'LeveledCompactionStrategy'}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS call_lists (
        tenant_id text, list text, slice int, sort text, call_id text, revision bigint, attempt text,
        PRIMARY KEY ((tenant_id, list, slice), sort, call_id, revision, attempt)
    ) WITH {_HINTS}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS call_due (
        shard_id int, sort text, tenant_id text, call_id text, revision bigint, attempt text,
        PRIMARY KEY ((shard_id), sort, tenant_id, call_id, revision, attempt)
    ) WITH {_HINTS}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS call_outbox (
        slice int, sort text, tenant_id text, call_id text, revision bigint, attempt text,
        PRIMARY KEY ((slice), sort, tenant_id, call_id, revision, attempt)
    ) WITH {_HINTS}
    """,
    f"""
    CREATE TABLE IF NOT EXISTS call_removals (
        slice int, sort text, tenant_id text, call_id text, revision bigint, attempt text,
        PRIMARY KEY ((slice), sort, tenant_id, call_id, revision, attempt)
    ) WITH {_HINTS}
    """,
    """
    CREATE TABLE IF NOT EXISTS call_keys (
        tenant_id text, idempotency_key text, call_id text, attempt text,
        PRIMARY KEY ((tenant_id, idempotency_key))
    )
    """,
)
