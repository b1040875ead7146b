"""What becomes of an outcome when something else is stored than the revision that was fired."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.outcomes import Outcome, RecordStatus, reconciled, recorded
from duetime.domain.timers import FailureReason, Rearm, Timer, TimerChange, changed, rearmed, replaced
from duetime.testing.contract.builders import (
    failed,
    fired,
    make_namespace,
    make_timer,
    parked,
    rescheduled,
    retried,
    seconds,
)
from tests.support.clock import NOW

LATER = NOW + seconds(30)
TIMER = replace(make_timer(make_namespace(), payload_json="1"), attempts=2, revision=7)
PARKED = recorded(replace(parked(TIMER, until=LATER), attempts=2), now=NOW)
OUTCOMES: dict[str, Callable[[Timer], Outcome]] = {
    "fired": fired,
    "retried": lambda timer: retried(timer, next_attempt_at=LATER),
    "rescheduled": lambda timer: rescheduled(timer, execute_at=LATER),
    "parked": lambda timer: replace(parked(timer, until=LATER + seconds(60)), attempts=timer.attempts),
    "failed": failed,
}


def change(timer: Timer, **fields: Any) -> Timer:
    return changed(timer, TimerChange(**fields), firing_id="another", now=LATER)


def rearm(timer: Timer, how: Rearm) -> Timer:
    after = rearmed(timer, how, now=LATER)
    assert after is not None
    return after


@pytest.mark.parametrize("timer", [TIMER, PARKED], ids=["waiting", "parked"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_one_s_own_work_is_recognised_whenever_it_was_done(timer: Timer, kind: str) -> None:
    outcome = OUTCOMES[kind](timer)
    stored = recorded(outcome, now=LATER)

    assert reconciled(outcome, stored) is RecordStatus.APPLIED
    if not stored.state.is_finished:
        assert reconciled(outcome, change(stored, tags=("x",))) is RecordStatus.APPLIED
        assert reconciled(outcome, change(stored, payload_json="2")) is RecordStatus.SUPERSEDED


@pytest.mark.parametrize("timer", [TIMER, PARKED], ids=["waiting", "parked"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_another_s_work_is_not_one_s_own(timer: Timer, kind: str) -> None:
    outcomes = [OUTCOMES[other](timer) for other in OUTCOMES if other != kind]
    stored = recorded(OUTCOMES[kind](timer), now=NOW)

    assert {reconciled(outcome, stored) for outcome in outcomes} == {RecordStatus.SUPERSEDED}


@pytest.mark.parametrize("timer", [TIMER, PARKED], ids=["waiting", "parked"])
@pytest.mark.parametrize("kind", OUTCOMES)
@pytest.mark.parametrize(
    "fields",
    [
        {"tags": ("x",)},
        {"correlation_id": "c"},
        {"retry_policy_json": "{}"},
        {"callback_timeout_seconds": 7},
        {"expire_after_ms": 1},
        {"payload_json": "1", "callback_url": TIMER.content.callback_url},
    ],
)
def test_what_leaves_the_firing_alone_leaves_the_outcome(timer: Timer, kind: str, fields: dict[str, object]) -> None:
    outcome, stored = OUTCOMES[kind](timer), change(timer, **fields)

    assert reconciled(outcome, stored) == replace(outcome, timer=stored)


@pytest.mark.parametrize("timer", [TIMER, PARKED], ids=["waiting", "parked"])
@pytest.mark.parametrize("kind", OUTCOMES)
def test_another_message_supersedes_the_outcome(timer: Timer, kind: str) -> None:
    outcome = OUTCOMES[kind](timer)
    new = make_timer(make_namespace(), payload_json="2")

    for stored in (
        change(timer, payload_json="2"),
        change(timer, execute_at=LATER),
        change(timer, headers_json="{}"),
        replaced(timer, new),
        new,
        None,
    ):
        assert reconciled(outcome, stored) is RecordStatus.SUPERSEDED


def test_fire_by_hand_makes_it_due_earlier_and_a_redrive_later() -> None:
    soon = replace(TIMER, next_attempt_at=LATER + seconds(1))
    assert reconciled(fired(soon), rearm(soon, Rearm.FIRE)) == replace(fired(soon), timer=rearm(soon, Rearm.FIRE))

    first = replace(TIMER, attempts=0)
    redriven = rearm(recorded(failed(first), now=NOW), Rearm.REDRIVE)
    assert (redriven.firing_id, redriven.attempts, redriven.state) == (first.firing_id, 0, first.state)
    assert reconciled(fired(first), redriven) is RecordStatus.SUPERSEDED


def test_what_came_of_no_attempt_is_decided_anew_after_any_change() -> None:
    late = replace(failed(TIMER), attempts=TIMER.attempts)
    assert late.failure is not None
    late = replace(late, failure=replace(late.failure, reason=FailureReason.EXPIRED))

    assert not late.is_of_attempt
    assert reconciled(late, TIMER) == late
    assert reconciled(late, change(TIMER, expire_after_ms=None, tags=("x",))) is RecordStatus.SUPERSEDED
