"""Parses the records of a file, strictly. ``records`` writes them."""

from __future__ import annotations

import json
from base64 import b64decode
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel

from duetime.domain.api_keys import ApiKey
from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.namespaces import EncryptedSecret, Misfire, Namespace, NamespaceSettings, Pause
from duetime.domain.principals import Role
from duetime.domain.service_calls import (
    CallFailure,
    CallOutcome,
    CallStatus,
    Method,
    RequestSpec,
    ServiceCall,
)
from duetime.domain.shards import MAX_DEDICATED_SHARD
from duetime.domain.timers import Failure, FailureReason, Timer, TimerContent, TimerState
from duetime.domain.times import parse_instant
from duetime.stores.port.outbox import OutboxEvent
from duetime.transfer.records import CatalogueSecret, Kind, Unreadable, Value

NO_SHARD = 0
"""A placeholder: the target's namespace decides the shard."""

_parse_instant = lru_cache(maxsize=4096)(parse_instant)


def _instant(value: Any) -> datetime:
    if not isinstance(value, str):
        raise ValueError("must be an RFC 3339 time with an offset, like 2026-12-20T15:30:00Z")
    return _parse_instant(value)


def _bytes(value: Any) -> bytes:
    try:
        return b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise ValueError("must be base64") from None


def _object_text(value: str) -> str:
    if not isinstance(json.loads(value), dict):
        raise ValueError("must be the text of a JSON object")
    return value


Instant = Annotated[datetime, BeforeValidator(_instant)]
Bytes = Annotated[bytes, BeforeValidator(_bytes)]
UnknownJson = Annotated[str, AfterValidator(_object_text)]
_MAX_WHOLE = 2**63 - 1
"""The largest integer that stores hold."""
Count = Annotated[int, Field(ge=0, le=_MAX_WHOLE)]
Ordinal = Annotated[int, Field(ge=1, le=_MAX_WHOLE)]


class Model(BaseModel):
    model_config = ConfigDict(
        strict=True,
        extra="forbid",
        frozen=True,
        alias_generator=to_camel,
        hide_input_in_errors=True,
    )


class SecretModel(Model):
    kind: Literal["secret"]
    name: str
    value: Bytes

    def to_domain(self) -> CatalogueSecret:
        return CatalogueSecret(self.name, self.value)


class WebhookModel(Model):
    url: str
    event_types: tuple[str, ...] | None = None
    enabled: bool
    unknown_json: UnknownJson | None = None


class SettingsModel(Model):
    retry_policy_json: str | None = None
    max_in_flight: Ordinal | None = None
    rate_limit_per_second: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    webhook: WebhookModel | None = None
    misfire: Misfire | None = None
    paused_at: Instant | None = None
    pause_reason: str | None = None
    resumed_at: Instant | None = None
    deleting_since: Instant | None = None
    unknown_json: UnknownJson | None = None

    def to_domain(self) -> NamespaceSettings:
        webhook = self.webhook
        return NamespaceSettings(
            retry_policy_json=self.retry_policy_json,
            max_in_flight=self.max_in_flight,
            rate_limit_per_second=self.rate_limit_per_second,
            webhook=None
            if webhook is None
            else EventWebhook(
                url=webhook.url,
                event_types=webhook.event_types,
                is_enabled=webhook.enabled,
                unknown_json=webhook.unknown_json,
            ),
            misfire=self.misfire,
            pause=None if self.paused_at is None else Pause(self.paused_at, self.pause_reason),
            resumed_at=self.resumed_at,
            deleting_since=self.deleting_since,
            unknown_json=self.unknown_json,
        )


class EncryptedSecretModel(Model):
    id: str
    ciphertext: Bytes
    created_at: Instant
    expires_at: Instant | None = None


