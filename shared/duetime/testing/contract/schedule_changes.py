"""Schedules that are changed, removed, listed and loaded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.domain.ids import backfill_timer_id, occurrence_timer_id, trigger_timer_id
from duetime.domain.namespaces import Namespace, Pause
from duetime.domain.occurrences import PastOccurrence
from duetime.domain.outcomes import RecordStatus
from duetime.domain.schedule_timers import backfilled, standing_at, triggered
from duetime.domain.schedules import Occurrence
from duetime.domain.timers import Timer, TimerState
from duetime.stores.core.store import Store
from duetime.stores.port.timers import ChangeStatus, TimerFilter, TimerRef
from duetime.stores.port.transfer import LoadStatus
from duetime.testing.contract.builders import (
    NOW,
    fired,
    make_timer,
    retried,
    seconds,
)
from duetime.testing.contract.schedules import OUTCOMES, after, make_schedule, stored_schedule
from duetime.testing.contract.steps import claim, create, due, read_all, record
from duetime.testing.contract.subject import Subject

LATER = NOW + seconds(30)


def test_lines_of_a_history_are_loaded_as_they_were(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))
    record(store, [after(fired(schedule))], claim(store))
    schedule = stored_schedule(store, single)
    (line,) = store.schedules.history(schedule, limit=10)
    others = [
        replace(line, number=number, attempt_log=log) for number, log in ((1, line.attempt_log), (1, "[]"), (2, None))
    ]
    pasts = [
        PastOccurrence(namespace="single", schedule_id="s1", shard_id=schedule.shard_id, line=each) for each in others
    ]

    statuses = [store.transfer.load_occurrences([past])[0] for past in pasts]

    assert statuses == [LoadStatus.PRESENT, LoadStatus.CONFLICT, LoadStatus.LOADED]
    assert schedule.schedule is not None
    later = replace(schedule, schedule=replace(schedule.schedule, number=3))
    assert store.schedules.history(later, limit=10) == [others[2], line]


def test_a_deleted_schedule_takes_its_history_along(store: Store, single: Namespace) -> None:
    create(store, make_schedule(single))
    lease = claim(store)
    for _ in range(3):
        record(store, [after(fired(stored_schedule(store, single)))], lease)
    schedule = stored_schedule(store, single)

    (result,) = store.timers.delete(single, [TimerRef(schedule.timer_id)], now=NOW)

    assert result.timer == schedule
    assert store.schedules.history(schedule, limit=10) == []


def test_lists_tell_schedules_from_timers(store: Store, orders: Namespace) -> None:
    timers = create(store, *(make_timer(orders, f"t{each}") for each in range(20)))
    schedules = create(store, *(make_schedule(orders, f"s{each}") for each in range(20)))
    leases = [claim(store, shard_id) for shard_id in orders.shard_ids()]
    record(store, [after(retried(schedules[0], next_attempt_at=LATER))], *leases)
    own = occurrence_timer_id("s0", NOW)

    def listed(timer_filter: TimerFilter) -> set[str]:
        pages = read_all(
            lambda cursor: store.timers.list(orders, timer_filter, cursor=cursor, limit=3, now=NOW), max_pages=40
        )
        assert len({each.timer_id for each in pages}) == len(pages)
        return {each.timer_id for each in pages}

    plain, of_schedules = {each.timer_id for each in timers}, {each.timer_id for each in schedules}
    scheduled = TimerState.SCHEDULED
    assert listed(TimerFilter()) == plain | of_schedules | {own}
    assert listed(TimerFilter(is_of_schedule=False)) == plain
    assert listed(TimerFilter(is_of_schedule=False, state=scheduled)) == plain
    assert listed(TimerFilter(is_of_schedule=True, state=scheduled)) == of_schedules | {own}
    found = read_all(lambda cursor: store.schedules.list(orders, cursor=cursor, limit=3, now=NOW))
    assert {each.timer_id for each in found} == of_schedules
    assert len(found) == len(of_schedules)
    assert [each.shard_id for each in found] == sorted(each.shard_id for each in found)


def test_a_namespace_without_schedules_lists_none(store: Store, orders: Namespace) -> None:
    create(store, *(make_timer(orders, f"t{each}") for each in range(20)))

    assert read_all(lambda cursor: store.schedules.list(orders, cursor=cursor, limit=3, now=NOW)) == []


def test_triggers_and_backfills_are_found_beside_all_else_the_latest_first(store: Store, orders: Namespace) -> None:
    schedules = create(store, *(make_schedule(orders, each) for each in ("s", "s1", "s10")))
    (trigger, _) = create(store, triggered(schedules[1], NOW, trigger_id="t", now=NOW), make_timer(orders, "s"))
    times = [NOW - timedelta(days=each) for each in range(5)]
    made = {
        schedule.schedule_id: create(
            store, *(backfilled(schedule, Occurrence(at, NOW), began_at=NOW, now=NOW) for at in times)
        )
        for schedule in schedules
    }

    def beside(prefix: str) -> list[Timer]:
        return read_all(lambda cursor: store.schedules.beside(orders, prefix, cursor=cursor, limit=2, now=NOW))

    for schedule_id, timers in made.items():
        assert beside(backfill_timer_id(schedule_id or "")) == timers
        assert beside(trigger_timer_id(schedule_id or "")) == ([trigger] if schedule_id == "s1" else [])
    assert {each.schedule_id for each in due(store, orders, until=NOW)} == {"s", "s1", "s10", None}
    listed = read_all(lambda cursor: store.schedules.list(orders, cursor=cursor, limit=3, now=NOW), max_pages=40)
    assert {each.timer_id for each in listed} == {each.timer_id for each in schedules}


def pausing(timer: Timer) -> Timer:
    assert timer.schedule is not None
    if timer.schedule.pause is not None:
        return timer
    return standing_at(timer, replace(timer.schedule, pause=Pause(NOW, "a reason")), now=NOW)


def test_a_schedule_is_changed(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))

    result = store.schedules.change(single, "s1", pausing, now=NOW)

    assert (result.status, result.timer) == (ChangeStatus.APPLIED, pausing(schedule))
    assert stored_schedule(store, single) == result.timer
    assert due(store, single, until=NOW + timedelta(days=365)) == []
    again = store.schedules.change(single, "s1", pausing, now=NOW)
    assert (again.status, again.timer) == (ChangeStatus.APPLIED, result.timer)


def test_a_schedule_that_is_not_there_is_not_changed(store: Store, single: Namespace) -> None:
    create(store, make_timer(single, "s1"))

    assert store.schedules.change(single, "s1", pausing, now=NOW).status is ChangeStatus.NOT_FOUND


def test_what_a_change_raises_is_raised(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))

    def refuse(timer: Timer) -> Timer:
        raise LookupError(timer.timer_id)

    with pytest.raises(LookupError):
        store.schedules.change(single, "s1", refuse, now=NOW)
    assert stored_schedule(store, single) == schedule


@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_schedule_that_is_paused_meanwhile_stays_so(store: Store, single: Namespace, kind: str) -> None:
    (schedule,) = create(store, make_schedule(single))
    paused = store.schedules.change(single, "s1", pausing, now=NOW).timer

    assert record(store, [after(OUTCOMES[kind](schedule))], claim(store)) == [RecordStatus.SUPERSEDED]

    assert stored_schedule(store, single) == paused


def test_a_change_that_is_overtaken_is_made_again(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))
    lease, calls = claim(store), []

    def overtaken(timer: Timer) -> Timer:
        calls.append(timer.revision)
        if len(calls) == 1:
            assert record(store, [after(fired(schedule))], lease) == [RecordStatus.APPLIED]
        return pausing(timer)

    result = store.schedules.change(single, "s1", overtaken, now=NOW)

    assert calls == [1, 2]
    assert result.timer is not None
    assert result.timer.schedule is not None
    assert (result.timer.revision, result.timer.schedule.number) == (3, 2)
    assert stored_schedule(store, single) == result.timer


def test_what_cannot_be_read_is_not_changed(subject: Subject, single: Namespace) -> None:
    (schedule,) = create(subject.store, make_schedule(single))
    subject.corrupt(schedule)

    result = subject.store.schedules.change(single, "s1", pausing, now=NOW)

    assert result.status is ChangeStatus.UNREADABLE
