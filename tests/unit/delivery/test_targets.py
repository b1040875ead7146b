"""What is sent to targets on AWS, what the answers of the services mean, and which targets are allowed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import parse_qs

import pytest

from duetime.delivery.egress import EgressPolicy, RefusedUrl
from duetime.delivery.port import Callback, CallbackResult, TransportError
from duetime.delivery.target_sender import TargetSender, Unsigned
from duetime.delivery.targets import AwsRequest, read_result, target_request
from duetime.domain.targets import Service, Target, parse_allowed, parse_arn
from duetime.engine.keys import queue_key_of

ACCOUNT = "eu-central-1:123456789012"
QUEUE = f"arn:aws:sqs:{ACCOUNT}:orders"
FIFO = f"{QUEUE}.fifo"
TOPIC = f"arn:aws:sns:{ACCOUNT}:orders"
BUS = f"arn:aws:events:{ACCOUNT}:event-bus/orders"
FUNCTION = f"arn:aws:lambda:{ACCOUNT}:function:orders:live"
MACHINE = f"arn:aws:states:{ACCOUNT}:stateMachine:orders"
ENDPOINT = "http://127.0.0.1:4566"
BODY = '{"timerId":"order-1","payload":{"text":"é&<"}}'
OF_TIMER = ("Content-Type: application/json", "User-Agent: Duetime/1", "webhook-id: f-1", "webhook-timestamp: 7")
OF_CALL = ("x-correlation-id: c", "x-duetime-service-call-id: call-1", "x-duetime-execution-id: e", "x-empty;")


def to(arn: str, *, headers: tuple[str, ...] = OF_TIMER, body: str = BODY, key: int = 1) -> Callback:
    return Callback(key, arn, headers, body.encode(), 30)


def request_to(arn: str, **callback: Any) -> AwsRequest:
    return target_request(parse_arn(arn), to(arn, **callback), ENDPOINT)


def json_of(arn: str, **callback: str | tuple[str, ...]) -> dict[str, object]:
    found: dict[str, object] = json.loads(request_to(arn, **callback).body)
    return found


def test_a_message_to_a_queue_has_the_headers_of_duetime_as_attributes() -> None:
    request = request_to(QUEUE)

    assert (request.service, request.region, request.url) == ("sqs", "eu-central-1", f"{ENDPOINT}/")
    assert request.headers["X-Amz-Target"] == "AmazonSQS.SendMessage"
    assert json.loads(request.body) == {
        "QueueUrl": f"{ENDPOINT}/123456789012/orders",
        "MessageBody": BODY,
        "MessageAttributes": {
            "webhook-id": {"DataType": "String", "StringValue": "f-1"},
            "webhook-timestamp": {"DataType": "String", "StringValue": "7"},
        },
    }


@pytest.mark.parametrize(
    ("body", "group"),
    [
        (BODY, "order-1"),
        ('{"scheduleId":"daily","payload":null}', "daily"),
        ('{"timerId":"a b"}', "c8687a08aa5d6ed2044328fa6a697ab8e96dc34291e8c2034ae8c38e6fcc6d65"),
    ],
)
def test_a_fifo_queue_groups_by_timer_and_knows_repeats_by_the_firing(body: str, group: str) -> None:
    sent = json_of(FIFO, body=body)

    assert (sent["MessageGroupId"], sent["MessageDeduplicationId"]) == (group, "f-1")


def test_a_message_of_a_service_call_is_known_by_its_id() -> None:
    sent = json_of(FIFO, headers=OF_CALL, body='{"n":1}')

    assert sent["MessageBody"] == '{"n":1}'
    assert (sent["MessageGroupId"], sent["MessageDeduplicationId"]) == ("call-1", "call-1")
    assert json_of(MACHINE, headers=OF_CALL)["name"] == "call-1"


def test_a_message_to_a_topic() -> None:
    form = {name: value for name, (value,) in parse_qs(request_to(TOPIC).body.decode()).items()}

    assert form == {
        "Action": "Publish",
        "Version": "2010-03-31",
        "TopicArn": TOPIC,
        "Message": BODY,
        "MessageAttributes.entry.1.Name": "webhook-id",
        "MessageAttributes.entry.1.Value.DataType": "String",
        "MessageAttributes.entry.1.Value.StringValue": "f-1",
        "MessageAttributes.entry.2.Name": "webhook-timestamp",
        "MessageAttributes.entry.2.Value.DataType": "String",
        "MessageAttributes.entry.2.Value.StringValue": "7",
    }


@pytest.mark.parametrize(("headers", "kind"), [(OF_TIMER, "Timer Fired"), (OF_CALL, "Service Call")])
def test_an_event_on_a_bus(headers: tuple[str, ...], kind: str) -> None:
    entry = {"EventBusName": BUS, "Source": "duetime", "DetailType": kind, "Detail": BODY}
    assert json_of(BUS, headers=headers) == {"Entries": [entry]}


def test_a_function_is_invoked_asynchronously() -> None:
    request = request_to(FUNCTION)

    arn = FUNCTION.replace(":", "%3A")
    assert request.url == f"{ENDPOINT}/2015-03-31/functions/{arn}/invocations"
    assert request.headers["X-Amz-Invocation-Type"] == "Event"
    assert request.body == BODY.encode()


def test_an_execution_is_named_by_the_firing() -> None:
    assert json_of(MACHINE) == {"stateMachineArn": MACHINE, "name": "f-1", "input": BODY}


@pytest.mark.parametrize(
    ("service", "status", "body", "read"),
    [
        (Service.SQS, 200, '{"MessageId":"m"}', 200),
        (Service.SQS, 400, '{"__type":"com.amazonaws.sqs#ThrottlingException"}', 429),
        (Service.SQS, 400, '{"__type":"com.amazonaws.sqs#QueueDoesNotExist"}', 400),
        (Service.SQS, 403, '{"__type":"AccessDeniedException"}', 403),
        (Service.SQS, 403, '{"__type":"ExpiredTokenException"}', 503),
        (Service.SQS, 500, "", 500),
        (Service.SNS, 400, "<ErrorResponse><Error><Code>Throttling</Code></Error></ErrorResponse>", 429),
        (Service.SNS, 404, "<ErrorResponse><Error><Code>NotFound</Code></Error></ErrorResponse>", 404),
        (Service.LAMBDA, 202, "", 202),
        (Service.LAMBDA, 429, '{"Type":"User","message":"Rate Exceeded."}', 429),
        (Service.STEP_FUNCTIONS, 400, '{"__type":"ExecutionAlreadyExists"}', 200),
        (Service.STEP_FUNCTIONS, 400, '{"__type":"ExecutionLimitExceeded"}', 429),
        (Service.EVENTBRIDGE, 200, '{"FailedEntryCount":0,"Entries":[{"EventId":"e"}]}', 200),
        (Service.EVENTBRIDGE, 200, '{"FailedEntryCount":1,"Entries":[{"ErrorCode":"ThrottlingException"}]}', 429),
        (Service.EVENTBRIDGE, 200, '{"FailedEntryCount":1,"Entries":[{"ErrorCode":"InternalFailure"}]}', 503),
        (Service.EVENTBRIDGE, 200, '{"FailedEntryCount":1,"Entries":[{"ErrorCode":"NotAuthorized"}]}', 400),
        (Service.EVENTBRIDGE, 200, "<html>", 503),
    ],
)
def test_an_answer_has_the_status_that_a_receiver_would_have_answered_with(
    service: Service, status: int, body: str, read: int
) -> None:
    assert read_result(service, answer(1, status, body.encode())).status == read


def answer(key: int, status: int, body: bytes = b"") -> CallbackResult:
    return CallbackResult(key, status, body, None, None, "", 0.01)


@pytest.mark.parametrize("arn", [QUEUE, FIFO, TOPIC, BUS, FUNCTION, MACHINE])
def test_the_host_of_a_service_is_in_its_region(arn: str) -> None:
    service = arn.split(":")[2]
    assert parse_arn(arn).host == f"{service}.eu-central-1.amazonaws.com"
    assert parse_arn(arn.replace(":aws:", ":aws-cn:")).host == f"{service}.eu-central-1.amazonaws.com.cn"
    assert queue_key_of("orders", arn) == ("orders", arn)


@pytest.mark.parametrize(
    "arn",
    [
        "arn:aws:s3:::bucket",
        f"{QUEUE}/x",
        f"{QUEUE}\n",
        f"{BUS}?x",
        "arn:aws:sqs:eu-central-1:12:orders",
        "arn:aws:sqs:evil.example#:123456789012:orders",
        f"arn:aws:states:{ACCOUNT}:execution:orders:1",
        f"arn:other:sqs:{ACCOUNT}:orders",
    ],
)
def test_what_is_no_target_is_refused(arn: str) -> None:
    with pytest.raises(RefusedUrl, match="must be the ARN of"):
        EgressPolicy(allow_targets=("arn:aws:sqs:*",)).check_target(arn)


def test_no_target_is_allowed_but_those_listed() -> None:
    listed = EgressPolicy(allow_targets=parse_allowed(f"{TOPIC}, {QUEUE}*, arn:aws:lambda:{ACCOUNT}:*"))

    for arn in (TOPIC, QUEUE, FIFO, FUNCTION):
        assert listed.check_target(arn).arn == arn
    for policy, arn in ((EgressPolicy(), QUEUE), (listed, BUS), (listed, f"{TOPIC}-2")):
        with pytest.raises(RefusedUrl, match="none of the targets that this deployment allows"):
            policy.check_target(arn)


@pytest.mark.parametrize(
    "text", ["*", "orders", f"arn:aws:sqs:*:{ACCOUNT}", f"{QUEUE},", f"{QUEUE}*x", "https://x.test"]
)
def test_a_list_of_targets_is_arns_with_a_star_at_the_end_alone(text: str) -> None:
    with pytest.raises(ValueError, match="must be ARNs of targets"):
        parse_allowed(text)


# -- the sender ----------------------------------------------------------------------------------------------------


class Sent:
    """A sender that answers everything with ``status``."""

    def __init__(self, status: int = 200) -> None:
        self.status = status
        self.sent: list[Callback] = []
        self.is_open = False

    def start(self, on_results: Callable[[list[CallbackResult]], None]) -> None:
        self.is_open = True
        self._on_results = on_results

    def submit(self, callbacks: Sequence[Callback]) -> None:
        self.sent += callbacks
        results = [answer(each.key, self.status, b'{"__type":"ThrottlingException"}') for each in callbacks]
        asyncio.get_running_loop().call_soon(self._on_results, results)

    def close(self) -> None:
        self.is_open = False


class FakeAws:
    def __init__(self, refusal: Exception | None = None) -> None:
        self.refusal = refusal

    def endpoint(self, target: Target) -> str:
        return f"https://{target.host}"

    def sign(self, request: AwsRequest) -> Mapping[str, str]:
        if self.refusal is not None:
            raise self.refusal
        return {**request.headers, "Authorization": "signed"}


def send(
    *callbacks: Callback, aws: FakeAws | None = None, status: int = 200
) -> tuple[dict[int, CallbackResult], Sent, Sent]:
    http, to_aws, results = Sent(), Sent(status), dict[int, CallbackResult]()

    async def run() -> None:
        done = asyncio.Event()

        def take(batch: list[CallbackResult]) -> None:
            results.update({each.key: each for each in batch})
            if len(results) == len(callbacks):
                done.set()

        sender = TargetSender(
            http,
            egress=EgressPolicy(allow_targets=(QUEUE,)),
            make_sender=lambda: to_aws,
            make_aws=lambda: aws or FakeAws(),
        )
        sender.start(take)
        sender.submit(callbacks)
        await asyncio.wait_for(done.wait(), 10)
        sender.close()

    asyncio.run(run())
    assert (http.is_open, to_aws.is_open) == (False, False)
    return results, http, to_aws


def test_targets_and_urls_go_their_ways() -> None:
    url = to("https://shop.test/hook", key=2)
    results, http, to_aws = send(to(QUEUE, key=1), url)

    assert http.sent == [url]
    (signed,) = to_aws.sent
    assert signed.url == "https://sqs.eu-central-1.amazonaws.com/"
    assert "Authorization: signed" in signed.headers
    assert "X-Amz-Target: AmazonSQS.SendMessage" in signed.headers
    assert (signed.key, signed.timeout_seconds, set(results)) == (1, 30, {1, 2})


def test_an_answer_of_a_service_is_read_as_one_and_that_of_a_url_is_not() -> None:
    results, _, _ = send(to(QUEUE, key=1), to("https://shop.test/hook", key=2), status=400)
    assert (results[1].status, results[2].status) == (429, 200)


def test_a_target_that_is_not_allowed_any_more_is_not_sent_to() -> None:
    results, _, to_aws = send(to(TOPIC))

    assert (results[1].error, to_aws.sent) == (TransportError.REFUSED_URL, [])
    assert "none of the targets that this deployment allows" in results[1].message


@pytest.mark.parametrize("refusal", [Unsigned("there are no AWS credentials"), RuntimeError("secret")])
def test_what_cannot_be_signed_is_an_attempt_that_failed(refusal: Exception) -> None:
    results, _, to_aws = send(to(QUEUE), aws=FakeAws(refusal))

    assert (results[1].error, results[1].status, to_aws.sent) == (TransportError.ABORTED, None, [])
    assert results[1].message in ("there are no AWS credentials", "no request could be made: RuntimeError")
