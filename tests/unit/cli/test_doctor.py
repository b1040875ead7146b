"""``duetime doctor --aws``: what it says of a stack, whose AWS answers as botocore's models have it.

tests/aws/test_deployed.py runs it on a deployed stack.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from duetime.cli.main import run
from duetime.domain.errors import StoreUnavailable
from duetime.runtime import wiring
from duetime.runtime.deployed import stack as deployed
from duetime.stores.core.store import Store
from tests.support.aws_answers import Answer, AwsAnswers
from tests.support.clock import FakeClock
from tests.support.stores import memory_store

ALARMS = ("PollerSilent", "TimersFailed")
FUNCTIONS = ("TimersApi", "ServiceCallsApi", "Poller", "Outbox")
RESOURCES = {
    **dict.fromkeys(ALARMS, "AWS::CloudWatch::Alarm"),
    **dict.fromkeys(FUNCTIONS, "AWS::Lambda::Function"),
    **dict.fromkeys(("Timers", "ServiceCalls"), "AWS::DynamoDB::Table"),
    **dict.fromkeys(("PollerEveryMinute", "OutboxEveryMinute"), "AWS::Events::Rule"),
    **dict.fromkeys(("PollerDeadLetters", "OutboxDeadLetters"), "AWS::SQS::Queue"),
    "OutboxCallsStream": "AWS::Lambda::EventSourceMapping",
    "SecretsKeyAlias": "AWS::KMS::Alias",
}
PARAMETERS = {
    "Stage": "prod",
    "ScheduleState": "ENABLED",
    "Sleep": "auto",
    "AlarmTopicArn": "arn:aws:sns:us-east-1:1:alarms",
    "DeletionProtection": "true",
    "PointInTimeRecovery": "true",
    "EventBusName": "default",
    "ApiConcurrency": "20",
    "PollerConcurrency": "0",
    "DefaultNumShards": "4",
}
STREAM = "14e0db71-5d35-4eb5-b481-8945cf9d10c2"
POLLER = {"DUETIME_STORE": "dynamodb://timers", "DUETIME_DRAIN_SECONDS": "120"}


def stack(status: str = "UPDATE_COMPLETE", **parameters: str) -> Answer:
    given = [{"ParameterKey": name, "ParameterValue": value} for name, value in (PARAMETERS | parameters).items()]
    at = datetime(2026, 1, 1, tzinfo=UTC)
    return {"Stacks": [{"StackName": "s", "CreationTime": at, "StackStatus": status, "Parameters": given}]}


def alarms(on: str = "", removed: str = "", **more: Any) -> Answer:
    return {
        "MetricAlarms": [
            {
                "AlarmName": f"s-{name}",
                "StateValue": "ALARM" if name == on else "OK",
                "StateUpdatedTimestamp": datetime(2026, 1, 1, tzinfo=UTC),
                "AlarmDescription": f"what to do about {name}",
                "ActionsEnabled": True,
                **more,
            }
            for name in ALARMS
            if name != removed
        ]
    }


def metrics(**counts: float) -> Callable[[dict[str, Any]], Any]:
    """``Poller_Errors=3``: so many of this function's. Pollers tell of themselves unless ``Poller_ShardsOwned=0``."""
    found = {"Poller_ShardsOwned": 5.0} | counts

    def answer(params: dict[str, Any]) -> Any:
        results = []
        for query in params["MetricDataQueries"]:
            metric = query["MetricStat"]["Metric"]
            (of,) = (each["Value"] for each in metric["Dimensions"] if each["Name"] != "Stage")
            count = found.get(f"{of.removeprefix('s-')}_{metric['MetricName']}", 0.0)
            results.append({"Id": query["Id"], "Values": [count] if count else []})
        return {"MetricDataResults": results}

    return answer


def function(**more: Any) -> Answer:
    return {"State": "Active", "Timeout": 900, "Environment": {"Variables": POLLER}, **more}


