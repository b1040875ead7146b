from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from duetime.domain.timers import (
    Failure,
    FailureReason,
    Rearm,
    TimerChange,
    TimerState,
    changed,
    content_digest,
    rearmed,
    replaced,
)
from tests.support.clock import NOW as START
from tests.support.engine import make_timer

LATER = START + timedelta(hours=1)
RETRYING = replace(
    make_timer("t"),
    attempts=3,
    next_attempt_at=LATER,
    failure=Failure(FailureReason.HTTP_STATUS, "status 500", START, 500),
    revision=4,
)


def test_a_changed_due_time_starts_a_new_firing() -> None:
    timer = changed(RETRYING, TimerChange(execute_at=LATER), firing_id="new", now=LATER)
    assert (timer.firing_id, timer.attempts, timer.failure) == ("new", 0, None)
    assert timer.content.execute_at == timer.next_attempt_at == LATER
    assert (timer.revision, timer.updated_at, timer.created_at) == (5, LATER, RETRYING.created_at)


@pytest.mark.parametrize(
    "change",
    [TimerChange(payload_json="1"), TimerChange(callback_url="http://other.test"), TimerChange(headers_json="{}")],
)
def test_another_message_is_a_new_firing_but_keeps_its_back_off(change: TimerChange) -> None:
    timer = changed(RETRYING, change, firing_id="new", now=LATER)
    assert (timer.firing_id, timer.attempts) == ("new", 0)
    assert timer.next_attempt_at == LATER


@pytest.mark.parametrize(
    "change", [TimerChange(tags=("a",)), TimerChange(retry_policy_json=None), TimerChange(correlation_id="c")]
)
def test_what_does_not_change_the_message_leaves_the_firing_alone(change: TimerChange) -> None:
    timer = changed(RETRYING, change, firing_id="new", now=LATER)
    assert (timer.firing_id, timer.attempts, timer.failure) == (RETRYING.firing_id, 3, RETRYING.failure)
    assert timer.next_attempt_at == RETRYING.next_attempt_at
    assert timer.revision == 5


def test_a_parked_timer_that_becomes_another_message_is_due_again_at_its_due_time() -> None:
    parked = replace(make_timer("t"), state=TimerState.FIRING, next_attempt_at=LATER)
    timer = changed(parked, TimerChange(payload_json="1"), firing_id="new", now=LATER)
    assert (timer.state, timer.next_attempt_at) == (TimerState.SCHEDULED, parked.content.execute_at)
    assert timer.firing_id == "new"


def test_a_parked_timer_that_stays_the_same_message_stays_parked() -> None:
    parked = replace(make_timer("t", payload_json="1"), state=TimerState.FIRING, next_attempt_at=LATER)
    change = TimerChange(
        execute_at=parked.content.execute_at,
        payload_json="1",
        tags=("a",),
        retry_policy_json="{}",
        callback_timeout_seconds=7,
        expire_after_ms=1,
    )
    timer = changed(parked, change, firing_id="new", now=LATER)
    assert (timer.state, timer.next_attempt_at, timer.firing_id) == (TimerState.FIRING, LATER, parked.firing_id)
    assert (timer.content.tags, timer.revision) == (("a",), parked.revision + 1)


def test_none_clears_and_unset_keeps() -> None:
    timer = changed(make_timer("t", payload_json="1"), TimerChange(payload_json=None), firing_id="new", now=START)
    assert timer.content.payload_json is None
    assert timer.content.callback_url == make_timer("t").content.callback_url


def test_a_replacement_counts_on_and_keeps_its_age() -> None:
    new = replace(make_timer("t", execute_at=LATER), created_at=LATER)
    timer = replaced(RETRYING, new)
    assert (timer.revision, timer.created_at, timer.attempts) == (5, RETRYING.created_at, 0)


def test_the_digest_tells_contents_apart() -> None:
    content = make_timer("t").content
    other = [
        replace(content, execute_at=LATER),
        replace(content, payload_json="null"),
        replace(content, tags=("a",)),
        replace(content, callback_timeout_seconds=31),
    ]
    digests = {content_digest(each) for each in [content, *other]}
    assert len(digests) == 5


