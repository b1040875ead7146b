"""Messages to each kind of target, delivered by the sender of a poller to an emulator of AWS."""

from __future__ import annotations

import asyncio
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import boto3
import pytest

from duetime.delivery.port import Callback, CallbackResult
from duetime.runtime.tuning import EngineTuning
from duetime.runtime.wiring import make_sender
from tests.support.receiver import WAIT_SECONDS

REGION = "eu-central-1"
ROLE = "arn:aws:iam::000000000000:role/duetime"
PASS = {"StartAt": "Pass", "States": {"Pass": {"Type": "Pass", "End": True}}}
FUNCTION = """
import json, boto3, os
def handler(event, context):
    boto3.client("sqs", endpoint_url={url!r}, region_name={region!r}).send_message(
        QueueUrl={queue!r}, MessageBody=json.dumps(event))
"""

Client = Callable[[str], Any]


@pytest.fixture
def client(ministack_url: str, monkeypatch: pytest.MonkeyPatch) -> Client:
    """Makes clients of services. Everything in this process uses the emulator."""
    for name, value in {
        "AWS_ENDPOINT_URL": ministack_url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
    }.items():
        monkeypatch.setenv(name, value)
    make: Any = boto3.client
    return lambda service: make(service, region_name=REGION)


@pytest.fixture
def name() -> str:
    """Tests share the emulator."""
    return f"t-{uuid4()}"


def deliver(*arns: str) -> list[CallbackResult]:
    """Send one message to each, all of one firing, by a sender that is allowed to."""
    settings = EngineTuning(store="sqlite:///:memory:", allowed_targets=",".join(dict.fromkeys(arns)))
    headers = ("Content-Type: application/json", "webhook-id: firing-1", "webhook-signature: v1,abc=")
    body = json.dumps({"timerId": "order-1", "payload": "é & <"}, ensure_ascii=False).encode()

    async def run() -> list[CallbackResult]:
        sender, results, done = make_sender(settings, settings.engine_settings()), [], asyncio.Event()

        def take(batch: list[CallbackResult]) -> None:
            results.extend(batch)
            if len(results) == len(arns):
                done.set()

        sender.start(take)
        try:
            sender.submit([Callback(key, arn, headers, body, WAIT_SECONDS) for key, arn in enumerate(arns)])
            await asyncio.wait_for(done.wait(), WAIT_SECONDS)
        finally:
            sender.close()
        return sorted(results, key=lambda each: each.key)

    return asyncio.run(run())


def make_queue(client: Client, name: str, **attributes: str) -> tuple[str, str]:
    """Its URL and its ARN."""
    queues = client("sqs")
    url = queues.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"]
    return url, queues.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def received(client: Client, queue_url: str) -> dict[str, Any]:
    (message,) = client("sqs").receive_message(
        QueueUrl=queue_url, WaitTimeSeconds=int(WAIT_SECONDS), MessageAttributeNames=["All"], AttributeNames=["All"]
    )["Messages"]
    return dict(message)


def attributes_of(message: dict[str, Any]) -> dict[str, str]:
    return {name: each["StringValue"] for name, each in message["MessageAttributes"].items()}


EXPECTED = {"timerId": "order-1", "payload": "é & <"}
ATTRIBUTES = {"webhook-id": "firing-1", "webhook-signature": "v1,abc="}


def test_a_queue_gets_body_and_attributes(client: Client, name: str) -> None:
    url, arn = make_queue(client, name)
    (result,) = deliver(arn)

    message = received(client, url)
    assert (json.loads(message["Body"]), attributes_of(message)) == (EXPECTED, ATTRIBUTES)
    assert (result.status, json.loads(result.body)["MessageId"]) == (200, message["MessageId"])


def test_a_fifo_queue_takes_the_attempts_of_a_firing_once(client: Client, name: str) -> None:
    url, arn = make_queue(client, f"{name}.fifo", FifoQueue="true")
    assert [result.status for result in deliver(arn, arn)] == [200, 200]

    assert received(client, url)["Attributes"]["MessageGroupId"] == "order-1"
    assert "Messages" not in client("sqs").receive_message(QueueUrl=url)


def test_a_topic_passes_on_body_and_attributes(client: Client, name: str) -> None:
    url, queue = make_queue(client, name)
    topic = client("sns").create_topic(Name=name)["TopicArn"]
    client("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue, Attributes={"RawMessageDelivery": "true"})
    (result,) = deliver(topic)

    message = received(client, url)
    assert (result.status, json.loads(message["Body"]), attributes_of(message)) == (200, EXPECTED, ATTRIBUTES)


def test_a_bus_gets_an_event_that_rules_find(client: Client, name: str) -> None:
    url, queue = make_queue(client, name)
    events = client("events")
    bus = events.create_event_bus(Name=name)["EventBusArn"]
    pattern = json.dumps({"source": ["duetime"], "detail-type": ["Timer Fired"], "detail": {"timerId": ["order-1"]}})
    events.put_rule(Name="all", EventBusName=name, EventPattern=pattern)
    events.put_targets(Rule="all", EventBusName=name, Targets=[{"Id": "queue", "Arn": queue}])
    (result,) = deliver(bus)

    assert (result.status, json.loads(received(client, url)["Body"])["detail"]) == (200, EXPECTED)


def test_a_function_is_invoked(client: Client, name: str, ministack_url: str) -> None:
    url, _ = make_queue(client, name)
    code = io.BytesIO()
    with zipfile.ZipFile(code, "w") as archive:
        archive.writestr("handler.py", FUNCTION.format(url=ministack_url, region=REGION, queue=url))
    function = client("lambda").create_function(
        FunctionName=name,
        Runtime="python3.12",
        Role=ROLE,
        Handler="handler.handler",
        Code={"ZipFile": code.getvalue()},
        Timeout=30,
    )["FunctionArn"]
    (result,) = deliver(function)

    assert (result.status, json.loads(received(client, url)["Body"])) == (202, EXPECTED)


def test_a_state_machine_starts_one_execution_for_all_attempts_of_a_firing(client: Client, name: str) -> None:
    machines = client("stepfunctions")
    machine = machines.create_state_machine(name=name, roleArn=ROLE, definition=json.dumps(PASS))["stateMachineArn"]
    assert [result.status for result in deliver(machine, machine)] == [200, 200]

    (execution,) = machines.list_executions(stateMachineArn=machine)["executions"]
    assert execution["name"] == "firing-1"
    described = machines.describe_execution(executionArn=execution["executionArn"])
    assert json.loads(described["input"]) == EXPECTED


def test_what_does_not_exist_is_refused_for_good(client: Client, name: str) -> None:
    account = f"{REGION}:000000000000"
    results = deliver(
        f"arn:aws:sqs:{account}:{name}",
        f"arn:aws:sns:{account}:{name}",
        f"arn:aws:lambda:{account}:function:{name}",
        f"arn:aws:states:{account}:stateMachine:{name}",
    )
    assert [result.status for result in results] == [400, 404, 404, 400]