def poller(**variables: str) -> Answer:
    return function(Environment={"Variables": POLLER | variables})


def table(*, protected: bool = True, status: str = "ACTIVE", gigabytes: int = 1) -> Answer:
    size, index = gigabytes * 2**30 - 2**20, {"IndexSizeBytes": 2**20}
    return {
        "Table": {
            "TableStatus": status,
            "DeletionProtectionEnabled": protected,
            "TableSizeBytes": size,
            "LocalSecondaryIndexes": [index],
        }
    }


def recovery(status: str) -> Answer:
    about = {"PointInTimeRecoveryDescription": {"PointInTimeRecoveryStatus": status}}
    return {"ContinuousBackupsDescription": {"ContinuousBackupsStatus": "ENABLED", **about}}


HEALTHY: dict[str, Answer] = {
    "cloudformation:DescribeStacks": stack(),
    "cloudformation:ListStackResources": {
        "StackResourceSummaries": [
            {
                "LogicalResourceId": name,
                "PhysicalResourceId": STREAM if name == "OutboxCallsStream" else f"s-{name}",
                "ResourceType": kind,
                "LastUpdatedTimestamp": datetime(2026, 1, 1, tzinfo=UTC),
                "ResourceStatus": "CREATE_COMPLETE",
            }
            for name, kind in RESOURCES.items()
        ]
    },
    "cloudformation:GetStackPolicy": {"StackPolicyBody": '{"Statement": [{"Action": ["Update:Replace"]}]}'},
    "cloudwatch:DescribeAlarms": alarms(),
    "cloudwatch:GetMetricData": metrics(),
    "lambda:GetFunctionConfiguration": function(),
    "lambda:GetFunctionConcurrency": {},
    "lambda:GetEventSourceMapping": {"State": "Enabled"},
    "lambda:GetAccountSettings": {"AccountLimit": {"ConcurrentExecutions": 1000}},
    "events:DescribeRule": {"State": "ENABLED"},
    "events:DescribeEventBus": {"Name": "default"},
    "sqs:GetQueueAttributes": {"Attributes": {"ApproximateNumberOfMessages": "0"}},
    "dynamodb:DescribeTable": table(),
    "dynamodb:DescribeContinuousBackups": recovery("ENABLED"),
    "dynamodb:DescribeTimeToLive": {"TimeToLiveDescription": {"TimeToLiveStatus": "ENABLED"}},
    "kms:DescribeKey": {"KeyMetadata": {"KeyId": "k", "KeyState": "Enabled"}},
}

Doctor = Callable[..., tuple[int, str]]


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Doctor]:
    """Run the command on a stack with other answers than those of ``HEALTHY``: its exit code, and what it prints."""
    with memory_store() as store:

        @contextmanager
        def opened(url: str) -> Iterator[Store]:
            assert url == "dynamodb://s-Timers?calls=s-ServiceCalls"
            yield store

        monkeypatch.setattr(wiring, "opened_store", opened)

        def examine(answers: dict[str, Answer] | None = None, *arguments: str) -> tuple[int, str]:
            monkeypatch.setattr(deployed, "aws_clients", lambda _: AwsAnswers(HEALTHY | (answers or {})).client)
            code = run(["doctor", "--aws", "s", *arguments])
            captured = capsys.readouterr()
            return code, captured.out + captured.err

        yield examine


def test_a_stack_with_which_nothing_is_wrong(doctor: Doctor) -> None:
    assert doctor() == (0, "nothing is wrong with s\n")
    code, out = doctor({}, "--json")
    assert (code, json.loads(out)) == (0, {"stack": "s", "findings": []})


