"""Print template.yaml, or a template that is named, as the CloudFormation that SAM makes of it, as JSON.

Run by the interpreter that has the SAM CLI (``.venv-sam/bin/python``). ``sam validate`` does not look at the outcome:
a reference to a resource that SAM does not generate is only seen there.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from samtranslator.translator.transform import transform
from samtranslator.yaml_helper import yaml_parse

TEMPLATE = Path(__file__).resolve().parent.parent / "template.yaml"

# Where `sam deploy` would have put the code.
_UPLOADED = "s3://bucket/key"
_CODE_PROPERTIES = {"AWS::Serverless::Function": "CodeUri", "AWS::Serverless::LayerVersion": "ContentUri"}


class _NoManagedPolicies:
    """The template names no managed policy; the transform asks for their list all the same."""

    def load(self) -> dict[str, str]:
        return {}


def translate(path: Path) -> dict[str, Any]:
    os.environ.setdefault("AWS_DEFAULT_REGION", "us-east-1")  # the transform insists on one
    template = yaml_parse(path.read_text())
    for resource in template["Resources"].values():
        if code := _CODE_PROPERTIES.get(resource["Type"]):
            resource["Properties"][code] = _UPLOADED
    translated: dict[str, Any] = transform(template, {}, _NoManagedPolicies())
    return translated


if __name__ == "__main__":
    json.dump(translate(Path(sys.argv[1]) if sys.argv[1:] else TEMPLATE), sys.stdout, indent=1)
