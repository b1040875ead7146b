"""Executes service calls: the handler of their timers.

Each step is stored before the next one is taken, by a transition that applies to one revision alone:

1. ``begin``: the execution is written as open, and the call's timer becomes due at the execution's deadline.
2. The engine sends the request.
3. ``conclude``: the execution ends as the response says.

Whoever is killed between two of these leaves an open execution whose timer comes due at its deadline; whichever
poller has the shard then ends it as timed out. So a request is sent at most once per execution, and no call stays
Running.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from duetime.calls.message_log import LogRules, logged_request
from duetime.calls.results import execution_result
from duetime.delivery.call_request import CallRequest, call_request
from duetime.domain.call_steps import CallRules, ExecutionResult, NewId, Transition, begun, concluded, timed_out
from duetime.domain.errors import CallUnreadable
from duetime.domain.executions import Execution, ExecutionStatus, LoggedMessage
from duetime.domain.hot_dataclass import hot_dataclass
from duetime.domain.redaction import shown_url
from duetime.domain.service_calls import CALLS_PREFIX, CallStatus, ServiceCall, tenant_of
from duetime.domain.times import round_down
from duetime.domain.urls import without_query
from duetime.engine.firing.execution_handler import (
    Conclusion,
    ExecutionResponse,
    Message,
    StartResult,
    StartStatus,
    Turn,
)
from duetime.stores.core.calls import CallStore
from duetime.stores.port.calls import ApplyStatus, CallRef

log = logging.getLogger(__name__)

MAX_CONCLUDE_ROUNDS = 20
"""How often a call may be changed by others while its execution is concluded."""

_SECONDS_TO_STORE = 1.0

_GONE = StartResult(status=StartStatus.GONE)
_SUPERSEDED = StartResult(status=StartStatus.SUPERSEDED)
_LEASE_LOST = StartResult(status=StartStatus.LEASE_LOST)
_UNAVAILABLE = StartResult(status=StartStatus.UNAVAILABLE)


@hot_dataclass(frozen=True, slots=True)
class OpenExecution:
    """The token of a message: the call as it became with its open execution."""

    call: ServiceCall
    execution: Execution


@hot_dataclass(frozen=True, slots=True)
class _Step:
    """A transition to be applied, and what the turn is when it was."""

    turn: Turn
    transition: Transition
    result: StartResult


@hot_dataclass(frozen=True, slots=True)
class _End:
    """A response to be stored: its place among the others, the call as far as is known, and what came."""

    position: int
    call: ServiceCall
    execution: Execution
    result: ExecutionResult


class CallExecutor:
    """Implements ``ExecutionHandler`` for the namespaces of service calls. Safe to use from several threads."""

    def __init__(
        self,
        calls: CallStore,
        *,
        rules: CallRules,
        log_rules: LogRules,
        new_id: NewId,
        random: Callable[[], float],
    ) -> None:
        """``random`` gives floats in [0, 1)."""
        self._calls = calls
        self._rules = rules
        self._log_rules = log_rules
        self._new_id = new_id
        self._random = random

    @property
    def _seconds_to_store(self) -> float:
        """Return what is kept of the grace for storing a response."""
        return min(_SECONDS_TO_STORE, self._rules.watchdog_grace_seconds / 2)

    def takes(self, namespace: str) -> bool:
        return namespace.startswith(CALLS_PREFIX)

    # -- begin -----------------------------------------------------------------------------------------------

    def begin(self, turns: Sequence[Turn], *, now: datetime) -> list[StartResult]:
        now = round_down(now)
        calls = self._read([_ref(turn) for turn in turns], now)
        decided = [
            call if isinstance(call, StartResult) else self._step_or_unreadable(turn, call, now)
            for turn, call in zip(turns, calls, strict=True)
        ]
        steps = [each for each in decided if isinstance(each, _Step)]
        statuses = self._calls.apply([step.transition for step in steps], now=now) if steps else []
        pairs = zip(steps, statuses, strict=True)
        taken = iter([self._taken(step, status, now) for step, status in pairs])
        return [next(taken) if isinstance(each, _Step) else each for each in decided]

    def _read(self, refs: Sequence[CallRef], now: datetime) -> list[ServiceCall | StartResult]:
        """Return each call, or what its turn is without one."""
        try:
            calls = self._calls.get(refs, now=now)
        except CallUnreadable:
            if len(refs) > 1:
                return [each for ref in refs for each in self._read([ref], now)]
            return [_unreadable(refs[0])]
        return [_GONE if call is None else call for call in calls]

    def _step_or_unreadable(self, turn: Turn, call: ServiceCall, now: datetime) -> _Step | StartResult:
        try:
            return self._next_step(turn, call, now)
        except ValueError:  # its body, which is looked at when it is to be sent
            return _unreadable(_ref(turn))

    def _next_step(self, turn: Turn, call: ServiceCall, now: datetime) -> _Step | StartResult:
        if call.execution_id == turn.attempt_id:
            # This very turn was stored before, although the store did not say so. Nothing was sent yet.
            return self._message(call, self._open_execution(call))
        if call.revision != turn.timer.revision:
            return _SUPERSEDED
        if call.wake_at is None or call.wake_at > now:
            return StartResult(status=StartStatus.WAITS, wake_at=call.wake_at)
        if call.execution_id is None:
            return self._first_step(turn, call, now)
        transition = timed_out(
            call,
            self._open_execution(call),
            new_id=self._new_id,
            now=now,
            rules=self._rules,
            random=self._random(),
        )
        result = StartResult(
            status=StartStatus.WAITS,
            wake_at=transition.after.wake_at,
            ended_as=_ended_as(transition.after),
            is_timed_out=True,
        )
        return _Step(turn, transition, result)

    def _first_step(self, turn: Turn, call: ServiceCall, now: datetime) -> _Step:
        request = call_request(call, execution_id=turn.attempt_id, attempt=call.attempts + 1)
        transition = begun(
            call,
            url=shown_url(request.url, self._log_rules),
            sent=logged_request(request.headers, request.body, self._log_rules),
            execution_id=turn.attempt_id,
            new_id=self._new_id,
            now=now,
            rules=self._rules,
            lease=turn.lease,
        )
        return _Step(turn, transition, self._to_send(request, transition.after, transition.executions[0]))

    def _message(self, call: ServiceCall, execution: Execution) -> StartResult:
        request = call_request(call, execution_id=execution.execution_id, attempt=execution.number)
        return self._to_send(request, call, execution)

    def _to_send(self, request: CallRequest, call: ServiceCall, execution: Execution) -> StartResult:
        message = Message(
            callback=request.callback(0),
            token=OpenExecution(call, execution),
            respond_by=execution.deadline_at - timedelta(seconds=self._seconds_to_store),
        )
        return StartResult(status=StartStatus.BEGUN, message=message, wake_at=call.wake_at)

    def _taken(self, step: _Step, status: ApplyStatus, now: datetime) -> StartResult:
        """Return what the turn is, now that ``step`` was, or was not, stored."""
        match status:
            case ApplyStatus.APPLIED:
                _log_ended(step.transition.after)
                return step.result
            case ApplyStatus.LEASE_LOST:
                return _LEASE_LOST
            case ApplyStatus.UNAVAILABLE:
                return _UNAVAILABLE
        # A driver may have repeated a request whose response it did not get: then it was we who superseded ourselves.
        call = self._read([_ref(step.turn)], now)[0]
        if isinstance(call, ServiceCall) and call.execution_id == step.turn.attempt_id:
            return self._message(call, self._open_execution(call))
        return _SUPERSEDED

    def _open_execution(self, call: ServiceCall) -> Execution:
        assert call.execution_id is not None
        execution = self._calls.get_execution(call.tenant_id, call.call_id, call.execution_id)
        # Whatever became of its entry in the log: the call must come to its end.
        return execution or _unlogged_execution(call, call.execution_id)

    # -- conclude --------------------------------------------------------------------------------------------

    def conclude(self, responses: Sequence[ExecutionResponse], *, now: datetime) -> list[Conclusion]:
        now = round_down(now)
        conclusions = [Conclusion()] * len(responses)
        waiting = [self._end(position, response, now) for position, response in enumerate(responses)]
        for _ in range(MAX_CONCLUDE_ROUNDS):
            if not waiting:
                return conclusions
            waiting = self._conclude_some(waiting, conclusions, now)
        for end in waiting:
            log.error(
                "a service call is changed all the time; the watchdog ends its execution",
                extra={"action": "call.contended", **_names(_ref_of(end.call))},
            )
        return conclusions

    def _end(self, position: int, response: ExecutionResponse, now: datetime) -> _End:
        token = response.token
        assert isinstance(token, OpenExecution)
        result = execution_result(response.result, rules=self._log_rules, now=now)
        return _End(position, token.call, token.execution, result)

    def _conclude_some(self, waiting: Sequence[_End], conclusions: list[Conclusion], now: datetime) -> list[_End]:
        """Conclude what can be; the others as they are to be tried again."""
        chosen: dict[CallRef, _End] = {}  # no two of one call in a batch
        later = [end for end in waiting if chosen.setdefault(_ref_of(end.call), end) is not end]
        transitions = [self._conclusion(end, now) for end in chosen.values()]
        statuses = self._calls.apply(transitions, now=now)
        for end, transition, status in zip(chosen.values(), transitions, statuses, strict=True):
            after = transition.after
            if status is ApplyStatus.APPLIED:
                _log_ended(after)
                conclusions[end.position] = Conclusion(wake_at=after.wake_at, ended_as=_ended_as(after))
            elif status is ApplyStatus.UNAVAILABLE:
                conclusions[end.position] = Conclusion(is_put_off=True)
            else:
                later.append(end)
        return self._still_open(later, conclusions, now)

    def _conclusion(self, end: _End, now: datetime) -> Transition:
        return concluded(
            end.call,
            end.execution,
            end.result,
            new_id=self._new_id,
            now=now,
            rules=self._rules,
            random=self._random(),
        )

    def _still_open(self, ends: Sequence[_End], conclusions: list[Conclusion], now: datetime) -> list[_End]:
        """Return ``ends`` with the calls as they are stored now, but for those whose execution has ended."""
        calls = self._read([_ref_of(end.call) for end in ends], now) if ends else []
        still_open = []
        for end, call in zip(ends, calls, strict=True):
            if isinstance(call, ServiceCall) and call.execution_id == end.execution.execution_id:
                still_open.append(replace(end, call=call))
            elif isinstance(call, ServiceCall) and _is_outcome_of(call, end):  # stored by an earlier try
                conclusions[end.position] = Conclusion(wake_at=call.wake_at, ended_as=_ended_as(call))
            else:
                log.warning(
                    "a response came after its execution had ended",
                    extra={"action": "call.late_response", **_names(_ref_of(end.call))},
                )
        return still_open


def _unlogged_execution(call: ServiceCall, execution_id: str) -> Execution:
    """Return what is known of the open execution without the log."""
    return Execution(
        tenant_id=call.tenant_id,
        call_id=call.call_id,
        execution_id=execution_id,
        number=call.attempts,
        status=ExecutionStatus.RUNNING,
        started_at=call.updated_at,
        deadline_at=call.updated_at if call.wake_at is None else call.wake_at,
        method=call.request.method,
        url=without_query(call.request.url),
        request=LoggedMessage(),
    )


def _ref(turn: Turn) -> CallRef:
    tenant_id = tenant_of(turn.timer.namespace)
    assert tenant_id is not None
    return CallRef(tenant_id, turn.timer.timer_id)


def _ref_of(call: ServiceCall) -> CallRef:
    return CallRef(call.tenant_id, call.call_id)


def _ended_as(call: ServiceCall) -> CallStatus | None:
    """Return how its execution ended the call. One that was cancelled since was not ended by it."""
    return call.status if call.status in (CallStatus.SUCCEEDED, CallStatus.FAILED) else None


def _is_outcome_of(call: ServiceCall, end: _End) -> bool:
    """Tell whether the last outcome of ``call`` is what ``end`` leads to."""
    outcome = call.outcome
    return (
        outcome is not None
        and outcome.execution_id == end.execution.execution_id
        and outcome.http_status == end.result.response_status
        and outcome.message == end.result.message
    )


def _unreadable(ref: CallRef) -> StartResult:
    log.error("a service call cannot be read", extra={"action": "call.unreadable", **_names(ref)})
    return StartResult(status=StartStatus.UNREADABLE)


def _names(ref: CallRef) -> dict[str, str]:
    return {"tenant_id": ref.tenant_id, "service_call_id": ref.call_id}


def _log_ended(call: ServiceCall) -> None:
    if call.status is CallStatus.FAILED and call.outcome is not None:
        log.info(
            "service call failed",
            extra={
                "action": "call.failed",
                **_names(_ref_of(call)),
                "execution_id": call.outcome.execution_id,
                "attempts": call.attempts,
                "reason": call.outcome.reason,
                "correlation_id": call.correlation_id,
            },
        )
