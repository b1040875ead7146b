"""The application as `sam build` makes it, for this machine's Python."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cfnlint.decode import decode

from scripts.aws_local import ROOT, build
from tests.support.tools import tool_program

Event = dict[str, Any]


@dataclass(frozen=True)
class Template:
    """template.yaml, and the CloudFormation that the SAM transform makes of it."""

    source: dict[str, Any]
    translated: dict[str, Any]

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Properties of the resources of a type, by logical id, as CloudFormation will see them."""
        resources = self.translated["Resources"].items()
        return {name: resource["Properties"] for name, resource in resources if resource["Type"] == kind}


@pytest.fixture(scope="session")
def template() -> Template:
    source, errors = decode(str(ROOT / "template.yaml"))
    assert not errors
    command = [tool_program("sam", "python"), "scripts/translate_template.py"]
    translated = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=60).stdout
    return Template(source, json.loads(translated))


@pytest.fixture(scope="session")
def built() -> Path:
    """What `sam build` made: a directory for each function and for the layer."""
    return build()


@pytest.fixture(scope="session")
def load_event() -> Callable[[str], Event]:
    """An event of ``events/`` by its name."""

    def load(name: str) -> Event:
        event: Event = json.loads((ROOT / "events" / f"{name}.json").read_text())
        return event

    return load
