"""Service calls whose row cannot be decoded: visible, removable, and in nobody's way."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from duetime.api.http.responses import encode
from duetime.api.service_calls.responses import call_response
from duetime.domain.errors import CallUnreadable
from duetime.domain.service_calls import CallFailure, CallStatus, ServiceCall
from duetime.stores.core.calls import CallStore
from duetime.stores.core.outbox import Outbox
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallFilter, CallOrder, DeleteStatus
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import NOW
from duetime.testing.contract.subject import Subject


@pytest.fixture
def bad_call(subject: Subject, calls: CallStore) -> ServiceCall:
    """Store a Scheduled call whose row is corrupt, between two good ones."""
    steps.submit(calls, name="n", tags=("a",))
    call = steps.submit(calls, name="n", tags=("a",), idempotency_key="k")
    steps.submit(calls, name="n", tags=("a",))
    if subject.corrupt_call is None:
        pytest.skip("this store's rows cannot be damaged")
    subject.corrupt_call(call)
    return call


def test_it_is_told_apart_from_one_that_is_not_there(calls: CallStore, bad_call: ServiceCall) -> None:
    with pytest.raises(CallUnreadable):
        steps.got(calls, bad_call)
    with pytest.raises(CallUnreadable):
        calls.find_by_idempotency_key(make.TENANT, "k", now=NOW)


@pytest.mark.parametrize(
    "call_filter",
    [
        CallFilter(),
        CallFilter(tags=("a",)),
        CallFilter(name_prefix="n"),
        CallFilter(correlation_id="corr-1"),
        CallFilter(status=CallStatus.SCHEDULED),
        CallFilter(status=CallStatus.SCHEDULED, order=CallOrder.DUE),
    ],
    ids=str,
)
def test_lists_go_on(calls: CallStore, bad_call: ServiceCall, call_filter: CallFilter) -> None:
    found = calls.list(make.TENANT, call_filter, cursor=None, limit=10, now=NOW).items

    assert len([call for call in found if call.call_id != bad_call.call_id]) == 2


def test_it_is_listed_as_a_failed_one(calls: CallStore, bad_call: ServiceCall) -> None:
    found = calls.list(make.TENANT, CallFilter(), cursor=None, limit=10, now=NOW).items

    (shown,) = [call for call in found if call.call_id == bad_call.call_id]
    assert (shown.tenant_id, shown.status) == (make.TENANT, CallStatus.FAILED)
    assert shown.outcome is not None
    assert shown.outcome.reason is CallFailure.UNREADABLE
    assert shown.outcome.message
    assert shown.wake_at is None


def test_it_can_be_removed(store: Store, calls: CallStore, bad_call: ServiceCall) -> None:
    assert calls.delete(make.TENANT, bad_call.call_id, now=NOW) is DeleteStatus.DELETED

    assert steps.got(calls, bad_call) is None
    assert steps.due_timers(store, bad_call, until=NOW) == []
    assert calls.find_by_idempotency_key(make.TENANT, "k", now=NOW) is None


def test_its_timer_and_its_events_are_still_there(store: Store, calls: CallStore, bad_call: ServiceCall) -> None:
    steps.assert_waits(store, bad_call)
    assert len(calls.list_events(make.TENANT, bad_call.call_id, after=0, limit=5)) == 2


def test_the_others_of_a_batch_are_read_one_by_one(calls: CallStore, bad_call: ServiceCall) -> None:
    good = steps.submit(calls)

    with pytest.raises(CallUnreadable):
        calls.get([steps.ref(good), steps.ref(bad_call)], now=NOW)
    assert steps.got(calls, good) == good


@pytest.mark.parametrize(
    "damage",
    [
        {"headers_json": '{"Accept":'},
        {"headers_json": '["x"]'},
        {"headers_json": '{"x":1}'},
        {"retry_policy_json": "[1]"},
        {"retry_policy_json": '{"maxAttempts"'},
    ],
    ids=str,
)
def test_damage_that_types_do_not_see_is_shown_in_json_that_can_be_read(
    store: Store, calls: CallStore, damage: dict[str, Any]
) -> None:
    good = steps.submit(calls)
    bad_call = steps.submit(calls, **damage)

    with pytest.raises(CallUnreadable):
        steps.got(calls, bad_call)
    listed = calls.list(make.TENANT, CallFilter(), cursor=None, limit=10, now=NOW).items

    shown = {call.call_id: json.loads(encode(call_response(call))) for call in listed}
    assert (shown[good.call_id]["status"], shown[bad_call.call_id]["status"]) == ("Scheduled", "Failed")
    assert shown[bad_call.call_id]["outcome"]["reason"] == "Unreadable"
    steps.assert_waits(store, bad_call)


def test_an_event_whose_payload_is_no_json_is_not_published_and_no_other_call_waits_for_it(
    calls: CallStore, outbox: Outbox
) -> None:
    good = steps.submit(calls)
    transition = make.submitted()
    events = tuple(replace(event, payload_json="{") for event in transition.events)
    calls.apply([replace(transition, events=events)], now=NOW)

    found = outbox.unpublished(limit=10)

    assert {stored.event.aggregate_id for stored in found} == {good.call_id}
    assert calls.list_events(make.TENANT, transition.after.call_id, after=0, limit=5) == []
