"""The whole application on this machine: build, start the AWS emulator, deploy, and keep it running.

``make aws-local`` runs this; the end-to-end test uses its parts. The emulator runs functions by its own Python and
checks permissions (its ``AUTH=true``), so the policies of template.yaml are obeyed.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import boto3

from scripts.wire_http_api import wire_http_apis
from tests.support.ministack import running_ministack
from tests.support.tools import tool_program

ROOT = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
STACK_NAME = "duetime-local"

_CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
_BUILD_INPUTS = ("template.yaml", "Makefile", "scripts/build_layer.py", "functions", "shared", "requirements/sam.txt")
_BUILDS = ROOT / ".aws-sam"
_PREFIX = "this-machine-"
_LOCK = "this-machine.lock"


@dataclass(frozen=True, slots=True)
class Deployment:
    """``host``: the HTTP API's name in Host headers; ``outputs``: those of the stack."""

    endpoint_url: str
    host: str
    outputs: dict[str, str]

    @property
    def api_url(self) -> str:
        return f"http://{self.host}"


# -- build ---------------------------------------------------------------------------------------------------------


def build() -> Path:
    """Build what `sam build` makes of the repository for this machine's Python, again when an input has changed."""
    directory = _BUILDS / (_PREFIX + _digest_of_inputs())
    _BUILDS.mkdir(exist_ok=True)
    with (_BUILDS / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not directory.exists():
            _build(directory)
    return directory


def _build(directory: Path) -> None:
    with tempfile.TemporaryDirectory(dir=_BUILDS, prefix="building-") as scratch:
        unfinished = Path(scratch) / "build"
        _run_sam(["build", "--template", "template.yaml", "--build-dir", str(unfinished)], BUILD_FOR="this-machine")
        for outdated in _BUILDS.glob(_PREFIX + "*"):
            shutil.rmtree(outdated, ignore_errors=True)
        unfinished.rename(directory)


def _digest_of_inputs() -> str:
    digest = hashlib.sha256(sys.version.encode())
    for name in _BUILD_INPUTS:
        found = ROOT / name
        for path in sorted(found.rglob("*")) if found.is_dir() else [found]:
            if path.is_file() and "__pycache__" not in path.parts:
                content = path.read_bytes()
                digest.update(f"{path.relative_to(ROOT)}\0{len(content)}\0".encode())
                digest.update(content)
    return digest.hexdigest()[:16]


# -- deploy --------------------------------------------------------------------------------------------------------


def deploy(build_directory: Path, endpoint_url: str, **parameters: str) -> Deployment:
    """Do `sam deploy` to the emulator, then wire its HTTP API. ``parameters`` are those of the template.

    Receivers are on this machine, so callbacks may go there.
    """
    parameters = {"EgressAllowCidrs": "127.0.0.0/8", **parameters}
    template = _without_what_the_emulator_refuses(build_directory / "template.yaml")
    command = ["deploy", "--template-file", str(template), "--stack-name", STACK_NAME]
    command += ["--config-file", str(ROOT / "samconfig.toml"), "--no-confirm-changeset", "--no-progressbar"]
    command += ["--parameter-overrides", *(f"{name}={value}" for name, value in parameters.items())]
    _run_sam(command, AWS_ENDPOINT_URL=endpoint_url)
    client = partial(emulator_client, endpoint_url)
    api_ids = wire_http_apis(client, STACK_NAME)
    _allow_statements(client("iam"))
    stack = client("cloudformation").describe_stacks(StackName=STACK_NAME)["Stacks"][0]
    port = endpoint_url.rpartition(":")[2]
    return Deployment(
        endpoint_url=endpoint_url,
        host=f"{api_ids['HttpApi']}.execute-api.localhost:{port}",
        outputs={output["OutputKey"]: output["OutputValue"] for output in stack["Outputs"]},
    )


def _without_what_the_emulator_refuses(path: Path) -> Path:
    """Return the template beside ``path`` without alarms on several metrics and the dashboard, which shows all
    alarms."""
    from cfnlint.decode import decode  # it takes a second to import

    template, errors = decode(str(path))
    if errors:
        raise ValueError(f"{path}: {errors[0]}")
    template["Resources"] = {
        name: resource
        for name, resource in template["Resources"].items()
        if resource["Type"] != "AWS::CloudWatch::Dashboard"
        and not (resource["Type"] == "AWS::CloudWatch::Alarm" and "Metrics" in resource["Properties"])
    }
    del template["Outputs"]["DashboardUrl"]
    reduced = path.with_name("emulator.json")
    reduced.write_text(json.dumps(template))
    return reduced


def first_key(deployment: Deployment) -> str:
    """Make an admin's API key of the tenant ``default`` by the command, as an operator makes it."""
    tables = f"{deployment.outputs['TableName']}?calls={deployment.outputs['CallsTableName']}"
    store = f"dynamodb://{tables}&region={REGION}&endpoint_url={deployment.endpoint_url}"
    arguments = ["keys", "create", "--role", "admin", "--name", "first", "--store"]
    made = run_command(arguments, DUETIME_STORE=store)
    made.check_returncode()
    return made.stdout.strip()


def examine(deployment: Deployment) -> Any:
    """Print what `duetime doctor --aws` finds."""
    arguments = ["doctor", "--aws", STACK_NAME, "--region", REGION, "--json"]
    return json.loads(run_command(arguments, AWS_ENDPOINT_URL=deployment.endpoint_url, **_CREDENTIALS).stdout)


def run_command(arguments: list[str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `duetime` with environment variables."""
    command = [sys.executable, "-m", "duetime.cli", *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "shared"), **variables}
    return subprocess.run(command, env=environment, check=False, capture_output=True, text=True, timeout=300)


def emulator_client(endpoint_url: str, service: str) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]  # any service
        endpoint_url=endpoint_url,
        region_name=REGION,
        aws_access_key_id=_CREDENTIALS["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=_CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
    )


def _allow_statements(iam: Any) -> None:
    """Allow what the emulator checks otherwise than AWS.

    A PartiQL batch is dynamodb:PartiQLUpdate and the like on AWS, BatchExecuteStatement there; and it does not know
    the condition key events:source, without which no event may be put.
    """
    actions = ["dynamodb:BatchExecuteStatement", "events:PutEvents"]
    statement = {"Effect": "Allow", "Action": actions, "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    for role in iam.list_roles()["Roles"]:
        if role["RoleName"].startswith(STACK_NAME):
            iam.put_role_policy(RoleName=role["RoleName"], PolicyName="emulator", PolicyDocument=policy)


def _run_sam(arguments: list[str], **variables: str) -> None:
    """Away from any AWS account that this user may have configured. Raises ``CalledProcessError``; SAM says why."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    environment |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull, **_CREDENTIALS}
    environment |= {"AWS_DEFAULT_REGION": REGION, "SAM_CLI_TELEMETRY": "0", **variables}
    command = [tool_program("sam", "sam"), *arguments]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)


# -- the command ---------------------------------------------------------------------------------------------------

_READY = """
The timers API:  {url}
DynamoDB and the rest of AWS:  {endpoint}  (key and secret: test, region {region})
The schedule starts a poller within a minute. `.venv/bin/duetime listen --port 9999` prints callbacks.
curl and browsers know that name; for the command and the client put `127.0.0.1 {name}` into /etc/hosts.

  call() {{ curl -sS -H 'authorization: Bearer {key}' \\
      -H 'content-type: application/json' "$@"; }}
  call -X PUT {url}/v1/namespaces/default -d '{{"numShards": 4}}'
  call {url}/v1/namespaces/default/timers \\
    -d '{{"delay": "5s", "callbackUrl": "http://127.0.0.1:9999/hook", "payload": {{"hello": "world"}}}}'

Ctrl-C stops it.
"""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        built = build()
        with running_ministack(checks_permissions=True) as endpoint_url:
            deployment = deploy(built, endpoint_url)
            key = first_key(deployment)
            name = deployment.host.partition(":")[0]
            ready = _READY.format(url=deployment.api_url, name=name, endpoint=endpoint_url, region=REGION, key=key)
            print(ready, flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    except subprocess.CalledProcessError as error:
        print(f"aws_local: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
