"""Tell CloudFormation which resources of a stack no update may replace or delete: its tables and its key.

``make deploy`` runs this before and after `sam deploy`, which cannot set a stack policy itself. A change of a table's
key or of a local index makes CloudFormation create an empty table in place of the full one: under the policy such an
update fails, and nothing has happened. ``--allow-replacement`` is for those who mean it. Run by the interpreter that
has the SAM CLI, which brings boto3. It needs ``cloudformation:SetStackPolicy``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError

PROTECTED = ("Timers", "ServiceCalls", "SecretsKey")
"""Logical ids; a test compares them with what the template retains."""

_ALLOW = {"Effect": "Allow", "Principal": "*", "Action": "Update:*", "Resource": "*"}
_DENY = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": ["Update:Replace", "Update:Delete"],
    "Resource": [f"LogicalResourceId/{name}" for name in PROTECTED],
}


def stack_policy(*, allows_replacement: bool) -> str:
    """Return the policy as JSON. Without a statement that allows an update, CloudFormation denies it."""
    return json.dumps({"Statement": [_ALLOW] if allows_replacement else [_ALLOW, _DENY]})


def protect(cloudformation: Any, stack_name: str, *, allows_replacement: bool) -> bool:
    """Set the policy of a stack; False: there is no such stack yet. Raises botocore's errors."""
    try:
        cloudformation.describe_stacks(StackName=stack_name)
    except ClientError as error:
        # CloudFormation has no code of its own for it.
        if "does not exist" in str(error):
            return False
        raise
    policy = stack_policy(allows_replacement=allows_replacement)
    cloudformation.set_stack_policy(StackName=stack_name, StackPolicyBody=policy)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Set the policy that keeps a stack's tables from being replaced.")
    parser.add_argument("stack_name")
    parser.add_argument("--allow-replacement", action="store_true", help="let the next update replace them")
    options = parser.parse_args(arguments)
    try:
        protect(boto3.client("cloudformation"), options.stack_name, allows_replacement=options.allow_replacement)
    except (BotoCoreError, ClientError) as error:
        print(f"protect_tables: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
