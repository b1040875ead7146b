"""Schedules that name a calendar, in virtual time: what a poller knows of it, and when."""

from __future__ import annotations

import asyncio
from datetime import date, timedelta
from typing import Any

import pytest

from duetime.api.schedules.responses import schedule_response
from duetime.app.calendars import Calendars, finder
from duetime.domain.calendars import Calendar, days_namespace
from duetime.domain.ids import schedule_timer_id
from duetime.domain.occurrences import OccurrenceState
from duetime.domain.retry import RetryPolicy
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import Overlap, ScheduleMisfire, SchedulePolicy, new_schedule
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.domain.timers import Timer
from duetime.engine.namespace_cache import NamespaceCache
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.core.store import Store
from duetime.testing.contract.builders import make_content, make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, put, run, stored
from tests.support.scripted_sender import Script, ScriptedSender

EVERY_DAY = Calendar(name="de", weekdays=frozenset(), business_days=frozenset({START.date(), date(2026, 12, 22)}))


def make_schedule(
    store: Store,
    policy: SchedulePolicy = SchedulePolicy(),  # noqa: B008
    *,
    schedule_id: str = "s1",
    every_ms: int = 10_000,
    **timing: Any,
) -> Timer:
    spec = TimingSpec(every_ms=every_ms, anchor=START, **timing)
    schedule = new_schedule(policy, occurrences_by(spec, schedule_id, finder(store, DEFAULT_TENANT)), after=START)
    content = make_content(timing_json=timing_json(spec))
    return new_schedule_timer(make_namespace("default"), schedule_id, content, schedule, digest="d", now=START)


def loaded(store: Store, clock: VirtualClock, timer: Timer) -> NamespaceCache:
    cache = NamespaceCache(store.catalogue, clock=clock, secret_box=None)
    cache.load_for([timer], ())
    return cache


def test_occurrences_are_on_business_days(store: Store, clock: VirtualClock) -> None:
    Calendars(store, DEFAULT_TENANT).put(EVERY_DAY, now=START)
    put(store, [make_schedule(store, calendar="de")], START)
    sender = ScriptedSender()
    run(clock, make_poller(store, sender, clock), 35)
    assert len(sender.received) == 3


def test_a_schedule_waits_for_its_calendar_and_goes_on(store: Store, clock: VirtualClock) -> None:
    calendars = Calendars(store, DEFAULT_TENANT)
    calendars.put(EVERY_DAY, now=START)
    put(store, [make_schedule(store, calendar="de")], START)
    calendars.delete("de", now=START)
    sender = ScriptedSender()
    poller = make_poller(store, sender, clock)
    run(clock, poller, 30)
    assert sender.received == []
    waiting = stored(store, schedule_timer_id("s1"), clock)
    assert waiting.schedule is not None
    assert waiting.schedule.pending is not None
    assert waiting.schedule.pending.scheduled_at == START + timedelta(seconds=10)

    calendars.put(EVERY_DAY, now=clock.now())
    run(clock, make_poller(store, sender, clock), 60)

    assert [body["occurrence"] for body in sender.received] == list(range(1, len(sender.received) + 1))
    assert sender.received[0]["scheduledAt"] == "2026-12-20T15:30:10.000Z"
    assert len(sender.received) >= 8


@pytest.mark.parametrize("delay_seconds", [1.5, 5], ids=["short", "parked"])
@pytest.mark.parametrize("overlap", Overlap)
def test_a_calendar_that_is_removed_in_flight_has_nothing_sent_again(
    store: Store, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch, overlap: Overlap, delay_seconds: float
) -> None:
    """And the schedule goes on with what comes after it. Another one has the calendar read again meanwhile."""
    monkeypatch.setattr("duetime.engine.namespace_cache.NAMESPACE_SECONDS", 0.5)
    calendars = Calendars(store, DEFAULT_TENANT)
    calendars.put(EVERY_DAY, now=START)
    policy = SchedulePolicy(overlap=overlap, misfire=ScheduleMisfire.SKIP)
    put(store, [make_schedule(store, policy, calendar="de")], START)
    put(store, [make_schedule(store, schedule_id="s2", every_ms=1000, calendar="de")], START)
    ids: list[str] = []

    def script(body: dict[str, object]) -> Script:
        if body["scheduleId"] == "s2":
            return Script()
        ids.append(sender.webhook_ids[-1])
        if body["occurrence"] == 1:
            calendars.delete("de", now=clock.now())
        return Script(delay_seconds=delay_seconds)

    sender = ScriptedSender(script)
    poller = make_poller(store, sender, clock)

    async def life() -> None:
        await asyncio.sleep(80)
        assert len(ids) == 1
        waiting = stored(store, schedule_timer_id("s1"), clock)
        assert schedule_response(waiting, RetryPolicy()).next_scheduled_at is None
        assert [line.state for line in store.schedules.history(waiting, limit=9)] == [OccurrenceState.FIRED]
        calendars.put(EVERY_DAY, now=clock.now())
        await asyncio.sleep(100)

    run(clock, poller, life)

    assert len(ids) == len(set(ids)) > 3
    numbers = [int(str(body["occurrence"])) for body in sender.received if body["scheduleId"] == "s1"]
    assert numbers == sorted(set(numbers))


def test_only_a_schedule_that_names_one_has_its_calendar_read(store: Store, clock: VirtualClock) -> None:
    Calendars(store, DEFAULT_TENANT).put(EVERY_DAY, now=START)
    days = days_namespace(DEFAULT_TENANT)
    assert loaded(store, clock, make_schedule(store)).stored(days) is None
    cache = loaded(store, clock, make_schedule(store, calendar="de"))
    assert cache.calendar("default", "de") is cache.calendar("default", "de") is not None
    assert cache.calendar("default", "at") is None
