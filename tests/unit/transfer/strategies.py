"""Hypothesis strategies for everything that is transferred."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import strategies as st

from duetime.domain.api_keys import ApiKey
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.namespaces import EncryptedSecret, Namespace, NamespaceSettings
from duetime.domain.principals import Role
from duetime.domain.service_calls import CallFailure, CallOutcome, CallStatus, Method, RequestSpec, ServiceCall
from duetime.domain.timers import Failure, FailureReason, Timer, TimerContent, TimerState
from duetime.domain.times import MIN_INSTANT
from duetime.stores.port.outbox import OutboxEvent
from duetime.transfer.records import CatalogueSecret, Kind, Unreadable, Value

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
names = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)
instants = st.integers(0, 253_402_300_799_999).map(lambda ms: MIN_INSTANT + timedelta(milliseconds=ms))
counts = st.integers(0, 2**53)
ordinals = st.integers(1, 2**53)
raw = st.binary(max_size=40)
tags = st.lists(texts, max_size=3).map(tuple)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


webhooks = st.builds(
    EventWebhook,
    url=texts,
    event_types=maybe(st.lists(st.sampled_from(CallEventType), max_size=3).map(tuple)),
    is_enabled=st.booleans(),
)
settings = st.builds(
    NamespaceSettings,
    retry_policy_json=maybe(texts),
    max_in_flight=maybe(ordinals),
    rate_limit_per_second=maybe(st.floats(0.001, 1e9)),
    webhook=maybe(webhooks),
)
ciphertext = st.builds(EncryptedSecret, texts, raw, instants, maybe(instants))
namespaces = st.builds(
    Namespace,
    name=names,
    num_shards=st.integers(1, 4096),
    first_shard=st.just(0),
    dedicated=st.booleans(),
    created_at=instants,
    settings=settings,
    secrets=st.lists(ciphertext, max_size=2).map(tuple),
    revision=ordinals,
    tenant_id=names,
)
api_keys = st.builds(
    ApiKey,
    key_id=names,
    tenant_id=names,
    role=st.sampled_from(Role),
    name=texts,
    secret_hash=raw,
    created_at=instants,
    expires_at=maybe(instants),
)
failures = st.builds(Failure, st.sampled_from(FailureReason), texts, instants, maybe(counts))
contents = st.builds(
    TimerContent,
    execute_at=instants,
    callback_url=texts,
    payload_json=maybe(texts),
    headers_json=maybe(texts),
    retry_policy_json=maybe(texts),
    callback_timeout_seconds=counts,
    correlation_id=maybe(texts),
    tags=tags,
    expire_after_ms=maybe(counts),
)


def _timers(states: list[TimerState], next_attempts: st.SearchStrategy[datetime | None]) -> st.SearchStrategy[Timer]:
    return st.builds(
        Timer,
        namespace=names,
        timer_id=names,
        shard_id=st.just(0),
        content=contents,
        digest=texts,
        state=st.sampled_from(states),
        revision=ordinals,
        firing_id=texts,
        attempts=counts,
        next_attempt_at=next_attempts,
        created_at=instants,
        updated_at=instants,
        fired_at=maybe(instants),
        failure=maybe(failures),
        expires_at=maybe(instants),
        rearmed_at=maybe(instants),
        attempt_log=maybe(texts),
    )


timers = _timers([TimerState.SCHEDULED, TimerState.FIRING], instants) | _timers(
    [TimerState.FIRED, TimerState.FAILED], st.none()
)
requests = st.builds(
    RequestSpec,
    method=st.sampled_from(Method),
    url=texts,
    headers_json=maybe(texts),
    body_json=maybe(texts),
    body_bytes=counts,
)
outcomes = st.builds(
    CallOutcome,
    execution_id=texts,
    http_status=maybe(counts),
    reason=maybe(st.sampled_from(CallFailure)),
    message=texts,
)


def _calls(statuses: list[CallStatus], **ends: st.SearchStrategy[Any]) -> st.SearchStrategy[ServiceCall]:
    return st.builds(
        ServiceCall,
        tenant_id=names,
        call_id=names,
        shard_id=st.just(0),
        name=texts,
        request=requests,
        digest=texts,
        status=st.sampled_from(statuses),
        revision=ordinals,
        submitted_at=instants,
        updated_at=instants,
        due_at=instants,
        registered_at=instants,
        reached_at=maybe(instants),
        started_at=maybe(instants),
        timeout_seconds=counts,
        retry_policy_json=maybe(texts),
        correlation_id=texts,
        idempotency_key=maybe(texts),
        rerun_of=maybe(texts),
        tags=tags,
        starred=st.booleans(),
        attempts=counts,
        execution_id=maybe(texts),
        outcome=maybe(outcomes),
        event_count=counts,
        last_event_id=maybe(texts),
        expires_at=maybe(instants),
        **ends,
    )


calls = _calls([CallStatus.SCHEDULED, CallStatus.RUNNING], wake_at=instants) | _calls(
    [CallStatus.SUCCEEDED, CallStatus.FAILED], wake_at=st.none(), finished_at=instants
)
messages = st.builds(
    LoggedMessage,
    headers=st.lists(st.tuples(texts, texts), max_size=3).map(tuple),
    body=maybe(texts),
    body_bytes=counts,
    is_truncated=st.booleans(),
    body_is_base64=st.booleans(),
)
executions = st.builds(
    Execution,
    tenant_id=names,
    call_id=names,
    execution_id=names,
    number=ordinals,
    status=st.sampled_from(ExecutionStatus),
    started_at=instants,
    deadline_at=instants,
    method=st.sampled_from(Method),
    url=texts,
    request=messages,
    finished_at=maybe(instants),
    duration_ms=maybe(counts),
    response_status=maybe(counts),
    response=maybe(messages),
    failure=maybe(st.sampled_from(CallFailure)),
    message=texts,
)
events = st.builds(
    CallEvent,
    event_id=texts,
    type=st.sampled_from(CallEventType),
    tenant_id=names,
    aggregate_id=names,
    sequence=ordinals,
    occurred_at=instants,
    correlation_id=texts,
    causation_id=maybe(texts),
    payload_json=texts,
)
values: st.SearchStrategy[Value] = st.one_of(
    st.builds(CatalogueSecret, texts, raw),
    namespaces,
    api_keys,
    timers,
    calls,
    executions,
    st.builds(OutboxEvent, events, maybe(instants)),
    st.builds(Unreadable, st.sampled_from(Kind), st.lists(texts, max_size=3).map(tuple), texts),
)
assert MIN_INSTANT.tzinfo is UTC
