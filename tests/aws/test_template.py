"""template.yaml says what the code needs: the same tables, the same routes, the same settings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from duetime.api.http.batches import MAX_BATCH_ITEMS
from duetime.api.http.parsing import MAX_BATCH_BYTES
from duetime.api.routes import all_routes, call_routes
from duetime.cli.app import app
from duetime.cli.cost import counts
from duetime.delivery.egress import PUBLIC_ONLY
from duetime.runtime import process_limits
from duetime.runtime.poller_life import TICK_SECONDS, Life
from duetime.runtime.settings import PollerSettings, WakingSettings, load_settings, variable
from duetime.runtime.tuning import EgressSettings, KeySettings
from duetime.runtime.waking import TRUST_SECONDS
from duetime.stores.backends.dynamodb.derived import TIME_TO_LIVE
from duetime.stores.backends.dynamodb.event_items import packed
from duetime.stores.backends.dynamodb.schema import Define, calls_table_definition, table_definition
from duetime.stores.backends.dynamodb.stream import read_record
from duetime.stores.core.call_codec import encode_call
from duetime.stores.core.event_codec import encode_event
from duetime.stores.entities import SERVICE_CALL
from duetime.testing.contract import call_builders as transitions
from scripts.aws_local import ROOT
from scripts.write_parameters import (
    BY_HAND,
    FUNCTIONS,
    MARKS,
    NO_PARAMETERS,
    parameter,
    render,
    written,
)
from tests.aws.application import Template
from tests.support.dynamodb import item_of

TABLES: dict[str, Define] = {"Timers": table_definition, "ServiceCalls": calls_table_definition}
SECRETS_KEY = {"Fn::If": ["MakesSecretsKey", {"Fn::GetAtt": ["SecretsKey", "Arn"]}, {"Ref": "SecretsKeyArn"}]}
NO_VALUE = {"Ref": "AWS::NoValue"}
CALLS_STREAM = {"Fn::GetAtt": ["ServiceCalls", "StreamArn"]}


def _by_name(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(rows, key=lambda row: str(row.get("AttributeName") or row.get("IndexName")))


def _on_demand(value: Any) -> Any:
    """What ``value`` is in a stack whose tables are on demand."""
    if isinstance(value, list):
        return [_on_demand(each) for each in value]
    if not isinstance(value, dict):
        return value
    if value.get("Fn::If", [None])[0] == "IsProvisioned":
        return value["Fn::If"][2]
    return {name: given for name, each in value.items() if (given := _on_demand(each)) != NO_VALUE}


def test_there_are_no_other_tables(template: Template) -> None:
    assert template.of_type("AWS::DynamoDB::Table").keys() == TABLES.keys()


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_the_one_that_the_store_creates(template: Template, name: str) -> None:
    table = _on_demand(template.of_type("AWS::DynamoDB::Table")[name])
    wanted = TABLES[name]("any")

    assert table["BillingMode"] == wanted["BillingMode"]
    assert table["KeySchema"] == wanted["KeySchema"]
    for rows in ("AttributeDefinitions", "LocalSecondaryIndexes", "GlobalSecondaryIndexes"):
        assert _by_name(table.get(rows, [])) == _by_name(wanted.get(rows, []))
    stream = wanted.get("StreamSpecification")
    assert table.get("StreamSpecification") == (stream and {"StreamViewType": stream["StreamViewType"]})
    assert table["TimeToLiveSpecification"] == {"AttributeName": TIME_TO_LIVE, "Enabled": True}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_kept_recoverable_and_encrypted(template: Template, name: str) -> None:
    resource = template.translated["Resources"][name]

    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    recovery = {"PointInTimeRecoveryEnabled": {"Ref": "PointInTimeRecovery"}}
    assert resource["Properties"]["PointInTimeRecoverySpecification"] == recovery
    assert resource["Properties"]["DeletionProtectionEnabled"] == {"Ref": "DeletionProtection"}
    for name in ("DeletionProtection", "PointInTimeRecovery"):
        assert template.source["Parameters"][name]["Default"] == "true"
    assert resource["Properties"]["SSESpecification"] == {"SSEEnabled": True}


@pytest.mark.parametrize("name", TABLES)
def test_what_a_table_may_use_can_be_limited(template: Template, name: str) -> None:
    table = template.of_type("AWS::DynamoDB::Table")[name]
    limits = {
        f"Max{kind}RequestUnits": {
            "Fn::If": [f"HasMax{kind}Units", {"Ref": f"Max{kind}Units"}, {"Ref": "AWS::NoValue"}]
        }
        for kind in ("Read", "Write")
    }

    condition = "HasOnDemandCeilings" if name == "Timers" else "HasMaxUnits"
    assert table["OnDemandThroughput"] == {"Fn::If": [condition, limits, NO_VALUE]}
    for parameter_name in ("MaxReadUnits", "MaxWriteUnits", "WarmWriteUnits"):
        assert template.source["Parameters"][parameter_name]["Default"] == 0


def test_a_provisioned_table_and_its_index_grow_with_their_use_up_to_the_ceilings(template: Template) -> None:
    table = template.of_type("AWS::DynamoDB::Table")["Timers"]
    (index,) = table["GlobalSecondaryIndexes"]
    targets = template.of_type("AWS::ApplicationAutoScaling::ScalableTarget")
    policies = template.of_type("AWS::ApplicationAutoScaling::ScalingPolicy").values()
    resources = template.translated["Resources"]

    assert table["BillingMode"] == {"Fn::If": ["IsProvisioned", "PROVISIONED", "PAY_PER_REQUEST"]}
    for where, throughput in (("table", table), ("index", index)):
        _, given, otherwise = throughput["ProvisionedThroughput"]["Fn::If"]
        assert otherwise == NO_VALUE
        path = "table/${Timers}" + (f"/index/{index['IndexName']}" if where == "index" else "")
        for kind in ("Read", "Write"):
            (name,) = (
                name
                for name, each in targets.items()
                if each["ScalableDimension"] == f"dynamodb:{where}:{kind}CapacityUnits"
            )
            assert targets[name]["ResourceId"] == {"Fn::Sub": path}
            assert targets[name]["MinCapacity"] == given[f"{kind}CapacityUnits"]
            assert targets[name]["MaxCapacity"] == {"Ref": f"Max{kind}Units"}
            (policy,) = (each for each in policies if each["ScalingTargetId"] == {"Ref": name})
            metric = policy["TargetTrackingScalingPolicyConfiguration"]["PredefinedMetricSpecification"]
            assert metric == {"PredefinedMetricType": f"DynamoDB{kind}CapacityUtilization"}
            assert resources[name]["Condition"] == "IsProvisioned"
    assert len(policies) == len(targets) == counts.AUTOSCALING_ALARMS / 4
    assert template.source["Parameters"]["ProvisionedWriteUnits"]["Default"] == 0


def test_functions_are_traced_when_it_is_wanted(template: Template) -> None:
    for function in template.of_type("AWS::Lambda::Function").values():
        assert function["TracingConfig"] == {"Mode": {"Ref": "Tracing"}}
    assert template.source["Parameters"]["Tracing"]["Default"] == "PassThrough"


def test_the_key_of_the_secrets_is_rotated_and_outlives_the_stack(template: Template) -> None:
    resource = template.translated["Resources"]["SecretsKey"]
    functions = template.of_type("AWS::Lambda::Function")

    assert (resource["DeletionPolicy"], resource["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    assert resource["Properties"]["EnableKeyRotation"] is True
    for name, settings in FUNCTIONS.items():
        given = functions[name]["Environment"]["Variables"].get("DUETIME_KMS_KEY_ID")
        assert given == (SECRETS_KEY if issubclass(settings, KeySettings) else None)


def test_callbacks_go_to_public_addresses_alone_unless_a_parameter_says_otherwise(template: Template) -> None:
    parameters = template.source["Parameters"]
    functions = template.of_type("AWS::Lambda::Function")
    for function, model in FUNCTIONS.items():
        variables = functions[function]["Environment"]["Variables"]
        given = {name: value for name, value in variables.items() if name.startswith("DUETIME_EGRESS_")}
        if not issubclass(model, EgressSettings):
            assert given == {}
            continue
        assert given == {
            "DUETIME_EGRESS_ALLOW_CIDRS": {"Ref": "EgressAllowCidrs"},
            "DUETIME_EGRESS_ALLOW_HOSTS": {"Ref": "EgressAllowHosts"},
            "DUETIME_EGRESS_HTTPS_ONLY": {"Ref": "EgressHttpsOnly"},
        }
        environ = {name: parameters[value["Ref"]]["Default"] for name, value in given.items()}
        settings = load_settings(PollerSettings, environ=environ | {"DUETIME_STORE": "dynamodb://timers"})
        assert settings.egress_policy() == PUBLIC_ONLY


def test_a_request_goes_to_the_function_that_serves_it(template: Template) -> None:
    """The gateway takes the most specific route, and the default one for all else."""
    (api,) = template.of_type("AWS::ApiGatewayV2::Api").values()
    routes = {path: operations["x-amazon-apigateway-any-method"] for path, operations in api["Body"]["paths"].items()}
    served_by = {
        path: re.findall(r"\$\{(\w+)\.Arn\}", operation["x-amazon-apigateway-integration"]["uri"]["Fn::Sub"])
        for path, operation in routes.items()
    }
    assert served_by.pop("$default") == ["TimersApi"]

    patterns = [re.sub(r"\{proxy\+\}", ".+", re.sub(r"\{\w+\}", "[^/]+", path)) for path in served_by]
    calls = {route.path for route in call_routes()}
    for route in all_routes():
        goes_to_calls = any(re.fullmatch(pattern, route.path) for pattern in patterns)
        assert goes_to_calls == (route.path in calls), route.path
    assert set(map(tuple, served_by.values())) == {("ServiceCallsApi",)}
    assert not any("security" in operation for operation in routes.values())


def test_the_gateway_may_invoke_a_function_by_any_of_its_routes(template: Template) -> None:
    """A function's policy has at most 20 KB, so that a permission for each route would be too many."""
    given = [
        permission["SourceArn"]["Fn::Sub"][0].partition("/${__Stage__}/")[2]
        for permission in template.of_type("AWS::Lambda::Permission").values()
        if permission["Principal"] == "apigateway.amazonaws.com"
    ]

    assert sorted(given) == ["*", "*/v1/tenants/*/service-calls", "*/v1/tenants/*/service-calls/*"]