class NamespaceModel(Model):
    kind: Literal["namespace"]
    name: Annotated[str, Field(min_length=1, max_length=63)]
    tenant_id: str
    num_shards: Annotated[int, Field(ge=1, le=MAX_DEDICATED_SHARD)]
    dedicated: bool
    revision: Ordinal
    created_at: Instant
    settings: SettingsModel = SettingsModel()
    secrets: tuple[EncryptedSecretModel, ...] = ()

    def to_domain(self) -> Namespace:
        secrets = tuple(
            EncryptedSecret(each.id, each.ciphertext, each.created_at, each.expires_at) for each in self.secrets
        )
        return Namespace(
            name=self.name,
            num_shards=self.num_shards,
            first_shard=NO_SHARD,
            dedicated=self.dedicated,
            created_at=self.created_at,
            settings=self.settings.to_domain(),
            secrets=secrets,
            revision=self.revision,
            tenant_id=self.tenant_id,
        )


class ApiKeyModel(Model):
    kind: Literal["apiKey"]
    tenant_id: str
    id: str
    role: Role
    name: str = ""
    secret_hash: Bytes
    created_at: Instant
    expires_at: Instant | None = None

    def to_domain(self) -> ApiKey:
        return ApiKey(
            key_id=self.id,
            tenant_id=self.tenant_id,
            role=self.role,
            name=self.name,
            secret_hash=self.secret_hash,
            created_at=self.created_at,
            expires_at=self.expires_at,
        )


class FailureModel(Model):
    reason: FailureReason
    message: str = ""
    at: Instant
    status: Count | None = None


class TimerModel(Model):
    kind: Literal["timer"]
    namespace: str
    id: str
    state: TimerState
    revision: Ordinal
    firing_id: str
    attempts: Count
    digest: str
    execute_at: Instant
    next_attempt_at: Instant | None = None
    created_at: Instant
    updated_at: Instant
    fired_at: Instant | None = None
    rearmed_at: Instant | None = None
    expires_at: Instant | None = None
    callback_url: str
    callback_timeout_seconds: Count
    expire_after_ms: Count | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    headers_json: str | None = None
    retry_policy_json: str | None = None
    payload_json: str | None = None
    failure: FailureModel | None = None
    attempt_log_json: str | None = None

    def to_domain(self) -> Timer:
        if self.state.is_finished != (self.next_attempt_at is None):
            raise ValueError("a timer has nextAttemptAt unless it has finished")
        failure = self.failure
        return Timer(
            namespace=self.namespace,
            timer_id=self.id,
            shard_id=NO_SHARD,
            content=TimerContent(
                execute_at=self.execute_at,
                callback_url=self.callback_url,
                payload_json=self.payload_json,
                headers_json=self.headers_json,
                retry_policy_json=self.retry_policy_json,
                callback_timeout_seconds=self.callback_timeout_seconds,
                correlation_id=self.correlation_id,
                tags=self.tags,
                expire_after_ms=self.expire_after_ms,
            ),
            digest=self.digest,
            state=self.state,
            revision=self.revision,
            firing_id=self.firing_id,
            attempts=self.attempts,
            next_attempt_at=self.next_attempt_at,
            created_at=self.created_at,
            updated_at=self.updated_at,
            fired_at=self.fired_at,
            failure=None if failure is None else Failure(failure.reason, failure.message, failure.at, failure.status),
            expires_at=self.expires_at,
            rearmed_at=self.rearmed_at,
            attempt_log=self.attempt_log_json,
        )


class RequestModel(Model):
    method: Method
    url: str
    headers_json: str | None = None
    body_json: str | None = None
    body_bytes: Count


class OutcomeModel(Model):
    execution_id: str
    http_status: Count | None = None
    reason: CallFailure | None = None
    message: str = ""