def test_the_region_is_that_of_the_aws_cli(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_REGION", "eu-north-1")

    doctor()

    assert boto3.session.Session().region_name == "eu-north-1"


@pytest.mark.parametrize(
    ("operation", "answer", "what", "todo"),
    [
        ("cloudformation:DescribeStacks", stack("UPDATE_ROLLBACK_COMPLETE"), "ended as UPDATE_ROLLBACK", "events"),
        ("cloudformation:GetStackPolicy", {}, "may replace a table", "scripts/protect_tables.py s"),
        ("cloudwatch:DescribeAlarms", alarms("TimersFailed"), "TimersFailed is on", "what to do about TimersFailed"),
        ("cloudwatch:DescribeAlarms", alarms(removed="PollerSilent"), "PollerSilent was removed", "Deploy again"),
        ("cloudwatch:DescribeAlarms", alarms(ActionsEnabled=False), "TimersFailed tells nobody", "Enable"),
        ("cloudwatch:GetMetricData", metrics(Poller_ShardsOwned=0), "no poller has told of itself", "PollerSilent"),
        ("cloudwatch:GetMetricData", metrics(Outbox_Errors=3), "Outbox: 3 errors", "/aws/lambda/s-Outbox"),
        ("cloudwatch:GetMetricData", metrics(TimersApi_Throttles=2), "TimersApi: 2 throttles", "#concurrency"),
        (
            "cloudwatch:GetMetricData",
            metrics(Timers_ConsumedWriteCapacityUnits=48_000),
            "shards wrote 800 units a second on average",
            "duetime namespaces reshard",
        ),
        (
            "cloudwatch:GetMetricData",
            metrics(Timers_WriteKeyRangeThroughputThrottleEvents=7),
            "throttled 7 writes to single shards",
            "duetime namespaces reshard",
        ),
        ("lambda:GetFunctionConfiguration", function(State="Failed", StateReason="no layer"), "no layer", "Deploy"),
        ("lambda:GetFunctionConcurrency", {"ReservedConcurrentExecutions": 0}, "concurrency is 0", "Set it back"),
        ("lambda:GetEventSourceMapping", {"State": "Disabled"}, "stream is Disabled", f"--uuid {STREAM}"),
        ("events:DescribeRule", {"State": "DISABLED"}, "schedule of the poller is DISABLED", "s-PollerEveryMinute"),
        (
            "sqs:GetQueueAttributes",
            {"Attributes": {"ApproximateNumberOfMessages": "2"}},
            "2 dead letters of the poller",
            "s-PollerDeadLetters",
        ),
        ("dynamodb:DescribeTable", table(protected=False), "s-Timers can be deleted", "Deploy again"),
        ("dynamodb:DescribeTable", table(status="ARCHIVED"), "s-Timers is ARCHIVED", "restore"),
        ("dynamodb:DescribeContinuousBackups", recovery("DISABLED"), "s-ServiceCalls cannot be restored", "Deploy"),
        (
            "dynamodb:DescribeTable",
            table(gigabytes=8),
            "shards hold 8.0 GB on average",
            "duetime namespaces reshard",
        ),
        (
            "dynamodb:DescribeTimeToLive",
            {"TimeToLiveDescription": {"TimeToLiveStatus": "DISABLED"}},
            "keeps what has expired",
            "Deploy again",
        ),
        (
            "kms:DescribeKey",
            {"KeyMetadata": {"KeyId": "k", "KeyState": "PendingDeletion"}},
            "key of signing secrets is PendingDeletion",
            "cancel-key-deletion",
        ),
        ("cloudformation:DescribeStacks", stack(PollerConcurrency="2"), "too small for 1 pollers", "to 3 or more"),
        ("lambda:GetFunctionConfiguration", poller(DUETIME_LEASE_SECONDS="1"), "DUETIME_LEASE_SECONDS", "Correct"),
        ("lambda:GetFunctionConfiguration", function(Timeout=250), "DrainSeconds (120)", "PollerTimeoutSeconds"),
        ("lambda:GetFunctionConfiguration", poller(DUETIME_MAX_IN_FLIGHT="600"), "open files", "MaxInFlight"),
        ("lambda:GetFunctionConfiguration", poller(DUETIME_BREAKER_PAUSE_SECONDS="90"), "BreakerMaxPause", "Lower"),
    ],
)
def test_what_is_wrong_is_said_with_what_to_do(
    doctor: Doctor, operation: str, answer: Answer, what: str, todo: str
) -> None:
    code, out = doctor({operation: answer})

    assert code == 1
    finding = out.splitlines()
    (at,) = [number for number, line in enumerate(finding) if line.startswith("WRONG") and what in line][:1]
    assert todo in finding[at + 1]


@pytest.mark.parametrize(
    ("operation", "answer", "what"),
    [
        ("cloudformation:DescribeStacks", stack(AlarmTopicArn=""), "alarms tell nobody"),
        ("cloudformation:DescribeStacks", stack(ScheduleState="DISABLED"), "no pollers are started"),
        ("cloudformation:DescribeStacks", stack(ApiConcurrency="0"), "a flood of requests"),
        ("lambda:GetAccountSettings", {"AccountLimit": {"ConcurrentExecutions": 10}}, "a quota of 10"),
        ("lambda:GetFunctionConfiguration", poller(DUETIME_LEESE="1"), "DUETIME_LEESE, which nothing reads"),
        ("lambda:GetFunctionConfiguration", poller(DUETIME_POLL_INTERVAL_SECONDS="2"), "late by PollInterval"),
    ],
)
def test_advice_is_no_failure(doctor: Doctor, operation: str, answer: Answer, what: str) -> None:
    code, out = doctor({operation: answer})

    assert code == 0
    assert out.startswith("ADVICE: ")
    assert what in out


def test_what_many_shards_write_together_is_what_each_of_them_may(doctor: Doctor) -> None:
    busy = {"cloudwatch:GetMetricData": metrics(Timers_ConsumedWriteCapacityUnits=2 * 48_000 - 1)}
    with wiring.opened_store("dynamodb://s-Timers?calls=s-ServiceCalls") as store:
        store.catalogue.create_namespace("default", num_shards=2, dedicated=False, now=FakeClock().now())
    assert doctor(busy) == (0, "nothing is wrong with s\n")


def test_shards_without_a_poller_are_wrong_unless_the_pollers_sleep(doctor: Doctor) -> None:
    with wiring.opened_store("dynamodb://s-Timers?calls=s-ServiceCalls") as store:
        now = FakeClock().now()
        store.catalogue.create_namespace("default", num_shards=4, dedicated=False, now=now)
        assert doctor()[0] == 0
        never = {"cloudformation:DescribeStacks": stack(Sleep="never")}
        code, out = doctor(never)
        assert code == 1
        assert "4 of 4 shards have no poller" in out
        assert store.leases.advance_sleep_epoch(0)  # awake
        assert "4 of 4 shards have no poller" in doctor()[1]


def test_what_may_not_be_read_is_said_and_the_rest_is_examined(doctor: Doctor) -> None:
    refused = ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"}}, "DescribeKey")
    code, out = doctor({"kms:DescribeKey": refused, "events:DescribeRule": {"State": "DISABLED"}})

    assert code == 1
    assert "WRONG: kms:describe_key was refused (AccessDenied: not you)" in out
    assert "schedule of the poller is DISABLED" in out


def test_a_store_that_does_not_answer_is_said(doctor: Doctor, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(url: str) -> Store:
        raise StoreUnavailable(f"no answer: {url.partition(':')[0]}")

    monkeypatch.setattr(wiring, "opened_store", opened)
    code, out = doctor()

    assert code == 1
    assert "the tables cannot be read (no answer: dynamodb)" in out


def test_a_stack_that_there_is_not_is_one_line(doctor: Doctor) -> None:
    absent = ClientError({"Error": {"Code": "ValidationError", "Message": "does not exist"}}, "DescribeStacks")

    code, out = doctor({"cloudformation:DescribeStacks": absent})
    assert code == 1
    assert out == ("duetime: error: cloudformation:describe_stacks was refused (ValidationError: does not exist)\n")
