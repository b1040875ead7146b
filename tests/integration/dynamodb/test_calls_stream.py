"""What the stream of the table says, as the emulator writes it."""

from __future__ import annotations

from typing import Any

import boto3
import pytest

from duetime.stores.backends.dynamodb.stream import EventsWritten, read_record
from duetime.stores.backends.dynamodb.url import default_calls_table_name
from duetime.stores.core.store import Store
from duetime.testing.contract import call_builders as make
from duetime.testing.contract import call_steps as steps
from tests.support.clock import NOW


@pytest.fixture
def records(ministack_client: Any, ministack_url: str, timers_table: str) -> Any:
    """All records of the stream so far, in order."""
    streams = boto3.client(
        "dynamodbstreams",
        endpoint_url=ministack_url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
    )
    table = ministack_client.describe_table(TableName=default_calls_table_name(timers_table))["Table"]
    arn = table["LatestStreamArn"]

    def read() -> list[dict[str, Any]]:
        found = []
        for shard in streams.describe_stream(StreamArn=arn)["StreamDescription"]["Shards"]:
            iterator = streams.get_shard_iterator(
                StreamArn=arn, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON"
            )["ShardIterator"]
            found += streams.get_records(ShardIterator=iterator)["Records"]
        return found

    yield read
    streams.close()


def test_a_life_tells_of_its_events_and_of_nothing_else(store: Store, records: Any) -> None:
    call = steps.run(store.calls, steps.submit(store.calls, tags=("a",), idempotency_key="k"))
    store.outbox.mark_published(store.outbox.unpublished(limit=100), now=NOW)
    store.calls.delete(make.TENANT, call.call_id, now=NOW)

    told = [read_record(record) for record in records()]

    assert len(told) > 10
    assert [each for each in told if each] == [EventsWritten(steps.ref(call))] * 3


@pytest.mark.parametrize("record", [{}, {"eventName": "MODIFY"}, {"eventName": "INSERT", "dynamodb": {"Keys": {}}}])
def test_other_records_mean_nothing(record: dict[str, Any]) -> None:
    assert read_record(record) is None


def test_an_image_without_its_keys_is_an_error() -> None:
    image = {"row_type": {"S": "EVENT"}, "tenant_id": {"S": "t"}}

    with pytest.raises(ValueError, match="sort_key"):
        read_record({"eventName": "INSERT", "dynamodb": {"NewImage": image}})
