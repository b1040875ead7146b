"""End to end on the emulator: `sam build`, `sam deploy`, a timer through the HTTP API, fired by the scheduled poller.

The emulator checks IAM policies, so what is missing from a function's policy fails here. It
starts what is scheduled after a minute: these tests are slow.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from standardwebhooks import Webhook

from duetime.domain.api_keys import SECRET_BYTES, key_text, new_secret
from scripts.aws_local import REGION, Deployment, deploy, emulator_client, examine, first_key
from tests.aws.application import PATIENCE_SECONDS, received
from tests.aws.stack import Answer, request
from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.ministack import running_ministack

pytestmark = [pytest.mark.slow, pytest.mark.timeout(4 * PATIENCE_SECONDS, func_only=True)]

TIMERS = "/v1/namespaces/default/timers"
QUEUES = f"arn:aws:sqs:{REGION}:000000000000:"
POLLER_STARTS_SECONDS = 100.0
"""The schedule's first minute, and a start under load."""


@pytest.fixture(scope="module")
def deployment(built: Path) -> Iterator[Deployment]:
    """Two shards to a poller: the namespace of four takes two, one of them started by the other."""
    with running_ministack(checks_permissions=True) as endpoint_url:
        yield deploy(
            built,
            endpoint_url,
            ShardsPerPoller="2",
            DefaultNumShards="4",
            AuthCacheSeconds="1",
            AllowedTargets=f"{QUEUES}orders,{QUEUES}others-*",
        )


@pytest.fixture(scope="module")
def key(deployment: Deployment) -> str:
    """The first key, as an operator makes it."""
    return first_key(deployment)


def test_only_good_keys_get_in(deployment: Deployment, key: str) -> None:
    key_id = key.split("_")[1]
    wrong = key_text(key_id, new_secret(bytes(SECRET_BYTES)))
    answers = [request(deployment, "GET", "/v1/namespaces", key=each) for each in (None, "nonsense", wrong, key)]

    assert [answer.status for answer in answers] == [401, 401, 401, 200]
    assert {answer.json()["code"] for answer in answers[:3]} == {"unauthenticated"}


def test_what_there_is_not_is_a_problem_as_on_one_machine(deployment: Deployment, key: str) -> None:
    absent = request(deployment, "GET", "/v1/nothing", key=key)
    wrong = request(deployment, "DELETE", "/v1/namespaces", key=key)
    calls = request(deployment, "DELETE", "/v1/tenants/default/service-calls", key=key)

    assert [(each.status, each.json()["code"]) for each in (absent, wrong, calls)] == [
        (404, "route_not_found"),
        (405, "method_not_allowed"),
        (405, "method_not_allowed"),
    ]
    assert request(deployment, "HEAD", "/v1/namespaces", key=key) == Answer(200, "")


def test_public_routes_need_no_key(deployment: Deployment) -> None:
    # The emulator answers /health itself.
    paths = ("/v1/openapi.json", "/docs", "/console", "/console/any/app.js")
    assert [request(deployment, "GET", path).status for path in paths] == [200] * 4


def test_a_key_acts_for_its_tenant_and_role(deployment: Deployment, key: str) -> None:
    made = request(deployment, "POST", "/v1/tenants/default/api-keys", {"role": "reader"}, key=key)
    assert made.status == 201, made
    reader = made.json()["key"]
    assert request(deployment, "PUT", "/v1/namespaces/deployed", {"numShards": 1}, key=key).status == 201

    assert request(deployment, "GET", "/v1/namespaces/deployed", key=reader).status == 200
    refused = request(deployment, "PUT", "/v1/namespaces/deployed", {}, key=reader)
    assert (refused.status, refused.json()["code"]) == (403, "forbidden")
    assert request(deployment, "GET", "/v1/tenants/other/api-keys", key=key).status == 404
    assert request(deployment, "DELETE", f"/v1/tenants/default/api-keys/{made.json()['id']}", key=key).status == 204
    # A function caches it (AuthCacheSeconds, 1 here), so for that long it works on.
    _wait_until(lambda: request(deployment, "GET", "/v1/namespaces", key=reader).status == 401)


def test_a_timer_that_is_due_now_wakes_the_pollers(deployment: Deployment, key: str) -> None:
    """Nothing was due so far, so none runs. The emulator checks that the API may invoke the poller."""
    events = emulator_client(deployment.endpoint_url, "events")
    (rule,) = (each["Name"] for each in events.list_rules()["Rules"] if "Poller" in each["Name"])
    events.disable_rule(Name=rule)  # nobody else is to start one
    with CallbackReceiver() as receiver:
        assert request(deployment, "PUT", "/v1/namespaces/default", {"numShards": 4}, key=key).status == 201
        timer = {"id": "woken", "delay": "0s", "callbackUrl": receiver.url}
        assert request(deployment, "POST", TIMERS, timer, key=key).status == 201
        receiver.wait_for_timer("woken", timeout_seconds=POLLER_STARTS_SECONDS)
    events.enable_rule(Name=rule)


