"""The steps of a service call's life: pure functions from a stored call to a ``Transition``.

A store writes a transition whole or not at all, and only onto the revision that it starts from
(``stores.port.calls``). So whoever takes a step first wins, and every event tells of a change that was made.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any

from duetime.domain.call_events import CallEvent, CallEventType
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.namespaces import Namespace
from duetime.domain.service_calls import (
    CallChange,
    CallFailure,
    CallOutcome,
    CallStatus,
    ServiceCall,
    Submission,
    calls_namespace,
)
from duetime.domain.shards import Lease
from duetime.domain.timers import Unset
from duetime.domain.times import format_instant, round_up
from duetime.domain.urls import without_query

_as_json = json.JSONEncoder(separators=(",", ":")).encode

NewId = Callable[[], str]
"""Makes UUIDv7s, each later than the one before."""


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change to be stored in one transaction, if the stored revision is that of ``before`` (None: no such call).

    ``executions`` are to be stored as they are, whether new or known. The call's timer becomes ``timer_of(after)``.
    ``lease``: the one under which the engine makes the change; None: a client makes it, or whoever carries out the
    open execution.
    """

    before: ServiceCall | None
    after: ServiceCall
    executions: tuple[Execution, ...] = ()
    events: tuple[CallEvent, ...] = ()
    lease: Lease | None = None

    @property
    def fence(self) -> Lease | None:
        """Return the lease that must be the stored one. None: no one's, or the call belongs to its open execution."""
        return None if self.before is not None and self.before.execution_id is not None else self.lease


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRules:
    """``watchdog_grace_seconds``: what an execution gets beyond its timeout for its end to be recorded.
    ``retention_seconds``: how long a finished call that is not starred is kept; None: for ever."""

    watchdog_grace_seconds: float = 5.0
    retention_seconds: float | None = None


@hot_dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionResult:
    """The result of the exchange. ``failure`` None: a 2xx. ``retry_after_seconds``: the receiver's Retry-After.

    ``is_final``: no retry, whatever the policy says.
    """

    response_status: int | None
    response: LoggedMessage | None
    duration_ms: int | None
    failure: CallFailure | None = None
    message: str = ""
    retry_after_seconds: float | None = None
    is_final: bool = False


class _Recorder:
    """The events of one step, each caused by the one before."""

    def __init__(self, call: ServiceCall, *, new_id: NewId, now: datetime, cause: str | None = None) -> None:
        self._call = call
        self._new_id = new_id
        self._now = now
        self._cause = call.last_event_id or cause
        self._count = call.event_count
        self.events: list[CallEvent] = []

    def add(self, event_type: CallEventType, **payload: Any) -> None:
        self._count += 1
        event = CallEvent(
            event_id=self._new_id(),
            type=event_type,
            tenant_id=self._call.tenant_id,
            aggregate_id=self._call.call_id,
            sequence=self._count,
            occurred_at=self._now,
            correlation_id=self._call.correlation_id,
            causation_id=self._cause,
            payload_json=_as_json(payload),
        )
        self._cause = event.event_id
        self.events.append(event)

    def onto(self, call: ServiceCall, **fields: Any) -> ServiceCall:
        """Return ``call`` with the events told of, and with ``fields``: one copy for the whole step."""
        return replace(call, event_count=self._count, last_event_id=self._cause, **fields)


def submitted(
    tenant_id: str,
    call_id: str,
    submission: Submission,
    *,
    namespace: Namespace,
    new_id: NewId,
    now: datetime,
) -> Transition:
    """Return a new call. ``call_id`` was made at ``now``; ``namespace`` is ``calls_namespace(tenant_id)`` as
    stored."""
    assert namespace.name == calls_namespace(tenant_id)
    due_at = now if submission.due_at is None else submission.due_at
    call = ServiceCall(
        tenant_id=tenant_id,
        call_id=call_id,
        shard_id=namespace.shard_of(call_id),
        status=CallStatus.SCHEDULED,
        revision=1,
        submitted_at=now,
        updated_at=now,
        registered_at=now,
        wake_at=due_at,
        **{each.name: getattr(submission, each.name) for each in fields(submission)} | {"due_at": due_at},
    )
    events = _Recorder(call, new_id=new_id, now=now, cause=submission.rerun_of)
    events.add(
        CallEventType.SUBMITTED,
        name=call.name,
        method=call.request.method,
        url=without_query(call.request.url),
        tags=list(call.tags),
        rerunOf=call.rerun_of,
    )
    events.add(CallEventType.SCHEDULED, dueAt=format_instant(due_at))
    return Transition(before=None, after=events.onto(call), events=tuple(events.events))


