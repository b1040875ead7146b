"""The poller against the real SQLite store, with virtual time and a scripted receiver."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TypeVar

import pytest

from duetime.domain.attempts import AttemptOutcome, read_attempts
from duetime.domain.timers import TimerChange, TimerState
from duetime.domain.times import format_instant, round_down
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, TimerRef
from duetime.testing.contract.builders import make_namespace
from duetime.testing.virtual_time import InlineOffload, VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import at, lag_seconds, make_poller, make_timer, put, run, stored
from tests.support.scripted_sender import Script, ScriptedSender

NAMESPACE = make_namespace("default")
T = TypeVar("T")


def test_a_timer_fires_once_at_its_due_time_and_its_end_is_recorded(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    put(store, [make_timer("t", execute_at=at(5))], START)
    run(clock, make_poller(store, sender, clock), 8)
    assert [body["timerId"] for body in sender.received] == ["t"]
    assert 0 <= lag_seconds(sender.received[0]) < 0.001
    timer = stored(store, "t", clock)
    assert (timer.state, timer.attempts, timer.next_attempt_at) == (TimerState.FIRED, 1, None)


def test_more_timers_at_one_instant_than_any_page_all_fire_once_each(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    settings = EngineSettings(page_size=37, max_buffered=100, max_in_flight=20, record_batch_size=50)
    put(store, [make_timer(f"t{n}", execute_at=at(1)) for n in range(1000)], START)
    poller = make_poller(store, sender, clock, settings=settings)
    run(clock, poller, 10)
    assert sender.counts() == Counter(f"t{n}" for n in range(1000))
    assert sender.most_in_flight <= 20
    assert poller.stats()["fired"] == 1000


class _TakesTime(InlineOffload):
    async def run(self, function: Callable[[], T]) -> T:
        result = function()
        await asyncio.sleep(0.002)
        return result


@pytest.mark.parametrize("poll_concurrency", [1, 4])
def test_no_more_timers_are_read_than_may_be_taken(store: Store, clock: VirtualClock, poll_concurrency: int) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=0.005))
    settings = EngineSettings(
        page_size=50, max_buffered=100, max_in_flight=20, record_batch_size=50, poll_concurrency=poll_concurrency
    )
    put(store, [make_timer(f"t{n}", execute_at=at(1)) for n in range(2000)], START)
    poller = make_poller(store, sender, clock, settings=settings, make_offload=_TakesTime)
    run(clock, poller, 20)
    assert sender.counts() == Counter(f"t{n}" for n in range(2000))
    assert poller.stats()["timers_read"] < 2000 * 1.1, "few are read twice"


def test_a_timer_stored_by_another_process_is_seen_within_the_poll_interval(
    store: Store, clock: VirtualClock
) -> None:
    sender = ScriptedSender()

    async def script() -> None:
        for number in range(20):
            await asyncio.sleep(1.37)
            put(store, [make_timer(f"t{number}", execute_at=clock.now())], clock.now())
        await asyncio.sleep(2)

    run(clock, make_poller(store, sender, clock), script)
    assert len(sender.received) == 20
    assert max(lag_seconds(body) for body in sender.received) < 0.85


def test_a_hint_makes_a_timer_fire_at_once(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    poller = make_poller(store, sender, clock)

    async def script() -> None:
        await asyncio.sleep(30.3)
        timer = make_timer("t", execute_at=round_down(clock.now()))
        put(store, [timer], clock.now())
        poller.notify([timer])
        await asyncio.sleep(1)

    run(clock, poller, script)
    assert lag_seconds(sender.received[0]) < 0.001


def test_a_hint_is_passed_on_to_the_poller_that_owns_the_shard(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender()
    rarely = EngineSettings(poll_interval_seconds=600.0, min_poll_interval_seconds=600.0)
    here, there = (
        make_poller(store, each, clock, worker_id=name, settings=rarely)
        for name, each in (("here", sender), ("there", sender.for_another_poller()))
    )
    passed_on: list[int] = []

    def tell(due: Mapping[int, datetime]) -> None:
        passed_on.extend(due)
        there.note_due(due)

    here.connect(tell)

    async def script() -> None:
        await asyncio.sleep(30.3)
        timers = [
            make_timer(f"t{n}", execute_at=round_down(clock.now()) + timedelta(seconds=n % 2)) for n in range(20)
        ]
        put(store, timers, clock.now())
        here.notify(timers)
        await asyncio.sleep(2)
        assert [poller.stats()["fired"] > 0 for poller in (here, there)] == [True, True]

    run(clock, [here, there], script)
    assert sender.counts() == Counter(f"t{n}" for n in range(20))
    assert max(map(lag_seconds, sender.received)) < 0.001
    assert len(passed_on) == 2, "one of four shards each, of which two are there"


@pytest.mark.parametrize(("timers_at_once", "least_trips", "most_trips"), [(1, 1, 1), (2000, 4, 100)])
def test_quick_reads_need_no_thread_but_in_a_backlog(
    store: Store, clock: VirtualClock, timers_at_once: int, least_trips: int, most_trips: int
) -> None:
    trips = 0

    class CountedOffload(InlineOffload):
        def run(self, function: Callable[[], T]) -> Awaitable[T]:
            nonlocal trips
            trips += self._is_for_reads
            return super().run(function)

        def __init__(self, threads: int = 1, name: str = "") -> None:
            self._is_for_reads = name == "duetime-poll"

    sender = ScriptedSender()
    settings = EngineSettings(quick_read_seconds=0.001, max_buffered=100, page_size=100)
    timers = [make_timer(f"t{n}-{second}", execute_at=at(second)) for second in (1, 2) for n in range(timers_at_once)]
    put(store, timers, START)
    run(clock, make_poller(store, sender, clock, settings=settings, make_offload=CountedOffload), 10)
    assert sender.counts() == Counter(timer.timer_id for timer in timers)
    assert min(map(lag_seconds, sender.received)) < 0.001
    assert least_trips <= trips <= most_trips


@pytest.mark.parametrize("change", ["update", "replace", "delete"])
def test_a_change_that_returned_before_the_due_time_is_honoured(
    store: Store, clock: VirtualClock, change: str
) -> None:
    sender = ScriptedSender()
    put(store, [make_timer("t", execute_at=at(5), payload_json='"old"')], START)

    async def script() -> None:
        await asyncio.sleep(4.999)
        if change == "update":
            store.timers.update(
                NAMESPACE, "t", TimerChange(execute_at=at(7), payload_json='"new"'), firing_id="f2", now=clock.now()
            )
        elif change == "replace":
            new = make_timer("t", execute_at=at(7), payload_json='"new"')
            store.timers.put([new], mode=PutMode.REPLACE, now=clock.now())
        else:
            store.timers.delete(NAMESPACE, [TimerRef("t")], now=clock.now())
        await asyncio.sleep(5)

    run(clock, make_poller(store, sender, clock), script)
    seen = [(body["payload"], body["executeAt"]) for body in sender.received]
    assert seen == ([] if change == "delete" else [("new", "2026-12-20T15:30:07.000Z")])


def test_a_timer_replaced_while_its_callback_is_in_flight_fires_too(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=1.0))
    put(store, [make_timer("t", execute_at=at(1), payload_json='"old"')], START)

    async def script() -> None:
        await asyncio.sleep(1.5)
        new = make_timer("t", execute_at=at(1), payload_json='"new"')
        store.timers.put([new], mode=PutMode.REPLACE, now=clock.now())
        await asyncio.sleep(5)

    poller = make_poller(store, sender, clock)
    run(clock, poller, script)
    assert [body["payload"] for body in sender.received] == ["old", "new"]
    assert len(set(sender.webhook_ids)) == 2
    assert poller.stats()["superseded"] == 1
    timer = stored(store, "t", clock)
    assert (timer.state, timer.revision) == (TimerState.FIRED, 3)


def test_a_timer_deleted_while_its_callback_is_in_flight_leaves_nothing_behind(
    store: Store, clock: VirtualClock
) -> None:
    sender = ScriptedSender(lambda body: Script(status=500, delay_seconds=1.0))
    put(store, [make_timer("t", execute_at=at(1))], START)

    async def script() -> None:
        await asyncio.sleep(1.5)
        (result,) = store.timers.delete(NAMESPACE, [TimerRef("t")], now=clock.now())
        assert result.timer is not None
        assert result.timer.attempt_may_be_in_flight(clock.now())
        await asyncio.sleep(30)

    run(clock, make_poller(store, sender, clock), script)
    assert len(sender.received) == 1
    assert store.timers.get(NAMESPACE, "t", now=clock.now()) is None


def test_retries_follow_the_policy_and_keep_the_webhook_id(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(status=500 if int(str(body["attempt"])) < 3 else 200))
    put(store, [make_timer("t", execute_at=at(1), retry_policy_json='{"initialInterval": "2s"}')], START)
    run(clock, make_poller(store, sender, clock), 15)
    assert [body["attempt"] for body in sender.received] == [1, 2, 3]
    assert {body["executeAt"] for body in sender.received} == {"2026-12-20T15:30:01.000Z"}
    assert len(set(sender.webhook_ids)) == 1
    gaps = [lag_seconds(body) for body in sender.received]
    assert 1.5 <= gaps[1] - gaps[0] <= 2.6
    assert 3.0 <= gaps[2] - gaps[1] <= 5.1
    timer = stored(store, "t", clock)
    assert (timer.state, timer.attempts, timer.failure) == (TimerState.FIRED, 3, None)
    log = read_attempts(timer.attempt_log)
    assert [(attempt.number, attempt.status, attempt.outcome) for attempt in log] == [
        (1, 500, AttemptOutcome.RETRY),
        (2, 500, AttemptOutcome.RETRY),
        (3, 200, AttemptOutcome.FIRED),
    ]
    assert {attempt.firing_id for attempt in log} == set(sender.webhook_ids)
    assert [format_instant(attempt.started_at) for attempt in log] == [body["firedAt"] for body in sender.received]
    assert {attempt.duration_ms for attempt in log} == {1}


def test_a_timer_fails_when_its_attempts_are_exhausted(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(status=503))
    policy = '{"initialInterval": "1s", "maxAttempts": 3}'
    put(store, [make_timer("t", execute_at=at(1), retry_policy_json=policy)], START)
    run(clock, make_poller(store, sender, clock), 30)
    assert len(sender.received) == 3
    timer = stored(store, "t", clock)
    assert (timer.state, timer.attempts) == (TimerState.FAILED, 3)
    assert timer.failure is not None
    assert timer.failure.status == 503


def test_an_outage_of_ours_costs_no_retries(store: Store, clock: VirtualClock) -> None:
    """The timer was due a day ago, and may be tried for a minute: that begins with its first attempt."""
    policy = '{"initialInterval": "8s", "backoffMultiplier": 1, "maxAttemptsDuration": "1m"}'
    put(store, [make_timer("t", execute_at=at(-86_400), retry_policy_json=policy)], START)
    sender = ScriptedSender(lambda body: Script(status=503))
    run(clock, make_poller(store, sender, clock), 120)
    timer = stored(store, "t", clock)
    assert timer.state is TimerState.FAILED
    assert 5 <= timer.attempts == len(sender.received) <= 9
    log = read_attempts(timer.attempt_log)
    assert 45 <= (log[-1].started_at - log[0].started_at).total_seconds() <= 60


def test_the_receiver_can_reschedule(store: Store, clock: VirtualClock) -> None:
    first = b'{"nextExecuteAt": "2026-12-20T15:30:06Z"}'
    sender = ScriptedSender(
        lambda body: Script(body=first if body["executeAt"] == "2026-12-20T15:30:01.000Z" else b"")
    )
    put(store, [make_timer("t", execute_at=at(1))], START)
    run(clock, make_poller(store, sender, clock), 10)
    assert [body["attempt"] for body in sender.received] == [1, 1]
    assert len(set(sender.webhook_ids)) == 2
    assert lag_seconds(sender.received[1]) < 0.001
    log = read_attempts(stored(store, "t", clock).attempt_log)
    assert [attempt.outcome for attempt in log] == [AttemptOutcome.RESCHEDULED, AttemptOutcome.FIRED]
    assert [attempt.firing_id for attempt in log] == sender.webhook_ids


def test_a_parked_attempt_is_logged_once_with_its_whole_duration(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=7.5, body=b"done"))
    put(store, [make_timer("t", execute_at=at(1))], START)
    run(clock, make_poller(store, sender, clock), 10)
    (attempt,) = read_attempts(stored(store, "t", clock).attempt_log)
    assert (attempt.outcome, attempt.duration_ms, attempt.body) == (AttemptOutcome.FIRED, 7500, "done")


def test_a_wish_for_no_time_is_logged_and_the_timer_is_fired(
    store: Store, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    sender = ScriptedSender(lambda body: Script(body=b'{"nextExecuteAt": "tomorrow"}'))
    put(store, [make_timer("t", execute_at=at(1))], START)
    run(clock, make_poller(store, sender, clock), 5)
    assert len(sender.received) == 1
    assert stored(store, "t", clock).state is TimerState.FIRED
    (record,) = [record for record in caplog.records if record.__dict__["action"] == "timer.response_unfollowed"]
    assert record.__dict__["timer_id"] == "t"
    assert "nextExecuteAt" in record.message
    (attempt,) = read_attempts(stored(store, "t", clock).attempt_log)
    assert attempt.outcome is AttemptOutcome.FIRED
    assert attempt.message.startswith("nextExecuteAt in the response must be ")


def test_a_slow_callback_is_parked_and_still_counts_as_one(store: Store, clock: VirtualClock) -> None:
    sender = ScriptedSender(lambda body: Script(delay_seconds=20.0))
    put(store, [make_timer("t", execute_at=at(1))], START)
    states = []

    async def script() -> None:
        await asyncio.sleep(5)
        states.append(stored(store, "t", clock))
        await asyncio.sleep(20)

    run(clock, make_poller(store, sender, clock), script)
    assert states[0].state is TimerState.FIRING
    assert states[0].next_attempt_at is not None
    assert at(36) <= states[0].next_attempt_at < at(36.01)
    assert len(sender.received) == 1
    assert stored(store, "t", clock).state is TimerState.FIRED
