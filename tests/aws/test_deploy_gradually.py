"""`make deploy GRADUAL=...`: requests go to new code by and by, and alarms that show its faults roll it back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts.aws_local import ROOT
from tests.aws.application import PATIENCE_SECONDS, Template
from tests.support.tools import tool_program

KIND = "Canary10Percent5Minutes"
FUNCTIONS = {"TimersApi", "ServiceCallsApi"}


def _run(*command: str) -> str:
    ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=PATIENCE_SECONDS)
    return ran.stdout


def _deployed(template: Path) -> Path:
    """What CloudFormation gets of a deployment."""
    template.write_text((ROOT / "template.yaml").read_text())
    python = tool_program("sam", "python")
    _run(python, "scripts/deploy_gradually.py", str(template), KIND)
    made = template.with_suffix(".json")
    made.write_text(_run(python, "scripts/translate_template.py", str(template)))
    return made


def _of_type(resources: dict[str, Any], kind: str) -> dict[str, Any]:
    return {name: each["Properties"] for name, each in resources.items() if each["Type"] == kind}


@pytest.fixture(scope="module")
def gradual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _deployed(tmp_path_factory.mktemp("gradual") / "template.yaml")


def test_requests_go_to_an_alias_that_moves_slowly_and_back_on_an_alarm(gradual: Path, template: Template) -> None:
    resources = json.loads(gradual.read_text())["Resources"]
    groups = _of_type(resources, "AWS::CodeDeploy::DeploymentGroup")
    alarms = template.of_type("AWS::CloudWatch::Alarm")
    (api,) = _of_type(resources, "AWS::ApiGatewayV2::Api").values()

    assert groups.keys() == {f"{function}DeploymentGroup" for function in FUNCTIONS}
    for function in FUNCTIONS:
        policy = resources[f"{function}Aliaslive"]["UpdatePolicy"]["CodeDeployLambdaAliasUpdate"]
        assert policy["DeploymentGroupName"] == {"Ref": f"{function}DeploymentGroup"}
        assert f"${{{function}Aliaslive}}" in json.dumps(api["Body"])
        assert f"${{{function}.Arn}}" not in json.dumps(api["Body"])
    for group in groups.values():
        assert KIND in json.dumps(group["DeploymentConfigName"])
        assert group["AutoRollbackConfiguration"]["Enabled"]
        watched = [each["Name"] for each in group["AlarmConfiguration"]["Alarms"]]
        assert alarms["ApiFails"]["AlarmName"] in watched
        assert {each["Ref"] for each in watched if "Ref" in each} <= alarms.keys() - {"PollerSilent"}
        assert len(watched) <= 10


def test_its_role_is_bounded_like_the_others(gradual: Path, template: Template) -> None:
    roles = _of_type(json.loads(gradual.read_text())["Resources"], "AWS::IAM::Role")
    others = template.of_type("AWS::IAM::Role")
    ((_, role),) = ((name, role) for name, role in roles.items() if name not in others)

    assert role["PermissionsBoundary"] == others["TimersApiRole"]["PermissionsBoundary"]
    assert [policy["Fn::Sub"].rpartition("/")[2] for policy in role["ManagedPolicyArns"]] == [
        "AWSCodeDeployRoleForLambdaLimited"
    ]


def test_cloudformation_can_make_it(gradual: Path) -> None:
    linted = subprocess.run(
        [Path(sys.executable).with_name("cfn-lint"), gradual], check=False, capture_output=True, text=True
    )

    assert (linted.returncode, linted.stdout) == (0, "")


def test_every_deployment_publishes_a_version_also_when_a_parameter_alone_has_changed(
    gradual: Path, tmp_path: Path
) -> None:
    """Else the alias would stay at a version with the old settings, and nobody would see it."""
    first = _of_type(json.loads(gradual.read_text())["Resources"], "AWS::Lambda::Version").keys()
    second = json.loads(_deployed(tmp_path / "template.yaml").read_text())["Resources"]
    again = _of_type(second, "AWS::Lambda::Version")

    assert len(first) == len(again) == len(FUNCTIONS)
    assert not first & again.keys()


def test_make_deploy_does_it_when_it_is_asked_to() -> None:
    def planned(*variables: str) -> str:
        command = ["make", "--silent", "--dry-run", "deploy", *variables]
        environment = {"PATH": os.environ["PATH"]}
        return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    assert "deploy_gradually" not in planned()
    before, _, after = planned(f"GRADUAL={KIND}").partition(
        f"scripts/deploy_gradually.py .aws-sam/build/template.yaml {KIND}"
    )
    assert " build " in before
    assert " deploy --stack-name duetime-dev" in after
