"""The roles of template.yaml: exactly the permissions that the functions use."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.runtime.eventbridge import CALLS_SOURCE, SOURCE
from tests.aws.application import Template
from tests.aws.permissions import if_wanted, permissions_of

SECRETS_KEY = {"Fn::If": ["MakesSecretsKey", {"Fn::GetAtt": ["SecretsKey", "Arn"]}, {"Ref": "SecretsKeyArn"}]}
CALLS_STREAM = {"Fn::GetAtt": ["ServiceCalls", "StreamArn"]}
POLLER = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-poller"
EVENT_BUS = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:event-bus/${EventBusName}"
WAKES_POLLERS = ({"lambda:InvokeFunction"}, {"Fn::Sub": POLLER})
"""Where the pollers sleep."""
SENDS_TO_TARGETS = (
    {"events:PutEvents", "lambda:InvokeFunction", "sns:Publish", "sqs:SendMessage", "states:StartExecution"},
    {"Fn::Split": [",", {"Ref": "AllowedTargets"}]},
)
"""Where targets are allowed; to these alone."""
TRACES = ({"xray:PutTelemetryRecords", "xray:PutTraceSegments"}, "*")
"""Where functions are traced. X-Ray knows no resources."""
LOG_ACTIONS = {"logs:CreateLogStream", "logs:PutLogEvents"}

PERMISSIONS: dict[str, list[tuple[set[str], Any]]] = {
    "TimersApiRole": [
        ({"kms:Encrypt"}, SECRETS_KEY),
        WAKES_POLLERS,
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["TimersApiLogs", "Arn"]}),
    ],
    "ServiceCallsApiRole": [
        WAKES_POLLERS,
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["ServiceCallsApiLogs", "Arn"]}),
    ],
    "PollerRole": [
        ({"kms:Decrypt"}, SECRETS_KEY),
        ({"lambda:InvokeFunction"}, {"Fn::Sub": POLLER}),
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        ({"sqs:SendMessage"}, {"Fn::GetAtt": ["PollerDeadLetters", "Arn"]}),
        SENDS_TO_TARGETS,
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["PollerLogs", "Arn"]}),
    ],
    "OutboxRole": [
        (
            {
                "dynamodb:DescribeStream",
                "dynamodb:GetRecords",
                "dynamodb:GetShardIterator",
                "dynamodb:ListStreams",
            },
            CALLS_STREAM,
        ),
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        ({"sqs:SendMessage"}, {"Fn::GetAtt": ["OutboxDeadLetters", "Arn"]}),
        WAKES_POLLERS,
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["OutboxLogs", "Arn"]}),
    ],
}
"""But those for tables: test_functions.py and test_outbox_function.py compare them with what is used."""


@pytest.mark.parametrize("role", PERMISSIONS)
def test_a_function_may_do_what_it_needs_and_no_more(template: Template, role: str) -> None:
    properties = template.of_type("AWS::IAM::Role")[role]
    (policy,) = properties["Policies"]
    statements = [if_wanted(each) for each in policy["PolicyDocument"]["Statement"]]

    assert "ManagedPolicyArns" not in properties
    boundary = {"Fn::If": ["HasPermissionsBoundary", {"Ref": "PermissionsBoundaryArn"}, {"Ref": "AWS::NoValue"}]}
    assert properties["PermissionsBoundary"] == boundary
    assert all(statement["Effect"] == "Allow" for statement in statements)
    given = [
        ({action} if isinstance(action := statement["Action"], str) else set(action), statement["Resource"])
        for statement in statements
    ]
    of_tables = permissions_of(properties)
    others = [each for each in given if not {action for action, *_ in of_tables} & each[0]]
    assert others == PERMISSIONS[role]


def test_there_are_no_other_roles(template: Template) -> None:
    assert template.of_type("AWS::IAM::Role").keys() == PERMISSIONS.keys()


def test_without_targets_there_is_no_permission_to_send_to_any(template: Template) -> None:
    (policy,) = template.of_type("AWS::IAM::Role")["PollerRole"]["Policies"]
    conditional = [each["Fn::If"] for each in policy["PolicyDocument"]["Statement"] if "Fn::If" in each]
    (given,) = [each for each in conditional if each[1]["Sid"] == "Targets"]

    assert (given[0], given[2]) == ("HasTargets", {"Ref": "AWS::NoValue"})
    assert template.source["Conditions"]["HasTargets"] == {
        "Fn::Not": [{"Fn::Equals": [{"Ref": "AllowedTargets"}, ""]}]
    }
    assert template.source["Parameters"]["AllowedTargets"]["Default"] == ""


@pytest.mark.parametrize(("role", "source"), [("PollerRole", SOURCE), ("OutboxRole", CALLS_SOURCE)])
def test_a_function_can_put_events_of_its_own_source_alone(template: Template, role: str, source: str) -> None:
    (policy,) = template.of_type("AWS::IAM::Role")[role]["Policies"]
    (statement,) = [
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if statement.get("Action") == "events:PutEvents"
    ]

    assert statement["Condition"] == {"StringEquals": {"events:source": source}}
