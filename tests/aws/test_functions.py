"""The built functions answer real events under Lambda's runtime, and need just the permissions that they have."""

from __future__ import annotations

import json
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

from duetime.app.api_keys import create_key
from duetime.domain.ids import schedule_timer_id
from duetime.domain.namespaces import Namespace
from duetime.domain.outcomes import RecordStatus
from duetime.domain.principals import Role
from duetime.domain.schedule_timers import standing_at
from duetime.domain.schedules import Occurrence
from duetime.domain.service_calls import CallStatus
from duetime.domain.timers import Timer, TimerChange
from duetime.runtime.clock import SystemClock
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.testing.contract import call_builders as make_calls
from duetime.testing.contract import call_steps as steps
from duetime.testing.contract.builders import failed, leased
from scripts.aws_local import emulator_client
from tests.aws.application import PATIENCE_SECONDS, Account, Api, LoadEvent, Template, apply, received
from tests.aws.permissions import permissions_of
from tests.support.callbacks import Arrival, CallbackReceiver
from tests.support.dynamodb import dynamodb_store
from tests.support.runtime_api import FunctionError, LambdaFunction

LARGE = "x" * 200_000
"""A payload that the store keeps in an item of its own."""


TOGETHER = 12
"""Service calls, over four shards."""
SHORT_LIVED = {"DUETIME_DEADLINE_MARGIN_SECONDS": "0.5"}
"""So that a poller that lives for seconds has some left for polling."""
pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS, func_only=True)  # a build is nobody's


def test_the_timers_api_stores_the_timer_of_a_real_event(account: Account, load_event: LoadEvent) -> None:
    event = load_event("timers_api")
    with account.running("TimersApi") as function:
        api = Api(function, event)
        assert api.call("PUT", "/v1/namespaces/default", {"numShards": 4})[0] == 201

        created = function.invoke(event)

        assert created["statusCode"] == 201
        read = api.call("GET", unquote(created["headers"]["location"]))
    assert read == (200, created["body"])
    assert json.loads(function.log[-1])["action"] == "request.served"


@pytest.mark.parametrize("name", ["timers_api", "service_calls_api"])
def test_a_function_answers_as_the_local_server_whatever_is_asked(
    account: Account, load_event: LoadEvent, name: str
) -> None:
    """The gateway hands on all requests, so that no answer is its own."""
    event = load_event(name)
    path = event["rawPath"]
    function_name = "TimersApi" if name == "timers_api" else "ServiceCallsApi"
    with account.running(function_name) as function:
        api = Api(function, event)
        answers = [api.call(*request) for request in (("DELETE", path), ("GET", "/v1/nothing"), ("OPTIONS", path))]
        function.invoke(event)
        head, read = api.call("HEAD", path), api.call("GET", path)
        event["headers"]["authorization"] = "Bearer nonsense"
        refused = [Api(function, event).call("GET", path)]
        del event["headers"]["authorization"]
        refused.append(Api(function, event).call("GET", path))

    codes = [(status, body and json.loads(body)["code"]) for status, body in answers]
    assert codes == [(405, "method_not_allowed"), (404, "route_not_found"), (204, "")]
    assert head == (read[0], "")
    assert [(status, json.loads(body)["code"]) for status, body in refused] == [(401, "unauthenticated")] * 2


def test_a_key_acts_for_its_tenant_and_role_and_is_in_no_log(
    account: Account, load_event: LoadEvent, ministack_client: Any, timers_table: str
) -> None:
    store, now = dynamodb_store(ministack_client, timers_table), SystemClock().now()
    created = create_key(store, key_id="k2", tenant_id="acme", role=Role.READER, name="", expires_at=None, now=now)
    event = load_event("timers_api")
    event["headers"]["authorization"] = f"Bearer {created.text}"
    with account.running("TimersApi") as function:
        api = Api(function, event)
        statuses = [
            api.call("GET", "/v1/namespaces")[0],
            api.call("PUT", "/v1/namespaces/mine")[0],
            api.call("GET", "/v1/tenants/default/event-webhook/deliveries")[0],
        ]
    log = "".join(function.log)  # whole, since the process has ended

    assert statuses == [200, 403, 404]
    assert created.text.split("_")[2][:20] not in log
    assert created.key.key_id in log


