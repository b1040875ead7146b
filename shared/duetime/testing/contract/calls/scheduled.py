"""Schedules that submit service calls: an occurrence is one call however often it is submitted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from duetime.calls.occurrences import OccurrenceCalls
from duetime.calls.submission import CallNamespaces, Submitter
from duetime.domain.call_templates import template_json
from duetime.domain.ids import backfill_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.schedule_timers import new_schedule_timer
from duetime.domain.schedules import Occurrence, Schedule, SchedulePolicy
from duetime.domain.service_calls import CallContent, CallStatus, Method, request_spec
from duetime.domain.timers import SERVICE_CALLS, Timer
from duetime.engine.firing.call_submission import TenantTimer
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW, make_content, seconds


@pytest.fixture
def submission(store: Store) -> OccurrenceCalls:
    submitter = Submitter(
        store.calls,
        CallNamespaces(store.catalogue, num_shards=2),
        new_id=make.ids_at(NOW),
        on_stored=lambda _: None,
    )
    return OccurrenceCalls(store.calls, submitter)


def occurrence(namespace: Namespace, at: int = 0, *, name: str = "report") -> Timer:
    """Return a schedule whose pending occurrence is that many seconds after ``NOW``."""
    request = request_spec(method=Method.POST, url="http://receiver.test/", headers_json=None, body_json='"ü"')
    template = CallContent(name=name, request=request, correlation_id="", tags=("own",))
    content = make_content(callback_url=SERVICE_CALLS, payload_json=template_json(template))
    pending = Occurrence(NOW + seconds(at), NOW + seconds(at))
    schedule = Schedule(policy=SchedulePolicy(), passed_at=NOW - seconds(1), pending=pending)
    return new_schedule_timer(namespace, "s1", content, schedule, digest="d", now=NOW)


def test_an_occurrence_is_one_call(store: Store, single: Namespace, submission: OccurrenceCalls) -> None:
    """Also when the template was changed, or others are submitted in the same batch."""
    (first,) = submission.submit([TenantTimer(make.TENANT, occurrence(single))], now=NOW)
    later = NOW + seconds(90)
    batch = [
        TenantTimer(make.TENANT, occurrence(single, name="changed")),
        TenantTimer(make.TENANT, occurrence(single, 60)),
        TenantTimer("other", occurrence(single)),
    ]
    again = submission.submit(batch, now=later)

    assert again[0] == first
    assert len({*again}) == 3
    assert isinstance(first, str)
    (call,) = store.calls.get([CallRef(make.TENANT, first)], now=later)
    assert call is not None
    assert (call.name, call.due_at, call.tags) == ("report", NOW, ("own", "schedule:single/s1"))


def test_each_backfill_is_another_call(single: Namespace, submission: OccurrenceCalls) -> None:
    pending = occurrence(single)
    assert pending.schedule is not None
    beside = replace(
        pending, timer_id=backfill_timer_id("s1", NOW), schedule=replace(pending.schedule, number=0), digest="d-1"
    )
    timers = [pending, beside, replace(beside, digest="d-2"), beside]

    found = [submission.submit([TenantTimer(make.TENANT, each)], now=NOW)[0] for each in timers]

    assert len({*found}) == 3
    assert found[3] == found[1]


def test_the_call_of_the_last_occurrence_goes_on_until_it_ends(
    store: Store, single: Namespace, submission: OccurrenceCalls
) -> None:
    pending = occurrence(single)
    assert pending.schedule is not None
    schedule = TenantTimer(make.TENANT, replace(pending, schedule=replace(pending.schedule, open_at=NOW)))
    assert submission.ongoing([schedule], now=NOW) == [None]
    (call_id,) = submission.submit([TenantTimer(make.TENANT, pending)], now=NOW)
    assert isinstance(call_id, str)
    (call,) = store.calls.get([CallRef(make.TENANT, call_id)], now=NOW)
    assert call is not None
    begun = make.begun(call)
    steps.apply(store.calls, begun)

    (ongoing,) = submission.ongoing([schedule], now=NOW)

    assert ongoing is not None
    assert (ongoing.timer_id, ongoing.next_attempt_at) == (call_id, begun.after.wake_at)
    ended = make.concluded(begun.after, begun.executions[0])
    steps.apply(store.calls, ended)
    assert ended.after.status is CallStatus.SUCCEEDED
    assert submission.ongoing([schedule], now=NOW) == [None]
