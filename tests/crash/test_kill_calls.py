"""kill -9 between each pair of steps of a service call: one end, at most one request per execution, every event."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from duetime.domain.call_events import CallEvent
from duetime.domain.executions import Execution, ExecutionStatus
from duetime.domain.service_calls import CallFailure, CallStatus, ServiceCall, calls_namespace, timer_of
from duetime.domain.timers import TimerState
from duetime.runtime.clock import SystemClock
from duetime.stores.backends.sql.dialects.dialect import open_dialect
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import seconds
from tests.support.call_launcher import CALL_ID
from tests.support.processes import ROOT, DuetimeProcess, DuetimeServer, command_environment
from tests.support.receiver import Gate, Receiver, held, reply
from tests.support.sql_store import SqlStore

END_SECONDS = 120
# As short as can be: a restart waits for the watchdog.
SETTINGS = {"DUETIME_CALL_WATCHDOG_GRACE_SECONDS": "0.5"}
TWO_ATTEMPTS = '{"maxAttempts":2,"initialInterval":"0.1s"}'
FINAL = {"ServiceCallSucceeded", "ServiceCallFailed"}


@dataclass
class House:
    """A store in a file that outlives processes, and this test's own view of it."""

    directory: Path
    store: SqlStore
    url: str

    def launch(self, *arguments: str, **variables: str) -> subprocess.Popen[bytes]:
        environment = command_environment(**SETTINGS, **variables)
        environment["PYTHONPATH"] = f"{ROOT / 'shared'}{os.pathsep}{ROOT}"
        return subprocess.Popen(
            [sys.executable, "-m", "tests.support.call_launcher", *arguments],
            cwd=self.directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def dies(self, process: subprocess.Popen[bytes]) -> None:
        """``process`` kills itself, and says nothing of an error before."""
        _, errors = process.communicate(timeout=END_SECONDS)
        assert process.returncode == -signal.SIGKILL, errors.decode()

    def worker(self) -> DuetimeProcess:
        return DuetimeProcess("worker", "--store", self.url, cwd=self.directory, **SETTINGS)

    def call(self, call_id: str = CALL_ID) -> ServiceCall:
        (call,) = self.store.calls.get([CallRef(make.TENANT, call_id)], now=SystemClock().now())
        assert call is not None
        return call

    def executions(self, call_id: str = CALL_ID) -> list[Execution]:
        """The first one first."""
        return self.store.calls.list_executions(make.TENANT, call_id, cursor=None, limit=100).items[::-1]

    def events(self, call_id: str = CALL_ID) -> list[CallEvent]:
        return self.store.calls.list_events(make.TENANT, call_id, after=0, limit=1000)

    def ended(self, call_id: str = CALL_ID) -> ServiceCall:
        """The call once it has ended."""
        give_up = time.monotonic() + END_SECONDS
        while not (call := self.call(call_id)).status.is_finished:
            assert time.monotonic() < give_up, call
            time.sleep(0.02)
        return call

    def assert_consistent(self, call_id: str = CALL_ID) -> None:
        """A call that has ended: one end, events without gaps, a log entry for each attempt, a timer that is done."""
        call, executions, events = self.call(call_id), self.executions(call_id), self.events(call_id)
        assert call.status.is_finished
        assert [event.sequence for event in events] == list(range(1, call.event_count + 1))
        assert all(event.causation_id == before.event_id for before, event in pairwise(events))
        types = Counter(str(event.type) for event in events)
        assert sum(types[final] for final in FINAL) == 1
        assert str(events[-1].type) == f"ServiceCall{call.status}"
        assert types["DueTimeReached"] == types["ServiceCallRunning"] == types["ServiceCallSubmitted"] == 1
        assert types["ExecutionStarted"] == len(executions) == call.attempts
        assert types["ExecutionSucceeded"] + types["ExecutionFailed"] == call.attempts
        assert [each.number for each in executions] == list(range(1, call.attempts + 1))
        assert all(each.status is not ExecutionStatus.RUNNING for each in executions)
        successes = [each for each in executions if each.status is ExecutionStatus.SUCCEEDED]
        assert len(successes) == (call.status is CallStatus.SUCCEEDED)
        namespace = self.store.catalogue.get_namespace(calls_namespace(make.TENANT))
        assert namespace is not None
        timer = self.store.timers.get(namespace, call_id, now=SystemClock().now())
        assert timer is not None
        assert timer.state is TimerState.FIRED
        assert timer.revision == timer_of(call).revision == call.revision


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    url = f"sqlite:///{tmp_path}/duetime.db"
    store = SqlStore(open_dialect(url))
    store.initialise()
    now = SystemClock().now()
    store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=now)
    store.catalogue.create_namespace(
        calls_namespace(make.TENANT), num_shards=4, dedicated=False, now=now, tenant_id=make.TENANT
    )
    yield House(tmp_path, store, url)
    store.close()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


def fields(receiver: Receiver, **more: Any) -> dict[str, Any]:
    return {"url": receiver.url("/hook"), "timeout_seconds": 1, "retry_policy_json": None, **more}


def submit(house: House, receiver: Receiver, **more: Any) -> None:
    """The submitting process dies with the answer on its lips."""
    house.dies(house.launch("submit", house.url, CALL=json.dumps(fields(receiver, **more))))


def execution_ids(receiver: Receiver) -> list[str | None]:
    return [request.header("x-duetime-execution-id") for request in receiver.requests]


@pytest.mark.slow
def test_killed_after_the_submission_was_stored(house: House, receiver: Receiver) -> None:
    submit(house, receiver)
    assert house.call().status is CallStatus.SCHEDULED
    with house.worker():
        assert house.ended().status is CallStatus.SUCCEEDED
    house.assert_consistent()
    assert execution_ids(receiver) == [each.execution_id for each in house.executions()]


