"""From a callback to the request of an AWS service that hands it to a target, and from the service's response back.

Each is one request of the service's HTTP API, so libcurl sends it as it sends callbacks (docs/decisions/0043). Pure:
what signs it is in ``runtime``. The shapes are those of the API references of SQS, SNS, EventBridge, Lambda and Step
Functions.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final
from urllib.parse import quote, urlencode

from duetime.delivery.call_request import CALL_ID_HEADER
from duetime.delivery.port import Callback, CallbackResult
from duetime.domain.targets import Service, Target

SOURCE: Final = "duetime"
TIMER_DETAIL: Final = "Timer Fired"
CALL_DETAIL: Final = "Service Call"

_PASSED_ON = ("webhook-", "x-")
"""Headers that become attributes of a message. The others are those of HTTP."""
_GROUP_ID = re.compile(r"[!-~]{1,128}")
_CODE = re.compile(rb'"__type"\s*:\s*"(?:[^"#]*#)?([^"]+)"|<Code>([^<]+)</Code>')
_THROTTLED = re.compile(r"Throttl|TooManyRequests|RequestLimit|ExecutionLimitExceeded")
_PASSING = re.compile(
    r"ExpiredToken|RequestExpired|RequestTimeTooSkewed|ServiceUnavailable|InternalFailure|InternalError"
    r"|InternalException|InternalService|KMSInternal|KmsInternal"
)
"""Credentials that have just ended, clocks, and faults of the service, whatever status they come with."""


@dataclass(frozen=True, slots=True)
class AwsRequest:
    """A POST that is not signed yet. ``service`` and ``region`` are what it is signed for."""

    service: str
    region: str
    url: str
    headers: Mapping[str, str]
    body: bytes


def target_request(target: Target, callback: Callback, endpoint: str) -> AwsRequest:
    """Return what delivers ``callback`` to ``target`` by the service at ``endpoint``, a URL without a path."""
    path, headers, body = _REQUESTS[target.service](target, _Message(callback), endpoint)
    return AwsRequest(target.service, target.region, f"{endpoint}{path}", headers, body)


class _Message:
    """What a callback says, whichever way it goes."""

    def __init__(self, callback: Callback) -> None:
        lines = (line.partition(": ") for line in callback.headers)
        self.attributes = {
            name.lower(): value for name, _, value in lines if value and name.lower().startswith(_PASSED_ON)
        }
        self.text = (callback.body or b"").decode()
        self.is_timer = "webhook-id" in self.attributes
        self.id = self.attributes["webhook-id" if self.is_timer else CALL_ID_HEADER]
        """The same in each attempt."""

    def fifo(self) -> dict[str, str]:
        """Order messages by group: the timer, the schedule or the service call."""
        group = self.id
        if self.is_timer:
            body = json.loads(self.text)
            group = body.get("timerId") or body["scheduleId"]
        if not _GROUP_ID.fullmatch(group):
            group = hashlib.sha256(group.encode(errors="surrogatepass")).hexdigest()
        return {"MessageGroupId": group, "MessageDeduplicationId": self.id}


_Made = tuple[str, Mapping[str, str], bytes]


def _attribute(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def _json_request(operation: str, version: str, members: Mapping[str, Any]) -> _Made:
    headers = {"Content-Type": f"application/x-amz-json-{version}", "X-Amz-Target": operation}
    return "/", headers, json.dumps(members).encode()


def _to_queue(target: Target, message: _Message, endpoint: str) -> _Made:
    members: dict[str, Any] = {
        "QueueUrl": f"{endpoint}/{target.account}/{target.resource}",
        "MessageBody": message.text,
        "MessageAttributes": {name: _attribute(value) for name, value in message.attributes.items()},
    }
    return _json_request("AmazonSQS.SendMessage", "1.0", members | (message.fifo() if target.is_fifo else {}))


def _to_topic(target: Target, message: _Message, _endpoint: str) -> _Made:
    form = {"Action": "Publish", "Version": "2010-03-31", "TopicArn": target.arn, "Message": message.text}
    for number, (name, value) in enumerate(message.attributes.items(), 1):
        entry = f"MessageAttributes.entry.{number}"
        form |= {f"{entry}.Name": name}
        form |= {f"{entry}.Value.{key}": each for key, each in _attribute(value).items()}
    if target.is_fifo:
        form |= message.fifo()
    headers = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    return "/", headers, urlencode(form).encode()


def _to_bus(target: Target, message: _Message, _endpoint: str) -> _Made:
    entry = {
        "EventBusName": target.arn,
        "Source": SOURCE,
        "DetailType": TIMER_DETAIL if message.is_timer else CALL_DETAIL,
        "Detail": message.text,
    }
    return _json_request("AWSEvents.PutEvents", "1.1", {"Entries": [entry]})


def _to_function(target: Target, message: _Message, _endpoint: str) -> _Made:
    """Invoke it asynchronously: the poller does not wait for the function, whose failures are Lambda's to retry."""
    headers = {"Content-Type": "application/json", "X-Amz-Invocation-Type": "Event"}
    return f"/2015-03-31/functions/{quote(target.arn, safe='')}/invocations", headers, message.text.encode()


def _to_state_machine(target: Target, message: _Message, _endpoint: str) -> _Made:
    members = {"stateMachineArn": target.arn, "name": message.id, "input": message.text}
    return _json_request("AWSStepFunctions.StartExecution", "1.0", members)


_REQUESTS = {
    Service.SQS: _to_queue,
    Service.SNS: _to_topic,
    Service.EVENTBRIDGE: _to_bus,
    Service.LAMBDA: _to_function,
    Service.STEP_FUNCTIONS: _to_state_machine,
}


def read_result(service: Service, result: CallbackResult) -> CallbackResult:
    """Return ``result`` with the status that a receiver would have answered with.

    Services answer 400 when they throttle (here 429) and when an execution of this name has been started before (here
    200: it is this one, started by an attempt whose response was lost), and EventBridge answers 200 for an event that
    it has not taken.
    """
    if result.status is None:
        return result
    if result.status == 200 and service is Service.EVENTBRIDGE:
        code = _code_of_entry(result.body)
        return result if code is None else replace(result, status=_status_of(code, 400))
    match = _CODE.search(result.body) if result.status >= 400 else None
    if match is None:
        return result
    return replace(result, status=_status_of((match[1] or match[2]).decode(errors="replace"), result.status))


def _code_of_entry(body: bytes) -> str | None:
    """Return why EventBridge has not taken the event, None if it has."""
    try:
        entry = json.loads(body)["Entries"][0]
        code = entry.get("ErrorCode")
    except (ValueError, LookupError, TypeError, AttributeError):
        return "InternalFailure"  # nothing says that it was taken
    return None if code is None else str(code)


def _status_of(code: str, status: int) -> int:
    if code == "ExecutionAlreadyExists":
        return 200
    if _THROTTLED.search(code):
        return 429
    return 503 if status < 500 and _PASSING.search(code) else status
