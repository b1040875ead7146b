"""Schedules over outages, retries and crashes: each occurrence has one fate, in order."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from duetime.domain.namespaces import Pause
from duetime.domain.schedules import (
    GRACE,
    MAX_CAUGHT_UP,
    MAX_COUNTED,
    Action,
    Missed,
    Occurrence,
    Overlap,
    Schedule,
    ScheduleEnd,
    ScheduleMisfire,
    SchedulePolicy,
    ScheduleRequest,
    closed,
    concluded,
    detached,
    fired,
    new_schedule,
    paused,
    resumed,
    retimed,
    skipped,
    turn,
)

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


class Listed:
    """Occurrences at these times, each due with a delay."""

    def __init__(self, times: list[datetime], delay: timedelta = timedelta()) -> None:
        self.items = [Occurrence(at, at + delay) for at in times]

    def after(self, scheduled_at: datetime) -> Occurrence | None:
        place = bisect_right(self.items, scheduled_at, key=lambda each: each.scheduled_at)
        return self.items[place] if place < len(self.items) else None

    def before(self, scheduled_at: datetime) -> Occurrence | None:
        place = bisect_left(self.items, scheduled_at, key=lambda each: each.scheduled_at)
        return self.items[place - 1] if place else None

    def due_by(self, instant: datetime) -> Occurrence | None:
        place = bisect_right(self.items, instant, key=lambda each: each.due_at)
        return self.items[place - 1] if place else None


def every(distance: timedelta, number: int) -> Listed:
    return Listed([START + n * distance for n in range(1, number + 1)])


def policy(misfire: ScheduleMisfire = ScheduleMisfire.ALL, **other: Any) -> SchedulePolicy:
    return SchedulePolicy(misfire=misfire, **other)


def begun(occurrences: Listed, given: SchedulePolicy) -> Schedule:
    return new_schedule(given, occurrences, after=START)


def pending_at(schedule: Schedule) -> datetime:
    assert schedule.pending is not None
    return schedule.pending.scheduled_at


# -- one step --------------------------------------------------------------------------------------------------


def test_the_next_is_computed_from_the_last_however_late_it_fires() -> None:
    hourly = every(HOUR, 9)
    schedule = begun(hourly, policy())

    assert turn(schedule, hourly, now=START, is_open=False).action is Action.WAIT
    late = turn(schedule, hourly, now=START + HOUR + 59 * SECOND, is_open=False)
    assert (late.action, late.missed, late.schedule) == (Action.FIRE, None, schedule)
    assert pending_at(fired(schedule, hourly)) == START + 2 * HOUR


@pytest.mark.parametrize(
    ("misfire", "kept", "count"),
    [(ScheduleMisfire.ALL, 30, 29), (ScheduleMisfire.LATEST, 90, 89), (ScheduleMisfire.SKIP, 89, 88)],
)
def test_what_was_missed_is_one_line_of_the_history(misfire: ScheduleMisfire, kept: int, count: int) -> None:
    minutely = every(MINUTE, 1000)
    schedule = begun(minutely, policy(misfire))

    found = turn(schedule, minutely, now=START + 90 * MINUTE, is_open=False)

    assert found.action is Action.FIRE
    assert pending_at(found.schedule) == START + kept * MINUTE
    assert found.missed == Missed(1, START + MINUTE, START + count * MINUTE, count)
    assert found.schedule.number == 2


@pytest.mark.parametrize("misfire", [ScheduleMisfire.ALL, ScheduleMisfire.SKIP])
def test_what_is_kept_at_the_border_fires_however_long_those_before_it_take(misfire: ScheduleMisfire) -> None:
    minutely = every(MINUTE, 1000)
    now = START + 90 * MINUTE
    schedule = turn(begun(minutely, policy(misfire)), minutely, now=now, is_open=False).schedule
    while schedule.pending is not None and schedule.pending.due_at <= now:
        found = turn(schedule, minutely, now=now + 45 * SECOND, is_open=False)
        assert (found.action, found.missed, found.schedule) == (Action.FIRE, None, schedule)
        schedule = fired(schedule, minutely)

    assert schedule.passed_at == now
    assert schedule.kept_to is None


@pytest.mark.parametrize("other", ["outage", "times"])
def test_what_was_kept_is_decided_anew_after_another_outage_and_with_other_times(other: str) -> None:
    minutely = every(MINUTE, 1000)
    now = START + 90 * MINUTE
    schedule = turn(begun(minutely, policy()), minutely, now=now, is_open=False).schedule
    now += 61 * MINUTE if other == "outage" else 2 * MINUTE
    if other == "times":
        schedule = retimed(schedule, minutely)

    found = turn(schedule, minutely, now=now, is_open=False)

    assert pending_at(found.schedule) == now - HOUR
    assert found.missed is not None


def test_what_is_late_is_decided_once_even_if_nothing_is_missed() -> None:
    minutely = every(MINUTE, 1000)
    schedule = begun(minutely, policy())

    found = turn(schedule, minutely, now=START + 9 * MINUTE, is_open=False)

    assert (found.action, found.missed) == (Action.FIRE, None)
    assert found.schedule == replace(schedule, kept_to=START + 9 * MINUTE)


def test_what_is_caught_up_is_bounded_in_number_and_what_is_counted_too() -> None:
    secondly = every(SECOND, 5000)
    schedule = begun(secondly, policy())

    found = turn(schedule, secondly, now=START + 4000 * SECOND, is_open=False)

    first = 4000 - MAX_CAUGHT_UP + 1
    assert pending_at(found.schedule) == START + first * SECOND
    assert found.missed == Missed(1, START + SECOND, START + (first - 1) * SECOND, MAX_COUNTED)


def test_a_schedule_ends_after_its_last_occurrence_or_its_most_firings() -> None:
    twice = every(HOUR, 2)
    once = fired(begun(twice, policy()), twice)
    limited = fired(begun(twice, policy(max_firings=1)), twice)
    skipping = turn(once, twice, now=START + 5 * HOUR, is_open=False)

    assert (fired(once, twice).pending, fired(once, twice).end) == (None, ScheduleEnd.NO_OCCURRENCE)
    assert (limited.pending, limited.end, limited.firings) == (None, ScheduleEnd.MAX_FIRINGS, 1)
    assert turn(limited, twice, now=START + 2 * HOUR, is_open=False).action is Action.END
    assert (skipping.action, skipping.missed) == (Action.END, Missed(2, START + 2 * HOUR, START + 2 * HOUR, 1))


def test_a_delay_counts_from_when_an_occurrence_is_due() -> None:
    delayed = Listed([START + n * HOUR for n in range(1, 9)], delay=50 * MINUTE)
    schedule = begun(delayed, policy(ScheduleMisfire.SKIP))

    assert turn(schedule, delayed, now=START + 109 * MINUTE, is_open=False).action is Action.WAIT
    assert turn(schedule, delayed, now=START + 111 * MINUTE, is_open=False).action is Action.FIRE
    passed = turn(schedule, delayed, now=START + 112 * MINUTE, is_open=False)
    assert (passed.action, pending_at(passed.schedule)) == (Action.WAIT, START + 2 * HOUR)


def test_an_occurrence_is_skipped_while_an_earlier_one_goes_on() -> None:
    minutely = every(MINUTE, 9)
    schedule = detached(begun(minutely, policy(overlap=Overlap.SKIP)), minutely)

    assert turn(schedule, minutely, now=START + 2 * MINUTE, is_open=True).action is Action.SKIP
    later = skipped(schedule, minutely)
    assert turn(later, minutely, now=START + 3 * MINUTE, is_open=False).action is Action.FIRE
    assert later.firings == 1


def test_one_occurrence_waits_for_the_end_of_the_earlier_one() -> None:
    minutely = every(MINUTE, 99)
    schedule = detached(begun(minutely, policy(overlap=Overlap.BUFFER_ONE)), minutely)
    buffered = turn(schedule, minutely, now=START + 2 * MINUTE, is_open=True)
    still = turn(buffered.schedule, minutely, now=START + 50 * MINUTE, is_open=True)
    freed = turn(closed(buffered.schedule, START + MINUTE), minutely, now=START + 50 * MINUTE, is_open=False)

    assert (buffered.action, buffered.schedule.is_buffered) == (Action.WAIT, True)
    assert (still.action, still.schedule) == (Action.WAIT, buffered.schedule)
    assert (freed.action, pending_at(freed.schedule)) == (Action.FIRE, START + 50 * MINUTE)
    assert freed.missed == Missed(2, START + 2 * MINUTE, START + 49 * MINUTE, 48)


def test_the_end_of_an_older_one_frees_nothing() -> None:
    minutely = every(MINUTE, 9)
    schedule = detached(begun(minutely, policy(overlap=Overlap.SKIP)), minutely)

    assert closed(schedule, START) == schedule
    assert closed(schedule, START + MINUTE).open_at is None


def test_failures_in_a_row_pause_it_and_none_is_counted_twice() -> None:
    hourly = every(HOUR, 9)
    schedule = begun(hourly, policy(pause_after=2))

    def after_one(given: Schedule, hour: int, *, has_failed: bool | None) -> Schedule:
        at = START + hour * HOUR
        return concluded(given, at, has_failed=has_failed, request=None, now=at)

    once = after_one(schedule, 1, has_failed=True)
    assert once.pause is None
    assert after_one(once, 1, has_failed=True) == once
    assert after_one(once, 2, has_failed=None) == once
    assert after_one(once, 2, has_failed=False) == schedule
    twice = after_one(once, 3, has_failed=True)
    assert twice.pause == Pause(START + 3 * HOUR, "the last 2 occurrences have failed (pauseAfter)")
    assert resumed(twice) == schedule
    assert after_one(begun(hourly, policy()), 1, has_failed=True) == begun(hourly, policy())


def test_a_pause_of_its_receiver_changes_neither_an_earlier_one_nor_an_end() -> None:
    hourly = every(HOUR, 9)
    earlier = paused(begun(hourly, policy()), Pause(START, "mine"))
    over = fired(begun(hourly, policy(max_firings=1)), hourly)

    for schedule in (earlier, over):
        request = ScheduleRequest(is_end=False)
        assert concluded(schedule, START, has_failed=False, request=request, now=START + HOUR) == schedule
    ended = concluded(earlier, START, has_failed=None, request=ScheduleRequest(is_end=True), now=START)
    assert (ended.pending, ended.pause, ended.end) == (None, None, ScheduleEnd.RECEIVER)
    assert retimed(ended, hourly) == ended
    assert concluded(over, START, has_failed=None, request=ScheduleRequest(is_end=True), now=START) == over


def test_other_occurrences_begin_after_what_is_passed_or_after_the_change() -> None:
    hourly, half_hourly = every(HOUR, 9), every(30 * MINUTE, 9)
    schedule = fired(begun(hourly, policy()), hourly)
    ended = fired(schedule, every(HOUR, 2))
    spent = fired(begun(hourly, policy(max_firings=1)), hourly)

    assert pending_at(retimed(schedule, half_hourly)) == START + 90 * MINUTE
    assert pending_at(retimed(schedule, half_hourly, after=START + 2 * HOUR)) == START + 150 * MINUTE
    assert retimed(schedule, half_hourly).number == schedule.number
    assert pending_at(retimed(ended, hourly)) == START + 3 * HOUR
    assert retimed(spent, half_hourly) == spent


# -- many steps ------------------------------------------------------------------------------------------------

POLICIES = st.builds(
    SchedulePolicy,
    misfire=st.sampled_from(ScheduleMisfire),
    catch_up_ms=st.sampled_from([0, 300_000, 3_600_000]),
    overlap=st.sampled_from(Overlap),
    max_firings=st.sampled_from([None, None, 1, 5]),
)
DISTANCES = st.lists(st.integers(1, 1200), min_size=1, max_size=60)
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["ends", "goes on", "crashes"]),
        st.integers(0, 300) | st.integers(0, 9000),  # seconds to the next look at it
        st.booleans(),  # whether the earlier one has ended by then
    ),
    max_size=60,
)


class Played:
    """A schedule, its occurrences, and what has become of each of them."""

    def __init__(self, given_policy: SchedulePolicy, occurrences: Listed) -> None:
        self.policy = given_policy
        self.occurrences = occurrences
        self.schedule = begun(occurrences, given_policy)
        self.now = START
        self.is_open = False
        self.sent: list[datetime] = []
        self.fates: list[tuple[datetime, datetime]] = []
        """First and last, by their scheduled times."""

    def step(self, what: str) -> None:
        found = turn(self.schedule, self.occurrences, now=self.now, is_open=self.is_open)
        again = turn(found.schedule, self.occurrences, now=self.now, is_open=self.is_open)
        assert (again.action, again.schedule, again.missed) == (found.action, found.schedule, None)
        if found.action is Action.FIRE:
            assert found.schedule.pending is not None
            assert found.schedule.pending.due_at <= self.now
            assert not self.is_open or self.policy.overlap is Overlap.ALLOW
            self.sent.append(pending_at(found.schedule))
        if what == "crashes":  # nothing of it is stored
            return
        self.schedule = found.schedule
        if found.missed is not None:
            self._miss(found.missed)
        if found.action is Action.FIRE:
            self.is_open = self.is_open or what == "goes on"
            self._pass((detached if what == "goes on" else fired)(self.schedule, self.occurrences))
        elif found.action is Action.SKIP:
            self._pass(skipped(self.schedule, self.occurrences))

    def _pass(self, moved: Schedule) -> None:
        self.fates.append((pending_at(self.schedule), pending_at(self.schedule)))
        self.schedule = moved

    def _miss(self, missed: Missed) -> None:
        self.fates.append((missed.first, missed.last))
        last = self.occurrences.after(missed.last - SECOND)
        assert last is not None
        assert last.due_at <= self.now
        if self.policy.misfire is ScheduleMisfire.ALL and self.policy.overlap is not Overlap.BUFFER_ONE:
            assert self.now - last.due_at > max(timedelta(milliseconds=self.policy.catch_up_ms), GRACE)

    def end_earlier(self) -> None:
        if self.is_open:
            assert self.schedule.open_at is not None
            self.schedule, self.is_open = closed(self.schedule, self.schedule.open_at), False


@given(POLICIES, DISTANCES, st.integers(0, 600), STEPS)
@example(  # what was buffered for longer than catchUp fires, also when that is decided twice
    SchedulePolicy(catch_up_ms=3_600_000, overlap=Overlap.BUFFER_ONE),
    [1, 1, 1, 1],
    0,
    [("ends", 2581, False), ("goes on", 0, False), ("ends", 0, False), ("ends", 1024, True)],
)
def test_each_occurrence_has_one_fate_in_order_whatever_happens(
    given_policy: SchedulePolicy, distances: list[int], delay: int, steps: list[tuple[str, int, bool]]
) -> None:
    times = [START + total * SECOND for total in accumulate(distances)]
    played = Played(given_policy, Listed(times, delay * SECOND))
    for what, seconds, ends in steps:
        played.now += seconds * SECOND
        if ends:
            played.end_earlier()
        played.step(what)

    schedule = played.schedule
    decided = [time for first, last in played.fates for time in times if first <= time <= last]
    assert decided == times[: len(decided)]
    assert schedule.passed_at == (decided[-1] if decided else START)
    assert schedule.number == len(played.fates) + 1
    assert played.sent == sorted(played.sent)
    if schedule.pending is not None:
        assert schedule.pending.scheduled_at == times[len(decided)]
    elif schedule.end is ScheduleEnd.NO_OCCURRENCE:
        assert decided == times
    else:
        assert schedule.firings == given_policy.max_firings