def test_with_a_delay_the_delay_counts_and_not_the_time_it_led_to() -> None:
    content = make_timer("t").content
    again = replace(content, execute_at=LATER)
    assert content_digest(content, delay_seconds=60) == content_digest(again, delay_seconds=60)
    assert content_digest(content, delay_seconds=60) != content_digest(content, delay_seconds=61)


@pytest.mark.parametrize(
    ("state", "next_attempt_at", "expected"),
    [
        (TimerState.SCHEDULED, LATER, False),
        (TimerState.SCHEDULED, START, True),
        (TimerState.FIRING, LATER, True),
        (TimerState.FIRED, None, False),
    ],
)
def test_whether_an_attempt_may_be_in_flight(state: TimerState, next_attempt_at: object, expected: bool) -> None:
    timer = replace(make_timer("t"), state=state, next_attempt_at=next_attempt_at)  # type: ignore[arg-type]
    assert timer.attempt_may_be_in_flight(START) is expected


@pytest.mark.parametrize(
    ("late", "is_too_late"),
    [(timedelta(0), False), (timedelta(seconds=90), False), (timedelta(seconds=90.001), True)],
)
def test_how_late_is_too_late_counts_from_the_due_time_or_a_later_redrive(late: timedelta, is_too_late: bool) -> None:
    timer = make_timer("t", expire_after_ms=90_000)
    redriven = replace(timer, rearmed_at=LATER)
    rescheduled = replace(redriven, content=replace(timer.content, execute_at=LATER + timedelta(hours=1)))

    assert timer.is_too_late(START + late) is is_too_late
    assert redriven.is_too_late(LATER + late) is is_too_late
    assert rescheduled.is_too_late(LATER + timedelta(hours=1) + late) is is_too_late
    assert not make_timer("t").is_too_late(START + timedelta(days=1000))


def test_a_new_firing_forgets_the_redrive_and_keeps_the_log() -> None:
    redriven = replace(RETRYING, rearmed_at=LATER, attempt_log="[1]")
    timer = changed(redriven, TimerChange(payload_json="1"), firing_id="new", now=LATER)
    assert (timer.rearmed_at, timer.attempt_log) == (None, "[1]")
    assert changed(redriven, TimerChange(tags=()), firing_id="new", now=LATER).rearmed_at == LATER


def test_how_late_it_may_be_belongs_to_the_content() -> None:
    contents = [make_timer("t", expire_after_ms=limit).content for limit in (None, 1000, 2000)]
    assert len({content_digest(content) for content in contents}) == 3


FAILED = replace(RETRYING, state=TimerState.FAILED, next_attempt_at=None, expires_at=LATER, fired_at=START)


def test_a_redriven_timer_is_the_same_firing_with_its_attempts_ahead() -> None:
    assert rearmed(FAILED, Rearm.REDRIVE, now=LATER) == replace(
        FAILED,
        state=TimerState.SCHEDULED,
        revision=5,
        attempts=0,
        next_attempt_at=LATER,
        rearmed_at=LATER,
        expires_at=None,
        updated_at=LATER,
    )


def test_a_timer_that_is_fired_by_hand_keeps_its_attempts() -> None:
    now = START + timedelta(seconds=1)
    timer = rearmed(RETRYING, Rearm.FIRE, now=now)
    assert timer is not None
    assert (timer.next_attempt_at, timer.rearmed_at, timer.attempts, timer.revision) == (now, now, 3, 5)
    assert (timer.firing_id, timer.failure) == (RETRYING.firing_id, RETRYING.failure)
    assert timer.content == RETRYING.content


def test_a_timer_that_is_due_already_is_not_made_due_again() -> None:
    assert rearmed(RETRYING, Rearm.FIRE, now=LATER) is RETRYING


def test_only_what_failed_is_redriven_and_only_what_waits_is_fired_or_cancelled() -> None:
    allowed = {
        Rearm.REDRIVE: (TimerState.FAILED,),
        Rearm.FIRE: (TimerState.SCHEDULED,),
        Rearm.CANCEL: (TimerState.SCHEDULED, TimerState.CANCELLED),
    }
    for state in TimerState:
        timer = replace(RETRYING, state=state)
        for how, wanted in allowed.items():
            assert (rearmed(timer, how, now=START) is not None) is (state in wanted)
