"""The timer, its life, and the pure functions that move it from one state to the next.

State machine (docs/state-machine.md): ``Scheduled -> Fired``, ``Scheduled -> Scheduled`` (retry, reschedule),
``Scheduled -> Failed``, ``Scheduled -> Cancelled``, ``Failed -> Scheduled`` (redrive). ``Firing`` is stored only for
parked timers, ``Waiting`` where a receiver has taken the work and is to say when it is done (``domain.answers``).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import Enum, StrEnum
from functools import cached_property
from typing import Final
from uuid import UUID

from duetime.domain import ids
from duetime.domain.errors import InvalidInput
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.namespaces import Namespace
from duetime.domain.retry import DEFAULT_RETRY_POLICY, policy_in_force
from duetime.domain.schedules import Schedule
from duetime.domain.targets import check_target_body, is_arn
from duetime.domain.times import MILLISECOND, to_milliseconds

DEFAULT_CALLBACK_TIMEOUT_SECONDS = 30
MAX_CALLBACK_TIMEOUT_SECONDS = 900
MAX_PAYLOAD_BYTES = 256 * 1024
MAX_EXPIRE_AFTER_MS = 366 * 86_400_000
SERVICE_CALLS: Final = "duetime:service-calls"
"""The ``callback_url`` of a schedule that submits service calls. Its payload is their template
(``domain.call_templates``)."""


class TimerState(StrEnum):
    SCHEDULED = "Scheduled"
    FIRING = "Firing"
    WAITING = "Waiting"
    FIRED = "Fired"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_finished(self) -> bool:
        return self in (TimerState.FIRED, TimerState.FAILED, TimerState.CANCELLED)

    @property
    def has_open_attempt(self) -> bool:
        """Tell whether the stored state says that an attempt is in flight."""
        return self in (TimerState.FIRING, TimerState.WAITING)


class FailureReason(StrEnum):
    """The reason for which the last attempt failed, or a timer cannot be fired at all."""

    HTTP_STATUS = "HttpStatus"
    NOT_OK = "NotOk"
    TIMEOUT = "Timeout"
    """Also: no answer to a firing that waits, until its deadline."""
    NACK = "Nack"
    """The receiver had taken the work, and has said that it failed."""
    NETWORK = "Network"
    REFUSED_URL = "RefusedUrl"
    REFUSED_ADDRESS = "RefusedAddress"
    """The name in the URL led to an address that the egress policy refuses."""
    EXPIRED = "Expired"
    """It was too late to fire it: ``expire_after_ms`` had passed."""
    UNREADABLE = "Unreadable"
    UNRECORDED = "Unrecorded"
    """The store refuses, for good, to store what an attempt led to."""


@dataclass(frozen=True, slots=True)
class Failure:
    """The last failed attempt. ``message`` never holds secrets or header values. ``escalation_id`` is the id of the
    timer that escalates it."""

    reason: FailureReason
    message: str
    at: datetime
    status: int | None = None
    escalation_id: str | None = None


class Unset(Enum):
    UNSET = "unset"


UNSET: Final = Unset.UNSET


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class TimerContent:
    """The content that the client gave. JSON values are kept as the exact text that will be sent or echoed.

    ``execute_at`` is the due time asked for. ``payload_json`` is None when no payload was given (sent as
    null). ``headers_json`` is an object of strings, ``retry_policy_json`` an object as in ``domain.retry``.
    ``expire_after_ms``: no attempt is begun later than that after the due time (None: however late it is).
    ``timing_json`` is what ``execute_at`` was computed from: the local time of a timer (``recurrence.local_due``), or
    the times of a schedule (``recurrence.stored``). None: an instant was asked for. A schedule with the
    ``callback_url`` ``SERVICE_CALLS`` sends nothing: it submits what its payload describes.
    """

    execute_at: datetime
    callback_url: str
    payload_json: str | None = None
    headers_json: str | None = None
    retry_policy_json: str | None = None
    callback_timeout_seconds: int = DEFAULT_CALLBACK_TIMEOUT_SECONDS
    correlation_id: str | None = None
    tags: tuple[str, ...] = ()
    expire_after_ms: int | None = None
    timing_json: str | None = None


def is_too_late(armed_at: datetime, expire_after_ms: int | None, now: datetime) -> bool:
    return expire_after_ms is not None and (now - armed_at) // MILLISECOND > expire_after_ms


@hot_dataclass(frozen=True, kw_only=True)
class Timer:
    """A stored timer.

    ``next_attempt_at`` is the key of the due index: ``content.execute_at``, or later while a retry waits, the timer
    is parked or an answer is awaited; None when finished (the index is sparse). ``revision`` counts changes from 1.
    ``firing_id`` names the logical firing: kept by retries and redrives, renewed by anything that makes it
    another message. ``digest`` identifies the content as it was asked for. ``expires_at`` is set when finished.
    ``rearmed_at`` is when it was last redriven or fired by hand: how long it may be tried counts from then at least.
    ``attempt_log`` is the JSON text of its last attempts (``domain.attempts``).
    ``schedule`` is that of a timer that is a schedule, where it stands now. A timer that is an occurrence of one has
    it as it stood then: its ``pending`` is the occurrence, and the timer has no ``timing_json``.
    ``elsewhere``: of a new one, the other shards where one with its id may be (``Namespace.shards_of``).
    """

    namespace: str
    timer_id: str
    shard_id: int
    content: TimerContent
    digest: str
    state: TimerState
    revision: int
    firing_id: str
    attempts: int
    next_attempt_at: datetime | None
    created_at: datetime
    updated_at: datetime
    fired_at: datetime | None = None
    failure: Failure | None = None
    expires_at: datetime | None = None
    rearmed_at: datetime | None = None
    attempt_log: str | None = None
    schedule: Schedule | None = None
    elsewhere: tuple[int, ...] = field(default=(), compare=False)

    @cached_property
    def schedule_id(self) -> str | None:
        """Return the schedule that it is, or is an occurrence of."""
        return ids.schedule_id_of(self.timer_id)

    @cached_property
    def is_schedule(self) -> bool:
        return ids.is_schedule(self.timer_id)

    @property
    def submits_call(self) -> bool:
        """Tell whether it is a schedule, or an occurrence of one, that submits service calls."""
        return self.content.callback_url == SERVICE_CALLS

    @property
    def timer_uuid(self) -> UUID:
        return ids.timer_uuid(self.namespace, self.timer_id)

    @property
    def is_unreadable(self) -> bool:
        """Tell whether this is what is left of a timer that cannot be read as it is stored."""
        return self.failure is not None and self.failure.reason is FailureReason.UNREADABLE

    @property
    def armed_at(self) -> datetime:
        """Return the start of ``expireAfter``: the due time, or a later redrive."""
        execute_at, rearmed_at = self.content.execute_at, self.rearmed_at
        return execute_at if rearmed_at is None or rearmed_at < execute_at else rearmed_at

    def is_too_late(self, now: datetime) -> bool:
        """Tell whether it is too late for another attempt (``expire_after_ms``)."""
        limit_ms = self.content.expire_after_ms
        return limit_ms is not None and is_too_late(self.armed_at, limit_ms, now)

    @property
    def lateness_limit(self) -> str:
        """Describe, for people, how late an attempt may start. Only for a timer that has such a limit."""
        assert self.content.expire_after_ms is not None
        return f"within {self.content.expire_after_ms / 1000:g} s of its due time (expireAfter)"

    def is_expired(self, now: datetime) -> bool:
        """Tell whether the store may have removed it already; such a timer reads as absent."""
        return self.expires_at is not None and self.expires_at <= now

    def attempt_may_be_in_flight(self, now: datetime) -> bool:
        """Tell whether an attempt may be in flight: parked, or due and not recorded yet."""
        return self.state.has_open_attempt or (self.next_attempt_at is not None and self.next_attempt_at <= now)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerChange:
    """A partial update: what is UNSET stays. None clears an optional value."""

    execute_at: datetime | Unset = UNSET
    callback_url: str | Unset = UNSET
    payload_json: str | Unset | None = UNSET
    headers_json: str | Unset | None = UNSET
    retry_policy_json: str | Unset | None = UNSET
    callback_timeout_seconds: int | Unset = UNSET
    correlation_id: str | Unset | None = UNSET
    tags: tuple[str, ...] | Unset = UNSET
    expire_after_ms: int | Unset | None = UNSET
    timing_json: str | Unset | None = UNSET

    def given(self) -> dict[str, object]:
        """Return the fields that are set."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not UNSET}