def fail_timers(store: Store, *timer_ids: str) -> None:
    """What pollers do to timers of the namespace ``default`` that are refused."""
    namespace, now = store.catalogue.get_namespace("default"), SystemClock().now()
    assert namespace is not None
    timers = [store.timers.get(namespace, timer_id, now=now) for timer_id in timer_ids]
    outcomes = [failed(timer, at=now) for timer in timers if timer is not None]
    assert store.timers.record(leased(outcomes), now=now) == [RecordStatus.APPLIED] * len(timer_ids)


def test_the_timers_api_uses_just_the_permissions_that_it_has(
    account: Account, template: Template, load_event: LoadEvent, ministack_client: Any, timers_table: str
) -> None:
    timers = "/v1/namespaces/default/timers"
    timer = {"id": "a", "delay": "1h", "callbackUrl": "http://receiver.test/", "correlationId": "c"}
    with account.running("TimersApi") as function:
        api = Api(function, load_event("timers_api"))
        statuses = [
            api.call(*request)[0]
            for request in (
                ("PUT", "/v1/namespaces/default", {"numShards": 4}),
                ("PUT", "/v1/namespaces/own", {"numShards": 2, "dedicated": True}),
                ("GET", "/v1/namespaces/default"),
                ("GET", "/v1/namespaces"),
                ("GET", "/v1/shards"),
                ("POST", "/v1/tenants/default/api-keys", {"role": "reader"}),
                ("GET", "/v1/tenants/default/api-keys"),
                ("POST", timers, timer),
                ("POST", timers, timer | {"id": "large", "payload": LARGE}),
                ("PUT", f"{timers}/large", timer | {"id": "large", "payload": LARGE + "y"}),
                ("PUT", f"{timers}/a", timer | {"payload": 2}),
                ("PATCH", f"{timers}/a", {"payload": 3}),
                ("GET", f"{timers}/a"),
                ("GET", timers),
                ("GET", timers, None, "correlationId=c"),
                ("POST", f"{timers}/batch", {"timers": [timer | {"id": str(number)} for number in range(30)]}),
                ("POST", f"{timers}/batch", {"timers": [timer | {"id": str(number)} for number in range(2)]}),
                ("POST", f"{timers}/batch-cancel", {"timers": [{"id": "1"}]}),
                ("POST", f"{timers}/batch-delete", {"timers": [{"id": "1"}, {"id": "2"}]}),
                ("POST", f"{timers}/5/fire"),
                ("GET", "/health"),
                ("GET", "/v1/openapi.json"),
                ("GET", "/docs"),
                ("GET", "/console"),
                ("GET", "/console/any/app.js"),
            )
        ]
        fail_timers(dynamodb_store(ministack_client, timers_table), "a", "large", "3", "4")
        statuses += [
            api.call(*request)[0]
            for request in (
                ("POST", f"{timers}/large/redrive"),
                ("POST", f"{timers}/a/redrive"),
                ("POST", "/v1/namespaces/default/redrive", {"reason": "HttpStatus"}),
                ("DELETE", f"{timers}/large"),
                ("DELETE", f"{timers}/a"),
            )
        ]
    assert all(200 <= status < 300 for status in statuses), statuses
    assert account.used == permissions_of(template.of_type("AWS::IAM::Role")["TimersApiRole"])


CALLS = "/v1/tenants/default/service-calls"


def test_the_service_calls_api_stores_the_call_of_a_real_event(account: Account, load_event: LoadEvent) -> None:
    event = load_event("service_calls_api")
    with account.running("ServiceCallsApi") as function:
        api = Api(function, event)
        submitted, again = function.invoke(event), function.invoke(event)

        assert (submitted["statusCode"], again["statusCode"]) == (202, 200)
        assert submitted["body"] == again["body"]
        read = api.call("GET", submitted["headers"]["location"])
        others = [api.call("GET", path)[0] for path in ("/v1/tenants/other/service-calls", "/v1/namespaces")]
    assert read == (200, submitted["body"])
    assert '"body":{"amount": 12.50,' in submitted["body"]
    assert others == [404, 404]
    assert json.loads(function.log[-1])["action"] == "request.served"


