"""What can be wrong with a deployed stack. A check yields what it finds; what it cannot read is a finding, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import ceil
from typing import Final

from duetime.domain.errors import InvalidSettings
from duetime.engine.poller import FINAL_WRITES_SECONDS
from duetime.runtime.deployed.stack import ALARM, FUNCTION, Stack
from duetime.runtime.process_limits import OTHER_FILES
from duetime.runtime.settings import PollerSettings, load_settings, unknown_variables
from duetime.runtime.waking import is_awake

METRICS_MINUTES: Final = 60
"""For which errors and throttles are counted."""
SILENT_MINUTES: Final = 5
"""Pollers tell of themselves every minute; CloudWatch shows it with a delay."""
OPEN_FILES: Final = 1024
"""That a function may have."""
GB: Final = 1024**3
FULL_SHARD_GB: Final = 8
BUSY_SHARD_UNITS: Final = 800
"""Written in a second; DynamoDB takes 1,000."""
SMALL_QUOTA: Final = 100
"""Of concurrent executions; AWS lets nobody reserve the last 100."""
_PARTS: Final = ("Poller", "Outbox")


class Level(StrEnum):
    WRONG = "wrong"
    ADVICE = "advice"


@dataclass(frozen=True, slots=True)
class Finding:
    """``todo`` is the line of a runbook."""

    level: Level
    what: str
    todo: str


Check = Callable[[Stack, datetime], Iterator[Finding]]
Metric = tuple[str, str, dict[str, str]]
"""Namespace, name and dimensions."""


def _wrong(what: str, todo: str) -> Finding:
    return Finding(Level.WRONG, what, todo)


def _advice(what: str, todo: str) -> Finding:
    return Finding(Level.ADVICE, what, todo)


def check_stack(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001 (the signature of a check)
    """Check the stack's last deployment, and what keeps the next one from replacing tables."""
    status = stack.description["StackStatus"]
    if not status.endswith("_COMPLETE") or "ROLLBACK" in status:
        yield _wrong(f"the last deployment ended as {status}", "See the stack's events, and deploy again")
    policy = stack.ask("cloudformation", "get_stack_policy", StackName=stack.name).get("StackPolicyBody", "")
    if "Update:Replace" not in policy:
        yield _wrong(
            "an update may replace a table by an empty one", f"Run `scripts/protect_tables.py {stack.name}` once"
        )