def test_a_timer_reaches_an_allowed_queue_and_no_other(deployment: Deployment, key: str) -> None:
    """The emulator checks that the poller may send there, and its signature."""
    queues = emulator_client(deployment.endpoint_url, "sqs")
    url = queues.create_queue(QueueName="orders")["QueueUrl"]
    timer = {"id": "to-a-queue", "delay": "0s", "target": {"arn": f"{QUEUES}orders"}, "payload": {"n": 1}}
    assert request(deployment, "PUT", "/v1/namespaces/default", {"numShards": 4}, key=key).status in (200, 201)
    refused = request(deployment, "POST", TIMERS, timer | {"target": {"arn": f"{QUEUES}unlisted"}}, key=key)
    assert (refused.status, refused.json()["errors"][0]["field"]) == (400, "target.arn")
    assert request(deployment, "POST", TIMERS, timer, key=key).status == 201

    found: list[Any] = []

    def is_there() -> bool:
        found.extend(queues.receive_message(QueueUrl=url, WaitTimeSeconds=5).get("Messages", ()))
        return bool(found)

    _wait_until(is_there, timeout_seconds=POLLER_STARTS_SECONDS)
    body = json.loads(found[0]["Body"])
    assert (body["timerId"], body["payload"]) == ("to-a-queue", {"n": 1})


def test_timers_made_through_the_api_are_fired_by_scheduled_pollers(deployment: Deployment, key: str) -> None:
    def call(method: str, path: str, body: Any = None) -> Answer:
        return request(deployment, method, path, body, key=key)

    with CallbackReceiver() as receiver:
        assert call("PUT", "/v1/namespaces/default", {"numShards": 4}).status == 200
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
        arrival = receiver.wait_for_timer("later", timeout_seconds=POLLER_STARTS_SECONDS)
        # How late, in virtual time, is for others to test: a poller that had to be started would come in a minute.
        assert 0 <= arrival.lateness_seconds < 10

        _wait_until(lambda: call("GET", f"{TIMERS}/later").json()["state"] == "Fired")
    assert receiver.counts() == dict.fromkeys([*ids, "later"], 1)


def test_a_secret_is_encrypted_by_the_api_and_decrypted_by_the_poller(deployment: Deployment, key: str) -> None:
    """The emulator checks policies: the API may encrypt only, the poller decrypt only."""

    def call(method: str, path: str, body: Any = None) -> Answer:
        return request(deployment, method, path, body, key=key)

    assert call("PUT", "/v1/namespaces/signed", {"numShards": 1}).status == 201
    created = call("POST", "/v1/namespaces/signed/secrets")
    assert created.status == 201, created
    with CallbackReceiver() as receiver:
        timer = {"id": "signed", "delay": "0s", "callbackUrl": receiver.url}
        assert call("POST", "/v1/namespaces/signed/timers", timer).status == 201
        arrival = receiver.wait_for_timer("signed", timeout_seconds=POLLER_STARTS_SECONDS)

    Webhook(created.json()["secret"]).verify(arrival.raw, arrival.headers)


def test_a_service_call_is_submitted_executed_and_read(deployment: Deployment, key: str) -> None:
    """The emulator checks policies: the API of service calls writes both tables, the poller executes."""
    calls = "/v1/tenants/default/service-calls"

    def call(method: str, path: str, body: Any = None) -> Answer:
        return request(deployment, method, path, body, key=key)

    def read() -> Any:
        return call("GET", path).json()

    with CallbackReceiver(lambda arrival: (201, b"made")) as receiver:
        sent = {
            "method": "POST",
            "url": receiver.url,
            "headers": {"Authorization": "s3cret"},
            "body": {"timerId": "c"},
        }
        body = {"name": "deployed", "request": sent, "tags": ["a"], "idempotencyKey": "k"}
        submitted, again = call("POST", calls, body), call("POST", calls, body)
        assert (submitted.status, again.status) == (202, 200), submitted
        path = f"{calls}/{submitted.json()['id']}"
        arrival = receiver.wait_for_timer("c", timeout_seconds=POLLER_STARTS_SECONDS)
        assert arrival.headers["authorization"] == "s3cret"
        _wait_until(lambda: read()["status"] == "Succeeded")
    outcome = read()["outcome"]
    execution = call("GET", f"{path}/executions/{outcome['executionId']}").json()
    assert (outcome["status"], execution["response"]["body"]) == (201, "made")
    events = call("GET", f"{path}/events").json()
    assert (events["items"][-1]["type"], events["complete"]) == ("ServiceCallSucceeded", True)
    assert [item["id"] for item in call("GET", f"{calls}?tag=a&status=Succeeded").json()["items"]] == [read()["id"]]
    assert "s3cret" not in json.dumps([execution, read(), events])
    assert call("PATCH", path, {"starred": True}).status == 200
    assert call("POST", f"{path}/rerun", {"delay": "1h"}).status == 202
    assert call("DELETE", path).status == 204
    assert call("GET", "/v1/tenants/other/service-calls").status == 404
    assert request(deployment, "GET", calls).status == 401