def test_the_service_calls_api_uses_just_the_permissions_that_it_has(
    account: Account, template: Template, load_event: LoadEvent, ministack_client: Any, timers_table: str
) -> None:
    request = {"method": "POST", "url": "https://receiver.test/", "body": "x"}
    body = {
        "name": "report",
        "request": request,
        "tags": ["a"],
        "correlationId": "c",
        "dueAt": "2030-01-01T00:00:00Z",
    }
    store = dynamodb_store(ministack_client, timers_table)
    with account.running("ServiceCallsApi") as function:
        api = Api(function, load_event("service_calls_api"))

        def submitted(**more: Any) -> str:
            status, answer = api.call("POST", CALLS, body | more)
            assert status == 202, answer
            return str(json.loads(answer)["id"])

        ids = [submitted(), submitted(idempotencyKey="k"), submitted(starred=True), submitted()]
        large = submitted(request=request | {"body": LARGE})
        finish_calls(store, ids[0], ids[3], large)
        often = submitted()
        execute_often(store, often)
        queries = ("", "status=Failed", "tag=a", "tag=a&tag=b", "name=rep", "starred=true", "correlationId=c")
        more_queries = ("createdFrom=2026-01-01T00:00:00Z", "status=Scheduled&order=dueAt", "status=Failed&tag=a")
        execution = json.loads(api.call("GET", f"{CALLS}/{ids[0]}/executions")[1])["items"][0]["id"]
        statuses = [
            *(api.call("GET", CALLS, None, query)[0] for query in queries + more_queries),
            api.call("POST", CALLS, body | {"idempotencyKey": "k"})[0],
            api.call("GET", f"{CALLS}/{ids[0]}")[0],
            api.call("GET", f"{CALLS}/{ids[0]}/executions/{execution}")[0],
            api.call("GET", f"{CALLS}/{ids[0]}/events")[0],
            api.call("PATCH", f"{CALLS}/{ids[1]}", {"tags": ["b"], "starred": True, "name": "other"})[0],
            api.call("PATCH", f"{CALLS}/{ids[1]}", {"delay": "1h", "request": {"body": LARGE}})[0],
            api.call("PATCH", f"{CALLS}/{ids[1]}", {"request": {"body": None}})[0],
            api.call("POST", f"{CALLS}/{ids[0]}/rerun")[0],
            api.call("POST", f"{CALLS}/{large}/rerun")[0],
            api.call("POST", f"{CALLS}/{ids[2]}/fire")[0],
            *(api.call("POST", f"{CALLS}/{call_id}/cancel")[0] for call_id in ids[1:3]),
            *(api.call("DELETE", f"{CALLS}/{call_id}")[0] for call_id in (*ids, large, often)),
        ]
    assert all(200 <= status < 300 for status in statuses), statuses
    assert account.used == permissions_of(template.of_type("AWS::IAM::Role")["ServiceCallsApiRole"])


def execute_often(store: Store, call_id: str) -> None:
    """Give a call more executions than a transaction can remove, and an end."""
    now = SystemClock().now()
    (call,) = store.calls.get([CallRef("default", call_id)], now=now)
    assert call is not None
    begun = make_calls.begun(call, now=now)
    ended = make_calls.concluded(begun.after, begun.executions[0], now=now)
    for transition in (begun, ended):
        others = [replace(transition.executions[0], execution_id=make_calls.id_at(now)) for _ in range(60)]
        apply(store, replace(transition, executions=(*transition.executions, *others)))


def finish_calls(store: Store, *call_ids: str) -> None:
    """What pollers do to calls whose receivers are away."""
    now = SystemClock().now()
    for call in store.calls.get([CallRef("default", call_id) for call_id in call_ids], now=now):
        assert call is not None
        steps.run(store.calls, call, is_ok=False, now=now)


def test_the_poller_fires_what_is_due_for_a_real_event(account: Account, load_event: LoadEvent) -> None:
    with CallbackReceiver() as receiver:
        slowness = make_timers(account, load_event, [{"id": "due", "delay": "0s", "callbackUrl": receiver.url}])

        with account.running("Poller", **SHORT_LIVED) as function:
            answer = poll(function, load_event, 4, slowness, until=lambda: receiver.counts().keys() == {"due"})

    assert receiver.counts() == {"due": 1}
    assert answer["shardRanges"] == [[0, 3]]
    assert json.loads(function.log[-1])["action"] == "poller.done"


