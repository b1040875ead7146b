"""The OpenAPI document as its users' tools read it, before a real ``duetime serve --auth``: ``make test-openapi``.

What they find is a fault of the document or of the server. ``schemathesis.toml`` says what is left out, and why.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from duetime.api.http.request_models import EXAMPLE_TARGET
from tests.support.processes import ROOT, DuetimeServer, command_environment

HERE = Path(__file__).parent
PROGRAMS = HERE / "programs"
NODE = ROOT / ".venv-openapi/npm/node_modules"
PYTHON = ROOT / ".venv-openapi/bin"
TOOL_SECONDS = 1500
"""For each tool, far more than any takes: other suites run beside them."""
pytestmark = [pytest.mark.openapi, pytest.mark.timeout(TOOL_SECONDS + 100)]
CASES = 10
"""For each operation, kind of data and phase."""


@dataclass(frozen=True)
class Api:
    """A server with a namespace ``orders``, the key of an admin of the tenant ``acme``, and the document."""

    url: str
    key: str
    document: Path

    def environment(self) -> dict[str, str]:
        path = f"{PYTHON}{os.pathsep}{os.environ['PATH']}"
        return os.environ | {"DUETIME_URL": self.url, "DUETIME_API_KEY": self.key, "PATH": path, "PYTHONPATH": ""}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    if not NODE.exists():
        pytest.skip("the tools are not installed: `make test-openapi` does")
    cwd = tmp_path_factory.mktemp("server")
    with DuetimeServer("--auth", "--allowed-targets", EXAMPLE_TARGET["arn"], cwd=cwd) as server:
        made = subprocess.run(
            [str(ROOT / ".venv/bin/duetime"), "keys", "create", "--role=admin", "--tenant=acme", "--store"],
            cwd=cwd,
            env=command_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        key = made.stdout.strip()
        headers = {"authorization": f"Bearer {key}"}
        answer = server.client.put("/v1/namespaces/orders", json={"numShards": 2}, headers=headers)
        assert answer.status_code == httpx.codes.CREATED
        document = cwd / "openapi.json"
        document.write_text(server.client.get("/v1/openapi.json").text)
        yield Api(server.url, key, document)


def run(*command: str | Path, cwd: Path, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=TOOL_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_spectral_finds_nothing(api: Api, tmp_path: Path) -> None:
    rules = ("--ruleset", HERE / "spectral.yaml", "--fail-severity", "hint")
    run(NODE / ".bin/spectral", "lint", *rules, api.document, cwd=tmp_path)


def test_a_typescript_client_compiles_strictly_and_runs(api: Api, tmp_path: Path) -> None:
    for name in ("client.ts", "tsconfig.json"):
        shutil.copy(PROGRAMS / name, tmp_path)
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "node_modules").symlink_to(NODE)
    run(NODE / ".bin/openapi-typescript", api.document, "--output", "schema.d.ts", cwd=tmp_path)
    run(NODE / ".bin/tsc", "--project", ".", cwd=tmp_path)
    run("node", "client.js", cwd=tmp_path, env=api.environment())


def test_a_generated_python_client_runs(api: Api, tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "client.py", tmp_path)
    options = ("--meta", "none", "--output-path", "duetime_generated")
    run(PYTHON / "openapi-python-client", "generate", "--path", api.document, *options, cwd=tmp_path)
    run(PYTHON / "python", "client.py", cwd=tmp_path, env=api.environment())


def test_schemathesis_finds_no_difference_between_document_and_server(api: Api, tmp_path: Path) -> None:
    run(
        PYTHON / "schemathesis",
        "--config-file",
        HERE / "schemathesis.toml",
        "run",
        f"{api.url}/v1/openapi.json",
        "--header",
        f"Authorization: Bearer {api.key}",
        "--max-examples",
        str(CASES),
        "--no-shrink",
        "--continue-on-failure",
        cwd=tmp_path,
        env=api.environment() | {"PYTHONPATH": str(PROGRAMS)},
    )
