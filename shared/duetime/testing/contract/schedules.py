"""Schedules: timers that move on, their occurrences that become timers, and their history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from duetime.domain.ids import occurrence_timer_id, schedule_timer_id
from duetime.domain.namespaces import Namespace, Pause
from duetime.domain.occurrences import KEPT_OCCURRENCES, OccurrenceRecord, OccurrenceState
from duetime.domain.outcomes import Outcome, RecordStatus, recorded
from duetime.domain.schedule_timers import (
    after_attempt,
    after_last_attempt,
    line_of_beside,
    moved,
    new_schedule_timer,
    triggered,
)
from duetime.domain.schedules import (
    FailuresInARow,
    Occurrence,
    Overlap,
    Schedule,
    ScheduleEnd,
    ScheduleMisfire,
    SchedulePolicy,
    new_schedule,
)
from duetime.domain.timers import Timer, TimerChange, TimerState
from duetime.domain.times import MILLISECOND
from duetime.stores.core.store import Store
from duetime.stores.port.timers import PutMode, PutStatus, TimerRef
from duetime.stores.port.transfer import LoadStatus
from duetime.testing.contract.builders import (
    NOW,
    failed,
    fired,
    make_content,
    make_failure,
    make_timer,
    parked,
    retried,
    seconds,
)
from duetime.testing.contract.steps import claim, create, due, record, stored

MINUTE = timedelta(minutes=1)
LATER = NOW + seconds(30)
TIMING = '{"everyMs":60000}'


class EveryMinute:
    """Occurrences at ``NOW`` and each minute after it, up to ``last``."""

    def __init__(self, last: datetime = NOW + timedelta(days=1)) -> None:
        self._last = last

    def after(self, scheduled_at: datetime) -> Occurrence | None:
        at = NOW if scheduled_at < NOW else NOW + ((scheduled_at - NOW) // MINUTE + 1) * MINUTE
        return Occurrence(at, at) if at <= self._last else None

    def before(self, scheduled_at: datetime) -> Occurrence | None:
        return self.due_by(scheduled_at - MILLISECOND)

    def due_by(self, instant: datetime) -> Occurrence | None:
        at = min(NOW + (instant - NOW) // MINUTE * MINUTE, self._last)
        return Occurrence(at, at) if at >= NOW else None


def make_schedule(
    namespace: Namespace, schedule_id: str = "s1", *, policy: SchedulePolicy | None = None, timing: str = TIMING
) -> Timer:
    """Return a schedule whose first occurrence is at ``NOW``."""
    schedule = new_schedule(policy or SchedulePolicy(), EveryMinute(), after=NOW - MINUTE)
    content = make_content(timing_json=timing, payload_json="1.10")
    return new_schedule_timer(namespace, schedule_id, content, schedule, digest="d", now=NOW)


def after(outcome: Outcome, *, last: datetime = NOW + timedelta(days=1)) -> Outcome:
    return after_attempt(outcome, EveryMinute(last), now=NOW, started_at=NOW)


def stored_schedule(store: Store, namespace: Namespace, schedule_id: str = "s1") -> Timer:
    return stored(store, namespace, schedule_timer_id(schedule_id))


def occurrence(store: Store, namespace: Namespace, at: datetime = NOW) -> Timer:
    return stored(store, namespace, occurrence_timer_id("s1", at))


def states(store: Store, schedule: Timer) -> list[tuple[int, OccurrenceState]]:
    return [(line.number, line.state) for line in store.schedules.history(schedule, limit=KEPT_OCCURRENCES)]


def fully_set(schedule: Timer) -> Timer:
    """With a value other than the default in each field."""
    policy = SchedulePolicy(
        misfire=ScheduleMisfire.SKIP, catch_up_ms=1, overlap=Overlap.BUFFER_ONE, max_firings=7, pause_after=3
    )
    state = Schedule(
        policy=policy,
        passed_at=NOW - seconds(0.001),
        pending=Occurrence(NOW, NOW + seconds(1.5)),
        number=2_000_000_000_000,
        firings=3,
        open_at=NOW - MINUTE,
        is_buffered=True,
        kept_to=NOW + MINUTE,
        pause=Pause(NOW, 'für "s1"'),
        failures=FailuresInARow(2, NOW),
    )
    return replace(schedule, schedule=state)


def test_a_schedule_is_stored_as_it_is(store: Store, single: Namespace) -> None:
    plain, full = make_schedule(single), fully_set(make_schedule(single, "s2"))
    ended = replace(make_schedule(single, "s3"), next_attempt_at=None, state=TimerState.FIRED)
    assert plain.schedule is not None
    ended = replace(ended, schedule=replace(plain.schedule, pending=None, end=ScheduleEnd.MAX_FIRINGS))

    create(store, plain, full)
    assert store.transfer.load_timers([ended], now=NOW) == [LoadStatus.LOADED]

    assert [stored_schedule(store, single, name) for name in ("s1", "s2", "s3")] == [plain, full, ended]
    assert sorted(due(store, single), key=lambda each: each.timer_id) == [plain, full]
    (again,) = store.timers.put([plain], mode=PutMode.CREATE, now=NOW)
    assert again.status is PutStatus.UNCHANGED


def test_a_schedule_and_a_timer_may_have_one_id(store: Store, single: Namespace) -> None:
    timer, schedule = create(store, make_timer(single, "s1"), make_schedule(single))

    assert stored(store, single, "s1") == timer
    assert stored_schedule(store, single) == schedule


def test_a_schedule_moves_on_with_the_record_of_its_occurrence(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))
    outcome = after(fired(schedule))

    assert record(store, [outcome], claim(store)) == [RecordStatus.APPLIED]

    following = stored_schedule(store, single)
    assert following == recorded(outcome, now=NOW)
    assert following.schedule is not None
    assert following.schedule.pending == Occurrence(NOW + MINUTE, NOW + MINUTE)
    assert (following.schedule.number, following.schedule.firings) == (2, 1)
    assert following.firing_id != schedule.firing_id
    assert due(store, single) == []
    assert due(store, single, until=NOW + MINUTE) == [following]
    (line,) = store.schedules.history(following, limit=10)
    assert (line.number, line.state, line.scheduled_at, line.attempts) == (1, OccurrenceState.FIRED, NOW, 1)


def test_the_last_occurrence_ends_a_schedule_which_stays(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))

    record(store, [after(fired(schedule), last=NOW)], claim(store))

    ended = stored_schedule(store, single)
    assert (ended.state, ended.next_attempt_at, ended.expires_at) == (TimerState.FIRED, None, None)
    assert ended.schedule is not None
    assert ended.schedule.end is ScheduleEnd.NO_OCCURRENCE
    assert due(store, single, until=NOW + timedelta(days=1)) == []


def test_a_line_of_the_history_is_kept_as_it_is(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))
    assert schedule.schedule is not None
    line = OccurrenceRecord(
        number=1,
        state=OccurrenceState.MISSED,
        scheduled_at=NOW,
        recorded_at=NOW,
        last_scheduled_at=NOW + MINUTE,
        count=2,
        started_at=NOW + seconds(2),
        attempts=3,
        failure=make_failure(),
        attempt_log='[{"ü":1.10}]',
        call_id="0193e5a1-7c00-7abc-8def-0123456789ab",
    )
    outcome = moved(schedule, replace(schedule.schedule, number=2), line)

    record(store, [outcome], claim(store))

    assert store.schedules.history(stored_schedule(store, single), limit=10) == [line]


def test_the_history_keeps_the_last_occurrences(store: Store, single: Namespace) -> None:
    create(store, make_schedule(single))
    lease = claim(store)
    for _ in range(KEPT_OCCURRENCES + 3):
        schedule = stored_schedule(store, single)
        assert record(store, [after(fired(schedule))], lease) == [RecordStatus.APPLIED]
    schedule = stored_schedule(store, single)

    numbers = [line.number for line in store.schedules.history(schedule, limit=1000)]

    assert numbers == list(range(KEPT_OCCURRENCES + 3, 3, -1))
    assert [line.number for line in store.schedules.history(schedule, limit=2)] == numbers[:2]


def test_a_schedule_without_history_has_none(store: Store, single: Namespace) -> None:
    (schedule,) = create(store, make_schedule(single))

    assert store.schedules.history(schedule, limit=10) == []


DETACHING = {
    "retried": lambda timer: retried(timer, next_attempt_at=LATER),
    "parked": lambda timer: parked(timer, until=LATER),
}


@pytest.mark.parametrize("kind", DETACHING)
def test_an_occurrence_goes_on_as_a_timer_while_its_schedule_moves_on(
    store: Store, single: Namespace, kind: str
) -> None:
    (schedule,) = create(store, make_schedule(single))
    outcome = after(DETACHING[kind](schedule))
    assert outcome.schedule is not None

    assert record(store, [outcome], claim(store)) == [RecordStatus.APPLIED]

    following, own = stored_schedule(store, single), occurrence(store, single)
    assert following == recorded(outcome, now=NOW)
    assert own == outcome.schedule.detached
    assert (own.firing_id, own.shard_id, own.revision) == (schedule.firing_id, schedule.shard_id, 1)
    assert (own.is_schedule, own.schedule) == (False, schedule.schedule)
    assert due(store, single, until=LATER) == [own]
    assert store.schedules.ongoing([following], now=NOW) == [own]
    assert states(store, following) == [(1, OccurrenceState.ONGOING)]


@pytest.mark.parametrize("end", [fired, failed])
def test_an_occurrence_that_ends_as_a_timer_has_its_end_in_the_history(
    store: Store, single: Namespace, end: Callable[[Timer], Outcome]
) -> None:
    (schedule,) = create(store, make_schedule(single))
    lease = claim(store)
    record(store, [after(retried(schedule, next_attempt_at=LATER))], lease)

    outcome = after_last_attempt(end(occurrence(store, single)), now=LATER, started_at=LATER)
    assert record(store, [outcome], lease, now=LATER) == [RecordStatus.APPLIED]

    following, own = stored_schedule(store, single), occurrence(store, single)
    assert own == recorded(outcome, now=LATER)
    assert states(store, following) == [(1, OccurrenceState(own.state))]
    assert store.schedules.ongoing([following], now=LATER) == [None]
    assert due(store, single, until=LATER) == []


def test_a_trigger_keeps_the_service_call_that_it_has_submitted(store: Store, single: Namespace) -> None:
    (trigger,) = create(store, triggered(make_schedule(single), NOW, trigger_id="t", now=NOW))
    submitted = replace(fired(trigger), call_id="call-1")

    outcome = after_last_attempt(submitted, now=NOW, started_at=NOW)
    assert record(store, [outcome], claim(store)) == [RecordStatus.APPLIED]

    line = line_of_beside(stored(store, single, trigger.timer_id))
    assert line is not None
    assert (line.state, line.call_id) == (OccurrenceState.FIRED, "call-1")


def test_an_end_that_comes_very_late_does_not_hide_another_occurrence(store: Store, single: Namespace) -> None:
    create(store, make_schedule(single))
    lease = claim(store)
    record(store, [after(retried(stored_schedule(store, single), next_attempt_at=LATER))], lease)
    for _ in range(KEPT_OCCURRENCES):
        record(store, [after(fired(stored_schedule(store, single)))], lease)

    outcome = after_last_attempt(failed(occurrence(store, single)), now=LATER, started_at=LATER)
    assert record(store, [outcome], lease) == [RecordStatus.APPLIED]

    history = store.schedules.history(stored_schedule(store, single), limit=1000)
    assert history[0].number == KEPT_OCCURRENCES + 1
    assert {line.state for line in history} == {OccurrenceState.FIRED}


def test_nothing_is_left_of_what_an_occurrence_takes_the_place_of(store: Store, single: Namespace) -> None:
    """Of an earlier try of it, or of a schedule that was deleted: whatever stood there had a failure and a log."""
    (schedule,), lease = create(store, make_schedule(single)), claim(store)
    logged = replace(retried(schedule, next_attempt_at=LATER), failure=make_failure(), attempt_log="1")
    record(store, [after(logged)], lease)
    store.timers.delete(single, [TimerRef(schedule.timer_id)], now=NOW)
    (again,) = create(store, make_schedule(single))

    outcome = after(parked(again, until=LATER))
    assert record(store, [outcome], lease) == [RecordStatus.APPLIED]

    assert outcome.schedule is not None
    assert occurrence(store, single) == outcome.schedule.detached
    assert store.schedules.history(stored_schedule(store, single), limit=1)[0].failure is None


OUTCOMES = {"fired": fired, "failed": failed, **DETACHING}


@pytest.mark.parametrize("kind", OUTCOMES)
def test_an_outcome_of_a_schedule_whose_answer_was_lost_is_written_once(
    store: Store, single: Namespace, kind: str
) -> None:
    (schedule,) = create(store, make_schedule(single))
    lease, outcome = claim(store), after(OUTCOMES[kind](schedule))
    record(store, [outcome], lease)
    first = stored_schedule(store, single)

    assert record(store, [outcome], lease) == [RecordStatus.APPLIED]

    assert stored_schedule(store, single) == first
    assert len(store.schedules.history(first, limit=10)) == 1


@pytest.mark.parametrize("kind", OUTCOMES)
def test_nothing_becomes_of_a_schedule_that_was_deleted(store: Store, single: Namespace, kind: str) -> None:
    (schedule,) = create(store, make_schedule(single))
    store.timers.delete(single, [TimerRef(schedule.timer_id)], now=NOW)

    assert record(store, [after(OUTCOMES[kind](schedule))], claim(store)) == [RecordStatus.SUPERSEDED]

    assert due(store, single, until=LATER) == []
    assert store.timers.get(single, occurrence_timer_id("s1", NOW), now=NOW) is None


@pytest.mark.parametrize("kind", OUTCOMES)
def test_labels_may_change_while_an_occurrence_is_sent(store: Store, single: Namespace, kind: str) -> None:
    (schedule,) = create(store, make_schedule(single))
    change = TimerChange(tags=("x",))
    store.timers.update(single, schedule.timer_id, change, firing_id="f2", now=NOW)

    assert record(store, [after(OUTCOMES[kind](schedule))], claim(store)) == [RecordStatus.APPLIED]

    following = stored_schedule(store, single)
    assert following.content.tags == ("x",)
    assert following.next_attempt_at == NOW + MINUTE


@pytest.mark.parametrize("kind", OUTCOMES)
def test_a_schedule_whose_times_were_changed_does_not_go_on_by_the_old_ones(
    store: Store, single: Namespace, kind: str
) -> None:
    (schedule,) = create(store, make_schedule(single))
    other = replace(make_schedule(single, timing='{"everyMs":7000}'), digest="other")
    (result,) = store.timers.put([other], mode=PutMode.REPLACE, now=NOW)

    assert record(store, [after(OUTCOMES[kind](schedule))], claim(store)) == [RecordStatus.SUPERSEDED]

    assert due(store, single, until=LATER) == [result.timer]
    assert stored_schedule(store, single) == result.timer


@pytest.mark.parametrize("kind", OUTCOMES)
def test_no_schedule_moves_without_the_lease(fencing: Store, single: Namespace, kind: str) -> None:
    (schedule,) = create(fencing, make_schedule(single))
    stale = claim(fencing, 0, "w1")
    claim(fencing, 0, "w2", now=stale.expires_at)

    assert record(fencing, [after(OUTCOMES[kind](schedule))], stale) == [RecordStatus.LEASE_LOST]

    assert stored_schedule(fencing, single) == schedule
    assert fencing.timers.get(single, occurrence_timer_id("s1", NOW), now=NOW) is None


def test_schedules_and_timers_are_recorded_in_one_batch(store: Store, single: Namespace) -> None:
    timers = create(store, make_timer(single, "t1"), make_timer(single, "t2"))
    schedules = create(store, *(make_schedule(single, f"s{each}") for each in range(4)))
    gone = make_schedule(single, "gone")
    outcomes = [
        fired(timers[0]),
        after(fired(schedules[0])),
        after(retried(schedules[1], next_attempt_at=LATER)),
        after(fired(gone)),
        after(parked(schedules[2], until=LATER)),
        after(parked(gone, until=LATER)),
        failed(timers[1]),
        after(failed(schedules[3])),
    ]

    expected = [RecordStatus.APPLIED] * 8
    expected[3] = expected[5] = RecordStatus.SUPERSEDED
    assert record(store, outcomes, claim(store)) == expected

    own = {occurrence_timer_id(name, NOW) for name in ("s1", "s2")}
    assert {each.timer_id for each in due(store, single, until=LATER)} == own
    assert len(due(store, single, until=NOW + MINUTE)) == 6