def test_the_events_of_a_service_call_reach_eventbridge_and_the_webhook(deployment: Deployment, key: str) -> None:
    """The API writes, the poller executes, the stream starts the outbox, which publishes, and the poller delivers."""
    client = partial(emulator_client, deployment.endpoint_url)
    events, sqs = client("events"), client("sqs")
    queue_url = sqs.create_queue(QueueName="service-calls")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="service-calls", EventPattern='{"source": ["duetime.calls"]}')
    events.put_targets(Rule="service-calls", Targets=[{"Id": "queue", "Arn": queue}])

    def call(method: str, path: str, body: Any = None) -> Answer:
        answer = request(deployment, method, f"/v1/tenants/default{path}", body, key=key)
        assert 200 <= answer.status < 300, answer
        return answer

    with CallbackReceiver() as target, CallbackReceiver() as hooks:
        secret = call("POST", "/event-webhook/secrets", {}).json()["secret"]
        call("PUT", "/event-webhook", {"url": hooks.url})
        wanted = {"method": "POST", "url": target.url, "body": {"timerId": "call"}}
        call_id = call("POST", "/service-calls", {"name": "deployed", "request": wanted}).json()["id"]

        def arrived() -> list[Arrival]:
            return [arrival for arrival in list(hooks.arrivals) if arrival.body["aggregateId"] == call_id]

        _wait_until(lambda: len(arrived()) >= 7, timeout_seconds=POLLER_STARTS_SECONDS + 60)
        arrivals = arrived()

    def ids_of(bodies: list[Any]) -> set[str]:
        return {body["detail"]["id"] for body in bodies if body["detail"]["aggregateId"] == call_id}

    bodies = received(sqs, queue_url, lambda found: len(ids_of(found)) >= 7)

    assert [arrival.body["sequence"] for arrival in arrivals] == list(range(1, 8))
    assert arrivals[-1].body["type"] == "ServiceCallSucceeded"
    for arrival in arrivals:
        assert Webhook(secret).verify(arrival.raw, arrival.headers) == arrival.body
    assert ids_of(bodies) == {arrival.body["id"] for arrival in arrivals}


def _wait_until(holds: Callable[[], bool], *, timeout_seconds: float = 60) -> None:
    """Nothing tells of what a poller in another process has recorded: ask again until it shows."""
    deadline = time.monotonic() + timeout_seconds
    while not holds():
        assert time.monotonic() < deadline, f"it did not come true in {timeout_seconds} s"
        time.sleep(0.05)


def test_a_start_that_fails_becomes_a_dead_letter_at_once(deployment: Deployment) -> None:
    emulator_client(deployment.endpoint_url, "lambda").invoke(
        FunctionName=deployment.outputs["PollerFunction"], InvocationType="Event", Payload=b'{"unknown": true}'
    )

    sqs = emulator_client(deployment.endpoint_url, "sqs")
    (letter,) = received(sqs, deployment.outputs["DeadLetterQueueUrl"], bool)
    assert letter["requestPayload"] == {"unknown": True}


def test_the_doctor_reads_the_stack_and_says_what_the_emulator_lacks(deployment: Deployment) -> None:
    """It has neither metrics of logs, nor TTL and point-in-time recovery, nor a stack policy that was set."""
    events = emulator_client(deployment.endpoint_url, "events")
    (rule,) = (each["Name"] for each in events.list_rules()["Rules"] if "PollerEveryMinute" in each["Name"])

    def found() -> set[str]:
        findings = examine(deployment)["findings"]
        assert all(finding["todo"] for finding in findings)
        return {finding["what"] for finding in findings if finding["level"] == "wrong"}

    before = found()
    events.disable_rule(Name=rule)
    try:
        assert found() - before == {"the schedule of the poller is DISABLED"}
    finally:
        events.enable_rule(Name=rule)
    tables = [deployment.outputs[name] for name in ("TableName", "CallsTableName")]
    lacks = {f"the table {name} cannot be restored: point-in-time recovery was switched off" for name in tables}
    lacks |= {f"the table {name} keeps what has expired: TTL was switched off" for name in tables}
    lacks |= {
        "an update may replace a table by an empty one",
        "no poller has told of itself for 5 minutes: nothing fires",
    }
    assert lacks <= before
    assert not any("was refused" in what or "failed (" in what for what in before)