def check_message(content: TimerContent) -> None:
    """Refuse what its target, or the one that it escalates to, does not take.

    Raises ``InvalidInput`` and ``PayloadTooLarge``.
    """
    is_to_target = is_arn(content.callback_url)
    if is_to_target and content.headers_json is not None:
        raise InvalidInput("headers", "cannot be given with target")
    if content.payload_json is not None:
        escalate_url = policy_in_force(content.retry_policy_json, DEFAULT_RETRY_POLICY).escalate_url
        if is_to_target or (escalate_url is not None and is_arn(escalate_url)):
            check_target_body("payload", content.payload_json)


class Rearm(Enum):
    """What is done to a timer by hand: it is made due, or ended."""

    REDRIVE = "redrive"
    """A failed timer is tried again, with all its attempts ahead."""
    FIRE = "fire"
    """A timer that waits is fired now instead of later."""
    CANCEL = "cancel"
    """A timer that waits ends, and stays readable."""


def content_digest(content: TimerContent, *, delay_seconds: float | None = None) -> str:
    """Identify a request's content, so that a repeated create can be told from a conflicting one.

    With ``delay_seconds`` the delay counts and not the time it led to: the same request sent again is the same. So do
    the times that ``execute_at`` was computed from: the rules of time zones may have changed.
    """
    has_due = delay_seconds is None and content.timing_json is None
    parts = [
        to_milliseconds(content.execute_at) if has_due else None,
        delay_seconds if content.timing_json is None else None,
        content.callback_url,
        content.payload_json,
        content.headers_json,
        content.retry_policy_json,
        content.callback_timeout_seconds,
        content.correlation_id,
        content.tags,
    ]
    if content.expire_after_ms is not None:
        parts.append(content.expire_after_ms)
    if content.timing_json is not None:
        parts.append(content.timing_json)
    # ``ascii`` tells all of these apart, and takes a third of the time of JSON.
    return hashlib.blake2b(ascii(parts).encode(), digest_size=16).hexdigest()


