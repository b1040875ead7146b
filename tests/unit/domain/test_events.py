"""Events of timers that failed, and of schedules: their ids and their JSON."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from duetime.domain.events import ScheduleEvent, failed_event, moved_event, schedule_events, unreadable_event
from duetime.domain.namespaces import Pause
from duetime.domain.occurrences import OccurrenceRecord, OccurrenceState
from duetime.domain.outcomes import Outcome
from duetime.domain.timers import Failure, FailureReason, Timer, TimerState
from duetime.testing.contract.builders import make_namespace, make_timer
from duetime.testing.contract.schedules import make_schedule
from tests.support.clock import NOW

SAMPLE = Path(__file__).parents[3] / "events" / "timer_failed.json"


def failed(timer: Timer, *, at_seconds: float = 0.0) -> Outcome:
    return Outcome(
        timer=timer,
        state=TimerState.FAILED,
        attempts=3,
        execute_at=timer.content.execute_at,
        next_attempt_at=None,
        firing_id=timer.firing_id,
        failure=Failure(FailureReason.HTTP_STATUS, "status 503", NOW + timedelta(seconds=at_seconds), 503),
    )


def timer(**fields: Any) -> Timer:
    return make_timer(
        make_namespace("shop"), "order 1", firing_id="f1", tags=("a", "b"), correlation_id="c", **fields
    )


def test_the_json_says_what_failed_when_and_why() -> None:
    event = failed_event(failed(timer()))
    assert json.loads(event.to_json()) == {
        "id": str(event.event_id),
        "type": "timer.failed",
        "namespace": "shop",
        "timerId": "order 1",
        "timerUuid": str(timer().timer_uuid),
        "firingId": "f1",
        "executeAt": "2026-12-20T15:30:00.000Z",
        "failedAt": "2026-12-20T15:30:00.000Z",
        "attempts": 3,
        "reason": "HttpStatus",
        "message": "status 503",
        "status": 503,
        "correlationId": "c",
        "tags": ["a", "b"],
    }


def test_one_failure_has_one_id_however_often_it_is_told() -> None:
    first = failed_event(failed(timer()))
    # The poller died before it had recorded the outcome; meanwhile the timer was parked and tried again.
    again = failed_event(failed(replace(timer(), revision=7), at_seconds=60))
    assert first.event_id == again.event_id


def test_another_firing_and_a_redrive_have_ids_of_their_own() -> None:
    redriven = replace(timer(), rearmed_at=NOW + timedelta(seconds=5))
    others = [timer(), replace(timer(), firing_id="f2"), redriven, replace(timer(), timer_id="other")]
    assert len({failed_event(failed(other)).event_id for other in others}) == 4


def test_an_unreadable_timer_is_told_of_with_what_is_known() -> None:
    named = unreadable_event(namespace="shop", timer_id="t", key="1:k", reason="KeyError", at=NOW).document()
    assert (named["namespace"], named["timerId"], named["reason"], named["firingId"]) == (
        "shop",
        "t",
        "Unreadable",
        None,
    )
    nameless = unreadable_event(namespace=None, timer_id=None, key="1:k", reason="KeyError", at=NOW).document()
    assert (nameless["timerUuid"], nameless["executeAt"]) == (None, None)


def test_a_lone_surrogate_is_published_as_an_escape() -> None:
    event = replace(failed_event(failed(timer())), tags=("\ud83d",))
    text = event.to_json()
    assert text.isascii()
    assert json.loads(text)["tags"] == ["\ud83d"]


def test_the_sample_has_the_members_of_an_event() -> None:
    sample = json.loads(SAMPLE.read_text(encoding="utf-8"))
    assert sample["source"] == "duetime.timers"
    assert sample["detail-type"] == "Timer Failed"
    assert sample["detail"].keys() == failed_event(failed(timer())).document().keys()


def test_a_step_of_a_schedule_has_one_event_however_often_it_is_announced() -> None:
    schedule_timer = make_schedule(make_namespace("shop"))
    assert schedule_timer.schedule is not None
    after = replace(schedule_timer.schedule, pause=Pause(NOW, "full"))

    def told(given: Timer, *, at_seconds: float = 0.0) -> ScheduleEvent:
        (event,) = schedule_events(given, after, (), at=NOW + timedelta(seconds=at_seconds))
        return event

    first = told(schedule_timer)
    assert told(schedule_timer, at_seconds=9).event_id == first.event_id
    assert told(replace(schedule_timer, revision=2)).event_id != first.event_id
    assert told(replace(schedule_timer, created_at=NOW + timedelta(days=1))).event_id != first.event_id
    assert json.loads(first.to_json()) == {
        "id": str(first.event_id),
        "type": "schedule.paused",
        "namespace": "shop",
        "scheduleId": "s1",
        "occurredAt": "2026-12-20T15:30:00.000Z",
        "reason": "full",
        "scheduledAt": None,
        "lastScheduledAt": None,
        "count": None,
        "correlationId": schedule_timer.content.correlation_id,
        "tags": list(schedule_timer.content.tags),
    }


def test_an_occurrence_beyond_its_own_limit_has_failed_and_is_no_misfire() -> None:
    schedule_timer = make_schedule(make_namespace("shop"))
    assert schedule_timer.schedule is not None
    expired = OccurrenceRecord(
        number=1,
        state=OccurrenceState.MISSED,
        scheduled_at=NOW,
        recorded_at=NOW,
        failure=Failure(FailureReason.EXPIRED, "late", NOW),
    )
    lines = (expired, replace(expired, failure=None))
    found = schedule_events(schedule_timer, schedule_timer.schedule, lines, at=NOW)
    assert [event.type for event in found] == ["schedule.misfired"]


def test_one_move_has_one_id_however_often_it_is_told() -> None:
    def move(moved: Timer, at_seconds: float = 0.0) -> UUID:
        return moved_event(
            moved,
            NOW + timedelta(seconds=at_seconds),
            local_time="2026-12-20T16:30:00",
            time_zone="Europe/Berlin",
            tzdata_version="2026f",
            at=NOW,
        ).event_id

    assert move(timer()) == move(timer())
    others = [move(replace(timer(), revision=2)), move(timer(), 3600), move(replace(timer(), timer_id="order 2"))]
    assert len({move(timer()), *others}) == 4