def test_the_poller_tells_eventbridge_what_failed_and_cloudwatch_what_it_did(
    account: Account, ministack_url: str, load_event: LoadEvent
) -> None:
    events, sqs = emulator_client(ministack_url, "events"), emulator_client(ministack_url, "sqs")
    queue_url = sqs.create_queue(QueueName="dead-letters")["QueueUrl"]
    queue = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    events.put_rule(Name="dead-letters", EventPattern='{"source": ["duetime.timers"]}')
    events.put_targets(Rule="dead-letters", Targets=[{"Id": "queue", "Arn": queue}])

    with CallbackReceiver(lambda arrival: (410 if arrival.timer_id == "bad" else 200, b"")) as receiver:
        due = {"delay": "0s", "callbackUrl": receiver.url}
        timers = [due | {"id": "good"}, due | {"id": "bad", "correlationId": "c1"}]
        slowness = make_timers(account, load_event, timers)
        with account.running("Poller", AWS_ENDPOINT_URL_EVENTBRIDGE=ministack_url, **SHORT_LIVED) as function:
            poll(function, load_event, 5, slowness, until=lambda: receiver.counts().keys() == {"good", "bad"})

    (event,) = received(sqs, queue_url, bool)
    assert event["detail-type"] == "Timer Failed"
    assert (event["detail"]["timerId"], event["detail"]["correlationId"]) == ("bad", "c1")
    reports = [report for line in function.log if (report := json.loads(line)).get("action") == "poller.metrics"]
    totals = {name: sum(report.get(name, 0) for report in reports) for name in ("Attempts", "Fired", "Failed")}
    assert totals == {"Attempts": 2, "Fired": 1, "Failed": 1}
    assert sum(report["Lag"]["Count"] for report in reports if "Lag" in report) == 2
    assert {report["Stage"] for report in reports} == {"dev"}


def test_the_poller_takes_the_shards_of_another_pollers_event(account: Account, load_event: LoadEvent) -> None:
    event = load_event("poller_fanout")
    with account.running("Poller", **SHORT_LIVED) as function:
        answer = function.invoke(event, deadline_seconds=1)

    assert answer["shardRanges"] == event["shardRanges"]


def test_the_poller_uses_just_the_permissions_that_it_has(
    account: Account, template: Template, load_event: LoadEvent, calls_store: Store
) -> None:
    may_answer = threading.Event()

    def answer(arrival: Arrival) -> tuple[int, bytes]:
        """Kept waiting, refused, put off, or taken."""
        if arrival.timer_id == "slow":
            may_answer.wait(PATIENCE_SECONDS)
        if arrival.timer_id == "failing":
            return 503, b""
        if arrival.timer_id == "put off":
            return 200, b'{"ok": false, "nextExecuteAt": "2030-01-01T00:00:00Z"}'
        return 200, b""

    with CallbackReceiver(answer) as receiver:
        due = {"delay": "0s", "callbackUrl": receiver.url}
        ids = ["slow", "failing", "put off", *map(str, range(30))]
        called = {*ids, "large", "small call", "large call", "scheduled call"}
        timers = [due | {"id": timer_id} for timer_id in ids] + [due | {"id": "large", "payload": LARGE}]
        request = {"method": "POST", "url": receiver.url, "body": {"timerId": "scheduled call"}}
        schedule = {"every": "1s", "maxFirings": 1, "serviceCall": {"name": "any", "request": request}}
        later = {"localTime": "2037-03-28T09:00", "timeZone": "Europe/Berlin", "callbackUrl": receiver.url}
        yearly = {"id": "yearly", "cron": "@yearly", "timeZone": "Europe/Berlin", "callbackUrl": receiver.url}
        slowness = make_timers(account, load_event, [*timers, later | {"id": "later"}], schedule, yearly)
        now = SystemClock().now()
        namespace = calls_store.catalogue.get_namespace("default")
        assert namespace is not None
        by_tzdata = pending(calls_store, namespace)
        as_if_by_another_release(calls_store, namespace)
        assert pending(calls_store, namespace) != by_tzdata
        url = f"{receiver.url}/call"
        calls = [
            apply(calls_store, make_calls.submitted(now=now, url=url, body_json=body))
            for body in ('{"timerId": "small call"}', json.dumps({"timerId": "large call", "text": LARGE}))
        ]
        long_ago = now - timedelta(hours=1)
        overdue = make_calls.begun(apply(calls_store, make_calls.submitted(now=long_ago)), now=long_ago)
        calls.append(apply(calls_store, overdue))
        # So many that some are in one shard, whose steps are taken together.
        for _ in range(TOGETHER):
            apply(calls_store, make_calls.submitted(now=now, url=url, body_json='{"timerId": "small call"}'))
        account.used.clear()

        with account.running("Poller", **SHORT_LIVED) as function:
            poll(function, load_event, 14, slowness, until=lambda: receiver.counts().keys() == called)
        may_answer.set()

    assert set(receiver.counts()) == called
    ended = calls_store.calls.get([CallRef("acme", call.call_id) for call in calls], now=now)
    assert [call and call.status for call in ended] == [
        CallStatus.SUCCEEDED,
        CallStatus.SUCCEEDED,
        CallStatus.FAILED,  # by the watchdog
    ]
    assert pending(calls_store, namespace) == by_tzdata
    assert account.used == permissions_of(template.of_type("AWS::IAM::Role")["PollerRole"])


