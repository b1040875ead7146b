"""Schedules that name a calendar, in virtual time: what a poller knows of it, and when."""

from __future__ import annotations

from datetime import date, timedelta

from duetime.app.calendars import Calendars, finder
from duetime.domain.calendars import Calendar, days_namespace
from duetime.domain.ids import schedule_timer_id
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import SchedulePolicy, new_schedule
from duetime.domain.tenants import DEFAULT_TENANT
from duetime.domain.timers import Timer
from duetime.engine.namespace_cache import NamespaceCache
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.port.store import Store
from duetime.testing.contract.builders import make_content, make_namespace
from duetime.testing.virtual_time import VirtualClock
from tests.support.clock import NOW as START
from tests.support.engine import make_poller, put, run, stored
from tests.support.scripted_sender import ScriptedSender

EVERY_DAY = Calendar(name="de", weekdays=frozenset(), business_days=frozenset({START.date(), date(2026, 12, 22)}))


def make_schedule(store: Store, **timing: object) -> Timer:
    spec = TimingSpec(every_ms=10_000, anchor=START, **timing)  # type: ignore[arg-type]
    schedule = new_schedule(SchedulePolicy(), occurrences_by(spec, "s1", finder(store, DEFAULT_TENANT)), after=START)
    content = make_content(timing_json=timing_json(spec))
    return new_schedule_timer(make_namespace("default"), "s1", content, schedule, digest="d", now=START)


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


def test_only_a_schedule_that_names_one_has_its_calendar_read(store: Store, clock: VirtualClock) -> None:
    Calendars(store, DEFAULT_TENANT).put(EVERY_DAY, now=START)
    days = days_namespace(DEFAULT_TENANT)
    assert loaded(store, clock, make_schedule(store)).stored(days) is None
    cache = loaded(store, clock, make_schedule(store, calendar="de"))
    assert cache.calendar("default", "de") is cache.calendar("default", "de") is not None
    assert cache.calendar("default", "at") is None
