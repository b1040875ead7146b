"""Schedules that submit service calls, in virtual time: each occurrence is one call, whatever fails on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from duetime.domain.call_steps import Transition
from duetime.domain.call_templates import template_json
from duetime.domain.errors import StoreRefused, StoreUnavailable
from duetime.domain.ids import schedule_timer_id
from duetime.domain.occurrences import KEPT_OCCURRENCES, OccurrenceRecord, OccurrenceState
from duetime.domain.schedule_timers import backfilled, line_of_beside, new_schedule_timer, triggered
from duetime.domain.schedules import Occurrence, Overlap, ScheduleMisfire, SchedulePolicy, new_schedule
from duetime.domain.service_calls import CallContent, CallStatus, Method, ServiceCall, request_spec
from duetime.domain.timers import SERVICE_CALLS, Timer, TimerState
from duetime.recurrence.spec import TimingSpec
from duetime.recurrence.stored import occurrences_by, timing_json
from duetime.stores.port.timers import PutMode
from duetime.testing.contract import call_builders as make
from duetime.testing.contract.builders import make_content, make_namespace
from tests.support.clock import NOW as START
from tests.support.engine import at, put
from tests.support.executing import Executing
from tests.support.faulty_calls import FaultyCalls
from tests.support.parts import overlaid
from tests.support.scripted_sender import Script

NAMESPACE = make_namespace("default")
State = OccurrenceState


@pytest.fixture(autouse=True)
def _namespace(executing: Executing) -> None:
    executing.store.catalogue.create_namespace(
        "default", num_shards=4, dedicated=False, now=START, tenant_id=make.TENANT
    )


def template(**given: Any) -> str:
    request = request_spec(
        method=Method.POST,
        url="http://receiver.test/run",
        headers_json='{"X-Key": "k"}',
        body_json='{"n": 1.10}',
    )
    content = CallContent(name="report", request=request, tags=("nightly",), correlation_id="")
    return template_json(replace(content, **given))


def make_schedule(*, every_seconds: float = 10, policy: SchedulePolicy | None = None, **content: Any) -> Timer:
    """Its first occurrence is ``every_seconds`` after START."""
    spec = TimingSpec(every_ms=int(every_seconds * 1000), anchor=START)
    schedule = new_schedule(policy or SchedulePolicy(), occurrences_by(spec, "s1", lambda _: None), after=START)
    given = {"timing_json": timing_json(spec), "callback_url": SERVICE_CALLS, "payload_json": template()} | content
    return new_schedule_timer(NAMESPACE, "s1", make_content(**given), schedule, digest="d", now=START)


def renamed(schedule: Timer) -> Timer:
    """The schedule after a change of its template."""
    content = replace(schedule.content, payload_json=template(name="other"))
    return replace(schedule, content=content, revision=schedule.revision + 1)


def history(executing: Executing) -> list[OccurrenceRecord]:
    """The first line first."""
    schedule = executing.store.timers.get(NAMESPACE, schedule_timer_id("s1"), now=executing.clock.now())
    assert schedule is not None
    return executing.store.schedules.history(schedule, limit=KEPT_OCCURRENCES)[::-1]


def lines(executing: Executing) -> list[tuple[float, State]]:
    return [((line.scheduled_at - START).total_seconds(), line.state) for line in history(executing)]


def due(calls: Sequence[ServiceCall]) -> list[float]:
    return [(call.due_at - START).total_seconds() for call in calls]


def test_each_occurrence_is_one_service_call(executing: Executing) -> None:
    put(executing.store, [make_schedule()], START)

    executing.run_for(35)

    calls = executing.all()
    assert due(calls) == [10, 20, 30]
    assert executing.statuses() == {CallStatus.SUCCEEDED}
    assert {call.tags for call in calls} == {("nightly", "schedule:default/s1")}
    assert [request.body for request in executing.sender.requests] == [b'{"n": 1.10}'] * 3
    assert all((each.started_at or START) - each.due_at < at(1) - START for each in calls)
    assert len({call.correlation_id for call in calls}) == 3
    assert lines(executing) == [(each, State.FIRED) for each in (10, 20, 30)]
    assert [line.call_id for line in history(executing)] == [call.call_id for call in calls]
    assert all(line.attempts == 1 and line.started_at is not None for line in history(executing))


@pytest.mark.parametrize("is_changed", [False, True])
def test_a_crash_between_submission_and_record_makes_no_second_call(executing: Executing, is_changed: bool) -> None:
    """The first poller can submit, and record nothing."""
    put(executing.store, [make_schedule()], START)

    def record(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("down")

    failing = overlaid(executing.store, timers=overlaid(executing.store.timers, record=record))

    executing.run(12, executing.poller(store=failing), deadline=executing.clock.monotonic() + 40)
    (first,) = executing.all()
    assert history(executing) == []
    if is_changed:
        executing.store.schedules.change(NAMESPACE, "s1", renamed, now=executing.clock.now())
    executing.run_for(60, executing.poller(worker_id="worker-b"))

    calls = executing.all()
    assert (calls[0].call_id, calls[0].name) == (first.call_id, "report")
    assert due(calls) == [*range(10, int(due(calls)[-1]) + 10, 10)]
    assert [line.call_id for line in history(executing)] == [call.call_id for call in calls]
    assert len(executing.sender.requests) == len(calls)


def test_an_answer_that_is_lost_makes_no_second_call(executing: Executing) -> None:
    put(executing.store, [make_schedule()], START)
    lost = iter([True, True, False])

    def after(transitions: Sequence[Transition]) -> None:
        if transitions[0].before is None and next(lost, False):
            raise StoreUnavailable("lost")

    executing.run_for(25, executing.poller(calls=FaultyCalls(executing.calls, after=after)))

    assert due(executing.all()) == [10, 20]
    assert lines(executing) == [(10, State.FIRED), (20, State.FIRED)]


def test_what_the_store_refuses_is_a_failure_of_the_occurrence(executing: Executing) -> None:
    put(executing.store, [make_schedule()], START)

    def before(transitions: Sequence[Transition]) -> None:
        if any(each.before is None and each.after.due_at == at(10) for each in transitions):
            raise StoreRefused("too large")

    executing.run_for(25, executing.poller(calls=FaultyCalls(executing.calls, before=before)))

    assert due(executing.all()) == [20]
    assert lines(executing) == [(10, State.FAILED), (20, State.FIRED)]
    failure = history(executing)[0].failure
    assert failure is not None
    assert failure.message == "its service call cannot be stored: too large"


def test_a_template_that_cannot_be_read_harms_itself_alone(executing: Executing) -> None:
    put(executing.store, [make_schedule(payload_json='{"name": "report"}')], START)

    executing.run_for(15)

    assert executing.all() == []
    assert lines(executing) == [(10, State.MISSED)]


# -- what overlaps, is missed, or is asked for ----------------------------------------------------------------------


def test_with_skip_nothing_is_submitted_while_the_earlier_call_runs(executing: Executing) -> None:
    put(executing.store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.SKIP))], START)
    executing.sender.answer = lambda _: Script(delay_seconds=25)

    executing.run_for(75)

    assert due(executing.all()) == [10, 40, 70]
    assert [seconds for seconds, state in lines(executing) if state is State.SKIPPED] == [20, 30, 50, 60]


def test_with_skip_a_call_that_waits_for_its_retry_goes_on(executing: Executing) -> None:
    retried = template(retry_policy_json='{"maxAttempts": 2, "initialInterval": "15s", "jitter": "none"}')
    put(executing.store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.SKIP), payload_json=retried)], START)
    executing.sender.answer = lambda _: Script(status=503)

    executing.run_for(35)

    assert due(executing.all())[0] == 10
    assert (20, State.SKIPPED) in lines(executing)


def test_with_buffer_one_the_last_is_submitted_when_the_earlier_call_has_ended(executing: Executing) -> None:
    put(executing.store, [make_schedule(policy=SchedulePolicy(overlap=Overlap.BUFFER_ONE))], START)
    executing.sender.answer = lambda _: Script(delay_seconds=23)

    executing.run_for(38)

    assert due(executing.all()) == [10, 30]
    assert (20, State.MISSED) in lines(executing)


def test_what_is_missed_is_not_submitted(executing: Executing) -> None:
    policy = SchedulePolicy(misfire=ScheduleMisfire.LATEST)
    put(executing.store, [make_schedule(every_seconds=60, policy=policy)], START)

    executing.clock.advance(630)
    executing.run_for(1)

    assert due(executing.all()) == [600]


def test_a_trigger_and_a_backfill_submit_calls_beside_the_schedule(executing: Executing) -> None:
    """A backfill submits once more what the schedule has submitted; the same timer again submits nothing."""
    schedule = make_schedule(every_seconds=1000)
    put(executing.store, [schedule], START)
    beside = [triggered(schedule, at(1), trigger_id="t", now=at(1))]
    for began in (at(2), at(3)):
        occurrence = Occurrence(at(-1000), began)
        beside.append(backfilled(schedule, occurrence, began_at=began, now=began))

    async def script() -> None:
        for timer in beside:
            executing.store.timers.put([timer], mode=PutMode.REPLACE, now=executing.clock.now())
            await asyncio.sleep(10)

    executing.run(script)

    calls = executing.all()
    assert due(calls) == [1, 2, 3]
    assert {call.tags[-1] for call in calls} == {"schedule:default/s1"}
    assert history(executing) == []
    # Those of the first backfill are those of a timer that the second one has replaced.
    assert [told_beside(executing, each) for each in beside[::2]] == [calls[0].call_id, calls[2].call_id]


def told_beside(executing: Executing, timer: Timer) -> str | None:
    """The call that the history tells of ``timer``, which is beside the schedule and has fired."""
    own = executing.store.timers.get(NAMESPACE, timer.timer_id, now=executing.clock.now())
    assert own is not None
    assert own.state is TimerState.FIRED
    line = line_of_beside(own)
    return None if line is None else line.call_id
