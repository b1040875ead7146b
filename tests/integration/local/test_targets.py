"""``duetime serve`` delivers to a queue on an emulator of AWS: the whole way, with attempt log and dead letter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import boto3
import pytest

from tests.support.processes import DuetimeServer

REGION = "eu-central-1"
PREFIX = f"arn:aws:sqs:{REGION}:000000000000:"
KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
CALLS = "/v1/tenants/default/service-calls"


@pytest.fixture
def server(tmp_path: Path, ministack_url: str) -> Iterator[DuetimeServer]:
    with DuetimeServer(
        "--allowed-targets", f"{PREFIX}*", cwd=tmp_path, AWS_ENDPOINT_URL=ministack_url, **KEYS
    ) as server:
        yield server


def ended(server: DuetimeServer, path: str, field: str) -> dict[str, Any]:
    """What is at ``path`` when it has ended. The timeout of the test is the limit."""
    while True:
        found = server.client.get(path).json()
        if found[field] in ("Fired", "Failed", "Succeeded"):
            return dict(found)
        assert server.process.poll() is None


def test_timers_and_service_calls_reach_a_queue(server: DuetimeServer, ministack_url: str) -> None:
    queues = boto3.client(
        "sqs",
        endpoint_url=ministack_url,
        region_name=REGION,
        aws_access_key_id=KEYS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=KEYS["AWS_SECRET_ACCESS_KEY"],
    )
    name = f"served-{uuid4()}"
    url = queues.create_queue(QueueName=name)["QueueUrl"]
    target = {"arn": f"{PREFIX}{name}"}
    server.create("there", delay="0s", target=target, payload={"n": 1})
    server.create("not-there", delay="0s", target={"arn": f"{PREFIX}none-{name}"})
    request = {"target": target, "body": {"n": 2}}
    call = server.client.post(CALLS, json={"name": "n", "request": request}).json()

    timers = "/v1/namespaces/default/timers"
    assert ended(server, f"{timers}/there", "state")["state"] == "Fired"
    (attempt,) = server.client.get(f"{timers}/there/attempts").json()["items"]
    assert (attempt["status"], "MessageId" in attempt["body"]) == (200, True)
    failed = ended(server, f"{timers}/not-there", "state")
    assert (failed["state"], failed["attempts"], failed["failure"]["reason"]) == ("Failed", 1, "HttpStatus")
    assert ended(server, f"{CALLS}/{call['id']}", "status")["outcome"]["status"] == 200

    bodies: list[dict[str, Any]] = []
    while len(bodies) < 2:
        answer = queues.receive_message(QueueUrl=url, WaitTimeSeconds=5, MaxNumberOfMessages=10)
        bodies += [json.loads(each["Body"]) for each in answer.get("Messages", ())]
    of_timer = next(each for each in bodies if "timerId" in each)
    assert (of_timer["timerId"], of_timer["payload"]) == ("there", {"n": 1})
    assert of_timer["firingId"] == attempt["firingId"]
    assert {"n": 2} in bodies
