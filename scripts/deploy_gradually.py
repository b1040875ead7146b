"""Change a built template so that the API's new code gets its requests by and by, and all is rolled back on an alarm.

`make deploy GRADUAL=Canary10Percent5Minutes` runs this between `sam build` and `sam deploy`, by the interpreter that
has the SAM CLI. The functions get an alias, which CodeDeploy moves to a new version. Decision 0031: why this is no
parameter of the template: SAM would publish no version when nothing but a parameter's value has changed. Here the
description of a function has the time of the deployment, so that each one publishes a version.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from samcli.yamlhelper import yaml_dump, yaml_parse
from samtranslator.model.preferences.deployment_preference_collection import (
    CODEDEPLOY_PREDEFINED_CONFIGURATIONS_LIST,
)

FUNCTIONS = ("TimersApi", "ServiceCallsApi")
"""Those that answer requests. Pollers hand over one by one anyway, and a stack is rolled back as a whole."""
ALARMS: tuple[dict[str, str], ...] = (
    {"Fn::Sub": "${AWS::StackName}-ApiFails"},
    {"Ref": "FunctionsFail"},
    {"Ref": "NamespacesUnreadable"},
    {"Ref": "OutcomesRefused"},
    {"Ref": "ShardsUnowned"},
    {"Ref": "StoreFails"},
    {"Ref": "TimersLate"},
    {"Ref": "TimersUnreadable"},
)
"""That show a bad deployment, and are off where no poller is to run. CodeDeploy takes ten at most."""
ROLE = "GradualDeploymentRole"


def make_gradual(template: dict[str, Any], kind: str, at: datetime) -> None:
    """Make it gradual. ``kind``: how CodeDeploy moves requests, like ``Linear10PercentEvery1Minute``."""
    resources = template["Resources"]
    for name in FUNCTIONS:
        properties = resources[name]["Properties"]
        properties["Description"] += f", deployed at {at.isoformat(timespec='milliseconds')}"
        properties["AutoPublishAlias"] = "live"
        properties["AutoPublishAliasAllProperties"] = True
        properties["DeploymentPreference"] = {
            "Type": kind,
            "Alarms": list(ALARMS),
            "Role": {"Fn::GetAtt": [ROLE, "Arn"]},
        }
    # The alarms refer to the poller, and it to the API, whose URL it knows. By its name they need not wait for it.
    name = resources["Poller"]["Properties"]["FunctionName"]
    for alarm in ALARMS:
        if "Ref" in alarm:
            resources[alarm["Ref"]] = _with_name(resources[alarm["Ref"]], name)
    # SAM's own would not have the boundary that an account may require.
    resources[ROLE] = {
        "Type": "AWS::IAM::Role",
        "Properties": {
            "PermissionsBoundary": resources["TimersApiRole"]["Properties"]["PermissionsBoundary"],
            "AssumeRolePolicyDocument": {
                "Version": "2012-10-17",
                "Statement": [
                    {
                        "Effect": "Allow",
                        "Principal": {"Service": "codedeploy.amazonaws.com"},
                        "Action": "sts:AssumeRole",
                    }
                ],
            },
            "ManagedPolicyArns": [
                {"Fn::Sub": "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSCodeDeployRoleForLambdaLimited"}
            ],
        },
    }


def _with_name(part: Any, name: Any) -> Any:
    """Return ``part`` of a template with the poller's ``name`` in the place of references to it."""
    if part == {"Ref": "Poller"}:
        return name
    if isinstance(part, dict):
        return {key: _with_name(value, name) for key, value in part.items()}
    return [_with_name(value, name) for value in part] if isinstance(part, list) else part


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Let a built template deploy the API's functions gradually.")
    parser.add_argument("template", type=Path)
    parser.add_argument(
        "kind", choices=[kind for kind in CODEDEPLOY_PREDEFINED_CONFIGURATIONS_LIST if "Percent" in kind]
    )
    options = parser.parse_args(arguments)
    template = yaml_parse(options.template.read_text(encoding="utf-8"))
    make_gradual(template, options.kind, datetime.now(UTC))
    options.template.write_text(yaml_dump(template), encoding="utf-8")


if __name__ == "__main__":
    main()