def test_the_access_log_never_says_with_what(template: Template) -> None:
    (stage,) = template.of_type("AWS::ApiGatewayV2::Stage").values()
    fields = set(re.findall(r"\$context\.([A-Za-z.]+)", stage["AccessLogSettings"]["Format"]))

    assert fields == {
        "requestTime",
        "requestId",
        "routeKey",
        "status",
        "responseLatency",
        "responseLength",
        "identity.sourceIp",
        "error.message",
    }


@pytest.mark.parametrize("function", ["TimersApi", "ServiceCallsApi", "Poller"])
def test_a_function_of_the_api_can_be_kept_from_taking_the_pollers_concurrency(
    template: Template, function: str
) -> None:
    parameter = "PollerConcurrency" if function == "Poller" else "ApiConcurrency"
    properties = template.of_type("AWS::Lambda::Function")[function]

    ceiling: dict[str, Any] = {"Fn::If": [f"Has{parameter}", {"Ref": parameter}, {"Ref": "AWS::NoValue"}]}
    if function == "Poller":  # pollers start their successors, but none is to be started while the schedule is off
        ceiling = {"Fn::If": ["IsScheduled", ceiling, 0]}
    assert properties["ReservedConcurrentExecutions"] == ceiling
    assert template.source["Parameters"][parameter]["Default"] == 0


