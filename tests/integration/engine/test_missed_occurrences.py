"""What is missed, what overlaps, and what a crash leaves of a schedule: each occurrence has one fate all the same."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from duetime.domain.errors import StoreUnavailable
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import Pause
from duetime.domain.outcomes import LeasedOutcome, RecordStatus
from duetime.domain.schedules import Overlap, ScheduleEnd, ScheduleMisfire, SchedulePolicy
from duetime.engine.settings import EngineSettings
from duetime.stores.core.store import Store
from duetime.testing.virtual_time import VirtualClock, run_virtually
from tests.integration.engine.test_schedules import (
    State,
    answering,
    history,
    lines,
    make_schedule,
    sent,
    state_of,
)
from tests.support.clock import NOW as START
from tests.support.engine import at, make_poller, put, run, running, stored
from tests.support.parts import Overlay
from tests.support.scripted_sender import Script, ScriptedSender

# -- what is missed ------------------------------------------------------------------------------------------------


def after_outage(
    store: Store, clock: VirtualClock, policy: SchedulePolicy, *, every_seconds: float = 60, **content: Any
) -> ScriptedSender:
    """Nothing runs for half an hour and half a minute, then a poller for 100 seconds."""
    put(store, [make_schedule(every_seconds=every_seconds, policy=policy, **content)], START)
    sender = ScriptedSender()

    async def script() -> None:
        await asyncio.sleep(1830)
        await running(make_poller(store, sender, clock), 100)

    run_virtually(clock, script())
    return sender


def test_all_of_the_time_to_catch_up_fire(store: Store, clock: VirtualClock) -> None:
    sender = after_outage(store, clock, SchedulePolicy(catch_up_ms=300_000))

    assert sent(sender) == [1560, 1620, 1680, 1740, 1800, 1860, 1920]
    first = history(store, clock)[0]
    assert (first.state, first.scheduled_at, first.count) == (State.MISSED, at(60), 25)
    assert first.last_scheduled_at == at(1500)
    assert {line.state for line in history(store, clock)[1:]} == {State.FIRED}


def test_the_latest_fires(store: Store, clock: VirtualClock) -> None:
    sender = after_outage(store, clock, SchedulePolicy(misfire=ScheduleMisfire.LATEST))

    assert sent(sender) == [1800, 1860, 1920]
    assert [line.state for line in history(store, clock)] == [State.MISSED, State.FIRED, State.FIRED, State.FIRED]
    assert history(store, clock)[0].count == 29


def test_the_latest_of_rare_occurrences_fires_however_late(store: Store, clock: VirtualClock) -> None:
    sender = after_outage(store, clock, SchedulePolicy(misfire=ScheduleMisfire.LATEST), every_seconds=1000)

    assert sent(sender) == [1000]
    assert lines(store, clock) == [(1000, State.FIRED)]


def test_none_of_what_was_missed_fires(store: Store, clock: VirtualClock) -> None:
    sender = after_outage(store, clock, SchedulePolicy(misfire=ScheduleMisfire.SKIP), every_seconds=1000)

    assert sent(sender) == []
    assert lines(store, clock) == [(1000, State.MISSED)]
    pending = state_of(store, clock).pending
    assert pending is not None
    assert pending.scheduled_at == at(2000)


def test_what_is_too_late_by_its_own_limit_is_missed(store: Store, clock: VirtualClock) -> None:
    sender = after_outage(store, clock, SchedulePolicy(), every_seconds=1000, expire_after_ms=1000)

    assert sent(sender) == []
    assert lines(store, clock) == [(1000, State.MISSED)]
    assert stored(store, schedule_timer_id("s1"), clock).next_attempt_at == at(2000)


def test_nothing_is_decided_while_the_namespace_is_paused(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(every_seconds=30, policy=SchedulePolicy(misfire=ScheduleMisfire.SKIP))], START)
    namespace = store.catalogue.get_namespace("default")
    assert namespace is not None
    paused = replace(namespace, settings=replace(namespace.settings, pause=Pause(START)))
    assert store.catalogue.update_namespace(paused, if_revision=namespace.revision, now=START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock), 300)

    assert sender.received == []
    assert history(store, clock) == []
    assert stored(store, schedule_timer_id("s1"), clock).revision == 1


# -- what overlaps -------------------------------------------------------------------------------------------------


def first_fails(until_attempt: int) -> ScriptedSender:
    return answering(
        lambda seconds, attempt: Script(status=503) if seconds == 10 and attempt < until_attempt else None
    )


def test_what_overlaps_is_skipped(store: Store, clock: VirtualClock) -> None:
    put(store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.SKIP))], START)
    sender = first_fails(5)

    run(clock, make_poller(store, sender, clock), 45)

    assert Counter(sent(sender)) == {10: 5, 30: 1, 40: 1}
    fates = [(10, State.FIRED), (20, State.SKIPPED), (30, State.FIRED), (40, State.FIRED)]
    assert lines(store, clock) == fates
    assert state_of(store, clock).open_at is None


@pytest.mark.parametrize("receiver", ["fails", "hangs"])
def test_one_waits_for_the_end_of_what_it_overlaps_with(store: Store, clock: VirtualClock, receiver: str) -> None:
    policy = SchedulePolicy(overlap=Overlap.BUFFER_ONE)
    put(store, [make_schedule(every_seconds=5, policy=policy, end_seconds=31)], START)
    busy = Script(status=503) if receiver == "fails" else Script(delay_seconds=16)
    sender = answering(lambda seconds, attempt: busy if seconds == 5 and attempt < 5 else None)

    run(clock, make_poller(store, sender, clock), 60)

    fates = lines(store, clock)
    assert (fates[0], fates[1][1]) == ((5, State.FIRED), State.MISSED)
    assert [state for _, state in fates[2:]] == [State.FIRED] * len(fates[2:])
    fired = [seconds for seconds, state in fates if state is State.FIRED]
    assert sorted(set(sent(sender))) == fired
    assert all(later - earlier == 5 for earlier, later in pairwise(fired[1:]))
    missed = history(store, clock)[1]
    assert 1 + missed.count + len(fates[2:]) == 6
    first_behind = next(body for body, seconds in zip(sender.received, sent(sender), strict=True) if seconds > 5)
    began = (datetime.fromisoformat(str(first_behind["firedAt"])) - START).total_seconds()
    assert 15 <= began <= 27


# -- crashes -------------------------------------------------------------------------------------------------------


class CrashingStore(Overlay):
    """``store``, but at its n-th record the poller hears nothing more: of what is done before it, or after it."""

    def __init__(self, store: Store, *, crash_at: int, is_written: bool) -> None:
        super().__init__(store, timers=Overlay(store.timers, record=self._record))
        self._store = store
        self._crash_at, self._is_written = crash_at, is_written
        self._records = 0
        self.has_crashed = asyncio.Event()

    def _record(self, outcomes: Sequence[LeasedOutcome], *, now: datetime) -> list[RecordStatus]:
        self._records += 1
        if self._records < self._crash_at:
            return self._store.timers.record(outcomes, now=now)
        if self._records == self._crash_at and self._is_written:
            self._store.timers.record(outcomes, now=now)
        self.has_crashed.set()
        raise StoreUnavailable("the poller is gone")


@pytest.mark.parametrize("is_written", [True, False], ids=["written", "not written"])
@pytest.mark.parametrize("crash_at", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("overlap", Overlap)
def test_a_crash_loses_and_doubles_nothing(
    store: Store, clock: VirtualClock, crash_at: int, overlap: Overlap, is_written: bool
) -> None:
    """At each step of a life with retries and a slow receiver."""
    put(store, [make_schedule(policy=SchedulePolicy(overlap=overlap), end_seconds=65)], START)

    def script(seconds: float, attempt: int) -> Script | None:
        if seconds == 20 and attempt < 3:
            return Script(status=503)
        return Script(delay_seconds=6) if seconds == 40 else None

    sender = answering(script)
    crashing = CrashingStore(store, crash_at=crash_at, is_written=is_written)

    async def life() -> None:
        poller = make_poller(crashing, sender, clock)
        first = asyncio.create_task(poller.run(asyncio.Event(), deadline=None))
        await crashing.has_crashed.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        second = make_poller(store, sender.for_another_poller(), clock, worker_id="worker-b")
        await running(second, 120 - (clock.now() - START).total_seconds())

    run_virtually(clock, life())

    fates = dict(lines(store, clock))
    assert set(fates) <= {10, 20, 30, 40, 50, 60}
    assert set(fates.values()) <= {State.FIRED, State.SKIPPED, State.MISSED}
    assert sum(line.count for line in history(store, clock)) == 6
    assert {seconds for seconds, state in fates.items() if state is State.FIRED} == set(sent(sender))
    ids = {(seconds, webhook_id) for seconds, webhook_id in zip(sent(sender), sender.webhook_ids, strict=True)}
    assert len(ids) == len(set(sent(sender)))
    assert state_of(store, clock).end is ScheduleEnd.NO_OCCURRENCE
    if overlap is Overlap.ALLOW:
        assert set(sent(sender)) == {10, 20, 30, 40, 50, 60}
    attempts = {10: 1, 20: 3, 30: 1, 40: 1, 50: 1, 60: 1}
    again = Counter(sent(sender)) - Counter({each: attempts[int(each)] for each in set(sent(sender))})
    assert again.total() <= 1, "but what was in flight when the poller died"


def test_thousands_at_one_instant(store: Store, clock: VirtualClock) -> None:
    schedules = [make_schedule(schedule_id=f"s{number}") for number in range(1000)]
    put(store, schedules, START)
    sender = ScriptedSender()

    run(clock, make_poller(store, sender, clock, settings=EngineSettings()), 35)

    assert Counter(sent(sender)) == {10: 1000, 20: 1000, 30: 1000}
    assert len(set(sender.webhook_ids)) == 3000