@pytest.mark.slow
def test_killed_before_the_begin_was_stored(house: House, receiver: Receiver) -> None:
    submit(house, receiver)
    house.dies(house.launch("poll", house.url, "before begin"))
    assert (house.call().status, house.executions(), receiver.requests) == (CallStatus.SCHEDULED, [], [])
    with house.worker():
        assert house.ended().status is CallStatus.SUCCEEDED
    house.assert_consistent()
    assert len(receiver.requests) == 1


def test_killed_after_the_begin_and_before_the_request(house: House, receiver: Receiver) -> None:
    submit(house, receiver, retry_policy_json=TWO_ATTEMPTS)
    house.dies(house.launch("poll", house.url, "after begin"))
    assert (house.call().status, receiver.requests) == (CallStatus.RUNNING, [])
    with house.worker():
        call = house.ended()
    house.assert_consistent()
    first, *others = house.executions()
    assert (first.failure, first.response_status) == (CallFailure.TIMEOUT, None)
    assert call.status is CallStatus.SUCCEEDED
    assert execution_ids(receiver) == [each.execution_id for each in others]


@pytest.mark.slow
def test_killed_while_the_receiver_is_at_work(house: House, receiver: Receiver) -> None:
    receiver.on("/hook", held(Gate()), reply(201, b"done"))
    submit(house, receiver, retry_policy_json=TWO_ATTEMPTS)
    process = house.launch("poll", house.url, "never")
    receiver.wait_for(1)
    process.kill()
    process.communicate(timeout=END_SECONDS)
    assert house.call().status is CallStatus.RUNNING
    with house.worker():
        call = house.ended()
    house.assert_consistent()
    assert call.attempts == 2
    assert house.executions()[0].failure is CallFailure.TIMEOUT
    assert execution_ids(receiver) == [each.execution_id for each in house.executions()]
    assert call.status is CallStatus.SUCCEEDED


def test_killed_after_the_answer_and_before_it_was_stored(house: House, receiver: Receiver) -> None:
    submit(house, receiver)
    house.dies(house.launch("poll", house.url, "before end"))
    assert house.call().status is CallStatus.RUNNING
    with house.worker():
        call = house.ended()
    house.assert_consistent()
    assert (call.status, call.outcome and call.outcome.reason) == (CallStatus.FAILED, CallFailure.TIMEOUT)
    assert execution_ids(receiver) == [each.execution_id for each in house.executions()]


@pytest.mark.slow
def test_killed_after_the_end_was_stored(house: House, receiver: Receiver) -> None:
    submit(house, receiver)
    house.dies(house.launch("poll", house.url, "after end"))
    before = house.call(), house.executions(), house.events()
    assert before[0].status is CallStatus.SUCCEEDED
    with house.worker() as worker:
        worker.wait_for_shards(4)
        other = make.submitted(now=SystemClock().now(), **fields(receiver))
        house.store.calls.apply([other], now=SystemClock().now())
        house.ended(other.after.call_id)  # whatever was to be done about the first one has been done
    house.assert_consistent()
    assert (house.call(), house.executions(), house.events()) == before
    assert len(receiver.requests) == 2


@pytest.mark.slow
def test_killed_in_the_middle_of_the_watchdogs_work(house: House, receiver: Receiver) -> None:
    """The process that ends the execution for the first one is killed as well, before and after it has."""
    submit(house, receiver)
    house.dies(house.launch("poll", house.url, "after begin"))
    house.dies(house.launch("poll", house.url, "before end"))
    assert house.call().status is CallStatus.RUNNING
    house.dies(house.launch("poll", house.url, "after end"))
    assert house.call().status is CallStatus.FAILED
    house.assert_consistent()
    assert receiver.requests == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_killed_after_any_number_of_requests(house: House, receiver: Receiver) -> None:
    number, kills = 2000, 12
    chance = random.Random(2)
    answers = [reply(200, b"ok"), reply(500, b"no"), held(Gate())]
    receiver.on("/hook", *chance.choices(answers, weights=[8, 2, 1], k=number * 2), reply(200))
    call_ids: list[str] = []
    for round_number in range(kills):
        with DuetimeServer("--store", house.url, cwd=house.directory, **SETTINGS) as server:
            sent_before = len(receiver.requests)
            call_ids += submit_many(house, receiver, number // kills, round_number, chance)
            receiver.wait_for(sent_before + chance.randint(1, number // kills // 2))
            server.process.kill()
    with house.worker():
        for call_id in call_ids:
            house.ended(call_id)
    sent = Counter(execution_ids(receiver))
    assert set(sent.values()) <= {1}, "an execution was sent twice"
    logged: set[str | None] = set()
    for call_id in call_ids:
        house.assert_consistent(call_id)
        logged |= {each.execution_id for each in house.executions(call_id)}
    assert sent.keys() <= logged, "something was sent that is not in the log"
    statuses = Counter(house.call(call_id).status for call_id in call_ids)
    assert statuses[CallStatus.SUCCEEDED] > number // 3, "too little succeeded for the test to mean anything"


def submit_many(house: House, receiver: Receiver, number: int, round_number: int, chance: random.Random) -> list[str]:
    """Ids of calls that are due soon, now, or already, some of which may be tried twice."""
    now = SystemClock().now()
    transitions = [
        make.submitted(
            call_id=f"call-{round_number:02}-{index:04}",
            now=now,
            due_at=now + seconds(round(chance.uniform(-1.0, 4.0), 3)),
            **fields(receiver, retry_policy_json=chance.choice([None, TWO_ATTEMPTS])),
        )
        for index in range(number)
    ]
    house.store.calls.apply(transitions, now=now)
    return [transition.after.call_id for transition in transitions]