def amended(call: ServiceCall, change: CallChange, *, new_id: NewId, now: datetime, rules: CallRules) -> Transition:
    """Return ``call`` with ``change``. The caller has checked that due time and request change only while it
    ``is_waiting``.

    A new due time sets the timer anew, also between two attempts: then the next one is at that time.
    """
    fields: dict[str, Any] = {**change.given(), "revision": call.revision + 1, "updated_at": now}
    events = _Recorder(call, new_id=new_id, now=now)
    events.add(CallEventType.UPDATED, **_told(call, change))
    if "due_at" in fields:
        fields |= {"registered_at": now, "reached_at": None, "wake_at": fields["due_at"]}
        events.add(CallEventType.SCHEDULED, dueAt=format_instant(fields["due_at"]))
    is_starred = fields.get("starred", call.starred)
    expires_at = _expires_at(call.finished_at, is_starred=is_starred, rules=rules)
    after = events.onto(call, expires_at=expires_at, **fields)
    return Transition(before=call, after=after, events=tuple(events.events))


def cancelled(call: ServiceCall, *, new_id: NewId, now: datetime, rules: CallRules) -> Transition:
    """Return the end of a call that ``is_waiting``: it is kept, and nothing of it is sent any more."""
    last = call.outcome
    events = _Recorder(call, new_id=new_id, now=now)
    events.add(
        CallEventType.CANCELLED,
        attempts=call.attempts,
        executionId=None if last is None else last.execution_id,
        status=None if last is None else last.http_status,
    )
    after = events.onto(
        call,
        revision=call.revision + 1,
        updated_at=now,
        wake_at=None,
        **_ended(call, CallStatus.CANCELLED, now=now, rules=rules),
    )
    return Transition(before=call, after=after, events=tuple(events.events))


class DeletionReason(StrEnum):
    REQUEST = "request"
    EXPIRY = "expiry"


def deleted(call: ServiceCall, reason: DeletionReason, *, new_id: NewId, now: datetime) -> CallEvent:
    """Return the last event of a finished call, to be stored in the transaction that removes it in this revision."""
    events = _Recorder(call, new_id=new_id, now=now)
    events.add(CallEventType.DELETED, reason=reason)
    (event,) = events.events
    return event


def begun(
    call: ServiceCall,
    *,
    url: str,
    sent: LoggedMessage,
    execution_id: str,
    new_id: NewId,
    now: datetime,
    rules: CallRules,
    lease: Lease | None = None,
) -> Transition:
    """Begin the next execution: the due time was reached, or it is time for another attempt.

    ``call`` is not finished and has no open execution. ``url`` and ``sent``: the request as the log keeps it.
    """
    number = call.attempts + 1
    margin = timedelta(seconds=call.timeout_seconds + rules.watchdog_grace_seconds)
    execution = Execution(
        tenant_id=call.tenant_id,
        call_id=call.call_id,
        execution_id=execution_id,
        number=number,
        status=ExecutionStatus.RUNNING,
        started_at=now,
        deadline_at=round_up(now + margin),
        method=call.request.method,
        url=url,
        request=sent,
    )
    events = _Recorder(call, new_id=new_id, now=now)
    first: dict[str, Any] = {}
    if call.reached_at is None:
        events.add(CallEventType.DUE_TIME_REACHED, dueAt=format_instant(call.due_at), reachedAt=format_instant(now))
        first = {"reached_at": now}
    if call.status is CallStatus.SCHEDULED:
        events.add(CallEventType.RUNNING, startedAt=format_instant(now))
        first |= {"status": CallStatus.RUNNING, "started_at": now}
    events.add(CallEventType.EXECUTION_STARTED, executionId=execution_id, number=number)
    after = events.onto(
        call,
        revision=call.revision + 1,
        updated_at=now,
        attempts=number,
        execution_id=execution_id,
        wake_at=execution.deadline_at,
        **first,
    )
    return Transition(before=call, after=after, executions=(execution,), events=tuple(events.events), lease=lease)


