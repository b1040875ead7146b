"""What an answer holds, for the OpenAPI document and for the tests, which hold every answer against these models.

Answers are written by ``encoding``, since a payload is spliced in as text.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Generic, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from duetime.domain.attempts import AttemptOutcome
from duetime.domain.namespaces import Misfire, NamespaceState
from duetime.domain.principals import Role
from duetime.domain.timers import FailureReason, TimerState

ItemT = TypeVar("ItemT")


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, alias_generator=to_camel, defer_build=True)


class FailureAnswer(Answer):
    """The last failed attempt."""

    reason: FailureReason
    message: str
    status: int | None = Field(description="the HTTP status of the receiver's answer, if there was one")
    at: datetime


class RetryPolicyAnswer(Answer):
    """A retry policy, whole. Durations are in whole units, e.g. 1h30m."""

    max_attempts: int = Field(ge=1, description="the first one included")
    max_attempts_duration: str | None = Field(description="from the first attempt, or a later redrive")
    initial_interval: str
    backoff_multiplier: float
    max_interval: str


class TimerAnswer(Answer):
    id: str
    namespace: str
    state: TimerState
    revision: int = Field(ge=1, description="counts changes; the ETag is this number in quotes")
    attempts: int = Field(ge=0, description="attempts of the present firing")
    execute_at: datetime = Field(description="the due time that was asked for")
    next_attempt_at: datetime | None = Field(description="null when finished")
    fired_at: datetime | None
    created_at: datetime
    updated_at: datetime
    failure: FailureAnswer | None
    callback_url: str
    callback_timeout_seconds: int
    expire_after: str | None = Field(description="a duration in whole units, e.g. 1h30m")
    correlation_id: str | None
    tags: list[str]
    headers: dict[str, str] | None
    retry_policy: RetryPolicyAnswer = Field(description="the one in force: its own, or else its namespace's")
    payload: Any = Field(description="the exact text that was given")


class AttemptAnswer(Answer):
    """One attempt: what was sent back, without secrets, and what the timer became by it."""

    number: int = Field(ge=1, description="within its firing")
    firing_id: str = Field(description="the webhook-id that was sent")
    started_at: datetime
    ended_at: datetime
    duration_ms: int = Field(ge=0)
    outcome: AttemptOutcome
    status: int | None = Field(description="the HTTP status of the answer, if there was one")
    reason: FailureReason | None
    error_class: str | None = Field(
        description="what went wrong when there was no answer, e.g. timeout, connect, tls"
    )
    message: str | None
    headers: dict[str, str] = Field(description="the most telling ones of the answer; secrets are redacted")
    body: str | None = Field(description="the beginning of the answer")
    body_bytes: int = Field(ge=0, description="how much of the answer was read")
    body_truncated: bool = Field(description="body is not the whole answer")


class NamespaceAnswer(Answer):
    name: str
    tenant_id: str = Field(description="the owner; never changes")
    revision: int = Field(ge=1, description="counts changes of settings and secrets; the ETag is this in quotes")
    num_shards: int
    dedicated: bool
    first_shard: int
    created_at: datetime
    max_in_flight: int | None
    rate_limit: float | None
    retry_policy: dict[str, Any] | None = Field(description="of timers without one of their own, as it was given")
    misfire: Misfire | None = Field(description="of timers that came due in a pause; null: fire")
    state: NamespaceState
    paused_at: datetime | None
    pause_reason: str | None
    unreadable: str | None = Field(
        description="in a list: why what is stored of it cannot be read; then its settings are null,"
        " what is not known of its shards is 0, and its timers wait"
    )


class NamespaceDeletionAnswer(Answer):
    """One step of a deletion. 200: the namespace is gone; 202: send the same request again."""

    removed: int = Field(description="timers that this step removed")
    done: bool


class SecretAnswer(Answer):
    id: str
    created_at: datetime
    expires_at: datetime | None = Field(description="null until another secret is to replace it")


class CreatedSecretAnswer(SecretAnswer):
    secret: str = Field(description="whsec_...; shown by this answer alone")
    previous: SecretAnswer | None = Field(description="the secret before it, which stays valid until it expires")


class ApiKeyAnswer(Answer):
    id: str
    tenant_id: str
    role: Role | None = Field(description="null when it cannot be read")
    name: str
    created_at: datetime
    expires_at: datetime | None = Field(description="null when it never does")
    unreadable: str | None = Field(description="why what is stored of it cannot be read; such a key lets nobody in")


class CreatedKeyAnswer(ApiKeyAnswer):
    key: str = Field(description="dtk_...; shown by this answer alone")


class PrincipalAnswer(Answer):
    """Who makes the request. All null where no key is asked for, and everything is allowed."""

    tenant_id: str | None
    role: Role | None
    key_id: str | None


class ShardOwnerAnswer(Answer):
    """What the owner of a shard told of itself when it claimed."""

    process_id: int | None
    service_version: str | None
    host: str | None


class ShardAnswer(Answer):
    """Who polls a shard. ``live`` is false when the lease has run out or was released."""

    shard_id: int
    version: int = Field(description="0 when it was never claimed")
    owner_id: str | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    live: bool = Field(description="by the store's clock")
    owner: ShardOwnerAnswer | None


class PageAnswer(Answer, Generic[ItemT]):
    """A page may be short, even empty, and not be the last: ``nextCursor`` tells."""

    items: list[ItemT]
    next_cursor: str | None


class TimerPage(PageAnswer[TimerAnswer]):
    """Timers in the order of shard, then id."""


class AttemptPage(PageAnswer[AttemptAnswer]):
    """The last attempts of a timer, oldest first, always on one page."""


class NamespacePage(PageAnswer[NamespaceAnswer]):
    """Namespaces in order of name."""


class SecretPage(PageAnswer[SecretAnswer]):
    """The secrets that are valid now, oldest first: at most two."""


class ApiKeyPage(PageAnswer[ApiKeyAnswer]):
    """The API keys of a tenant in order of creation, expired ones too."""


class ShardPage(PageAnswer[ShardAnswer]):
    """Shards in order of id."""


class FieldProblem(Answer):
    field: str = Field(description="the path of the value as it was sent, e.g. retryPolicy.maxAttempts")
    message: str


class Problem(Answer):
    """RFC 9457. ``code`` is stable; ``errors`` is there when the input is at fault."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[FieldProblem] | None = None
    request_id: str | None = Field(default=None, description="not in the items of a batch")


