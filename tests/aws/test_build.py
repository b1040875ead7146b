"""How the layer is built."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.aws_local import ROOT
from scripts.build_layer import NEVER_LOADED, find_python, library_faults, main, newest_glibc, platform_options
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
    assert set(flags.values()) == {b"\x01\0\0\0"}


def test_tracebacks_name_the_place_where_lambda_mounts_the_layer(built: Path) -> None:
    compiled = built / "SharedLayer/python/duetime/api/__pycache__" / f"handler.{sys.implementation.cache_tag}.pyc"

    assert b"/opt/python/duetime/api/handler.py" in compiled.read_bytes()


def test_the_layer_leaves_out_what_no_function_imports(built: Path) -> None:
    """Whoever adds an import of one of these, however late it is done, is told here."""
    python = built / "SharedLayer" / "python"
    left_out = tuple(name.replace("/", ".") for name in NEVER_LOADED)
    importers: dict[str, set[str]] = {}
    for path in (python / "duetime").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in names:
                if name.startswith(left_out):
                    importers.setdefault(str(path.relative_to(python)), set()).add(name)

    assert not any((python / name).exists() for name in NEVER_LOADED)
    # The stores of other URLs than dynamodb://, each imported when such a URL is opened.
    assert importers.keys() == {"duetime/stores/open.py"}
    assert all(name.startswith("duetime.stores.backends.") for name in importers["duetime/stores/open.py"])


def test_each_layer_has_less_than_25_megabytes_and_libcurl_is_the_pollers_alone(
    built: Path, template: Template
) -> None:
    """Unzipped, with bytecode. What this machine's wheels take, those of Lambda take within some percent."""
    for layer in ("SharedLayer", "SenderLayer"):
        files = [path for path in (built / layer).rglob("*") if path.is_file()]
        assert sum(path.stat().st_size for path in files) < 25_000_000, layer
    assert not list((built / "SharedLayer").rglob("*pycurl*"))
    functions = template.of_type("AWS::Lambda::Function")
    assert [name for name in functions if "SenderLayer" in template.layers_of(name)] == ["Poller"]


def test_a_layer_without_bytecode_must_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["SharedLayer", "--out", str(tmp_path), "--runtime", "python3.99", "--runtime-python", sys.executable]

    assert main(options) == 1
    assert "ALLOW_NO_BYTECODE=1" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_make_passes_on_that_a_layer_may_do_without_bytecode() -> None:
    command = ["make", "--silent", "--dry-run", "build-SharedLayer", "ARTIFACTS_DIR=out"]
    environment = {"PATH": os.environ["PATH"]}
    told, untold = (
        subprocess.run(each, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
        for each in ([*command, "ALLOW_NO_BYTECODE=1"], command)
    )

    assert "--allow-no-bytecode" in told
    assert "--allow-no-bytecode" not in untold


def library(*, machine: int, needs: str) -> bytes:
    """As much of an ELF file as is looked at."""
    return b"\x7fELF".ljust(18, b"\0") + machine.to_bytes(2, "little") + b"\0libc.so.6\0" + needs.encode() + b"\0"


def test_a_library_that_lambda_cannot_load_is_found(tmp_path: Path) -> None:
    for name, content in {
        "good.so": library(machine=0xB7, needs="GLIBC_2.17\0GLIBC_2.34"),
        "new.so.3": library(machine=0xB7, needs="GLIBC_2.34\0GLIBC_2.35"),
        "other.so": library(machine=0x3E, needs="GLIBC_2.17"),
        "torn.so": b"",
    }.items():
        (tmp_path / name).write_bytes(content)

    assert list(library_faults(tmp_path, "arm64")) == [
        "new.so.3: needs glibc 2.35",
        "other.so: not for arm64",
        "torn.so: not for arm64",
    ]


def test_the_versions_that_a_library_needs_are_those_that_readelf_names(built: Path) -> None:
    """Of the libraries of this machine's layers, which are the same packages."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("no readelf on this machine")
    for path in built.glob("*Layer/**/*.so*"):
        shown = subprocess.run([readelf, "-V", "-W", path], check=True, capture_output=True, text=True).stdout
        named = {tuple(map(int, version)) for version in re.findall(r"Name: GLIBC_(\d+)\.(\d+)", shown)}
        assert newest_glibc(path.read_bytes()) == max(named, default=(0, 0)), path


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
    command = ["make", "--silent", "--dry-run", "build-SenderLayer", "ARTIFACTS_DIR=out"]
    environment = {"PATH": os.environ["PATH"]}  # not what the `make test` around this was told
    planned = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout

    parameters = template.source["Parameters"]
    assert "build_layer.py SenderLayer " in planned
    assert f"--runtime {parameters['Runtime']['Default']} " in planned
    assert f"--architecture {parameters['Architecture']['Default']} " in planned
    assert "--build-for lambda" in planned


def test_the_example_of_a_pipeline_calls_what_there_is(template: Template) -> None:
    workflow = (ROOT / "examples" / "aws" / "github-deploy.yml").read_text()
    commands = [shlex.split(command) for command in re.findall(r"- run: (.+)", workflow)]
    parameters = template.source["Parameters"]

    assert "id-token: write" in workflow
    assert f'python-version: "{parameters["Runtime"]["Default"].removeprefix("python")}"' in workflow
    environment = {"PATH": os.environ["PATH"]}
    for command in commands:
        planned = subprocess.run(
            [*command, "--dry-run"], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout
        if "deploy" in command:
            (given,) = [word.removeprefix("PARAMETERS=") for word in command if word.startswith("PARAMETERS=")]
            assert " deploy --stack-name duetime-prod --no-confirm-changeset" in planned
            assert {each.partition("=")[0] for each in given.split()} <= parameters.keys()
    assert [command[:2] for command in commands] == [["make", "validate"], ["make", "deploy"]]