def check_alarms(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Tell each alarm that is on, with what its description says is to be done."""
    ids = {name: logical_id for logical_id, name in stack.of_type(ALARM).items()}
    alarms = stack.ask("cloudwatch", "describe_alarms", AlarmNames=sorted(ids))["MetricAlarms"]
    for alarm in alarms:
        if alarm["StateValue"] == "ALARM":
            since = alarm["StateUpdatedTimestamp"].isoformat(timespec="seconds")
            yield _wrong(f"{ids[alarm['AlarmName']]} is on since {since}", alarm.get("AlarmDescription", ""))
        if not alarm["ActionsEnabled"] and stack.parameters.get("ScheduleState") == "ENABLED":
            yield _wrong(f"{ids[alarm['AlarmName']]} tells nobody: its actions were disabled", "Enable them again")
    for name in sorted(ids.keys() - {alarm["AlarmName"] for alarm in alarms}):
        yield _wrong(f"{ids[name]} was removed", "Deploy again")
    if not stack.parameters.get("AlarmTopicArn"):
        yield _advice("alarms tell nobody", "Set AlarmTopicArn to an SNS topic that somebody reads")


def check_functions(stack: Stack, now: datetime) -> Iterator[Finding]:
    """Check the functions' state, and their errors and throttles."""
    names = stack.of_type(FUNCTION)
    for logical_id, name in names.items():
        found = stack.ask("lambda", "get_function_configuration", FunctionName=name)
        if found.get("State") == "Failed" or found.get("LastUpdateStatus") == "Failed":
            reason = found.get("StateReason") or found.get("LastUpdateStatusReason") or "no reason given"
            yield _wrong(f"the function {logical_id} cannot run: {reason}", "Deploy again")
    sums = _sums(
        stack,
        now - timedelta(minutes=METRICS_MINUTES),
        now,
        [("AWS/Lambda", metric, {"FunctionName": name}) for name in names.values() for metric in _LAMBDA_METRICS],
    )
    counts = iter(sums)
    for logical_id, name in names.items():
        for metric, todo in _LAMBDA_METRICS.items():
            if count := next(counts):
                what = f"{logical_id}: {count:.0f} {metric.lower()} in the last {METRICS_MINUTES} minutes"
                yield _wrong(what, todo.format(function=name))


_LAMBDA_METRICS: Final = {
    "Errors": "Search /aws/lambda/{function} for ERROR and for `Task timed out`",
    "Throttles": "Raise the account's quota of concurrent executions, or the function's ceiling"
    " (docs/deploy-aws.md#concurrency)",
}


def _sums(stack: Stack, start: datetime, end: datetime, metrics: list[Metric]) -> list[float]:
    return [sum(minutes) for minutes in _by_minute(stack, start, end, metrics)]


def _by_minute(stack: Stack, start: datetime, end: datetime, metrics: list[Metric]) -> list[list[float]]:
    """Return the sums of each minute that has any, of each of ``metrics``, in this order."""
    queries = [
        {
            "Id": f"m{at}",
            "MetricStat": {
                "Metric": {
                    "Namespace": namespace,
                    "MetricName": name,
                    "Dimensions": [{"Name": each, "Value": value} for each, value in dimensions.items()],
                },
                "Period": 60,
                "Stat": "SampleCount" if name == "ShardsOwned" else "Sum",
            },
        }
        for at, (namespace, name, dimensions) in enumerate(metrics)
    ]
    results = stack.ask("cloudwatch", "get_metric_data", MetricDataQueries=queries, StartTime=start, EndTime=end)
    values = {each["Id"]: each["Values"] for each in results["MetricDataResults"]}
    return [values.get(f"m{at}", []) for at in range(len(metrics))]


def check_pollers(stack: Stack, now: datetime) -> Iterator[Finding]:
    """Check that pollers are started, and that they report."""
    if stack.parameters.get("ScheduleState") == "DISABLED":
        yield _advice(
            "ScheduleState is DISABLED: no pollers are started", "Run a worker (docs/cost.md), or enable it"
        )
        return
    dimensions = {"Stage": stack.parameters["Stage"], "Function": stack.resource("Poller")}
    (told,) = _sums(stack, now - timedelta(minutes=SILENT_MINUTES), now, [("Duetime", "ShardsOwned", dimensions)])
    if not told:
        yield _wrong(
            f"no poller has told of itself for {SILENT_MINUTES} minutes: nothing fires",
            "docs/deploy-aws.md#alarms says what to do when PollerSilent is on",
        )
    reserved = stack.ask("lambda", "get_function_concurrency", FunctionName=stack.resource("Poller"))
    if reserved.get("ReservedConcurrentExecutions") == 0:
        yield _wrong("the poller's reserved concurrency is 0: none can start", "Set it back, or deploy again")


def check_shards(stack: Stack, now: datetime) -> Iterator[Finding]:
    """Check that each shard has a poller, here or elsewhere, by the leases in the table, and room for more timers."""
    with stack.open_store() as store:
        shard_ids = sorted(store.catalogue.shard_map().shard_ids())
        may_sleep = stack.parameters["Sleep"] == "auto" and stack.parameters["ScheduleState"] == "ENABLED"
        is_asleep = may_sleep and not is_awake(store.leases.sleep_epoch())
        statuses = store.leases.statuses(shard_ids, now=now) if shard_ids and not is_asleep else []
    if unowned := [each.shard_id for each in statuses if each.is_free]:
        yield _wrong(
            f"{len(unowned)} of {len(shard_ids)} shards have no poller, shard {unowned[0]} first",
            "Look again in a minute. Then search the poller's log for lease.retried and fan_out.failed",
        )
    yield from _rooms(stack, now, max(1, len(shard_ids)))


def _rooms(stack: Stack, now: datetime, shards: int) -> Iterator[Finding]:
    """Yield what has outgrown the partition that a shard is (docs/stores/dynamodb.md#capacity)."""
    name = stack.resource("Timers")
    table = stack.ask("dynamodb", "describe_table", TableName=name)["Table"]
    indexes = table.get("LocalSecondaryIndexes", ())
    stored = table.get("TableSizeBytes", 0) + sum(index.get("IndexSizeBytes", 0) for index in indexes)
    each_gb = stored / shards / GB
    if each_gb >= FULL_SHARD_GB:
        yield _wrong(
            f"shards hold {each_gb:.1f} GB on average, and DynamoDB refuses writes to one of 10",
            "Shorten FiredRetentionSeconds and FailedRetentionSeconds, or give the namespaces more shards"
            " (duetime namespaces reshard)",
        )
    since = now - timedelta(minutes=METRICS_MINUTES)
    units, refused = _by_minute(
        stack,
        since,
        now,
        [
            ("AWS/DynamoDB", metric, {"TableName": name})
            for metric in ("ConsumedWriteCapacityUnits", "WriteKeyRangeThroughputThrottleEvents")
        ],
    )
    each_units = max(units, default=0.0) / 60 / shards
    todo = "Spread what is created over time, or give the namespaces more shards (duetime namespaces reshard)"
    if each_units >= BUSY_SHARD_UNITS:
        yield _wrong(
            f"shards wrote {each_units:.0f} units a second on average in the busiest of the last {METRICS_MINUTES}"
            " minutes, and DynamoDB throttles one at 1,000",
            todo,
        )
    if refused:
        yield _wrong(
            f"DynamoDB throttled {sum(refused):.0f} writes to single shards in the last {METRICS_MINUTES} minutes",
            todo,
        )


def check_sources(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Check the rules of the minute, and the stream of the outbox."""
    for part in _PARTS:
        rule = stack.resource(f"{part}EveryMinute")
        state = stack.ask("events", "describe_rule", Name=rule)["State"]
        if state != "ENABLED" and not (part == "Poller" and stack.parameters.get("ScheduleState") == "DISABLED"):
            yield _wrong(f"the schedule of the {part.lower()} is {state}", f"aws events enable-rule --name {rule}")
    uuid = stack.resource("OutboxCallsStream")
    mapping = stack.ask("lambda", "get_event_source_mapping", UUID=uuid)
    if mapping["State"] not in ("Enabled", "Enabling", "Creating", "Updating"):
        yield _wrong(
            f"the outbox's stream is {mapping['State']}: events of service calls are late",
            f"aws lambda update-event-source-mapping --uuid {uuid} --enabled",
        )
    bus = stack.parameters.get("EventBusName", "default")
    stack.ask("events", "describe_event_bus", Name=bus)  # refused where it does not exist


def check_queues(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Find dead letters: somebody is to look at them."""
    for part in _PARTS:
        url = stack.resource(f"{part}DeadLetters")
        found = stack.ask("sqs", "get_queue_attributes", QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        if depth := int(found["Attributes"]["ApproximateNumberOfMessages"]):
            yield _wrong(
                f"{depth} dead letters of the {part.lower()}",
                f"Read what failed: aws sqs receive-message --queue-url {url} --attribute-names All"
                " --message-attribute-names All. Delete them when you have dealt with them",
            )


def check_tables(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Find tables whose settings were changed since the stack was deployed, and a bad key of the secrets."""
    for logical_id in ("Timers", "ServiceCalls"):
        name = stack.resource(logical_id)
        table = stack.ask("dynamodb", "describe_table", TableName=name)["Table"]
        if table["TableStatus"] not in ("ACTIVE", "UPDATING"):
            yield _wrong(f"the table {name} is {table['TableStatus']}", "Wait, or restore it")
        again = "Deploy again, or set it back by hand"
        if stack.parameters["DeletionProtection"] == "true" and not table.get("DeletionProtectionEnabled"):
            yield _wrong(f"the table {name} can be deleted: its protection was switched off", again)
        backups = stack.ask("dynamodb", "describe_continuous_backups", TableName=name)["ContinuousBackupsDescription"]
        recovery = backups.get("PointInTimeRecoveryDescription", {}).get("PointInTimeRecoveryStatus")
        if stack.parameters["PointInTimeRecovery"] == "true" and recovery != "ENABLED":
            yield _wrong(f"the table {name} cannot be restored: point-in-time recovery was switched off", again)
        ttl = stack.ask("dynamodb", "describe_time_to_live", TableName=name)["TimeToLiveDescription"]
        if ttl["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
            yield _wrong(f"the table {name} keeps what has expired: TTL was switched off", again)
    key = stack.ask("kms", "describe_key", KeyId=stack.resource("SecretsKeyAlias"))["KeyMetadata"]
    if key["KeyState"] != "Enabled":
        yield _wrong(
            f"the key of signing secrets is {key['KeyState']}: timers of signed namespaces wait",
            f"aws kms cancel-key-deletion or enable-key, --key-id {key['KeyId']}",
        )


def check_concurrency(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Check that pollers can always start."""
    quota = stack.ask("lambda", "get_account_settings")["AccountLimit"]
    if quota["ConcurrentExecutions"] <= SMALL_QUOTA:
        yield _advice(
            f"the account has a quota of {quota['ConcurrentExecutions']} concurrent executions",
            "Have it raised before production (docs/deploy-aws.md#concurrency)",
        )
    elif stack.parameters["ApiConcurrency"] == "0" and stack.parameters["PollerConcurrency"] == "0":
        yield _advice(
            "a flood of requests can take the concurrency that pollers need",
            "Set ApiConcurrency, or PollerConcurrency (docs/deploy-aws.md#concurrency)",
        )


def check_settings(stack: Stack, now: datetime) -> Iterator[Finding]:  # noqa: ARG001
    """Find parameters that the poller does not take, and those that contradict each other."""
    found = stack.ask("lambda", "get_function_configuration", FunctionName=stack.resource("Poller"))
    environ = found["Environment"]["Variables"]
    try:
        settings = load_settings(PollerSettings, environ=environ)
    except InvalidSettings as error:
        yield _wrong(f"the poller cannot start: {error.message}", "Correct the parameter, and deploy again")
        return
    for name in unknown_variables(environ):
        yield _advice(f"the poller has {name}, which nothing reads", "Remove it")
    yield from contradictions(settings, timeout_seconds=found["Timeout"], parameters=stack.parameters)


def contradictions(
    settings: PollerSettings, *, timeout_seconds: int, parameters: dict[str, str]
) -> Iterator[Finding]:
    """Yield what does not fit together in ``settings`` and the stack's other ``parameters``."""
    half = (timeout_seconds - settings.deadline_margin_seconds) / 2
    if settings.drain_seconds + FINAL_WRITES_SECONDS > half:
        yield _wrong(
            f"DrainSeconds ({settings.drain_seconds:g}) is more than half of a poller's life ({timeout_seconds} s):"
            " it waits for less, and long callbacks may be sent again",
            "Lower DrainSeconds, or raise PollerTimeoutSeconds",
        )
    connections = settings.engine_settings().max_connections
    if connections + OTHER_FILES > OPEN_FILES:
        yield _wrong(
            f"{connections} callbacks in flight do not fit into the {OPEN_FILES} open files that Lambda allows",
            "Lower MaxInFlight or MaxSlowInFlight",
        )
    if settings.breaker_pause_seconds > settings.breaker_max_pause_seconds:
        yield _wrong("BreakerPauseSeconds is longer than BreakerMaxPauseSeconds", "Lower the one, or raise the other")
    if settings.poll_interval_seconds > 1:
        yield _advice(
            f"new timers may be late by PollIntervalSeconds ({settings.poll_interval_seconds:g})",
            "Lower it",
        )
    reserved = int(parameters["PollerConcurrency"])
    pollers = ceil(int(parameters["DefaultNumShards"]) / settings.shards_per_poller)
    if 0 < reserved < 2 * pollers + 1:
        yield _wrong(
            f"PollerConcurrency ({reserved}) is too small for {pollers} pollers, which overlap when they hand over",
            f"Raise it to {2 * pollers + 1} or more, or set it to 0",
        )


CHECKS: Final[tuple[Check, ...]] = (
    check_stack,
    check_pollers,
    check_shards,
    check_alarms,
    check_functions,
    check_sources,
    check_queues,
    check_tables,
    check_concurrency,
    check_settings,
)
