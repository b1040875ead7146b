"""What the API answers about timers, namespaces, keys and shards, in Python's terms.

Times are in UTC. Fields of a newer server that are not here are passed over, and enums take values that they do not
know yet. Secrets, payloads and headers are not in ``repr``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any, Protocol, TypedDict, TypeVar

from duetime_client.decoding import OpenEnum
from duetime_client.errors import DuetimeError
from duetime_client.values import RetryPolicy, Target

_MILLISECONDS = timedelta(milliseconds=1)
_SECONDS = timedelta(seconds=1)


class TimerState(OpenEnum):
    SCHEDULED = "Scheduled"
    FIRING = "Firing"
    WAITING = "Waiting"
    """Its receiver took the work with a 202, and is to say when it is done."""
    FIRED = "Fired"
    FAILED = "Failed"
    CANCELLED = "Cancelled"


class FailureReason(OpenEnum):
    """Why an attempt of a timer failed."""

    HTTP_STATUS = "HttpStatus"
    NOT_OK = "NotOk"
    TIMEOUT = "Timeout"
    NACK = "Nack"
    NETWORK = "Network"
    REFUSED_URL = "RefusedUrl"
    REFUSED_ADDRESS = "RefusedAddress"
    EXPIRED = "Expired"
    UNREADABLE = "Unreadable"
    UNRECORDED = "Unrecorded"


class AttemptOutcome(OpenEnum):
    """What an attempt made of its timer."""

    FIRED = "Fired"
    RESCHEDULED = "Rescheduled"
    RETRY = "Retry"
    WAITING = "Waiting"
    FAILED = "Failed"


class NamespaceState(OpenEnum):
    ACTIVE = "Active"
    PAUSED = "Paused"
    """Its timers wait."""
    DELETING = "Deleting"
    """Nothing can be created in it any more."""


class Misfire(OpenEnum):
    """What becomes of timers that came due while their namespace was paused."""

    FIRE = "fire"
    EXPIRE = "expire"


class Dst(OpenEnum):
    """When a time of day occurs that does not exist, or happens twice, since clocks are changed."""

    ONCE = "once"
    SKIP = "skip"
    BOTH = "both"


class Role(OpenEnum):
    """From the least to the most: each may do all that the one before it may."""

    READER = "reader"
    WRITER = "writer"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The last failed attempt. ``status`` is of the receiver's answer, if there was one. ``escalation_id`` is the id
    of the timer that tells ``RetryPolicy.escalate_url`` or ``escalate_target`` of it."""

    reason: FailureReason
    message: str
    status: int | None
    at: datetime
    escalation_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Callback:
    """What timers and schedules have alike."""

    id: str
    namespace: str
    callback_url: str | None
    target: Target | None
    expire_after: timedelta | None
    correlation_id: str | None
    tags: tuple[str, ...]
    headers: Mapping[str, str] | None = field(repr=False)
    payload: Any = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCallback:
    """What a new timer or schedule sends. One of ``callback_url`` and ``target`` is needed."""

    callback_url: str | None = None
    target: Target | None = None
    payload: Any = field(default=None, repr=False)
    headers: Mapping[str, str] | None = field(default=None, repr=False)
    retry_policy: RetryPolicy | None = None
    timeout: timedelta | None = field(default=None, metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    expire_after: timedelta | None = None
    correlation_id: str | None = None
    tags: tuple[str, ...] | list[str] | None = None


class CallbackArguments(TypedDict, total=False):
    """``NewCallback``, as arguments of methods."""

    callback_url: str | None
    target: Target | None
    payload: Any
    headers: Mapping[str, str] | None
    retry_policy: RetryPolicy | None
    timeout: timedelta | None
    expire_after: timedelta | None
    correlation_id: str | None
    tags: tuple[str, ...] | list[str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Timer(Callback):
    """``execute_at`` is what was asked for, ``next_attempt_at`` when it fires next: None when it has finished.

    ``local_time``, in ``time_zone``, is what ``execute_at`` was computed from; None: it was asked for itself.
    ``attempts`` counts those of the present firing.
    """

    state: TimerState
    revision: int
    attempts: int
    execute_at: datetime
    local_time: str | None
    time_zone: str | None
    next_attempt_at: datetime | None
    fired_at: datetime | None
    created_at: datetime
    updated_at: datetime
    failure: Failure | None
    timeout: timedelta = field(metadata={"json": "timeoutSeconds", "unit": _SECONDS})
    retry_policy: RetryPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTimer(NewCallback):
    """A timer to create. One of ``execute_at``, ``delay`` and ``local_time`` is needed; without ``id`` the client
    makes a UUIDv7. ``local_time`` is like "2027-03-28T09:00", by the clocks of ``time_zone``.
    """

    execute_at: datetime | None = None
    delay: timedelta | None = None
    local_time: str | None = None
    time_zone: str | None = None
    dst: Dst | str | None = None
    id: str | None = None


class TimerArguments(CallbackArguments, total=False):
    """``NewTimer``, as arguments of methods."""

    execute_at: datetime | None
    delay: timedelta | None
    local_time: str | None
    time_zone: str | None
    dst: Dst | str | None


class TimerFilter(TypedDict, total=False):
    """Arguments that select timers: all must hold. ``from`` is inclusive, ``to`` exclusive. ``failed_from`` and
    ``failed_to`` select failed timers alone."""

    reason: FailureReason | str | None
    tag: str | None
    correlation_id: str | None
    due_from: datetime | None
    due_to: datetime | None
    failed_from: datetime | None
    failed_to: datetime | None


class AnswerArguments(TypedDict, total=False):
    """What an answer to a firing may say. ``attempt`` None: the present one. ``within``, until the next answer, goes
    with a heartbeat; ``message`` and ``retry`` go with a nack."""

    attempt: int | None
    within: timedelta | None
    message: str | None
    retry: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deleted:
    """``attempt_in_flight``: its receiver may see one more callback. None when that is not known, since the answer
    that said so was lost on its way."""

    id: str
    attempt_in_flight: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedTimers:
    """``skipped`` were changed by others meanwhile. ``next_cursor``: of a page that is not the last."""

    affected: int
    skipped: int
    next_cursor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """What is stored of an attempt whose receiver took the work, after an answer. ``answer_by``: until when another
    one is awaited; None when none is."""

    firing_id: str
    attempt: int
    outcome: AttemptOutcome
    answer_by: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemResult:
    """What became of one item of a batch. ``error`` is None when it was done, ``id`` when nothing was made of it.

    ``status`` is what the single request would have answered, None when there was no answer. ``attempt_in_flight``
    is told of timers that were removed, as in ``Deleted``.
    """

    id: str | None
    status: int | None
    error: DuetimeError | None = None
    attempt_in_flight: bool | None = None

    @property
    def is_ok(self) -> bool:
        return self.error is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One attempt of a timer: what came back, without secrets, and what the timer became by it.

    ``firing_id`` is the ``webhook-id`` that was sent. ``error_class`` says why there was no answer.
    """

    number: int
    firing_id: str
    started_at: datetime
    finished_at: datetime
    duration: timedelta = field(metadata={"json": "durationMs", "unit": _MILLISECONDS})
    outcome: AttemptOutcome
    status: int | None
    reason: FailureReason | None
    error_class: str | None
    message: str | None
    headers: Mapping[str, str] = field(repr=False)
    body: str | None = field(repr=False)
    body_bytes: int
    body_truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierShards:
    """The shards to which new timers went, or go, until ``until``."""

    num_shards: int
    first_shard: int
    until: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Namespace:
    """``rate_limit`` counts attempts started per second. What is None is not limited here, or as it is by default.
    ``earlier_shards``: of one that was resharded, the oldest first."""

    name: str
    tenant_id: str
    revision: int
    num_shards: int
    dedicated: bool
    first_shard: int
    created_at: datetime
    max_in_flight: int | None
    rate_limit: float | None
    retry_policy: RetryPolicy | None
    state: NamespaceState
    misfire: Misfire | None
    min_schedule_interval: timedelta | None
    paused_at: datetime | None
    pause_reason: str | None
    unreadable: str | None = None
    """In a list: why what is stored of it cannot be read. Its timers wait."""
    earlier_shards: tuple[EarlierShards, ...] = ()


class NamespaceArguments(TypedDict, total=False):
    """What ``put`` sets of a namespace."""

    num_shards: int
    dedicated: bool
    retry_policy: RetryPolicy | None
    max_in_flight: int | None
    rate_limit: float | None
    misfire: Misfire | str | None
    min_schedule_interval: timedelta | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceDeletion:
    """One step: how many timers it removed, and whether the namespace is gone."""

    removed: int
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SigningSecret:
    """``expires_at`` is None until another secret is to replace it."""

    id: str
    created_at: datetime
    expires_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedSecret(SigningSecret):
    """``secret`` (``whsec_...``) is shown this once. ``previous`` stays valid until it expires."""

    secret: str = field(repr=False)
    previous: SigningSecret | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """``expires_at`` is None when it never does, ``role`` when the key cannot be read: then it lets nobody in."""

    id: str
    tenant_id: str
    role: Role | None
    name: str
    created_at: datetime
    expires_at: datetime | None
    unreadable: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedApiKey(ApiKey):
    """``key`` (``dtk_...``) is shown this once."""

    key: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Redriven:
    """What a redrive by filter did. ``skipped`` are failed timers that are unreadable or were changed meanwhile.
    ``next_cursor``: of a page that is not the last."""

    redriven: int
    skipped: int
    examined: int
    next_cursor: str | None


class ClockEffect(OpenEnum):
    """What a change of clocks does to an occurrence."""

    MOVED = "moved"
    LEFT_OUT = "leftOut"
    DOUBLED = "doubled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """``local_time`` is ``scheduled_at`` in the schedule's time zone, with its offset. ``due_at`` has its delay."""

    scheduled_at: datetime
    local_time: str
    due_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """Clocks are set from one local time to another, each with its offset, and an occurrence is affected."""

    effect: ClockEffect
    set_from: str
    set_to: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePreview:
    """``description`` says in English when it occurs. ``tzdata_version`` is of the rules of time zones.

    ``clock_changes`` are those within a year that affect an occurrence.
    """

    description: str
    time_zone: str
    tzdata_version: str
    items: tuple[Occurrence, ...]
    clock_changes: tuple[ClockChange, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardOwner:
    """What the owner of a shard told of itself when it claimed."""

    process_id: int | None
    service_version: str | None
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Who polls it. ``live`` is false when the lease has run out or was released."""

    shard_id: int
    version: int
    owner_id: str | None
    claimed_at: datetime | None
    lease_expires_at: datetime | None
    live: bool
    owner: ShardOwner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who asks: the tenant, role and id of the API key. All None where the server asks for none."""

    tenant_id: str | None
    role: Role | None
    key_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """``status`` is "ok" or "unavailable"; ``store`` can be "not_ready" too.

    ``clock``: whether the server's clock agrees with its store's ("ok", "differs", "unknown"). It is ahead by
    ``clock_offset_seconds``; timers fire by the store's all the same. ``shards_given_back``: how many the poller of
    the server's process has given back since it cannot read them.
    """

    status: str
    version: str
    store: str
    clock: str = "unknown"
    clock_offset_seconds: float | None = None
    shards_given_back: int = 0

    @property
    def is_ok(self) -> bool:
        return self.status == "ok"


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


PageT = TypeVar("PageT", bound=_Page)


def summed(one: PageT, following: PageT) -> PageT:
    """Add up what two pages did. Of a time the following page's counts, if it has one."""
    values: dict[str, Any] = {}
    for each in fields(one):  # type: ignore[arg-type]  # all of them are dataclasses
        before, after = getattr(one, each.name), getattr(following, each.name)
        values[each.name] = before + after if isinstance(after, int) else after or before
    return type(one)(**values | {"next_cursor": following.next_cursor})
