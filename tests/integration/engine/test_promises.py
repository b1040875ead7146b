"""The promises of section 8 of the design, against a model of a few fields: any order of client writes and faults.

Store, two pollers and the executor of service calls are real and run in virtual time. Clients write at any moment,
also between a callback and its record. Requests of the pollers to the store fail before or after they are done,
pollers die or are cut off from the store for longer than a lease, and their machines' clocks are wrong and jump.
What must hold is checked at the receiver, and at the end in the store:

- nothing accepted is lost: what was not cancelled is fired, and its end is recorded;
- nothing is early;
- no attempt is sent twice, unless its poller died, or lost its lease, between the callback and the record;
- a firing has one ``webhook-id``, and a change that returned before the due time is honoured;
- the request of an execution is sent once at most, whatever dies, and a call ends once.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from duetime.delivery.call_request import EXECUTION_ID_HEADER
from duetime.delivery.port import Callback
from duetime.domain.timers import Rearm, TimerChange, TimerState
from duetime.engine.settings import EngineSettings
from duetime.stores.port.timers import ChangeStatus, PutMode, PutStatus, TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import VirtualClock, VirtualTimeLoop
from tests.support.clock import NOW
from tests.support.engine import make_poller, make_timer
from tests.support.executing import Executing
from tests.support.faulty_store import Faults, FaultyStore
from tests.support.scripted_sender import RequestSender, Script, header
from tests.support.stores import memory_store
from tests.support.timed_store import SkewedClock, TimedStore

NAMESPACE = make_namespace("default")
TIMERS = ("timer-0", "timer-1")
POLICY = '{"maxAttempts": 1000, "initialInterval": "500ms", "maxInterval": "2s"}'
CALL_ENDS = {"ServiceCallSucceeded", "ServiceCallFailed", "ServiceCallCancelled"}
MAX_KILLS = 3
END_SECONDS = 90
"""After the last fault: leases end, back-offs end, and what is late is fired."""
SETTINGS = EngineSettings(record_linger_seconds=0.02, page_size=3, max_buffered=6)
RECEIVERS = {
    "quick": Script(delay_seconds=0.001),
    "slow": Script(delay_seconds=1.5),
    "parked": Script(delay_seconds=4.0),
    "down": Script(status=500, delay_seconds=0.2),
    "silent": Script(status=None),
}
TIMER = st.sampled_from(TIMERS)
RECEIVER = st.sampled_from(sorted(RECEIVERS))
WHICH = st.integers(0, len(TIMERS) - 1)
PAUSE = st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0, 2.5])


@dataclass
class Version:
    """What a client put: one firing is to come of it."""

    number: int
    due_at: datetime
    receiver: str
    """How it answers, until the end."""
    tags: tuple[str, ...] = ()
    is_by_hand: bool = False
    is_withdrawn: bool = False
    """Changed or deleted before it was due: nothing may be sent."""


@dataclass
class Running:
    """A poller, its machine's clock, and what goes wrong between it and the store."""

    task: asyncio.Task[None]
    clock: SkewedClock
    faults: Faults


@dataclass(frozen=True)
class Sent:
    """A callback of a timer."""

    timer_id: str
    version: int
    webhook_id: str
    attempt: int
    at: datetime


