"""The roles of template.yaml: exactly the permissions that the functions use."""

from __future__ import annotations

from typing import Any

import pytest

from duetime.runtime.eventbridge import CALLS_SOURCE, SOURCE
from tests.aws.application import Template
from tests.aws.permissions import if_wanted

SECRETS_KEY = {"Fn::If": ["MakesSecretsKey", {"Fn::GetAtt": ["SecretsKey", "Arn"]}, {"Ref": "SecretsKeyArn"}]}
TABLE = {"Fn::GetAtt": ["Timers", "Arn"]}
CALLS_TABLE = {"Fn::GetAtt": ["ServiceCalls", "Arn"]}
CALLS_STREAM = {"Fn::GetAtt": ["ServiceCalls", "StreamArn"]}
POLLER = "arn:${AWS::Partition}:lambda:${AWS::Region}:${AWS::AccountId}:function:${AWS::StackName}-poller"
EVENT_BUS = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:event-bus/${EventBusName}"
WAKES_POLLERS = ({"lambda:InvokeFunction"}, {"Fn::Sub": POLLER})
"""Where the pollers sleep."""
TRACES = ({"xray:PutTelemetryRecords", "xray:PutTraceSegments"}, "*")
"""Where functions are traced. X-Ray knows no resources."""
LOG_ACTIONS = {"logs:CreateLogStream", "logs:PutLogEvents"}

PERMISSIONS: dict[str, list[tuple[set[str], Any]]] = {
    "TimersApiRole": [
        (
            {
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                "dynamodb:PartiQLUpdate",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            },
            TABLE,
        ),
        ({"dynamodb:Query"}, {"Fn::Sub": "${Timers.Arn}/index/timer_correlation_id-index"}),
        ({"dynamodb:GetItem"}, CALLS_TABLE),
        ({"kms:Encrypt"}, SECRETS_KEY),
        WAKES_POLLERS,
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["TimersApiLogs", "Arn"]}),
    ],
    "ServiceCallsApiRole": [
        (
            {"dynamodb:DeleteItem", "dynamodb:GetItem", "dynamodb:PutItem"},
            TABLE,
        ),
        (
            {
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            },
            CALLS_TABLE,
        ),
        *(
            ({"dynamodb:Query"}, {"Fn::Sub": f"${{ServiceCalls.Arn}}/index/{key}-index"})
            for key in ("status_key", "starred_key", "name_key", "correlation_key", "due_key")
        ),
        WAKES_POLLERS,
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["ServiceCallsApiLogs", "Arn"]}),
    ],
    "PollerRole": [
        (
            {
                "dynamodb:BatchGetItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                "dynamodb:PartiQLUpdate",
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
            },
            TABLE,
        ),
        ({"dynamodb:Query"}, {"Fn::Sub": "${Timers.Arn}/index/timer_execute_at-index"}),
        ({"dynamodb:BatchGetItem", "dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"}, CALLS_TABLE),
        ({"kms:Decrypt"}, SECRETS_KEY),
        ({"lambda:InvokeFunction"}, {"Fn::Sub": POLLER}),
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        ({"sqs:SendMessage"}, {"Fn::GetAtt": ["PollerDeadLetters", "Arn"]}),
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
        (
            {
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLUpdate",
                "dynamodb:PutItem",
                "dynamodb:Query",
                "dynamodb:UpdateItem",
            },
            CALLS_TABLE,
        ),
        ({"dynamodb:Query"}, {"Fn::Sub": "${ServiceCalls.Arn}/index/outbox_key-index"}),
        (
            {
                "dynamodb:BatchGetItem",
                "dynamodb:DeleteItem",
                "dynamodb:GetItem",
                "dynamodb:PartiQLInsert",
                "dynamodb:PutItem",
                "dynamodb:UpdateItem",
            },
            TABLE,
        ),
        ({"events:PutEvents"}, {"Fn::Sub": EVENT_BUS}),
        ({"sqs:SendMessage"}, {"Fn::GetAtt": ["OutboxDeadLetters", "Arn"]}),
        WAKES_POLLERS,
        TRACES,
        (LOG_ACTIONS, {"Fn::GetAtt": ["OutboxLogs", "Arn"]}),
    ],
}


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
    assert given == PERMISSIONS[role]


def test_there_are_no_other_roles(template: Template) -> None:
    assert template.of_type("AWS::IAM::Role").keys() == PERMISSIONS.keys()


@pytest.mark.parametrize(("role", "source"), [("PollerRole", SOURCE), ("OutboxRole", CALLS_SOURCE)])
def test_a_function_can_put_events_of_its_own_source_alone(template: Template, role: str, source: str) -> None:
    (policy,) = template.of_type("AWS::IAM::Role")[role]["Policies"]
    (statement,) = [
        statement
        for statement in policy["PolicyDocument"]["Statement"]
        if statement.get("Action") == "events:PutEvents"
    ]

    assert statement["Condition"] == {"StringEquals": {"events:source": source}}
