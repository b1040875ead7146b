"""Build a Lambda layer: hashed requirements and, in ``SharedLayer``, the package, with compiled bytecode.

`sam build` calls this through the Makefile. It needs only the standard library and pip. Wheels are chosen for the
runtime's platform, whatever this machine is, and every one of them is checked against its hash.

Bytecode is bound to a minor version of Python, so it takes an interpreter of the runtime's version to make it.
Without one the layer works, and each cold start compiles it again: that has to be asked for.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "shared" / "requirements.txt"
PACKAGE = ROOT / "shared" / "duetime"

LAYER_ROOT = "/opt"
"""Where Lambda mounts layers: what tracebacks show."""

_MACHINES = {"arm64": "aarch64", "x86_64": "x86_64"}
_MANYLINUX = ("manylinux_2_34", "manylinux_2_28", "manylinux_2_17", "manylinux2014")
"""Newest first. Runtimes since python3.12 are Amazon Linux 2023."""
RUNTIME_GLIBC = (2, 34)
"""That of Amazon Linux 2023."""
_ELF_MACHINES = {"arm64": 0xB7, "x86_64": 0x3E}
_GLIBC_VERSION = re.compile(rb"\0GLIBC_(\d+)\.(\d+)")

OF_SENDER = ("pycurl",)
"""The requirements of ``SenderLayer``. All others are those of ``SharedLayer``, which every function has."""
NEVER_LOADED = (
    "aws_lambda_powertools/event_handler",
    "aws_lambda_powertools/utilities/auth_alpha",
    "aws_lambda_powertools/utilities/circuit_breaker",
    "aws_lambda_powertools/utilities/data_masking",
    "aws_lambda_powertools/utilities/feature_flags",
    "aws_lambda_powertools/utilities/idempotency",
    "aws_lambda_powertools/utilities/kafka",
    "aws_lambda_powertools/utilities/parameters",
    "aws_lambda_powertools/utilities/parser",
    "aws_lambda_powertools/utilities/streaming",
    "aws_lambda_powertools/utilities/validation",
    "duetime/cli",
    "duetime/local",
    "duetime/runtime/deployed",
    "duetime/stores/backends/cassandra",
    "duetime/stores/backends/mongodb",
    "duetime/stores/backends/sql",
    "duetime/testing",
    "duetime/transfer",
    "pydantic/v1",
    "tools",  # scripts that cron-descriptor installs by mistake
)
"""What no function imports: a test runs them all and looks for imports of these. Powertools' ``batch`` imports its
``parser`` if pydantic was imported before it, which ``functions/outbox`` does not do."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parse(arguments)
    is_local = options.build_for == "this-machine"
    version = f"{sys.version_info[0]}.{sys.version_info[1]}" if is_local else options.python
    compiler = sys.executable if is_local else find_python(version, options.runtime_python)
    if compiler is None and not options.allow_no_bytecode:
        print(
            f"build_layer: no python{version} to compile the layer with; without bytecode cold starts take longer:"
            " RUNTIME_PYTHON=path names one, ALLOW_NO_BYTECODE=1 builds without",
            file=sys.stderr,
        )
        return 1
    packages = options.out.resolve() / "python"
    try:
        _install(packages, options.layer, [] if is_local else platform_options(version, options.architecture))
    except subprocess.CalledProcessError as error:
        print(f"build_layer: pip could not fill the layer (exit code {error.returncode})", file=sys.stderr)
        return 1
    if options.layer == "SharedLayer":
        shutil.copytree(PACKAGE, packages / "duetime", ignore=shutil.ignore_patterns("__pycache__"))
        for name in NEVER_LOADED:
            shutil.rmtree(packages / name)
    if not is_local and (faults := list(library_faults(packages, options.architecture))):
        print("build_layer: Lambda cannot load " + "; ".join(faults), file=sys.stderr)
        return 1
    if compiler is not None:
        _compile(packages, compiler)
    target = "this machine" if is_local else f"Lambda on {options.architecture}"
    size_mb = sum(path.stat().st_size for path in packages.rglob("*") if path.is_file()) / 1e6
    bytecode = "with" if compiler is not None else "WITHOUT"
    # On standard output: SAM shows nothing else of a build that succeeds.
    print(f"build_layer: {options.layer} for python{version}, {target}, {size_mb:.1f} MB, {bytecode} bytecode")
    return 0


def library_faults(packages: Path, architecture: str) -> Iterator[str]:
    """Say of each library why the runtime's loader would refuse it: another machine, or a newer glibc.

    A wheel's tag promises both; this looks at what the library asks for. The names of the versions that it needs are
    texts in its table of strings.
    """
    for path in sorted(path for path in packages.rglob("*.so*") if path.is_file()):
        content = path.read_bytes()
        name = path.relative_to(packages)
        if content[:4] != b"\x7fELF" or int.from_bytes(content[18:20], "little") != _ELF_MACHINES[architecture]:
            yield f"{name}: not for {architecture}"
        if (newest := newest_glibc(content)) > RUNTIME_GLIBC:
            yield f"{name}: needs glibc {newest[0]}.{newest[1]}"


def newest_glibc(library: bytes) -> tuple[int, int]:
    """Return the newest version of glibc that a library asks for; (0, 0): none."""
    versions = ((int(major), int(minor)) for major, minor in _GLIBC_VERSION.findall(library))
    return max(versions, default=(0, 0))


def platform_options(version: str, architecture: str) -> list[str]:
    """Return pip's options for the wheels of a Lambda runtime on another kind of machine."""
    tags = [f"{manylinux}_{_MACHINES[architecture]}" for manylinux in _MANYLINUX]
    return ["--implementation", "cp", "--python-version", version, *(f"--platform={tag}" for tag in tags)]


def find_python(version: str, preferred: str | None) -> str | None:
    """Find an interpreter of this minor version that really runs (a version manager's shim may not)."""
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


def requirements_of(layer: str) -> str:
    """Return the hashed requirements of a layer."""
    of_each = re.split(r"\n(?=[a-z])", REQUIREMENTS.read_text())
    return "\n".join(each for each in of_each if each.startswith(OF_SENDER) == (layer == "SenderLayer"))


def _install(packages: Path, layer: str, platform: list[str]) -> None:
    shutil.rmtree(packages, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--require-hashes", "--only-binary=:all:", "--target", str(packages), *platform]
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(requirements_of(layer))
        file.flush()
        subprocess.run([*command, "--requirement", file.name], check=True)
    shutil.rmtree(packages / "bin", ignore_errors=True)  # console scripts, with this machine's interpreter in them


def _compile(packages: Path, python: str) -> None:
    """Unchecked bytecode is used whatever the time stamps of its sources: packing into a zip changes those."""
    command = [python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]
    command += ["-s", str(packages.parent), "-p", LAYER_ROOT, str(packages)]
    subprocess.run(command, check=True)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Build a Lambda layer.")
    parser.add_argument("layer", choices=["SharedLayer", "SenderLayer"], help="its name in the template")
    parser.add_argument("--out", required=True, type=Path, help="the layer's directory; python/ is made in it")
    parser.add_argument("--runtime", default="python3.13", help="python3.x of the Lambda runtime")
    parser.add_argument("--architecture", default="arm64", choices=sorted(_MACHINES))
    parser.add_argument("--runtime-python", help="an interpreter of the runtime's minor version, for the bytecode")
    parser.add_argument("--allow-no-bytecode", action="store_true", help="build without such an interpreter")
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