class PromiseMachine(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.clock = VirtualClock(NOW)
        self._opened = memory_store()
        self.store = self._opened.__enter__()
        self.store.catalogue.create_namespace(NAMESPACE.name, num_shards=4, dedicated=False, now=self.clock.now())
        self.executing = Executing(self.store, self.clock, settings=SETTINGS)
        self.is_healed = False
        self.call_receiver = "quick"
        self.sent: list[Sent] = []
        self.requests: Counter[str] = Counter()
        self.excused: set[str] = set()
        """The webhook ids whose poller died or was cut off while they were in flight."""
        self.current: dict[str, Version] = {}
        self.versions: dict[int, Version] = {}
        self.calls: list[str] = []
        self.numbers = count(1)
        self.names = count(1)
        self.kills = 0
        self.runner = asyncio.Runner(loop_factory=lambda: VirtualTimeLoop(self.clock))
        self.runner.__enter__()
        self.pollers: list[Running] = []
        self.runner.run(self._start_pollers(2))

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return
        try:
            self.heal_and_wait()
            self.everything_came_to_its_end()
            self.promises_are_kept()
        finally:
            self.runner.run(self._stop_pollers())
            self.runner.__exit__(None, None, None)
            self._opened.__exit__(None, None, None)

    # -- the service -----------------------------------------------------------------------------------------

    async def _start_pollers(self, number: int) -> None:
        for _ in range(number):
            name = f"worker-{next(self.names)}"
            faults, own_clock = Faults(self.clock), SkewedClock(self.clock, 0.0)
            store = FaultyStore(TimedStore(self.store, self.clock), faults)
            poller = make_poller(
                store,
                RequestSender(answer=partial(self._answer, faults)),
                self.clock,
                worker_id=name,
                settings=SETTINGS,
                handler=self.executing.executor(store.calls),
                own_clock=own_clock,
            )
            task = asyncio.get_running_loop().create_task(poller.run(asyncio.Event()))
            self.pollers.append(Running(task, own_clock, faults))

    async def _stop_pollers(self) -> None:
        for poller in self.pollers:
            poller.task.cancel()
        await asyncio.gather(*(poller.task for poller in self.pollers), return_exceptions=True)

    def _answer(self, faults: Faults, callback: Callback) -> Script:
        execution_id = header(callback, EXECUTION_ID_HEADER)
        if execution_id is not None:
            self.requests[execution_id] += 1
            return RECEIVERS[self.call_receiver]
        assert callback.body is not None
        body = json.loads(callback.body)
        webhook_id = header(callback, "webhook-id")
        assert webhook_id is not None
        if faults.is_cut_off:
            self.excused.add(webhook_id)
        self.sent.append(Sent(body["timerId"], body["payload"], webhook_id, body["attempt"], self.clock.now()))
        return RECEIVERS["quick" if self.is_healed else self.versions[body["payload"]].receiver]

    def _wait(self, seconds: float) -> None:
        async def sleep() -> None:
            await asyncio.sleep(seconds)

        self.runner.run(sleep())
        for poller in self.pollers:
            assert not poller.task.done(), poller

    # -- clients ---------------------------------------------------------------------------------------------

    def _content(self, timer_id: str, version: Version) -> Any:
        return make_timer(
            timer_id,
            execute_at=version.due_at,
            payload_json=str(version.number),
            retry_policy_json=POLICY,
            callback_timeout_seconds=10,
            tags=version.tags,
            now=self.clock.now(),
        )

    def _new_version(self, delay: float, receiver: str) -> Version:
        due_at = self.clock.now() + timedelta(milliseconds=round(delay * 1000))
        version = Version(next(self.numbers), due_at.replace(microsecond=due_at.microsecond // 1000 * 1000), receiver)
        self.versions[version.number] = version
        return version

    def _pick(self, pause: float, which: int) -> str:
        """One of the timers that are there, after a pause."""
        self._wait(pause)
        return sorted(self.current)[which % len(self.current)]

    def _withdraw(self, timer_id: str) -> None:
        """What was stored of ``timer_id`` is no more."""
        version = self.current.pop(timer_id, None)
        if version is not None and not version.is_by_hand:
            version.is_withdrawn = self.clock.now() < version.due_at

    @rule(timer_id=TIMER, delay=st.sampled_from([0.0, 0.0, 0.5, 2.0]), receiver=RECEIVER)
    def put(self, timer_id: str, delay: float, receiver: str) -> None:
        version = self._new_version(delay, receiver)
        (result,) = self.store.timers.put(
            [self._content(timer_id, version)], mode=PutMode.REPLACE, now=self.clock.now()
        )
        assert result.status in (PutStatus.CREATED, PutStatus.REPLACED)
        self._withdraw(timer_id)
        self.current[timer_id] = version

    @precondition(lambda self: self.current)
    @rule(pause=PAUSE, which=WHICH)
    def put_again(self, pause: float, which: int) -> None:
        timer_id = self._pick(pause, which)
        version = self.current[timer_id]
        if not version.is_by_hand:
            (result,) = self.store.timers.put(
                [self._content(timer_id, version)], mode=PutMode.REPLACE, now=self.clock.now()
            )
            assert result.status is PutStatus.UNCHANGED

    @precondition(lambda self: self.current)
    @rule(pause=PAUSE, which=WHICH)
    def patch_tags(self, pause: float, which: int) -> None:
        timer_id, tags = self._pick(pause, which), (f"tag-{next(self.numbers)}",)
        if self._update(timer_id, TimerChange(tags=tags)) is ChangeStatus.APPLIED:
            self.current[timer_id].tags = tags

    @precondition(lambda self: self.current)
    @rule(pause=PAUSE, which=WHICH, delay=st.sampled_from([0.0, 2.0]), receiver=RECEIVER)
    def patch_content(self, pause: float, which: int, delay: float, receiver: str) -> None:
        timer_id = self._pick(pause, which)
        version = self._new_version(delay, receiver)
        change = TimerChange(execute_at=version.due_at, payload_json=str(version.number))
        if self._update(timer_id, change) is ChangeStatus.APPLIED:
            version.tags = self.current[timer_id].tags
            self._withdraw(timer_id)
            self.current[timer_id] = version

    def _update(self, timer_id: str, change: TimerChange) -> ChangeStatus:
        firing_id = f"changed-{next(self.numbers)}"
        result = self.store.timers.update(NAMESPACE, timer_id, change, firing_id=firing_id, now=self.clock.now())
        assert result.status in (ChangeStatus.APPLIED, ChangeStatus.FINISHED)
        return result.status

    @precondition(lambda self: self.current)
    @rule(pause=PAUSE, which=WHICH)
    def delete(self, pause: float, which: int) -> None:
        timer_id = self._pick(pause, which)
        (result,) = self.store.timers.delete(NAMESPACE, [TimerRef(timer_id)], now=self.clock.now())
        assert result.status is ChangeStatus.APPLIED
        self._withdraw(timer_id)

    @precondition(lambda self: self.current)
    @rule(pause=PAUSE, which=WHICH)
    def fire(self, pause: float, which: int) -> None:
        timer_id = self._pick(pause, which)
        refs = [TimerRef(timer_id)]
        (result,) = self.store.timers.rearm(NAMESPACE, refs, rearm=Rearm.FIRE, now=self.clock.now())
        if result.status is ChangeStatus.APPLIED:
            self.current[timer_id].is_by_hand = True

    @rule(delay=st.sampled_from([0.0, 1.0, 3.0]), receiver=RECEIVER)
    def submit_call(self, delay: float, receiver: str) -> None:
        self.call_receiver = receiver
        call_id = f"call-{next(self.numbers)}"
        due_at = self.clock.now() + timedelta(seconds=delay)
        self.executing.submit(call_id, due_at=due_at, timeout_seconds=10)
        self.calls.append(call_id)

    # -- time and faults -------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([0.3, 1.0, 3.0, 12.0]))
    def wait(self, seconds: float) -> None:
        self._wait(seconds)

    @rule(number=st.integers(0, 1), before=st.integers(0, 2), after=st.integers(0, 2))
    def fail_requests(self, number: int, before: int, after: int) -> None:
        self.pollers[number].faults.before, self.pollers[number].faults.after = before, after

    @rule(number=st.integers(0, 1), ahead_seconds=st.sampled_from([0.0, 5.0, -5.0, 12.0, -15.0, 300.0, -300.0]))
    def set_a_clock(self, number: int, ahead_seconds: float) -> None:
        self.pollers[number].clock.ahead_seconds = ahead_seconds

    @rule(number=st.integers(0, 1), seconds=st.sampled_from([3.0, 15.0]))
    def cut_a_poller_off(self, number: int, seconds: float) -> None:
        self._excuse_what_is_in_flight()
        self.pollers[number].faults.cut_until = self.clock.monotonic() + seconds

    @precondition(lambda self: self.kills < MAX_KILLS)
    @rule(number=st.integers(0, 1))
    def kill_a_poller(self, number: int) -> None:
        """Nothing is drained or released; another one starts."""
        self.kills += 1
        self._excuse_what_is_in_flight()

        async def replace() -> None:
            poller = self.pollers.pop(number)
            poller.task.cancel()
            await asyncio.gather(poller.task, return_exceptions=True)
            await self._start_pollers(1)

        self.runner.run(replace())

    def _excuse_what_is_in_flight(self) -> None:
        for sent in self.sent:
            timer = self.store.timers.get(NAMESPACE, sent.timer_id, now=self.clock.now())
            if timer is not None and not timer.state.is_finished:
                self.excused.add(sent.webhook_id)

    # -- what must hold --------------------------------------------------------------------------------------

    @invariant()
    def promises_are_kept(self) -> None:
        if not hasattr(self, "sent"):
            return
        attempts = Counter((sent.webhook_id, sent.attempt) for sent in self.sent)
        for sent in self.sent:
            version = self.versions[sent.version]
            assert version.is_by_hand or sent.at >= version.due_at, f"early: {sent}"
            assert not version.is_withdrawn, f"withdrawn before it was due: {sent}"
            is_once = attempts[sent.webhook_id, sent.attempt] == 1
            assert is_once or sent.webhook_id in self.excused, f"sent twice: {sent}"
        firings = {(sent.version, sent.webhook_id) for sent in self.sent}
        assert len(firings) == len({number for number, _ in firings}), "a version was fired under two webhook ids"
        assert set(self.requests.values()) <= {1}, "an execution was sent twice"

    def heal_and_wait(self) -> None:
        self.is_healed = True
        self.call_receiver = "quick"
        for poller in self.pollers:
            poller.faults.before = poller.faults.after = 0
        self._wait(END_SECONDS)

    def everything_came_to_its_end(self) -> None:
        fired = {sent.version for sent in self.sent}
        for timer_id, version in self.current.items():
            timer = self.store.timers.get(NAMESPACE, timer_id, now=self.clock.now())
            assert timer is not None
            assert (timer.state, version.number in fired) == (TimerState.FIRED, True), timer
        for call_id in self.calls:
            assert self.executing.get(call_id).status.is_finished
            ends = [name for name in self.executing.types(call_id) if name in CALL_ENDS]
            assert len(ends) == 1


TestPromises = PromiseMachine.TestCase
TestPromises.settings = settings(
    max_examples=20, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