def concluded(
    call: ServiceCall,
    execution: Execution,
    result: ExecutionResult,
    *,
    new_id: NewId,
    now: datetime,
    rules: CallRules,
    random: float,
) -> Transition:
    """End the open ``execution`` with ``result``: the call succeeds, fails, or waits for another attempt.

    ``random`` in [0, 1) is the jitter of the retry policy.
    """
    assert call.execution_id == execution.execution_id
    is_ok = result.failure is None
    ended = replace(
        execution,
        status=ExecutionStatus.SUCCEEDED if is_ok else ExecutionStatus.FAILED,
        finished_at=now,
        duration_ms=result.duration_ms,
        response_status=result.response_status,
        response=result.response,
        failure=result.failure,
        message=result.message,
    )
    outcome = CallOutcome(
        execution_id=execution.execution_id,
        http_status=result.response_status,
        reason=result.failure,
        message=result.message,
    )
    retry_at = None if is_ok or result.is_final else _retry_at(call, result, now=now, random=random)
    events = _Recorder(call, new_id=new_id, now=now)
    facts = {"executionId": execution.execution_id, "number": execution.number, "status": result.response_status}
    if is_ok:
        events.add(CallEventType.EXECUTION_SUCCEEDED, **facts)
    else:
        next_at = None if retry_at is None else format_instant(retry_at)
        events.add(
            CallEventType.EXECUTION_FAILED,
            **facts,
            reason=result.failure,
            message=result.message,
            nextAttemptAt=next_at,
        )
    end = {} if retry_at is not None else _end(call, events, outcome, is_ok=is_ok, now=now, rules=rules)
    after = events.onto(
        call,
        revision=call.revision + 1,
        updated_at=now,
        execution_id=None,
        outcome=outcome,
        wake_at=retry_at,
        **end,
    )
    return Transition(before=call, after=after, executions=(ended,), events=tuple(events.events))


def timed_out(
    call: ServiceCall, execution: Execution, *, new_id: NewId, now: datetime, rules: CallRules, random: float
) -> Transition:
    """Return the watchdog's step: the open ``execution`` is past its deadline, and unreported."""
    result = ExecutionResult(
        response_status=None,
        response=None,
        duration_ms=None,
        failure=CallFailure.TIMEOUT,
        message=f"no result within {call.timeout_seconds} s; the request may have reached the receiver",
    )
    return concluded(call, execution, result, new_id=new_id, now=now, rules=rules, random=random)


def _retry_at(call: ServiceCall, result: ExecutionResult, *, now: datetime, random: float) -> datetime | None:
    return call.retry_policy.next_attempt_at(
        attempts=call.attempts,
        first_attempt_at=now if call.started_at is None else call.started_at,
        now=now,
        random=random,
        retry_after_seconds=result.retry_after_seconds,
    )


def _end(
    call: ServiceCall,
    events: _Recorder,
    outcome: CallOutcome,
    *,
    is_ok: bool,
    now: datetime,
    rules: CallRules,
) -> dict[str, Any]:
    """Finish ``call`` with the outcome of its last execution."""
    facts = {"attempts": call.attempts, "executionId": outcome.execution_id, "status": outcome.http_status}
    if is_ok:
        events.add(CallEventType.SUCCEEDED, **facts)
    else:
        events.add(CallEventType.FAILED, **facts, reason=outcome.reason, message=outcome.message)
    return _ended(call, CallStatus.SUCCEEDED if is_ok else CallStatus.FAILED, now=now, rules=rules)


def _ended(call: ServiceCall, status: CallStatus, *, now: datetime, rules: CallRules) -> dict[str, Any]:
    return {
        "status": status,
        "finished_at": now,
        "expires_at": _expires_at(now, is_starred=call.starred, rules=rules),
    }


def _told(call: ServiceCall, change: CallChange) -> dict[str, Any]:
    """Return the event payload of ``change``: the names of changed fields, and values without secrets."""
    told = {name: value for name, value in change.given().items() if name not in ("due_at", "request")}
    if not isinstance(change.due_at, Unset):
        told["dueAt"] = format_instant(change.due_at)
    changed = list(told)
    if not isinstance(change.request, Unset):
        request, before = change.request, call.request
        told |= {"method": request.method, "url": without_query(request.url)}
        pairs = {
            "request.method": (request.method, before.method),
            "request.url": (request.url, before.url),
            "request.headers": (request.headers_json, before.headers_json),
            "request.body": (request.body_json, before.body_json),
        }
        changed += [name for name, (new, old) in pairs.items() if new != old]
    return {"changed": changed} | told


def _expires_at(finished_at: datetime | None, *, is_starred: bool, rules: CallRules) -> datetime | None:
    if finished_at is None or is_starred or rules.retention_seconds is None:
        return None
    return round_up(finished_at + timedelta(seconds=rules.retention_seconds))
