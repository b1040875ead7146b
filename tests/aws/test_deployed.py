"""End to end on the emulator: `sam build`, `sam deploy`, a timer through the HTTP API, fired by the scheduled poller.

The emulator checks signatures and IAM policies, so what is missing from a function's policy fails here. It starts
what is scheduled after a minute: these tests are slow.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from standardwebhooks import Webhook

from scripts.aws_local import REGION, Deployment, deploy, emulator_client
from tests.support.callbacks import CallbackReceiver
from tests.support.ministack import running_ministack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TIMERS = "/v1/namespaces/default/timers"
POLLER_STARTS_SECONDS = 100.0
"""The schedule's first minute, and a start under load."""


@pytest.fixture(scope="module")
def deployment(built: Path) -> Iterator[Deployment]:
    """Two shards to a poller: the namespace of four takes two, one of them started by the other."""
    with running_ministack(checks_permissions=True) as endpoint_url:
        yield deploy(built, endpoint_url, ShardsPerPoller="2")


@dataclass(frozen=True)
class Answer:
    status: int
    body: str

    def json(self) -> Any:
        return json.loads(self.body)


def request(
    deployment: Deployment, method: str, path: str, body: Any = None, *, credentials: Credentials | None = None
) -> Answer:
    """A request to the HTTP API, signed with ``credentials`` when there are any."""
    headers = {"content-type": "application/json"}
    content = None if body is None else json.dumps(body)
    signed = AWSRequest(method=method, url=deployment.api_url + path, data=content, headers=headers)
    if credentials is not None:
        SigV4Auth(credentials, "execute-api", REGION).add_auth(signed)
    emulator = urlsplit(deployment.endpoint_url)
    assert emulator.hostname is not None
    connection = http.client.HTTPConnection(emulator.hostname, emulator.port, timeout=30)
    try:
        connection.request(method, path, content, {**dict(signed.headers), "Host": deployment.host})
        response = connection.getresponse()
        return Answer(response.status, response.read().decode())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def nobody(deployment: Deployment) -> Credentials:
    """A user of the account with no policy."""
    return _new_user(deployment, "nobody")


@pytest.fixture(scope="module")
def caller(deployment: Deployment) -> Credentials:
    """A user with just the policy that the documentation gives to callers."""
    credentials = _new_user(deployment, "caller")
    statement = {
        "Effect": "Allow",
        "Action": "execute-api:Invoke",
        "Resource": deployment.outputs["ApiInvokeArn"],
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam = emulator_client(deployment.endpoint_url, "iam")
    iam.put_user_policy(UserName="caller", PolicyName="duetime", PolicyDocument=policy)
    return credentials


def _new_user(deployment: Deployment, name: str) -> Credentials:
    iam = emulator_client(deployment.endpoint_url, "iam")
    iam.create_user(UserName=name)
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return Credentials(key["AccessKeyId"], key["SecretAccessKey"])


def test_only_principals_with_a_policy_get_in(
    deployment: Deployment, nobody: Credentials, caller: Credentials
) -> None:
    forger = Credentials(caller.access_key, "another secret")
    callers = (None, nobody, forger, caller)
    answers = [request(deployment, "GET", "/v1/namespaces", credentials=credentials) for credentials in callers]

    assert [answer.status for answer in answers] == [403, 403, 403, 200]


def test_timers_made_through_the_api_are_fired_by_scheduled_pollers(
    deployment: Deployment, caller: Credentials
) -> None:
    def call(method: str, path: str, body: Any = None) -> Answer:
        return request(deployment, method, path, body, credentials=caller)

    with CallbackReceiver() as receiver:
        assert call("PUT", "/v1/namespaces/default", {"numShards": 4}).status == 201
        ids = [f"timer {number}" for number in range(12)]  # they are on every shard
        timers = [{"id": timer_id, "delay": "1s", "callbackUrl": receiver.url} for timer_id in ids]
        made = call("POST", f"{TIMERS}/batch", {"timers": timers})
        assert [item["status"] for item in made.json()["items"]] == [201] * len(ids)

        receiver.wait_for_timers(len(ids), timeout_seconds=POLLER_STARTS_SECONDS)

        # The scheduled poller took two shards and started another for the other two.
        shards = call("GET", "/v1/shards").json()["items"]
        assert [shard["live"] for shard in shards] == [True] * 4
        assert len({shard["ownerId"] for shard in shards}) == 2

        # They are running now, so a new timer is on time.
        later = call("POST", TIMERS, {"id": "later", "delay": "2s", "callbackUrl": receiver.url})
        assert later.status == 201
        arrival = receiver.wait_for_timer("later")
        assert 0 <= arrival.lateness_seconds < 1

        _wait_until(lambda: call("GET", f"{TIMERS}/later").json()["state"] == "fired")
    assert receiver.counts() == dict.fromkeys([*ids, "later"], 1)


def test_a_secret_is_sealed_by_the_api_and_unsealed_by_the_poller(
    deployment: Deployment, caller: Credentials
) -> None:
    """The emulator checks policies: the API may encrypt only, the poller decrypt only."""

    def call(method: str, path: str, body: Any = None) -> Answer:
        return request(deployment, method, path, body, credentials=caller)

    assert call("PUT", "/v1/namespaces/signed", {"numShards": 1}).status == 201
    created = call("POST", "/v1/namespaces/signed/secrets")
    assert created.status == 201, created
    with CallbackReceiver() as receiver:
        timer = {"id": "signed", "delay": "0s", "callbackUrl": receiver.url}
        assert call("POST", "/v1/namespaces/signed/timers", timer).status == 201
        arrival = receiver.wait_for_timer("signed", timeout_seconds=POLLER_STARTS_SECONDS)

    Webhook(created.json()["secret"]).verify(arrival.raw, arrival.headers)


def _wait_until(holds: Callable[[], bool], *, timeout_seconds: float = 10) -> None:
    """Nothing tells of what a poller in another process has recorded: ask again until it shows."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come true in {timeout_seconds} s"
        time.sleep(0.05)


def test_a_start_that_fails_becomes_a_dead_letter_at_once(deployment: Deployment) -> None:
    emulator_client(deployment.endpoint_url, "lambda").invoke(
        FunctionName=deployment.outputs["PollerFunction"], InvocationType="Event", Payload=b'{"unknown": true}'
    )
    received = emulator_client(deployment.endpoint_url, "sqs").receive_message(
        QueueUrl=deployment.outputs["DeadLetterQueueUrl"], WaitTimeSeconds=20
    )

    (letter,) = received["Messages"]
    assert json.loads(letter["Body"])["requestPayload"] == {"unknown": True}
