"""Build the Lambda layer: the hashed requirements and the package, with compiled bytecode.

`sam build` calls this through the Makefile. It needs only the standard library and pip. Wheels are chosen for the
runtime's platform, whatever this machine is, and every one of them is checked against its hash.

Bytecode is bound to a minor version of Python, so it takes an interpreter of the runtime's version to make it.
Without one the layer works all the same, and each cold start compiles it again: the script says so.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "shared" / "requirements.txt"
PACKAGE = ROOT / "shared" / "duetime"

LAYER_ROOT = "/opt"
"""Where Lambda mounts layers: what tracebacks show."""

_MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
_MANYLINUX = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""Newest first. Runtimes since python3.12 are Amazon Linux 2023 with glibc 2.34."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    version = (
        f"{sys.version_info[0]}.{sys.version_info[1]}" if options.build_for == "this-machine" else options.python
    )
    packages = options.out.resolve() / "python"
    platform = [] if options.build_for == "this-machine" else platform_options(version, options.architecture)
    try:
        _install(packages, platform)
    except subprocess.CalledProcessError as error:
        print(f"build_layer: pip could not fill the layer (exit code {error.returncode})", file=sys.stderr)
        return 1
    shutil.copytree(PACKAGE, packages / "duetime", ignore=shutil.ignore_patterns("__pycache__", "testing"))
    target = "this machine" if options.build_for == "this-machine" else f"Lambda on {options.architecture}"
    compiler = find_python(version, options.runtime_python)
    if compiler is None:
        bytecode = f"without bytecode, so cold starts take longer (RUNTIME_PYTHON=path would name a python{version})"
    else:
        _compile(packages, compiler)
        bytecode = "with bytecode"
    # On standard output: SAM shows nothing else of a build that succeeds.
    print(f"build_layer: layer for python{version}, {target}, {bytecode}")
    return 0


def platform_options(version: str, architecture: str) -> list[str]:
    """pip's options for the wheels of a Lambda runtime on another kind of machine."""
    tags = [f"{manylinux}_{_MACHINES[architecture]}" for manylinux in _MANYLINUX]
    return ["--implementation", "cp", "--python-version", version, *(f"--platform={tag}" for tag in tags)]


def find_python(version: str, preferred: str | None) -> str | None:
    """An interpreter of this minor version that really runs (a version manager's shim may not)."""
    for candidate in _candidates(version, preferred):
        command = [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
        try:
            answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
        except OSError:
            continue
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return candidate
    return None


def _candidates(version: str, preferred: str | None) -> Iterator[str]:
    if preferred:
        yield preferred
        return
    yield sys.executable
    if found := shutil.which(f"python{version}"):
        yield found


def _install(packages: Path, platform: list[str]) -> None:
    shutil.rmtree(packages, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--require-hashes", "--only-binary=:all:", "--target", str(packages), *platform]
    subprocess.run([*command, "--requirement", str(REQUIREMENTS)], check=True)
    shutil.rmtree(packages / "bin", ignore_errors=True)  # console scripts, with this machine's interpreter in them


def _compile(packages: Path, python: str) -> None:
    """Unchecked bytecode is used whatever the time stamps of its sources: packing into a zip changes those."""
    command = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(packages.parent), "-p", LAYER_ROOT, str(packages)]
    subprocess.run(command, check=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build the Lambda layer.")
    parser.add_argument("--out", required=True, type=Path, help="the layer's directory; python/ is made in it")
    parser.add_argument("--runtime", default="python3.13", help="python3.x of the Lambda runtime")
    parser.add_argument("--architecture", default="arm64", choices=sorted(_MACHINES))
    parser.add_argument("--runtime-python", help="an interpreter of the runtime's minor version, for the bytecode")
    parser.add_argument(
        "--build-for",
        default="lambda",
        choices=["lambda", "this-machine"],
        help="this-machine: for the interpreter that runs this script, as local emulators need it",
    )
    options = parser.parse_args(arguments)
    options.python = options.runtime.removeprefix("python")
    return options


if __name__ == "__main__":
    sys.exit(main())
