"""Events on EventBridge, as a queue behind a rule receives them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import uuid4

import boto3
import pytest
from botocore.config import Config
from botocore.stub import ANY, Stubber
from moto import mock_aws

from duetime.domain.events import EventsUndelivered, ScheduleEvent, ScheduleEventType, TimerFailed
from duetime.domain.timers import FailureReason
from duetime.runtime.eventbridge import MAX_ENTRIES, EventBridgeEvents
from tests.support.clock import NOW, FakeClock
from tests.support.ministack import running_ministack

PATTERN = {
    "source": ["duetime.timers"],
    "detail-type": ["Timer Failed"],
    "detail": {"reason": ["HttpStatus"], "namespace": ["shop"]},
}


def make_event(number: int = 0, *, reason: FailureReason = FailureReason.HTTP_STATUS, **fields: Any) -> TimerFailed:
    return TimerFailed(
        event_id=uuid4(),
        at=NOW + timedelta(milliseconds=250),
        reason=reason,
        message="the receiver answered with status 503",
        namespace="shop",
        timer_id=f"t{number}",
        **fields,
    )


@dataclass(frozen=True)
class Account:
    """An event bus and a queue that gets what ``PATTERN`` matches."""

    events: Any
    sqs: Any
    queue_url: str

    def received(self, count: int) -> list[dict[str, Any]]:
        """The messages, once there are ``count``."""
        messages: list[dict[str, Any]] = []
        for _ in range(20):
            answer = self.sqs.receive_message(QueueUrl=self.queue_url, MaxNumberOfMessages=10, WaitTimeSeconds=1)
            messages += [json.loads(message["Body"]) for message in answer.get("Messages", [])]
            for message in answer.get("Messages", []):
                self.sqs.delete_message(QueueUrl=self.queue_url, ReceiptHandle=message["ReceiptHandle"])
            if len(messages) >= count:
                return messages
        raise AssertionError(f"{len(messages)} of {count} messages")


def make_account(endpoint_url: str | None) -> Account:
    events, sqs = (client(service, endpoint_url) for service in ("events", "sqs"))
    queue_url = sqs.create_queue(QueueName="failures")["QueueUrl"]
    attributes = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]
    events.create_event_bus(Name="timers")
    events.put_rule(Name="failures", EventBusName="timers", EventPattern=json.dumps(PATTERN))
    events.put_targets(
        Rule="failures", EventBusName="timers", Targets=[{"Id": "queue", "Arn": attributes["QueueArn"]}]
    )
    return Account(events, sqs, queue_url)


def client(service: str, endpoint_url: str | None, **config: Any) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]  # one of two services
        endpoint_url=endpoint_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(**config),
    )


@pytest.fixture(params=["moto", "ministack"])
def account(request: pytest.FixtureRequest) -> Iterator[Account]:
    if request.param == "moto":
        with mock_aws():
            yield make_account(None)
    else:
        with running_ministack() as endpoint_url:
            yield make_account(endpoint_url)


def publisher(events: Any, clock: FakeClock | None = None) -> EventBridgeEvents:
    return EventBridgeEvents("timers", clock=clock or FakeClock(), make_client=lambda: events)


def test_events_arrive_as_they_are_documented(account: Account) -> None:
    event = make_event(firing_id="f1", execute_at=NOW, attempts=5, status=503, correlation_id="c", tags=("a",))
    publisher(account.events).publish([make_event(reason=FailureReason.TIMEOUT), event])
    (message,) = account.received(1)
    assert message["detail"] == event.document()
    assert (message["source"], message["detail-type"]) == ("duetime.timers", "Timer Failed")


def test_more_events_than_a_request_takes_all_arrive(account: Account) -> None:
    events = [make_event(number) for number in range(2 * MAX_ENTRIES + 3)]
    publisher(account.events).publish(events)
    messages = account.received(len(events))
    assert sorted(message["detail"]["id"] for message in messages) == sorted(str(event.event_id) for event in events)


def test_a_bus_that_does_not_exist_takes_nothing() -> None:
    with mock_aws():
        events = [make_event(number) for number in range(12)]
        with pytest.raises(EventsUndelivered) as raised:
            EventBridgeEvents("none", clock=FakeClock(), make_client=lambda: client("events", None)).publish(events)
    assert raised.value.message == "ResourceNotFoundException"
    assert list(raised.value.events) == events


def test_events_that_are_refused_one_by_one_are_named() -> None:
    """Neither emulator throttles, so botocore's stub answers, by the service's own model."""
    events = [make_event(number) for number in range(3)]
    stubbed = client("events", None)
    entries = [{"EventId": "1"}, {"ErrorCode": "ThrottlingException", "ErrorMessage": "slow down"}, {"EventId": "3"}]
    with Stubber(stubbed) as stub:
        stub.add_response("put_events", {"FailedEntryCount": 1, "Entries": entries}, {"Entries": ANY})
        with pytest.raises(EventsUndelivered) as raised:
            publisher(stubbed).publish(events)
    assert raised.value.message == "ThrottlingException"
    assert list(raised.value.events) == [events[1]]


def test_the_detail_type_is_that_of_the_event() -> None:
    event = ScheduleEvent(
        event_id=uuid4(),
        type=ScheduleEventType.MISFIRED,
        at=NOW,
        namespace="default",
        schedule_id="s1",
    )
    stubbed = client("events", None)
    entry = {
        "Source": "duetime.timers",
        "DetailType": "Schedule Misfired",
        "Detail": event.to_json(),
        "Time": event.at,
        "EventBusName": "timers",
    }
    with Stubber(stubbed) as stub:
        stub.add_response("put_events", {"FailedEntryCount": 0, "Entries": [{"EventId": "1"}]}, {"Entries": [entry]})
        publisher(stubbed).publish([event])
        stub.assert_no_pending_responses()


def test_nobody_at_the_endpoint_is_an_answer_too() -> None:
    unreachable = client("events", "http://127.0.0.1:9", connect_timeout=1, retries={"total_max_attempts": 1})
    events = [make_event(number) for number in range(25)]
    with pytest.raises(EventsUndelivered) as raised:
        publisher(unreachable).publish(events)
    assert raised.value.message == "EndpointConnectionError"
    assert len(raised.value.events) == 25


def test_slow_requests_are_not_begun_for_ever() -> None:
    clock = FakeClock()

    class Slow:
        calls = 0

        def put_events(self, *, Entries: Sequence[object]) -> dict[str, Any]:  # noqa: N803 (boto3's name)
            self.calls += 1
            clock.advance(1.5)
            return {"Entries": [{"EventId": "x"} for _ in Entries]}

    slow = Slow()
    events = [make_event(number) for number in range(50)]
    with pytest.raises(EventsUndelivered) as raised:
        publisher(slow, clock).publish(events)
    assert slow.calls == 2
    assert list(raised.value.events) == events[20:]