class CancelAnswer(Answer):
    id: str
    namespace: str
    attempt_under_way: bool = Field(description="an attempt may have been under way; its receiver may see it yet")


class CreatedItem(Answer):
    id: str | None
    status: int = Field(description="201 created, 200 existed with the same content, else as in problem")
    problem: Problem | None = None


class CancelledItem(CreatedItem):
    attempt_under_way: bool | None = None


class RedrivenItem(Answer):
    id: str
    status: int = Field(description="200 redriven, else as in problem")
    problem: Problem | None = None


class RedriveAnswer(Answer):
    """What this call did. There may be more: call again with ``nextCursor`` until it is null."""

    redriven: int
    skipped: int = Field(description="failed timers that were not redriven: unreadable, or changed meanwhile")
    examined: int
    next_cursor: str | None
    items: list[RedrivenItem] | None = Field(default=None, description="one per id, in order, when ids were given")


class CreatedBatch(Answer):
    items: list[CreatedItem]


class CancelledBatch(Answer):
    items: list[CancelledItem]


class HealthAnswer(Answer):
    status: Literal["ok", "unavailable"]
    version: str
    store: Literal["ok", "unavailable", "not_ready"]
    clock: Literal["ok", "differs", "unknown"] = Field(
        description="whether this machine's clock agrees with the store's, by which timers fire, to a second"
    )
    clock_offset_seconds: float | None = Field(
        description="how far this machine's clock is ahead; 0 within what can be told, null when it is unknown"
    )
    shards_given_back: int = Field(
        description="how many shards this process's poller has given back since it cannot read them"
    )