@pytest.mark.parametrize("function", ["Poller", "Outbox"])
def test_a_scheduled_function_that_fails_is_not_retried_and_leaves_a_dead_letter(
    template: Template, function: str
) -> None:
    invocations = template.of_type("AWS::Lambda::EventInvokeConfig").values()
    (invocation,) = [each for each in invocations if each["FunctionName"] == {"Ref": function}]
    rule = template.of_type("AWS::Events::Rule")[f"{function}EveryMinute"]
    (target,) = rule["Targets"]
    queue = {"Fn::GetAtt": [f"{function}DeadLetters", "Arn"]}

    assert invocation["MaximumRetryAttempts"] == 0
    assert invocation["DestinationConfig"]["OnFailure"] == {"Destination": queue}
    assert rule["ScheduleExpression"] == "rate(1 minute)"
    assert target["Arn"] == {"Fn::GetAtt": [function, "Arn"]}
    assert target["RetryPolicy"]["MaximumRetryAttempts"] == 0
    assert target["DeadLetterConfig"] == {"Arn": queue}


def test_nothing_else_is_scheduled(template: Template) -> None:
    assert template.of_type("AWS::Events::Rule").keys() == {"PollerEveryMinute", "OutboxEveryMinute"}


def test_a_batch_of_the_stream_is_retried_in_part_and_given_up_in_the_end(template: Template) -> None:
    (mapping,) = template.of_type("AWS::Lambda::EventSourceMapping").values()

    assert mapping["FunctionName"] == {"Ref": "Outbox"}
    assert mapping["EventSourceArn"] == CALLS_STREAM
    assert mapping["StartingPosition"] == "TRIM_HORIZON"
    assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
    assert mapping["BisectBatchOnFunctionError"] is True
    assert 0 < mapping["MaximumRetryAttempts"] <= 10
    assert 0 < mapping["MaximumRecordAgeInSeconds"] <= 3600
    assert mapping["DestinationConfig"]["OnFailure"] == {"Destination": {"Fn::GetAtt": ["OutboxDeadLetters", "Arn"]}}


