"""The service call: a tenant's HTTP request with a due time. docs/service-calls.md tells its life.

State machine: ``Scheduled -> Running -> Succeeded | Failed``, and ``Cancelled`` from either while no execution is
open; ``domain.call_steps`` makes every step. A call has exactly one timer (``timer_of``), whose row is written in
the same transaction as the call.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from duetime.domain.errors import CallFinished, CallRunning
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.retry import RetryPolicy, read_retry_policy
from duetime.domain.timers import UNSET, Timer, TimerContent, TimerState, Unset

DEFAULT_TIMEOUT_SECONDS = 30
MAX_TIMEOUT_SECONDS = 900
MAX_NAME_CHARACTERS = 200
MAX_BODY_BYTES = 256 * 1024
ONE_ATTEMPT: Final = RetryPolicy(max_attempts=1)
"""The default: a request that may have had its effect is not sent twice unless asked for."""
CALLS_PREFIX = "calls@"


class Method(StrEnum):
    GET = "GET"
    POST = "POST"
    PUT = "PUT"
    PATCH = "PATCH"
    DELETE = "DELETE"


class CallStatus(StrEnum):
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    CANCELLED = "Cancelled"

    @property
    def is_finished(self) -> bool:
        return self in (CallStatus.SUCCEEDED, CallStatus.FAILED, CallStatus.CANCELLED)


class CallFailure(StrEnum):
    """The reason for which an execution or a call failed."""

    HTTP_STATUS = "HttpStatus"
    """The answer was no 2xx."""
    TIMEOUT = "Timeout"
    """No complete answer in time, or nobody came back to tell of it: the watchdog ended it."""
    NETWORK = "Network"
    REFUSED_URL = "RefusedUrl"
    REFUSED_ADDRESS = "RefusedAddress"
    UNREADABLE = "Unreadable"
    """What is stored cannot be read: only lists show it so, and nothing is sent."""


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class RequestSpec:
    """The request as the tenant gave it.

    ``headers_json`` is an object of strings. ``body_json`` is the exact JSON text of what was given as body: a
    string is sent as its text, any other value as the JSON text itself. In lists it is left out:
    ``body_bytes`` tells the length of ``body_json`` in UTF-8 always.
    """

    method: Method
    url: str
    headers_json: str | None = None
    body_json: str | None = None
    body_bytes: int = 0

    def without_body(self) -> RequestSpec:
        return replace(self, body_json=None)


def request_spec(*, method: Method, url: str, headers_json: str | None, body_json: str | None) -> RequestSpec:
    """Return a request with ``body_bytes`` counted."""
    body_bytes = 0 if body_json is None else len(body_json.encode(errors="surrogatepass"))
    return RequestSpec(method=method, url=url, headers_json=headers_json, body_json=body_json, body_bytes=body_bytes)


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class CallContent:
    """The content that the client gave. One that is ``starred`` never expires.

    A field that is added here is taken from requests, stored, and shown under its name; where it is written, see
    ``api.service_calls`` and ``stores.entities``.
    """

    name: str
    request: RequestSpec
    timeout_seconds: int = DEFAULT_TIMEOUT_SECONDS
    retry_policy_json: str | None = None
    correlation_id: str
    tags: tuple[str, ...] = ()
    starred: bool = False

    @property
    def retry_policy(self) -> RetryPolicy:
        if self.retry_policy_json is None:
            return ONE_ATTEMPT
        try:
            return read_retry_policy(self.retry_policy_json, default=ONE_ATTEMPT)
        except ValueError:  # validated when accepted: only a damaged row gets here
            return ONE_ATTEMPT


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Submission(CallContent):
    """A validated submission of a tenant. ``due_at`` None: now.

    ``digest`` identifies what was submitted, for ``idempotency_key``. ``rerun_of``: the call that this one repeats.
    """

    digest: str
    due_at: datetime | None
    idempotency_key: str | None = None
    rerun_of: str | None = None


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class CallOutcome:
    """The outcome of a finished call, or of the last execution of one that will be retried.

    ``http_status`` is that of the response, None when there was none. ``message`` holds no secrets, no header
    values and nothing of the response. The response itself is in the execution log under ``execution_id``.
    """

    execution_id: str
    http_status: int | None = None
    reason: CallFailure | None = None
    message: str = ""


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class ServiceCall(CallContent):
    """A stored service call. All times are UTC with whole milliseconds.

    - ``call_id``: a UUIDv7 made at ``submitted_at``, so ids sort by submission; unique within the tenant.
    - ``revision`` counts changes from 1 and is its timer's revision too.
    - ``due_at``, ``registered_at``, ``reached_at``: the timer of the seed. ``registered_at`` is when the due time
      was last set; ``reached_at`` is set once for each, when the due time was found reached.
    - ``wake_at``: when its timer is due next: the due time; while an execution is open, the time at which the
      watchdog ends it; between two attempts, the next one. None when finished.
    - ``attempts`` counts executions begun; ``execution_id`` is the one that is open.
    - ``outcome``: of the last execution that ended.
    - ``event_count`` and ``last_event_id``: of the events written so far.
    - ``digest``, ``idempotency_key`` and ``rerun_of`` are those of its ``Submission``.
    - ``expires_at``: when a finished call may be removed; None: not by itself.
    """

    tenant_id: str
    call_id: str
    shard_id: int
    digest: str
    status: CallStatus
    revision: int
    submitted_at: datetime
    updated_at: datetime
    due_at: datetime
    registered_at: datetime
    reached_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    wake_at: datetime | None
    idempotency_key: str | None = None
    rerun_of: str | None = None
    attempts: int = 0
    execution_id: str | None = None
    outcome: CallOutcome | None = None
    event_count: int = 0
    last_event_id: str | None = None
    expires_at: datetime | None = None

    @property
    def namespace(self) -> str:
        return calls_namespace(self.tenant_id)

    @property
    def is_waiting(self) -> bool:
        """Tell whether it waits for its due time or the next attempt, with no execution in flight."""
        return not self.status.is_finished and self.execution_id is None

    def is_expired(self, now: datetime) -> bool:
        """Tell whether the store may have removed it already; such a call reads as absent."""
        return self.expires_at is not None and self.expires_at <= now


@dataclass(frozen=True, slots=True, kw_only=True)
class CallChange:
    """A partial update: what is UNSET stays. ``due_at`` and ``request`` only while the call ``is_waiting``."""

    name: str | Unset = UNSET
    tags: tuple[str, ...] | Unset = UNSET
    starred: bool | Unset = UNSET
    due_at: datetime | Unset = UNSET
    request: RequestSpec | Unset = UNSET

    def given(self) -> dict[str, object]:
        """Return the fields that are set."""
        return {name: value for name in self.__dataclass_fields__ if (value := getattr(self, name)) is not UNSET}


def calls_namespace(tenant_id: str) -> str:
    """Return the internal namespace of the timers of a tenant's calls. ``@`` keeps it apart from all that clients
    name."""
    return f"{CALLS_PREFIX}{tenant_id}"


def tenant_of(namespace: str) -> str | None:
    """Return the tenant whose calls a namespace holds; None for any other namespace."""
    return namespace[len(CALLS_PREFIX) :] if namespace.startswith(CALLS_PREFIX) else None


def timer_state(status: CallStatus, execution_id: str | None) -> TimerState:
    """Return the state of the timer of a call with these."""
    if status.is_finished:
        return TimerState.FIRED
    return TimerState.SCHEDULED if execution_id is None else TimerState.FIRING


def timer_of(call: ServiceCall) -> Timer:
    """Return the one timer of ``call``, as its row has to be. Firing it means taking the call's next step.

    It is parked (``Firing``) while an execution is open: its wake time then is the watchdog's. A finished call's
    timer has fired, whatever came of the call, and goes when the call goes.
    """
    content = TimerContent(
        execute_at=call.due_at,
        callback_url=call.request.url,
        callback_timeout_seconds=call.timeout_seconds,
        correlation_id=call.correlation_id,
    )
    return Timer(
        namespace=call.namespace,
        timer_id=call.call_id,
        shard_id=call.shard_id,
        content=content,
        digest=call.digest,
        state=timer_state(call.status, call.execution_id),
        revision=call.revision,
        firing_id=call.call_id,
        attempts=call.attempts,
        next_attempt_at=call.wake_at,
        created_at=call.registered_at,
        updated_at=call.updated_at,
        fired_at=call.reached_at,
    )


def call_digest(*, request: RequestSpec, due: str | None, **content: object) -> str:
    """Identify what was submitted, so that a repeat can be told from other content under the same key.

    ``due`` and the other fields of ``CallContent`` as they were asked for: None for what the caller left to us.
    """
    asked = [request.method, request.url, request.headers_json, request.body_json, due]
    return digest([*asked, *sorted(content.items())])


def rerun(
    call: ServiceCall,
    *,
    due_at: datetime | None,
    due: str | None,
    correlation_id: str | None,
    asked_correlation_id: str | None,
    idempotency_key: str | None,
) -> Submission:
    """Return a submission of what ``call`` asked for, without its star.

    ``due`` and ``asked_correlation_id`` are for the digest, as for ``call_digest``.
    """
    content = {each.name: getattr(call, each.name) for each in fields(CallContent)}
    return Submission(
        **content | {"starred": False, "correlation_id": correlation_id or call.correlation_id},
        digest=digest(["rerun", call.call_id, due, asked_correlation_id]),
        due_at=due_at,
        idempotency_key=idempotency_key,
        rerun_of=call.call_id,
    )


def digest(parts: Sequence[object]) -> str:
    return hashlib.blake2b(json.dumps(parts).encode(), digest_size=16).hexdigest()


def check_waits(call: ServiceCall, otherwise: str) -> None:
    """Raise ``CallFinished`` or ``CallRunning`` unless ``call`` waits for its due time or its next attempt."""
    if call.status.is_finished:
        raise CallFinished(f"service call {call.call_id!r} is {call.status}: {otherwise} any more")
    if not call.is_waiting:
        raise CallRunning(
            f"an execution of service call {call.call_id!r} is in flight and its request may have been sent:"
            f" {otherwise} now; try again when the execution has ended"
        )