class ServiceCallModel(Model):
    kind: Literal["serviceCall"]
    tenant_id: str
    id: str
    name: str
    status: CallStatus
    revision: Ordinal
    digest: str
    submitted_at: Instant
    updated_at: Instant
    due_at: Instant
    registered_at: Instant
    reached_at: Instant | None = None
    started_at: Instant | None = None
    finished_at: Instant | None = None
    wake_at: Instant | None = None
    expires_at: Instant | None = None
    timeout_seconds: Count
    retry_policy_json: str | None = None
    correlation_id: str
    idempotency_key: str | None = None
    rerun_of: str | None = None
    tags: tuple[str, ...] = ()
    starred: bool
    attempts: Count
    execution_id: str | None = None
    outcome: OutcomeModel | None = None
    event_count: Count
    last_event_id: str | None = None
    request: RequestModel

    def to_domain(self) -> ServiceCall:
        if self.status.is_finished != (self.wake_at is None) or self.status.is_finished != bool(self.finished_at):
            raise ValueError("a service call has wakeAt until it is finished, and finishedAt from then on")
        same = self.model_dump(exclude={"kind", "id", "request", "outcome"})
        return ServiceCall(
            **same,
            call_id=self.id,
            shard_id=NO_SHARD,
            request=RequestSpec(**self.request.model_dump()),
            outcome=None if self.outcome is None else CallOutcome(**self.outcome.model_dump()),
        )


class MessageModel(Model):
    headers: tuple[tuple[str, str], ...]
    body: str | None = None
    body_bytes: Count
    truncated: bool
    base64: bool

    def to_domain(self) -> LoggedMessage:
        return LoggedMessage(
            headers=self.headers,
            body=self.body,
            body_bytes=self.body_bytes,
            is_truncated=self.truncated,
            body_is_base64=self.base64,
        )


class ExecutionModel(Model):
    kind: Literal["execution"]
    tenant_id: str
    call_id: str
    id: str
    number: Ordinal
    status: ExecutionStatus
    started_at: Instant
    deadline_at: Instant
    finished_at: Instant | None = None
    duration_ms: Count | None = None
    method: Method
    url: str
    request: MessageModel
    response_status: Count | None = None
    response: MessageModel | None = None
    failure: CallFailure | None = None
    message: str = ""

    def to_domain(self) -> Execution:
        return Execution(
            **self.model_dump(exclude={"kind", "id", "request", "response"}),
            execution_id=self.id,
            request=self.request.to_domain(),
            response=None if self.response is None else self.response.to_domain(),
        )


class EventModel(Model):
    kind: Literal["event"]
    tenant_id: str
    call_id: str
    sequence: Ordinal
    id: str
    type: CallEventType
    occurred_at: Instant
    correlation_id: str
    causation_id: str | None = None
    published_at: Instant | None = None
    payload_json: str

    def to_domain(self) -> OutboxEvent:
        event = CallEvent(
            event_id=self.id,
            type=self.type,
            tenant_id=self.tenant_id,
            aggregate_id=self.call_id,
            sequence=self.sequence,
            occurred_at=self.occurred_at,
            correlation_id=self.correlation_id,
            causation_id=self.causation_id,
            payload_json=self.payload_json,
        )
        return OutboxEvent(event, self.published_at)


class UnreadableModel(Model):
    kind: Literal["unreadable"]
    of: Kind
    place: tuple[str, ...]
    reason: str

    def to_domain(self) -> Unreadable:
        return Unreadable(self.of, self.place, self.reason)


_AnyRecord: TypeAlias = (
    SecretModel
    | NamespaceModel
    | ApiKeyModel
    | TimerModel
    | ServiceCallModel
    | ExecutionModel
    | EventModel
    | UnreadableModel
)
_RECORDS: TypeAdapter[_AnyRecord] = TypeAdapter(Annotated[_AnyRecord, Field(discriminator="kind")])


def read_value(line: bytes) -> Value:
    """Parse a record. ``ValueError`` names the field and shows nothing of its value."""
    try:
        return _RECORDS.validate_json(line).to_domain()
    except ValidationError as error:
        raise ValueError(what_is_wrong(error)) from None


def what_is_wrong(error: ValidationError) -> str:
    """Describe the first error in one line."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    return f"{place}: {message}" if place else message