def test_the_filters_let_in_just_the_records_that_lead_to_something(template: Template) -> None:
    """By a small reading of AWS's filter rules: each member of a pattern lists the values that pass."""
    (mapping,) = template.of_type("AWS::Lambda::EventSourceMapping").values()
    patterns = [json.loads(each["Pattern"]) for each in mapping["FilterCriteria"]["Filters"]]

    def passes(pattern: Any, value: Any) -> bool:
        if isinstance(pattern, dict):
            return isinstance(value, dict) and all(passes(each, value.get(name)) for name, each in pattern.items())
        return value in pattern

    def is_let_in(record: dict[str, Any]) -> bool:
        return any(passes(pattern, record) for pattern in patterns)

    call = transitions.submitted()
    events = packed([encode_event(event) for event in call.events], 0)
    written = {"eventName": "INSERT", "dynamodb": {"NewImage": events}}
    image = item_of(SERVICE_CALL, encode_call(call.after))
    records = [
        written,
        {"eventName": "MODIFY", "dynamodb": {"NewImage": events}},
        {"eventName": "INSERT", "dynamodb": {"NewImage": image}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": image}},
        {"eventName": "REMOVE", "dynamodb": {"OldImage": events}},
    ]

    assert [is_let_in(record) for record in records] == [True, False, False, False, False]
    assert [read_record(record) is not None for record in records] == [is_let_in(record) for record in records]


@pytest.mark.parametrize("bound", ["MinValue", "Default"])
def test_a_poller_lives_long_enough_to_be_succeeded_at_a_tick(template: Template, bound: str) -> None:
    timeout = template.source["Parameters"]["PollerTimeoutSeconds"][bound]
    life = Life.of(timeout, 0.0, PollerSettings(store="dynamodb://timers"))

    assert life.deadline - life.planned_end >= template.source["Parameters"]["DrainSeconds"]["Default"]
    assert life.planned_end - life.succession_at >= TICK_SECONDS
    assert life.succession_at > 0


@pytest.mark.parametrize("path", MARKS)
def test_the_parameters_of_settings_are_those_of_the_models(path: Path) -> None:
    assert path.read_text() == render(path), "run: python -m scripts.write_parameters"


@pytest.mark.parametrize("function", FUNCTIONS)
def test_every_setting_of_a_function_is_a_parameter_or_decided_by_the_template(
    template: Template, function: str
) -> None:
    variables = template.of_type("AWS::Lambda::Function")[function]["Environment"]["Variables"]
    settings = FUNCTIONS[function].model_fields
    refs = {name: {"Ref": "EventBusName" if name == "event_bus" else parameter(name)} for name in settings}

    assert variables.keys() <= {variable(name) for name in settings}
    assert {name: variables[variable(name)] for name in settings if name not in NO_PARAMETERS} == {
        name: refs[name] for name in settings if name not in NO_PARAMETERS
    }


@pytest.mark.parametrize("function", FUNCTIONS)
def test_functions_that_store_timers_wake_the_poller_where_it_may_sleep(template: Template, function: str) -> None:
    functions = template.of_type("AWS::Lambda::Function")
    given = functions[function]["Environment"]["Variables"].get("DUETIME_POLLER_FUNCTION")
    condition = template.translated["Conditions"]["Sleeps"]

    if issubclass(FUNCTIONS[function], WakingSettings):
        assert given == {"Fn::If": ["Sleeps", functions["Poller"]["FunctionName"], ""]}
    else:
        assert given is None
    assert condition == {"Fn::And": [{"Condition": "IsScheduled"}, {"Fn::Equals": [{"Ref": "Sleep"}, "auto"]}]}


def test_no_setting_stands_in_a_list_without_being_one() -> None:
    known = {name for model in FUNCTIONS.values() for name in model.model_fields}

    assert known == BY_HAND | NO_PARAMETERS.keys() | written().keys()
    assert not BY_HAND & NO_PARAMETERS.keys()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_the_defaults_of_the_parameters_are_those_of_the_settings(template: Template, function: str) -> None:
    model, parameters = FUNCTIONS[function], template.source["Parameters"]
    names = [name for name in model.model_fields if name in written()]
    environ = {variable(name): str(parameters[parameter(name)]["Default"]) for name in names}
    given = load_settings(model, environ=environ | {"DUETIME_STORE": "dynamodb://timers"})

    assert given == model(store="dynamodb://timers")  # type: ignore[call-arg]


def test_the_pollers_callbacks_fit_into_the_open_files_of_lambda() -> None:
    connections = PollerSettings(store="dynamodb://timers").engine_settings().max_connections

    assert connections + process_limits.OTHER_FILES <= 1024


def test_every_function_has_its_directory_and_they_have_no_others(template: Template) -> None:
    sources = {
        name: resource["Properties"]["CodeUri"]
        for name, resource in template.source["Resources"].items()
        if resource["Type"] == "AWS::Serverless::Function"
    }

    assert sources.keys() == FUNCTIONS.keys()
    assert set(sources.values()) == {f"functions/{path.parent.name}/" for path in ROOT.glob("functions/*/handler.py")}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_logs_go_to_a_group_that_forgets(template: Template, function: str) -> None:
    properties = template.of_type("AWS::Lambda::Function")[function]
    group = template.of_type("AWS::Logs::LogGroup")[f"{function}Logs"]

    assert properties["LoggingConfig"] == {"LogGroup": {"Ref": f"{function}Logs"}}
    assert group["RetentionInDays"] == {"Ref": "LogRetentionDays"}
    assert properties["Architectures"] == [{"Ref": "Architecture"}]


def test_the_layer_needs_the_same_packages_whatever_python_builds_it() -> None:
    """pip judges markers by the interpreter that runs it, which is not the runtime's."""
    requirements = (ROOT / "shared" / "requirements.txt").read_text()

    assert requirements == (ROOT / "requirements" / "lambda.txt").read_text()
    assert ";" not in requirements


def test_the_bill_has_the_defaults_of_the_parameters(template: Template) -> None:
    parameters = {name: each["Default"] for name, each in template.source["Parameters"].items()}
    options: dict[str | None, Any] = {option.name: option.default for option in app.commands["cost"].params}
    settings = PollerSettings(store="dynamodb://timers")

    assert options["shards"] == parameters["DefaultNumShards"]
    assert options["api_memory_mb"] == parameters["ApiMemoryMb"]
    assert options["poller_memory_mb"] == parameters["PollerMemoryMb"]
    assert options["sleep"] == parameters["Sleep"] == settings.sleep
    assert options["has_dashboard"] is (parameters["MakeDashboard"] == "true")
    assert counts.TRUST_SECONDS == TRUST_SECONDS
    assert options["retention_days"] * 86_400 == parameters["FiredRetentionSeconds"]
    assert parameters["OutboxMemoryMb"] == counts.OUTBOX_MEMORY_MB
    assert parameters["ShardsPerPoller"] == counts.SHARDS_PER_POLLER
    assert parameters["AuthCacheSeconds"] == counts.KEY_CACHED_SECONDS
    assert Life.of(parameters["PollerTimeoutSeconds"], 0.0, settings).planned_end == counts.POLLER_LIFE_SECONDS
    assert (MAX_BATCH_ITEMS, MAX_BATCH_BYTES) == (counts.MAX_BATCH_TIMERS, counts.MAX_BATCH_BYTES)