def pending(store: Store, namespace: Namespace) -> list[datetime | None]:
    """When ``later`` and ``yearly`` are due."""
    now = SystemClock().now()
    timers = [store.timers.get(namespace, each, now=now) for each in ("later", schedule_timer_id("yearly"))]
    return [None if timer is None else timer.next_attempt_at for timer in timers]


def as_if_by_another_release(store: Store, namespace: Namespace) -> None:
    """Let both be due an hour earlier, as if another release of tzdata had said so."""
    now, hour = SystemClock().now(), timedelta(hours=1)
    later = store.timers.get(namespace, "later", now=now)
    assert later is not None
    change = TimerChange(execute_at=later.content.execute_at - hour)
    store.timers.update(namespace, "later", change, firing_id=later.firing_id, now=now, if_revision=None)

    def earlier(timer: Timer) -> Timer:
        assert timer.schedule is not None
        assert timer.schedule.pending is not None
        at = timer.schedule.pending.scheduled_at - hour
        return standing_at(timer, replace(timer.schedule, pending=Occurrence(at, at)), now=now)

    store.schedules.change(namespace, "yearly", earlier, now=now)


def make_timers(
    account: Account, load_event: LoadEvent, timers: list[dict[str, Any]], *schedules: dict[str, Any]
) -> float:
    """How many seconds a start of a function and its requests have taken."""
    started_at = time.perf_counter()
    with account.running("TimersApi") as function:
        api = Api(function, load_event("timers_api"))
        assert api.call("PUT", "/v1/namespaces/default", {"numShards": 4})[0] == 201
        assert api.call("POST", "/v1/namespaces/default/timers/batch", {"timers": timers})[0] == 200
        for schedule in schedules:
            assert api.call("POST", "/v1/namespaces/default/schedules", schedule)[0] == 201
    return time.perf_counter() - started_at


def poll(
    function: LambdaFunction, load_event: LoadEvent, seconds: float, slowness: float, *, until: Callable[[], bool]
) -> Any:
    """What a poller answers that lives for ``seconds``, or longer on a machine that is slow; and, if that was not
    enough for ``until``, its successors that live ever longer."""
    deadline_seconds = max(seconds, 3 * slowness)
    while True:
        answer = function.invoke(load_event("poller_schedule"), deadline_seconds=deadline_seconds)
        if until() or deadline_seconds > PATIENCE_SECONDS:
            return answer
        deadline_seconds *= 2


def test_a_package_that_is_missing_from_the_layer_is_missed(
    account: Account, built: Path, load_event: LoadEvent, tmp_path: Path
) -> None:
    """The tests above would not pass with a layer that lacks something."""
    layer = tmp_path / "layer"
    (layer / "python").mkdir(parents=True)
    for entry in (built / "SharedLayer" / "python").iterdir():
        if entry.name != "uuid6":
            (layer / "python" / entry.name).symlink_to(entry)

    function = LambdaFunction(built / "TimersApi", layers=[layer], environment=account.environment("TimersApi"))
    with function, pytest.raises(FunctionError) as failure:
        function.invoke(load_event("timers_api"))

    assert failure.value.stage == "init"
    assert "No module named 'uuid6'" in failure.value.details["errorMessage"]


def test_a_handler_that_is_not_where_the_template_says_is_missed(
    account: Account, built: Path, tmp_path: Path
) -> None:
    shutil.copy(built / "Poller" / "handler.py", tmp_path / "main.py")

    function = LambdaFunction(tmp_path, layers=[built / "SharedLayer"], environment=account.environment("Poller"))
    with function, pytest.raises(FunctionError) as failure:
        function.invoke({})

    assert failure.value.stage == "init"
