"""Which permissions requests to DynamoDB take, and which ones the template grants."""

from __future__ import annotations

from typing import Any

Permission = tuple[str, str]
"""An IAM action, and the index that it is for ("" for the table)."""

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


def permissions_for(operation: str, body: dict[str, Any]) -> set[Permission]:
    """What the service checks for a request (Service Authorization Reference of Amazon DynamoDB)."""
    if operation == "BatchExecuteStatement":
        verbs = {statement["Statement"].split()[0].upper() for statement in body["Statements"]}
        return {(f"dynamodb:{_STATEMENTS[verb]}", "") for verb in verbs}
    if operation == "TransactWriteItems":
        return {(f"dynamodb:{_TRANSACTED[kind]}", "") for item in body["TransactItems"] for kind in item}
    return {(f"dynamodb:{operation}", body.get("IndexName", ""))}


def permissions_of(role: dict[str, Any]) -> set[Permission]:
    """What a role of the template may do to the table and its indexes."""
    granted: set[Permission] = set()
    for policy in role["Policies"]:
        for statement in policy["PolicyDocument"]["Statement"]:
            actions = [statement["Action"]] if isinstance(statement["Action"], str) else statement["Action"]
            index = str(statement["Resource"].get("Fn::Sub", "")).partition("/index/")[2]
            granted.update((action, index) for action in actions if action.startswith("dynamodb:"))
    return granted