def new_timer(
    namespace: Namespace,
    timer_id: str,
    content: TimerContent,
    *,
    digest: str,
    firing_id: str,
    now: datetime,
) -> Timer:
    """Return the first revision of a timer. Raises ``NamespaceResharding``."""
    shard_id, *elsewhere = namespace.shards_of_new(timer_id, now)
    return Timer(
        namespace=namespace.name,
        timer_id=timer_id,
        shard_id=shard_id,
        elsewhere=tuple(elsewhere),
        content=content,
        digest=digest,
        state=TimerState.SCHEDULED,
        revision=1,
        firing_id=firing_id,
        attempts=0,
        next_attempt_at=content.execute_at,
        created_at=now,
        updated_at=now,
    )


def repeats(stored: Timer, new: Timer) -> bool:
    """Tell whether replacing ``stored`` by ``new`` repeats an earlier request, whatever its state is now.

    Another firing needs another time, a fire or a redrive. An unreadable timer is not repeated: the same content
    repairs it.
    """
    return stored.digest == new.digest and not stored.is_unreadable


def replaced(stored: Timer, new: Timer, *, updated_at: datetime | None = None) -> Timer:
    """Return ``new`` in the place of ``stored``: the next revision, with the age of the stored one."""
    return replace(
        new, revision=stored.revision + 1, created_at=stored.created_at, updated_at=updated_at or new.updated_at
    )


def changed(timer: Timer, change: TimerChange, *, firing_id: str, now: datetime) -> Timer:
    """Return ``timer`` with ``change`` applied. The caller has checked that it is not finished.

    Another message, or another time, is a new firing with its attempts ahead; a message waits out the back-off of
    the one before, unless that has an open attempt. Any other change (labels, retry policy, timeout, expiry) leaves
    the firing alone, and the attempt that may be in flight: its outcome is recorded beside the change. Raises as
    ``check_message``.
    """
    content = replace(timer.content, **change.given())  # type: ignore[arg-type]  # the fields' own types
    check_message(content)
    labelled = replace(
        timer, content=content, digest=content_digest(content), revision=timer.revision + 1, updated_at=now
    )
    if _firing(content) == _firing(timer.content):
        return labelled
    has_own_time = timer.state.has_open_attempt or content.execute_at != timer.content.execute_at
    return replace(
        labelled,
        state=TimerState.SCHEDULED,
        firing_id=firing_id,
        attempts=0,
        failure=None,
        rearmed_at=None,
        next_attempt_at=content.execute_at if has_own_time else timer.next_attempt_at,
    )


def _firing(content: TimerContent) -> tuple[object, ...]:
    """Return what identifies a firing: what is sent, and when."""
    return content.execute_at, content.callback_url, content.payload_json, content.headers_json


def rearmed(timer: Timer, rearm: Rearm, *, now: datetime, expires_at: datetime | None = None) -> Timer | None:
    """Return ``timer`` due at ``now``; None when its state does not allow it (REDRIVE: failed, FIRE: scheduled).

    CANCEL: see ``_cancelled``. ``expires_at`` is for it alone.

    It stays the same firing, so a receiver that did get it recognises it, and ``execute_at`` stays what was asked
    for. ``failure`` stays until the next outcome. FIRE of a timer that is due already is the timer itself: an
    attempt of this very revision may be in flight, and another revision would only be fired twice.
    """
    if rearm is Rearm.CANCEL:
        return _cancelled(timer, now=now, expires_at=expires_at)
    wanted = TimerState.FAILED if rearm is Rearm.REDRIVE else TimerState.SCHEDULED
    if timer.state is not wanted:
        return None
    if timer.next_attempt_at is not None and timer.next_attempt_at <= now:
        return timer
    return replace(
        timer,
        state=TimerState.SCHEDULED,
        revision=timer.revision + 1,
        attempts=0 if rearm is Rearm.REDRIVE else timer.attempts,
        next_attempt_at=now,
        rearmed_at=now,
        expires_at=None,
        updated_at=now,
    )


def _cancelled(timer: Timer, *, now: datetime, expires_at: datetime | None) -> Timer | None:
    """Return ``timer`` as it ends by hand, or as it is when it has; None in any other state.

    Attempts, failure and log stay. The outcome of an attempt that is in flight is not recorded any more.
    """
    if timer.state is TimerState.CANCELLED:
        return timer
    if timer.state is not TimerState.SCHEDULED:
        return None
    return replace(
        timer,
        state=TimerState.CANCELLED,
        revision=timer.revision + 1,
        next_attempt_at=None,
        expires_at=expires_at,
        updated_at=now,
    )
