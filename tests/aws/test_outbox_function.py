"""The built outbox function publishes what a real stream and the schedule tell of, with just its permissions."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from duetime.domain.call_events import CallEventType
from duetime.domain.event_webhooks import EventWebhook
from duetime.domain.namespaces import NamespaceSettings
from duetime.domain.service_calls import ServiceCall
from duetime.domain.times import format_instant
from duetime.runtime.clock import SystemClock
from duetime.stores.backends.dynamodb.derived import expiring
from duetime.stores.backends.dynamodb.layouts import call_item_key, event_sort_key
from duetime.stores.backends.dynamodb.stream import read_record
from duetime.stores.backends.dynamodb.url import default_calls_table_name
from duetime.stores.core.store import Store
from duetime.stores.port.calls import CallRef
from duetime.stores.port.timers import TimerFilter, TimerRef
from duetime.testing.contract import call_builders as make_calls
from scripts.aws_local import emulator_client
from tests.aws.application import PATIENCE_SECONDS, Account, LoadEvent, Template, apply, received
from tests.aws.permissions import permissions_of
from tests.support.dynamodb_proxy import Body

pytestmark = pytest.mark.timeout(2 * PATIENCE_SECONDS, func_only=True)  # a build is nobody's


class Subscriber:
    """A queue on the emulator that gets the events of service calls from the default bus."""

    def __init__(self, ministack_url: str) -> None:
        events, self._sqs = emulator_client(ministack_url, "events"), emulator_client(ministack_url, "sqs")
        self._queue_url = self._sqs.create_queue(QueueName=f"events-{uuid4().hex}")["QueueUrl"]
        about = self._sqs.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=["QueueArn"])
        events.put_rule(Name="service-calls", EventPattern='{"source": ["duetime.calls"]}')
        events.put_targets(Rule="service-calls", Targets=[{"Id": "queue", "Arn": about["Attributes"]["QueueArn"]}])

    def received(self, count: int) -> list[dict[str, Any]]:
        """What arrived, once it is ``count``."""
        return received(self._sqs, self._queue_url, lambda found: len(found) >= count)


def live(store: Store, *, ago: timedelta = timedelta(0), **fields: Any) -> ServiceCall:
    """A call from its submission to its end: seven events in three items."""
    now = SystemClock().now() - ago
    running = make_calls.begun(apply(store, make_calls.submitted(now=now, **fields)), now=now)
    apply(store, running)
    return apply(store, make_calls.concluded(running.after, running.executions[0], now=now))


def records_of(ministack_url: str, table: str) -> list[dict[str, Any]]:
    """All that the stream of the table of service calls holds, as Lambda would hand it over."""
    streams = emulator_client(ministack_url, "dynamodbstreams")
    (stream,) = streams.list_streams(TableName=default_calls_table_name(table))["Streams"]
    records: list[dict[str, Any]] = []
    for shard in streams.describe_stream(StreamArn=stream["StreamArn"])["StreamDescription"]["Shards"]:
        iterator = streams.get_shard_iterator(
            StreamArn=stream["StreamArn"], ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
        )["ShardIterator"]
        records += streams.get_records(ShardIterator=iterator, Limit=1000)["Records"]
    return list(json.loads(json.dumps(records, default=str)))


def test_the_outbox_publishes_what_the_stream_tells_of(
    account: Account, ministack_url: str, calls_store: Store, timers_table: str
) -> None:
    subscriber = Subscriber(ministack_url)
    calls = [live(calls_store), live(calls_store)]
    records = records_of(ministack_url, timers_table)
    with account.running("Outbox", AWS_ENDPOINT_URL_EVENTBRIDGE=ministack_url) as function:
        answers = [function.invoke({"Records": list(reversed(records))}) for _ in range(2)]

    assert answers == [{"batchItemFailures": []}] * 2
    events = subscriber.received(14)
    for call in calls:
        of_call = [event["detail"] for event in events if event["detail"]["aggregateId"] == call.call_id]
        assert [event["sequence"] for event in of_call] == list(range(1, 8))
        assert of_call[-1]["type"] == "ServiceCallSucceeded"
    assert {event["source"] for event in events} == {"duetime.calls"}
    assert calls_store.outbox.unpublished(limit=10) == []
    reports = [json.loads(line) for line in function.log if '"outbox.metrics"' in line]
    assert [report["EventsPublished"] for report in reports] == [14]


def test_the_outbox_reports_what_it_could_not_publish_and_the_schedule_makes_up_for_it(
    account: Account, ministack_url: str, load_event: LoadEvent, calls_store: Store, timers_table: str
) -> None:
    subscriber = Subscriber(ministack_url)
    live(calls_store)
    records = [each for each in records_of(ministack_url, timers_table) if read_record(each)]
    with account.running("Outbox", AWS_ENDPOINT_URL_EVENTBRIDGE="http://127.0.0.1:9") as function:
        answer = function.invoke({"Records": records})
    assert [each["itemIdentifier"] for each in answer["batchItemFailures"]] == [
        each["dynamodb"]["SequenceNumber"] for each in records
    ]
    assert len(calls_store.outbox.unpublished(limit=10)) == 7

    at_once = {"DUETIME_SWEEP_AFTER_SECONDS": "0.001"}
    with account.running("Outbox", AWS_ENDPOINT_URL_EVENTBRIDGE=ministack_url, **at_once) as function:
        summary = function.invoke(load_event("outbox_schedule"))
    assert (summary["published"], summary["failedCalls"]) == (7, 0)
    assert [event["detail"]["sequence"] for event in subscriber.received(7)] == list(range(1, 8))
    assert calls_store.outbox.unpublished(limit=10) == []


def test_the_outbox_puts_the_timers_that_deliver_to_a_webhook(
    account: Account, ministack_url: str, calls_store: Store, timers_table: str
) -> None:
    now = SystemClock().now()
    namespace, _ = calls_store.catalogue.create_namespace(
        "events@acme", num_shards=2, dedicated=False, now=now, tenant_id="acme"
    )
    webhook = NamespaceSettings(webhook=EventWebhook(url="https://hooks.test/"))
    assert calls_store.catalogue.update_namespace(replace(namespace, settings=webhook), if_revision=1, now=now)
    call = live(calls_store)
    records = records_of(ministack_url, timers_table)
    with account.running("Outbox", DUETIME_EVENT_PUBLISHERS="webhook") as function:
        function.invoke({"Records": records})

    timers = calls_store.timers.list(namespace, TimerFilter(), cursor=None, limit=10, now=now).items
    assert sorted(timer.timer_id for timer in timers) == [f"{call.call_id}.{number}" for number in range(1, 8)]


def test_the_outbox_uses_just_the_permissions_that_it_has(
    account: Account,
    template: Template,
    load_event: LoadEvent,
    ministack_url: str,
    calls_store: Store,
    timers_table: str,
) -> None:
    now = SystemClock().now()
    namespace, _ = calls_store.catalogue.create_namespace(
        "events@acme", num_shards=2, dedicated=False, now=now, tenant_id="acme"
    )
    webhook = NamespaceSettings(webhook=EventWebhook(url="https://hooks.test/"))
    assert calls_store.catalogue.update_namespace(replace(namespace, settings=webhook), if_revision=1, now=now)
    call = live(calls_store, tags=("a", "b"), idempotency_key="k")
    other = live(calls_store)

    def end_predecessor(operation: str, body: Body) -> None:
        """The first delivery ends just as the second one is stored, which has to be noticed."""
        if operation == "BatchExecuteStatement" and f"{other.call_id}.2" in json.dumps(body):
            calls_store.timers.delete(namespace, [TimerRef(f"{other.call_id}.1")], now=now)

    account.before = end_predecessor
    records = records_of(ministack_url, timers_table)
    # What has expired is removed by the schedule, with an event; and what a removal that was cut short has left.
    cut_short = live(calls_store)
    index = {"outbox_partition": {"N": str(expiring(0))}, "outbox_key": {"S": format_instant(now)}}
    left = call_item_key("acme", f"LEFT#{cut_short.call_id}") | {"row_type": {"S": "LEFT"}} | index
    client, table = emulator_client(ministack_url, "dynamodb"), default_calls_table_name(timers_table)
    client.put_item(TableName=table, Item=left)
    client.delete_item(TableName=table, Key=call_item_key("acme", f"CALL#{cut_short.call_id}"))
    gone = CallRef("acme", live(calls_store, ago=2 * make_calls.RETENTION).call_id)
    calls_store.outbox.mark_published(calls_store.outbox.unpublished_of(gone, limit=10), now=now)
    # What is published in part is marked event by event.
    first = calls_store.outbox.unpublished_of(CallRef("acme", call.call_id), limit=1)
    with account.running(
        "Outbox", AWS_ENDPOINT_URL_EVENTBRIDGE=ministack_url, DUETIME_SWEEP_AFTER_SECONDS="0.001"
    ) as function:
        calls_store.outbox.mark_published(first, now=now)
        answers = [function.invoke({"Records": records}), function.invoke(load_event("outbox_schedule"))]
        # Events that were published, and not marked: their deliveries are there. Of two calls, and of one alone.
        for unmarked in ((call, other), (call,)):
            for each in unmarked:
                client.update_item(
                    TableName=table,
                    Key=call_item_key("acme", event_sort_key(each.call_id, 5)),
                    UpdateExpression="SET outbox_partition = :one, outbox_key = :key REMOVE published_at, expires_at",
                    ExpressionAttributeValues={":one": {"N": "1"}, ":key": {"S": "acme"}},
                )
            answers.append(function.invoke({"Records": records}))

    assert answers[0] == answers[2] == answers[3] == {"batchItemFailures": []}
    assert calls_store.calls.list_executions("acme", cut_short.call_id, cursor=None, limit=10).items == []
    (told,) = calls_store.outbox.unpublished_of(gone, limit=10)
    assert told.event.type is CallEventType.DELETED
    assert account.used == permissions_of(template.of_type("AWS::IAM::Role")["OutboxRole"])
