"""How the layer is built."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.aws_local import ROOT
from scripts.build_layer import find_python, platform_options
from tests.aws.application import Template

THIS_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def test_every_module_of_the_layer_is_compiled_for_good(built: Path) -> None:
    """Bytecode that says "unchecked" (flags 1) is used whatever the zip file does to time stamps."""
    python = built / "SharedLayer" / "python"
    tag = sys.implementation.cache_tag
    flags = {
        path: path.parent.joinpath("__pycache__", f"{path.stem}.{tag}.pyc").read_bytes()[4:8]
        for path in python.rglob("*.py")
    }

    assert python / "duetime" / "api" / "handler.py" in flags
    assert not (python / "duetime" / "testing").exists()
    assert set(flags.values()) == {b"\x01\0\0\0"}


def test_tracebacks_name_the_place_where_lambda_mounts_the_layer(built: Path) -> None:
    compiled = built / "SharedLayer/python/duetime/api/__pycache__" / f"handler.{sys.implementation.cache_tag}.pyc"

    assert b"/opt/python/duetime/api/handler.py" in compiled.read_bytes()


def test_the_layer_has_no_programs(built: Path) -> None:
    assert not (built / "SharedLayer" / "python" / "bin").exists()


def test_an_interpreter_must_run_and_be_of_the_version(tmp_path: Path) -> None:
    shim = tmp_path / "python"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(shim.stat().st_mode | stat.S_IXUSR)

    assert find_python(THIS_VERSION, None) == sys.executable
    assert find_python(THIS_VERSION, str(shim)) is None
    assert find_python(THIS_VERSION, str(tmp_path / "absent")) is None
    assert find_python("3.99", sys.executable) is None


@pytest.mark.parametrize(("architecture", "machine"), [("arm64", "aarch64"), ("x86_64", "x86_64")])
def test_wheels_are_those_of_the_runtime(architecture: str, machine: str) -> None:
    options = platform_options("3.13", architecture)

    assert options[options.index("--python-version") + 1] == "3.13"
    platforms = [option.removeprefix("--platform=") for option in options if option.startswith("--platform=")]
    assert platforms
    assert all(platform.startswith("manylinux") and platform.endswith(f"_{machine}") for platform in platforms)


def test_make_builds_for_what_the_template_deploys_by_default(template: Template) -> None:
    command = ["make", "--silent", "--dry-run", "build-SharedLayer", "ARTIFACTS_DIR=out"]
    environment = {"PATH": os.environ["PATH"]}  # not what the `make test` around this was told
    planned = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    parameters = template.source["Parameters"]
    assert f"--runtime {parameters['Runtime']['Default']} " in planned
    assert f"--architecture {parameters['Architecture']['Default']} " in planned
    assert "--build-for lambda" in planned
