"""Which permissions requests to DynamoDB take, and which ones the template grants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

Permission = tuple[str, str, str]
"""An IAM action, the table in the template, and the index that it is for ("" for the table)."""

_STATEMENTS = {
    "INSERT": "PartiQLInsert",
    "UPDATE": "PartiQLUpdate",
    "DELETE": "PartiQLDelete",
    "SELECT": "PartiQLSelect",
}
_TRANSACTED = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}


_TABLE_IN_STATEMENT = re.compile(r'"([^"]+)"')


def permissions_for(operation: str, body: dict[str, Any], tables: Mapping[str, str]) -> set[Permission]:
    """What the service checks for a request (Service Authorization Reference of Amazon DynamoDB).

    ``tables``: from the name of a table to its logical id.
    """
    if operation == "BatchExecuteStatement":
        statements = [each["Statement"] for each in body["Statements"]]
        return {(f"dynamodb:{_STATEMENTS[text.split()[0].upper()]}", _table(text, tables), "") for text in statements}
    if operation == "TransactWriteItems":
        return {
            (f"dynamodb:{_TRANSACTED[kind]}", tables[about["TableName"]], "")
            for item in body["TransactItems"]
            for kind, about in item.items()
        }
    if "RequestItems" in body:
        return {(f"dynamodb:{operation}", tables[name], "") for name in body["RequestItems"]}
    return {(f"dynamodb:{operation}", tables[body["TableName"]], body.get("IndexName", ""))}


def _table(statement: str, tables: Mapping[str, str]) -> str:
    found = _TABLE_IN_STATEMENT.search(statement)
    assert found is not None, statement
    return tables[found[1]]


def permissions_of(role: dict[str, Any]) -> set[Permission]:
    """What a role of the template may do to the tables and their indexes. Streams are read by Lambda itself."""
    granted: set[Permission] = set()
    for policy in role["Policies"]:
        for statement in map(if_wanted, policy["PolicyDocument"]["Statement"]):
            actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            if (resource := statement["Resource"]) == "*":
                continue
            whole, _, index = str(resource.get("Fn::Sub", "")).partition("/index/")
            table, attribute = resource.get("Fn::GetAtt") or (whole.removeprefix("${").partition(".")[0], "Arn")
            if attribute != "StreamArn":
                granted.update((action, table, index) for action in actions if action.startswith("dynamodb:"))
    return granted


def if_wanted(statement: dict[str, Any]) -> dict[str, Any]:
    """What ``statement`` is where pollers sleep, functions are traced and targets allowed; nothing else depends on a
    condition."""
    if "Fn::If" not in statement:
        return statement
    condition, given, otherwise = statement["Fn::If"]
    assert (condition, given["Sid"]) in (
        ("Sleeps", "WakePollers"),
        ("IsTraced", "Tracing"),
        ("HasTargets", "Targets"),
    )
    assert otherwise == {"Ref": "AWS::NoValue"}
    return dict(given)
