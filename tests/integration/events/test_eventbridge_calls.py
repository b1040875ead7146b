"""Events of service calls on EventBridge, as a queue behind a rule receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from botocore.stub import ANY, Stubber
from moto import mock_aws

from duetime.calls.publishing import publish_in_order
from duetime.runtime.eventbridge import MAX_ENTRIES, EventBridgePublisher
from duetime.stores.port.calls import CallRef
from duetime.stores.port.outbox import OutboxEvent
from tests.integration.events.test_eventbridge import Account, client, make_account
from tests.support.clock import FakeClock
from tests.support.ministack import running_ministack
from tests.support.outbox import make_event

PATTERN = {"source": ["duetime.calls"], "detail": {"tenantId": ["acme"]}}


@pytest.fixture(params=["moto", "ministack"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    if request.param == "moto":
        with mock_aws():
            yield prepared(make_account(None))
    else:
        with running_ministack() as endpoint_url:
            yield prepared(make_account(endpoint_url))


def prepared(account: Account) -> Account:
    account.events.put_rule(Name="failures", EventBusName="timers", EventPattern=json.dumps(PATTERN))
    return account


def publisher(events: object) -> EventBridgePublisher:
    return EventBridgePublisher("timers", clock=FakeClock(), make_client=lambda: events)


def test_the_envelope_is_the_detail_and_the_type_the_detail_type(account: Account) -> None:
    event = make_event(payload_json='{"name":"invoice"}')
    assert publisher(account.events).publish([make_event(tenant_id="other"), event]) == {}
    (message,) = account.received(1)
    assert message["detail"] == event.document()
    assert (message["source"], message["detail-type"]) == ("duetime.calls", "ServiceCallSubmitted")


def test_more_than_a_request_takes_all_arrive(account: Account) -> None:
    events = [make_event(f"call-{number}") for number in range(2 * MAX_ENTRIES + 3)]
    assert publisher(account.events).publish(events) == {}
    messages = account.received(len(events))
    assert sorted(message["detail"]["id"] for message in messages) == sorted(event.event_id for event in events)


def test_a_refused_event_keeps_its_call_and_no_other_waiting() -> None:
    """Neither emulator throttles, so botocore's stub answers, by the service's own model."""
    events = [make_event("a", 1), make_event("b", 1), make_event("a", 2), make_event("b", 2)]
    stored = [OutboxEvent(event) for event in events]
    stubbed = client("events", None)
    throttled = {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}
    with Stubber(stubbed) as stub:
        first = {"FailedEntryCount": 1, "Entries": [throttled, {"EventId": "2"}]}
        stub.add_response("put_events", first, {"Entries": [ANY, ANY]})
        stub.add_response("put_events", {"FailedEntryCount": 0, "Entries": [{"EventId": "3"}]}, {"Entries": [ANY]})
        published = publish_in_order(stored, [publisher(stubbed)])
        stub.assert_no_pending_responses()
    assert [taken.event for taken in published.taken] == [events[1], events[3]]
    assert published.failed == {CallRef("acme", "a"): "eventbridge: ThrottlingException"}


def test_a_bus_that_cannot_be_reached_takes_nothing() -> None:
    unreachable = client("events", "http://127.0.0.1:9", connect_timeout=1, retries={"total_max_attempts": 1})
    events = [make_event(f"call-{number}") for number in range(25)]
    assert publisher(unreachable).publish(events) == dict.fromkeys(
        (event.event_id for event in events), "EndpointConnectionError"
    )
