"""The life of service calls against a model, over the real store: any order of steps, two executors, late answers.

What must hold after every step is small enough to be written twice: here as a model of a few fields, there as steps,
transitions and SQL. Times move as the rules like; nothing runs by itself.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import count, pairwise
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

from duetime.calls.executor import CallExecutor
from duetime.delivery.port import CallbackResult, TransportError
from duetime.domain.service_calls import CallStatus, timer_of
from duetime.domain.shards import Lease
from duetime.domain.timers import Timer
from duetime.engine.firing.execution_handler import ExecutionResponse, StartResult, StartStatus, Turn
from duetime.stores.port.calls import ApplyStatus, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.steps import claim_shard
from tests.support.clock import NOW, FakeClock
from tests.support.executing import Executing
from tests.support.stores import memory_store

TIMEOUT_SECONDS = 10
DEADLINE_SECONDS = 15
MAX_ATTEMPTS = 3
RETRIED = '{"maxAttempts":3,"initialInterval":"4s","backoffMultiplier":1}'
CALLS = tuple(f"call-{number}" for number in range(3))
LEGAL_STEPS = {
    (CallStatus.SCHEDULED, CallStatus.RUNNING),
    (CallStatus.RUNNING, CallStatus.SUCCEEDED),
    (CallStatus.RUNNING, CallStatus.FAILED),
    (CallStatus.SCHEDULED, CallStatus.CANCELLED),
    (CallStatus.RUNNING, CallStatus.CANCELLED),
}


@dataclass
class Model:
    """A call as it ought to be. ``open_since`` None: no execution is open. ``wake_at`` None: not known here."""

    due_at: datetime
    status: CallStatus = CallStatus.SCHEDULED
    is_starred: bool = False
    has_retries: bool = False
    attempts: int = 0
    open_id: str | None = None
    open_since: datetime | None = None
    reached: int = 0
    is_reached: bool = False
    """Whether the due time was found reached, and how often one was."""
    ended: list[str] = field(default_factory=list)
    """What became of each execution that has ended, in order."""

    @property
    def may_wake(self) -> bool:
        return self.status in (CallStatus.SCHEDULED, CallStatus.RUNNING)

    @property
    def waits(self) -> bool:
        return self.may_wake and self.open_id is None


@dataclass(frozen=True)
class InFlight:
    """A message that was handed out: by whom, for which execution."""

    executor: int
    call_id: str
    execution_id: str
    token: object


class CallMachine(RuleBasedStateMachine):
    in_flight: Bundle[InFlight] = Bundle("in_flight")
    stale: Bundle[Timer] = Bundle("stale")

    @initialize()
    def open_store(self) -> None:
        self._stack = ExitStack()
        store = self._stack.enter_context(memory_store())
        self.clock = FakeClock()
        self.executing = Executing(store, self.clock)  # type: ignore[arg-type]
        self.leases: dict[int, Lease] = {}
        for shard_id in range(4):
            lease = claim_shard(store, shard_id, "me", lease_seconds=1e9, now=NOW)
            assert lease is not None
            self.leases[shard_id] = lease
        self.executors: list[CallExecutor] = [self.executing.executor(), self.executing.executor()]
        self.models: dict[str, Model] = {}
        self.statuses: dict[str, list[CallStatus]] = {}
        self.sent: list[tuple[str, str]] = []
        self.ids = count(1)

    def teardown(self) -> None:
        if hasattr(self, "_stack"):
            self._stack.close()

    # -- what tenants do -------------------------------------------------------------------------------------

    @rule(call_id=st.sampled_from(CALLS), delay=st.sampled_from([-5, 0, 3]), has_retries=st.booleans())
    def submit(self, call_id: str, delay: int, has_retries: bool) -> None:
        now = self.clock.now()
        due_at = now + timedelta(seconds=delay)
        transition = make.submitted(
            call_id=call_id,
            now=now,
            due_at=due_at,
            timeout_seconds=TIMEOUT_SECONDS,
            retry_policy_json=RETRIED if has_retries else None,
        )
        (status,) = self.executing.calls.apply([transition], now=now)
        # Events of a removed call stay until they are published: its id is not free before.
        if call_id in self.models or call_id in self.statuses:
            assert status is ApplyStatus.EXISTS
        else:
            assert status is ApplyStatus.APPLIED
            self.models[call_id] = Model(due_at=due_at, has_retries=has_retries)
            self.statuses[call_id] = [CallStatus.SCHEDULED]

    @rule(call_id=st.sampled_from(CALLS), change=st.sampled_from(["star", "star", "postpone", "cancel", "delete"]))
    def change(self, call_id: str, change: str) -> None:
        model = self.models.get(call_id)
        if model is None:
            return
        if change == "star":
            model.is_starred = not model.is_starred
            self.executing.amend(call_id, starred=model.is_starred)
        elif change == "delete":
            status = self.executing.calls.delete(make.TENANT, call_id, now=self.clock.now())
            if model.status is CallStatus.RUNNING:
                assert status is DeleteStatus.RUNNING
            else:
                assert status is DeleteStatus.DELETED
                del self.models[call_id]
        elif model.waits and change == "cancel":
            now = self.clock.now()
            transition = make.cancelled(self.executing.get(call_id), now=now)
            assert self.executing.calls.apply([transition], now=now) == [ApplyStatus.APPLIED]
            model.status = CallStatus.CANCELLED
            self.statuses[call_id].append(model.status)
        elif model.waits:
            model.is_reached = False
            model.due_at = self.clock.now() + timedelta(seconds=3)
            self.executing.amend(call_id, due_at=model.due_at)

    # -- what pollers do -------------------------------------------------------------------------------------

    @rule(target=in_flight, executor=st.integers(0, 1), seconds=st.sampled_from([0, 0.001, 1, 4, 5, 14.999, 15, 30]))
    def poll(self, executor: int, seconds: float) -> Any:
        """All that is due after ``seconds`` has its turn at once."""
        self.clock.advance(seconds)
        return self._begin(executor, self._due())

    @rule(target=stale)
    def read(self) -> Any:
        """Timers that are due, whose turn comes after other things have happened."""
        return multiple(*self._due())

    @rule(target=in_flight, timer=stale, executor=st.integers(0, 1))
    def begin_stale(self, timer: Timer, executor: int) -> Any:
        return self._begin(executor, [timer])

    def _due(self) -> list[Timer]:
        return [
            timer
            for shard_id in range(4)
            for timer in self.executing.store.timers.due(shard_id, until=self.clock.now(), limit=100).timers
        ]

    def _begin(self, executor: int, timers: list[Timer]) -> object:
        turns = [Turn(timer, self.leases[timer.shard_id], f"execution-{next(self.ids):04}") for timer in timers]
        results = self.executors[executor].begin(turns, now=self.clock.now())
        found = [self._took(executor, turn, result) for turn, result in zip(turns, results, strict=True)]
        return multiple(*(message for message in found if message is not None))

    def _took(self, executor: int, turn: Turn, result: StartResult) -> InFlight | None:
        now, call_id = self.clock.now(), turn.timer.timer_id
        model = self.models.get(call_id)
        if result.status is StartStatus.BEGUN:
            assert model is not None
            assert model.open_id is None
            assert model.may_wake
            assert result.message is not None
            if not model.is_reached:
                assert model.due_at <= now
                model.is_reached = True
                model.reached += 1
            if model.status is CallStatus.SCHEDULED:
                self.statuses[call_id].append(CallStatus.RUNNING)
            model.status = CallStatus.RUNNING
            model.attempts += 1
            model.open_id, model.open_since = turn.attempt_id, now
            self.sent.append((call_id, turn.attempt_id))
            return InFlight(executor, call_id, turn.attempt_id, result.message.token)
        if result.is_timed_out:
            assert model is not None
            assert model.open_since is not None
            assert now >= model.open_since + timedelta(seconds=DEADLINE_SECONDS)
            self._ended(call_id, is_ok=False, is_final=False, as_="Timeout")
        return None

    @rule(
        message=consumes(in_flight),
        status=st.sampled_from([200, 204, 404, 500, None]),
        executor=st.integers(0, 1),
    )
    def conclude(self, message: InFlight, status: int | None, executor: int) -> None:
        error = None if status is not None else TransportError.CONNECT
        result = CallbackResult(1, status, b"x", None, error, "no way", 0.25)
        (conclusion,) = self.executors[executor].conclude(
            [ExecutionResponse(message.token, result)], now=self.clock.now()
        )
        model = self.models.get(message.call_id)
        if model is None or model.open_id != message.execution_id:  # the watchdog was there first
            assert (conclusion.wake_at, conclusion.ended_as) == (None, None)
            return
        is_ok = status in (200, 204)
        self._ended(message.call_id, is_ok=is_ok, is_final=status == 404, as_="Answered")
        assert conclusion.ended_as == (model.status if model.status.is_finished else None)

    def _ended(self, call_id: str, *, is_ok: bool, is_final: bool, as_: str) -> None:
        model = self.models[call_id]
        model.open_id = model.open_since = None
        model.ended.append(as_)
        is_last = is_final or model.attempts >= (MAX_ATTEMPTS if model.has_retries else 1)
        if is_ok or is_last:
            model.status = CallStatus.SUCCEEDED if is_ok else CallStatus.FAILED
            self.statuses[call_id].append(model.status)

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def calls_are_as_the_model_says(self) -> None:
        for call_id, model in getattr(self, "models", {}).items():
            call = self.executing.get(call_id)
            assert (call.status, call.attempts, call.execution_id, call.starred) == (
                model.status,
                model.attempts,
                model.open_id,
                model.is_starred,
            )
            assert call.due_at == model.due_at
            assert (call.wake_at is None) == call.status.is_finished
            if model.open_since is not None:
                assert call.wake_at == model.open_since + timedelta(seconds=DEADLINE_SECONDS)
            steps = set(pairwise(self.statuses[call_id]))
            assert steps <= LEGAL_STEPS

    @invariant()
    def every_call_has_its_timer_and_no_other_is_left(self) -> None:
        if not hasattr(self, "models"):
            return
        far = self.clock.now() + timedelta(days=1000)
        due = {
            timer.timer_id: timer
            for shard_id in range(4)
            for timer in self.executing.store.timers.due(shard_id, until=far, limit=100).timers
        }
        open_calls = [self.executing.get(call_id) for call_id, each in self.models.items() if each.may_wake]
        assert due == {call.call_id: timer_of(call) for call in open_calls}

    @invariant()
    def every_execution_and_event_is_there_once_in_order(self) -> None:
        for call_id, model in getattr(self, "models", {}).items():
            executions = self.executing.executions(call_id)
            assert [each.number for each in executions] == list(range(1, model.attempts + 1))
            assert [each.execution_id for each in executions] == [
                execution_id for owner, execution_id in self.sent if owner == call_id
            ]
            types = [str(event.type) for event in self.executing.events(call_id)]  # checks their order
            assert types.count("ServiceCallSubmitted") == 1
            assert types.count("DueTimeReached") == model.reached
            assert types.count("ServiceCallRunning") == min(model.attempts, 1)
            assert types.count("ExecutionStarted") == model.attempts
            ends = types.count("ExecutionSucceeded") + types.count("ExecutionFailed")
            assert ends == len(model.ended) == model.attempts - (model.open_id is not None)
            finals = sum(event.type.is_terminal for event in self.executing.events(call_id))
            assert finals == model.status.is_finished

    @invariant()
    def no_execution_is_sent_twice(self) -> None:
        sent = getattr(self, "sent", [])
        assert len(sent) == len(set(sent))


TestCallMachine = CallMachine.TestCase
TestCallMachine.settings = settings(
    max_examples=40, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
