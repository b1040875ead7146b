"""An update of the stack cannot replace what holds data: `make deploy` sets a stack policy."""

from __future__ import annotations

import json
import os
import subprocess
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import ANY, Stubber

from scripts.aws_local import ROOT
from scripts.protect_tables import PROTECTED, protect
from tests.aws.application import Template

STACK = "duetime-test"


@pytest.fixture
def cloudformation() -> Any:
    return boto3.client("cloudformation", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")


def policy_set(cloudformation: Any, *, allows_replacement: bool) -> list[dict[str, Any]]:
    """The statements of the policy that a stack gets."""
    given: list[str] = []

    def note(params: dict[str, Any], **_: Any) -> None:
        given.append(params["StackPolicyBody"])

    cloudformation.meta.events.register("provide-client-params.cloudformation.SetStackPolicy", note)
    at = datetime(2026, 1, 1, tzinfo=UTC)
    stack = {"StackName": STACK, "CreationTime": at, "StackStatus": "UPDATE_COMPLETE"}
    with Stubber(cloudformation) as answers:
        answers.add_response("describe_stacks", {"Stacks": [stack]}, {"StackName": STACK})
        answers.add_response("set_stack_policy", {}, {"StackName": STACK, "StackPolicyBody": ANY})
        assert protect(cloudformation, STACK, allows_replacement=allows_replacement)
    (policy,) = given
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return statements


def test_what_is_protected_is_what_the_template_retains(template: Template) -> None:
    resources = template.translated["Resources"].items()
    retained = {name for name, resource in resources if resource.get("UpdateReplacePolicy") == "Retain"}

    assert retained == set(PROTECTED)


def test_no_update_may_replace_or_delete_them(cloudformation: Any) -> None:
    allowed, denied = policy_set(cloudformation, allows_replacement=False)

    # Without an Allow all updates of all resources would be denied.
    assert (allowed["Effect"], allowed["Action"], allowed["Resource"]) == ("Allow", "Update:*", "*")
    assert (denied["Effect"], denied["Action"]) == ("Deny", ["Update:Replace", "Update:Delete"])
    assert denied["Resource"] == [f"LogicalResourceId/{name}" for name in PROTECTED]


def test_an_update_may_replace_them_when_that_is_asked_for(cloudformation: Any) -> None:
    (allowed,) = policy_set(cloudformation, allows_replacement=True)

    assert (allowed["Effect"], allowed["Action"], allowed["Resource"]) == ("Allow", "Update:*", "*")


def test_a_first_deployment_has_nothing_to_protect(cloudformation: Any) -> None:
    with Stubber(cloudformation) as answers:
        answers.add_client_error("describe_stacks", "ValidationError", f"Stack with id {STACK} does not exist")

        assert not protect(cloudformation, STACK, allows_replacement=False)


def test_another_refusal_is_not_taken_for_an_absent_stack(cloudformation: Any) -> None:
    with Stubber(cloudformation) as answers:
        answers.add_client_error("describe_stacks", "AccessDenied", "not authorized")

        with pytest.raises(ClientError, match="not authorized"):
            protect(cloudformation, STACK, allows_replacement=False)


def test_make_deploy_protects_before_and_after() -> None:
    environment = {"PATH": os.environ["PATH"]}
    command = ["make", "--silent", "--dry-run", "deploy"]
    planned = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    before, deployed, after = planned.partition(" deploy --stack-name duetime-dev")
    assert deployed
    for part in (before, after):
        assert "scripts/protect_tables.py duetime-dev" in part
        assert "--allow-replacement" not in planned
    allowed = subprocess.run(
        [*command, "ALLOW_REPLACEMENT=1"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
    ).stdout
    assert allowed.count("scripts/protect_tables.py duetime-dev --allow-replacement") == 1
    assert allowed.count("scripts/protect_tables.py duetime-dev") == 2
