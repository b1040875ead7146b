"""After a transfer the target continues as the source would have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from duetime.domain.call_events import CallEventType
from duetime.domain.service_calls import CallStatus
from duetime.domain.timers import TimerState
from duetime.stores.port.calls import ApplyStatus, CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import make_timer, make_timers, seconds
from duetime.testing.contract.steps import create
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, run, stored
from tests.support.executing import Executing
from tests.support.scripted_sender import ScriptedSender
from tests.support.sql_store import SqlStore
from tests.support.stores import memory_store
from tests.support.transfer import exported, imported, in_every_state


@pytest.fixture
def source() -> Iterator[SqlStore]:
    with memory_store() as store:
        assert isinstance(store, SqlStore)
        yield store


@pytest.fixture
def target() -> Iterator[SqlStore]:
    with memory_store() as store:
        assert isinstance(store, SqlStore)
        yield store


def test_timers_fire_once_each_from_where_they_were(source: SqlStore, target: SqlStore) -> None:
    orders, _ = source.catalogue.create_namespace("orders", num_shards=4, dedicated=False, now=START)
    own, _ = source.catalogue.create_namespace("own", num_shards=3, dedicated=True, now=START)
    create(source, *make_timers(orders, 50, execute_at=START + seconds(2)), now=START)
    create(source, make_timer(own, "d", execute_at=START + seconds(3), payload_json='{"n": 1.10}'), now=START)
    source.transfer.load_timers(in_every_state(orders), now=START)  # one due at once, one in 8 s, one parked for 30 s

    imported(target, exported(source))
    clock, sender = VirtualClock(START), ScriptedSender()
    run(clock, make_poller(target, sender, clock), 40)

    fired = sender.counts()
    waiting = [f"é state {number}" for number in (0, 1, 2)]
    assert fired == dict.fromkeys([f"t{number:04}" for number in range(50)] + ["d", *waiting], 1)
    attempts = {body["timerId"]: body["attempt"] for body in sender.received}
    assert [attempts[timer_id] for timer_id in waiting] == [1, 3, 3]
    assert stored(target, "t0001", clock, namespace="orders").state is TimerState.FIRED


def test_calls_run_and_their_events_count_on(source: SqlStore, target: SqlStore) -> None:
    before = Executing(source, VirtualClock(START))
    ids = [make.id_at(START, number) for number in range(1, 4)]
    before.submit(ids[0], due_at=START + seconds(5), idempotency_key="k")
    before.submit(ids[1], due_at=START + seconds(1))
    before.run_for(2)
    before.submit(ids[2], due_at=START + seconds(600))
    assert before.get(ids[1]).status is CallStatus.SUCCEEDED

    imported(target, exported(source, now=before.clock.now()), now=before.clock.now())
    after = Executing(target, before.clock)
    after.run_for(10)

    assert [after.get(call_id).status for call_id in ids] == [
        CallStatus.SUCCEEDED,
        CallStatus.SUCCEEDED,
        CallStatus.SCHEDULED,
    ]
    assert after.types(ids[0])[-1] == str(CallEventType.SUCCEEDED)
    assert after.events(ids[1]) == before.events(ids[1])
    numbers = [stored.event.sequence for stored in target.outbox.unpublished_of(CallRef("acme", ids[0]), limit=100)]
    assert numbers == list(range(1, after.get(ids[0]).event_count + 1))


def test_idempotency_keys_still_hold(source: SqlStore, target: SqlStore) -> None:
    before = Executing(source, VirtualClock(START))
    call = before.submit(make.id_at(START, 1), due_at=START + seconds(5), idempotency_key="k")

    imported(target, exported(source))

    assert target.calls.find_by_idempotency_key("acme", "k", now=START) == call
    again = make.submitted(call_id=make.id_at(START, 2), idempotency_key="k", now=START)
    assert target.calls.apply([again], now=START) == [ApplyStatus.EXISTS]
